"""`grpo-tui data`: a data set as the training will see it."""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.dataset import faults, lengths, mapping, prompts, sources
from grpo_tui.dataset.rows import Row, UnreadableError
from grpo_tui.draft import DatasetAnswer
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

HUB_ROWS = 2000
"""Rows of a hub data set that are looked at: they come over the network."""

_READING = ("encoding", "delimiter", "decimal", "field", "config", "revision")


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "data", help="look at a data set as the training will see it",
        description="Look at a data set as the training will see it. The data are never changed.",
    )  # fmt: skip
    parser.add_argument("source", help="file (JSONL, JSON, CSV, TSV, Parquet), folder, or hub id owner/name")
    parser.add_argument("--split", default="", help="which part of the source (default: train)")
    parser.add_argument("--prompt", metavar="COLUMN", help="column of the prompt (default: by name and content)")
    parser.add_argument("--answer", metavar="COLUMN", help="column of the right answer; an empty one: none")
    parser.add_argument(
        "--extract", metavar="RULE", help=f"{', '.join(mapping.RULES)}; with what it needs after a colon, as tag:answer"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="system prompt put before every prompt")
    parser.add_argument(
        "--plain", action="store_true", help="prompts stay plain text: for a model without chat template"
    )
    parser.add_argument("--convert", action="store_true", help="make chat messages of plain prompts in a mixed column")
    parser.add_argument("--tokenizer", default="", metavar="MODEL", help="folder or hub id: count the prompts' tokens")
    parser.add_argument("--max-tokens", type=int, default=0, metavar="N", help="leave out longer prompts")
    parser.add_argument("--needed", type=int, default=0, metavar="N", help="prompts that one generation takes")
    for name in _READING:
        parser.add_argument(f"--{name}", default="", metavar="VALUE", help=f"{name} of the source (default: found)")
    parser.add_argument("--repair", action="store_true", help="write a corrected UTF-8 copy beside the file, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print what the data are and what is wrong with them. 2 if they cannot be read or mapped as asked."""
    options = {name: getattr(args, name) for name in _READING if getattr(args, name)}
    if args.repair:
        copy = sources.repair(Path(args.source).expanduser(), options)
        if isinstance(copy, Problem):
            return _refuse(args, [copy], {})
        print(json.dumps({"repaired": str(copy)}) if args.json else f"Written: {copy}")
        return 0
    source = sources.open_source(args.source, options, args.split)
    if isinstance(source, Problem):
        return _refuse(args, [source], {})
    try:
        return _look(args, source)
    except UnreadableError as error:
        return _refuse(args, [error.problem], {})


def _look(args: argparse.Namespace, source: sources.Source) -> int:
    counted = source if source.format == "hub" else sources.count_rows(source)
    if isinstance(counted, Problem):
        return _refuse(args, [counted], {})
    head = counted.head(100)
    answer, reasons = _answer(args, counted, head)
    problems = mapping.mapping_problems(answer, counted.columns)
    report: dict[str, Any] = {
        **({"rows": counted.rows} if counted.rows_exact else {"rows_at_least": counted.rows or len(head)}),
        "format": counted.format,
        "columns": [{"name": column.name, "type": column.type, "filled": column.filled} for column in counted.columns],
        "looked_at": counted.looked_at,
        "notes": list(counted.notes),
        "options": dict(counted.options),
        "split": counted.split,
        "splits": list(counted.splits),
    }
    if problems:
        return _refuse(args, problems, report)
    prepare = prompts.prepare_function(answer)
    report |= {
        "sample": [{"row": row, "prepared": prepare(row)} for row in head[:3]],
        "mapping": {
            "prompt": answer.prompt,
            "answer": answer.answer,
            "extract": answer.extract,
            "extract_argument": answer.extract_argument,
            "reasons": reasons,
        },
        "code": prompts.prepare_code(answer),
        "load": sources.load_call(counted),
    }
    measured: lengths.Lengths | Problem | None = None
    rendered: lengths.Rendered | Problem | None = None
    limit = HUB_ROWS if counted.format == "hub" else None
    if args.tokenizer:
        place = lengths.model_place(args.tokenizer)
        with Worker("tokenize") as worker:
            measured = lengths.measure(worker, place, counted, answer)
            usable = next((row for row in head if prepare(row) is not None), None)
            if usable is not None and not isinstance(measured, Problem):
                rendered = lengths.render(worker, place, usable, answer)
    by_row = measured.by_row if isinstance(measured, lengths.Lengths) else None
    scan = faults.scan(counted.iterate(limit), answer, by_row, needed=args.needed)
    problems += [one for one in (scan, measured, rendered) if isinstance(one, Problem)]
    if isinstance(scan, faults.Scan):
        report |= {
            "scanned": scan.rows, "usable": scan.usable, "faults": [fault.as_json() for fault in scan.faults],
        }  # fmt: skip
    if isinstance(measured, lengths.Lengths):
        report["tokens"] = measured.as_json()
    if isinstance(rendered, lengths.Rendered):
        report["rendered"] = {
            "text": rendered.text, "tokens": rendered.tokens, "opens_think": rendered.opens_think,
        }  # fmt: skip
    if problems:
        return _refuse(args, problems, report)
    print(_as_json(report) if args.json else _for_people(args.source, report, scan))
    return 0


def _answer(
    args: argparse.Namespace, source: sources.Source, head: list[Row]
) -> tuple[DatasetAnswer, Mapping[str, str]]:
    """The answer that flags and proposal make together: a flag counts more."""
    base = DatasetAnswer(
        source=args.source, split=args.split, options=source.options, system=args.system, plain=args.plain,
        convert_plain=args.convert, max_prompt_tokens=args.max_tokens,
    )  # fmt: skip
    proposal = mapping.propose(source.columns, head, base, prompt=args.prompt, answer=args.answer)
    if args.extract is None:
        return proposal.answer, proposal.reasons
    rule, _, argument = args.extract.partition(":")
    reasons = {**proposal.reasons, "extract": "set by you"}
    return replace(proposal.answer, extract=rule, extract_argument=argument), reasons


def _refuse(args: argparse.Namespace, problems: list[Problem], report: dict[str, Any]) -> int:
    if args.json:
        print(_as_json({**report, "problems": [problem.as_json() for problem in problems]}))
    else:
        for problem in problems:
            print(inert(str(problem)))
    return 2


def _as_json(report: dict[str, Any]) -> str:
    """One strict JSON object: dates as text, numbers that are none as null."""

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): strict(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [strict(one) for one in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(strict(report), default=str)


def _for_people(name: str, report: dict[str, Any], scan: "faults.Scan | Problem") -> str:
    rows = f"{report['rows']:,} rows" if "rows" in report else f"at least {report['rows_at_least']:,} rows"
    lines = [f"{one_line(name, 100)}: {rows}, {report['format']}"]
    lines += [f"  {one_line(note, 160)}" for note in report["notes"]]
    lines.append("Columns")
    for column in report["columns"]:
        gaps = (
            "" if column["filled"] == report["looked_at"] else f"  in {column['filled']} of {report['looked_at']} rows"
        )
        lines.append(f"  {one_line(column['name'], 40)}  {column['type']}{gaps}")
    chosen = report["mapping"]
    lines.append("Mapping")
    for what in ("prompt", "answer", "extract"):
        argument = f" {one_line(chosen['extract_argument'], 40)}" if what == "extract" else ""
        reason = f"  ({one_line(chosen['reasons'][what], 100)})" if what in chosen["reasons"] else ""
        lines.append(f"  {what}: {one_line(chosen[what] or '—', 40)}{argument}{reason}")
    first = report["sample"][0]["prepared"] if report["sample"] else None
    if first is not None:
        lines += [
            "First row as training gets it",
            *(f"  {one_line(key, 40)}: {mapping.shown(first[key])}" for key in first),
        ]
    if "rendered" in report:
        lines += [
            "First prompt as the model sees it",
            *(f"  {line}" for line in inert(report["rendered"]["text"], 1500).split("\n")),
        ]
    if "tokens" in report:
        tokens = report["tokens"]
        lines.append(
            f"Tokens of {tokens['measured']:,} prompts: p50 {tokens['p50']:,}, p95 {tokens['p95']:,},"
            f" p99 {tokens['p99']:,}, longest {tokens['max']:,}"
        )
    if isinstance(scan, faults.Scan):
        lines.append(f"Usable: {scan.usable:,} of {scan.rows:,} rows")
        for fault in scan.faults:
            named = ", ".join(str(row + 1) for row in fault.rows[:8])
            where = f" (row {named}{', …' if fault.count > 8 else ''})" if named else ""
            lines.append(
                f"  {faults.KINDS[fault.kind].title}: {fault.count:,}{where}: {fault.choice.replace('_', ' ')}"
            )
            lines.append(f"    {one_line(fault.text, 300)}")
    return "\n".join(lines)
