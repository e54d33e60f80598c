"""`grpo-tui score`: reward functions on completions, without the wizard."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

FORMAT = """\
The completions file has one JSON value a line: a text, or an object with `completion`, and beside it `prompt` (text or
chat messages) and any column that the functions take, such as `answer`. With --data the i-th completion is scored
against row --row of that data set, every one against the same row, which is read as it is.
"""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "score", help="try reward functions on completions", epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run reward functions on sample completions, each in a child process with a time limit.",
    )  # fmt: skip
    parser.add_argument("rewards", type=Path, metavar="REWARDS.py", help="file with reward functions")
    parser.add_argument("--completions", type=Path, required=True, metavar="FILE", help="JSON lines, see below")
    parser.add_argument("--names", default="", metavar="A,B", help="functions to run, in this order (default: all)")
    parser.add_argument("--weights", default="", metavar="1,0.25", help="one weight per function (default: all 1)")
    parser.add_argument("--data", default="", metavar="SOURCE", help="data set whose row gives prompt and columns")
    parser.add_argument("--row", type=int, default=1, metavar="N", help="row of the data, from 1 (default: 1)")
    parser.add_argument(
        "--answer", default="", metavar="C", help="column of the right answer (default: answer, if there)"
    )
    parser.add_argument("--group", type=int, default=0, metavar="G", help="completions per prompt (default: all)")
    parser.add_argument("--tokenizer", default="", metavar="M", help="model folder, or hub id in the cache")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="S", help="seconds per call (default: 5)")
    parser.add_argument("--yes", action="store_true", help="run this code on this data without asking")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Score and print. 2 if something stands in the way of training with these functions."""
    from grpo_tui.rewards.bench import score, start_worker

    request = _request(args)
    if not isinstance(request, Problem) and not args.yes and not _consents(args):
        request = Problem(str(args.rewards), "Its code was not run.", "Look at it, then answer yes or add --yes.")
    if isinstance(request, Problem):
        return _refuse(request, args.json)
    with start_worker(Path.cwd()) as worker:
        table = score(worker, request, None if args.json else _say)
    if isinstance(table, Problem):
        return _refuse(table, args.json)
    if args.json:
        print(json.dumps(as_json(table)))
    else:
        _print(table, request.completions)
    return 2 if table.blocking else 0


def as_json(table: Any) -> dict[str, Any]:
    """A score table as `--json` prints it. Infinite numbers become text: JSON has none."""
    from grpo_tui.rewards.advantages import finite_or_text

    return {
        "names": list(table.names),
        "weights": list(table.weights),
        "rewards": [[finite_or_text(value) for value in row] for row in table.rewards],
        "weighted": [finite_or_text(value) for value in table.weighted],
        "advantages": list(table.advantages),
        "problems": {name: [each.as_json() for each in found] for name, found in table.problems.items()},
        "composition": [each.as_json() for each in table.composition],
        "blocking": list(table.blocking),
        "notes": {name: list(notes) for name, notes in table.notes.items()},
        "seconds_per_call": dict(table.seconds_per_call),
        "metrics": dict(table.metrics),
    }


