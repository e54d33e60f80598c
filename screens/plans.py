"""Plans side by side: what each is, what one gains by it and what one pays."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from grpo_tui.inert import one_line

from .dialogs import Dialog
from .drawn import Block, Drawn
from .line import columns, fit, wrap
from .theme import palette_of

if TYPE_CHECKING:
    from grpo_tui.plan.alternatives import Alternative

LABEL, LEAST, MOST = 20, 13, 22
"""Cells of the labels, and the least and most of a column."""

Plans = Sequence["Alternative"]


class Beside(Drawn, can_focus=True):
    """The plans as columns, one of them under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", show=False),
        Binding("right,l", "move(1)", show=False),
        Binding("home", "move(-99)", show=False),
        Binding("end", "move(99)", show=False),
    ]

    def __init__(self, plans: Plans, at: int) -> None:
        super().__init__()
        self.plans = plans
        self.at = at

    @property
    def here(self) -> "Alternative":
        """The plan under the cursor."""
        return self.plans[self.at]

    def action_move(self, by: int) -> None:
        """Another column."""
        to = max(0, min(self.at + by, len(self.plans) - 1))
        if to != self.at:
            self.at = to
            self.redraw()

    def shown(self, width: int) -> list[int]:
        """The columns in sight: the first always, for what is gained and paid is told against it."""
        room = max(2, (width - LABEL) // (LEAST + 1))
        last = max(self.at, min(room, len(self.plans)) - 1)
        return [0, *range(max(1, last - room + 2), last + 1)][: len(self.plans)]

    def rows(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        shown = self.shown(width)
        column = max(LEAST, min(MOST, (width - LABEL) // len(shown) - 1))
        widths = [LABEL - 1, *[column] * len(shown)]
        outlines = {at: self.plans[at].outline() for at in shown}
        hidden = len(self.plans) - len(shown)

        def line(label: str, cells: Sequence[tuple[str, str]]) -> Text:
            placed = [fit(text((f"{'▌' if at == self.at and not label else ' '}", "accent"), cell), column)
                      for at, cell in zip(shown, cells, strict=True)]  # fmt: skip
            if self.at in shown:
                placed[shown.index(self.at)].stylize(self.palette.style("on_select"))
            return fit(columns([text((label, "muted")), *placed], widths, gap=1), width)

        rows = [
            line("", [(self.plans[at].name, "accent bold" if at == self.at else "text bold") for at in shown]),
        ]
        if any(plan.model for plan in self.plans):
            rows.append(line("model", [(self.plans[at].model or "as now", "text bold" if self.plans[at].model else
                                        "muted") for at in shown]))  # fmt: skip
        for label, first in outlines[shown[0]].items():
            cells = [(outlines[at][label], "text bold" if outlines[at][label] != first else "muted") for at in shown]
            cells[0] = (first, "text")
            rows.append(line(label, cells))
        more = f"  {hidden} more: ←/→" if hidden else ""
        rows.append(text((more, "muted")))
        rows += wrap(self.palette, one_line(self.here.why, 200), width, "text")
        for sign, said in (("+ ", self.here.gains), ("– ", self.here.pays)):
            if said:
                rows += wrap(self.palette, f"{'; '.join(said)}.", width, "muted", text((sign, "text bold")))
        return rows


class Compare(Dialog["Alternative"]):
    """Which plan to take; leaving takes none."""

    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-tall")]  # noqa: RUF012  Textual's own
    KEYS = (("←/→", "another plan"), ("enter", "take it"), ("esc", "leave as it is"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", show=False),
        Binding("enter,space", "take", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
    ]

    def __init__(self, plans: Plans, about: str) -> None:
        """`plans`: the first is the one now, if that can be. `about`: what they are planned for."""
        super().__init__("Plans, side by side")
        self.plans = plans
        self.about = about

    def inside(self) -> ComposeResult:
        palette = palette_of(self.app)
        yield Block(lambda width: wrap(palette, self.about, width, "muted"))
        with VerticalScroll(id="beside", can_focus=False):
            yield Beside(self.plans, 1 if self.plans[0].name == "now" else 0)

    def on_mount(self) -> None:
        self.query_one(Beside).focus()

    def action_take(self) -> None:
        """The one under the cursor."""
        here = self.query_one(Beside).here
        self.dismiss(None if here.name == "now" else here)

    def action_scroll(self, by: int) -> None:
        """What does not fit the screen."""
        self.query_one("#beside", VerticalScroll).scroll_relative(y=by, animate=False)
