"""What `score`, `probe` and `signal` share: which functions, on which rows, and the yes before any code runs."""

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a source as the training gets them."""

    numbers: tuple[int, ...]
    """Their numbers in the source, from 0."""

    prepared: tuple[Mapping[str, Any], ...]
    answer_column: str
    """`answer`, or empty: there is no right answer."""


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """How rows become prompts, as `grpo-tui data` takes it."""
    parser.add_argument("--split", default="", help="which part of the source (default: train)")
    parser.add_argument("--prompt", metavar="C", help="column of the prompt (default: by name and content)")
    parser.add_argument("--extract", metavar="RULE", help="how the answer is taken out of its column")
    parser.add_argument("--system", default="", metavar="TEXT", help="system prompt put before every prompt")
    parser.add_argument("--plain", action="store_true", help="prompts stay plain text instead of chat messages")


def add_reward_options(parser: argparse.ArgumentParser) -> None:
    """Which functions, and how they are run."""
    parser.add_argument(
        "--names", default="", metavar="A,B", help="functions to run, in this order (default: the project's, or all)"
    )
    parser.add_argument(
        "--weights", default="", metavar="1,0.25", help="one weight each (default: the project's, or 1)"
    )
    parser.add_argument("--timeout", type=float, default=5.0, metavar="S", help="seconds per call (default: 5)")
    parser.add_argument("--tokenizer", default="", metavar="M", help="model folder, or hub id in the cache")
    parser.add_argument("--yes", action="store_true", help="run this code on this data without asking")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def functions_of(args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[float, ...]] | Problem:
    """The functions that are named, and the weights that were typed; else those of the project, else all of the file.

    The weights are empty where neither says any.
    """
    from grpo_tui.rewards.source import read_functions

    if args.rewards is None:
        return Problem("REWARDS.py", "No reward functions are named.", "Give the file with them first.")
    functions, weights = read_functions(args.rewards), weights_of(args.weights)
    if isinstance(functions, Problem):
        return functions
    if isinstance(weights, Problem):
        return weights
    taken = _of_project(args.rewards)
    chosen = tuple(name.strip() for name in args.names.split(",") if name.strip())
    names = chosen or tuple(taken) or tuple(dict.fromkeys(function.name for function in functions))
    if not weights and set(names) <= taken.keys():
        weights = tuple(taken[name] for name in names)
    return names, weights


def _of_project(rewards: Path) -> dict[str, float]:
    """The functions and weights that the `config.toml` beside a rewards file names for it; none where it names none."""
    from grpo_tui.run.folder import rewards_file
    from grpo_tui.run.launch import read_config

    config = read_config(rewards.parent)
    if isinstance(config, Problem) or rewards_file(config) != rewards.name:
        return {}
    return {str(each["name"]): float(each["weight"]) for each in config.get("rewards", ())}


def weights_of(text: str) -> tuple[float, ...] | Problem:
    """The weights that were typed; empty: none were."""
    try:
        weights = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        return Problem("--weights", f"{one_line(text, 80)!r} are not numbers.", "Write them as 1,0.25,0.125.")
    if not all(map(math.isfinite, weights)):
        return Problem("--weights", f"{one_line(text, 80)!r} are not all finite.", "Write them as 1,0.25,0.125.")
    return weights


def rows_of(args: argparse.Namespace, count: int, *, seed: int | None = None) -> Rows | Problem:
    """The first `count` usable rows of `args.data`, or with a `seed` as many drawn over all of it."""
    from grpo_tui.dataset import mapping, prepared, sources
    from grpo_tui.dataset.rows import UnreadableError
    from grpo_tui.draft import DatasetAnswer

    source = sources.open_source(args.data, {}, args.split)
    if isinstance(source, Problem):
        return source
    try:
        head = source.head(100)
        base = DatasetAnswer(
            source=args.data, split=args.split, options=source.options, system=args.system, plain=args.plain
        )
        proposal = mapping.propose(source.columns, head, base, prompt=args.prompt, answer=args.answer or None)
        answer = proposal.answer
        if args.extract is not None:
            rule, _, argument = args.extract.partition(":")
            answer = replace(answer, extract=rule, extract_argument=argument)
        problem = next(iter(mapping.mapping_problems(answer, source.columns)), None)
        if problem:
            return problem
    except UnreadableError as error:
        return error.problem
    usable = (
        prepared.first_usable(source, answer, count) if seed is None else prepared.drawn(source, answer, count, seed)
    )
    if isinstance(usable, Problem):
        return usable
    if not usable:
        return Problem(one_line(args.data, 200), "It has no usable row.", "See `grpo-tui data` for why.")
    return Rows(
        numbers=tuple(number for number, _ in usable),
        prepared=tuple(dict(made) for _, made in usable),
        answer_column="answer" if answer.answer else "",
    )


def refused(args: argparse.Namespace, what: str) -> Problem | None:
    """Ask before `what` happens; why not, without a yes. Without a terminal the answer is no."""
    if args.yes:
        return None
    if not args.json and sys.stdin.isatty():
        print(f"This {one_line(what, 400)} in a child process.")
        if input("Run it? [y/N] ").strip().lower() in ("y", "yes"):
            return None
    return Problem("--yes", "Nothing was run.", "Look at the code and the data, then answer yes or add --yes.")


def say(text: str) -> None:
    """Tell people how far it is, beside what is printed."""
    print(f"{one_line(text, 100)} …", file=sys.stderr)
