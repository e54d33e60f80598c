"""`grpo-tui export`: the configuration for use without grpo-tui, as one script or as YAML for `trl grpo`."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui import atomic, state
from grpo_tui.commands.printing import refuse
from grpo_tui.draft import Draft
from grpo_tui.inert import inert
from grpo_tui.plan import export, files
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.session import quiet

if TYPE_CHECKING:
    from grpo_tui.session import Session

NAMES: Mapping[str, str] = {"script": "train_alone.py", "yaml": "grpo.yaml"}
"""What a format is called in the project folder, if nothing else is said."""

EPILOG = """\
The values are those of config.toml as it stands, each with its reason. A file that is there with another content is not
overwritten.

  grpo-tui export my-task
  grpo-tui export my-task --format yaml --output grpo.yaml
"""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "export", help="write one stand-alone script, or YAML for trl grpo", epilog=EPILOG,
        description="Write the configuration for use without grpo-tui. Nothing is trained.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="project folder (default: --project)")
    parser.add_argument("--format", default="script", choices=tuple(NAMES), help="default: script")
    parser.add_argument("--output", type=Path, metavar="FILE", help=f"default: {' or '.join(NAMES.values())} in DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Write the files and say what they cannot hold. 2 if the project is not complete, or a file is in the way."""
    from grpo_tui.session import Session

    project = expanded(args.dir or args.project).resolve()
    session = Session(project)
    try:
        made = _made(args, session)
    finally:
        session.close()
    if isinstance(made, Problem):
        return refuse(args.json, made)
    texts, notes = made
    for path, text in texts.items():
        problem = _in_the_way(path, text)
        if problem is not None:
            return refuse(args.json, problem)
    for path, text in texts.items():
        try:
            atomic.write(path, text)
        except OSError as error:
            return refuse(
                args.json, Problem(str(path), f"It cannot be written: {error.strerror}.", "Name another --output.")
            )
    if args.json:
        print(json.dumps({"files": [str(path) for path in texts], "notes": list(notes)}))
        return 0
    print(inert(f"Written  {', '.join(str(path) for path in texts)}"))
    for note in notes:
        print(inert(f"Note     {note}"))
    return 0


def _in_the_way(path: Path, text: str) -> Problem | None:
    try:
        there = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Problem(str(path), f"It cannot be written: {error.strerror}.", "Name another --output.")
    if there == text.encode("utf-8", "surrogateescape"):
        return None
    return Problem(str(path), "It is there already, with another content.", "Name another --output, or move it away.")


def _made(args: argparse.Namespace, session: "Session") -> tuple[dict[Path, str], tuple[str, ...]] | Problem:
    """The texts by path, and the notes."""
    path = session.project / "config.toml"
    try:
        config = files.read_config(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError):
        return Problem(str(path), "It is not there, or no text.", "Write a project with the wizard or: grpo-tui init")
    if isinstance(config, Problem):
        return config
    loaded = state.load(session.project)
    draft = files.with_config(loaded.draft if isinstance(loaded, state.Loaded) else Draft(), config)
    data = session.data(draft, quiet)
    if isinstance(data, Problem):
        return data
    if data.stop is not None:
        return data.stop
    plan = files.plan_of(config, rows=data.usable)
    if isinstance(plan, list):
        return plan[0]
    tuned = session.checked_plan(draft, quiet)
    if not isinstance(tuned, list):
        plan = export.explained(plan, tuned)
    output = Path.cwd() / args.output if args.output else session.project / NAMES[args.format]
    if args.format == "yaml":
        prompts = output.with_name(f"{output.stem}.prompts.jsonl") if args.output else output.with_name(export.PROMPTS)
        rows = _prompts(session, draft)
        if isinstance(rows, Problem):
            return rows
        made = export.render_yaml(plan, rewards_file=draft.rewards.file, prompts=str(prompts), name=output.name)
        return {output: made.text, prompts: rows}, made.notes
    try:
        rewards = (session.project / draft.rewards.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return Problem(draft.rewards.file, "It is not there, or no text.", "Choose the rewards in the wizard first.")
    script = export.render_script(
        plan, prepare=data.code, load=data.load_call, load_code=data.load_code, rewards=rewards,
        rewards_file=draft.rewards.file, name=output.name,
    )  # fmt: skip
    if isinstance(script, Problem):
        return script
    elsewhere = () if output.parent == session.project else ("Paths in it are relative to its own folder.",)
    return {output: script.text}, (*script.notes, *elsewhere)


def _prompts(session: "Session", draft: Draft) -> str | Problem:
    """The prepared prompts as JSON lines, those that are too long left out."""
    from grpo_tui.dataset.prompts import functions
    from grpo_tui.dataset.rows import UnreadableError

    data = session.data(draft, quiet)
    if isinstance(data, Problem):
        return data
    limit = draft.dataset.prompt_limit
    by_row = data.lengths.by_row if data.lengths and limit else {}
    try:
        rows = (row for number, row in enumerate(data.source.iterate()) if by_row.get(number, 0) <= limit or not limit)
        return export.prompt_lines(functions(draft.dataset)["prepare_rows"](rows))
    except UnreadableError as error:
        return error.problem
    except SystemExit as stopped:  # the code ends itself at a row that was chosen to stop training
        return Problem("data", str(stopped), "Correct the row, or choose to leave such rows out.")
