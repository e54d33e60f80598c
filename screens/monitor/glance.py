"""One look at a run's folder: everything the monitor shows, read at once, away from the screen."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.inert import inert
from grpo_tui.problem import Problem
from grpo_tui.progress import completions as kept
from grpo_tui.progress.completions import CompletionTable
from grpo_tui.progress.events import EVENTS_FILE
from grpo_tui.progress.fold import Progress, View, follow
from grpo_tui.progress.series import Series
from grpo_tui.run import prediction
from grpo_tui.run.folder import LOG_FILE
from grpo_tui.run.life import Life, life
from grpo_tui.run.prediction import Beside

if TYPE_CHECKING:
    from grpo_tui.diagnosis.failure import Failure

LOG_BYTES = 128 << 10
"""How much of the end of the log is kept in view."""

LOG_LINE = 2000
"""Characters of a line of the log that are kept: nobody reads more of a progress bar."""

METHODS: Mapping[str, str] = {
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "dapo": "DAPO",
    "bnpo": "BNPO",
    "cispo": "CISPO",
    "sapo": "SAPO",
    "luspo": "LUSPO",
    "vespo": "VESPO",
}
"""`loss_type` of TRL 1.16's `GRPOConfig` to the name of the method."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The newest sample of one GPU. None: the driver does not tell."""

    index: str
    """Its number in `nvidia-smi`; empty for a MIG slice, which has none."""

    name: str
    utilisation: float | None
    used: int | None
    total: int | None
    temperature: float | None
    watts: float | None


@dataclass(frozen=True, kw_only=True)
class Log:
    """The end of the log, inert."""

    lines: tuple[str, ...] = ()
    missing: bool = True
    stamp: tuple[int, int] = (0, 0)
    """Size and time of change of the file when it was read."""


@dataclass(frozen=True, kw_only=True)
class Glance:
    """What was found at one look. The next look takes it and reads only what is new."""

    run: Path
    view: View
    life: Life
    method: str = "GRPO"
    cards: tuple[Card, ...] = ()
    log: Log = field(default_factory=Log)
    steps_kept: tuple[int, ...] = ()
    """Steps whose completions are there."""

    table: CompletionTable | Problem | None = None
    flat: Series = field(default_factory=Series)
    """Share of groups without signal: the recorder's, or ours from the completions that were kept."""

    flat_sampled: bool = False
    """`flat` rests on the kept completions, and has gaps."""

    failure: Failure | None = None
    """What the end of the log says about a run that failed."""

    memory: tuple[Beside, ...] = ()
    """Peaks as predicted and as measured; empty where either is not known, as on the CPU."""

    after: str = ""
    """The lines that load what the run trained; empty while there is nothing."""

    @property
    def progress(self) -> Progress:
        """What the events tell."""
        return self.view.progress


def look(run: Path, before: Glance | None = None, *, step: int | None = None, now: float | None = None) -> Glance:
    """Look at `run`. `step` asks for the completions of that step instead of the newest. Reads only; never raises
    for what the files hold. The first look leaves out what costs most, so that the first picture comes soon."""
    view = follow(run / EVENTS_FILE, before.view if before else None)
    progress = view.progress
    steps = kept.steps(run)
    flat, sampled = progress.flat, False
    if not flat and steps and before:
        sampled = True
        flat = kept.flat_series(
            run, progress.reward_names, progress.weights,
            num_generations=progress.num_generations, known=before.flat if before.flat_sampled else None,
        )  # fmt: skip
    log = _log(run, before.log if before else Log())
    alive = life(run, now, progress=progress, before=before.life if before else None)
    failure = _failure(run, progress, alive, log, before) if alive.state == "failed" else None
    if failure is not None:
        alive = life(run, now, progress=progress, before=alive, cause=failure.cause)
    return Glance(
        run=run,
        view=view,
        life=alive,
        method=before.method if before and before.progress.begin is progress.begin else _method(run, progress),
        cards=_cards(run, progress),
        log=log,
        failure=failure,
        memory=prediction.beside(progress, prediction.read(run)) if progress.phase_memory else (),
        steps_kept=steps,
        table=_table(run, progress, steps, step, before),
        flat=flat,
        flat_sampled=sampled,
        after="" if alive.alive else before.after if before and before.after else _after(run),
    )


