"""Template: a length band."""

from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.text_of import text_of

LENGTH_LOW = 1  # tokens
LENGTH_HIGH = 200
LENGTH_FADE = 100  # tokens below and above, over which the reward falls to 0
LENGTH_GATED = True  # nothing for a completion without one final answer


def length(completions: list[Any], completion_ids: list[Any], **kwargs: Any) -> list[float]:
    """1 for a length within the band, falling to 0 on either side; 0 for filling words and for no answer."""
    texts = [text_of(completion) for completion in completions]
    return [length_of(text, ids) for text, ids in zip(texts, completion_ids, strict=True)]


def length_of(text: str, ids: list[int]) -> float:
    triples = list(zip(ids, ids[1:], ids[2:], strict=False))
    if not (answer_in(text) if LENGTH_GATED else text.strip()) or len(set(triples)) < len(triples) / 2:
        return 0.0  # nothing said, or the same words over and over to fill the band
    outside = max(LENGTH_LOW - len(ids), len(ids) - LENGTH_HIGH, 0)
    return max(0.0, 1.0 - outside / LENGTH_FADE)
