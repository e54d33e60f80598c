"""The open panel: one top rule with its number, title and reading in it, no sides, no bottom."""

from __future__ import annotations

from grpo_tui.screens.theme import Palette
from rich.text import Text


def head(
    palette: Palette,
    width: int,
    title: str,
    *,
    number: str = "",
    reading: Text | None = None,
    focused: bool = False,
) -> Text:
    """The rule over a panel, `width` cells: `▌` and accent when focused; a reading that does not fit gives way."""
    rule = "accent" if focused else "border"
    parts = palette.text(("▌" if focused else "─", rule))
    if number:
        parts.append_text(palette.text((f" {number}", "accent" if focused else "faint")))
    parts.append_text(palette.text((f" {title} ", "text bold" if focused else "muted bold")))
    tail = palette.text(("─", rule))
    if reading is not None and reading.cell_len:
        room = width - parts.cell_len - 4
        if reading.cell_len > room >= 8:
            reading = reading.copy()
            reading.truncate(room, overflow="ellipsis")
        if reading.cell_len <= room:
            tail = palette.text((" ", rule), reading, (" ─", rule))
    between = max(0, width - parts.cell_len - tail.cell_len)
    line = palette.text(parts, ("─" * between, rule), tail)
    if line.cell_len > width:
        line.truncate(width)
    return line
