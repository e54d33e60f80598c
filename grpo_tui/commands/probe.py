"""`grpo-tui probe`: attacks on reward functions, made from the data."""

import argparse
import json
from pathlib import Path
from typing import Any

from grpo_tui.commands.printing import refuse
from grpo_tui.commands.trying import (
    add_data_options,
    add_reward_options,
    functions_of,
    refused,
    rows_of,
    say,
)
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

ANSWERS = 100
"""Rows that are looked at for other answers."""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "probe", help="attack reward functions before a policy does",
        description="Score completions made to be paid wrongly: empty, tags only, the prompt echoed, every candidate "
        "answer listed, junk, and right answers in other spellings.",
    )  # fmt: skip
    parser.add_argument("rewards", type=Path, metavar="REWARDS.py", help="file with reward functions")
    parser.add_argument("--data", required=True, metavar="SOURCE", help="data set from which the probes are made")
    parser.add_argument("--answer", default="", metavar="C", help="column of the right answer (default: found)")
    parser.add_argument("--rows", type=int, default=3, metavar="N", help="rows to attack (default: 3)")
    add_data_options(parser)
    add_reward_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Attack and print. 2 if it cannot be done, or a function cannot be trained with; what is paid is no failure."""
    from grpo_tui.rewards.bench import start_worker
    from grpo_tui.rewards.probes import probe

    request = _request(args)
    if not isinstance(request, Problem):
        request = refused(args, f"runs the code of {args.rewards} on {args.data}") or request
    if isinstance(request, Problem):
        return refuse(args.json, request)
    with start_worker(Path.cwd()) as worker:
        table = probe(worker, request, None if args.json else say)
    if isinstance(table, Problem):
        return refuse(args.json, table)
    print(json.dumps(as_json(table)) if args.json else for_people(table))
    return 2 if table.table.blocking else 0


def _request(args: argparse.Namespace) -> Any:
    from grpo_tui.rewards.probes import ProbeRequest

    if args.rows < 1:
        return Problem("--rows", "No row would be attacked.", "Give at least 1.")
    functions = functions_of(args)
    if isinstance(functions, Problem):
        return functions
    rows = rows_of(args, max(ANSWERS, args.rows))
    if isinstance(rows, Problem):
        return rows
    return ProbeRequest(
        path=args.rewards,
        names=functions[0],
        weights=functions[1],
        rows=rows.prepared,
        attacked=args.rows,
        answer_column=rows.answer_column,
        system=args.system,
        tokenizer=args.tokenizer,
        timeout=args.timeout,
    )


def as_json(table: Any) -> dict[str, Any]:
    """A probe table as `--json` prints it."""
    from grpo_tui.rewards.advantages import finite_or_text

    return {
        "names": list(table.names),
        "probes": [
            {
                "kind": each.probe.kind,
                "completion": each.probe.completion,
                "row": each.probe.row,
                "rewards": [finite_or_text(value) for value in each.rewards],
                "weighted": finite_or_text(each.earned),
                "share": each.share,
                "expected": each.probe.expected,
                "verdict": each.verdict,
                "paid_by": list(each.paid_by),
                "why": each.probe.why,
            }
            for each in table.probes
        ],
        "format_only_share": table.format_only_share,
        "layout": table.layout,
        "best": finite_or_text(table.best),
        "sentence": table.sentence,
        "problems": {name: [each.as_json() for each in found] for name, found in table.table.problems.items()},
        "blocking": list(table.table.blocking),
    }


def for_people(table: Any) -> str:
    """One line per kind of probe, the worst of its rows."""
    order = {"paid wrongly": 0, "not scored": 1, "unpaid although right": 2, "sound": 3}
    worst: dict[str, Any] = {}
    for each in table.probes:
        known = worst.get(each.probe.kind)
        if known is None or order[each.verdict] < order[known.verdict]:
            worst[each.probe.kind] = each
    lines = [f"{'probe':<22}  {'expected':<11}  {'earns':>6}  verdict"]
    for each in sorted(worst.values(), key=lambda each: order[each.verdict]):
        share = "–" if each.share is None else f"{each.share:.0%}"
        by = f" by {', '.join(each.paid_by)}" if each.paid_by else ""
        lines.append(
            f"{each.probe.kind:<22}  {each.probe.expected.replace('_', ' '):<11}  {share:>6}  {each.verdict}{by}"
        )
        if each.verdict != "sound":
            lines.append(f"    {each.probe.why} {one_line(each.probe.completion, 70)!r}")
    lines += [f"! {problem}" for found in table.table.problems.values() for problem in found]
    return inert("\n".join([*lines, table.sentence]), 20_000)
