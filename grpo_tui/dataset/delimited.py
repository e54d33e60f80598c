"""Rows from CSV and TSV files, read as pandas reads them for `datasets`."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TextIO

from grpo_tui.dataset.packed import open_text, unpacked_name
from grpo_tui.dataset.rows import HEAD_BYTES, HEAD_ROWS, Column, Row, UnreadableError
from grpo_tui.dataset.text import undecodable
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

csv.field_size_limit(1 << 28)  # the default of 128 kB is less than a long document

MANY_LINES = 10
"""A cell of so many lines that look like rows is told to the user: a quote may be missing."""

DELIMITERS = (",", ";", "\t", "|")

# pandas._libs.parsers.STR_NA_VALUES: these texts are read as nothing
_NOTHING = frozenset(
    " #N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null".strip().split(
        "|"
    )
) | {""}
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_DIGITS = 4300  # sys.int_info.default_max_str_digits
_INTEGER = re.compile(r"\s*[+-]?\d+\s*$")
_FLOAT = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity)\s*$", re.IGNORECASE)
_BREAK = re.compile(r"\r\n|\r|\n")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*$")


@dataclass(frozen=True)
class DelimitedRows:
    """A file with a header line and one delimiter."""

    path: Path
    encoding: str
    delimiter: str
    decimal: str = "."
    columns: tuple[Column, ...] = ()
    looked_at: int = 0
    swallowed: int | None = None
    """Number, from 0, of the first row looked at in which a quoted cell holds lines that look like rows."""

    def iterate(self, start: int = 0) -> Iterator[Row]:
        convert = [(column.name, _CONVERT.get(column.type, _text)) for column in self.columns]
        for cells in islice(self._cells(), start + 1, None):
            padded = cells + [""] * (len(convert) - len(cells))
            yield {
                name: None
                if cell in _NOTHING
                else into(cell.replace(",", ".") if into is _float and self.decimal == "," else cell)
                for (name, into), cell in zip(convert, padded, strict=True)
            }

    def count(self, cancelled: Callable[[], bool]) -> int:
        number = 0
        for number, _ in enumerate(self._cells()):  # the last number is the count: the header is no row
            if number % 1000 == 0 and cancelled():
                break
        return number

    def _cells(self) -> Iterator[list[str]]:
        """The header and the rows, blank lines left out. Raises UnreadableError."""
        width = 0
        reader: Any = None
        try:
            with open_text(self.path, self.encoding, "") as file:
                lines = _Lines(file)
                reader = csv.reader(lines, delimiter=self.delimiter)
                for cells in reader:
                    if lines.ended:  # the last cell went on to the end of the file
                        raise UnreadableError(_unclosed(self.path, reader.line_num, cells[-1]))
                    if not cells or (len(cells) == 1 and not cells[0].strip()):
                        continue
                    width = width or len(cells)
                    if len(cells) > width:
                        raise UnreadableError(
                            Problem(
                                f"{self.path}, line {reader.line_num}",
                                f"The line has {len(cells)} fields, the header has {width}.",
                                "Put quotes around a field that contains the delimiter, or choose another delimiter.",
                            )
                        )
                    yield cells
        except UnicodeError as error:
            raise UnreadableError(undecodable(self.path, error, reader.line_num + 1 if reader else 1)) from error
        except csv.Error as error:
            where = f"{self.path}, line {reader.line_num if reader else 1}"
            raise UnreadableError(
                Problem(where, f"The line cannot be read: {error}.", "Correct the file there.")
            ) from error


class _Lines:
    """The lines of a file; `ended` once one was asked for behind the last."""

    def __init__(self, file: TextIO) -> None:
        self.ended = False
        self._file = file

    def __iter__(self) -> Iterator[str]:
        yield from self._file
        self.ended = True


def _unclosed(path: Path, last: int, cell: str) -> Problem:
    """The problem of a quote that nothing closes; `last` is the number of the last line, `cell` what the quote holds.

    pandas refuses such a file; Python's reader makes one cell of the rest of it.
    """
    breaks = len(_BREAK.findall(cell))
    opened = last - breaks + cell.endswith(("\n", "\r"))
    return Problem(
        f"{path}, line {opened}",
        f"A quote opens there and is never closed: {last - opened:,} lines behind it would be one cell."
        if last > opened
        else "A quote opens there and is never closed.",
        "Close the quote, or double it if it is part of the text.",
    )


def _refused(delimiter: str, decimal: str) -> Problem | None:
    """What is wrong with a delimiter and a decimal sign that were asked for."""
    if delimiter and (len(delimiter) != 1 or delimiter in '\r\n"\0' or "\ud800" <= delimiter <= "\udfff"):
        return Problem(
            "delimiter",
            f"'{one_line(delimiter, 20)}' cannot separate fields.",
            "Give one character, such as a semicolon; in a shell a tab is written $'\\t'.",
        )
    if decimal not in ("", ".", ","):
        return Problem("decimal", f"'{one_line(decimal, 20)}' is no decimal sign.", "Give a point or a comma.")
    return None


def open_delimited(path: Path, encoding: str, delimiter: str = "", decimal: str = "") -> DelimitedRows | Problem:
    """The file's delimiter, columns and types from its first rows. Raises OSError."""
    if refused := _refused(delimiter, decimal):
        return refused
    try:
        with open_text(path, encoding, "") as file:
            head = file.read(HEAD_BYTES)
        if not head.strip():
            return Problem(str(path), "The file is empty.", "Choose a file with a header and rows in it.")
        found = DelimitedRows(path, encoding, delimiter or sniff(head, unpacked_name(path).suffix.lower()))
        rows, size = [], 0
        for cells in islice(found._cells(), HEAD_ROWS + 1):
            rows.append(cells)
            if (size := size + sum(map(len, cells))) > HEAD_BYTES:
                break
    except UnicodeError as error:
        return undecodable(path, error, 1)
    except UnreadableError as error:
        return error.problem
    names = _names(rows[0])
    by_column = list(zip(*(row + [""] * (len(names) - len(row)) for row in rows[1:]), strict=True)) or [()] * len(names)
    if not decimal:
        decimal = "," if found.delimiter != "," and any(_has_decimal_commas(cells) for cells in by_column) else "."
    for name, column in zip(names, by_column, strict=True):
        if (at := _refused_at(column)) is not None:
            return Problem(
                f"{path}, row {at + 1}",
                f"The column '{one_line(name, 40)}' is of whole numbers, and one has more than 64 bits: the library"
                " that training reads with refuses the file for it.",
                "Write a letter or a unit beside the number, or take the column out.",
            )
    columns = tuple(
        Column(name, _type(cells, decimal), sum(cell not in _NOTHING for cell in cells))
        for name, cells in zip(names, by_column, strict=True)
    )
    return replace(
        found, decimal=decimal, columns=columns, looked_at=len(rows) - 1, swallowed=_swallowed(rows, found.delimiter)
    )


