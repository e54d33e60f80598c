"""`run.toml`: what the supervisor, and nobody else, writes down about a run's processes."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from grpo_tui import atomic, regular

RECORD_FILE = "run.toml"
RECORD_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Record:
    """One attempt at a run. Process starts are as `grpo_tui.lock.process_start` gives them; times are Unix seconds."""

    version: int = 1
    attempt: int = 1
    """How many times training was started in this folder, this one included."""

    host: str = ""
    place: str = ""
    """Machine and container, as `grpo_tui.lock.place` names them; empty: not written down."""

    user: str = ""
    boot_id: str = ""
    supervisor_pid: int = 0
    supervisor_started: float = 0.0
    training_pid: int = 0
    """0: not started yet."""

    training_started: float = 0.0
    command: tuple[str, ...] = ()
    directory: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Only what was added for this run."""

    gpus: tuple[str, ...] = ()
    """UUIDs."""

    approved: str = ""
    """SHA-256 of the files the yes was given for."""

    resumed: bool = False
    started: float = 0.0
    log_start: int = 0
    """Bytes that train.log held before this attempt."""

    beat: int = 0
    """Counts up every `grpo_tui.run.supervisor.BEAT_SECONDS`: a supervisor is alive as long as this moves."""

    beat_at: float = 0.0
    stop_asked: float = 0.0
    """When a signal or a viewer asked for the end; 0: nobody did."""

    ended: float = 0.0
    """0: not ended, as far as the supervisor knows."""

    exit_code: int | None = None
    signal: int | None = None
    """The signal that ended the training process."""

    error: str = ""
    """Why training could not be started at all."""


def read(run: Path) -> Record | None:
    """The record of `run`; None without one, or when it cannot be read. Values of another kind count as missing."""
    try:
        values = tomllib.loads(regular.read(run / RECORD_FILE, RECORD_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    defaults = Record()
    known: dict[str, Any] = {}
    for item in fields(Record):
        value, default = values.get(item.name), getattr(defaults, item.name)
        if isinstance(value, list) and isinstance(default, tuple):
            known[item.name] = tuple(map(str, value))
        elif isinstance(value, dict) and isinstance(default, dict):
            known[item.name] = {str(key): str(text) for key, text in value.items()}
        elif (isinstance(value, int) and (default is None or isinstance(default, int | float))) or (
            value is not None and type(value) is type(default)
        ):
            known[item.name] = value
    return Record(**known)


def write(run: Path, record: Record) -> None:
    """Replace the record of `run`. Raises OSError."""
    import tomli_w

    values = {item.name: getattr(record, item.name) for item in fields(Record)}
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }
    tables = {name: value for name, value in plain.items() if isinstance(value, dict)}
    atomic.write(run / RECORD_FILE, tomli_w.dumps({name: plain[name] for name in plain if name not in tables} | tables))
