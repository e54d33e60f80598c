"""Completions with the rewards they got, from the bench or from a run: what other weights or code would have done.

Pure: nothing is trained and nothing runs here. New code is run by the bench, and its rewards are handed in.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from grpo_tui import regular
from grpo_tui.inert import whole_characters
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward, advantages, flat_share, groups, weighted_sums

SAME = 1e-9
"""Weighted rewards and advantages that lie no further apart count as equal."""

LARGEST = 2**30
"""Bytes of a completions file."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One batch of completions as the trainer compared them: neighbours of `group_size` share a prompt."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    rewards: tuple[tuple[Reward, ...], ...]
    """One row per completion, one column per function, before the weights."""

    group_size: int
    prompts: tuple[str, ...] = ()
    """As text, one per completion; empty: not known."""

    completions: tuple[str, ...] = ()
    scale: str = "group"
    aggregation: str = "sum_then_normalize"
    step: int = 0
    """Of the run they come from; 0: of no run."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How the completions of a batch stand to one another."""

    weights: tuple[float, ...]
    weighted: tuple[Reward, ...]
    advantages: tuple[float, ...]
    ranks: tuple[int | None, ...]
    """Within the group, from 1, equals sharing the better one; None without a reward."""

    flat_share: float
    """Share of the groups without signal."""


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Before and after a change of the rewards. Completions and groups are counted from 0."""

    before: Standing
    after: Standing
    moved: tuple[int, ...]
    """Completions whose rank in their group changed."""

    turned: tuple[int, ...]
    """Completions that would have been pushed the other way, or no longer, or now at all: their advantage has another
    sign.
    """

    other_best: tuple[int, ...]
    """Groups of which another completion would have been the best."""

    groups: int
    """How many groups there are."""

    @property
    def nothing(self) -> bool:
        """The change would have made no difference."""
        return not self.moved and not self.turned and self.before.flat_share == self.after.flat_share

    @property
    def sentence(self) -> str:
        """What the change would have done."""
        count, size = len(self.before.ranks), len(self.before.ranks) // max(1, self.groups)
        if self.nothing:
            return f"No completion of {count} would have stood otherwise in its group of {size}."
        return (
            f"{len(self.moved)} of {count} completions would have had another rank, {len(self.turned)} would have been "
            f"pushed another way; {len(self.other_best)} of {self.groups} groups had another best one. Without signal: "
            f"{self.before.flat_share:.0%} of the groups before, {self.after.flat_share:.0%} after."
        )


def standing(stored: Stored) -> Standing:
    """The completions as they were compared."""
    weighted = tuple(weighted_sums(stored.rewards, stored.weights))
    size = stored.group_size
    # Where each function is normalised first, ranks follow the advantages: the sums were never compared.
    compared: Sequence[Reward] = weighted
    given = advantages(stored.rewards, stored.weights, size, stored.scale, stored.aggregation)
    if stored.aggregation == "normalize_then_sum":
        compared = [None if total is None else value for total, value in zip(weighted, given, strict=True)]
    return Standing(
        weights=stored.weights,
        weighted=weighted,
        advantages=tuple(given),
        ranks=tuple(rank for group in groups(compared, size) for rank in _ranks(group)),
        flat_share=flat_share(compared, size) or 0.0,
    )


def what_if(
    stored: Stored,
    *,
    names: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
    rewards: Sequence[Sequence[Reward]] | None = None,
    scale: str | None = None,
    aggregation: str | None = None,
) -> WhatIf | Problem:
    """What other weights, or other `rewards` of the same completions, would have changed. None: as it was."""
    changed = replace(
        stored,
        names=tuple(stored.names if names is None else names),
        weights=tuple(stored.weights if weights is None else weights),
        rewards=tuple(map(tuple, stored.rewards if rewards is None else rewards)),
        scale=stored.scale if scale is None else scale,
        aggregation=stored.aggregation if aggregation is None else aggregation,
    )
    problem = check(stored) or check(changed)
    if problem:
        return problem
    if len(changed.rewards) != len(stored.rewards):
        what = f"There are rewards of {len(changed.rewards)} completions for {len(stored.rewards)}."
        return Problem("rewards", what, "Score the same completions.")
    before, after = standing(stored), standing(changed)
    size = stored.group_size
    pairs = list(zip(groups(before.ranks, size), groups(after.ranks, size), strict=True))
    return WhatIf(
        before=before,
        after=after,
        moved=tuple(i for i, pair in enumerate(zip(before.ranks, after.ranks, strict=True)) if pair[0] != pair[1]),
        turned=tuple(
            index
            for index, pair in enumerate(zip(before.advantages, after.advantages, strict=True))
            if _sign(pair[0]) != _sign(pair[1])
        ),
        other_best=tuple(index for index, (old, new) in enumerate(pairs) if _best(old) != _best(new)),
        groups=len(pairs),
    )


def check(stored: Stored) -> Problem | None:
    """Why these cannot be compared."""
    count = len(stored.rewards)
    if stored.group_size < 1 or not count or count % stored.group_size:
        what = f"{count} completions are no whole number of groups of {stored.group_size}."
        return Problem("completions", what, "Give every prompt the same number of completions.")
    if len(stored.weights) != len(stored.names) or any(len(row) != len(stored.names) for row in stored.rewards):
        what = f"There are {len(stored.weights)} weights for {len(stored.names)} functions."
        return Problem("weights", what, f"Give one for each of {', '.join(stored.names)}.")
    return None


def read_completions(path: Path) -> list[dict[str, Any]] | Problem:
    """The lines of a completions file (JSON lines); each has `completion`, and what else the line gave."""
    try:
        lines = regular.read(path, LARGEST).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        return Problem(str(path), f"The file cannot be read: {why}.", "Give a UTF-8 file of JSON lines.")
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
        if "prompt" in row and not _is_prompt(row["prompt"]):
            what = "Its prompt is neither text nor a list of chat messages."
            return Problem(f"{path}:{number}", what, 'Write "prompt": "text" or [{"role": "user", "content": "text"}].')
        rows.append({**row, "completion": whole_characters(row["completion"])})
    if len({"prompt" in row for row in rows}) > 1:
        return Problem(str(path), "Some lines have a prompt and some have none.", "Give each line its prompt, or none.")
    return rows


def _is_prompt(value: Any) -> bool:
    """Text, or chat messages, of which there is at least one."""
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)
    )


def group_size_of(prompts: Sequence[Any]) -> int | Problem:
    """How many neighbours share a prompt, when it is the same number for all."""
    if not prompts:
        return Problem("completions", "There are no prompts beside them.", "Give each line its prompt.")
    runs = [1]
    for before, after in pairwise(prompts):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    size = math.gcd(*runs)  # the same prompt may come twice in a row
    if size == 1 and len(prompts) > 1:
        what = "The completions of one prompt do not stand together, or are not equally many for all."
        return Problem("completions", what, "Sort them by prompt, or say how many belong together.")
    return size


def _ranks(values: Sequence[Reward]) -> list[int | None]:
    given = sorted(value for value in values if value is not None)
    return [None if value is None else 1 + len(given) - bisect_right(given, value + SAME) for value in values]


def _sign(value: float) -> int:
    return 0 if abs(value) < SAME else 1 if value > 0 else -1


def _best(ranks: Sequence[Reward]) -> frozenset[int]:
    return frozenset(index for index, rank in enumerate(ranks) if rank == 1)
