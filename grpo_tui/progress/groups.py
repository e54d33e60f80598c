"""Which groups of completions teach nothing, computed from their rewards.

A group whose completions all get the same reward has zero advantage everywhere. TRL's own `frac_reward_zero_std` misses
such groups whenever a weight is not exact in binary (a float32 deviation of 1e-7 is not "close to 0" at its tolerance
of 1e-8) and means something else for `scale_rewards="batch"` and for `normalize_then_sum`. So the share is computed
here.
"""

import math
from collections.abc import Sequence

FLAT = 1e-6
"""Rewards closer than this times max(1, largest absolute reward) are equal: float32 keeps about seven digits."""


def weighted(rewards: Sequence[Sequence[float | None]], weights: Sequence[float]) -> list[float | None]:
    """Weighted sum of each completion, rewards shape (completions, functions); None or NaN counts nothing (TRL's
    nansum).

    A completion that no function scored has None.
    """
    sums: list[float | None] = []
    for row in rewards:
        scored = [
            weight * reward
            for reward, weight in zip(row, weights, strict=True)
            if reward is not None and not math.isnan(reward)
        ]
        sums.append(sum(scored) if scored else None)
    return sums


def spreads(groups: Sequence[Sequence[float | None]]) -> list[float]:
    """Highest minus lowest reward of each group; exactly 0 where it is flat, NaN where a reward is not finite."""
    found = []
    for group in groups:
        scored = [reward for reward in group if reward is not None]
        if not all(map(math.isfinite, scored)):
            found.append(math.nan)
            continue
        spread = max(scored) - min(scored) if scored else 0.0
        found.append(spread if spread >= FLAT * max([1.0, *map(abs, scored)]) else 0.0)
    return found


def flat_share(spread: Sequence[float]) -> float | None:
    """Share of groups without signal; one with a non-finite reward is among them (TRL sets its advantages to 0)."""
    if not spread:
        return None
    return sum(1 for value in spread if value == 0 or math.isnan(value)) / len(spread)
