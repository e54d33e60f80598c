"""The draft on disk: `grpo-tui.toml` in the project folder, owned by the program.

The file is TOML: `version`, `step`, then one table per answer with the field names of `grpo_tui.draft`. A missing key
is its default. Keys that this version does not know are kept. Beside it lies `grpo-tui.toml.bak`, the last good copy.
"""

import dataclasses
import functools
import os
import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import tomli_w

from grpo_tui import atomic, regular
from grpo_tui.draft import ALLOWED, STEPS, Draft
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

STATE_FILE = "grpo-tui.toml"

VERSION = 1
"""Version of the file's format. Raised together with a new entry in `MIGRATIONS`."""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older version, the function that turns its content into that of the next one."""

_FIRST_LINE = "# The answers given to grpo-tui, kept by the program. What you may edit is config.toml."
_LAST_LINE = "# End of the answers. A file that begins as above and lacks this line was cut off."


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A draft read from a project folder."""

    draft: Draft
    read_only: bool = False
    """The file is from a newer version: it is shown, never overwritten."""

    notes: tuple[str, ...] = ()
    """What the user should know about the reading, as whole sentences."""


@dataclass(frozen=True)
class _Content:
    """A state file as it stands on disk, brought to the present format unless it is newer."""

    raw: bytes
    table: dict[str, Any]
    version: int
    """The version it was written in."""


STATE_BYTES = 64 << 20
"""No answers take so much; what is larger is not read."""

SEARCHED_BYTES = 256 << 10
"""In a file of up to so many bytes the line of a fault is looked for, which takes time quadratic in its lines."""


def load(project: Path) -> Loaded | Problem:
    """The draft kept in `project`; an empty draft where there is none yet.

    Nothing is written. A file that cannot be read is a `Problem` that names the line and, where there is one, the
    backup; it is never taken for an empty one.
    """
    path = project / STATE_FILE
    content = _read(path)
    if isinstance(content, Problem):
        return content
    if content is None:
        note = f"{path.name} is missing, but {atomic.backup_path(path).name} holds earlier answers and can be restored."
        notes = (note,) if _has_backup(path) else ()
        return Loaded(draft=Draft(), notes=notes)
    if not content.table and _has_backup(path):
        return _broken(path, "The file is empty.")
    return _loaded(path, content)


def lost(project: Path) -> str:
    """Why the answers are not in `project` although they were saved there; empty: they are."""
    path = project / STATE_FILE
    return "" if path.exists() else f"{path} is gone: the folder was moved or deleted."


def save(project: Path, draft: Draft) -> Problem | None:
    """Write `draft` into `project`; a `Problem` says why that could not be, and leaves what is there.

    A file of a newer version or a broken one is not overwritten. A file of an older version is first copied to
    `grpo-tui.toml.v<version>`.
    """
    path = project / STATE_FILE
    content = _read(path)
    if isinstance(content, Problem):
        return content
    if content is not None and isinstance(standing := _loaded(path, content), Problem):
        return standing
    if content is not None and content.version > VERSION:
        return Problem(
            where=path.name,
            what=f"The file has format {content.version}, which is newer than this program's format {VERSION}.",
            remedy="Nothing was saved. Install the newer grpo-tui, or work in another folder.",
        )
    fresh = render(draft).encode()
    if content is not None and content.raw == fresh:
        return None
    try:
        if content is not None and content.version < VERSION:
            atomic.write(path.with_name(f"{path.name}.v{content.version}"), content.raw)
        atomic.write(path, fresh, keep_backup=content is not None and bool(content.table))
    except OSError as error:
        return Problem(
            where=str(path),
            what=f"Your answers could not be saved: {error.strerror or error}.",
            remedy="Make room or give write permission there; nothing is lost while this program is open.",
        )
    return None


