"""Requests to a running training: small files in the run's `control/`, renamed once they are obeyed.

Anyone who may write the folder may ask, from any machine that sees it; the training process looks once a step.
"""

import contextlib
import getpass
import json
import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from grpo_tui import atomic, regular
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

FOLDER = "control"
ACTIONS = ("stop", "save")
"""`stop`: end after the current step with a checkpoint. `save`: write a checkpoint after the current step and go on."""

REQUEST_BYTES = 65536
"""A request is a line; what is larger is none."""

_DONE = ".done.json"


@dataclass(frozen=True, slots=True)
class Request:
    """Something asked of a run and not done yet."""

    path: Path
    action: str
    who: str
    t: float
    """Unix seconds by the clock of the machine that asked."""


def user_name() -> str:
    """Who asks, for the journal: `name@host`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in /etc/passwd
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def request(run: Path, action: str, who: str = "") -> Path | Problem:
    """Ask the training in `run` to `stop` or to `save`; the file that asks, or why it cannot be written."""
    if action not in ACTIONS:
        return Problem(str(run), f"A run cannot be asked to {action!r}.", f"Ask for one of: {', '.join(ACTIONS)}.")
    if not run.is_dir():
        return Problem(str(run), "There is no such run folder.", "List the runs with `grpo-tui runs`.")
    path = run / FOLDER / f"{uuid.uuid4().hex}.json"
    row = {"v": 1, "t": time.time(), "action": action, "who": who or user_name()}
    try:
        path.parent.mkdir(exist_ok=True)
        atomic.write(path, json.dumps(row) + "\n")
    except OSError as error:
        return Problem(
            str(path.parent), f"The request cannot be written: {error.strerror}.", "Ask on the training machine."
        )
    return path


def pending(run: Path) -> list[Request]:
    """What was asked and not yet done, oldest first. A file that is no request is passed over."""
    try:
        with os.scandir(run / FOLDER) as entries:
            paths = [
                Path(entry.path)
                for entry in entries
                if entry.name.endswith(".json") and not entry.name.endswith(_DONE) and not entry.name.startswith(".")
            ]
    except OSError:
        return []
    found = []
    for path in paths:
        try:
            row = json.loads(regular.read(path, REQUEST_BYTES))
            action, who, t = str(row["action"]), str(row.get("who", "")), float(row.get("t", 0.0))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if action in ACTIONS:
            found.append(Request(path, action, one_line(who, 80), t))
    return sorted(found, key=lambda asked: asked.t)


def done(asked: Request) -> None:
    """Mark `asked` as obeyed. Two processes may both try: the second finds it gone."""
    with contextlib.suppress(OSError):
        asked.path.rename(asked.path.with_name(asked.path.name.removesuffix(".json") + _DONE))
