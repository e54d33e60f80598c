"""Rows from JSON files: one object a line, objects one after the other, an array, or one object that holds them."""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from grpo_tui.dataset.json_text import REPAIR, Stream, decode, parses, refusal, too_deep, too_long
from grpo_tui.dataset.packed import content_size, open_bytes, open_text
from grpo_tui.dataset.rows import (
    HEAD_BYTES,
    HEAD_ROWS,
    BrokenRow,
    Column,
    LongNumberError,
    Row,
    UnreadableError,
    conform,
    infer,
)
from grpo_tui.dataset.text import BYTEWISE, undecodable
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

WHOLE_BYTES = 64 << 20
"""One JSON object up to this size is read as a whole to see what it holds; of a larger one only its first list."""

_BLANK = " \t\r\n"
"""What JSON takes for space: a line of nothing else is no row."""

_BLANK_BYTES = _BLANK.encode()

HALF = 0.5
"""A file whose first line is broken is one of rows by line if at least this share of its first lines are rows."""

_BLOCK = 1 << 18
_REFUSED = 2**64
"""Whole numbers from there on are refused where the library reads with ujson: arrays, and lists under a name."""

_WRAPPERS = ("data", "rows", "train", "examples", "instances", "items", "samples", "dataset", "questions")
_CHAT_KEYS = ({"role", "content"}, {"from", "value"})


@dataclass(frozen=True)
class JSONRows:
    """A JSON file whose layout is known."""

    path: Path
    encoding: str

    layout: str
    """`lines`, `concatenated`, `array`, `wrapped` (a list under `field`), `columns` (lists by column),
    `indexed` (by column, then by row number, as pandas writes) or `object`."""

    field: str = ""
    columns: tuple[Column, ...] = ()
    looked_at: int = 0
    head_bytes: int = 0
    """Size of the rows that were looked at, as Python writes them; nearly as JSON does."""

    def iterate(self, start: int = 0) -> Iterator[Row]:
        for number, value in enumerate(islice(self._raw(), start, None), start + 1):
            try:
                yield value if isinstance(value, BrokenRow) else conform(value, self.columns)
            except LongNumberError as error:
                raise UnreadableError(too_long(f"{self.path}, row {number}")) from error

    def count(self, cancelled: Callable[[], bool]) -> int:
        if self.layout == "lines" and self.encoding in BYTEWISE:
            return _count_lines(self.path, self.encoding, cancelled)
        number = 0
        for number, _ in enumerate(self._raw(), 1):  # the last number is the count
            if number % 1000 == 0 and cancelled():
                break
        return number

    def _raw(self) -> Iterator[Row | None]:
        with open_text(self.path, self.encoding, "\n") as file:
            yield from _READ[self.layout](self, file)

    def _lines(self, file: TextIO) -> Iterator[Row | None]:
        number = 0
        held: tuple[int, str, ValueError] | None = None  # a broken line: only what follows shows if it is the last
        try:
            for number, line in enumerate(file, 1):
                if not line.strip(_BLANK):
                    continue
                if held is not None:
                    yield BrokenRow(_broken_line(self.path, *held, last=False))
                    held = None
                try:
                    value = decode(line)
                except RecursionError as error:
                    raise UnreadableError(too_deep(f"{self.path}, line {number}")) from error
                except ValueError as error:
                    held = (number, line, error)
                    continue
                if refused := refusal(value, line):
                    raise UnreadableError(refused(f"{self.path}, line {number}"))
                no_row = value is not None and not isinstance(value, dict)
                yield BrokenRow(_no_object(f"{self.path}, line {number}", value)) if no_row else value
        except UnicodeError as error:
            raise UnreadableError(undecodable(self.path, error, number + 1)) from error
        if held is not None:
            yield BrokenRow(_broken_line(self.path, *held, last=True))

    def _concatenated(self, file: TextIO) -> Iterator[Row | None]:
        stream = Stream(file, self.path)
        while following := stream.peek():
            if following == ",":
                raise UnreadableError(_commas(self.path, stream.line()))
            yield _as_row(stream.row(), stream)

    def _array(self, file: TextIO) -> Iterator[Row | None]:
        stream = Stream(file, self.path, _REFUSED)
        stream.take("[")
        yield from _elements(stream)

    def _wrapped(self, file: TextIO) -> Iterator[Row | None]:
        stream = Stream(file, self.path, _REFUSED)
        stream.take("{")
        while stream.value() != self.field:
            stream.take(":")
            stream.value()
            stream.take(",")
        stream.take(":")
        stream.take("[")
        yield from _elements(stream)

    def _columns(self, file: TextIO) -> Iterator[Row | None]:
        table = Stream(file, self.path, 2**63).row()
        lists = {name: list(values.values()) if isinstance(values, dict) else values for name, values in table.items()}
        for values in zip(*lists.values(), strict=True):
            yield dict(zip(lists, values, strict=True))

    def _object(self, file: TextIO) -> Iterator[Row | None]:
        yield Stream(file, self.path).row()


