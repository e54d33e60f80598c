"""Reading `events.jsonl`, the record a training run leaves: one JSON object a line.

A line has `v` (format version), `t` (Unix seconds), `kind` and `step`; the rest depends on the kind. The file is read
while it is written, over shared file systems and after crashes, so nothing here raises on what the file holds: half a
last line waits for the next read, a line that is no event is counted and passed over, and a file that was replaced or
shortened is read again from its start.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

EVENTS_FILE = "events.jsonl"
VERSION = 1

CHUNK_BYTES = 4 << 20
"""How much one `read_new` reads at most, so that a viewer stays responsive: about 0.1 s of decoding."""

MAX_LINE_BYTES = 4 << 20
"""A longer line is no event (a `log` row has 1 to 2 kB); it is passed over instead of being held in memory."""

WHOLE_BYTES = 1 << 20
"""Up to this size a file is read whole at first; a larger one is shown by its head, samples and tail."""

TAIL_BYTES = 256 << 10
SAMPLES = 600
"""Places looked at between head and tail: more than a chart has columns."""

_SAMPLE_BYTES = 8 << 10
_HEAD_BYTES = 96
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the file."""

    v: int
    t: float
    """When it was written, Unix seconds by the clock of the machine that trains."""

    kind: str
    """`begin`, `log`, `eval`, `phase`, `now`, `save`, `control`, `recorder_error`, `end`; readers ignore kinds they do
    not know.
    """

    step: int
    """Finished optimizer steps at that time."""

    data: Mapping[str, Any]
    """Everything else on the line, as it stands there, except that `logs` has floats for "NaN" and "Infinity"."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a file has been read. Hand it to the next `read_new`; its parts are of no other use."""

    offset: int = 0
    inode: int = 0
    head: bytes = b""
    """The first bytes of the file, by which a file rewritten in place is recognised."""

    passing: bool = False
    """Inside a line too long to be an event."""

    skipped: int = 0
    """Lines passed over so far because they were no events."""

    restarted: bool = False
    """The last read began anew, because the file was replaced or shortened: drop what was folded before."""

    behind: int = 0
    """Bytes of the file that the last read left, half a last line among them."""


START = Cursor()


def strict(value: Any) -> Any:
    """`value` as strict JSON can hold it: non-finite floats by name, tuples as lists, anything unknown as its text.

    Numbers of other libraries (numpy scalars, tensors with one element) become plain ones by their `item()`.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Enum):
        return strict(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _NAMES.get(value, "NaN")
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(item) for item in value]
    item = getattr(value, "item", None)
    return strict(item()) if callable(item) and hasattr(value, "dtype") else str(value)


def parse(line: bytes) -> Event | None:
    """The event on `line`, or None when it is none. NUL bytes around it (left by a power loss) are dropped."""
    try:
        row = json.loads(line.strip(b"\0 \t\r\n"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        return None
    version, t, step = row.pop("v", VERSION), row.pop("t", 0.0), row.pop("step", 0)
    kind = row.pop("kind")
    if not all(
        isinstance(number, int | float) and abs(number) < 1e18 for number in (version, t, step)
    ):  # NaN is not < 1e18
        return None
    logs = row.get("logs")
    if isinstance(logs, dict):
        row["logs"] = {
            key: _NUMBERS.get(value, value) if isinstance(value, str) else value for key, value in logs.items()
        }
    return Event(v=int(version), t=float(t), kind=kind, step=int(step), data=row)


def read_new(path: Path, cursor: Cursor = Cursor(), budget: int = CHUNK_BYTES) -> tuple[list[Event], Cursor]:
    """The whole events after `cursor`, at most about `budget` bytes of them, and where the next read goes on.

    A missing or unreadable file gives no events and the same cursor. `cursor.behind > 0` after a read that gave events
    means there is more.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if _replaced(file, status, cursor):
                cursor = Cursor(restarted=True)
            elif cursor.restarted:
                cursor = replace(cursor, restarted=False)
            return _read_on(file, status, cursor, budget)
    except OSError:
        return [], replace(cursor, restarted=False)


def parts(path: Path) -> Iterator[list[Event]]:
    """All whole events of a file, a bounded part of it at a time."""
    cursor = START
    while True:
        events, cursor = read_new(path, cursor)
        if events:
            yield events
        if not events or not cursor.behind:
            return


