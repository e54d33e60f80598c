"""Run folders: made with frozen copies of what runs, listed, and searched for checkpoints."""

import itertools
import json
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from grpo_tui.draft import RewardsAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE
from grpo_tui.run.life import Life, life
from grpo_tui.run.record import RECORD_FILE, read

RUNS_FOLDER = "runs"
NAME_BYTES = 100
"""So long a run's name may be: file systems take 255 bytes, and `-2` or a suffix is still to come."""

LOG_FILE = "train.log"
GPUS_FILE = "gpus.json"
"""What the supervisor reads off the GPUs meanwhile."""

FILES = ("config.toml", RewardsAnswer().file, "train.py")
"""What a run needs where config.toml names no other file of rewards; see `files`."""

OPTIONAL_FILES = ("accelerate.yaml", "serve_vllm.sh")

_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
_WEIGHTS = re.compile(r"(model|adapter_model|pytorch_model).*\.(safetensors|bin)$|pytorch_model_fsdp|global_step\d+$")


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run of a project, for a list."""

    run: Path
    name: str
    life: Life
    checkpoints: tuple[int, ...]
    """Steps of the complete checkpoints, rising."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was written completely."""

    path: Path
    step: int
    max_steps: int
    """How many steps its training was to have; 0: unknown."""


def free_name(project: Path, now: datetime) -> str:
    """A name for a new run that no run of `project` has."""
    stem = new_name(now)
    names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
    return next(name for name in names if not (project / RUNS_FOLDER / name).exists())


def new_name(now: datetime) -> str:
    """A name for a run begun `now`, which sorts by time."""
    return now.strftime("%Y%m%d-%H%M%S")


def rewards_file(config: Mapping[str, Any]) -> str:
    """The file of the reward functions that a `config.toml` names, relative to the project."""
    launch = config.get("launch")
    name = launch.get("rewards_file") if isinstance(launch, Mapping) else None
    return name if isinstance(name, str) and name else RewardsAnswer().file


def files(source: Path) -> tuple[str, ...]:
    """What every run needs, by the `config.toml` in `source`, a project or a run folder.

    Copied into the run's folder under the same names, so that what runs is what was approved.
    """
    try:
        config = tomllib.loads((source / FILES[0]).read_text("utf-8"))
    except (OSError, ValueError):
        config = {}
    return (FILES[0], rewards_file(config), FILES[2])


def name_problem(name: str) -> Problem | None:
    """What is wrong with a name for a run; None: nothing."""
    if Path(name).name != name or name.startswith("."):
        return Problem(one_line(name, 80), "This is no name for a run.", "Use letters, digits, dashes and dots.")
    if len(os.fsencode(name)) > NAME_BYTES:
        return Problem(one_line(name, 80), "The name is too long.", f"Use at most {NAME_BYTES} characters.")
    return None


def create(project: Path, name: str | None = None, *, now: datetime | None = None) -> Path | Problem:
    """A new run folder in `project` with frozen copies of its files. A taken name gets `-2`, `-3`, ..."""
    needed = files(project)
    foreign = [file for file in needed if not _stays_inside(file)]
    if foreign:
        what = f"The rewards file {foreign[0]} is outside the project, and a run keeps its own copy."
        return Problem("config.toml", what, "Copy it into the project and name it by its path there.")
    missing = [file for file in needed if not (project / file).is_file()]
    if missing:
        what = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing."
        return Problem(str(project), what, "Write them with the wizard's review step or `grpo-tui init`.")
    stem = name or new_name(now or datetime.now().astimezone())
    if problem := name_problem(stem):
        return problem
    runs_folder = project / RUNS_FOLDER
    try:
        runs_folder.mkdir(exist_ok=True)
        run = _make(runs_folder, stem)
        for file in (*needed, *(file for file in OPTIONAL_FILES if (project / file).is_file())):
            (run / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(project / file, run / file)
        for part in ("control", "ranks"):
            (run / part).mkdir(exist_ok=True)
    except OSError as error:
        what = f"The run folder cannot be made: {error.strerror or error}."
        return Problem(str(error.filename or runs_folder), what, "Free some room or choose another project folder.")
    return run.resolve()


def runs(project: Path) -> list[RunSummary]:
    """The runs of `project`, newest first."""
    found = [
        RunSummary(run=path, name=path.name, life=life(path), checkpoints=tuple(c.step for c in checkpoints(path)))
        for path in _folders(project)
    ]
    return sorted(found, key=lambda summary: (summary.life.since or 0.0, summary.name), reverse=True)


def checkpoints(run: Path) -> list[Checkpoint]:
    """The complete checkpoints of `run`, rising by step.

    The Trainer writes `trainer_state.json` last (transformers 5.24, `Trainer._save_checkpoint`), so a checkpoint that a
    kill cut short has none, or one that cannot be read; weights that hold nothing give away a power loss.
    """
    try:
        paths = [
            (path, found) for path in run.iterdir() if (found := _CHECKPOINT.fullmatch(path.name)) and path.is_dir()
        ]
    except OSError:
        return []
    complete = [checkpoint for path, found in paths if (checkpoint := _complete(path, int(found[1])))]
    return sorted(complete, key=lambda checkpoint: checkpoint.step)


def is_run(path: Path) -> bool:
    """Is `path` the folder of a run, rather than a project?"""
    return any((path / file).exists() for file in (EVENTS_FILE, RECORD_FILE))


def newest(place: Path) -> Path | None:
    """`place` itself when it is a run folder, else the run of the project `place` that began last; None without any."""
    if is_run(place):
        return place
    started = {path: _began(path) for path in _folders(place)}
    return max(started, key=lambda path: (started[path], path.name), default=None)


def _stays_inside(file: str) -> bool:
    path = Path(file)
    return not path.is_absolute() and ".." not in path.parts


def _folders(project: Path) -> list[Path]:
    try:
        return [path for path in (project / RUNS_FOLDER).iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return []


def _began(run: Path) -> float:
    record = read(run)
    try:
        return record.started if record else run.stat().st_mtime
    except OSError:
        return 0.0


def _make(runs_folder: Path, stem: str) -> Path:
    number = 1
    while True:
        run = runs_folder / (stem if number == 1 else f"{stem}-{number}")
        try:
            run.mkdir()
        except FileExistsError:
            number += 1
        else:
            return run


def _complete(path: Path, step: int) -> Checkpoint | None:
    try:
        state = json.loads((path / "trainer_state.json").read_bytes())
        weights = [file for file in path.iterdir() if _WEIGHTS.match(file.name)]
        if state["global_step"] != step or not weights:
            return None
        if any(file.is_file() and file.stat().st_size == 0 for file in weights):
            return None
        max_steps = state.get("max_steps", 0)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Checkpoint(path=path, step=step, max_steps=max_steps if isinstance(max_steps, int) else 0)
