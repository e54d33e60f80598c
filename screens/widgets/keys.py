"""The last line: the keys that work now, and at the right how things stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_tui.screens.theme import Palette
from rich.text import Text
from textual.binding import ActiveBinding
from textual.screen import Screen

from .lines import Lines

HELP = "?"


@dataclass(frozen=True)
class Key:
    """One key and the verb beside it."""

    sign: str
    verb: str


def key_line(palette: Palette, width: int, keys: Sequence[Key], status: Text | None = None) -> Text:
    """Keys left, status right, in `width` cells. Keys drop from the right until it fits; `?` always stays."""
    right = status if status is not None else palette.text()

    def left(shown: Sequence[Key]) -> Text:
        return palette.text(*(part for key in shown for part in ((f" {key.sign}", "accent bold on_surface"),
                                                                 (f" {key.verb} ", "muted on_surface"))))  # fmt: skip

    shown = list(keys)
    while len(shown) > 1 and left(shown).cell_len + right.cell_len > width:
        last = max(index for index, key in enumerate(shown) if key.sign != HELP)
        del shown[last]
    line = left(shown)
    if line.cell_len + right.cell_len > width:
        right = palette.text()
        if line.cell_len > width:
            line.truncate(width)
    line.append(" " * (width - line.cell_len - right.cell_len), palette.style("on_surface"))
    line.append_text(right)
    return line


def keys_of(screen: Screen[object]) -> list[Key]:
    """The keys of `screen` that are shown and work now, in the order in which they were declared, each once."""
    seen: dict[tuple[str, str], Key] = {}
    for active in screen.active_bindings.values():
        if active.binding.show and active.enabled:
            key = Key(_sign(screen, active), active.binding.description)
            seen.setdefault((key.sign, key.verb), key)
    return list(seen.values())


def _sign(screen: Screen[object], active: ActiveBinding) -> str:
    return active.binding.key_display or screen.app.get_key_display(active.binding)


class KeyLine(Lines):
    """The last line of a screen, made of the screen's own bindings."""

    DEFAULT_CSS = """
    KeyLine { dock: bottom; height: 1; width: 1fr; background: $surface; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._status: Text | None = None

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.repaint())
        self.call_after_refresh(self.repaint)

    def report(self, status: Text | None) -> None:
        """Show `status` at the right end."""
        self._status = status
        self.repaint()

    def paint(self, width: int, height: int) -> list[Text]:
        """The one line."""
        return [key_line(self.palette, width, keys_of(self.screen), self._status)]
