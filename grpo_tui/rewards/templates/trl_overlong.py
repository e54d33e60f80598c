"""Template: TRL's own get_soft_overlong_punishment."""

from typing import Any

TRL_OVERLONG_LARGEST = 512  # tokens: max_completion_length of the training; above it, it never bites
TRL_OVERLONG_FADE = 128  # tokens before that over which the penalty grows


def trl_overlong(completion_ids: list[Any], completions: list[Any] | None = None, **kwargs: Any) -> list[float]:
    """0 for a length with room to spare, falling to -1 at the largest one; never above 0."""
    from trl.rewards import get_soft_overlong_punishment  # noqa: TID251  written into rewards.py, not run here

    punishment = get_soft_overlong_punishment(TRL_OVERLONG_LARGEST, TRL_OVERLONG_FADE)
    rewards: list[float] = punishment(completion_ids=completion_ids)
    return rewards
