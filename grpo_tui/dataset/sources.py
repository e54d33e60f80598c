"""Open any source of rows: a local file or folder, or a data set of the hub.

Local sources are read here, in constant memory. What needs the `datasets` library, a hub id, is read in a worker.
"""

import hashlib
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from glob import has_magic
from pathlib import Path

from grpo_tui.child import Worker
from grpo_tui.dataset.files import FORMATS, is_data_file, open_files
from grpo_tui.dataset.folders import open_folder, open_pattern
from grpo_tui.dataset.hub import is_hub_id, open_hub
from grpo_tui.dataset.json_text import parses, whole_characters
from grpo_tui.dataset.loading import load_call, load_code
from grpo_tui.dataset.packed import open_packed, open_text, unpacked_name
from grpo_tui.dataset.rows import Column, Row, UnreadableError, never
from grpo_tui.dataset.source import Source, lost
from grpo_tui.dataset.text import encoding_of
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

__all__ = [
    "FORMATS",
    "Column",
    "Source",
    "UnreadableError",
    "count_rows",
    "fingerprint",
    "is_data_file",
    "is_hub_id",
    "load_call",
    "load_code",
    "open_source",
    "repair",
    "sample",
]


def open_source(
    source: str, options: Mapping[str, str] | None = None, split: str = "", *, worker: Worker | None = None
) -> Source | Problem:
    """Open `source`: a file, a folder, a pattern such as `data/*.jsonl.gz`, or a hub id such as `openai/gsm8k`,
    which `worker` (`hub_rows`) reads.

    Without `worker` one is started for a hub id and ended again.
    """
    options = dict(options or {})
    text = source.strip()
    if not text:
        return Problem("data", "No source is given.", "Name a file, a folder, or a data set of the hub.")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # a user whom nobody knows
        return Problem(one_line(text, 200), f"{error}.", "Write the path out.")
    try:
        if path.is_dir():
            return open_folder(path.resolve(), options, split)
        if path.exists():
            return open_files((path.resolve(),), options, split)
        if has_magic(text):
            return open_pattern(str(path.absolute()), options)
    except UnreadableError as error:
        return error.problem
    except OSError as error:
        return lost(str(path), error)
    except ValueError as error:  # a zero byte; `**` within a name
        return Problem(one_line(text, 200), f"No file can be called that: {error}.", "Check the path.")
    if is_hub_id(text):
        return open_hub(text, options, split, worker)
    return Problem(text, "There is no such file or folder.", _neighbours(path))


def _neighbours(path: Path) -> str:
    try:
        here = sorted(one.name for one in path.parent.iterdir() if is_data_file(one))
    except OSError:
        return "Check the path; a hub data set is written owner/name."
    if not here:
        return "Check the path; a hub data set is written owner/name."
    return f"Data files there: {one_line(', '.join(here[:8]), 200)}."


def count_rows(source: Source, cancelled: Callable[[], bool] = never) -> Source | Problem:
    """`source` with its exact number of rows: reads a text file once. Unchanged if `cancelled` says so on the way."""
    if source.rows_exact:
        return source
    try:
        rows = source.reader.count(cancelled)
    except UnreadableError as error:
        return error.problem
    except OSError as error:
        return lost(source.path, error)
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
    """A mark that changes when the data do: sizes, times, first and last bytes, and how they are read.

    Raises OSError.
    """
    digest = hashlib.sha256(repr((source.path, source.split, sorted(source.options.items()))).encode())
    for file in source.files:
        with open_packed(file) as opened:
            stat = os.fstat(opened.fileno())
            digest.update(f"{file.name!r} {stat.st_size} {stat.st_mtime_ns}".encode())
            digest.update(opened.read(65536))
            opened.seek(max(0, stat.st_size - 65536))
            digest.update(opened.read())
    if source.format == "hub":
        digest.update(repr((source.rows, source.head(5))).encode())
    return digest.hexdigest()


def repair(path: Path, options: Mapping[str, str] | None = None) -> Path | Problem:
    """A corrected copy beside a JSON or CSV file: UTF-8, without half characters, commas behind the rows or half a
    last line.

    The original stays as it is; neither is an earlier copy overwritten. Any other fault is left for the user.
    """
    plain = unpacked_name(path)
    try:
        encoding = encoding_of(path, (options or {}).get("encoding", ""))
        if isinstance(encoding, Problem):
            return encoding
        copy = next(
            one
            for number in range(1, 1000)
            if not (one := plain.with_stem(f"{plain.stem}.repaired{number if number > 1 else ''}")).exists()
        )
        with (
            open_text(path, encoding.name, "\n") as file,
            copy.open("x", encoding="utf-8", newline="\n") as new,
        ):
            if FORMATS.get(plain.suffix.lower()) != "json":
                while block := file.read(1 << 20):
                    new.write(block)
                return copy
            held, by_line = "", None
            for line in map(whole_characters, file):
                new.write(held)
                text = line.strip()
                if by_line is None and text:  # is it one row a line?
                    by_line = text[:1] == "{" and parses(text.removesuffix(","))
                held = text[:-1] + "\n" if by_line and text.endswith(",") and text[:1] == "{" else line
            if not by_line or parses(held):  # of rows the last one only if it is whole
                new.write(held if held.endswith("\n") else held + "\n")
    except UnicodeError as error:
        encoded = getattr(error, "encoding", "utf-16").upper()  # without its mark UTF-16 raises one that has no name
        return Problem(str(path), f"It is not {encoded} all through.", "Choose another encoding.")
    except UnreadableError as error:
        return error.problem
    except OSError as error:
        return Problem(
            str(path), f"No copy could be written: {error.strerror or error}.", "Free room, or copy it elsewhere."
        )
    return copy
