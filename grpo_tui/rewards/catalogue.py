"""The catalogue of reward functions, and those of it that fit a task."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from grpo_tui.draft import DatasetAnswer
from grpo_tui.rewards.kinds import TEMPLATES, Proposal, Template
from grpo_tui.rewards.writing import render_rewards

__all__ = ["TEMPLATES", "WEIGHTS", "Proposal", "Template", "proposals", "render_rewards"]

WEIGHTS: Mapping[str, float] = MappingProxyType({"correct": 1.0, "format": 0.25, "style": 0.125})
"""Exact in binary; correctness outweighs all the rest together (rule of thumb: format at most a quarter of it)."""

TESTS = ("tests", "test", "test_list", "test_cases", "unit_tests")
SOURCES = ("source", "context", "passage", "document")
"""What columns of tests, and of text to be quoted, are called."""


def proposals(answer: DatasetAnswer, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[Proposal, ...]:
    """Three to five reward functions for a task, correctness first.

    `columns` and `rows` are those of the prepared data, as the training sees them: `prompt`, `answer` and the rest.
    """
    rights = [row["answer"] for row in rows if row.get("answer") is not None] if "answer" in columns else []
    tests = next((name for name in TESTS if name in columns and _are_tests([row.get(name) for row in rows])), "")
    if tests:
        return (_code(tests), *_form(answer.system), _brevity(False), _no_repetition())
    right = _correctness(rights)
    source = next((name for name in SOURCES if name in columns), "")
    quoted = [_quotations(source)] if source and right and right[0].template in ("exact", "judge") else []
    found = [*right, *_format(answer.system, rights), *quoted, _brevity(bool(rights))]
    return tuple(found if right else [*found, _no_repetition()])


def _propose(template: str, name: str, why: str, *warnings: str, **parameters: Any) -> Proposal:
    kind = TEMPLATES[template]
    return Proposal(
        template=template,
        name=name,
        parameters=parameters,
        weight=WEIGHTS[kind.aspect],
        why=why,
        warnings=(*warnings, *kind.cautions),
    )


def _correctness(rights: Sequence[Any]) -> list[Proposal]:
    """The function that compares with right answers of this kind; none without answers."""
    if not rights:
        return []
    template, why = next((template, why) for template, fits, why in ANSWER_KINDS if all(map(fits, rights)))
    needs = TEMPLATES[template].needs
    return [_propose(template, "correct", why, *([f"It needs a package: pip install {needs}."] if needs else []))]


def _code(column: str) -> Proposal:
    why = f"The column {column} holds tests, and code that passes them is right."
    return _propose("code_tests", "correct", why, tests=column)


def _are_tests(values: Sequence[Any]) -> bool:
    texts = ["\n".join(map(str, each)) if isinstance(each, list | tuple) else str(each) for each in values if each]
    return bool(texts) and all(re.search(r"^\s*(?:assert\b|def test_)", text, re.MULTILINE) for text in texts)


def _is_letter(right: Any) -> bool:
    return bool(re.fullmatch(r"\(?[A-Ja-j]\)?\.?", str(right).strip()))


def _is_number(right: Any) -> bool:
    return bool(
        re.fullmatch(r"[-+\u2212$€£]?[\d.,'_]*\d[\d.,'_]*(?:[eE][-+]?\d+)?(?:/\d+)?\s*[%\w]{0,12}", str(right).strip())
    )


def _is_mathematics(right: Any) -> bool:
    """A number, or a formula: something of LaTeX or of arithmetic in it, and no words."""
    text = re.sub(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|[{}$]", r" \\ ", str(right))
    is_plain = re.fullmatch(r"[\w\s().,^*/=+\\-]+", text) and not re.search(r"[^\W\d_]{3,}", text)
    return _is_number(right) or bool(is_plain and re.search(r"\\|[\w)]\s*[-+^*/=]\s*[\w(]", text))


def _object(right: Any) -> Any:
    if not isinstance(right, str):
        return right
    try:
        return json.loads(right)
    except (ValueError, RecursionError):
        return None


def _is_json_object(right: Any) -> bool:
    return isinstance(_object(right), dict)


def _is_any(right: Any) -> bool:
    return True


ANSWER_KINDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("choice", _is_letter, "Every right answer seen is one letter."),
    ("numeric", _is_number, "Every right answer seen is one number."),
    ("mathematics", _is_mathematics, "Every right answer seen is a number or a formula."),
    ("same_json", _is_json_object, "Every right answer seen is a JSON object."),
    ("exact", _is_any, "The right answers are text, so the whole final answer is compared."),
)
"""Template, the answers it fits, and why. The first row that fits all answers counts."""

NOT_ASKED = (
    "The system prompt does not ask for these tags yet: a model that never writes them cannot be rewarded for them."
)
NOTHING_IS_RIGHT = "No right answers are known, so nothing here pays for being right: map a column, or take a judge."


def _format(system: str, rights: Sequence[Any]) -> list[Proposal]:
    """Tags that the system prompt names, or JSON if it asks for that, or else tags all the same."""
    alone = () if rights else (NOTHING_IS_RIGHT,)
    if _named_tags(system):
        return _form(system, *alone)
    if "json" in system.lower() or (rights and all(map(_is_json_object, rights))):
        keys = _common_keys(rights)
        why = "The answers are JSON objects." if rights else "The system prompt asks for JSON."
        return [_propose("json_object", "format", why, *alone, **({"keys": keys} if keys else {}))]
    why = "An answer in its own tag is found with certainty, and reasoning has its place."
    return [_propose("tags", "format", why, NOT_ASKED, *alone)]


def _form(system: str, *warnings: str) -> list[Proposal]:
    """The tags that the system prompt names; none if it names none."""
    names = _named_tags(system)
    why = f"The system prompt asks for {', '.join(f'<{name}>' for name in names)}."
    return [_propose("tags", "format", why, *warnings, tags=names)] if names else []


def _named_tags(system: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(r"<([a-z][a-z0-9_]*)>", system)))


def _common_keys(rights: Sequence[Any]) -> tuple[str, ...]:
    """The keys, when all right answers are objects with the same ones."""
    kinds = {tuple(sorted(value)) if isinstance(value := _object(right), dict) else () for right in rights}
    return kinds.pop() if len(kinds) == 1 else ()


def _quotations(column: str) -> Proposal:
    why = f"The column {column} holds text that an answer can quote as evidence."
    return _propose("citation", "evidence", why, source=column)


def _brevity(gated: bool) -> Proposal:
    why = "Keeps completions from growing for no gain; small, so that it never outweighs a right answer."
    return _propose("length", "brevity", why, **({} if gated else {"gated": False}))


def _no_repetition() -> Proposal:
    why = "Where little else is checked, saying the same again is the cheapest way to fill a length."
    return _propose("repetition", "repetition", why)
