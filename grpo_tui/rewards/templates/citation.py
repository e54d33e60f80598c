"""Template: quotations that really stand in a source."""

import re
from typing import Any

from grpo_tui.rewards.templates.after_reasoning import after_reasoning
from grpo_tui.rewards.templates.text_of import text_of

CITATION_LEAST = 15  # characters of a quotation; shorter ones stand in any text
CITATION_MOST = 5  # quotations
CITATION_SHARE = 0.5  # of the source that may be quoted: all of it proves nothing
CITATION_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|«([^»]+)»')


def citation(completions: list[Any], source: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the text quotes its source, a few times and each time word by word, else 0; None without a source."""
    texts = [text_of(completion) for completion in completions]
    return [citation_of(text, " ".join(str(each or "").split())) for text, each in zip(texts, source, strict=True)]


def citation_of(text: str, source: str) -> float | None:
    if not source:
        return None
    quoted = [" ".join("".join(parts).split()) for parts in CITATION_QUOTED.findall(after_reasoning(text))]
    is_little = len(quoted) <= CITATION_MOST and sum(map(len, quoted)) <= CITATION_SHARE * len(source)
    is_true = bool(quoted) and all(len(each) >= CITATION_LEAST and each in source for each in quoted)
    return 1.0 if is_little and is_true else 0.0
