"""Part: a text cut at the tags it should have."""

from typing import Any


def signs_of(tags: tuple[Any, ...]) -> list[str]:
    """Opening and closing tags in order. A tag that holds others is written (name, (its tags))."""
    signs = []
    for tag in tags:
        name, inside = (tag, ()) if isinstance(tag, str) else tag
        signs += [f"<{name}>", *signs_of(inside), f"</{name}>"]
    return signs


def pieces_between(text: str, signs: list[str]) -> list[str] | None:
    """The text before, between and after the signs; None unless each stands there once, in this order."""
    if any(text.count(sign) != 1 for sign in signs):
        return None
    pieces = []
    for sign in signs:
        piece, found, text = text.partition(sign)
        if not found:
            return None
        pieces.append(piece)
    return [*pieces, text]
