"""Template: TRL's own get_cosine_scaled_reward."""

from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

TRL_COSINE_LARGEST = 512  # tokens: max_completion_length of the training


def trl_cosine(
    completions: list[Any], completion_ids: list[Any], answer: list[Any], **kwargs: Any
) -> list[float | None]:
    """0.5 to 1 for a right answer, the shorter the more; -1 to -0.5 for a wrong one, the longer the more.

    It holds correctness itself: do not add another reward for it. None where TRL cannot read the right answer.
    """
    from trl.rewards import get_cosine_scaled_reward  # noqa: TID251  written into rewards.py, not run here

    chats = [[{"role": "assistant", "content": text_of(completion)}] for completion in completions]  # its only shape
    rights = ["" if right is None else str(right) for right in answer]  # a number would be passed over in silence
    cosine = get_cosine_scaled_reward(TRL_COSINE_LARGEST)
    rewards: list[float | None] = cosine(completions=chats, solution=rights, completion_ids=completion_ids)
    return rewards
