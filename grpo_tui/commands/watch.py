"""`grpo-tui watch`: a run in the terminal, live or finished; without a terminal, a snapshot."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.commands.printing import refuse
from grpo_tui.inert import inert
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE, strict
from grpo_tui.progress.fold import Progress, follow
from grpo_tui.regular import expanded
from grpo_tui.run import folder
from grpo_tui.run.life import Life, life
from grpo_tui.terminal import has_terminal, run_screen

if TYPE_CHECKING:
    from grpo_tui.diagnosis.failure import Failure


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "watch", help="watch a run, live or finished",
        description="Open the panel of a run. Without a terminal, or with --json, print what it shows once.",
        epilog="Exit status: 0 whatever became of the run, 2 there is none.",
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="a run, or a project for its newest run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and end")


def execute(args: argparse.Namespace) -> int:
    """Open the panel, or print a snapshot."""
    place = expanded(args.dir or args.project).resolve()
    run = folder.newest(place)
    if run is None:
        problem = Problem(str(place), "There is no run here.", "Name a run folder, or a project that has runs.")
        return refuse(args.json, problem)
    if not args.json and has_terminal():
        from grpo_tui.screens.watch import WatchApp

        environ = {**os.environ, "LC_ALL": "ASCII"} if args.ascii else os.environ
        app = WatchApp(run, theme=args.theme or None, environ=environ)
        return run_screen(app, mouse=not args.no_mouse)
    progress = _whole(run)
    now, failure = explained(run, progress, life(run, progress=progress))
    if args.json:
        print(json.dumps(snapshot(run, progress, now, failure)))
    else:
        print("\n".join(_lines(run, progress, now, failure)))
    return 0


def explained(run: Path, progress: Progress, now: Life) -> "tuple[Life, Failure | None]":
    """`now` with why `run` failed where the end of its log tells that, and what the log tells."""
    if now.state != "failed":
        return now, None
    from grpo_tui.diagnosis.failure import read_failure  # not what most runs wait for

    found = read_failure(run, run / folder.LOG_FILE, start=now.log_start, begin=progress.begin)
    return (life(run, progress=progress, cause=found.cause), found) if found else (now, None)


def snapshot(run: Path, progress: Progress, now: Life, failure: "Failure | None" = None) -> dict[str, Any]:
    """What the panel shows, for scripts. Non-finite figures are the strings "NaN", "Infinity" and "-Infinity"."""
    flat = progress.flat.last()
    first = progress.first_nonfinite
    found: dict[str, Any] = {
        "run": str(run),
        "alive": now.alive,
        "state": now.state,
        "words": now.words,
        "step": progress.step,
        "max_steps": progress.max_steps,
        "elapsed": progress.elapsed,
        "seconds_per_step": progress.seconds_per_step,
        "last_event_age": now.last_event_age,
        "latest_step": progress.latest_step,
        "latest": progress.latest,
        "latest_eval": progress.latest_eval,
        "summary": progress.summary,
        "groups_without_signal": flat[1] if flat else None,
        "nonfinite": {"rows": len(progress.nonfinite), "first_step": first.step if first else None},
        "saves": [save.step for save in progress.saves],
        "attempts": progress.attempts,
        "findings": [failure.finding(progress.step).as_json()] if failure else [],
        "exit": now.exit_code,
        "signal": now.signal,
        "error": progress.end.error if progress.end else "",
    }
    plain = strict(found)
    assert isinstance(plain, dict)
    return plain


def _whole(run: Path) -> Progress:
    view = follow(run / EVENTS_FILE)
    while not view.complete:
        view = follow(run / EVENTS_FILE, view)
    return view.progress


def _lines(run: Path, progress: Progress, now: Life, failure: "Failure | None") -> list[str]:
    of = f" of {progress.max_steps}" if progress.max_steps else ""
    change = [f"  → {failure.remedy}"] if failure else []
    rows = [f"{run}", f"{now.state}: {now.words}", *change, f"step {progress.step}{of}"]
    if progress.elapsed is not None:
        rows.append(f"elapsed {progress.elapsed:.0f} s")
    rows += [f"{key} {strict(value)}" for key, value in progress.latest.items()]
    return [inert(row) for row in rows]
