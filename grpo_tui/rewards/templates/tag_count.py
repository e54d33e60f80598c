"""Template: tags counted, wherever they stand."""

from typing import Any

from grpo_tui.rewards.templates.pieces_between import signs_of
from grpo_tui.rewards.templates.text_of import text_of

TAG_COUNT_TAGS = ("reasoning", "answer")


def tag_count(completions: list[Any], **kwargs: Any) -> list[float]:
    """The share of opening and closing tags that stand there exactly once, 0 to 1; their order is not looked at."""
    signs = signs_of(TAG_COUNT_TAGS)
    texts = [text_of(completion) for completion in completions]
    return [sum(text.count(sign) == 1 for sign in signs) / len(signs) for text in texts]
