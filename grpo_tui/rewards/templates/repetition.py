"""Template: a penalty for saying the same again."""

import re
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

REPETITION_WORDS = 4  # words that make up one phrase
REPETITION_FREE = 0.2  # share of repeated phrases that costs nothing: prose and sums repeat some


def repetition(completions: list[Any], **kwargs: Any) -> list[float]:
    """0 for text whose phrases are new, falling to -1 when all are said before; never above 0."""
    return [0.0 - repetition_of(text_of(completion)) for completion in completions]


def repetition_of(text: str) -> float:
    words = re.findall(r"\w+|[^\w\s]", text.casefold())
    phrases = list(zip(*(words[at:] for at in range(REPETITION_WORDS)), strict=False))
    repeated = 1 - len(set(phrases)) / len(phrases) if phrases else 0.0
    return max(0.0, repeated - REPETITION_FREE) / (1 - REPETITION_FREE)
