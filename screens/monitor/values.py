"""The value table: every logged key, its figure exactly as logged, its unit, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from grpo_tui.screens.line import fit, wrap
from grpo_tui.screens.theme import Palette
from grpo_tui.screens.widgets.keys import KeyLine
from grpo_tui.screens.widgets.lines import Lines
from grpo_tui.screens.widgets.panel import head
from grpo_tui.screens.widgets.scrolling import SCROLLING
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from grpo_tui.inert import one_line
from grpo_tui.progress.series import Metric, Series, metric

from .figures import exact
from .sight import Sight

WITHOUT_SIGNAL = Metric(
    "groups without signal", "groups without signal", "share",
    "Share of groups whose completions all got the same weighted reward: nothing is learnt from them.",
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A part of the table."""

    title: str
    rows: list[tuple[str, object]]
    meanings: bool = True
    """The keys are metrics, of which something can be said."""


def sections(sight: Sight) -> list[Section]:
    """The newest row or the one under the cursor, our own figures, evaluations, the summary, memory and phases."""
    progress, cursor = sight.progress, sight.cursor
    if cursor is None:
        parts = [Section(f"Step {progress.latest_step}, as logged", list(progress.latest.items()))]
    else:
        found: list[tuple[str, object]] = [(key, series.at(cursor)) for key, series in progress.series.items()]
        parts = [Section(f"Step {cursor}, as logged", [row for row in found if row[1] is not None])]
    flat = sight.glance.flat
    point = flat.last() if cursor is None else (cursor, flat.at(cursor))
    if point and point[1] is not None:
        source = "the completions that were kept" if sight.glance.flat_sampled else "the rewards, by the recorder"
        parts.append(Section(f"Step {point[0]}, computed from {source}", [(WITHOUT_SIGNAL.key, point[1])]))
    parts.append(Section(f"Evaluation at step {progress.latest_eval_step}, as logged", [*progress.latest_eval.items()]))
    parts.append(Section("The whole training, as logged at its end", list(progress.summary.items())))
    parts.append(Section("Memory peaks since the row before, in bytes", _newest(progress.memory), meanings=False))
    parts.append(Section("Seconds in the phases of the newest step", _newest(progress.phases), meanings=False))
    return [part for part in parts if part.rows]


def _newest(columns: Mapping[str, Series]) -> list[tuple[str, object]]:
    return [(key, last[1]) for key, series in columns.items() if (last := series.last())]


def table(palette: Palette, sight: Sight, width: int) -> list[Text]:
    """The table for `width` cells: key, figure, unit and meaning; the meaning goes under them where it is narrow."""
    parts = sections(sight)
    if not parts:
        return [palette.text((" No steps yet: the first row is written when the first step is logged.", "muted"))]
    beside = width >= 110
    rows = [row for part in parts for row in part.rows]
    name = min(max(len(key) for key, _ in rows) + 1, 46 if beside else 38)
    figure = min(max(len(exact(value)) for _, value in rows), 24)
    unit = max(len(metric(key).unit) for key, _ in rows) + 1
    lines: list[Text] = []
    for part in parts:
        if lines:
            lines.append(palette.text())
        lines.append(palette.text((f" {part.title}", "muted bold")))
        for key, value in part.rows:
            known = WITHOUT_SIGNAL if key == WITHOUT_SIGNAL.key else metric(key)
            lead = palette.text(
                (f"  {one_line(key, name):<{name}}", "text"),
                (f"{one_line(exact(value), figure):>{figure}}", "text bold"),
                (f" {known.unit if part.meanings else '':<{unit}} ", "muted"),
            )
            meaning = known.meaning if part.meanings else ""
            if beside:
                lines += wrap(palette, meaning, width - 1, "muted", lead)
            else:
                lines.append(fit(lead, width))
                lines += wrap(palette, meaning, width - 1, "muted", "      ") if meaning else []
    return lines


class ValueTable(Lines, can_focus=True):
    """The scrolled table."""

    BINDINGS: ClassVar[list[BindingType]] = [*SCROLLING]

    def __init__(self, sight: Callable[[], Sight | None]) -> None:
        super().__init__()
        self._sight = sight
        self.top = 0

    def paint(self, width: int, height: int) -> Sequence[Text]:
        """The rule, and the rows in sight."""
        sight = self._sight()
        if sight is None:
            return []
        rows = table(self.palette, sight, width)
        self.top = max(0, min(self.top, len(rows) - (height - 1)))
        last = min(len(rows), self.top + height - 1)
        where = self.palette.text((f"{self.top + 1}–{last} of {len(rows)}", "muted"))
        return [head(self.palette, width, "Values", reading=where, focused=True), *rows[self.top : last]]

    def action_scroll(self, by: int) -> None:
        """Other rows."""
        self.top = max(0, self.top + by)
        self.repaint()


class ValuesScreen(Screen[None]):
    """The value table over the whole screen, kept up to date."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,down", "nothing", "scroll", key_display="↑/↓"),
        Binding("v,escape,q", "close", "back", key_display="esc"),
    ]

    def __init__(self, sight: Callable[[], Sight | None]) -> None:
        super().__init__()
        self._sight = sight

    def compose(self) -> ComposeResult:
        """Table and keys."""
        yield ValueTable(self._sight)
        yield KeyLine()

    def on_mount(self) -> None:
        """Keep up with the run."""
        self.set_interval(1.0, self.query_one(ValueTable).repaint)

    def action_close(self) -> None:
        """Back to the panels."""
        self.dismiss(None)
