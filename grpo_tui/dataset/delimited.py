"""Rows from CSV and TSV files, read as pandas reads them for `datasets`."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from grpo_tui.dataset.packed import open_text, unpacked_name
from grpo_tui.dataset.rows import HEAD_BYTES, HEAD_ROWS, Column, Row, UnreadableError
from grpo_tui.dataset.text import undecodable
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

csv.field_size_limit(1 << 28)  # the default of 128 kB is less than a long document

DELIMITERS = (",", ";", "\t", "|")

# pandas._libs.parsers.STR_NA_VALUES: these texts are read as nothing
_NOTHING = frozenset(
    " #N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null".strip().split(
        "|"
    )
) | {""}
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_INTEGER = re.compile(r"\s*[+-]?\d+\s*$")
_FLOAT = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity)\s*$", re.IGNORECASE)
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
                reader = csv.reader(file, delimiter=self.delimiter)
                for cells in reader:
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
        except UnicodeDecodeError as error:
            raise UnreadableError(undecodable(self.path, error, reader.line_num + 1 if reader else 1)) from error
        except csv.Error as error:
            where = f"{self.path}, line {reader.line_num if reader else 1}"
            raise UnreadableError(
                Problem(where, f"The line cannot be read: {error}.", "Correct the file there.")
            ) from error


def open_delimited(path: Path, encoding: str, delimiter: str = "", decimal: str = "") -> DelimitedRows | Problem:
    """The file's delimiter, columns and types from its first rows. Raises OSError."""
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
    except UnicodeDecodeError as error:
        return undecodable(path, error, 1)
    except UnreadableError as error:
        return error.problem
    names = _names(rows[0])
    by_column = list(zip(*(row + [""] * (len(names) - len(row)) for row in rows[1:]), strict=True)) or [()] * len(names)
    if not decimal:
        decimal = "," if found.delimiter != "," and any(_has_decimal_commas(cells) for cells in by_column) else "."
    columns = tuple(
        Column(name, _type(cells, decimal), sum(cell not in _NOTHING for cell in cells))
        for name, cells in zip(names, by_column, strict=True)
    )
    return replace(found, decimal=decimal, columns=columns, looked_at=len(rows) - 1)


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
    names: list[str] = []
    for index, cell in enumerate(header):
        name = base = cell or f"Unnamed: {index}"
        again = 0
        while name in names:
            again += 1
            name = f"{base}.{again}"
        names.append(name)
    return names


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
    if all(_INTEGER.match(cell) for cell in filled) and all(-(2**63) <= int(cell) < 2**63 for cell in filled):
        return "float64" if missing else "int64"
    if all(_FLOAT.match(cell.replace(",", ".") if decimal == "," else cell) for cell in filled):
        return "float64"
    if all(cell in _TRUTH for cell in filled):
        return "bool"
    return "string"


def _text(cell: str) -> Any:
    return cell


def _int(cell: str) -> Any:
    return int(cell) if _INTEGER.match(cell) else cell


def _float(cell: str) -> Any:
    return float(cell) if _FLOAT.match(cell) else cell


def _bool(cell: str) -> Any:
    return _TRUTH.get(cell, cell)


_CONVERT: Mapping[str, Callable[[str], Any]] = {"int64": _int, "float64": _float, "bool": _bool}


def describe(delimiter: str) -> str:
    """The delimiter in a word."""
    return {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}.get(delimiter, one_line(delimiter, 4))