def restore_backup(project: Path) -> Loaded | Problem:
    """Put the last good copy back; the broken file is kept as `grpo-tui.toml.broken`."""
    path = project / STATE_FILE
    backup = atomic.backup_path(path)
    content = _read(backup)
    if content is None:
        remedy = f"Mend {path.name} by hand, or move it away to start anew."
        return Problem(where=backup.name, what="There is no backup.", remedy=remedy)
    if isinstance(content, Problem):
        return content
    loaded = _loaded(backup, content)
    if isinstance(loaded, Problem):
        return loaded
    try:
        if path.exists():
            atomic.write(path.with_name(path.name + ".broken"), path.read_bytes())
        atomic.write(path, content.raw)
    except OSError as error:
        return Problem(
            where=str(path),
            what=f"The backup could not be put back: {error.strerror or error}.",
            remedy=f"Copy {backup.name} to {path.name} by hand.",
        )
    return loaded


def render(draft: Draft) -> str:
    """`draft` as the text of the state file. Values that TOML cannot hold are converted, None is left out."""
    table = {name: getattr(draft, name) for name in _FIELDS}
    answers = tomli_w.dumps({"version": VERSION, **_merge(to_toml(table), to_toml(draft.unknown))})
    return f"{_FIRST_LINE}\n\n{answers}\n{_LAST_LINE}\n"


