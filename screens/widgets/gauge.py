"""A gauge one row high: heavy rule for the filled part, light rule for the rest."""

from __future__ import annotations

from grpo_tui.screens.theme import Palette
from rich.text import Text


def gauge(palette: Palette, width: int, fraction: float, role: str = "accent") -> Text:
    """A rule of `width` cells, `fraction` (cut to 0…1) of it heavy and in the colour of `role`."""
    filled = min(1.0, max(0.0, fraction)) * width
    whole = int(filled)
    half = whole < width and filled - whole >= 0.5
    return palette.text(("━" * whole + ("╸" if half else ""), role), ("─" * (width - whole - half), "border"))
