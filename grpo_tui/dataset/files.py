"""Files of rows: which kind a file is, and several of one kind as one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from grpo_tui.dataset.arrow_rows import open_arrow, open_parquet
from grpo_tui.dataset.delimited import DelimitedRows, describe, open_delimited
from grpo_tui.dataset.json_rows import JSONRows, open_json
from grpo_tui.dataset.packed import check_regular, is_packed, open_bytes, packing_problem, unpacked_name
from grpo_tui.dataset.rows import BrokenRow, Column, Reader, Row
from grpo_tui.dataset.source import Source, described
from grpo_tui.dataset.text import encoding_of
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

FORMATS: Mapping[str, str] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""File ending to the name of the loader that `load_dataset` has for it."""


def open_files(files: tuple[Path, ...], options: dict[str, str], split: str) -> Source | Problem:
    """The files, all of one kind, as one source. Raises OSError and UnreadableError."""
    for file in files:
        check_regular(file)
    if missing := next((problem for file in files if (problem := packing_problem(file))), None):
        return missing
    kind = _kind_of(files[0])
    if kind in ("parquet", "arrow") and is_packed(files[0]):
        return Problem(str(files[0]), f"A {kind} file is not read from inside a compressed one.",
                       "Unpack it: its columns are compressed anyway.")  # fmt: skip
    if kind is None:
        return Problem(
            str(files[0]),
            f"The ending '{one_line(unpacked_name(files[0]).suffix, 20)}' is none of {', '.join(FORMATS)}, and the"
            " content tells no more.",
            "Give the file the ending of what it is.",
        )
    opened = _OPEN[kind](files, options)
    return opened if isinstance(opened, Problem) else replace(opened, split=split)


def kind_by_name(path: Path) -> str | None:
    """The kind of file that the name says, compressed or not."""
    return FORMATS.get(unpacked_name(path).suffix.lower())


def is_data_file(path: Path) -> bool:
    """Is it a file of rows, by its name?"""
    return kind_by_name(path) is not None and not path.name.startswith(".")


def _kind_of(path: Path) -> str | None:
    if kind := kind_by_name(path):
        return kind
    with open_bytes(path) as file:
        start = file.read(16).lstrip(b"\xef\xbb\xbf \r\n\t")
    return "parquet" if start.startswith(b"PAR1") else "json" if start.startswith((b"{", b"[")) else None


def _open_json_files(files: tuple[Path, ...], options: dict[str, str]) -> Source | Problem:
    readers: list[JSONRows] = []
    notes: list[str] = []
    for file in files:
        encoding = encoding_of(file, options.get("encoding", ""))
        if isinstance(encoding, Problem):
            return encoding
        opened = open_json(file, encoding.name, options.get("field", ""))
        if isinstance(opened, Problem):
            return opened
        readers.append(opened)
        notes += [note for note in encoding.notes if note not in notes]
    first = readers[0]
    if first.layout in ("columns", "indexed") and is_packed(first.path):
        return Problem(str(first.path), "A compressed file of one list for each column is not read.", "Unpack it.")
    if first.layout in _LAYOUT_NOTES:
        notes.append(_LAYOUT_NOTES[first.layout].format(field=first.field))
    used = dict(options)
    if first.encoding not in ("utf-8", "utf-8-sig"):
        used["encoding"] = first.encoding
    if first.layout == "wrapped":
        used["field"] = first.field
    reader: Reader = first if len(readers) == 1 else Several(tuple(readers))
    return described(_common(files), "json", reader, tuple(notes), used, files)


_LAYOUT_NOTES: Mapping[str, str] = {
    "concatenated": "objects one after the other, not one a line",
    "array": "one array of rows",
    "wrapped": "rows under '{field}'",
    "columns": "one list for each column",
    "indexed": "one object for each column, with a value for each row number",
    "object": "one single row",
}


def _open_csv_files(files: tuple[Path, ...], options: dict[str, str]) -> Source | Problem:
    readers: list[DelimitedRows] = []
    notes: list[str] = []
    for file in files:
        encoding = encoding_of(file, options.get("encoding", ""))
        if isinstance(encoding, Problem):
            return encoding
        opened = open_delimited(file, encoding.name, options.get("delimiter", ""), options.get("decimal", ""))
        if isinstance(opened, Problem):
            return opened
        readers.append(opened)
        notes += [note for note in encoding.notes if note not in notes]
    first = readers[0]
    used = dict(options)
    if first.encoding not in ("utf-8", "utf-8-sig"):
        used["encoding"] = first.encoding
    if first.delimiter != ",":
        used["delimiter"] = first.delimiter
        notes.append(f"fields are separated by {describe(first.delimiter)}")
    if first.decimal != ".":
        used["decimal"] = first.decimal
        notes.append("numbers have decimal commas")
    if len(first.columns) == 1 and (mark := next((one for one in ";\t|" if one in first.columns[0].name), "")):
        notes.append(f"there is one column only and its name contains a {describe(mark)}: is that the delimiter?")
    notes += [
        f"row {one.swallowed + 1} of {one_line(one.path.name, 60)}: a quoted cell holds lines that look like rows: is a"
        " quote missing?"
        for one in readers
        if one.swallowed is not None
    ]
    reader: Reader = first if len(readers) == 1 else Several(tuple(readers))
    return described(_common(files), "csv", reader, tuple(notes), used, files)


def _open_parquet_files(files: tuple[Path, ...], options: dict[str, str]) -> Source | Problem:
    opened = open_parquet(files)
    return opened if isinstance(opened, Problem) else described(_common(files), "parquet", opened, (), options, files)


def _open_arrow_files(files: tuple[Path, ...], options: dict[str, str]) -> Source | Problem:
    opened = open_arrow(files)
    return opened if isinstance(opened, Problem) else described(_common(files), "arrow", opened, (), options, files)


_OPEN: Mapping[str, Callable[[tuple[Path, ...], dict[str, str]], "Source | Problem"]] = {
    "json": _open_json_files,
    "csv": _open_csv_files,
    "parquet": _open_parquet_files,
    "arrow": _open_arrow_files,
}


@dataclass(frozen=True)
class Several:
    """Files of one kind, one after the other."""

    readers: tuple[Reader, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        seen: dict[str, Column] = {}
        for reader in self.readers:
            for column in reader.columns:
                known = seen.get(column.name, replace(column, filled=0))
                seen[column.name] = replace(known, filled=known.filled + column.filled)
        return tuple(seen.values())

    @property
    def looked_at(self) -> int:
        return sum(reader.looked_at for reader in self.readers)

    def iterate(self, start: int = 0) -> Iterator[Row]:
        names = [column.name for column in self.columns]
        for row in islice((row for reader in self.readers for row in reader.iterate()), start, None):
            yield row if isinstance(row, BrokenRow) else {**dict.fromkeys(names), **row}

    def count(self, cancelled: Callable[[], bool]) -> int:
        return sum(reader.count(cancelled) for reader in self.readers)


def _common(files: Sequence[Path]) -> str:
    return str(files[0] if len(files) == 1 else files[0].parent)
