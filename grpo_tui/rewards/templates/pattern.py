"""Template: a regular expression for the whole completion."""

import re
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

PATTERN_EXPRESSION = r"[0-9]{1,12}"
PATTERN_LONGEST = 10_000  # characters; longer text is not searched: some expressions take very long to say no


def pattern(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 if the expression matches the whole completion, from its first character to its last, else 0."""
    whole = re.compile(PATTERN_EXPRESSION)
    texts = [text_of(completion) for completion in completions]
    return [float(len(text) <= PATTERN_LONGEST and whole.fullmatch(text) is not None) for text in texts]
