"""`grpo-tui run`: start or resume the training of a project, after a yes."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grpo_tui import lock, state
from grpo_tui.commands.printing import refuse
from grpo_tui.draft import Approval, Draft, finish
from grpo_tui.hardware.machine import GPU, format_gib
from grpo_tui.inert import inert
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.run import folder, launch
from grpo_tui.run.supervisor import Job, supervise

_PROJECT_HELP = "project folder, or the folder of a run to resume (default: --project)"


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "run", help="start or resume the training of a project",
        description="Show the exact command, the files and the GPUs; with --yes, start the training under a supervisor "
        "that outlives this terminal.",
        epilog="Exit status: 0 started (with --foreground: trained), 2 refused. Without --yes nothing is started.",
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help=_PROJECT_HELP)
    parser.add_argument("--yes", action="store_true", help="the yes: start what is shown; it is written down")
    parser.add_argument("--resume", nargs="?", const="", metavar="RUN", help="go on with a run (default: the newest)")
    parser.add_argument("--beside", action="store_true", help="start although another training of the project goes on")
    parser.add_argument(
        "--take-over", action="store_true", help="resume although a supervisor of another host may still have the run"
    )
    parser.add_argument("--name", help="name of the new run (default: date and time)")
    parser.add_argument(
        "--notify", metavar="COMMAND", help="shell command for when the run ends (GRPO_TUI_RUN, GRPO_TUI_EXIT)"
    )
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="stay until the end; so it is by itself in a batch script of Slurm and as a container's command",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Show what would run; start it when the yes is given."""
    project = expanded(args.dir or args.project).resolve()
    resume = _run_to_resume(project, args.resume)
    if isinstance(resume, Problem):
        return refuse(args.json, resume)
    if resume:
        project = resume.parent.parent
    source = resume or project
    config = launch.read_config(source)
    if isinstance(config, Problem):
        return refuse(args.json, config)
    gpus = _gpus(config)
    if isinstance(gpus, Problem):
        return refuse(args.json, gpus)
    if args.name and not resume and (wrong := folder.name_problem(args.name)):
        return refuse(args.json, wrong)
    if args.name and not resume and (project / folder.RUNS_FOLDER / args.name).exists():
        problem = Problem(args.name, "There is a run of this name.", "Choose another name, or go on with it: --resume.")
        return refuse(args.json, problem)
    busy = [each for each in folder.runs(project) if each.life.alive]
    if busy and not resume and not args.beside:
        problem = launch.still_running(busy[0])
        return refuse(args.json, replace(problem, remedy=f"{problem.remedy} Start another all the same with --beside."))
    run = resume or project / folder.RUNS_FOLDER / (args.name or folder.free_name(project, datetime.now().astimezone()))
    shown = launch.command(project, run.resolve(), config, gpus, resume=resume is not None)
    notes = launch.collisions(project, config)
    if not args.json:
        print("\n".join(_lines(shown, source, gpus, notes)))
    if not args.yes:
        problem = Problem(str(project), "Nothing is started without a yes.", "Repeat the command with --yes.")
        return refuse(args.json, problem, **_as_json(shown, source, notes))
    approved = Approval(
        what="run",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        sha256=launch.approval_hash(source),
        detail=str(shown),
    )
    draft, unrecorded = _record(project, approved)
    if unrecorded and not args.json:
        print(inert(f"! {unrecorded}"))
    notify = args.notify if args.notify is not None else draft.settings.notify_command
    # What was predicted holds for the files that were written with it.
    as_written = launch.written_as(project, "config.toml", draft.files.get("config.toml", ""))
    job = launch.prepare(
        project,
        approved=approved,
        gpus=gpus,
        resume=resume,
        name=run.name,
        notify=notify,
        predicted=draft.review.predicted if as_written and not resume else None,
    )
    if isinstance(job, Problem):
        return refuse(args.json, job)
    job = replace(job, take_over=args.take_over)
    if args.foreground or must_stay():
        return _foreground(job, args.json)
    started = launch.spawn(job)
    if isinstance(started, Problem):
        return refuse(args.json, started)
    if args.json:
        print(json.dumps({"run": str(started.run), "pid": started.pid, "training_pid": started.training_pid}))
    else:
        print(f"\nStarted. It goes on when this terminal closes. Watch it: grpo-tui watch {started.run}")
    return 0


