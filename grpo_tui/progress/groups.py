"""Which groups of completions teach nothing: how far the rewards of each group lie apart.

A group whose completions all get the same reward has zero advantage everywhere. TRL's own `frac_reward_zero_std`
misses such groups whenever a weight is not exact in binary (a float32 deviation of 1e-7 is not "close to 0" at its
tolerance of 1e-8) and means something else for `scale_rewards="batch"` and for `normalize_then_sum`.
So the share is computed here.
"""

import math
from collections.abc import Sequence

from grpo_tui.rewards.advantages import Reward, is_flat


def spread(group: Sequence[Reward]) -> float:
    """Highest minus lowest weighted reward; exactly 0 for a flat group, NaN when a reward is not finite."""
    given = [reward for reward in group if reward is not None]
    if not all(map(math.isfinite, given)):
        return math.nan
    return 0.0 if is_flat(group) else max(given) - min(given)


def share_without_signal(spreads: Sequence[float]) -> float | None:
    """Share of flat groups; None without groups. Non-finite rewards count: TRL sets those advantages to 0."""
    return sum(1 for value in spreads if value == 0 or math.isnan(value)) / len(spreads) if spreads else None
