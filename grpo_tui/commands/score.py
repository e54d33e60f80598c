"""`grpo-tui score`: reward functions on completions, without the wizard."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.commands.printing import refuse
from grpo_tui.commands.trying import (
    add_data_options,
    add_reward_options,
    functions_of,
    refused,
    rows_of,
    say,
    weights_of,
)
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.rewards.stored import Stored, WhatIf

FORMAT = """\
The completions file has one JSON value a line: a text, or an object with `completion`, and beside it `prompt` (text or
chat messages) and any column that the functions take, such as `answer`. With --data the i-th completion is scored
against row --row of that data set, every one against the same row, which is read as it is.

With --run the completions are those that a run kept at a step, live or finished, with the rewards they got; --weights
then says what other weights would have done, and REWARDS.py with --data what other code would have done.
"""

ALL_ROWS = 1_000_000
"""Rows of the data that are looked through for the prompts of a run."""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "score", help="try reward functions on completions", epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run reward functions on sample completions, each in a child process with a time limit.",
    )  # fmt: skip
    parser.add_argument("rewards", type=Path, nargs="?", metavar="REWARDS.py", help="file with reward functions")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--completions", type=Path, metavar="FILE", help="JSON lines, see below")
    source.add_argument("--run", type=Path, metavar="DIR", help="folder of a run that kept completions")
    parser.add_argument("--data", default="", metavar="SOURCE", help="data set whose row gives prompt and columns")
    parser.add_argument("--row", type=int, default=1, metavar="N", help="row of the data, from 1 (default: 1)")
    parser.add_argument(
        "--answer", default="", metavar="C", help="column of the right answer (default: answer, if there)"
    )
    parser.add_argument("--group", type=int, default=0, metavar="G", help="completions per prompt (default: all)")
    parser.add_argument("--last", type=int, default=1, metavar="N", help="so many kept steps up to it (default: 1)")
    parser.add_argument("--step", type=int, metavar="N", help="step of the run (default: the last one kept)")
    add_data_options(parser)
    add_reward_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Score and print. 2 if something stands in the way of training with these functions."""
    if args.run:
        return _replay(args)
    request = _request(args)
    if not isinstance(request, Problem):
        on = f" on {args.data}" if args.data else ""
        request = refused(args, f"runs the code of {args.rewards}{on}") or request
    if isinstance(request, Problem):
        return refuse(args.json, request)
    table = _scored(request, args)
    if isinstance(table, Problem):
        return refuse(args.json, table)
    if args.json:
        print(json.dumps(as_json(table)))
    else:
        _print(table, request.completions)
    return 2 if table.blocking else 0


def _scored(request: Any, args: argparse.Namespace) -> Any:
    from grpo_tui.rewards.bench import score, start_worker

    with start_worker(Path.cwd()) as worker:
        return score(worker, request, None if args.json else say)


def _replay(args: argparse.Namespace) -> int:
    """What other weights or other code would have done to the completions of a run."""
    from grpo_tui.progress.kept import kept_steps

    steps = kept_steps(args.run, args.step, args.last)
    if isinstance(steps, Problem):
        return refuse(args.json, steps)
    changes = []
    for stored in steps:
        found = _changed(args, stored)
        if isinstance(found, Problem):
            return refuse(args.json, found)
        changes.append(found)
    table, change = changes[-1]
    if args.json:
        report = _change_as_json(steps[-1], table, change)
        report["steps"] = [
            {
                "step": stored.step,
                "moved": len(each.moved),
                "turned": len(each.turned),
                "other_best": len(each.other_best),
                "flat_share": each.after.flat_share,
                "flat_share_before": each.before.flat_share,
            }
            for stored, (_, each) in zip(steps, changes, strict=True)
        ]
        print(json.dumps(report))
        return 0
    for stored, (_, each) in zip(steps[:-1], changes, strict=False):
        print(f"Step {stored.step}: {each.sentence}")
    print(inert(_change_for_people(steps[-1], change), 50_000))
    return 0


def _changed(args: argparse.Namespace, stored: Stored) -> tuple[Any, WhatIf] | Problem:
    """The table of new code, or None without any, and what the change would have done."""
    from grpo_tui.rewards.stored import what_if

    weights = weights_of(args.weights)
    if isinstance(weights, Problem):
        return weights
    table = _rescored(args, stored) if args.rewards else None
    if isinstance(table, Problem):
        return table
    if table is not None and table.blocking:
        name = table.blocking[0]
        return Problem(f"reward {name}", f"It cannot be trained with. {table.problems[name][0]}", "Correct it first.")
    if table is None:
        change = what_if(stored, weights=weights or None)
    else:
        change = what_if(stored, names=table.names, weights=table.weights, rewards=table.rewards)
    return change if isinstance(change, Problem) else (table, change)


