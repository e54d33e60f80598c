"""Rows from Parquet files and from folders that `save_to_disk` wrote. pyarrow is imported on first use."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_tui.dataset.json_text import too_deep
from grpo_tui.dataset.packed import check_regular
from grpo_tui.dataset.rows import DEEPEST, Column, Row, UnreadableError, depth
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

_BATCH = 512


@dataclass(frozen=True)
class ArrowRows:
    """Parquet or Arrow files with one schema, read one after the other."""

    files: tuple[Path, ...]
    kind: str
    """`parquet` or `arrow`."""

    columns: tuple[Column, ...]
    rows: int
    encoded: frozenset[str]
    """Columns that hold JSON text which `datasets` decodes (its feature `Json`)."""

    looked_at: int = 0

    def iterate(self, start: int = 0) -> Iterator[Row]:
        names = [column.name for column in self.columns]
        number = start
        for file in self.files:
            try:
                for batch in _BATCHES[self.kind](file, start):
                    if isinstance(batch, int):  # so many rows were passed over
                        start -= batch
                        continue
                    for row in batch.slice(start).to_pylist():
                        number += 1
                        for name in self.encoded:
                            row[name] = None if row.get(name) is None else _decoded(row[name], f"{file}, row {number}")
                        yield {name: row.get(name) for name in names}
                    start = max(0, start - batch.num_rows)
            except (OSError, ValueError) as error:
                raise UnreadableError(_damaged(file, error)) from error

    def count(self, cancelled: Callable[[], bool]) -> int:
        return self.rows


def _decoded(text: str, where: str) -> Any:
    """The value that JSON text holds. Raises ValueError, and UnreadableError where it is nested too deep."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise UnreadableError(too_deep(where)) from error
    if depth(value) > DEEPEST:
        raise UnreadableError(too_deep(where))
    return value


def open_parquet(files: tuple[Path, ...]) -> ArrowRows | Problem:
    """Columns and rows from the footers."""
    import pyarrow.parquet

    rows, schema = 0, None
    for file in files:
        try:
            check_regular(file)
            with pyarrow.parquet.ParquetFile(file) as parquet:
                rows += parquet.metadata.num_rows
                schema = schema or parquet.schema_arrow
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            return _damaged(file, error)
    return _described(files, "parquet", schema, rows)


def open_arrow(files: tuple[Path, ...]) -> ArrowRows | Problem:
    """Columns and rows from the batches' headers: the files are mapped, not read."""
    rows, schema = 0, None
    for file in files:
        try:
            check_regular(file)
            with _arrow_reader(file) as reader:
                schema = schema or reader.schema
                rows += sum(batch.num_rows for batch in _record_batches(reader))
        except (OSError, ValueError) as error:
            return _damaged(file, error)
    return _described(files, "arrow", schema, rows)


def _described(files: tuple[Path, ...], kind: str, schema: Any, rows: int) -> ArrowRows | Problem:
    if schema is None:
        return Problem(", ".join(map(str, files)) or "data", "There is no file to read.", "Choose another source.")
    features = _features(schema)
    encoded = frozenset(name for name, feature in features.items() if _is_json(feature))
    found = ArrowRows(files, kind, (), rows, encoded)
    columns = tuple(
        Column(name, "json" if name in encoded else _type(schema.field(name).type))
        for name in schema.names
        if not name.startswith("__index_level_")  # pandas' index: `datasets` drops it too
    )
    head = []
    try:
        for row in ArrowRows(files, kind, columns, rows, encoded).iterate():
            head.append(row)
            if len(head) == _BATCH:
                break
    except UnreadableError as error:
        return error.problem
    filled = tuple(
        Column(column.name, column.type, sum(row[column.name] is not None for row in head)) for column in columns
    )
    return ArrowRows(found.files, kind, filled, rows, encoded, len(head))


def _features(schema: Any) -> Mapping[str, Any]:
    """What `datasets` wrote about the columns; empty where another program wrote the file."""
    try:
        features: Mapping[str, Any] = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features


def _is_json(feature: Any) -> bool:
    return isinstance(feature, Mapping) and feature.get("_type") == "Json"


def _type(arrow_type: Any) -> str:
    import pyarrow.types

    if pyarrow.types.is_large_string(arrow_type):
        return "string"
    if pyarrow.types.is_struct(arrow_type):
        return "struct"
    if pyarrow.types.is_list(arrow_type) or pyarrow.types.is_large_list(arrow_type):
        return "list"
    return {"double": "float64", "float": "float32"}.get(str(arrow_type), str(arrow_type))


def _parquet_batches(file: Path, start: int) -> Iterator[Any]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if start >= rows:
                start -= rows
                yield rows
                continue
            for batch in parquet.iter_batches(batch_size=_BATCH, row_groups=[group]):
                yield batch
                start = max(0, start - batch.num_rows)


def _arrow_batches(file: Path, start: int) -> Iterator[Any]:
    with _arrow_reader(file) as reader:
        for batch in _record_batches(reader):
            if start >= batch.num_rows:
                start -= batch.num_rows
                yield batch.num_rows
                continue
            for offset in range(0, batch.num_rows, _BATCH):
                piece = batch.slice(offset, _BATCH)
                yield piece
                start = max(0, start - piece.num_rows)


_BATCHES: Mapping[str, Callable[[Path, int], Iterator[Any]]] = {"parquet": _parquet_batches, "arrow": _arrow_batches}


def _arrow_reader(file: Path) -> Any:
    """A reader of either Arrow layout: `datasets` writes the stream, other programs the file with its footer."""
    import pyarrow

    mapped = pyarrow.memory_map(str(file))
    try:
        return pyarrow.ipc.open_stream(mapped)
    except pyarrow.ArrowInvalid:
        return pyarrow.ipc.open_file(pyarrow.memory_map(str(file)))


def _record_batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(index) for index in range(reader.num_record_batches))
    return iter(reader)


def _damaged(file: Path, error: Exception) -> Problem:
    return Problem(
        str(file),
        f"The file is damaged or incomplete: {one_line(getattr(error, 'strerror', None) or str(error), 200)}.",
        "Copy it again from where it came, and compare the sizes.",
    )
