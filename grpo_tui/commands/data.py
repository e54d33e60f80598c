"""`grpo-tui data`: a data set as the training will see it."""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.dataset import faults, lengths, mapping, prompts, sources
from grpo_tui.dataset.extraction import Extraction, extraction
from grpo_tui.dataset.prepared import prepared_columns
from grpo_tui.dataset.rows import BrokenRow, Row, UnreadableError
from grpo_tui.draft import DatasetAnswer, Example
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded

HUB_ROWS = 2000
"""Rows of a hub data set that are looked at: they come over the network."""

TRIED_ROWS = 2000
"""Rows on which the extraction is tried; how many fail in all is among the faults."""

SHOWN_ROWS = 3
"""Rows shown as they are and as the model sees them."""

_READING = ("encoding", "delimiter", "decimal", "field", "config", "revision")


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "data", help="look at a data set as the training will see it",
        description="Look at a data set as the training will see it. The data are never changed.",
    )  # fmt: skip
    parser.add_argument(
        "source",
        help="file (JSONL, JSON, CSV, TSV, Parquet; .gz, .zst, .bz2, .xz), folder, quoted pattern such as"
        " 'data/*.jsonl', or hub id owner/name",
    )
    parser.add_argument("--split", default="", help="which part of the source (default: train)")
    parser.add_argument(
        "--prompt", metavar="COLUMN", help="column of the prompt, dotted inside others (default: by name and content)"
    )
    parser.add_argument("--answer", metavar="COLUMN", help="column of the right answer; an empty one: none")
    parser.add_argument(
        "--extract", metavar="RULE", help=f"{', '.join(mapping.RULES)}; with what it needs after a colon, as tag:answer"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="system prompt put before every prompt")
    parser.add_argument(
        "--example", nargs=2, action="append", default=[], metavar=("QUESTION", "ANSWER"),
        help="a worked example behind the system prompt; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--plain", action="store_true", help="prompts stay plain text: for a model without chat template"
    )
    parser.add_argument("--convert", action="store_true", help="make chat messages of plain prompts in a mixed column")
    parser.add_argument(
        "--choose", action="append", default=[], metavar="FAULT=CHOICE",
        help=f"what becomes of faulty rows, as duplicate=leave_out; faults: {', '.join(faults.KINDS)}",
    )  # fmt: skip
    parser.add_argument(
        "--eval-share", type=float, default=0.0, metavar="X", help="share of the prompts kept apart, such as 0.05"
    )
    parser.add_argument("--seed", type=int, default=DatasetAnswer.seed, metavar="N", help="which prompts those are")
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
        copy = sources.repair(expanded(args.source), options)
        if isinstance(copy, Problem):
            return _refuse(args, [copy], {})
        _say(json.dumps({"repaired": str(copy)}) if args.json else inert(f"Written: {copy}"))
        return 0
    chosen = faults.read_choices(args.choose)
    if isinstance(chosen, Problem):
        return _refuse(args, [chosen], {})
    source = sources.open_source(args.source, options, args.split)
    if isinstance(source, Problem):
        return _refuse(args, [source], {})
    try:
        return _look(args, source, chosen)
    except UnreadableError as error:
        return _refuse(args, [error.problem], {})


def _look(args: argparse.Namespace, source: sources.Source, chosen: Mapping[str, str]) -> int:
    counted = source if source.format == "hub" else sources.count_rows(source)
    if isinstance(counted, Problem):
        return _refuse(args, [counted], {})
    head = counted.head(100)
    answer, reasons = _answer(args, counted, head, chosen)
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
    prepare, loading = prompts.prepare_function(answer), sources.load_call(counted, answer=answer)
    report |= {
        "sample": [
            {"row": row, "prepared": prepare(row)}
            | ({"broken": str(row.problem)} if isinstance(row, BrokenRow) else {})
            for row in head[:SHOWN_ROWS]
        ],
        "mapping": {
            "prompt": answer.prompt,
            "answer": answer.answer,
            "extract": answer.extract,
            "extract_argument": answer.extract_argument,
            "reasons": reasons,
        },
        "prepared": [column.as_json() for column in prepared_columns(head, answer)],
        "code": prompts.prepare_code(answer),
        "load": loading,
        "load_code": sources.load_code(loading),
    }
    if answer.answer:
        tried = extraction(counted.iterate(TRIED_ROWS), answer)
        problems += [tried] if isinstance(tried, Problem) else []
        report |= {"extraction": tried.as_json()} if isinstance(tried, Extraction) else {}
    by_row: Mapping[int, int] = {}
    if args.tokenizer:
        measured = _measure(args.tokenizer, counted, head, answer, report)
        problems += [measured] if isinstance(measured, Problem) else []
        by_row = {} if isinstance(measured, Problem) else measured
    limit = HUB_ROWS if counted.format == "hub" else None
    scan = faults.scan(counted.iterate(limit), answer, by_row, needed=args.needed)
    if isinstance(scan, Problem):
        problems.append(scan)
    else:
        report |= {
            "scanned": scan.rows,
            "usable": scan.usable,
            "held_out": {"share": answer.eval_share, "seed": answer.seed, "rows": scan.held_out},
            "faults": [fault.as_json() for fault in scan.faults],
        }
    if problems:
        return _refuse(args, problems, report)
    _say(_as_json(report) if args.json else _for_people(args.source, report))
    return 0


