"""Template: a penalty near the largest length."""

from typing import Any

OVERLONG_LARGEST = 512  # tokens: max_completion_length of the training; above it, it never bites
OVERLONG_FADE = 128  # tokens before that over which the penalty grows


def overlong(completion_ids: list[Any], completions: list[Any] | None = None, **kwargs: Any) -> list[float]:
    """0 for a length with room to spare, falling to -1 at the largest one (DAPO, equation 13); never above 0."""
    start = OVERLONG_LARGEST - OVERLONG_FADE
    return [-min(1.0, max(0, len(ids) - start) / OVERLONG_FADE) for ids in completion_ids]
