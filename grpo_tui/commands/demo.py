"""`grpo-tui demo`: the whole path on a tiny built-in task, in the wizard or without a terminal."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_tui import lock, state
from grpo_tui.commands.printing import refuse
from grpo_tui.draft import Draft, finish
from grpo_tui.inert import inert
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.terminal import NO_TERMINAL, has_terminal, run_screen

RECIPE = "word_problems"
FOLDER = "grpo-demo"
MEASURE = "rewards/correct/mean"
TENTHS = 10
LOOK_SECONDS = 1.0


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "demo",
        help="the whole path on a tiny built-in task, without GPU or network",
        description="Opens the wizard, filled in with a tiny task: enter accepts each step, one yes starts the "
        "training. It takes about a minute on a CPU and needs neither GPU nor network.",
        epilog="With --headless nothing is asked where there is no terminal to ask on: the command is the yes, and "
        "it is recorded as one. Exit status: 0 trained, 2 refused or failed.",
    )
    parser.add_argument("dir", nargs="?", type=Path, default=Path(FOLDER), metavar="DIR", help=f"default: ./{FOLDER}")
    parser.add_argument("--headless", action="store_true", help="without a terminal: train, then print the curve")
    parser.add_argument("--yes", action="store_true", help="the yes to folder and training, so that nothing is asked")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="optimizer steps (default: the recipe's)")
    parser.add_argument("--json", action="store_true", help="print one JSON object (with --headless)")


def execute(args: argparse.Namespace) -> int:
    """Open the wizard on the demo, or do all of it here."""
    project: Path = expanded(args.dir)
    if (problem := foreign(project)) is not None:
        return refuse(args.json, problem)
    if not args.headless and not has_terminal():
        print(NO_TERMINAL)
        return 2
    if not project.exists() and not args.yes and not asked(f"Make the folder {project} (about 2 MB) and begin there?"):
        return refuse(args.json, Problem(str(project), "Nothing was made.", "Name another folder: grpo-tui demo DIR"))
    if args.headless:
        return headless(args, project)
    from grpo_tui.screens.app import GrpoApp

    environ = {**os.environ, "LC_ALL": "ASCII"} if args.ascii else os.environ
    app = GrpoApp(project, recipe=RECIPE, theme=args.theme or None, environ=environ)
    return run_screen(app, mouse=not args.no_mouse)


def foreign(project: Path) -> Problem | None:
    """Why the demo must not use this folder; None: it may."""
    try:
        if not project.exists() or (project / state.STATE_FILE).exists() or not any(project.iterdir()):
            return None
    except OSError as error:
        return Problem(str(project), f"It is no folder that can be read: {error.strerror}.", "Name another folder.")
    return Problem(str(project), "The folder holds something else.", "Name another folder: grpo-tui demo DIR")


def asked(question: str) -> bool:
    """A yes or no on the terminal; yes is the default, and where there is no terminal the command itself is the yes."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    return input(f"{question} [Y/n] ").strip().lower() in ("", "y", "yes")


def headless(args: argparse.Namespace, project: Path) -> int:
    """All steps, the start, the wait, and the curve."""
    from grpo_tui import preflight
    from grpo_tui.session import Session
    from grpo_tui.walk import is_new, walk

    def say(text: str) -> None:
        if not args.json:
            print(inert(text), flush=True)

    def done(name: str) -> None:
        say(f"✓ {name}")

    try:
        project.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return refuse(
            args.json, Problem(str(project), f"The folder cannot be made: {error.strerror}.", "Name another.")
        )
    held = lock.acquire(project)
    if not isinstance(held, lock.Lock):
        return refuse(args.json, held if isinstance(held, Problem) else in_use(project, held))
    session = Session(project)
    try:
        loaded = state.load(project)
        if isinstance(loaded, Problem):
            return refuse(args.json, loaded)
        draft: Draft | Problem = session.draft_for(RECIPE) if is_new(loaded.draft) else loaded.draft
        if isinstance(draft, Problem):
            return refuse(args.json, draft)
        if args.steps:
            overrides = {**draft.settings.overrides, "grpo.max_steps": args.steps}
            draft = replace(draft, settings=replace(draft.settings, overrides=overrides))
        walked = walk(session, draft, done)
        if isinstance(walked, list):
            return refuse(args.json, *walked)
        departure = preflight.departure(session, walked)
        if isinstance(departure, Problem):
            return refuse(args.json, departure)
        say(f"\nCommand  {departure.command}\nFolder   {departure.command.directory}")
        say(f"Devices  {departure.devices}\nFiles    {', '.join(departure.files)}\nHash     {departure.sha256}\n")
        if not args.yes and not asked("Start this training?"):
            return refuse(
                args.json, Problem(str(project), "Nothing was started.", "Repeat the command for another yes.")
            )
        approval = preflight.approval(departure)
        approved = replace(walked, approvals=(*walked.approvals, approval))
        state.save(project, approved)
        started = preflight.start(session, approved, departure, approval)
        if isinstance(started, Problem):
            return refuse(args.json, started)
        state.save(project, finish(approved, "launch", approval.at, {}))
    finally:
        session.close()
        held.release()
    return wait(started.run, args.json)


def in_use(project: Path, holder: lock.Holder) -> Problem:
    """The project is open elsewhere."""
    return Problem(str(project), f"{holder} has this project open.", "Close it there, or name another folder.")


def wait(run: Path, as_json: bool) -> int:
    """Say each tenth of the run as it comes; the curve is that of the run's own log."""
    from grpo_tui.progress.events import EVENTS_FILE
    from grpo_tui.progress.fold import follow
    from grpo_tui.run.life import life

    view, told = follow(run / EVENTS_FILE), 0
    if not as_json:
        print(f"Training. It goes on if this ends; watch it with: grpo-tui watch {run}", flush=True)
        print("Mean share of right answers, tenth by tenth:", flush=True)
    while True:
        now = life(run)
        view = follow(run / EVENTS_FILE, view)
        if not as_json:
            told = tell(tenths(view.progress.series.get(MEASURE), view.progress.max_steps or 0), told, not now.alive)
        if not now.alive and view.complete:
            break
        time.sleep(0 if not view.complete else LOOK_SECONDS)
    curve = tenths(view.progress.series.get(MEASURE), view.progress.max_steps or 0)
    if as_json:
        print(json.dumps({"run": str(run), "state": now.state, "steps": view.progress.step, "correct": curve}))
    elif now.state == "finished":
        print(f"Finished after {view.progress.step} steps: {run}")
    else:
        print(inert(f"{now.state}: {now.words}"), file=sys.stderr)
    return 0 if now.state == "finished" else 2


def tenths(series: Any, total: int) -> list[float | None]:
    """Means of the tenths of a run of `total` steps; None for a tenth that nothing was logged in yet."""
    if series is None or not total:
        return []
    sums: list[list[float]] = [[] for _ in range(TENTHS)]
    for at in range(len(series)):
        step, value = series.point(at)
        sums[min(TENTHS - 1, (step - 1) * TENTHS // total)].append(value)
    return [sum(values) / len(values) if values else None for values in sums]


def tell(curve: Sequence[float | None], told: int, ended: bool) -> int:
    """Print the tenths that are complete and were not told yet; how many were told by now."""
    known = sum(value is not None for value in curve)
    complete = known if ended else known - 1
    for at in range(told, complete):
        value = curve[at]
        if value is not None:
            print(f"  {at * 10:>3}–{at * 10 + 10:<3} %  {value:6.3f}  {'━' * round(40 * value)}", flush=True)
    return max(told, complete)
