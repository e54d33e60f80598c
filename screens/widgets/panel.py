"""The open panel: one top rule with its number, title and reading in it, no sides, no bottom."""

from __future__ import annotations

from grpo_tui.screens.theme import Palette, palette_of
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.reactive import reactive

from .lines import Lines


def head(palette: Palette, width: int, title: str, *, number: str = "", reading: Text | None = None,
         focused: bool = False) -> Text:  # fmt: skip
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


class PanelHead(Lines):
    """The rule of the panel around it."""

    DEFAULT_CSS = """
    PanelHead { dock: top; height: 1; width: 1fr; }
    """

    def paint(self, width: int, height: int) -> list[Text]:
        """The one line."""
        panel = self.parent
        if not isinstance(panel, Panel):
            return []
        return [head(self.palette, width, panel.title, number=panel.number, reading=panel.reading, focused=panel.lit)]


class Panel(Vertical):
    """A container under an open rule. It is lit while it, or anything in it, has the focus; nothing moves then.

    `with Panel("Columns", reading=...): yield ...` or a subclass with its own `compose` (yield `*super().compose()`).
    """

    DEFAULT_CSS = """
    Panel { height: auto; width: 1fr; }
    """

    title: reactive[str] = reactive("")
    number: reactive[str] = reactive("")
    """The key that leads to the panel; empty for none."""

    reading: reactive[Text | None] = reactive(None, always_update=True)
    """What stands at the right end of the rule: a value, a limit, a count, a mode."""

    def __init__(self, title: str, *, number: str = "", reading: Text | str | None = None, id: str | None = None,
                 classes: str | None = None, focusable: bool = False) -> None:  # fmt: skip
        """`focusable`: the panel itself takes the focus (its content then need not)."""
        super().__init__(id=id, classes=classes)
        self.can_focus = focusable
        self.set_reactive(Panel.title, title)
        self.set_reactive(Panel.number, number)
        self.set_reactive(Panel.reading, self._as_text(reading))

    def _as_text(self, reading: Text | str | None) -> Text | None:
        return palette_of(self.app).text((reading, "muted")) if isinstance(reading, str) else reading

    @property
    def lit(self) -> bool:
        """The focus is here or inside."""
        return self.has_focus_within

    def compose(self) -> ComposeResult:
        """The rule; what the panel holds comes under it."""
        yield PanelHead()

    def read(self, reading: Text | str | None) -> None:
        """Show `reading` at the right end of the rule; a plain string is muted."""
        self.reading = self._as_text(reading)

    def relight(self) -> None:
        """The focus moved: draw the rule as it is now."""
        for rule in self.query(PanelHead):
            rule.repaint()

    def watch_title(self) -> None:
        """Another title."""
        self.relight()

    def watch_reading(self) -> None:
        """Another reading."""
        self.relight()

    def on_descendant_focus(self) -> None:
        """The focus came."""
        self.relight()

    def on_descendant_blur(self) -> None:
        """The focus left; it has not arrived elsewhere yet."""
        self.call_after_refresh(self.relight)

    def on_focus(self) -> None:
        """The focus came to the panel itself."""
        self.relight()

    def on_blur(self) -> None:
        """The focus left the panel itself."""
        self.call_after_refresh(self.relight)