def read_completions(path: Path) -> list[dict[str, Any]] | Problem:
    """The lines of a completions file; each has `completion`, and what else the line gave."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return Problem(str(path), f"The file cannot be read: {error}.", "Give a UTF-8 file of JSON lines.")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Problem(
                f"{path}:{number}", f"The line is not JSON: {error}.", 'Write "text" or {"completion": "text"}.'
            )
        row = {"completion": value} if isinstance(value, str) else value
        if not isinstance(row, dict) or not isinstance(row.get("completion"), str):
            return Problem(f"{path}:{number}", "The line has no completion text.", 'Write {"completion": "text"}.')
        rows.append(row)
    if len({"prompt" in row for row in rows}) > 1:
        return Problem(str(path), "Some lines have a prompt and some have none.", "Give each line its prompt, or none.")
    return rows


def _request(args: argparse.Namespace) -> Any:
    from grpo_tui.rewards.bench import ScoreRequest
    from grpo_tui.rewards.source import read_functions

    functions = read_functions(args.rewards)
    if isinstance(functions, Problem):
        return functions
    read = read_completions(args.completions)
    if isinstance(read, Problem):
        return read
    weights = _weights(args.weights)
    if isinstance(weights, Problem):
        return weights
    row = _row(args) if args.data else {}
    if isinstance(row, Problem):
        return row
    rows = [{**row, **given} for given in read]
    columns = sorted({name for each in rows for name in each} - {"completion", "prompt"})
    names = [name.strip() for name in args.names.split(",") if name.strip()]
    return ScoreRequest(
        path=args.rewards,
        names=tuple(names or dict.fromkeys(function.name for function in functions)),
        weights=weights,
        completions=tuple(each["completion"] for each in rows),
        prompts=tuple(each["prompt"] for each in rows if "prompt" in each),
        columns={name: [each.get(name) for each in rows] for name in columns},
        answer_column=args.answer or "answer",
        group_size=args.group,
        tokenizer=args.tokenizer,
        timeout=args.timeout,
    )


def _weights(text: str) -> tuple[float, ...] | Problem:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        return Problem("--weights", f"{one_line(text, 80)!r} are not numbers.", "Write them as 1,0.25,0.125.")


def _row(args: argparse.Namespace) -> Mapping[str, Any] | Problem:
    """The chosen row of the data set."""
    from grpo_tui.dataset.sources import UnreadableError, open_source

    source = open_source(args.data)
    if isinstance(source, Problem):
        return source
    try:
        row = source.row(args.row - 1) if args.row > 0 else None
    except UnreadableError as error:
        return error.problem
    if row is None:
        return Problem(args.data, f"It has no row {args.row}.", "Choose a row with --row; the first is 1.")
    if args.answer and args.answer not in row:
        columns = ", ".join(row)
        return Problem(args.data, f"It has no column `{args.answer}`, only {columns}.", "Name it with --answer.")
    return row


def _consents(args: argparse.Namespace) -> bool:
    """Ask before the code of the file runs; without a terminal the answer is no."""
    if args.json or not sys.stdin.isatty():
        return False
    on = f" on {args.data}" if args.data else ""
    print(f"This runs the code of {one_line(str(args.rewards), 200)}{one_line(on, 200)} in a child process.")
    return input("Run it? [y/N] ").strip().lower() in ("y", "yes")


def _refuse(problem: Problem, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"problems": [problem.as_json()]}))
    else:
        print(inert(str(problem)), file=sys.stderr)
    return 2


def _say(name: str) -> None:
    print(f"{name} …", file=sys.stderr)


def _print(table: Any, completions: Sequence[str]) -> None:
    widths = [max(len(name), 8) for name in table.names]
    heads = [f"{name:>{width}}" for name, width in zip(table.names, widths, strict=True)]
    print("  ".join(["  #", *heads, "weighted", "advantage", "completion"]))
    for number, (text, row) in enumerate(zip(completions, table.rewards, strict=True), 1):
        cells = [f"{_number(value):>{width}}" for value, width in zip(row, widths, strict=True)]
        total, advantage = _number(table.weighted[number - 1]), f"{table.advantages[number - 1]:+.3f}"
        print("  ".join([f"{number:>3}", *cells, f"{total:>8}", f"{advantage:>9}", one_line(text, 60)]))
    print(
        "  ".join(
            [
                "  s",
                *(
                    f"{table.seconds_per_call[name]:>{width}.2g}"
                    for name, width in zip(table.names, widths, strict=True)
                ),
            ]
        )
    )
    for problem in [*(each for found in table.problems.values() for each in found), *table.composition]:
        print(inert(f"! {problem}"))
    for name, notes in table.notes.items():
        for note in notes:
            print(inert(f"  {name}: {note}"))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
