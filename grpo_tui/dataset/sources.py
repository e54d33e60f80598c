"""Open any source of rows: a local file or folder, or a data set of the hub.

Local sources are read here, in constant memory. What needs the `datasets` library, a hub id, is read in a worker.
"""

import hashlib
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, cast

from grpo_tui.child import Worker
from grpo_tui.dataset.arrow_rows import ArrowRows, open_arrow, open_parquet
from grpo_tui.dataset.delimited import DelimitedRows, describe, open_delimited
from grpo_tui.dataset.json_rows import JSONRows, open_json
from grpo_tui.dataset.rows import Column, Reader, Row, UnreadableError, infer, never
from grpo_tui.dataset.text import encoding_of
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

__all__ = [
    "Column",
    "Source",
    "UnreadableError",
    "count_rows",
    "fingerprint",
    "load_call",
    "open_source",
    "repair",
    "sample",
]

COUNT_BYTES = 16 << 20
"""Text files up to this size are counted when they are opened; of larger ones the count is an estimate at first."""

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

_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$")  # huggingface_hub.utils.validate_repo_id
_SPLIT_WORDS = {"train": "train", "training": "train", "test": "test", "testing": "test", "eval": "test",
                "evaluation": "test", "validation": "validation", "valid": "validation", "val": "validation",
                "dev": "validation"}  # datasets.data_files.SPLIT_KEYWORDS  # fmt: skip


@dataclass(frozen=True)
class Source:
    """An opened source: what is known of it without reading it all, and a way to its rows."""

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
        """The first `n` rows. Raises UnreadableError, as `row` and `iterate` do, where the file is broken."""
        return list(self.iterate(n))

    def row(self, i: int) -> Row | None:
        """Row `i`, from 0; None behind the end."""
        return next(self.reader.iterate(i), None)

    def iterate(self, limit: int | None = None) -> Iterator[Row]:
        """All rows in order, or the first `limit`."""
        return islice(self.reader.iterate(), limit)


def open_source(
    source: str, options: Mapping[str, str] | None = None, split: str = "", *, worker: Worker | None = None
) -> Source | Problem:
    """Open `source`: a file, a folder, or a hub id such as `openai/gsm8k`, which `worker` (`hub_rows`) reads.

    Without `worker` one is started for a hub id and ended again.
    """
    options = dict(options or {})
    text = source.strip()
    if not text:
        return Problem("data", "No source is given.", "Name a file, a folder, or a data set of the hub.")
    path = Path(text).expanduser()
    try:
        if path.is_dir():
            return _open_folder(path.resolve(), options, split)
        if path.exists():
            return _open_files((path.resolve(),), options, split)
    except OSError as error:
        return Problem(str(path), f"It cannot be read: {error.strerror or error}.", "Check its name and permissions.")
    if is_hub_id(text):
        return _open_hub(text, options, split, worker)
    return Problem(text, "There is no such file or folder.", _neighbours(path))


def is_hub_id(text: str) -> bool:
    """Could this be a data set of the hub? Asked only of what is no local path."""
    looks_local = text.startswith((".", "/", "~")) or Path(text).suffix.lower() in FORMATS or "\\" in text
    return not looks_local and "/" in text and _HUB_ID.match(text) is not None and ".." not in text and "--" not in text


def _neighbours(path: Path) -> str:
    try:
        here = sorted(one.name for one in path.parent.iterdir() if one.suffix.lower() in FORMATS)
    except OSError:
        return "Check the path; a hub data set is written owner/name."
    if not here:
        return "Check the path; a hub data set is written owner/name."
    return f"Data files there: {one_line(', '.join(here[:8]), 200)}."