def _measure(
    model: str, source: sources.Source, head: list[Row], answer: DatasetAnswer, report: dict[str, Any]
) -> Mapping[int, int] | Problem:
    """Lengths by row; `report` gets their figures, and the first rows as the model sees them."""
    place = lengths.model_place(model)
    with Worker("tokenize") as worker:
        measured = lengths.measure(worker, place, source, answer)
        if isinstance(measured, Problem):
            return measured
        report["tokens"] = {**measured.as_json(), "advice": lengths.advice(measured)}
        prepare = prompts.prepare_function(answer)
        usable = next((number for number, row in enumerate(head) if prepare(row) is not None), None)
        for number, row in enumerate(head):
            if prepare(row) is None or (number >= SHOWN_ROWS and number != usable):
                continue
            rendered = lengths.render(worker, place, row, answer)
            if isinstance(rendered, Problem):
                return rendered
            if number == usable:
                report["rendered"] = rendered.as_json()
            if number < SHOWN_ROWS:
                report["sample"][number]["rendered"] = rendered.as_json()
    return measured.by_row


def _answer(
    args: argparse.Namespace, source: sources.Source, head: list[Row], chosen: Mapping[str, str]
) -> tuple[DatasetAnswer, Mapping[str, str]]:
    """The answer that flags and proposal make together: a flag counts more."""
    base = DatasetAnswer(
        source=args.source, split=args.split, options=source.options, system=args.system, plain=args.plain,
        convert_plain=args.convert, max_prompt_tokens=args.max_tokens, faults=chosen, eval_share=args.eval_share,
        seed=args.seed, examples=tuple(Example(question=asked, answer=told) for asked, told in args.example),
    )  # fmt: skip
    proposal = mapping.propose(source.columns, head, base, prompt=args.prompt, answer=args.answer)
    if args.extract is None:
        return proposal.answer, proposal.reasons
    rule, _, argument = args.extract.partition(":")
    reasons = {**proposal.reasons, "extract": "set by you"}
    return replace(proposal.answer, extract=rule, extract_argument=argument), reasons


def _refuse(args: argparse.Namespace, problems: list[Problem], report: dict[str, Any]) -> int:
    if args.json:
        _say(_as_json({**report, "problems": [problem.as_json() for problem in problems]}))
    else:
        for problem in problems:
            _say(inert(str(problem)))
    return 2


def _say(text: str) -> None:
    """Print; half a character, which a file's name or a row may hold, is printed as its escape."""
    print(text.encode("utf-8", "backslashreplace").decode())


