"""What every reader of data shares: columns, their types, and rows made to agree with the library's."""

import datetime
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from grpo_tui.problem import Problem

Row = dict[str, Any]

HEAD_ROWS = 2000
HEAD_BYTES = 1 << 20
"""Columns and types are taken from the first rows, at most so many and from so many bytes."""

_LEADING_ZEROS = re.compile(r"^(\s*-?)0+(?=\d)")  # pandas' JSON reader, which the library uses, takes 007 for 7
# What Arrow's JSON reader turns into a timestamp (ISO 8601, `arrow::ParseTimestampISO8601`).
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d(?:\.\d{1,9})?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?$")


@dataclass(frozen=True)
class Column:
    """One column as training will see it."""

    name: str

    type: str
    """Arrow's name (`string`, `int64`, `float64`, `bool`, `timestamp[s]`, `null`), `list`, `struct`, `json` (mixed)."""

    filled: int = 0
    """In how many of the rows looked at it holds something else than null."""


DEEPEST = 62
"""Lists and objects that may stand one inside the other in a value: Arrow writes no deeper ones (it counts to 64)."""


class Rounded(float):
    """A whole number beyond 64 bits, as Arrow reads it from JSON: the digits that a float does not hold are gone."""


class LongNumberError(ValueError):
    """A whole number beyond 64 bits where the library that training reads with refuses one."""


class UnreadableError(Exception):
    """Raised in the middle of reading, where nothing can be returned any more; `problem` says what stopped it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class BrokenRow(dict[str, Any]):
    """Stands for a line that is no JSON object: a row without a column, which becomes no prompt; `problem` says why.

    It has a number like any other row, so that row numbers are everywhere those of the lines that are not blank.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem


class Reader(Protocol):
    """Rows of one kind of file, again and again from the start, in constant memory.

    A broken line of JSON lines is a BrokenRow; whatever else cannot be read raises UnreadableError.
    """

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def looked_at(self) -> int:
        """How many rows the columns were taken from."""
        ...

    def iterate(self, start: int = 0) -> Iterator[Row]:
        """Rows from `start` on. Raises UnreadableError where the file is broken."""
        ...

    def count(self, cancelled: Callable[[], bool]) -> int:
        """The exact number of rows; a wrong one only after `cancelled` said so. Raises UnreadableError."""
        ...


def never() -> bool:
    """The flag of work that nobody cancels."""
    return False


def infer(rows: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Columns of rows read from JSON, in the order of their first appearance, typed as `datasets` 5.2 types them."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return tuple(
        Column(name, type_of(column), sum(value is not None for value in column)) for name, column in values.items()
    )


def type_of(values: Iterable[Any]) -> str:
    """The type that Arrow's JSON reader gives a column of these values."""
    filled = [value for value in values if value is not None]
    kinds = {float if isinstance(value, Rounded) else type(value) for value in filled}
    if not kinds:
        return "null"
    if kinds == {str}:
        return "timestamp[s]" if all(_TIMESTAMP.match(value) for value in filled) else "string"
    if kinds == {int, float}:
        return "float64"
    return _NAMES.get(kinds.pop(), "json") if len(kinds) == 1 else "json"


_NAMES: Mapping[type, str] = {bool: "bool", int: "int64", float: "float64", list: "list", dict: "struct"}


def conform(row: Mapping[str, Any] | None, columns: tuple[Column, ...]) -> Row:
    """`row` as training gets it: missing columns are None, whole numbers in a column of floats are floats.

    What else the library makes of values, it is made here too: see `_CONVERT`. Raises LongNumberError.
    """
    row = row or {}
    conformed: Row = {}
    for column in columns:
        value = row.get(column.name)
        convert = _CONVERT.get(column.type)
        conformed[column.name] = value if value is None or convert is None else convert(value)
    if len(row) > len(conformed) or any(name not in conformed for name in row):
        conformed.update({name: value for name, value in row.items() if name not in conformed})
    return conformed


def _timestamp(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return value
    return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int | Rounded) and not isinstance(value, bool) else value


def _decoded(value: Any) -> Any:
    """Text in a column of mixed types that is JSON itself, such as `7` or `true`: the library decodes it."""
    if isinstance(value, Rounded):
        raise LongNumberError
    try:
        decoded = json.loads(_LEADING_ZEROS.sub(r"\1", value)) if isinstance(value, str) else value
        if decoded != decoded:  # NaN
            return None
        return value if depth(decoded) > DEEPEST else decoded
    except (ValueError, RecursionError):
        return value


def depth(value: Any) -> int:
    """How many lists and objects stand one inside the other."""
    deep, level = 0, [value]
    while inside := [one for one in level if isinstance(one, list | dict)]:
        deep += 1
        level = [inner for one in inside for inner in (one.values() if isinstance(one, dict) else one)]
    return deep


def has_half_character(value: Any) -> bool:
    """Does a text in it hold half a character, a lone surrogate? UTF-8 has none."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return True
    return False


_CONVERT: Mapping[str, Callable[[Any], Any]] = {"float64": _float, "timestamp[s]": _timestamp, "json": _decoded}