def to_toml(value: Any) -> Any:
    """`value` as TOML can hold it.

    Dataclasses and mappings become tables with text keys and without the entries that are None; paths become text;
    numpy scalars and arrays become numbers and lists; enumerations their value; anything else its text.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_toml({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {to_toml(str(key)): to_toml(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_toml(item) for item in value if item is not None]
    if isinstance(value, Enum):
        return to_toml(value.value)
    for kind, convert in _SCALARS:
        if isinstance(value, kind):
            return convert(value)
    to_list = getattr(value, "tolist", None)
    if callable(to_list):  # numpy and its like, none of which is imported here
        return to_toml(to_list())
    return to_toml(str(value))


def _text(value: str) -> str:
    """Plain text that UTF-8 can hold: half a surrogate pair (a file name in no known encoding) is spelt out."""
    return str(value).encode("utf-8", "backslashreplace").decode()


# In this order: numpy's float64 is a float, its str_ a str, and bool an int; tomli_w wants the plain ones.
_SCALARS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (bool, bool),
    (int, int),
    (float, float),
    (str, _text),
    (PurePath, lambda path: _text(os.fspath(path))),
    ((date, time), lambda moment: moment),
    (bytes, lambda data: _text(data.decode("utf-8", "surrogateescape"))),
)


def _merge(table: dict[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """`table` with the entries of `unknown` that it lacks, at every depth. What the table says wins."""
    merged = dict(table)
    for key, value in unknown.items():
        if key not in merged:
            merged[key] = value
        elif isinstance(merged[key], dict) and isinstance(value, Mapping):
            merged[key] = _merge(merged[key], value)
        elif isinstance(merged[key], list) and isinstance(value, list):
            merged[key] = _merge_items(merged[key], value)
    return merged


def _merge_items(items: list[Any], unknown: list[dict[str, Any]]) -> list[Any]:
    """Give each item back its unknown keys: those of the first unused table that begins with the same value."""
    left = list(unknown)
    merged = []
    for item in items:
        first, value = next(iter(item.items()))
        extra = next((table for table in left if table.get(first) == value), None)
        if extra is not None:
            left.remove(extra)
        merged.append(_merge(item, extra or {}))
    return merged


def _read(path: Path) -> _Content | Problem | None:
    """The content of a state file; None: there is no file."""
    try:
        raw = regular.read(path, STATE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Problem(
            where=str(path),
            what=f"The file cannot be read: {error.strerror or error}.",
            remedy="Give this user the permission to read it, or choose another folder.",
        )
    try:
        table = tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return _broken(path, "It is not UTF-8 text.", raw.count(b"\n", 0, error.start) + 1)
    except tomllib.TOMLDecodeError as error:
        return _invalid(path, raw.decode("utf-8-sig"), error)
    except (ValueError, RecursionError) as error:  # numbers of 5000 digits, tables a thousand deep
        return _broken(path, f"The file cannot be read: {one_line(str(error), 100)}.")
    text = raw.decode("utf-8-sig")
    if text.startswith(_FIRST_LINE) and _LAST_LINE not in text:  # cut between two keys it is still valid TOML
        return _broken(path, "The file ends before its last line; it was cut off.", _last_line(text))
    version = table.get("version", VERSION)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        words = f"version must be a whole number from 1, but is {_spelt(version)}."
        return _broken(path, words, _line_of(raw, ("version",)))
    return _migrated(path, _Content(raw, table, version))


def _migrated(path: Path, content: _Content) -> _Content | Problem:
    table = content.table
    for version in range(content.version, VERSION):
        if version not in MIGRATIONS:
            return _broken(path, f"Format {version} is too old for this program.")
        try:
            table = {**MIGRATIONS[version](table), "version": version + 1}
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            return _broken(path, f"The file says that it has format {version}, but its content does not fit that.")
    return _Content(content.raw, table, content.version)


def _loaded(path: Path, content: _Content) -> Loaded | Problem:
    faults: list[_Fault] = []
    draft = _draft(content.table, faults)
    if content.version > VERSION:
        note = (
            f"{path.name} was written by a newer grpo-tui (format {content.version}, this one knows {VERSION}). It is "
            "shown as far as it can be read, and nothing you change here is saved."
        )
        return Loaded(draft=draft, read_only=True, notes=(note,))
    if faults:
        first = faults[0]
        more = f" And {len(faults) - 1} more like it." if len(faults) > 1 else ""
        return _broken(path, f"{first}{more}", _line_of(content.raw, first.key))
    if content.version < VERSION:
        note = (
            f"{path.name} has the older format {content.version}. It is brought to format {VERSION} when it is next "
            f"saved; the old file is kept as {path.name}.v{content.version}."
        )
        return Loaded(draft=draft, notes=(note,))
    return Loaded(draft=draft)


_FIELDS = tuple(field.name for field in dataclasses.fields(Draft) if field.name != "unknown")

_SCALAR_WORDS: Mapping[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


_Key = tuple[str | int, ...]


@dataclass(frozen=True)
class _Fault:
    """A value that does not fit its place."""

    key: _Key
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{_dotted(self.key)} must be {self.wanted}, but is {self.found}."


def _draft(table: Mapping[str, Any], faults: list[_Fault]) -> Draft:
    answers = {name: value for name, value in table.items() if name != "version"}
    draft: Draft
    draft, unknown = _dataclass(Draft, answers, (), faults)
    if draft.step not in STEPS:
        faults.append(_Fault(("step",), "one of " + ", ".join(STEPS), _spelt(draft.step)))
        draft = dataclasses.replace(draft, step=STEPS[0])
    for (section, name), allowed in ALLOWED.items():
        answer = getattr(draft, section)
        if getattr(answer, name) not in allowed:
            words = "one of " + ", ".join(one or '""' for one in allowed)
            faults.append(_Fault((section, name), words, _spelt(getattr(answer, name))))
            draft = dataclasses.replace(draft, **{section: dataclasses.replace(answer, **{name: allowed[0]})})
    if draft.score.row < 0:
        faults.append(_Fault(("score", "row"), "a whole number from 0", _spelt(draft.score.row)))
        draft = dataclasses.replace(draft, score=dataclasses.replace(draft.score, row=0))
    return dataclasses.replace(draft, unknown=unknown)


_UNFIT = object()
"""Stands for a value that does not fit its place and is therefore left to its default."""


def _value(hint: Any, value: Any, key: _Key, faults: list[_Fault]) -> tuple[Any, Any]:
    """`value` as the type `hint` has it, and what in it is unknown; `_UNFIT` and a fault where it does not fit."""
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, value, key, faults)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return _items(arguments[0], value, key, faults)
    if origin is Mapping:
        return _mapping(arguments[1], value, key, faults)
    if hint is Any:
        return value, None
    if hint is float and type(value) is int:
        return float(value), None
    if type(value) is not hint:
        faults.append(_Fault(key, _SCALAR_WORDS[hint], _spelt(value)))
        return _UNFIT, None
    return value, None


def _dataclass(kind: Any, table: Any, key: _Key, faults: list[_Fault]) -> tuple[Any, dict[str, Any]]:
    if not isinstance(table, Mapping):
        faults.append(_Fault(key, "a table", _spelt(table)))
        return _UNFIT, {}
    hints = _hints(kind)
    unknown = {name: value for name, value in table.items() if name not in hints}
    values = {}
    for name, hint in hints.items():
        if name in table:
            value, extra = _value(hint, table[name], (*key, name), faults)
            if value is not _UNFIT:
                values[name] = value
            if extra:
                unknown[name] = extra
    missing = [field.name for field in dataclasses.fields(kind) if _is_required(field) and field.name not in values]
    faults.extend(_Fault((*key, name), "there", "missing") for name in missing if name not in table)
    return (_UNFIT if missing else kind(**values)), unknown


def _items(hint: Any, value: Any, key: _Key, faults: list[_Fault]) -> tuple[Any, list[Any]]:
    if not isinstance(value, list):
        faults.append(_Fault(key, "a list", _spelt(value)))
        return _UNFIT, []
    read = [_value(hint, item, (*key, index), faults) for index, item in enumerate(value)]
    return (
        tuple(item for item, _ in read if item is not _UNFIT),
        [item for item, (_, unknown) in zip(value, read, strict=True) if unknown],
    )


def _mapping(hint: Any, value: Any, key: _Key, faults: list[_Fault]) -> tuple[Any, dict[str, Any]]:
    if not isinstance(value, Mapping):
        faults.append(_Fault(key, "a table", _spelt(value)))
        return _UNFIT, {}
    read = {name: _value(hint, item, (*key, name), faults) for name, item in value.items()}
    return (
        {name: item for name, (item, _) in read.items() if item is not _UNFIT},
        {name: unknown for name, (_, unknown) in read.items() if unknown},
    )


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass, without `unknown`, which is no key of the file."""
    return {name: hint for name, hint in typing.get_type_hints(kind).items() if name != "unknown"}


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _broken(path: Path, what: str, line: int | None = None) -> Problem:
    mend = "Mend the file by hand, or move it away to start anew."
    return Problem(
        where=f"{path.name}, line {line}" if line else path.name,
        what=what,
        remedy=f"Restore the last good copy, {atomic.backup_path(path).name}, or mend the file by hand."
        if _has_backup(path)
        else mend,
    )


