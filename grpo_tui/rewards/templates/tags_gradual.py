"""Template: tags, paid step by step."""

import re
from typing import Any

from grpo_tui.rewards.templates.pieces_between import signs_of
from grpo_tui.rewards.templates.text_of import text_of

TAGS_GRADUAL_TAGS = ("reasoning", "answer")  # a tag that holds others: ("answer", ("value", "unit"))
TAGS_GRADUAL_EMPTY = ()  # tags with which nothing need be said
TAGS_GRADUAL_AROUND = False  # may text stand outside the tags?
TAGS_GRADUAL_REPEATED = -0.25  # for a tag that stands there twice: scattering tags must not pay
TAGS_GRADUAL_WRONG = 0.25  # at most, when a tag stands in a wrong place or is empty


def tags_gradual(completions: list[Any], **kwargs: Any) -> list[float]:
    """A step from 0 towards 1 for each tag in its place, the last for nothing around them; -0.25 for repeated tags.

    Each step needs the one before it.
    """
    return [tags_gradual_of(text_of(completion)) for completion in completions]


def tags_gradual_of(text: str) -> float:
    signs = signs_of(TAGS_GRADUAL_TAGS)
    parts = re.split("(" + "|".join(map(re.escape, signs)) + ")", text)
    pieces, found = parts[::2], parts[1::2]
    if len(set(found)) < len(found):
        return TAGS_GRADUAL_REPEATED
    steps, clean = 0, not pieces[0].strip()
    for at, (sign, wanted) in enumerate(zip(found, signs, strict=False)):
        opened = found[at - 1] if at else ""
        is_body = bool(at) and sign == opened.replace("<", "</")
        if sign != wanted:
            break
        if is_body and not pieces[at].strip() and opened.strip("<>") not in TAGS_GRADUAL_EMPTY:
            break
        clean = clean and (is_body or not pieces[at].strip())
        steps += 1
    reward = steps / (len(signs) + 1)
    if steps < len(found):
        return min(reward, TAGS_GRADUAL_WRONG)
    is_whole = steps == len(signs) and ((clean and not pieces[-1].strip()) or TAGS_GRADUAL_AROUND)
    return 1.0 if is_whole else reward
