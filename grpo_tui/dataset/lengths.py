"""How long the prompts are, counted by the model's own tokenizer in a worker."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.dataset.prompts import prepare_function
from grpo_tui.dataset.rows import Row, never
from grpo_tui.dataset.sources import Source, sample
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded

SAMPLE = 2000
"""Prompts that are measured: p99 then stands on 20 of them."""

WITH_LIMIT = 20_000
"""Prompts that are measured where long ones are left out: how many those are shall be known, not guessed."""

ADVISED = (256, 512)
"""Prompts of a GRPO run mostly stay below this many tokens; longer ones are advice, not an error."""


@dataclass(frozen=True)
class Bin:
    """One bar of a histogram: lengths from `low` to `high`, both included."""

    low: int
    high: int
    count: int


@dataclass(frozen=True)
class Lengths:
    """Lengths of prompts in tokens, chat template and system prompt included."""

    count: int
    p50: int
    p95: int
    p99: int
    longest: int
    histogram: tuple[Bin, ...]
    by_row: Mapping[int, int] = field(default_factory=dict, repr=False)
    """Row number, from 0, to length."""

    of: int = 0
    """Rows that there are; more than `count` if a sample was measured or rows are left out."""

    def as_json(self) -> dict[str, Any]:
        """The lengths as `grpo-tui data --json` prints them."""
        return {
            "measured": self.count,
            "p50": self.p50,
            "p95": self.p95,
            "p99": self.p99,
            "max": self.longest,
            "histogram": [[one.low, one.high, one.count] for one in self.histogram],
        }


@dataclass(frozen=True)
class Rendered:
    """A prompt exactly as the model sees it."""

    text: str
    """With the chat template and its special tokens, ready to be continued."""

    tokens: int
    opens_think: bool
    """The template ends in an open <think>: the completion begins inside it and holds no opening tag."""

    pieces: tuple[str, ...] = ()
    """The tokens one by one, special ones by their names."""

    def as_json(self) -> dict[str, Any]:
        """The prompt as `grpo-tui data --json` prints it."""
        return {"text": self.text, "tokens": self.tokens, "opens_think": self.opens_think}


def summarise(by_row: Mapping[int, int], of: int = 0) -> Lengths:
    """Figures of these lengths. Percentiles are nearest-rank: each is the length of a prompt that exists."""
    lengths = sorted(by_row.values())
    if not lengths:
        return Lengths(0, 0, 0, 0, 0, (), {}, of)

    def rank(percent: float) -> int:
        return lengths[max(0, math.ceil(percent / 100 * len(lengths)) - 1)]

    return Lengths(
        len(lengths), rank(50), rank(95), rank(99), lengths[-1], histogram(lengths), dict(by_row), of or len(lengths)
    )


def advice(found: Lengths) -> str:
    """How the lengths stand to those of other runs, as a sentence: advice, there is no limit of that kind."""
    low, high = ADVISED
    if found.p95 <= low:
        return f"Short: 19 of 20 prompts have at most {found.p95:,} tokens, below the usual {low} to {high}."
    if found.p95 <= high:
        return f"Usual: 19 of 20 prompts have at most {found.p95:,} tokens, within {low} to {high}."
    longer = sum(length > high for length in found.by_row.values())
    return (
        f"Long: {longer:,} of {found.count:,} prompts have more than {high} tokens. That is no fault,"
        " but each token costs memory and time; what must hold is that prompt and completion fit into the context."
    )


def histogram(lengths: Sequence[int], bars: int = 24) -> tuple[Bin, ...]:
    """At most `bars` bars of one width. The last one reaches to the longest if that lies far behind p99."""
    ordered = sorted(lengths)
    low, longest = ordered[0], ordered[-1]
    high = ordered[max(0, math.ceil(0.99 * len(ordered)) - 1)]
    high = longest if longest <= 2 * high else high
    width = max(1, math.ceil((high - low + 1) / bars))
    counts: dict[int, int] = {}
    for length in ordered:
        at = min((length - low) // width, (high - low) // width + (length > high))
        counts[at] = counts.get(at, 0) + 1
    last = max(counts)
    return tuple(
        Bin(
            low + at * width,
            longest if at == last and longest > high else low + (at + 1) * width - 1,
            counts.get(at, 0),
        )
        for at in range(last + 1)
    )


def model_place(model: str, project: Path | None = None) -> str:
    """The model as the worker finds it: an existing folder by its absolute path, else the name as given."""
    folder = (project or Path()) / expanded(model)
    return str(folder.resolve()) if folder.is_dir() else model


def measure(
    worker: Worker,
    model: str,
    source: Source,
    answer: DatasetAnswer,
    *,
    revision: str = "",
    size: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] = never,
) -> Lengths | Problem:
    """Lengths of `size` prompts drawn evenly over the source, or of all if there are fewer.

    Without a size, `SAMPLE` of them, or `WITH_LIMIT` where the answer leaves out long ones.
    `worker` is a `Worker("tokenize")`, `model` comes from `model_place`. `progress` gets prompts done and to do.
    """
    drawn = sample(source, size or (WITH_LIMIT if answer.prompt_limit else SAMPLE), seed, cancelled)
    if isinstance(drawn, Problem):
        return drawn
    lengths = measure_rows(worker, model, drawn, answer, revision=revision, progress=progress)
    return lengths if isinstance(lengths, Problem) else summarise(lengths, source.rows or len(drawn))


def measure_rows(
    worker: Worker,
    model: str,
    rows: Sequence[tuple[int, Row]],
    answer: DatasetAnswer,
    *,
    revision: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, int] | Problem:
    """Length in tokens of each of these numbered rows that becomes a prompt, by row number."""
    prepare = prepare_function(answer)
    prepared = [(number, made["prompt"]) for number, row in rows if (made := prepare(row)) is not None]
    request = {"model": model, "revision": revision, "prompts": [prompt for _, prompt in prepared]}
    told = None if progress is None else lambda said: progress(int(said["done"]), len(prepared))
    found = worker.call("lengths", request, on_progress=told)
    if isinstance(found, Problem):
        return found
    return {number: int(length) for (number, _), length in zip(prepared, found["lengths"], strict=True)}


def render(worker: Worker, model: str, row: Row, answer: DatasetAnswer, *, revision: str = "") -> Rendered | Problem:
    """The prompt of `row` as the model sees it."""
    made = prepare_function(answer)(row)
    if made is None:
        return Problem("this row", "It becomes no prompt and is left out.", "See its faults, or look at another row.")
    found = worker.call("render", {"model": model, "revision": revision, "prompt": made["prompt"]})
    if isinstance(found, Problem):
        return found
    return Rendered(found["text"], int(found["tokens"]), bool(found["opens_think"]), tuple(found["pieces"]))
