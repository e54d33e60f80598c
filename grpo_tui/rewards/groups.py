"""Completions in groups of one prompt, as the bench scores them and as a completions file keeps them."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_tui import atomic
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.rewards.bench import TIMEOUT, ScoreRequest, columns_of, time_limit
from grpo_tui.rewards.sampling import Samples
from grpo_tui.rewards.stored import group_size_of, read_completions

_OURS = ("completion_ids", "finished", "data_row")
"""What `save` writes beside the columns of the data."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Completions to score: neighbours of `size` share a prompt."""

    rows: tuple[Mapping[str, Any], ...]
    """One per completion: `completion`, and where they are known `prompt` and the columns of the data."""

    size: int
    origin: str
    """Where they come from, in a few words."""

    ids: tuple[tuple[int, ...] | None, ...] = ()
    """Tokens of each completion as the model wrote them; empty, or None for one: not known."""

    finished: tuple[bool | None, ...] = ()
    """Whether each came to its end; empty, or None for one: not known."""

    numbers: tuple[int, ...] = ()
    """Row of each group in the data, from 0; empty: not known."""

    @property
    def cut_share(self) -> float | None:
        """Share of the completions that were cut; None where it is not known."""
        known = [each for each in self.finished if each is not None]
        return known.count(False) / len(known) if known else None


def made(samples: Samples, prepared: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> Groups:
    """What a model made of the `prepared` rows, which have these `numbers` in the data."""
    size = samples.generations
    return Groups(
        rows=tuple(
            {**prepared[at // size], "completion": completion.text} for at, completion in enumerate(samples.completions)
        ),
        size=size,
        origin=samples.origin,
        ids=tuple(each.ids for each in samples.completions),
        finished=tuple(each.finished for each in samples.completions),
        numbers=tuple(numbers),
    )


def read(path: Path) -> Groups | Problem:
    """The groups of a completions file: one group without prompts, groups of one where the prompts come unevenly."""
    lines = read_completions(path)
    if isinstance(lines, Problem):
        return lines
    if not lines:
        return Problem(str(path), "There is no completion in it.", 'Write a line of {"completion": "text"} for each.')
    prompts = [line["prompt"] for line in lines if "prompt" in line]
    size = group_size_of(prompts) if prompts else len(lines)
    if isinstance(size, Problem):
        size = 1
    numbers = [line.get("data_row") for line in lines[::size]]
    known = [number - 1 for number in numbers if isinstance(number, int) and 0 < number <= sys.maxsize]
    return Groups(
        rows=tuple({name: value for name, value in line.items() if name not in _OURS} for line in lines),
        size=size,
        origin=one_line(path.name, 200),
        ids=tuple(_whole_numbers(line.get("completion_ids")) for line in lines),
        finished=tuple(value if isinstance(value := line.get("finished"), bool) else None for line in lines),
        numbers=tuple(known) if len(known) == len(numbers) else (),
    )


def save(path: Path, groups: Groups) -> Problem | None:
    """Write the groups as a completions file, which `read` gives back."""
    count = len(groups.rows)
    extra = zip(
        groups.ids or [None] * count,
        groups.finished or [None] * count,
        (groups.numbers[at // groups.size] + 1 if groups.numbers else None for at in range(count)),
        strict=True,
    )
    lines = [
        json.dumps({**row, **dict(zip(_OURS, values, strict=True))}, ensure_ascii=False, default=str)
        for row, values in zip(groups.rows, extra, strict=True)
    ]
    try:
        atomic.write(path, "\n".join(lines) + "\n")
    except (OSError, UnicodeEncodeError) as error:
        return Problem(str(path), f"It cannot be written: {error}.", "Check folder and disk.")
    return None


def request(
    groups: Groups,
    *,
    path: Path,
    names: tuple[str, ...],
    weights: tuple[float, ...],
    tokenizer: str = "",
    answer_column: str = "",
    timeout: float = TIMEOUT,
    scale: str = "group",
    aggregation: str = "sum_then_normalize",
) -> ScoreRequest:
    """What the bench is asked, to score the groups with functions of the file at `path`."""
    return ScoreRequest(
        path=path,
        names=names,
        weights=weights,
        completions=tuple(row["completion"] for row in groups.rows),
        prompts=tuple(row["prompt"] for row in groups.rows if "prompt" in row),
        completion_ids=groups.ids,
        columns=columns_of(groups.rows),
        answer_column=answer_column,
        group_size=groups.size,
        scale=scale,
        aggregation=aggregation,
        tokenizer=tokenizer,
        timeout=time_limit(timeout, len(groups.rows)),
    )


def _whole_numbers(value: Any) -> tuple[int, ...] | None:
    """Tokens as a line gives them; None where it gives none."""
    if not isinstance(value, list) or not value or not all(isinstance(each, int) for each in value):
        return None
    return tuple(value)