def _open_folder(folder: Path, options: dict[str, str], split: str) -> Source | Problem:
    if (folder / "dataset_dict.json").exists():
        return _open_saved_splits(folder, options, split)
    if (folder / "state.json").exists() and (folder / "dataset_info.json").exists():
        return _open_saved(folder, options, split)
    files = sorted(one for one in folder.iterdir() if one.suffix.lower() in FORMATS and not one.name.startswith("."))
    by_format: dict[str, list[Path]] = {}
    for one in files:
        by_format.setdefault(FORMATS[one.suffix.lower()], []).append(one)
    if not by_format:
        return Problem(
            str(folder),
            "The folder holds no data: looked for dataset_dict.json, state.json with dataset_info.json, and for files "
            f"ending in {', '.join(FORMATS)}.",
            "Choose a file, or a folder that `save_to_disk` wrote.",
        )
    kind, chosen = max(by_format.items(), key=lambda item: len(item[1]))
    groups: dict[str, list[Path]] = {}
    for one in chosen:
        groups.setdefault(_split_of(one.stem), []).append(one)
    name = split or ("train" if "train" in groups else next(iter(groups)))
    if name not in groups:
        return Problem(str(folder), f"There is no split '{name}'.", f"Splits there: {', '.join(groups)}.")
    opened = _open_files(tuple(groups[name]), options, name)
    if isinstance(opened, Problem):
        return opened
    others = tuple(other for other in by_format if other != kind)
    notes: tuple[str, ...] = (f"{len(groups[name])} {kind} files of split {name}",) if len(groups[name]) > 1 else ()
    notes += (f"files of another kind left aside: {', '.join(others)}",) if others else ()
    splits = tuple(groups) if len(groups) > 1 else ()
    return replace(opened, path=str(folder), notes=notes + opened.notes, splits=splits, split=name if splits else "")


def _split_of(stem: str) -> str:
    words = re.split(r"[^a-z]+", stem.lower())
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), "train")


def _open_saved_splits(folder: Path, options: dict[str, str], split: str) -> Source | Problem:
    import json

    try:
        splits = tuple(json.loads((folder / "dataset_dict.json").read_text())["splits"])
    except (ValueError, KeyError, TypeError):
        splits = ()
    splits = splits or tuple(sorted(one.name for one in folder.iterdir() if (one / "state.json").exists()))
    name = split or ("train" if "train" in splits else "".join(splits[:1]))
    if name not in splits:
        return Problem(str(folder), f"There is no split '{name}'.", f"Splits there: {', '.join(splits) or 'none'}.")
    opened = _open_saved(folder / name, options, name)
    return opened if isinstance(opened, Problem) else replace(opened, path=str(folder), splits=splits, split=name)


def _open_saved(folder: Path, options: dict[str, str], split: str) -> Source | Problem:
    import json

    try:
        state = json.loads((folder / "state.json").read_text())
        files = tuple(folder / one["filename"] for one in state["_data_files"])
    except (OSError, ValueError, KeyError, TypeError):
        files = tuple(sorted(folder.glob("*.arrow")))
    opened = open_arrow(files)
    if isinstance(opened, Problem):
        return opened
    note = "written by save_to_disk" + (f", split {split}" if split else "")
    return _source(str(folder), "saved", opened, (note,), options, files)


def _open_files(files: tuple[Path, ...], options: dict[str, str], split: str) -> Source | Problem:
    kind = _kind_of(files[0])
    if kind is None:
        return Problem(
            str(files[0]),
            f"The ending '{files[0].suffix}' is none of {', '.join(FORMATS)}, and the content tells no more.",
            "Give the file the ending of what it is.",
        )
    opened = _OPEN[kind](files, options)
    return opened if isinstance(opened, Problem) else replace(opened, split=split)


def _kind_of(path: Path) -> str | None:
    if kind := FORMATS.get(path.suffix.lower()):
        return kind
    with path.open("rb") as file:
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
    if first.layout in _LAYOUT_NOTES:
        notes.append(_LAYOUT_NOTES[first.layout].format(field=first.field))
    used = dict(options)
    if first.encoding not in ("utf-8", "utf-8-sig"):
        used["encoding"] = first.encoding
    if first.layout == "wrapped":
        used["field"] = first.field
    reader: Reader = first if len(readers) == 1 else Several(tuple(readers))
    return _source(_common(files), "json", reader, tuple(notes), used, files)


