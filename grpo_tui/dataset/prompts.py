"""The code that turns a row into a prompt: what the preview runs is the very text that train.py holds.

The text defines, for the answers given:

`prompt_of(row)`                     what a row of the source asks: chat messages, or text if `answer.plain`
`prepare(row)`                       the row as the trainer takes it; None: it is left out
`is_left_out(row)`                   only if single prompts were left out: is this row of the source one of them?
`is_held_out(row)`                   only if a share is kept apart: is this row of the source one of them?
`prepare_rows(rows, held_out=False)` all of it, row after row: what train.py calls, with `held_out` for the eval set

`prepare` decides on one row. What needs the other rows, repeated prompts above all, is done by `prepare_rows`.
"""

import hashlib
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from grpo_tui.dataset.mapping import RULES
from grpo_tui.dataset.rows import Row
from grpo_tui.draft import PLACE, DatasetAnswer, LeftOut
from grpo_tui.inert import one_line

RESERVED = (
    "prompts", "completions", "completion", "completion_ids", "trainer_state", "log_extra", "log_metric",
    "environment", "environments", "image", "images",
)  # fmt: skip
"""Column names that GRPOTrainer 1.16 takes for its own: arguments of rewards, and what makes it expect images."""

PREFIX = "source_"
"""Put before the name of a column whose own name is taken."""

MARK_DIGITS = 16
"""Hexadecimal digits of a prompt's hash that tell it from the others: 64 bits."""

ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant", "bing": "assistant"}
"""Who speaks in ShareGPT's conversations, as chat templates name it."""

_AS_TEXT = '''
def as_text(value):
    """The value as text: whole numbers without a fraction, lists and objects as JSON; None where there is none."""
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (list, dict)) else str(value)
'''

_VALUE_OF = '''
def value_of(row, path):
    """The value at the end of a dotted path through nested columns; None where there is none."""
    if path in row:
        return row[path]
    value = row
    try:
        for name in path.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return value
'''

_LEAKS = '''
def leaks(prompt, answer):
    """Does the prompt give the answer away? A short one may stand there by chance: it counts behind "answer" only."""
    text = prompt if isinstance(prompt, str) else "\\n".join(str(message.get("content")) for message in prompt)
    answer = (answer or "").strip()
    if not answer or answer.lower() not in text.lower():
        return False
    for found in re.finditer(rf"(?<![\\w.,]){re.escape(answer)}(?!\\w|[.,]\\d)", text, re.IGNORECASE):
        before = text[: found.start()].rpartition("\\n")[2]
        if re.search(r"(?:^\\s*[-*•]|[(\\[]?\\b[A-Za-z0-9][)\\].:])\\s*$", before):
            continue  # one of several choices
        if len(answer) >= 4 or re.search(r"\\b(answer|solution|result)( is)?\\s*[:=]?\\s*$", before, re.IGNORECASE):
            return True
    return False
'''

_JOINED = '''
def joined(row):
    """PROMPT with the values of the row in their places; None where it has none of them."""
    places = {place: spelled(value_of(row, place[0]), place[1]) for place in re.findall(PLACE, PROMPT)}
    if not any(places.values()):
        return None
    return re.sub(PLACE, lambda found: places[found[1], found[2] or ""], PROMPT).strip()


def spelled(value, letters=""):
    """A value as a part of a prompt: a list one item a line, behind labels of its own or `letters`."""
    if isinstance(value, dict) and isinstance(value.get("label"), list) and isinstance(value.get("text"), list):
        value = [{"label": label, "text": text} for label, text in zip(value["label"], value["text"])]
    if not isinstance(value, list):
        return as_text(value) or ""
    lines = []
    for at, item in enumerate(value):
        head = f"{chr(ord('A') + at)}. " if letters else ""
        if isinstance(item, dict) and {"label", "text"} <= item.keys():
            head, item = f"{item['label']}. ", item["text"]
        lines.append(head + (as_text(item) or ""))
    return "\\n".join(lines)
'''

_IS_BROKEN = '''
def is_broken(value):
    """Does it hold what no table takes: half a character (a lone surrogate), or a whole number beyond 64 bits?"""
    if isinstance(value, dict):
        return any(map(is_broken, value)) or any(map(is_broken, value.values()))
    if isinstance(value, list):
        return any(map(is_broken, value))
    if isinstance(value, str):
        return not value.isascii() and re.search("[\\ud800-\\udfff]", value) is not None
    return isinstance(value, int) and not -(2**63) <= value < 2**63
'''

