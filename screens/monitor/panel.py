"""A numbered panel of the monitor: its rule, and under it what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from grpo_tui.screens.line import wrap
from grpo_tui.screens.widgets.panel import head
from rich.text import Text
from textual.strip import Strip

from .layout import TABS
from .sight import Seen, Sight


class MonitorPanel(Seen, can_focus=True):
    """A numbered panel: its rule, and under it what `body` paints."""

    NUMBER: ClassVar[int]
    NAME: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(id=f"panel-{self.NUMBER}")

    @property
    def heading(self) -> str:
        """The title in the rule."""
        return self.NAME

    def reading(self, sight: Sight) -> Text | None:
        """What stands at the right end of the rule."""
        return None

    def mark(self, sight: Sight) -> str:
        """The state shown after the panel's name while another panel has the shared place: `warn`, `fail` or empty."""
        return ""

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text | Strip]:
        """The lines under the rule."""
        raise NotImplementedError

    def paint(self, width: int, height: int) -> Sequence[Text | Strip]:
        """Rule and body."""
        if self.sight is None:
            return [head(self.palette, width, self.heading, number=str(self.NUMBER), focused=self.has_focus)]
        return [self._rule(self.sight, width), *self.body(self.sight, width, height - 1)]

    def _rule(self, sight: Sight, width: int) -> Text:
        reading = self.reading(sight)
        if not sight.tab or sight.zoom or sight.tab != self.NUMBER:
            return head(
                self.palette, width, self.heading, number=str(self.NUMBER), reading=reading, focused=self.has_focus
            )
        return self._tabs(sight, width, reading)

    def _tabs(self, sight: Sight, width: int, reading: Text | None) -> Text:
        """The rule of the shared place: the names of all panels in it."""
        text = self.palette.text
        rule = "accent" if self.has_focus else "border"
        line = text(("▌" if self.has_focus else "─", rule))
        panels = [panel for panel in self.screen.query(MonitorPanel) if panel.NUMBER in TABS]
        for place, panel in enumerate(sorted(panels, key=lambda panel: TABS.index(panel.NUMBER))):
            here, mark = panel is self, panel.mark(sight)
            line.append_text(text(("── " if place else " ", rule), (f"{panel.NUMBER} ", "accent" if here else "faint")))
            line.append_text(text((panel.heading, "text bold" if here else "muted")))
            line.append_text(text((f" {'✗' if mark == 'fail' else '!'} ", f"{mark} bold") if mark else (" ", rule)))
        tail = text((" ", rule), reading, (" ─", rule)) if reading is not None and reading.cell_len else text()
        room = width - line.cell_len
        if tail.cell_len + 2 > room:
            tail = text()
        line.append_text(text(("─" * (width - line.cell_len - tail.cell_len), rule), tail))
        line.truncate(width)
        return line

    def sentence(self, words: str, width: int, *, key: str = "", verb: str = "") -> list[Text]:
        """An empty state: one sentence, and the key that helps."""
        lines = [text.copy() for text in wrap(self.palette, words, max(10, width - 2), "muted", " ")]
        if key:
            lines.append(self.palette.text((f" {key}", "accent bold"), (f" {verb}", "muted")))
        return lines
