"""Template: TRL's own reasoning_accuracy_reward."""

from typing import Any

from grpo_tui.rewards.templates.text_of import text_of


def trl_reasoning_accuracy(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    r"""1 if TRL's own verifier finds the right answer after </think>, else 0, also for thinking that never ended.

    It reads \boxed{…} and $…$ only: "The answer is 72" earns nothing.
    """
    from trl.rewards import reasoning_accuracy_reward  # noqa: TID251  written into rewards.py, not run here

    chats = [[{"role": "assistant", "content": text_of(completion)}] for completion in completions]  # its only shape
    rights = ["" if right is None else str(right) for right in answer]  # a number would be passed over in silence
    rewards: list[float | None] = reasoning_accuracy_reward(chats, rights)
    return rewards
