"""The panel of what the model wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from grpo_tui.screens.line import fit
from grpo_tui.screens.widgets.scrolling import SCROLLING
from rich.text import Text
from textual.binding import Binding, BindingType

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.progress.completions import CompletionTable
from grpo_tui.rewards.advantages import weighted_sums

from .figures import brief_name, short
from .panel import MonitorPanel
from .sight import Sight


class CompletionsPanel(MonitorPanel):
    """What the model wrote at one step, with rewards and advantages."""

    NUMBER, NAME = 7, "Completions"
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLLING,
        Binding("enter", "screen.read_completion", "read", key_display="enter"),
        Binding("left_square_bracket", "screen.other_step(-1)", "step before", key_display="[", show=False),
        Binding("right_square_bracket", "screen.other_step(1)", "step after", key_display="]", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.place = 0
        self._step = -1

    @property
    def table(self) -> CompletionTable | None:
        """What is shown; None without completions."""
        table = self.sight.glance.table if self.sight else None
        return table if isinstance(table, CompletionTable) and table.completions else None

    def order(self, table: CompletionTable) -> list[tuple[int, int]]:
        """Group and completion, group by group."""
        return [(number, index) for number, group in enumerate(table.groups) for index in group]

    def sums(self, sight: Sight, table: CompletionTable) -> list[float | None]:
        """The weighted sum of each completion's rewards."""
        pairs = [(table.rewards[name], weight)
                 for name, weight in zip(sight.progress.reward_names, sight.progress.weights, strict=False)
                 if name in table.rewards]  # fmt: skip
        rows = [[column[index] for column, _ in pairs] for index in range(len(table.completions))]
        return list(weighted_sums(rows, [weight for _, weight in pairs])) if pairs else [None] * len(rows)

    def action_scroll(self, by: int) -> None:
        """Another completion."""
        if self.table is not None:
            self.place = max(0, min(len(self.table.completions) - 1, self.place + by))
            self.repaint()

    def reading(self, sight: Sight) -> Text | None:
        """Step, place, number."""
        table = self.table
        if table is None:
            return None
        return self.palette.text((f"step {table.step} · {self.place + 1} of {len(table.completions)}", "muted"))

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """A row a completion; columns go by rank when it gets narrow."""
        table = sight.glance.table
        if isinstance(table, Problem):
            return self.sentence(f"✗ {table.what} {table.remedy}", width)
        if table is None or not table.completions:
            alive = sight.glance.life.alive
            return self.sentence(
                "No completions yet. They appear after step 1." if alive else "No completions were kept.", width
            )
        if table.step != self._step:
            self.place = min(self.place, len(table.completions) - 1)
            self._step = table.step
        order, sums = self.order(table), self.sums(sight, table)
        names = [name for name in sight.progress.reward_names if name in table.rewards]
        names += [name for name in table.rewards if name not in names]
        fixed = 6 + 8 + 9
        shown = names[: max(0, (width - fixed - 32) // 9)]
        left = width - fixed - 9 * len(shown) - 2
        rows = max(1, height - 1)
        first = max(0, min(self.place - rows // 2, len(order) - rows))
        text = self.palette.text
        titles = "".join(f"{one_line(brief_name(name), 8):>9}" for name in shown)
        lines = [text((f"{'group':>6}{'reward':>8}{'advant.':>9}{titles}  completion", "muted"))]
        for place in range(first, min(len(order), first + rows)):
            group, index = order[place]
            here = place == self.place
            ground = " on_select" if here else ""
            new = place == first or order[place - 1][0] != group
            total, advantage = sums[index], table.advantages[index]
            figures = "".join(f"{_figure(table.rewards[name][index]):>9}" for name in shown)
            line = text(
                ("▌" if here and self.has_focus else " ", f"accent{ground}"),
                (f"{group + 1 if new or here else '':>5}", f"muted{ground}"),
                (f"{_figure(total):>8}", f"text{' bold' if total is not None and total > 0 else ''}{ground}"),
                (f"{_signed(advantage):>9}", f"muted{ground}"),
                (figures, f"{'text' if here else 'muted'}{ground}"),
                ("  " + one_line(table.completions[index], left), f"{'text' if here else 'muted'}{ground}"),
            )
            line = fit(line, width)
            if here:
                line.stylize(self.palette.style("on_select"))
            lines.append(line)
        return lines


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if math.isfinite(value) and abs(value) < 1e4 else short(value)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}" if math.isfinite(value) else short(value)