def _has_backup(path: Path) -> bool:
    """Whether a copy that can be read lies beside the state file."""
    backup = atomic.backup_path(path)
    content = _read(backup)
    return isinstance(content, _Content) and bool(content.table) and isinstance(_loaded(backup, content), Loaded)


def _invalid(path: Path, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    """The parser's finding, with its line taken out of the words it comes in."""
    words, _, place = str(error).partition(" (at ")
    if found := re.match(r"line (\d+)", place):
        line, end = int(found[1]), ""
    else:  # "at end of document"
        line, end = _last_line(text), " The file may have been cut off there."
    if "Cannot overwrite" in words or words.startswith("Cannot declare"):
        return _broken(path, "The same key or table is given twice.", line)
    return _broken(path, f"It is not valid TOML: {one_line(words, 100)}.{end}", line)


def _last_line(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def _line_of(raw: bytes, key: _Key) -> int | None:
    """The line where the value of `key`, or of the table that should hold it, begins.

    Found by parsing ever longer beginnings of the file: slow, but exact whatever way the key is written.
    """
    if len(raw) > SEARCHED_BYTES:
        return None
    lines = raw.decode("utf-8-sig").split("\n")
    while key:
        start = 1
        for end in range(1, len(lines) + 1):
            try:
                table = tomllib.loads("\n".join(lines[:end]) + "\n")
            except tomllib.TOMLDecodeError:
                continue  # in the middle of a value
            if _holds(table, key):
                return start
            start = end + 1
        key = key[:-1]
    return None


def _holds(table: Any, key: _Key) -> bool:
    for name in key:
        try:
            table = table[name]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _dotted(key: _Key) -> str:
    """`key` as people write it; the first item of a list is number 1."""
    return "".join(f" {name + 1}" if isinstance(name, int) else f".{one_line(name, 60)}" for name in key).lstrip(".")


def _spelt(value: Any) -> str:
    """A value as it stands in the file, or its kind where that is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{one_line(value, 60)}"'
    if isinstance(value, (list, Mapping)):
        return "a list" if isinstance(value, list) else "a table"
    return one_line(str(value), 60)
