"""The code that turns a row into a prompt: what the preview runs is the very text that train.py holds."""

import textwrap
from collections.abc import Callable
from typing import Any

from grpo_tui.dataset.mapping import RULES
from grpo_tui.dataset.rows import Row
from grpo_tui.draft import DatasetAnswer

RESERVED = (
    "prompts", "completions", "completion", "completion_ids", "trainer_state", "log_extra", "log_metric",
    "environment", "environments", "image", "images",
)  # fmt: skip
"""Column names that GRPOTrainer 1.16 takes for its own: arguments of rewards, and what makes it expect images."""

PREFIX = "source_"
"""Put before the name of a column whose own name is taken."""

_AS_TEXT = '''
def as_text(value):
    """The value as text: whole numbers without a fraction, lists and objects as JSON; None where there is none."""
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else str(value)
'''


def prepare_code(answer: DatasetAnswer) -> str:
    """Source of `def prepare(row)` and what it needs, for the answers given.

    `prepare` returns {"prompt": ..., "answer": text or None, and the other columns}, or None for a row that is left
    out. `prompt` is a list of chat messages, or text if `answer.plain`. `answer` is there only with an answer column.
    """
    rule = RULES[answer.extract]
    imports = {name for name in rule.imports if answer.answer} | ({"json"} if answer.answer else set())
    parts = ["\n".join(f"import {name}" for name in sorted(imports))]
    if answer.system:
        parts.append(f"SYSTEM = {_literal(answer.system)}")
    if answer.answer:
        parts.append(_AS_TEXT)
        if rule.code:
            parts.append(rule.code.replace("{argument}", _literal(answer.extract_argument)))
    parts.append(_prepare(answer))
    return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def prepare_function(answer: DatasetAnswer) -> Callable[[Row], Row | None]:
    """`prepare` itself, made by executing the text of `prepare_code`."""
    return functions(answer)["prepare"]


def functions(answer: DatasetAnswer) -> dict[str, Callable[..., Any]]:
    """The functions of `prepare_code` by name: `prepare`, and `as_text` and `extract` where it has them."""
    namespace: dict[str, Any] = {"__name__": "prepare"}
    exec(compile(prepare_code(answer), "<prepare>", "exec"), namespace)
    return {name: namespace[name] for name in ("prepare", "as_text", "extract") if name in namespace}


def _prepare(answer: DatasetAnswer) -> str:
    lines = [f"prompt = row.get({_literal(answer.prompt)})", *(_plain(answer) if answer.plain else _chat(answer))]
    taken = ["prompt", *RESERVED]
    if answer.answer:
        taken.insert(1, "answer")
        lines += _answer(answer)
    rest = (
        f'{{"{PREFIX}" + name if name in TAKEN else name: value for name, value in row.items()' + _dropped(answer) + "}"
    )
    given = '{"prompt": prompt, ' + ('"answer": answer, ' if answer.answer else "") + "**rest}"
    names = textwrap.fill(
        ", ".join(f'"{name}"' for name in taken), 100, initial_indent="    ", subsequent_indent="    "
    )
    return (
        f"# names that the trainer keeps for itself: such a column gets another one\nTAKEN = {{\n{names},\n}}\n\n\n"
        "def prepare(row):\n"
        '    """One row of the source as the trainer takes it; None: the row is left out."""\n'
        + textwrap.indent("\n".join([*lines, f"rest = {rest}", f"return {given}"]), "    ")
        + "\n"
    )


def _literal(text: str) -> str:
    """`text` as Python writes it: in double quotes where it has none, one line of source for each of its lines."""
    lines = text.splitlines(keepends=True)
    if len(lines) > 1:
        return "(\n" + "".join(f"    {_literal(line)}\n" for line in lines) + ")"
    return repr(text) if '"' in text or "'" in text else f'"{repr(text)[1:-1]}"'


def _answer(answer: DatasetAnswer) -> list[str]:
    out = {kind: answer.faults.get(kind, "leave_out") != "keep" for kind in ("missing_answer", "unparsable")}
    extracts = bool(RULES[answer.extract].code)
    guard = {
        (True, True): "answer is None",
        (True, False): "not text.strip()" if extracts else "answer is None",
        (False, True): "answer is None and text.strip()" if extracts else "",
        (False, False): "",
    }[out["missing_answer"], out["unparsable"]]
    return [
        f'text = as_text(row.get({_literal(answer.answer)})) or ""',
        "answer = extract(text)" if extracts else "answer = text if text.strip() else None",
        *([f"if {guard}:", "    return None  # no answer to compare with"] if guard else []),
    ]


def _dropped(answer: DatasetAnswer) -> str:
    """Columns that would only repeat what `prompt` and `answer` hold."""
    names = ["prompt"] if answer.prompt == "prompt" else []
    if answer.answer == "answer" and not RULES[answer.extract].code:
        names.append("answer")
    if not names:
        return ""
    return f' if name != "{names[0]}"' if len(names) == 1 else ' if name not in ("prompt", "answer")'


def _plain(answer: DatasetAnswer) -> list[str]:
    lines = ["if not isinstance(prompt, str) or not prompt.strip():", "    return None  # nothing to answer"]
    return [*lines, 'prompt = SYSTEM + "\\n\\n" + prompt'] if answer.system else lines


def _chat(answer: DatasetAnswer) -> list[str]:
    lines = [
        "if isinstance(prompt, str):",
        '    prompt = [{"role": "user", "content": prompt}]',
        "if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):",
        "    return None  # neither text nor messages",
        'while prompt and prompt[-1].get("role") == "assistant":',
        "    prompt = prompt[:-1]  # the reply is what shall be learnt",
        'if not prompt or not str(prompt[-1].get("content") or "").strip():',
        "    return None  # nothing to answer",
    ]
    if answer.system:
        lines += [
            'prompt = [{"role": "system", "content": SYSTEM}]'
            ' + [message for message in prompt if message.get("role") != "system"]',
        ]
    return lines
