"""Template: words that should be said."""

import re
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

KEYWORDS_WORDS = ("because",)
KEYWORDS_MOST = 0.25  # share of all words that they may make up: more of them is a list, and earns nothing


def keywords(completions: list[Any], **kwargs: Any) -> list[float]:
    """The share of the words that are said, each at least once and whole, 0 to 1; 0 for a list of them."""
    return [keywords_of(text_of(completion)) for completion in completions]


def keywords_of(text: str) -> float:
    text = text.casefold()
    counts = [len(re.findall(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text)) for word in KEYWORDS_WORDS]
    if sum(counts) > KEYWORDS_MOST * len(text.split()):
        return 0.0
    return sum(count > 0 for count in counts) / len(counts)