def _swallowed(rows: list[list[str]], delimiter: str) -> int | None:
    """The first row behind the header with a cell of many lines, most of which have as many fields as the header."""
    between = len(rows[0]) - 1
    for number, row in enumerate(rows[1:] if between else []):
        for lines in (cell.splitlines() for cell in row if cell.count("\n") >= MANY_LINES):
            if 2 * sum(line.count(delimiter) == between for line in lines) > len(lines):
                return number
    return None


def sniff(head: str, suffix: str = "") -> str:
    """The delimiter that cuts the first lines into the same number of fields, more than one; else the ending's own."""
    usual = "\t" if suffix == ".tsv" else ","
    lines = head.splitlines(keepends=True)
    if len(head) >= HEAD_BYTES:
        lines = lines[:-1]
    best, best_score = usual, (0.0, 0)
    for delimiter in sorted(DELIMITERS, key=lambda one: one != usual):
        try:
            rows = [cells for cells in islice(csv.reader(lines, delimiter=delimiter), 50) if cells]
        except csv.Error:
            continue
        width = len(rows[0]) if rows else 0
        if width < 2:
            continue
        score = (sum(len(cells) == width for cells in rows) / len(rows), width)
        if score[0] > best_score[0]:  # on a tie the usual one, tried first
            best, best_score = delimiter, score
    return best


def _names(header: list[str]) -> list[str]:
    """Column names as pandas makes them: empty ones are numbered, repeated ones get a suffix."""
    names: dict[str, None] = {}
    seen: dict[str, int] = {}
    for index, cell in enumerate(header):
        name = base = cell or f"Unnamed: {index}"
        while name in names:
            seen[base] = again = seen.get(base, 0) + 1
            name = f"{base}.{again}"
        names[name] = None
    return list(names)


def _has_decimal_commas(cells: tuple[str, ...]) -> bool:
    filled = [cell for cell in cells if cell not in _NOTHING]
    return any(_DECIMAL_COMMA.match(cell) for cell in filled) and all(
        _DECIMAL_COMMA.match(cell) or _INTEGER.match(cell) for cell in filled
    )


def _type(cells: tuple[str, ...], decimal: str) -> str:
    filled = [cell for cell in cells if cell not in _NOTHING]
    missing = len(filled) < len(cells)
    if not filled:
        return "float64" if cells else "string"  # pandas: a column of nothing is a column of NaN
    if whole := _whole_type(filled, missing):
        return whole
    if all(_FLOAT.match(cell.replace(",", ".") if decimal == "," else cell) for cell in filled):
        return "float64"
    if all(cell in _TRUTH for cell in filled):
        return "bool"
    return "string"


def _whole_type(filled: list[str], missing: bool) -> str:
    """The type that pandas gives a column for the whole numbers it begins with; empty: they do not decide it."""
    leading = list(takewhile(_INTEGER.match, filled))
    numbers = [number for cell in leading if (number := _number(cell)) is not None]
    if len(numbers) < len(leading):
        return "string"
    low, high = min(numbers, default=0), max(numbers, default=0)
    if len(leading) < len(filled):
        return "" if low >= -(2**63) and high < 2**64 else "string"
    if low >= -(2**63) and high < 2**63:
        return "float64" if missing else "int64"
    return "string" if missing or low < 0 else "uint64"


def _refused_at(cells: tuple[str, ...]) -> int | None:
    """The first number beyond 64 bits in a column of whole numbers only, which pandas hands on and Arrow refuses."""
    numbers = [None if cell in _NOTHING else _number(cell) for cell in cells]
    long = [at for at, number in enumerate(numbers) if number is not None and not -(2**63) <= number < 2**64]
    whole = long and all(number is not None or cell in _NOTHING for cell, number in zip(cells, numbers, strict=True))
    return long[0] if whole else None


def _number(cell: str) -> int | None:
    """The whole number in the cell; None where there is none, or one of more digits than Python and pandas convert."""
    return int(cell) if _INTEGER.match(cell) and len(cell) <= _DIGITS else None


def _text(cell: str) -> Any:
    return cell


def _int(cell: str) -> Any:
    number = _number(cell)
    return cell if number is None else number


def _float(cell: str) -> Any:
    return float(cell) if _FLOAT.match(cell) else cell


def _bool(cell: str) -> Any:
    return _TRUTH.get(cell, cell)


_CONVERT: Mapping[str, Callable[[str], Any]] = {"int64": _int, "uint64": _int, "float64": _float, "bool": _bool}


def describe(delimiter: str) -> str:
    """The delimiter in a word."""
    return {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}.get(delimiter, one_line(delimiter, 4))
