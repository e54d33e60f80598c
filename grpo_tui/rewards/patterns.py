"""Regular expressions of rewards, looked at before they run: do they compile, end in time, and mean one format?"""

import ast
import re
from collections.abc import Iterator, Sequence
from re import _constants as codes  # type: ignore[attr-defined]  # the parser's tree has no public names
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

CALLS = frozenset({"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"})
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
MANY = 10
"""Repetitions from which a repeat counts as one without end."""

LETTERS = [chr(code) for code in range(128)]
"""Characters on which two parts of an expression are compared."""

COUNTING = "Count the tags: the catalogue's strict tags take each exactly once, in order."
TAG = re.compile(r"<([A-Za-z_]\w*)>")


def check_patterns(code: str, file: str = "rewards.py") -> list[Problem]:
    """What is wrong with the expressions that a rewards file gives to `re`; nothing of it is run."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []  # said by whoever reads the functions
    texts = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        problem
        for line, pattern, flags, is_whole in _calls(tree, texts)
        for problem in check_pattern(pattern, flags, is_whole, f"{file}:{line}")
    ]


def check_pattern(pattern: str, flags: int = 0, is_whole: bool = False, where: str = "pattern") -> list[Problem]:
    """What is wrong with one expression: it does not compile, may never end, or takes a format's tags repeatedly.

    The latter is asked of expressions for a whole output: said so, or tied to its start by `^`.
    """
    try:
        tree = parser.parse(pattern, flags)
        compiled = re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        told = f"`{one_line(pattern, 80)}` is no regular expression: {one_line(str(error), 120)}."
        return [Problem(where, told, "Correct it; nothing was run.")]
    if _may_hang(tree):
        told = f"`{one_line(pattern, 80)}` repeats what is itself repeated, so long text can keep it busy for ever."
        return [Problem(where, told, "Let nothing be matched in two ways: `<a>(.*?)</a>` with re.DOTALL, for example.")]
    return _repeated_tags(compiled, where) if is_whole or pattern.startswith(("^", r"\A")) else []


def _repeated_tags(compiled: re.Pattern[str], where: str) -> list[Problem]:
    names = list(dict.fromkeys(TAG.findall(compiled.pattern)))
    blocks = [f"<{name}>1</{name}>" for name in names]
    if not names or not (taken := _taker(compiled, blocks)):
        return []
    twice = [f"<{name}>" for at, name in enumerate(names) if taken([*blocks[: at + 1], *blocks[at:]])]
    if not twice:
        return []
    told = f"It also takes outputs in which {' or '.join(twice)} stands twice; a model learns to write many."
    return [Problem(where, told, COUNTING)]


def _taker(compiled: re.Pattern[str], blocks: Sequence[str]) -> Any:
    """How the expression takes these blocks, joined by nothing or by a line break; None if it does not."""
    for between in ("", "\n"):
        if compiled.match(between.join(blocks)):
            return lambda pieces, between=between: compiled.fullmatch(between.join(pieces)) is not None
    return None


def _calls(tree: ast.Module, texts: dict[str, str]) -> Iterator[tuple[int, str, int, bool]]:
    """Line, expression, flags, and whether it is for a whole text, of each call of `re` whose expression is there."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.args):
            continue
        given = node.args[0]
        text = given.value if isinstance(given, ast.Constant) else texts.get(getattr(given, "id", ""))
        if isinstance(text, str):
            yield node.lineno, text, _flags(node), node.func.attr == "fullmatch"


def _flags(call: ast.Call) -> int:
    names = {part.attr for part in ast.walk(call) if isinstance(part, ast.Attribute)}
    known = {name: flag for name, flag in re.RegexFlag.__members__.items() if name in names and flag != re.DEBUG}
    return int(sum(set(known.values())))


def _may_hang(items: Any) -> bool:
    """A repeat without end of something that is matched in two ways."""
    return any(
        (op in REPEATS and value[1] >= MANY and _is_ambiguous(value[2])) or any(map(_may_hang, _inner(op, value)))
        for op, value in items
    )


def _inner(op: Any, value: Any) -> list[Any]:
    """The sequences that an item holds."""
    if op in REPEATS or op is codes.POSSESSIVE_REPEAT:
        return [value[2]]
    if op is codes.SUBPATTERN:
        return [value[3]]
    if op is codes.BRANCH:
        return list(value[1])
    if op in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    return []


def _is_ambiguous(body: Any) -> bool:
    """Whether a sequence, said again and again, matches the same text in two ways.

    It does when it repeats something within and nothing that this cannot match stands between; or when two of its
    alternatives match the same character.
    """
    flat = list(_flat(body))
    repeated = [set().union(*map(_letters, value[2])) for op, value in flat if op in REPEATS and value[1] >= MANY]
    fixed = [_letters(item) for item in flat if item[0] not in REPEATS and item[0] is not codes.BRANCH]
    if repeated and not any(letters and not any(letters & each for each in repeated) for letters in fixed):
        return True
    for op, value in flat:
        starts = (
            [_letters(branch[0]) for branch in value[1] if branch and len(branch) == 1] if op is codes.BRANCH else []
        )
        if any(one & other for at, one in enumerate(starts) for other in starts[at + 1 :]):
            return True
    return False


def _flat(items: Any) -> Iterator[Any]:
    """The items of a sequence, groups opened."""
    for op, value in items:
        if op is codes.SUBPATTERN:
            yield from _flat(value[3])
        else:
            yield op, value


def _letters(item: Any) -> set[str]:
    """The characters of LETTERS that one item can match first; empty for what matches no character."""
    op, value = item
    if op is codes.LITERAL:
        return {chr(value)}
    if op is codes.NOT_LITERAL:
        return set(LETTERS) - {chr(value)}
    if op is codes.ANY:
        return set(LETTERS)
    if op is codes.IN:
        is_negated = value[0][0] is codes.NEGATE
        found = set().union(*map(_letters, value[1:] if is_negated else value))
        return set(LETTERS) - found if is_negated else found
    if op is codes.RANGE:
        return {letter for letter in LETTERS if value[0] <= ord(letter) <= value[1]}
    if op is codes.CATEGORY:
        sign = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(value).rpartition("_")[2]]
        is_in = re.compile(sign.upper() if "NOT" in str(value) else sign)
        return {letter for letter in LETTERS if is_in.match(letter)}
    return set().union(*(_letters(each) for part in _inner(op, value) for each in part))
