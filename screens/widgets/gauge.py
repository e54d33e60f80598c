"""A gauge one row high: heavy rule for the filled part, light rule for the rest."""

from __future__ import annotations

from grpo_tui.screens.theme import Palette
from rich.text import Text

from .lines import Lines


def gauge(palette: Palette, width: int, fraction: float, role: str = "accent") -> Text:
    """A rule of `width` cells, `fraction` (cut to 0…1) of it heavy and in the colour of `role`."""
    filled = min(1.0, max(0.0, fraction)) * width
    whole = int(filled)
    half = whole < width and filled - whole >= 0.5
    return palette.text(("━" * whole + ("╸" if half else ""), role), ("─" * (width - whole - half), "border"))


class Gauge(Lines):
    """The gauge as a widget."""

    DEFAULT_CSS = """
    Gauge { height: 1; width: 1fr; }
    """

    def __init__(self, fraction: float = 0.0, role: str = "accent", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fraction, self._role = fraction, role

    def show(self, fraction: float, role: str = "accent") -> None:
        """Another filling."""
        self._fraction, self._role = fraction, role
        self.repaint()

    def paint(self, width: int, height: int) -> list[Text]:
        """The one line."""
        return [gauge(self.palette, width, self._fraction, self._role)]