_READ: Mapping[str, Callable[[JSONRows, TextIO], Iterator[Row | None]]] = {
    "lines": JSONRows._lines,
    "concatenated": JSONRows._concatenated,
    "array": JSONRows._array,
    "wrapped": JSONRows._wrapped,
    "columns": JSONRows._columns,
    "indexed": JSONRows._columns,
    "object": JSONRows._object,
}


def open_json(path: Path, encoding: str, field: str = "") -> JSONRows | Problem:
    """The file's layout and columns from its beginning. Raises OSError.

    Of a file of lines a line may be broken; a file of which all the first lines are is refused.
    """
    try:
        found = _layout_of_some_rows(path, encoding, field)
        if isinstance(found, Problem):
            return found
        rows, size = _head(found)
    except UnreadableError as error:
        return error.problem
    except UnicodeError as error:
        return undecodable(path, error, 1)
    broken = [row for row in rows if isinstance(row, BrokenRow)]
    if broken and len(broken) == len(rows):
        return broken[0].problem
    return replace(found, columns=infer(rows), looked_at=len(rows), head_bytes=size)


def _layout_of_some_rows(path: Path, encoding: str, field: str) -> JSONRows | Problem:
    """The layout, also where the first line, which would show it, is broken. Raises UnreadableError and OSError."""
    try:
        found = _layout(path, encoding, field)
        if isinstance(found, JSONRows) and found.layout == "concatenated":
            _head(found)
    except UnreadableError:
        if _share_of_rows(path, encoding) < HALF:
            raise
        return JSONRows(path, encoding, "lines")
    return found


def _head(found: JSONRows) -> tuple[list[Row], int]:
    """The first rows and their size in bytes. Raises UnreadableError."""
    rows: list[Row] = []
    size = 0
    for row in islice(found._raw(), HEAD_ROWS):
        rows.append({} if row is None else row)
        if (size := size + len(str(row).encode("utf-8", "replace"))) > HEAD_BYTES:
            break
    return rows, size


def _share_of_rows(path: Path, encoding: str) -> float:
    """The share of the first lines, from 0 to 1, that are a whole object each.

    Objects indented inside another one do not count, and in an array with a line for each row only the last one has no
    comma behind it.
    """
    whole = lines = size = 0
    with open_text(path, encoding, "\n") as file:
        for line in islice(iter(lambda: file.readline(WHOLE_BYTES), ""), HEAD_ROWS):
            if line.strip(_BLANK):
                lines += 1
                whole += line.startswith("{") and parses(line)
            if (size := size + len(line)) > WHOLE_BYTES:
                break
    return whole / max(1, lines)