_LAYOUT_NOTES: Mapping[str, str] = {
    "concatenated": "objects one after the other, not one a line",
    "array": "one array of rows",
    "wrapped": "rows under '{field}'",
    "columns": "one list for each column",
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
    reader: Reader = first if len(readers) == 1 else Several(tuple(readers))
    return _source(_common(files), "csv", reader, tuple(notes), used, files)


def _open_parquet_files(files: tuple[Path, ...], options: dict[str, str]) -> Source | Problem:
    opened = open_parquet(files)
    return opened if isinstance(opened, Problem) else _source(_common(files), "parquet", opened, (), options, files)


def _open_arrow_files(files: tuple[Path, ...], options: dict[str, str]) -> Source | Problem:
    opened = open_arrow(files)
    return opened if isinstance(opened, Problem) else _source(_common(files), "arrow", opened, (), options, files)


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
            yield {**dict.fromkeys(names), **row}

    def count(self, cancelled: Callable[[], bool]) -> int:
        return sum(reader.count(cancelled) for reader in self.readers)


@dataclass(frozen=True)
class HubRows:
    """Rows of a hub data set, streamed by a worker in pages."""

    request: Mapping[str, str]
    columns: tuple[Column, ...]
    first: tuple[Row, ...]
    PAGE = 500

    @property
    def looked_at(self) -> int:
        return len(self.first)

    def iterate(self, start: int = 0) -> Iterator[Row]:
        yield from self.first[start:]
        at = max(start, len(self.first))
        with Worker("hub_rows") as worker:
            while True:
                page = worker.call("rows", {**self.request, "start": at, "count": self.PAGE})
                if isinstance(page, Problem):
                    raise UnreadableError(page)
                yield from page["rows"]
                at += len(page["rows"])
                if len(page["rows"]) < self.PAGE:
                    return

    def count(self, cancelled: Callable[[], bool]) -> int:
        return sum(1 for _ in takewhile(lambda row: not cancelled(), self.iterate()))


def _open_hub(name: str, options: dict[str, str], split: str, worker: Worker | None) -> Source | Problem:
    request = {"name": name, "split": split, **{key: options.get(key, "") for key in ("config", "revision")}}
    if worker is None:
        with Worker("hub_rows") as own:
            answer = own.call("open", request)
    else:
        answer = worker.call("open", request)
    if isinstance(answer, Problem):
        return answer
    request["split"] = answer["split"]
    used = {**options, **({"config": answer["config"]} if answer["config"] else {})}
    rows = tuple(cast(list[Row], answer["rows"]))
    columns = tuple(replace(column, type=answer["types"].get(column.name, column.type)) for column in infer(rows))
    reader = HubRows({**request, "config": answer["config"]}, columns, rows)
    notes = (f"from the hub, streamed: split {answer['split']}",)
    return Source(
        name, "hub", columns, len(rows), answer["count"], answer["count"] is not None, notes, used,
        answer["split"], tuple(answer["splits"]), (), reader=reader,
    )  # fmt: skip


def _common(files: Sequence[Path]) -> str:
    return str(files[0] if len(files) == 1 else files[0].parent)


def _source(
    path: str, kind: str, reader: Reader, notes: tuple[str, ...], options: Mapping[str, str], files: tuple[Path, ...]
) -> Source | Problem:
    size = sum(file.stat().st_size for file in files)
    exact = isinstance(reader, ArrowRows) or size <= COUNT_BYTES
    try:
        rows = reader.count(never) if exact else _estimate(reader, size)
    except UnreadableError as error:
        return error.problem
    if rows == 0:
        return Problem(path, "There are no rows in it.", "Choose a source with rows.")
    return Source(path, kind, reader.columns, reader.looked_at, rows, exact, notes, options, files=files, reader=reader)


def _estimate(reader: Reader, size: int) -> int:
    """Rows by the length of the first ones."""
    read = sum(len(str(row).encode("utf-8", "replace")) for row in islice(reader.iterate(), reader.looked_at))
    return max(reader.looked_at, round(size * reader.looked_at / max(1, read)))


def count_rows(source: Source, cancelled: Callable[[], bool] = never) -> Source | Problem:
    """`source` with its exact number of rows: reads a text file once. Unchanged if `cancelled` says so on the way."""
    if source.rows_exact:
        return source
    try:
        rows = source.reader.count(cancelled)
    except UnreadableError as error:
        return error.problem
    return source if cancelled() else replace(source, rows=rows, rows_exact=True)


def sample(
    source: Source, size: int, seed: int = 0, cancelled: Callable[[], bool] = never
) -> list[tuple[int, Row]] | Problem:
    """`size` rows drawn evenly over the whole source, with their numbers, in order; all of them if there are fewer.

    One pass, memory for `size` rows (algorithm R, Vitter 1985). What was read so far if `cancelled` says so.
    """
    chance = random.Random(seed)
    kept: list[tuple[int, Row]] = []
    try:
        for number, row in enumerate(source.iterate()):
            if number < size:
                kept.append((number, row))
            elif (slot := chance.randrange(number + 1)) < size:
                kept[slot] = (number, row)
            if number % 1000 == 0 and cancelled():
                break
    except UnreadableError as error:
        return error.problem
    return sorted(kept, key=lambda one: one[0])


def fingerprint(source: Source) -> str:
    """A mark that changes when the data do: sizes, times, first and last bytes, and how they are read."""
    digest = hashlib.sha256(repr((source.path, source.split, sorted(source.options.items()))).encode())
    for file in source.files:
        with file.open("rb") as opened:
            stat = os.fstat(opened.fileno())
            digest.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}".encode())
            digest.update(opened.read(65536))
            opened.seek(max(0, stat.st_size - 65536))
            digest.update(opened.read())
    if source.format == "hub":
        digest.update(repr((source.rows, source.head(5))).encode())
    return digest.hexdigest()


