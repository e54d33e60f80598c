"""Template: TRL's own think_format_reward."""

from typing import Any

from grpo_tui.rewards.templates.text_of import text_of


def trl_think_format(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for <think>…</think> at the very start and anything, even nothing, after it, else 0.

    Always 0 where the chat template has already written <think> into the prompt.
    """
    from trl.rewards import think_format_reward  # noqa: TID251  written into rewards.py, not run here

    chats = [[{"role": "assistant", "content": text_of(completion)}] for completion in completions]  # its only shape
    rewards: list[float] = think_format_reward(chats)
    return rewards
