"""The panel of the end of the log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from grpo_tui.screens.line import fit, wrap
from grpo_tui.screens.widgets.scrolling import SCROLLING
from rich.text import Text
from textual.binding import BindingType

from .panel import MonitorPanel
from .sight import Sight

_LEVEL = re.compile(
    r"(?P<fail>\b(?:ERROR|FATAL|CRITICAL)\b|^Traceback \(most recent call last\)|^(?:\w+\.)*\w+(?:Error|Exception)\b)"
    r"|(?P<warn>\b(?:WARN|WARNING)\b)"
)
"""Levels as loggers write them, and the two lines of a Python traceback that say what happened. A library's
`FutureWarning` is not among them: logs are full of those, and amber must stay rare."""


class LogPanel(MonitorPanel):
    """The end of the log, following it unless the viewer scrolled up."""

    NUMBER, NAME = 8, "Log"
    BINDINGS: ClassVar[list[BindingType]] = [*SCROLLING]

    def __init__(self) -> None:
        super().__init__()
        self.back = 0
        """Lines between the last one and the last one in sight; 0: following."""

    def action_scroll(self, by: int) -> None:
        """Up or down; at the end it follows again."""
        lines = len(self.sight.glance.log.lines) if self.sight else 0
        self.back = max(0, min(lines - 1, self.back - by))
        self.repaint()

    def mark(self, sight: Sight) -> str:
        """A run that failed left its reason here."""
        return "fail" if sight.glance.life.state == "failed" else ""

    def reading(self, sight: Sight) -> Text | None:
        """Following or where."""
        log = sight.glance.log
        if log.missing or not log.lines:
            return None
        if self.back:
            return self.palette.text((f"line {len(log.lines) - self.back} of {len(log.lines)}", "muted"))
        return self.palette.text(("following", "ok") if sight.glance.life.alive else ("end", "muted"))

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """The lines, cut; enlarged they wrap."""
        log = sight.glance.log
        if log.missing or not log.lines:
            return self.sentence("The log is empty so far." if not log.missing else "This run has no train.log.", width)
        last = len(log.lines) - self.back
        rows: list[Text] = []
        for line in reversed(log.lines[max(0, last - height) : last]):
            rows[:0] = self._rows(line, width, sight)
            if len(rows) >= height:
                return rows[-height:]
        for line in log.lines[last : last + height]:  # scrolled to the top: what follows fills the room
            rows += self._rows(line, width, sight)
        return rows[:height]

    def _rows(self, line: str, width: int, sight: Sight) -> list[Text]:
        shown = wrap(self.palette, line, width - 1, "text", " ") if sight.zoom else [self._row(line, width)]
        for row in shown:
            self._colour(row)
        return shown

    def _row(self, line: str, width: int) -> Text:
        return fit(self.palette.text(" ", (line[: 4 * width].replace("\n", " "), "muted")), width)

    def _colour(self, row: Text) -> None:
        """The level is the only colour."""
        if found := _LEVEL.search(row.plain[1:]):
            role = found.lastgroup or "fail"
            row.stylize(self.palette.style(f"{role} bold"), found.start() + 1, found.end() + 1)
