"""The dry run: one real step of the project's own train.py before the yes, on a small random model and the CPU.

The trial lies in a folder of its own under `runs/`, where the training's folder will lie, so that the script finds the
project, its data and its helpers as it will then, and writes its checkpoint to the same disk. It is taken away after.
"""

import json
import math
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker, scrubbed_environment
from grpo_tui.inert import one_line
from grpo_tui.plan.batch import too_few_rows
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE, Event, parse
from grpo_tui.run import folder
from grpo_tui.run.trial_config import full_length, reduced

Say = Callable[[str], None]

TIME_LIMIT = 300.0
"""Seconds after which a trial is given up: most take less than a minute, but all rows are prepared."""

_PREFIX = ".dry-run-"
_LEFT_OVER_SECONDS = 3600.0

_NOT_SHOWN = ("train_", "total_flos", "epoch", "step", "num_tokens", "learning_rate")
"""Beginnings of logged figures that say nothing about a small random model."""


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """How a trial went."""

    ok: bool
    steps: int
    """Optimizer steps that were made: 2 when all went well, the second one from the first one's checkpoint."""

    seconds: float
    problems: tuple[Problem, ...] = ()
    uncovered: tuple[str, ...] = ()
    """What it says nothing about, one phrase each."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """What the last step logged: rewards by name, lengths, gradient; of a random model, so no measure of quality."""

    def as_json(self) -> dict[str, Any]:
        """As `grpo-tui dry-run --json` prints it."""
        return {
            "ok": self.ok,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "problems": [problem.as_json() for problem in self.problems],
            "uncovered": list(self.uncovered),
            "figures": {name: value if math.isfinite(value) else str(value) for name, value in self.figures.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Two steps of the real model at full length, beside what was predicted. Bytes by phase."""

    steps: int
    peaks: Mapping[str, int]
    """Allocated by torch, as the recorder measured it."""

    predicted: Mapping[str, int]
    problems: tuple[Problem, ...] = ()

    @property
    def ratios(self) -> dict[str, float]:
        """Measured by predicted, for the phases that have both."""
        return {phase: self.peaks[phase] / self.predicted[phase] for phase in self.peaks if self.predicted.get(phase)}


def start_worker(project: Path, *, gpu: bool = False) -> Worker:
    """The worker a trial runs in: without secrets, off the network, and without GPUs unless `gpu`."""
    environment = scrubbed_environment(os.environ) | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    environment.setdefault("OMP_NUM_THREADS", str(_cores()))
    return Worker("dry_run", env=environment, cwd=project, gpu=gpu)


def dry_run(
    project: Path,
    model: Path,
    *,
    worker: Worker | None = None,
    texts: Mapping[str, str] | None = None,
    say: Say | None = None,
    time_limit: float = TIME_LIMIT,
) -> DryRun | Problem:
    """One step of the training of `project`, and a second one from its checkpoint.

    `model` is the folder with the model's configuration and tokenizer; weights are not needed. `texts` are files that
    are not written yet, by name (`config.toml`, `train.py`). It runs the reward functions on the project's data: get
    the yes for that first. `worker.cancel()` ends it from another thread. A Problem: it could not be tried at all.
    """
    began = time.monotonic()
    sources = _sources(project, texts or {})
    if isinstance(sources, Problem):
        return sources
    config, files = sources
    small = reduced(config, "")
    if isinstance(small, list):
        return DryRun(ok=False, steps=0, seconds=time.monotonic() - began, problems=tuple(small))
    own = worker or start_worker(project)
    try:
        with _trial_folder(project) as trial:
            if isinstance(trial, Problem):
                return DryRun(ok=False, steps=0, seconds=time.monotonic() - began, problems=(trial,))
            placed = reduced(config, str(trial / "model"))
            assert not isinstance(placed, list)
            _write(trial, {**files, "config.toml": _toml(placed.configs[0]).encode()})
            answer = own.call(
                "try",
                {"folder": str(trial), "model": str(model.resolve()), "config": _toml(placed.configs[1])},
                timeout=time_limit,
                on_progress=lambda progress: say(one_line(str(progress.get("text", "")), 200)) if say else None,
            )
            if isinstance(answer, Problem):
                answer = {"problem": _where_it_was(trial, answer).as_json()}
            events = list(_events(trial))
            figures, steps = _figures(trial)
    finally:
        if worker is None:
            own.close()
    uncovered = list(placed.uncovered)
    problems = [Problem(**answer["problem"])] if "problem" in answer else []
    if not problems and not answer.get("resumed"):
        uncovered.append("resuming: train.py takes no --resume")
    made = answer.get("model") or {}
    if made.get("text_only"):
        uncovered.append("the parts of the model for images or sound")
    if made.get("stand_in"):
        uncovered.append("the model's own architecture: a small Llama stood in for its text part")
    rows = next((event.data.get("batch", {}).get("train_rows") for event in events if event.kind == "begin"), None)
    trap = too_few_rows(placed.batch, rows) if isinstance(rows, int) else None
    problems += [trap] if trap else []
    if not problems and math.isnan(figures.get("reward", 0.0)):
        what = "No reward function gave any completion a number: every one returned None."
        problems.append(Problem("rewards", what, "Let at least one of them return a number for each completion."))
    return DryRun(
        ok=not problems,
        steps=steps,
        seconds=time.monotonic() - began,
        problems=tuple(problems),
        uncovered=tuple(uncovered),
        figures=figures,
    )


