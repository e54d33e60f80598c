"""`grpo-tui runs`: the runs of a project and what became of them."""

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from grpo_tui.inert import inert
from grpo_tui.run import folder


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "runs", help="list the runs of a project", description="List the runs of a project, newest first.",
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="project folder (default: --project)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print the list."""
    project = (args.dir or args.project).expanduser().resolve()
    found = folder.runs(project)
    if args.json:
        print(json.dumps({"runs": [_as_json(summary) for summary in found]}))
        return 0
    if not found:
        print(f"No training has begun in {project} yet.")
    width = max((len(summary.name) for summary in found), default=0)
    for summary in found:
        life = summary.life
        of = f" of {life.max_steps}" if life.max_steps else ""
        began = datetime.fromtimestamp(life.since).astimezone().strftime("%Y-%m-%d %H:%M") if life.since else "-"
        row = f"{summary.name:<{width}}  {life.state:<8}  step {life.step}{of}  {began}  {life.words}"
        print(inert(row))
    return 0


def _as_json(summary: folder.RunSummary) -> dict[str, Any]:
    life = summary.life
    return {
        "name": summary.name,
        "run": str(summary.run),
        "state": life.state,
        "alive": life.alive,
        "words": life.words,
        "step": life.step,
        "max_steps": life.max_steps,
        "began": life.since,
        "exit": life.exit_code,
        "signal": life.signal,
        "attempt": life.attempt,
        "checkpoints": list(summary.checkpoints),
    }