def load_call(source: Source, relative_to: Path | None = None) -> str:
    """The Python expression that loads these very rows as one `datasets.Dataset`.

    Its names come from `from datasets import Dataset, load_dataset, load_from_disk`, `import json` and
    `from pathlib import Path`. Files below `relative_to` are named from there.
    """
    options = source.options
    if source.format == "hub":
        named = {"name": options.get("config", ""), "revision": options.get("revision", ""), "split": source.split}
        return _call("load_dataset", [source.path], {key: value for key, value in named.items() if value})
    if source.format == "saved":
        loaded = _call("load_from_disk", [_written(Path(source.path), relative_to)], {})
        return f"{loaded}[{source.split!r}]" if source.splits else loaded
    files = [_written(file, relative_to) for file in source.files]
    where: Any = files[0] if len(files) == 1 else files
    if isinstance(source.reader, JSONRows) and source.reader.layout == "columns":
        encoding = options.get("encoding", "utf-8-sig")
        return f"Dataset.from_dict(json.loads(Path({where!r}).read_text(encoding={encoding!r})))"
    named = {"data_files": where, "split": "train"}
    if source.format == "json":
        named |= {key: options[key] for key in ("field", "encoding") if key in options}
    if source.format == "csv":
        named |= {key: options[key] for key in ("delimiter", "decimal", "encoding") if key in options}
    return _call("load_dataset", [source.format], named)


def _written(path: Path, relative_to: Path | None) -> str:
    if relative_to is not None and path.is_relative_to(relative_to.resolve()):
        return str(path.relative_to(relative_to.resolve()))
    return str(path)


def _call(name: str, values: Sequence[Any], named: Mapping[str, Any]) -> str:
    arguments = [repr(value) for value in values] + [f"{key}={value!r}" for key, value in named.items()]
    return f"{name}({', '.join(arguments)})"


def repair(path: Path, options: Mapping[str, str] | None = None) -> Path | Problem:
    """A corrected copy beside a JSON or CSV file: UTF-8, without commas behind the rows, without half a last line.

    The original stays as it is; neither is an earlier copy overwritten. Any other fault is left for the user.
    """
    import json

    try:
        encoding = encoding_of(path, (options or {}).get("encoding", ""))
        if isinstance(encoding, Problem):
            return encoding
        copy = next(
            one
            for number in range(1, 1000)
            if not (one := path.with_name(f"{path.stem}.repaired{number if number > 1 else ''}{path.suffix}")).exists()
        )
        with (
            path.open(encoding=encoding.name, newline="\n") as file,
            copy.open("x", encoding="utf-8", newline="\n") as new,
        ):
            if FORMATS.get(path.suffix.lower()) != "json":
                while block := file.read(1 << 20):
                    new.write(block)
                return copy
            held = ""
            for line in file:
                new.write(held)
                text = line.strip()
                held = text[:-1] + "\n" if text.endswith(",") and text[:1] == "{" else line
            try:  # the last line only if it is whole
                json.loads(held)
                new.write(held if held.endswith("\n") else held + "\n")
            except ValueError:
                pass
    except UnicodeDecodeError as error:
        return Problem(str(path), f"It is not {error.encoding.upper()} all through.", "Choose another encoding.")
    except OSError as error:
        return Problem(
            str(path), f"No copy could be written: {error.strerror or error}.", "Free room, or copy it elsewhere."
        )
    return copy
