"""Which column is the prompt, which the answer, and how the answer is taken out of it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from grpo_tui.dataset.rows import Column, Row
from grpo_tui.draft import DatasetAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem


@dataclass(frozen=True)
class Rule:
    """A way to take the answer out of the text of its column."""

    title: str

    needs: str
    """What its argument is, for people; empty: it takes none."""

    code: str
    """Source of `def extract(text)`, written into train.py as it stands; {argument} becomes the quoted argument.

    It gets the column's value as text and returns the answer as text, or None where there is none. Empty: the text is
    the answer.
    """

    imports: tuple[str, ...] = ()
    check: Callable[[str], str] = field(default=lambda argument: "")
    """What is wrong with an argument, as the end of a sentence; empty: nothing."""


def _bad_pattern(argument: str) -> str:
    try:
        re.compile(argument)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    return ""


def _bad_tag(argument: str) -> str:
    return "" if re.fullmatch(r"[A-Za-z][\w.-]*", argument) else "is no tag name: write it without the brackets"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "as_is": Rule("as it stands", "", ""),
        "after_marker": Rule(
            "what follows a marker",
            "the marker, such as ####",
            '''
def extract(text):
    """What follows the last marker on its line, without thousands separators and currency sign."""
    before, marker, after = text.rpartition({argument})
    found = after.strip().partition("\\n")[0].strip()
    return re.sub(r"(?<=\\d),(?=\\d\\d\\d)", "", found).removeprefix("$").strip() if marker and found else None
''',
            ("re",),
        ),
        "tag": Rule(
            "inside a tag",
            "the tag's name, such as answer",
            '''
def extract(text):
    """What stands in the last such tag."""
    tag = re.escape({argument})
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return found[-1].strip() or None if found else None
''',
            ("re",),
            _bad_tag,
        ),
        "boxed": Rule(
            "inside \\boxed{}",
            "",
            '''
def extract(text):
    """What stands in the last \\\\boxed{}, braces inside it balanced."""
    before, mark, after = text.rpartition("\\\\boxed{")
    depth = 1
    for at, character in enumerate(after if mark else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return after[:at].strip() or None
    return None
''',
        ),
        "regex": Rule(
            "found by a regular expression",
            "the expression; its first group is the answer, without a group the whole match",
            '''
def extract(text):
    """The first group of the first match, or the whole match where there is no group."""
    found = re.search({argument}, text)
    return ((found[1] if found.re.groups else found[0]) or "").strip() or None if found else None
''',
            ("re",),
            _bad_pattern,
        ),
        "json_path": Rule(
            "inside JSON",
            "the names on the way, such as reward_model.ground_truth or answers.0",
            '''
def extract(text):
    """The value at the end of the path."""
    try:
        value = json.loads(text)
        for name in {argument}.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
        return as_text(value) or None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
''',
            ("json",),
        ),
        "letter": Rule(
            "the letter of an option's number",
            "",
            '''
def extract(text):
    """The letter of the option with this number, counted from 0: A, B, …"""
    number = text.strip()
    return chr(ord("A") + int(number)) if number.isdecimal() and len(number) < 3 and int(number) < 26 else None
''',
        ),
    }
)
"""The extraction rules by name."""


def rule_problem(answer: DatasetAnswer) -> Problem | None:
    """What is wrong with the chosen rule and its argument."""
    rule = RULES.get(answer.extract)
    where = "answer extraction"
    if rule is None:
        return Problem(where, f"There is no rule '{one_line(answer.extract, 40)}'.", f"Rules: {', '.join(RULES)}.")
    if rule.needs and not answer.extract_argument:
        return Problem(where, f"The rule '{answer.extract}' needs {rule.needs}.", "Give it.")
    if fault := rule.check(answer.extract_argument) if rule.needs else "":
        return Problem(where, f"'{one_line(answer.extract_argument, 60)}' {fault}.", "Correct it.")
    return None


def mapping_problems(answer: DatasetAnswer, columns: Sequence[Column]) -> list[Problem]:
    """What is wrong with the chosen columns and rule."""
    names = [column.name for column in columns]
    there = f"Columns: {one_line(', '.join(names), 300)}."
    problems = []
    if not answer.prompt:
        problems.append(Problem("prompt column", "No column is chosen for the prompt.", there))
    asked = (("prompt column", name) for name in answer.prompt_columns)
    for title, name in (*asked, ("answer column", answer.answer)):
        if name and name not in names and not _leads_into(name, columns):
            problems.append(Problem(title, f"There is no column '{one_line(name, 60)}'.", there))
    if not 0 <= answer.eval_share < 1:
        problems.append(
            Problem("held-out share", f"{answer.eval_share} of the prompts cannot be kept apart.", "Give 0 to below 1.")
        )
    fault = rule_problem(answer)
    return [*problems, fault] if fault else problems


def _leads_into(name: str, columns: Sequence[Column]) -> bool:
    """Does a dotted name begin with a column that has others inside it? Whether they are there is seen row by row."""
    first, dot, _ = name.partition(".")
    return bool(dot) and any(column.name == first and column.type in _NESTED for column in columns)


_NESTED = ("struct", "json", "list")


def choices(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[str, ...]:
    """The names that may be chosen as prompt or answer: all columns, and behind each the ones inside it, dotted."""
    names: dict[str, None] = {}
    for column in columns:
        names[column.name] = None
        if column.type in ("struct", "json"):
            values = (row.get(column.name) for row in rows)
            names.update(dict.fromkeys(f"{column.name}.{path}" for value in values for path in _paths(value)))
    return tuple(names)


def _paths(value: Any, depth: int = 3) -> Iterator[str]:
    """Dotted names of what an object holds, those of objects in it included, to a depth."""
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            yield str(name)
            yield from (f"{name}.{path}" for path in _paths(inner, depth - 1))


@dataclass(frozen=True)
class Proposal:
    """Columns and rule as they look right, each with its reason."""

    answer: DatasetAnswer

    reasons: Mapping[str, str]
    """Name of a field of the answer to the reason for its value; a field that is not there was left as it was."""


PROMPT_NAMES = (
    "prompt", "question", "problem", "instruction", "query", "messages", "conversation", "conversations", "input",
    "task", "text", "user", "goal",
)  # fmt: skip
ANSWER_NAMES = (
    "final_answer", "answer", "ground_truth", "gold_answer", "expected_answer", "correct_answer", "gold", "expected",
    "target", "label", "solution", "reference", "answers", "reward_model", "output", "response", "completion",
)  # fmt: skip
"""Column names in use for prompts and for answers on the hub, the clearest first."""

ENOUGH = 0.9
"""Share of the rows that must show a pattern for its rule to be proposed."""

_PATTERNS: tuple[tuple[str, str, str, re.Pattern[str]], ...] = (
    ("after_marker", "####", "have ####", re.compile(r"####[ \t]*\S")),
    ("boxed", "", "have \\boxed{}", re.compile(r"\\boxed\{")),
    ("tag", "answer", "have <answer>…</answer>", re.compile(r"<answer>.+?</answer>", re.DOTALL)),
)
_PATHS = ("ground_truth", "answer", "target", "value")


def propose(
    columns: Sequence[Column],
    rows: Sequence[Row],
    base: DatasetAnswer | None = None,
    *,
    prompt: str | None = None,
    answer: str | None = None,
) -> Proposal:
    """The mapping that the names and the first `rows` suggest; other fields of `base` stay.

    `prompt` and `answer` are columns chosen already; an empty `answer` means that there is none.
    """
    reasons: dict[str, str] = {}
    usable = {column.name: column for column in columns if _could_be_prompt(column, rows)}
    if prompt is not None:
        reasons["prompt"] = BY_HAND
    elif prompt := _by_name(PROMPT_NAMES, usable):
        reasons["prompt"] = f"the column is called '{prompt}'"
    elif usable:
        prompt = max(usable, key=lambda name: _mean_length(rows, name))
        reasons["prompt"] = "of the text columns it has the longest texts"
    if prompt and _is_chat(rows, prompt):
        reasons["prompt"] += ", and it holds chat messages"
    elif prompt and reasons["prompt"] != BY_HAND and (joined := _with_others(prompt, usable, rows)):
        prompt, reasons["prompt"] = joined
    asked = DatasetAnswer(prompt=prompt or "").prompt_columns
    others = {column.name: column for column in columns if column.name not in asked and column.type != "null"}
    if answer is not None:
        reasons["answer"] = BY_HAND
    elif answer := _by_name(ANSWER_NAMES, others):
        reasons["answer"] = f"the column is called '{answer}'"
    elif answer := _by_name(ANSWER_NAMES, inside := _inside(columns, rows, prompt)):
        answer = inside[answer]
        reasons["answer"] = f"inside it there is '{answer.rpartition('.')[2]}'"
    rule, argument = "as_is", ""
    if answer:
        rule, argument, reasons["extract"] = _proposed_rule(rows, answer, lettered=":letters}" in (prompt or ""))
    chosen = replace(
        base or DatasetAnswer(), prompt=prompt or "", answer=answer or "", extract=rule, extract_argument=argument
    )
    return Proposal(chosen, reasons)


OPTION_NAMES = ("choices", "options")
"""What lists of options to choose from are called on the hub."""

BY_HAND = "set by you"


def _with_others(prompt: str, usable: Mapping[str, Column], rows: Sequence[Row]) -> tuple[str, str] | None:
    """The prompt joined with what belongs to it, and why: options to choose from, or what an instruction is about."""
    for name in OPTION_NAMES:
        values = [value for row in rows if (value := row.get(name))]
        if values and all(isinstance(value, list) and all(isinstance(each, str) for each in value) for value in values):
            return f"{{{prompt}}}\n\n{{{name}:letters}}", f"the options stand in '{name}'"
        if values and all(isinstance(value, dict) and {"label", "text"} <= value.keys() for value in values):
            return f"{{{prompt}}}\n\n{{{name}}}", f"the options stand in '{name}'"
    if prompt.lower() == "instruction" and "input" in usable and any(row.get("input") for row in rows):
        return f"{{{prompt}}}\n\n{{input}}", "what the instruction is about stands in 'input'"
    return None


def _proposed_rule(rows: Sequence[Row], column: str, *, lettered: bool = False) -> tuple[str, str, str]:
    values = [value for row in rows if (value := _at(row, column)) is not None]
    if lettered and values and all(re.fullmatch(r"\d", str(value)) for value in values):
        return "letter", "", "the answers are numbers of options"
    texts = [value for value in values if isinstance(value, str)]
    for rule, argument, words, pattern in _PATTERNS:
        found = sum(bool(pattern.search(text)) for text in texts)
        if texts and found > ENOUGH * len(values):
            return rule, argument, f"{found} of {len(values)} answers {words}"
    structs = [value for value in values if isinstance(value, dict)]
    for name in _PATHS:
        if structs and sum(name in value for value in structs) > ENOUGH * len(values):
            return "json_path", name, f"the answers are objects with '{name}'"
    return "as_is", "", "no marker is in more than nine of ten answers"


def _inside(columns: Sequence[Column], rows: Sequence[Row], prompt: str | None) -> dict[str, str]:
    """The names of columns inside others, each with its dotted name; those nearest to the surface count."""
    dotted = [name for name in choices(columns, rows) if "." in name and name.partition(".")[0] != prompt]
    return {name.rpartition(".")[2]: name for name in sorted(dotted, key=lambda name: -name.count("."))}


def _at(row: Row, name: str) -> Any:
    """The value of a column, or of one inside another."""
    value: Any = row
    for part in [name] if name in row else name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _by_name(names: Sequence[str], columns: Mapping[str, Any]) -> str:
    lowered = {name.lower().strip(): name for name in columns}
    return next((lowered[name] for name in names if name in lowered), "")


def _could_be_prompt(column: Column, rows: Sequence[Row]) -> bool:
    return column.type in ("string", "json") or (column.type == "list" and _is_chat(rows, column.name))


def _is_chat(rows: Sequence[Row], name: str) -> bool:
    filled = [row[name] for row in rows if row.get(name)]
    return bool(filled) and all(
        isinstance(value, list)
        and isinstance(value[0], dict)
        and ({"role", "content"} <= value[0].keys() or {"from", "value"} <= value[0].keys())
        for value in filled
    )


def _mean_length(rows: Sequence[Row], name: str) -> float:
    lengths = [len(str(row[name])) for row in rows if row.get(name) is not None]
    return sum(lengths) / len(lengths) if lengths else 0.0


def shown(value: Any, limit: int = 200) -> str:
    """A value of a row on one line, safe to print; nothing is shown as `—`."""
    return "—" if value is None else one_line(value if isinstance(value, str) else repr(value), limit)
