"""`grpo-tui runs`: the runs of a project and what became of them."""

import argparse
import functools
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.commands.watch import explained
from grpo_tui.inert import inert
from grpo_tui.progress.events import EVENTS_FILE, parts, tail
from grpo_tui.progress.fold import Progress, advance
from grpo_tui.regular import expanded
from grpo_tui.run import folder, prediction
from grpo_tui.run.prediction import Beside

if TYPE_CHECKING:
    from grpo_tui.diagnosis.failure import Failure

GIB = 2**30


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "runs", help="list the runs of a project", description="List the runs of a project, newest first.",
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="project folder (default: --project)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print the list."""
    project = expanded(args.dir or args.project).resolve()
    found = [_explained(summary) for summary in folder.runs(project)]
    if args.json:
        print(json.dumps({"runs": [_as_json(summary, failure) for summary, failure in found]}))
        return 0
    if not found:
        print(f"No training has begun in {project} yet.")
    width = max((len(summary.name) for summary, _ in found), default=0)
    for summary, failure in found:
        life = summary.life
        of = f" of {life.max_steps}" if life.max_steps else ""
        began = datetime.fromtimestamp(life.since).astimezone().strftime("%Y-%m-%d %H:%M") if life.since else "-"
        row = f"{summary.name:<{width}}  {life.state:<8}  step {life.step}{of}  {began}  {life.words}"
        print(inert(row))
        if peaks := _peaks(summary.run):
            words = ", ".join(f"{each.name} {each.measured / GIB:.1f} of {each.predicted / GIB:.1f}" for each in peaks)
            print(inert(f"{'':<{width}}  memory, GiB measured of predicted: {words}"))
        if failure:
            print(inert(f"{'':<{width}}  → {failure.remedy}"))
    return 0


def _peaks(run: Path) -> tuple[Beside, ...]:
    """Peaks as measured and as predicted; read only of runs whose memory was predicted, as it is for GPUs."""
    said = prediction.read(run)
    return prediction.beside(functools.reduce(advance, parts(run / EVENTS_FILE), Progress()), said) if said else ()


def _explained(summary: folder.RunSummary) -> "tuple[folder.RunSummary, Failure | None]":
    if summary.life.state != "failed":
        return summary, None
    progress = advance(Progress(), tail(summary.run / EVENTS_FILE))
    now, failure = explained(summary.run, progress, summary.life)
    return replace(summary, life=now), failure


def _as_json(summary: folder.RunSummary, failure: "Failure | None") -> dict[str, Any]:
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
        "memory": {
            each.name: {"measured_bytes": each.measured, "predicted_bytes": each.predicted}
            for each in _peaks(summary.run)
        },
        "findings": [failure.finding(life.step).as_json()] if failure else [],
    }
