"""From rewards to advantages, as TRL's GRPOTrainer computes them (1.16, `_generate_and_score_completions`).

Pure Python in double precision; TRL works in float32. A reward of `None` is one that a function did not give (NaN in
TRL). `rewards` is always one row per completion and one column per function.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

Reward = float | None

EPSILON = 1e-4
"""Added to the standard deviation before dividing by it (TRL 1.16 `grpo_trainer.py`, "std_rewards + 1e-4")."""

FLAT_TOLERANCE = 1e-6
"""A group is flat when max − min < this · max(1, |r|): above float32 noise, below any intended difference."""

FLOAT32_MAX = 3.4028234663852886e38

SCALES = ("group", "batch", "none")
AGGREGATIONS = ("sum_then_normalize", "normalize_then_sum")

BINARY_DENOMINATOR = 1024
"""Weights whose fraction has a larger denominator leave rounding noise in the sums of a group."""


def scale_name(value: object) -> str:
    """TRL's `scale_rewards` as one of `SCALES`, as far as it is one: True is `group` and False is `none`."""
    return {"True": "group", "False": "none"}.get(str(value), str(value))


def weighted_sum(row: Sequence[Reward], weights: Sequence[float]) -> Reward:
    """Σ weight · reward over the functions that gave one; None when none did (TRL: `nansum`, unscorable rows NaN).

    A function of weight 0 adds nothing, not even an infinite reward (0 · ∞ is NaN, which `nansum` drops). But it counts
    as having given one: a completion that only such a function scored has the reward 0 in TRL, instead of none.
    """
    given = [reward * weight for reward, weight in zip(row, weights, strict=True) if reward is not None]
    return sum(product for product in given if not math.isnan(product)) if given else None


def weighted_sums(rewards: Sequence[Sequence[Reward]], weights: Sequence[float]) -> list[Reward]:
    """The weighted sum of every completion, in order."""
    return [weighted_sum(row, weights) for row in rewards]


def advantages(
    rewards: Sequence[Sequence[Reward]],
    weights: Sequence[float],
    group_size: int,
    scale: str = "group",
    aggregation: str = "sum_then_normalize",
) -> list[float]:
    """The advantage of every completion; neighbours of `group_size` share a prompt.

    `scale` and `aggregation` are TRL's `scale_rewards` and `multi_objective_aggregation`. Completions that no function
    scored get 0. Raises ValueError for a number of completions that is no multiple of the group, or an unknown word.
    """
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} completions are no whole number of groups of {group_size}")
    if scale not in SCALES or aggregation not in AGGREGATIONS:
        raise ValueError(f"unknown scale {scale!r} or aggregation {aggregation!r}")
    if aggregation == "normalize_then_sum":
        sums = weighted_sums(normalised_columns(rewards, group_size), weights)
        # A reward that is alone in its group has no deviation: its term is nothing, and the sum 0 unless unscorable.
        sums = [None if unscored(row) else total or 0.0 for row, total in zip(rewards, sums, strict=True)]
        return [_finite(value) for value in _normalised(sums, sums)]
    sums = weighted_sums(rewards, weights)
    result: list[float] = []
    for group in groups(sums, group_size):
        spread = {"group": group, "batch": sums, "none": None}[scale]
        result += [_finite(value) for value in _normalised(group, spread)]
    return result


def unscored(row: Sequence[Reward]) -> bool:
    """No function gave this completion a reward."""
    return all(reward is None for reward in row)


def groups(values: Sequence[Reward], group_size: int) -> list[Sequence[Reward]]:
    """Neighbours of `group_size`; a shorter rest at the end is its own group."""
    return [values[start : start + group_size] for start in range(0, len(values), group_size)]


def is_flat(group: Sequence[Reward]) -> bool:
    """All rewards of the group are equal (or missing): its advantages are zero and it teaches nothing."""
    given = [reward for reward in group if reward is not None and not math.isnan(reward)]
    if len(given) < 2:
        return True
    return max(given) - min(given) < FLAT_TOLERANCE * max(1.0, *map(abs, given))


def flat_share(rewards: Sequence[Reward], group_size: int) -> float | None:
    """Share of groups without signal, from the weighted sums; None without groups.

    TRL's own `frac_reward_zero_std` misses them: it asks whether the float32 standard deviation is within 1e-8 of zero,
    and equal rewards such as 1.3 leave about 1e-7 there once a group has eight members.
    """
    parts = groups(rewards, group_size)
    return sum(map(is_flat, parts)) / len(parts) if parts else None


def mean(values: Sequence[Reward]) -> float:
    """Mean of what is given; NaN without any."""
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else math.nan


def standard_deviation(values: Sequence[Reward]) -> float:
    """Unbiased standard deviation of what is given; NaN below two values (TRL's `nanstd`)."""
    given = [value for value in values if value is not None]
    if len(given) < 2:
        return math.nan
    centre = mean(given)
    return math.sqrt(sum((value - centre) * (value - centre) for value in given) / (len(given) - 1))


def is_binary_exact(weight: float) -> bool:
    """Whether sums of rewards under this weight are free of rounding: a fraction such as 1, 0.5, 0.25, 0.125."""
    return math.isfinite(weight) and Fraction(weight).denominator <= BINARY_DENOMINATOR


def weight_warning(name: str, weight: float) -> str:
    """What is to be said about a weight; empty when there is nothing."""
    if not math.isfinite(weight):
        return f"The weight of {name} is {weight}: it must be a finite number."
    if weight < 0:
        return f"The weight of {name} is negative: let the function return the penalty, so that logs stay readable."
    if is_binary_exact(weight):
        return ""
    return (
        f"The weight {weight:g} of {name} has no exact binary form: groups of equal rewards keep rounding noise and "
        f"TRL's frac_reward_zero_std reports them as having signal. {_nearest_exact(weight):g} is exact."
    )


def finite_or_text(value: Reward) -> Reward | str:
    """A number as strict JSON can hold it: infinities and NaN as text."""
    return value if value is None or math.isfinite(value) else str(value)


def _nearest_exact(weight: float) -> float:
    """The nearest power of two or 3/4 of one."""
    exponent = math.floor(math.log2(abs(weight)))
    near = [2.0 ** (exponent + step) * part for step in (0, 1) for part in (1.0, 0.75)]
    return min(near, key=lambda candidate: abs(candidate - abs(weight)))


def _normalised(values: Sequence[Reward], spread: Sequence[Reward] | None) -> list[float]:
    """(value − mean) / (deviation of `spread` + epsilon); no division without `spread`. Missing values: NaN."""
    centre = mean(values)
    divisor = 1.0
    if spread is not None:
        # A single value has no deviation in TRL's formula either: 0 by decree where there is but one in all.
        divisor = (standard_deviation(spread) if len(spread) > 1 else 0.0) + EPSILON
    return [math.nan if value is None else (value - centre) / divisor for value in values]


def normalised_columns(rewards: Sequence[Sequence[Reward]], group_size: int) -> list[list[Reward]]:
    """Each function's rewards with mean 0 and deviation 1 in every group: the terms of `normalize_then_sum`."""
    columns = [
        [value for group in groups(column, group_size) for value in _normalised(group, group)]
        for column in zip(*rewards, strict=True)
    ]
    return [[None if math.isnan(value) else value for value in row] for row in zip(*columns, strict=True)]


def _finite(value: float) -> float:
    """torch.nan_to_num: NaN becomes 0, infinities the largest float32."""
    if math.isnan(value):
        return 0.0
    return math.copysign(FLOAT32_MAX, value) if math.isinf(value) else value