_LOSES_DIGITS = '''
def loses_digits(value):
    """Is there a number in it of which a float may not hold all digits?"""
    if isinstance(value, (dict, list)):
        return any(map(loses_digits, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and abs(value) >= 2**53
'''

_MARK_OF = '''
def mark_of(row):
    """The same bytes for rows that ask the same; what else their messages hold does not count."""
    prompt = prompt_of(row)
    if isinstance(prompt, list):
        prompt = [[message.get("role"), message.get("content")] for message in prompt]
    return json.dumps(prompt, default=str).encode()
'''

_IS_LEFT_OUT = f'''
def is_left_out(row):
    """Was this prompt left out by hand?"""
    return hashlib.sha256(mark_of(row)).hexdigest()[:{MARK_DIGITS}] in LEFT_OUT
'''

_STOP = '''
class StopError(Exception):
    """A row that training shall not start with."""
'''

_WHY = {
    "broken_value": "half a character, or a number beyond 64 bits",
    "lost_digits": "a number may have lost digits",
    "null": "no prompt",
    "not_text": "neither text nor messages",
    "empty": "nothing to answer",
    "missing_answer": "no answer to compare with",
    "unparsable": "no answer is found in it",
    "leaked": "its prompt gives the answer away",
}
"""The fault of one row, in the words of the code that is written."""


