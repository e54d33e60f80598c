"""An opened source of rows, whatever it was opened from."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from grpo_tui.dataset.arrow_rows import ArrowRows
from grpo_tui.dataset.json_rows import JSONRows
from grpo_tui.dataset.packed import content_size, is_packed
from grpo_tui.dataset.rows import BrokenRow, Column, Reader, Row, UnreadableError, never
from grpo_tui.problem import Problem

COUNT_BYTES = 16 << 20
"""Text files up to this size are counted when they are opened; of larger ones the count is an estimate at first."""


@dataclass(frozen=True)
class Source:
    """An opened source: what is known of it without reading it all, and a way to its rows.

    Rows are numbered from 0, people count them from 1. In a file of JSON lines these are the numbers of the lines that
    are not blank: a broken line is a row too, a BrokenRow.
    """

    path: str
    """Absolute path of the file or folder, or the hub id."""

    format: str
    """`json`, `csv`, `parquet`, `arrow`, `saved` (written by `save_to_disk`) or `hub`."""

    columns: tuple[Column, ...]
    looked_at: int
    """How many rows `columns` were taken from."""

    rows: int | None
    """Number of rows; None where nobody says it without reading all (hub)."""

    rows_exact: bool
    notes: tuple[str, ...]
    """What was decided on the way, said to the user: encoding, delimiter, layout, split."""

    options: Mapping[str, str]
    """How it was read: `encoding`, `delimiter`, `decimal`, `field`, `config`, `revision`; only what is not plain."""

    split: str = ""
    splits: tuple[str, ...] = ()
    """The splits to choose from, where there are several."""

    files: tuple[Path, ...] = ()
    reader: Reader = field(repr=False, kw_only=True)

    def head(self, n: int) -> list[Row]:
        """The first `n` rows. Raises UnreadableError, as `row` and `iterate` do, where the file cannot be read."""
        return list(self.iterate(n))

    def row(self, i: int) -> Row | None:
        """Row `i`, from 0; None behind the end. Raises UnreadableError, for a broken line too."""
        row = next(self._iterate(i), None) if i <= sys.maxsize else None
        if isinstance(row, BrokenRow):
            raise UnreadableError(row.problem)
        return row

    def iterate(self, limit: int | None = None) -> Iterator[Row]:
        """All rows in order, or the first `limit`."""
        return islice(self._iterate(), limit)

    def _iterate(self, start: int = 0) -> Iterator[Row]:
        try:
            yield from self.reader.iterate(start)
        except OSError as error:
            raise UnreadableError(lost(self.path, error)) from error


def lost(path: str, error: OSError) -> Problem:
    """The problem of data that can be read no more: the file was removed, or its disk is gone."""
    return Problem(path, f"It cannot be read: {error.strerror or error}.", "Check that it is there and may be read.")


def described(
    path: str, kind: str, reader: Reader, notes: tuple[str, ...], options: Mapping[str, str], files: tuple[Path, ...]
) -> Source | Problem:
    """The source that `reader` reads: counted where that is quick, else with an estimate. Raises OSError."""
    try:
        size = sum(map(content_size, files))
        exact = isinstance(reader, ArrowRows) or size <= COUNT_BYTES
        rows = reader.count(never) if exact else _estimate(reader, size)
    except UnreadableError as error:
        return error.problem
    if rows == 0:
        return Problem(path, "There are no rows in it.", "Choose a source with rows.")
    if not exact and any(map(is_packed, files)):
        notes += ("the number of rows is estimated from the compressed size",)
    return Source(path, kind, reader.columns, reader.looked_at, rows, exact, notes, options, files=files, reader=reader)


def _estimate(reader: Reader, size: int) -> int:
    """Rows in `size` bytes of content by the length of the first ones."""
    if isinstance(reader, JSONRows):
        read = reader.head_bytes
    else:
        read = sum(len(str(row).encode("utf-8", "replace")) for row in islice(reader.iterate(), reader.looked_at))
    return max(reader.looked_at, round(size * reader.looked_at / max(1, read)))