def _rescored(args: argparse.Namespace, stored: Stored) -> Any:
    """The completions of the run under the code of the file, each with the row of its prompt."""
    from grpo_tui.progress import kept
    from grpo_tui.rewards.bench import ScoreRequest, columns_of

    if not args.data:
        return Problem("--data", "New code is called with the columns of the data.", "Name the data of the run.")
    functions = functions_of(args)
    if isinstance(functions, Problem):
        return functions
    names, weights = functions
    prepared = rows_of(args, ALL_ROWS)
    if isinstance(prepared, Problem):
        return prepared
    numbered = zip(prepared.numbers, prepared.prepared, strict=True)
    found = kept.rows_of(stored.prompts, numbered, f"step {stored.step}")
    if isinstance(found, Problem):
        return found
    rows = [row for _, row in found]
    problem = refused(args, f"runs the code of {args.rewards} on {args.data}")
    known = dict(zip(stored.names, stored.weights, strict=True))
    return problem or _scored(
        ScoreRequest(
            path=args.rewards,
            names=names,
            weights=weights or tuple(known.get(name, 1.0) for name in names),
            completions=stored.completions,
            prompts=tuple(row["prompt"] for row in rows),
            columns=columns_of(rows),
            group_size=stored.group_size,
            scale=stored.scale,
            aggregation=stored.aggregation,
            tokenizer=args.tokenizer,
            timeout=args.timeout,
        ),
        args,
    )


def _change_as_json(stored: Stored, table: Any, change: WhatIf) -> dict[str, Any]:
    """A what-if as `--json` prints it: the table after the change, with how it was `before`."""
    from grpo_tui.rewards.advantages import finite_or_text

    def standing(found: Any) -> dict[str, Any]:
        return {
            "weighted": [finite_or_text(value) for value in found.weighted],
            "advantages": list(found.advantages),
            "ranks": list(found.ranks),
            "flat_share": found.flat_share,
        }

    new = as_json(table) if table else {
        "names": list(stored.names),
        "weights": list(change.after.weights),
        "rewards": [[finite_or_text(value) for value in row] for row in stored.rewards],
        "problems": {},
        "seconds_per_call": {},
    }  # fmt: skip
    return {
        **new,
        **standing(change.after),
        "before": {"names": list(stored.names), "weights": list(stored.weights), **standing(change.before)},
        "moved": list(change.moved),
        "turned": list(change.turned),
        "other_best": list(change.other_best),
        "sentence": change.sentence,
        "step": stored.step,
        "group_size": stored.group_size,
    }


def _change_for_people(stored: Stored, change: WhatIf) -> str:
    """Every completion that would have stood otherwise, group by group, and the sentence."""
    lines = [f"Step {stored.step}: {len(stored.completions)} completions in groups of {stored.group_size}"]
    changed = sorted({*change.moved, *change.turned})
    if changed:
        lines.append("  #  group  rank       advantage          completion")
    for index in changed:
        old, new = change.before, change.after
        lines.append(
            f"{index + 1:>3}  {index // stored.group_size + 1:>5}  {old.ranks[index] or '–':>3} → "
            f"{new.ranks[index] or '–':<3}  {old.advantages[index]:+7.3f} → {new.advantages[index]:+7.3f}  "
            f"{one_line(stored.completions[index], 50)}"
        )
    return "\n".join([*lines, change.sentence])


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
        "spread": dict(table.spread),
        "metrics": dict(table.metrics),
    }


def _request(args: argparse.Namespace) -> Any:
    from grpo_tui.rewards.bench import ScoreRequest, columns_of
    from grpo_tui.rewards.stored import read_completions

    functions = functions_of(args)
    if isinstance(functions, Problem):
        return functions
    names, weights = functions
    read = read_completions(args.completions)
    if isinstance(read, Problem):
        return read
    row = _row(args) if args.data else {}
    if isinstance(row, Problem):
        return row
    rows = [{**row, **given} for given in read]
    return ScoreRequest(
        path=args.rewards,
        names=names,
        weights=weights,
        completions=tuple(each["completion"] for each in rows),
        prompts=tuple(each["prompt"] for each in rows if "prompt" in each),
        columns=columns_of(rows),
        answer_column=args.answer or "answer",
        group_size=args.group,
        tokenizer=args.tokenizer,
        timeout=args.timeout,
    )


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
    if len(table.names) > 1:
        print(
            "  ".join(
                ["  ±", *(f"{table.spread[name]:>{width}.2g}" for name, width in zip(table.names, widths, strict=True))]
            )
        )
    for problem in [*(each for found in table.problems.values() for each in found), *table.composition]:
        print(inert(f"! {problem}"))
    for name, notes in table.notes.items():
        for note in notes:
            print(inert(f"  {name}: {note}"))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.4g}"