def _as_json(report: dict[str, Any]) -> str:
    """One strict JSON object: dates as text, numbers that are none as null."""

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): strict(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [strict(one) for one in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(strict(report), default=str)


def _for_people(name: str, report: dict[str, Any]) -> str:
    """The report as text. Rows count from 1 here."""
    parts = (_source_lines(name, report), _mapping_lines(report), _sample_lines(report), _prepared_lines(report),
             _token_lines(report), _fault_lines(report), _code_lines(report))  # fmt: skip
    return "\n".join(line for part in parts for line in part)


def _source_lines(name: str, report: dict[str, Any]) -> list[str]:
    rows = f"{report['rows']:,} rows" if "rows" in report else f"at least {report['rows_at_least']:,} rows"
    lines = [f"{one_line(name, 100)}: {rows}, {report['format']}"]
    lines += [f"  {one_line(note, 160)}" for note in report["notes"]]
    lines.append("Columns")
    for column in report["columns"]:
        gaps = (
            "" if column["filled"] == report["looked_at"] else f"  in {column['filled']} of {report['looked_at']} rows"
        )
        lines.append(f"  {one_line(column['name'], 40)}  {column['type']}{gaps}")
    return lines


def _mapping_lines(report: dict[str, Any]) -> list[str]:
    chosen = report["mapping"]
    lines = ["Mapping"]
    for what in ("prompt", "answer", "extract"):
        argument = f" {one_line(chosen['extract_argument'], 40)}" if what == "extract" else ""
        reason = f"  ({one_line(chosen['reasons'][what], 100)})" if what in chosen["reasons"] else ""
        lines.append(f"  {what}: {one_line(chosen[what] or '—', 40)}{argument}{reason}")
    if tried := report.get("extraction"):
        lines.append(f"Answers found in {tried['found']:,} of the first {tried['looked_at']:,} rows")
        lines += [
            f"  row {one['row'] + 1}: {mapping.shown(one['before'], 60)} → {mapping.shown(one['after'], 40)}"
            for one in tried["yields"][:SHOWN_ROWS]
        ]
        if tried["failed"]:
            lines.append(f"  none found in {tried['failed_count']:,}: {_rows(tried['failed'], tried['failed_count'])}")
    return lines


def _sample_lines(report: dict[str, Any]) -> list[str]:
    lines = []
    for number, sample in enumerate(report["sample"], 1):
        if "broken" in sample:
            lines += [f"Row {number} is broken", f"  {one_line(sample['broken'], 400)}"]
            continue
        lines += [f"Row {number} as it is", *(_pair(name, value) for name, value in sample["row"].items())]
        if sample["prepared"] is None:
            lines.append(f"Row {number} is left out")
        elif "rendered" in sample:
            seen = sample["rendered"]
            lines.append(f"Row {number} as the model sees it, {seen['tokens']:,} tokens")
            lines += [f"  {line}" for line in inert(seen["text"], 1500).split("\n")]
            lines += ["  The template opens <think>: completions begin inside it."] * seen["opens_think"]
        else:
            lines.append(f"Row {number} as training gets it")
            lines += [_pair(name, value) for name, value in sample["prepared"].items()]
    return lines


def _pair(name: str, value: Any) -> str:
    return f"  {one_line(str(name), 40)}: {mapping.shown(value)}"


def _prepared_lines(report: dict[str, Any]) -> list[str]:
    return ["Columns as rewards get them"] + [
        f"  {one_line(column['name'], 40)}  {column['type']}  {100 * column['filled']:.0f} % filled,"
        f" such as {mapping.shown(column['example'], 60)}"
        for column in report["prepared"]
    ]


def _token_lines(report: dict[str, Any]) -> list[str]:
    if not (tokens := report.get("tokens")):
        return []
    highest = max((count for _, _, count in tokens["histogram"]), default=1)
    return [
        f"Tokens of {tokens['measured']:,} prompts: p50 {tokens['p50']:,}, p95 {tokens['p95']:,},"
        f" p99 {tokens['p99']:,}, longest {tokens['max']:,}",
        *(
            f"  {f'{low:,}–{high:,}':>15}  {'█' * math.ceil(40 * count / highest):40}  {count:,}".rstrip()
            for low, high, count in tokens["histogram"]
        ),
        f"  {tokens['advice']}",
    ]


def _fault_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"Usable: {report['usable']:,} of {report['scanned']:,} rows"]
    apart = report["held_out"]
    if apart["share"]:
        lines.append(f"Kept apart: {apart['rows']:,} rows, by seed {apart['seed']}")
    for fault in report["faults"]:
        where = f" ({_rows(fault['rows'], fault['count'])})" if fault["rows"] else ""
        others = ", ".join(choice.replace("_", " ") for choice in fault["choices"] if choice != fault["choice"])
        lines.append(
            f"  {faults.KINDS[fault['kind']].title}: {fault['count']:,}{where}: {fault['choice'].replace('_', ' ')}"
            + (f"  (or {others}: --choose {fault['kind']}=…)" if others else "")
        )
        lines.append(f"    {one_line(fault['text'], 400)}")
    return lines


def _rows(numbers: list[int], count: int) -> str:
    """The first of these rows as people count them."""
    return f"row {', '.join(str(number + 1) for number in numbers[:8])}{', …' if count > 8 else ''}"


def _code_lines(report: dict[str, Any]) -> list[str]:
    return [
        "Loaded by",
        f"  {inert(report['load'])}",
        *(f"  {line}".rstrip() for line in inert(report["load_code"]).rstrip().split("\n") if report["load_code"]),
        "Code of the transformation, as train.py holds it",
        *(f"  {line}".rstrip() for line in inert(report["code"]).rstrip().split("\n")),
    ]