def prepare_code(answer: DatasetAnswer) -> str:
    """Source of `prepare`, of `prepare_rows` and of what they need, for the answers given.

    `prepare` returns {"prompt": ..., "answer": text or None, and the other columns}, or None for a row that is left
    out. `prompt` is a list of chat messages, or text if `answer.plain`. `answer` is there only with an answer column,
    and always text: a column of that name keeps its own values and types as `source_answer`. At a row that was chosen
    to stop training `prepare` raises StopError, and `prepare_rows` ends with the row's number.
    """
    rule = RULES[answer.extract]
    dotted = answer.joins or any("." in name for name in (answer.prompt, answer.answer))
    leaks = answer.answer and _choice(answer, "leaked", "keep") != "keep"
    convert = answer.faults.get("mixed_type") == "convert"
    imports = {"re"} | {name for name in rule.imports if answer.answer}
    imports |= {"json"} if answer.answer or convert or answer.joins or _marks(answer) else set()
    imports |= {"hashlib"} if _marks(answer) else set()
    parts = ["\n".join(f"import {name}" for name in sorted(imports)), *_constants(answer)]
    if answer.answer or convert or answer.joins:
        parts.append(_AS_TEXT)
    if answer.answer and rule.code:
        parts.append(rule.code.replace("{argument}", _literal(answer.extract_argument)))
    needed_parts = (
        (_IS_BROKEN, True),
        (_LOSES_DIGITS, _choice(answer, "lost_digits", "keep") != "keep"),
        (_VALUE_OF, dotted),
        (_JOINED, answer.joins),
        (_LEAKS, leaks),
        (_STOP, _stops(answer)),
    )
    parts += [code for code, needed in needed_parts if needed]
    parts += [
        _prompt_of(answer),
        _MARK_OF if _marks(answer) else "",
        _IS_LEFT_OUT if _leaves_out(answer) else "",
        _prepare(answer),
        split_code(answer),
        _prepare_rows(answer),
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def split_code(answer: DatasetAnswer) -> str:
    """Source of `is_held_out(row)`, a part of `prepare_code`; empty where no prompt is kept apart.

    It goes by what the row asks and by the seed, not by the row's number: the same prompt is always on the same side,
    and rows that come or go change nothing for the others.
    """
    if not answer.eval_share:
        return ""
    return f'''
def is_held_out(row):
    """Is this row of the source kept apart from training? It goes by the prompt: the same one is on the same side."""
    digest = hashlib.sha256(b"{answer.seed} " + mark_of(row)).digest()
    return int.from_bytes(digest[:8], "big") < {answer.eval_share!r} * 2**64
'''


def prepare_function(answer: DatasetAnswer) -> Callable[[Row], Row | None]:
    """`prepare` itself, made by executing the text of `prepare_code`; a row that stops training becomes None."""
    return functions(answer)["prepare"]


def functions(answer: DatasetAnswer) -> dict[str, Callable[..., Any]]:
    """The functions of `prepare_code` by name. Here `prepare` and `prompt_of` return None where the code stops."""
    namespace: dict[str, Any] = {"__name__": "prepare"}
    exec(compile(prepare_code(answer), "<prepare>", "exec"), namespace)
    made = {name: namespace[name] for name in _MADE if name in namespace}
    if stop := namespace.get("StopError"):
        made |= {name: _quiet(made[name], stop) for name in ("prepare", "prompt_of")}
    return made


_MADE = (
    "is_broken",
    "as_text",
    "value_of",
    "joined",
    "extract",
    "leaks",
    "prompt_of",
    "mark_of",
    "is_left_out",
    "prepare",
    "is_held_out",
    "prepare_rows",
)


def _quiet(function: Callable[[Row], Any], stop: type[Exception]) -> Callable[[Row], Any]:
    def quiet(row: Row) -> Any:
        try:
            return function(row)
        except stop:
            return None

    return quiet


def _never(row: Row) -> bool:
    return False


def left_out_function(answer: DatasetAnswer) -> Callable[[Row], bool]:
    """`is_left_out` itself, for rows as they stand in the source, whether or not they are kept after all."""
    faults = {kind: choice for kind, choice in answer.faults.items() if kind != "left_out"}
    return functions(replace(answer, faults=faults)).get("is_left_out", _never)


def mark(answer: DatasetAnswer, row: Row) -> str:
    """What `LeftOut.mark` of a row of the source is."""
    mark_of = functions(replace(answer, left_out=(LeftOut(row=0, mark="", why=""),), faults={}))["mark_of"]
    return hashlib.sha256(mark_of(row)).hexdigest()[:MARK_DIGITS]


def leaks_function() -> Callable[[Any, str | None], bool]:
    """`leaks(prompt, answer)` as it is written where rows with such prompts are left out."""
    return _one("leaks", _LEAKS)


def loses_digits_function() -> Callable[[Any], bool]:
    """`loses_digits(row)` as it is written where rows with such numbers are left out."""
    return _one("loses_digits", _LOSES_DIGITS)


def _one(name: str, code: str) -> Callable[..., bool]:
    namespace: dict[str, Any] = {}
    exec(compile("import re\n" + code, f"<{name}>", "exec"), namespace)
    function: Callable[..., bool] = namespace[name]
    return function


def _choice(answer: DatasetAnswer, kind: str, usual: str = "leave_out") -> str:
    return answer.faults.get(kind, usual)


def _stops(answer: DatasetAnswer) -> bool:
    return any(answer.faults.get(kind) == "stop" for kind in _WHY)


def _marks(answer: DatasetAnswer) -> bool:
    """Must prompts be compared with one another, or with those that were left out?"""
    return bool(answer.eval_share) or _choice(answer, "duplicate", "keep") != "keep" or _leaves_out(answer)


def _leaves_out(answer: DatasetAnswer) -> bool:
    """Are single prompts left out by hand?"""
    return bool(answer.left_out) and _choice(answer, "left_out") != "keep"


def _out(answer: DatasetAnswer, kind: str) -> str:
    """The line that is run at a row with this fault."""
    if answer.faults.get(kind) == "stop":
        return f"    raise StopError({_literal(_WHY[kind])})"
    return f"    return None  # {_WHY[kind]}"


def _constants(answer: DatasetAnswer) -> list[str]:
    parts = [f"SYSTEM = {_literal(answer.system)}"] if answer.system else []
    if answer.joins:
        parts.append(f'PROMPT = {_literal(answer.prompt)}\nPLACE = r"{PLACE}"  # a column in it')
    if answer.examples and answer.plain:
        text = "".join(f"{example.question}\n{example.answer}\n\n" for example in answer.examples)
        parts.append(f"EXAMPLES = {_literal(text)}")
    elif answer.examples:
        messages = [
            f'    {{"role": "{role}", "content": {textwrap.indent(_literal(text), "    ").lstrip()}}},'
            for example in answer.examples
            for role, text in (("user", example.question), ("assistant", example.answer))
        ]
        parts.append("EXAMPLES = [\n" + "\n".join(messages) + "\n]")
    if not answer.plain:
        roles = ", ".join(f'"{name}": "{role}"' for name, role in ROLES.items())
        parts.append(f"# who speaks in ShareGPT's conversations, as chat templates name it\nROLES = {{{roles}}}")
    if _leaves_out(answer):
        marks = "\n".join(
            f"    {_literal(each.mark)},  # row {each.row + 1}: {one_line(each.why, 60)}" for each in answer.left_out
        )
        parts.append(f"# prompts that are not practised, by what they ask\nLEFT_OUT = {{\n{marks}\n}}")
    taken = ["prompt", *(["answer"] if answer.answer else []), *RESERVED]
    names = textwrap.fill(
        ", ".join(f'"{name}"' for name in taken), 100, initial_indent="    ", subsequent_indent="    "
    )
    return [
        *parts,
        f"# names that the trainer keeps for itself: such a column gets another one\nTAKEN = {{\n{names},\n}}",
    ]


def _prompt_of(answer: DatasetAnswer) -> str:
    return _function(
        "prompt_of(row)",
        f"What the row asks, as {'text' if answer.plain else 'chat messages'}; None: nothing that can be answered.",
        [f"prompt = {_asked(answer)}", *(_plain(answer) if answer.plain else _chat(answer)), "return prompt"],
    )


def _plain(answer: DatasetAnswer) -> list[str]:
    return [
        *_null(answer),
        "if not isinstance(prompt, str):",
        _out(answer, "not_text"),
        "if not prompt.strip():",
        _out(answer, "empty"),
    ]


def _chat(answer: DatasetAnswer) -> list[str]:
    own = ['prompt = [message for message in prompt if message.get("role") != "system"]'] if answer.system else []
    return [
        *_null(answer),
        "if isinstance(prompt, str):",
        '    prompt = [{"role": "user", "content": prompt}]',
        "if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):",
        _out(answer, "not_text"),
        "prompt = [",
        '    message if message.get("from") is None',
        '    else {"role": ROLES.get(str(message["from"]), message["from"]), "content": message.get("value")}',
        "    for message in prompt",
        "]",
        *own,
        'while prompt and prompt[-1].get("role") == "assistant":',
        "    prompt = prompt[:-1]  # the reply is what shall be learnt",
        'if not prompt or not str(prompt[-1].get("content") or "").strip():',
        _out(answer, "empty"),
    ]


def _null(answer: DatasetAnswer) -> list[str]:
    """A missing prompt has a line of its own only where something else becomes of it than of a wrong one."""
    if _choice(answer, "null") == _choice(answer, "not_text"):
        return []
    return ["if prompt is None or prompt != prompt:", _out(answer, "null")]


def _prepare(answer: DatasetAnswer) -> str:
    lines = ["if is_broken(row):", _out(answer, "broken_value")]
    if _choice(answer, "lost_digits", "keep") != "keep":
        lines += ["if loses_digits(row):", _out(answer, "lost_digits")]
    lines += ["prompt = prompt_of(row)", "if prompt is None:", "    return None"]
    if _leaves_out(answer):
        lines += ["if is_left_out(row):", "    return None"]
    if answer.answer:
        lines += _answer(answer)
    lines += _opening(answer)
    value = "as_text(value)" if answer.faults.get("mixed_type") == "convert" else "value"
    dropped = answer.faults.get("reserved_name") == "leave_out"
    name = "name" if dropped else f'"{PREFIX}" + name if name in TAKEN else name'
    kept = " if name not in TAKEN" if dropped else ' if name != "prompt"' if answer.prompt == "prompt" else ""
    given = '{"prompt": prompt, ' + ('"answer": answer, ' if answer.answer else "") + "**rest}"
    return _function(
        "prepare(row)",
        "One row of the source as the trainer takes it; None: the row is left out.",
        [*lines, f"rest = {{{name}: {value} for name, value in row.items(){kept}}}", f"return {given}"],
    )


def _opening(answer: DatasetAnswer) -> list[str]:
    """What is put before the prompt: the system prompt, then the examples."""
    if answer.plain:
        before = ['SYSTEM + "\\n\\n"'] * bool(answer.system) + ["EXAMPLES"] * bool(answer.examples)
        return [f"prompt = {' + '.join([*before, 'prompt'])}"] if before else []
    if answer.system:
        examples = " + EXAMPLES" if answer.examples else ""
        return [f'prompt = [{{"role": "system", "content": SYSTEM}}]{examples} + prompt']
    if answer.examples:
        return [
            'own = 1 if prompt[0].get("role") == "system" else 0',
            "prompt = prompt[:own] + EXAMPLES + prompt[own:]",
        ]
    return []


def _answer(answer: DatasetAnswer) -> list[str]:
    extracts = bool(RULES[answer.extract].code)
    missing, unparsable = _choice(answer, "missing_answer"), _choice(answer, "unparsable")
    lines = [
        f'text = as_text({_column(answer.answer)}) or ""',
        "answer = extract(text)" if extracts else "answer = text if text.strip() else None",
    ]
    if not extracts or missing == unparsable:
        guards = [("answer is None", "missing_answer")] if missing != "keep" else []
    else:
        guards = [("not text.strip()", "missing_answer"), ("answer is None and text.strip()", "unparsable")]
        guards = [(test, kind) for test, kind in guards if _choice(answer, kind) != "keep"]
    if _choice(answer, "leaked", "keep") != "keep":
        guards.append(("leaks(prompt, answer)", "leaked"))
    return lines + [line for test, kind in guards for line in (f"if {test}:", _out(answer, kind))]


def _prepare_rows(answer: DatasetAnswer) -> str:
    """`prepare_rows` with no more in it than the choices need."""
    setup: list[str] = []
    steps = ["prepared = prepare(row)"]
    if _stops(answer):
        steps = [
            "try:",
            "    prepared = prepare(row)",
            "except StopError as error:",
            '    raise SystemExit(f"Row {number} of the data: {error}. Training was to stop there.") from None',
        ]
    if answer.faults.get("mixed_kind") == "stop" and not answer.convert_plain:
        setup.append("kinds = set()")
        steps += [
            "if prepared is not None:",
            f"    kinds.add(isinstance({_asked(answer)}, str))",
            "if len(kinds) > 1:",
            '    raise SystemExit(f"Row {number} of the data: plain text and chat messages in one column.")',
        ]
    if answer.faults.get("mixed_type") == "stop":
        setup.append("types = {}")
        steps += [
            "for name, value in row.items():",
            f"    if name != {_literal(answer.prompt)} and value is not None"
            " and types.setdefault(name, type(value)) is not type(value):",
            '        raise SystemExit(f"Row {number} of the data: values of several types in column {name!r}.")',
        ]
    side = " or is_held_out(row) is not held_out" if answer.eval_share else ""
    steps += [f"if prepared is None{side}:", "    continue"]
    repeated = _choice(answer, "duplicate", "keep")
    if repeated != "keep":
        setup.append("seen = set()")
        steps += [
            "mark = hashlib.sha256(mark_of(row)).digest()",
            "if mark in seen:",
            "    continue  # the same prompt again"
            if repeated == "leave_out"
            else '    raise SystemExit(f"Row {number} of the data asks the same again. Training was to stop there.")',
            "seen.add(mark)",
        ]
    if answer.faults.get("broken_line") == "leave_out":
        steps[:0] = [
            "if all(value is None for value in row.values()):",
            "    continue  # a broken line, or one with nothing in it",
        ]
    numbered = any("number" in line for line in steps)
    body = [
        *setup,
        "for number, row in enumerate(rows, 1):" if numbered else "for row in rows:",
        *(f"    {line}" for line in [*steps, "yield prepared"]),
    ]
    if not answer.eval_share:
        body = ["if held_out:", "    return  # nothing is kept apart", *body]
    return _function(
        "prepare_rows(rows, held_out=False)",
        "The rows that training takes, prepared; with `held_out` those that are kept apart from it.",
        body,
    )


def _function(head: str, docstring: str, lines: Sequence[str]) -> str:
    return f'def {head}:\n    """{docstring}"""\n' + textwrap.indent("\n".join(lines), "    ")


def _column(name: str) -> str:
    """The expression for a column of `row`."""
    return f"value_of(row, {_literal(name)})" if "." in name else f"row.get({_literal(name)})"


def _asked(answer: DatasetAnswer) -> str:
    """The expression for what `row` asks."""
    return "joined(row)" if answer.joins else _column(answer.prompt)


def _literal(text: str) -> str:
    """`text` as Python writes it: in double quotes where it has none, one line of source for each of its lines."""
    lines = text.splitlines(keepends=True)
    if len(lines) > 1:
        return "(\n" + "".join(f"    {_literal(line)}\n" for line in lines) + ")"
    return repr(text) if '"' in text or "'" in text else f'"{repr(text)[1:-1]}"'