def _run_to_resume(project: Path, asked: str | None) -> Path | Problem | None:
    """The run to go on with: named, the newest of the project, or the run folder given in place of a project."""
    is_run = folder.is_run(project)
    if asked is None:
        return project.resolve() if is_run else None
    if asked:
        candidates = [expanded(asked), project / folder.RUNS_FOLDER / asked]
        found = next((path for path in candidates if path.is_dir()), None)
    else:
        found = folder.newest(project)
    if found is None:
        what = f"There is no run {asked!r}." if asked else "There is no run to go on with."
        return Problem(str(project), what, "List the runs with `grpo-tui runs`.")
    return found.resolve()


def _gpus(config: Mapping[str, Any]) -> tuple[GPU, ...] | Problem:
    from grpo_tui.hardware.nvml import read_machine

    machine = read_machine()
    names = config.get("launch", {}).get("gpus", ())
    if any(not str(name).startswith(("GPU-", "MIG-")) for name in names):
        from grpo_tui.hardware.torch_devices import ask_torch

        asked = ask_torch(machine)
        if isinstance(asked, Problem):
            return asked
        machine = asked
    return launch.choose_gpus(config, machine)


def _record(project: Path, approved: Approval) -> tuple[Draft, str]:
    """Write the yes into the project's state; the answers there, and what went wrong. The run's record has it too."""
    held = lock.acquire(project)
    with held if isinstance(held, lock.Lock) else contextlib.nullcontext():
        loaded = state.load(project)
        if isinstance(loaded, Problem) or loaded.read_only:
            draft = Draft() if isinstance(loaded, Problem) else loaded.draft
            return draft, f"The yes cannot be written into {state.STATE_FILE}; run.toml has it."
        if not isinstance(held, lock.Lock):
            return loaded.draft, f"{held} is working on this project, so the yes stands in run.toml only."
        draft = replace(loaded.draft, approvals=(*loaded.draft.approvals, approved))
        problem = state.save(project, finish(draft, "launch", approved.at, {}))
    return draft, str(problem) if problem else ""


def must_stay(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a supervisor in the background would be ended with this command.

    So it is in a batch script of Slurm, whose job ends with the script, and as the first process of a container.
    """
    return ("SLURM_JOB_ID" in environ and not sys.stdin.isatty()) or os.getpid() == 1


def _foreground(job: Job, as_json: bool) -> int:
    problems: list[Problem] = []
    code = supervise(job, lambda told: problems.append(told) if isinstance(told, Problem) else None)
    if problems:
        return refuse(as_json, *problems)
    if as_json:
        print(json.dumps({"run": str(job.run), "exit": code}))
    else:
        print(f"\nEnded with exit code {code}: {job.run}")
    return 0 if code == 0 else 2


def _lines(shown: launch.Command, source: Path, gpus: Sequence[GPU], notes: Sequence[Problem]) -> list[str]:
    files = [source / name for name in (*folder.files(source), *folder.OPTIONAL_FILES) if (source / name).is_file()]
    rows = [
        "Command",
        f"  {shown}",
        f"  in {shown.directory}",
        "Files",
        *(f"  {path}" for path in files),
        f"  sha256 {launch.approval_hash(source)}",
        "GPUs",
        *(
            f"  {gpu.name}, {format_gib(gpu.free_bytes)} of {format_gib(gpu.total_bytes)} free, {gpu.uuid}"
            for gpu in gpus
        ),
        *([] if gpus else ["  none: trains on the CPU"]),
        *(
            f"  ! used by process {process.pid} ({process.user or 'not of this container'})"
            for gpu in gpus
            for process in gpu.processes
        ),
        *(f"! {note}" for note in notes),
    ]
    return [inert(row) for row in rows]


def _as_json(shown: launch.Command, source: Path, notes: Sequence[Problem]) -> dict[str, Any]:
    files = [
        str(source / name) for name in (*folder.files(source), *folder.OPTIONAL_FILES) if (source / name).is_file()
    ]
    return {
        "command": list(shown.argv),
        "environment": dict(shown.environment),
        "directory": str(shown.directory),
        "gpus": list(shown.gpus),
        "files": files,
        "sha256": launch.approval_hash(source),
        "notes": [note.as_json() for note in notes],
    }