def measure(
    project: Path,
    predicted: Mapping[str, int],
    *,
    worker: Worker | None = None,
    texts: Mapping[str, str] | None = None,
    say: Say | None = None,
    time_limit: float = 4 * TIME_LIMIT,
) -> Measured | Problem:
    """Two steps of the real model on the GPU, at the longest prompts and full completions, against `predicted` bytes.

    This loads the model and trains on the chosen GPUs: it needs the same yes as a run. One process only.
    """
    sources = _sources(project, texts or {})
    if isinstance(sources, Problem):
        return sources
    config, files = sources
    if config.get("launch", {}).get("processes", 1) != 1:
        return Problem("launch", "Several processes are planned; measuring takes one.", "Measure with one GPU.")
    own = worker or start_worker(project, gpu=True)
    try:
        with _trial_folder(project) as trial:
            if isinstance(trial, Problem):
                return trial
            _write(trial, {**files, "config.toml": _toml(full_length(config)).encode()})
            answer = own.call(
                "measure",
                {"folder": str(trial)},
                timeout=time_limit,
                on_progress=lambda progress: say(one_line(str(progress.get("text", "")), 200)) if say else None,
            )
            if isinstance(answer, Problem):
                return answer
            return measured(list(_events(trial)), predicted, answer)
    finally:
        if worker is None:
            own.close()


def measured(events: list[Event], predicted: Mapping[str, int], answer: Mapping[str, Any]) -> Measured:
    """The peaks that the recorder wrote, beside the prediction."""
    peaks: dict[str, int] = {}
    for event in events:
        found = event.data.get("memory") if event.kind == "phase" else None
        for phase, size in (found if isinstance(found, Mapping) else {}).items():
            if isinstance(size, int):
                peaks[str(phase)] = max(size, peaks.get(str(phase), 0))
    problems = (Problem(**answer["problem"]),) if "problem" in answer else ()
    return Measured(
        steps=max((event.step for event in events), default=0), peaks=peaks, predicted=predicted, problems=problems
    )


def _sources(project: Path, texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, bytes]] | Problem:
    """The configuration, and the contents of train.py and the rewards by name."""
    try:
        content = texts["config.toml"] if "config.toml" in texts else (project / "config.toml").read_text("utf-8")
        config = tomllib.loads(content)
    except OSError as error:
        return Problem("config.toml", f"It cannot be read: {error.strerror}.", "Write it with: grpo-tui init")
    except ValueError as error:
        return Problem("config.toml", f"It is no TOML: {error}.", "Correct the line.")
    files = {}
    for name in (folder.rewards_file(config), "train.py"):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return Problem(
                "config.toml", f"The rewards file {name} is outside the project.", "Copy it into the project."
            )
        try:
            files[name] = texts[name].encode() if name in texts else (project / name).read_bytes()
        except OSError as error:
            return Problem(name, f"It cannot be read: {error.strerror}.", "Write it with the review step.")
    return config, files


@contextmanager
def _trial_folder(project: Path) -> Iterator[Path | Problem]:
    """A folder for one trial, gone afterwards; a Problem where runs cannot be made either."""
    runs = project / folder.RUNS_FOLDER
    made = not runs.exists()
    try:
        runs.mkdir(exist_ok=True)
        _sweep(runs)
        trial = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=runs.resolve()))
    except OSError as error:
        yield Problem(
            str(runs),
            f"The folder of a run cannot be made here: {error.strerror or error}.",
            "Free some room, mend the permissions, or choose another project folder.",
        )
        return
    try:
        yield trial
    finally:
        shutil.rmtree(trial, ignore_errors=True)
        if made:
            with suppress(OSError):
                runs.rmdir()


def _sweep(runs: Path) -> None:
    """Take away what a trial left behind that was killed."""
    for left in runs.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_OVER_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _write(trial: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (trial / name).parent.mkdir(parents=True, exist_ok=True)
        (trial / name).write_bytes(content)


def _toml(config: Mapping[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(config)


def _events(trial: Path) -> Iterator[Event]:
    try:
        lines = (trial / EVENTS_FILE).read_bytes().splitlines()
    except OSError:  # train.py may do without the recorder
        return
    yield from (event for line in lines if (event := parse(line)) is not None)


def _where_it_was(trial: Path, problem: Problem) -> Problem:
    """The worker's end, with what the training was doing then."""
    doing = next(
        (str(event.data.get("phase", "")) for event in reversed(list(_events(trial))) if event.kind == "now"), ""
    )
    if not doing:
        return problem
    kind, _, name = doing.partition(":")
    words = f"calling the reward {one_line(name, 80)}" if kind == "reward" else f"in the phase {one_line(doing, 80)}"
    where = "rewards" if kind == "reward" else problem.where
    return Problem(where, f"The training was {words}. {problem.what}", problem.remedy)


def _figures(trial: Path) -> tuple[dict[str, float], int]:
    """What the newest checkpoint says was logged at the last step, and how many steps there were."""
    found = folder.checkpoints(trial)
    if not found:
        return {}, 0
    try:
        history = json.loads((found[-1].path / "trainer_state.json").read_bytes())["log_history"]
        rows = [row for row in history if isinstance(row, dict) and "loss" in row]
    except (OSError, ValueError, KeyError, TypeError):
        rows = []
    last = rows[-1] if rows else {}
    figures = {
        str(name): math.nan if value is None else float(value)  # TRL logs what is no number as None
        for name, value in last.items()
        if (value is None or isinstance(value, int | float)) and not str(name).startswith(_NOT_SHOWN)
    }
    return figures, found[-1].step


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
