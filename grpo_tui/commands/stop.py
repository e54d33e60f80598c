"""`grpo-tui stop`: end a run after its current step, with a checkpoint."""

import argparse
import json
from pathlib import Path
from typing import Any

from grpo_tui.commands.printing import refuse
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.run import control, folder
from grpo_tui.run.life import life


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "stop", help="stop a run after its current step, with a checkpoint",
        description="Ask a running training to end after its current step and to write a checkpoint, whatever its "
        "save_strategy. Go on later with `grpo-tui run --resume`.",
        epilog="Exit status: 0 asked, 2 there is nothing to ask.",
    )  # fmt: skip
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every request to a run."""
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="a run, or a project for its newest run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Ask the run to stop."""
    return ask(args, "stop", "It ends after its current step, with a checkpoint.")


def ask(args: argparse.Namespace, action: str, answer: str) -> int:
    """Write a request to the run that `args` name, if it can still be obeyed."""
    place = expanded(args.dir or args.project).resolve()
    going = [each.run for each in folder.runs(place) if each.life.alive]
    if len(going) > 1:
        names = ", ".join(run.name for run in going)
        return refuse(args.json, Problem(str(place), f"Several of its runs go on: {names}.", "Name the run's folder."))
    run = going[0] if going else folder.newest(place)
    if run is None:
        return refuse(args.json, Problem(str(place), "There is no run here.", "Name a run or a project folder."))
    now = life(run)
    if not now.alive and now.state != "unknown":
        return refuse(args.json, Problem(str(run), f"It does not run any more. {now.words}", "There is nothing to do."))
    asked = control.request(run, action)
    if isinstance(asked, Problem):
        return refuse(args.json, asked)
    if args.json:
        print(json.dumps({"run": str(run), "asked": action, "state": now.state, "step": now.step}))
    else:
        print(f"{run}: asked. {answer}")
    return 0
