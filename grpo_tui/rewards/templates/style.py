"""Template: a penalty for unwanted phrases."""

import re
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

STYLE_UNWANTED = (r"\bas an ai\b", r"\bcertainly!", r"\bi hope this helps\b", r"\bgreat question\b")
STYLE_EACH = 0.25  # what one of them costs
STYLE_LONGEST = 20_000  # characters that are looked at


def style(completions: list[Any], **kwargs: Any) -> list[float]:
    """0 for text without unwanted phrases, less for each, at least -1; capitals do not matter. Never above 0."""
    unwanted = [re.compile(expression, re.IGNORECASE) for expression in STYLE_UNWANTED]
    texts = [text_of(completion)[:STYLE_LONGEST] for completion in completions]
    counts = [sum(sum(1 for _ in each.finditer(text)) for each in unwanted) for text in texts]
    return [-min(1.0, STYLE_EACH * count) for count in counts]