def _failure(run: Path, progress: Progress, now: Life, log: Log, before: Glance | None) -> Failure | None:
    if before is not None and before.life.state == "failed" and before.log.stamp == log.stamp:
        return before.failure
    from grpo_tui.diagnosis.failure import read_failure  # not what most runs wait for

    return read_failure(run, run / LOG_FILE, start=now.log_start, begin=progress.begin)


def _after(run: Path) -> str:
    from grpo_tui.plan.files import after_training  # 40 ms that the first picture does not wait for

    return after_training(run)


def _table(
    run: Path, progress: Progress, steps: tuple[int, ...], step: int | None, before: Glance | None
) -> CompletionTable | Problem | None:
    if not steps:
        return None
    wanted = step if step in steps else steps[-1]
    held = before.table if before else None
    if isinstance(held, CompletionTable) and held.step == wanted:
        return held
    evaluated = any(series.at(wanted) is not None for series in progress.evals.values())
    found = kept.read(run, wanted, num_generations=progress.num_generations, evaluated=evaluated)
    if isinstance(found, Problem) and isinstance(held, CompletionTable) and step is None:
        return held  # the newest file is being written: the one before is still true
    return found


def _method(run: Path, progress: Progress) -> str:
    kind = progress.settings.get("loss_type")
    if not isinstance(kind, str):
        try:
            kind = tomllib.loads((run / "config.toml").read_text("utf-8")).get("grpo", {}).get("loss_type")
        except (OSError, ValueError, AttributeError, RecursionError):
            kind = None
    return METHODS.get(str(kind), "GRPO")


def _cards(run: Path, progress: Progress) -> tuple[Card, ...]:
    """The supervisor's newest sample. An older supervisor wrote no names: then the training process's are taken."""
    try:
        found = json.loads((run / "gpus.json").read_bytes()[: 4 << 20])
        rows = [row for row in found["gpus"] if isinstance(row, dict)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    devices = progress.begin.get("devices")
    known = {str(row.get("uuid")): row for row in devices if isinstance(row, dict)} if isinstance(devices, list) else {}
    return tuple(_card(place, {**known.get(str(row.get("uuid")), {}), **row}) for place, row in enumerate(rows))


def _card(place: int, row: Mapping[str, Any]) -> Card:
    def number(*names: str) -> float | None:
        values = [row.get(name) for name in names]
        return next((v for v in values if isinstance(v, int | float) and not isinstance(v, bool)), None)

    used, total, index = number("used_bytes"), number("total_bytes"), row.get("index", place)
    return Card(
        index="" if index is None else inert(str(index), 6),
        name=inert(str(row.get("name", "")), 40),
        utilisation=number("utilisation"),
        used=None if used is None else int(used),
        total=None if total is None else int(total),
        temperature=number("temperature"),
        watts=number("power_watts"),
    )


def _log(run: Path, before: Log) -> Log:
    path = run / LOG_FILE
    try:
        with path.open("rb") as file:
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns)
            if stamp == before.stamp and not before.missing:
                return before
            file.seek(max(0, status.st_size - LOG_BYTES))
            data = file.read(LOG_BYTES)
    except OSError:
        return Log()
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    if len(data) == LOG_BYTES and len(lines) > 1:
        del lines[0]
    if lines and not lines[-1].strip():
        lines.pop()
    return Log(lines=tuple(_log_line(line) for line in lines), missing=False, stamp=stamp)


def _log_line(line: str) -> str:
    """A line as a terminal would show it in the end: a progress bar that was drawn over itself shows its last state."""
    shown = line.rstrip("\r").rsplit("\r", 1)[-1]
    return inert(shown.expandtabs(4), LOG_LINE)
