"""Template: tags, all or nothing."""

from typing import Any

from grpo_tui.rewards.templates.pieces_between import pieces_between, signs_of
from grpo_tui.rewards.templates.text_of import text_of

TAGS_TAGS = ("reasoning", "answer")  # a tag that holds others: ("answer", ("value", "unit"))
TAGS_EMPTY = ()  # tags with which nothing need be said
TAGS_AROUND = False  # may text stand outside the tags?


def tags(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for exactly these tags, each once, in order and filled, nothing around them; 0 for anything less.

    A part of it does not pay, or the model would stop there.
    """
    return [1.0 if tags_accept(text_of(completion)) else 0.0 for completion in completions]


def tags_accept(text: str) -> bool:
    signs = signs_of(TAGS_TAGS)
    pieces = pieces_between(text, signs)
    if pieces is None:
        return False
    for before, piece, after in zip(["", *signs], pieces, [*signs, ""], strict=True):
        is_body = before.replace("<", "</") == after  # else it stands between two tags
        if is_body and not piece.strip() and before.strip("<>") not in TAGS_EMPTY:
            return False
        if not is_body and piece.strip() and not TAGS_AROUND:
            return False
    return True
