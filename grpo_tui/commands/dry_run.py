"""`grpo-tui dry-run`: one step of the training on a small random model, before any of it costs something."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui import lock, state
from grpo_tui.commands.printing import refuse
from grpo_tui.draft import Approval, Draft
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded

if TYPE_CHECKING:
    from grpo_tui.run.trial import DryRun


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "dry-run", help="try one step of a project's training on a small random model",
        description="Run the project's own train.py for one step and a second one from its checkpoint: your data, chat "
        "template, rewards and configuration, on a small random model of the same architecture, on the CPU. Nothing is "
        "fetched and nothing is kept.",
        epilog="Exit status: 0 both steps were made, 2 something must be mended first.",
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="project folder (default: --project)")
    parser.add_argument("--yes", action="store_true", help="run the reward functions on the data without asking")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds it may take (default: 300)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Try and print."""
    from grpo_tui.plan import files
    from grpo_tui.run import launch
    from grpo_tui.run.trial import dry_run
    from grpo_tui.session import Session
    from grpo_tui.tryout import score_consent

    project = expanded(args.dir or args.project).resolve()
    config = launch.read_config(project)
    if isinstance(config, Problem):
        return refuse(args.json, config)
    loaded = state.load(project)
    draft = files.with_config(loaded.draft if isinstance(loaded, state.Loaded) else Draft(), config)
    session = Session(project)
    try:
        model = session.model(draft)
        if isinstance(model, Problem):
            return refuse(args.json, model)
        wanted = score_consent(session, draft)
    finally:
        session.close()
    if wanted is not None and not args.yes and not _consents(wanted, args.json):
        what = "The reward functions were not run: it needs your yes to run their code on your data."
        return refuse(args.json, Problem(str(project), what, "Repeat the command with --yes."), sha256=wanted.sha256)
    if wanted is not None:
        _record(project, loaded, wanted)
    said = None if args.json else lambda text: print(inert(text), file=sys.stderr)
    found = dry_run(project, model.folder, say=said, time_limit=args.timeout)
    if isinstance(found, Problem):
        return refuse(args.json, found)
    if args.json:
        print(json.dumps(found.as_json()))
    else:
        _print(found)
    return 0 if found.ok else 2


def _consents(wanted: Approval, as_json: bool) -> bool:
    """Ask before the user's code runs on the user's data; without a terminal the answer is no."""
    if as_json or not sys.stdin.isatty():
        return False
    print(f"This runs the code of {one_line(wanted.detail, 200)}, on a small random model.")
    return input("Run it? [y/N] ").strip().lower() in ("y", "yes")


def _record(project: Path, loaded: state.Loaded | Problem, wanted: Approval) -> None:
    """Write the yes into the project's state where it has one, so that it is not asked again."""
    if isinstance(loaded, Problem) or loaded.read_only or not (project / state.STATE_FILE).exists():
        return
    held = lock.acquire(project)
    if isinstance(held, lock.Lock):  # else the project is open elsewhere, which keeps its own answers
        with held:
            state.save(project, replace(loaded.draft, approvals=(*loaded.draft.approvals, wanted)))


def _print(found: "DryRun") -> None:
    if found.ok:
        print(f"✓ {found.steps} steps in {found.seconds:.0f} s, a checkpoint written and gone on from.")
    for problem in found.problems:
        print(inert(f"✗ {problem.where}: {problem.what}\n  → {problem.remedy}"))
    if found.uncovered:
        print("Not covered:")
    for phrase in found.uncovered:
        print(inert(f"  {phrase}"))
