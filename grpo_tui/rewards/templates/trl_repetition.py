"""Template: TRL's own get_repetition_penalty_reward."""

from typing import Any

TRL_REPETITION_TOKENS = 3  # that make up one phrase


def trl_repetition(completion_ids: list[Any], completions: list[Any] | None = None, **kwargs: Any) -> list[float]:
    """0 for tokens whose phrases are new, falling towards -1 when all are repeated; never above 0."""
    from trl.rewards import get_repetition_penalty_reward  # noqa: TID251  written into rewards.py, not run here

    rewards: list[float] = get_repetition_penalty_reward(TRL_REPETITION_TOKENS)(completion_ids=completion_ids)
    return rewards