def first_view(path: Path) -> tuple[list[Event], Cursor]:
    """A first picture of a file of any size, in constant time: head, `SAMPLES` places between, and tail.

    The events are in the order of the file, without repeats; the cursor stands at the end. A file up to `WHOLE_BYTES`
    is read whole, so its picture is complete (`is_whole` tells).
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if is_whole(status.st_size):
                return _read_on(file, status, Cursor(), WHOLE_BYTES + 1)
            head = file.read(TAIL_BYTES)
            events = [event for line in _lines(head, whole_start=True) if (event := parse(line))]
            start = max(head.rfind(b"\n") + 1, 1)
            end = status.st_size - TAIL_BYTES
            for index in range(SAMPLES):
                file.seek(start + (end - start) * index // SAMPLES)
                event = _first_row(file.read(_SAMPLE_BYTES))
                if event and not (events and event.step == events[-1].step):
                    events.append(event)
            offset, skipped = _next_line(file, end), 0
            tail, cursor = _read_on(file, status, Cursor(offset=offset, skipped=skipped), TAIL_BYTES + MAX_LINE_BYTES)
            return [*events, *tail], replace(cursor, head=head[:_HEAD_BYTES])
    except OSError:
        return [], Cursor()


def is_whole(size: int) -> bool:
    """Does `first_view` read a file of `size` bytes completely?"""
    return size <= WHOLE_BYTES


def tail(path: Path, size: int = TAIL_BYTES) -> list[Event]:
    """The events in the last `size` bytes of the file."""
    try:
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            file.seek(max(0, end - size))
            return [event for line in _lines(file.read(size), whole_start=end <= size) if (event := parse(line))]
    except OSError:
        return []


def _replaced(file: BinaryIO, status: os.stat_result, cursor: Cursor) -> bool:
    if not cursor.offset:
        return False
    if status.st_size < cursor.offset or (cursor.inode and status.st_ino != cursor.inode):
        return True
    return bool(cursor.head) and file.read(len(cursor.head)) != cursor.head


def _read_on(file: BinaryIO, status: os.stat_result, cursor: Cursor, budget: int) -> tuple[list[Event], Cursor]:
    file.seek(cursor.offset)
    data = file.read(budget)
    if b"\n" not in data and len(data) == budget < MAX_LINE_BYTES:
        data += file.read(MAX_LINE_BYTES - budget)
    end = data.rfind(b"\n") + 1
    skipped, passing, whole = cursor.skipped, cursor.passing, data[:end]
    if passing and end:
        whole, skipped, passing = whole[whole.index(b"\n") + 1 :], skipped + 1, False
    if passing or len(data) - end >= MAX_LINE_BYTES:
        end, passing = len(data), True
    events = []
    for line in _lines(whole, whole_start=True):
        event = parse(line)
        if event:
            events.append(event)
        elif line.strip(b"\0 \t\r"):
            skipped += 1
    offset = cursor.offset + end
    head = cursor.head
    if len(head) < _HEAD_BYTES:
        file.seek(0)
        head = file.read(min(_HEAD_BYTES, offset))
    behind = max(0, status.st_size - offset)
    return events, replace(
        cursor, offset=offset, inode=status.st_ino, head=head, passing=passing, skipped=skipped, behind=behind
    )


def _lines(data: bytes, *, whole_start: bool) -> Iterator[bytes]:
    """Complete lines of `data`; the first is left out unless it starts at a line's start."""
    lines = data.split(b"\n")
    yield from lines[0 if whole_start else 1 : -1]


def _first_row(data: bytes) -> Event | None:
    """The first `log` row that lies whole in `data`. Rows of other kinds are short and would crowd out the sampled
    ones.
    """
    for line in _lines(data, whole_start=False):
        if b'"log"' in line[:160]:
            return parse(line)
    return None


def _next_line(file: BinaryIO, offset: int) -> int:
    """Where the first line that starts after `offset` begins."""
    file.seek(offset)
    data = file.read(MAX_LINE_BYTES)
    return offset + (data.index(b"\n") + 1 if b"\n" in data else len(data))