def _layout(path: Path, encoding: str, field: str) -> JSONRows | Problem:
    with open_text(path, encoding, "\n") as file:
        stream = Stream(file, path)
        first = stream.peek()
        if not first:
            return Problem(str(path), "The file is empty.", "Choose a file with rows in it.")
        ahead = stream.ahead()
    if first == "[":
        return JSONRows(path, encoding, "lines" if _is_list_among_rows(path, encoding) else "array")
    if first != "{":
        return JSONRows(path, encoding, "lines") if _share_of_rows(path, encoding) >= HALF else _no_json(path, ahead)
    with open_text(path, encoding, "\n") as file:
        number, line = next(
            (number, line)
            for number, line in enumerate(iter(lambda: file.readline(WHOLE_BYTES), ""), 1)
            if line.strip()
        )
        rest = file.read(65536).strip()
    if line.rstrip().endswith(",") and rest and parses(line.rstrip().rstrip(",")):
        # Of an array without brackets, of two rows, half of the lines are whole.
        return JSONRows(path, encoding, "lines") if _share_of_rows(path, encoding) > HALF else _commas(path, number)
    if rest and parses(line):
        return JSONRows(path, encoding, "lines")
    with open_text(path, encoding, "\n") as file:
        if content_size(path) > WHOLE_BYTES:
            return _first_list(path, encoding, field, Stream(file, path))
        stream = Stream(file, path)
        value = stream.value()
        following = stream.peek()
    if following == ",":
        return _commas(path, stream.line())
    if following:
        return JSONRows(path, encoding, "concatenated")
    return _one_object(path, encoding, field, value)


def _is_list_among_rows(path: Path, encoding: str) -> bool:
    """Is the list that the file begins with a line of its own among rows?"""
    with open_text(path, encoding, "\n") as file:
        line = next((line for line in iter(lambda: file.readline(HEAD_BYTES), "") if line.strip(_BLANK)), "")
    return len(line) < HEAD_BYTES and parses(line) and _share_of_rows(path, encoding) >= HALF


def _one_object(path: Path, encoding: str, field: str, value: dict[str, Any]) -> JSONRows | Problem:
    if field:
        if not isinstance(value.get(field), list):
            lists = ", ".join(f"'{name}'" for name in value if isinstance(value[name], list)) or "none"
            return Problem(str(path), f"There is no list under '{field}'.", f"Lists in this file: {lists}.")
        return JSONRows(path, encoding, "wrapped", field)
    tables = [name for name, rows in value.items() if _is_table(rows)]
    if tables:
        named = [name for name in _WRAPPERS if name in tables]
        return JSONRows(
            path, encoding, "wrapped", named[0] if named else max(tables, key=lambda name: len(value[name]))
        )
    sizes = {len(column) if isinstance(column, list | dict) else -1 for column in value.values()}
    kinds = {type(column) for column in value.values()}
    indexed = kinds == {dict} and all(key.isdigit() for column in value.values() for key in column)
    if len(sizes) == 1 and sizes.isdisjoint({-1, 0}) and (kinds == {list} or indexed) and not _is_chat_row(value):
        return JSONRows(path, encoding, "indexed" if indexed else "columns")
    return JSONRows(path, encoding, "object")


def _first_list(path: Path, encoding: str, field: str, stream: Stream) -> JSONRows | Problem:
    """The layout of an object too large to be read as a whole, or of such objects one after the other."""
    stream.take("{")
    while True:
        name = stream.value()
        stream.take(":")
        if stream.peek() == "[":
            stream.take("[")
            if name == field or (not field and _is_table([stream.value()])):
                return JSONRows(path, encoding, "wrapped", name)
            _skip_list(stream)
        else:
            stream.value()
        if stream.peek() != ",":
            return JSONRows(path, encoding, "concatenated")
        stream.take(",")


def _skip_list(stream: Stream) -> None:
    while stream.peek() != "]":
        if stream.peek() == ",":
            stream.take(",")
        else:
            stream.value()
    stream.take("]")


def _is_table(value: Any) -> bool:
    """A list of rows: objects that are no chat messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) for row in value[:100])
        and not any(keys <= value[0].keys() for keys in _CHAT_KEYS)
    )


def _is_chat_row(value: dict[str, Any]) -> bool:
    return any(
        isinstance(part, dict) and any(keys <= part.keys() for keys in _CHAT_KEYS)
        for column in value.values()
        if isinstance(column, list)
        for part in column[:1]
    )


def _elements(stream: Stream) -> Iterator[Row | None]:
    if stream.peek() == "]":
        return
    while True:
        value = stream.row()
        # `datasets` makes a column `text` of a list of strings (packaged_modules/json)
        yield {"text": value} if isinstance(value, str) else _as_row(value, stream)
        if stream.peek() == "]":
            return
        stream.take(",")


def _as_row(value: Any, stream: Stream) -> Row | None:
    if value is None or isinstance(value, dict):
        return value
    raise UnreadableError(_no_object(f"{stream.path}, line {stream.line()}", value))


def _count_lines(path: Path, encoding: str, cancelled: Callable[[], bool]) -> int:
    """Lines that are not blank, counted by blocks.

    A blank line has two spaces side by side, its newlines among them: in a block without such a pair each newline ends
    a row, and no line is looked at.
    """
    import numpy

    kept = bytearray(b"\n" * (1 + _BLOCK))  # in front of the content stands the last byte of the block before
    block, content, newline = numpy.frombuffer(kept, numpy.uint8), memoryview(kept)[1:], numpy.uint8(ord("\n"))
    # Made once: memory that is asked for anew for each block costs more than what is done in it.
    work, is_end, is_space = numpy.empty(_BLOCK, numpy.uint8), *numpy.empty((2, _BLOCK), numpy.bool_)
    rows, open_line = 0, False  # is there text since the last newline?
    with open_bytes(path) as file:
        if encoding == "utf-8-sig":
            file.read(len(BOM_UTF8))
        while (size := file.readinto(content)) and not cancelled():
            before, here, made = block[:size], block[1 : size + 1], work[:size]
            unsure = bool(numpy.maximum(before, here, out=made).min() <= ord(" "))
            newlines = size - int(numpy.count_nonzero(numpy.bitwise_xor(here, newline, out=made)))
            if unsure:
                numpy.equal(before, newline, out=is_end[:size])
                numpy.less_equal(here, ord(" "), out=is_space[:size])
                indented = bool(numpy.logical_and(is_end[:size], is_space[:size], out=is_end[:size]).any())
                unsure = indented or not open_line or not newlines
            if unsure:
                more, open_line = _rows_in(bytes(content[:size]), open_line)
            else:
                more, open_line = newlines, bool(block[size] != newline)
            rows += more
            block[0] = block[size]
    return rows + open_line


def _rows_in(text: bytes, open_line: bool) -> tuple[int, bool]:
    """Rows that end in `text`, and whether there is text behind its last newline.

    `open_line`: there is text of its first line in front of it.
    """
    has_text = [bool(line.strip(_BLANK_BYTES)) for line in text.split(b"\n")]
    has_text[0] = has_text[0] or open_line
    return sum(has_text[:-1]), has_text[-1]


def _broken_line(path: Path, number: int, line: str, error: ValueError, *, last: bool) -> Problem:
    where = f"{path}, line {number}"
    text = line.strip()
    if text.endswith(",") and parses(text[:-1]):
        return _commas(path, number)
    if last and not text.endswith(("}", "]")):
        return Problem(
            where, "The last line looks cut off: the copy was broken off, or it is still being written.", REPAIR
        )
    return Problem(where, f"The line is no valid JSON ({error}): {one_line(text, 60)}", "Correct the file there.")


def _commas(path: Path, number: int) -> Problem:
    return Problem(
        f"{path}, line {number}",
        "A comma follows the object: the file looks like a JSON array without its brackets.",
        REPAIR,
    )


def _no_object(where: str, value: Any) -> Problem:
    return Problem(
        where,
        f"A row must be an object with named columns; this one is {one_line(json.dumps(value), 40)}.",
        'Write each row as {"prompt": …, "answer": …}.',
    )


def _no_json(path: Path, ahead: str) -> Problem:
    return Problem(
        str(path),
        f"The file is named like JSON but starts with: {one_line(ahead, 40)}",
        "Give it the ending of what it is: .csv, .tsv, .parquet.",
    )
