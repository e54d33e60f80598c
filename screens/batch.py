"""The arithmetic of the batch as one picture, each number turned to the next that can be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message

from grpo_tui.hardware.machine import format_size
from grpo_tui.inert import one_line

from .dialogs import Choose, Dialog, Type, number
from .drawn import Block, Choice, Cursor
from .line import fit, wrap
from .theme import palette_of
from .widgets.gauge import gauge
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.plan.sizes import Outcome, Refused, Sizes, Turning

TITLES = ("process", "device", "steps", "completions", "prompts", "group")
WIDTHS = tuple(max(len(title), 5) for title in TITLES)
SIGNS = ("   ", " × ", " × ", " = ", " = ", " × ")
"""The columns of the picture, and what stands before each."""


def figure(value: float) -> str:
    """A number as it is read: whole ones with commas."""
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


class Dials(Cursor):
    """One row a number: the next smaller one, itself, the next larger one."""

    head_rows = 0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("left,h,minus", "turn(-1)", show=False),
        Binding("right,l,plus,equals_sign", "turn(1)", show=False),
        Binding("space,e", "type", show=False),
    ]

    @dataclass
    class Turned(Message):
        """Another number, or another one under the cursor."""

        words: str
        """Why it could not be turned; empty: it was."""

    def __init__(self, sizes: "Sizes") -> None:
        super().__init__("")
        self.sizes = sizes

    @property
    def key(self) -> str:
        """The number under the cursor."""
        return self.sizes.turned()[self.cursor]

    def count(self) -> int:
        return len(self.sizes.turned())

    def rows(self, width: int) -> Sequence[Text]:
        from grpo_tui.plan.sizes import LABELS, neighbour

        text = self.palette.text
        rows = []
        for position, key in enumerate(self.sizes.turned()):
            here = position == self.cursor
            below, above = neighbour(self.sizes, key, -1), neighbour(self.sizes, key, 1)
            row = text(
                ("▌" if here else " ", "accent"),
                fit(text((LABELS[key][0], "text bold" if here else "text")), 22),
                (f"{figure(below.value(key)) if below else '':>9}", "muted"),
                (" ← " if below else "   ", "accent" if here else "muted"),
                (f"{figure(self.sizes.value(key)):>9} ", f"text bold {'on_select' if here else 'on_surface'}"),
                (" → " if above else "   ", "accent" if here else "muted"),
                (figure(above.value(key)) if above else "", "muted"),
            )
            rows.append(fit(row, width))
        return rows

    def moved(self) -> None:
        self.post_message(self.Turned(""))

    def action_turn(self, by: int) -> None:
        """The next number that can be."""
        from grpo_tui.plan.sizes import neighbour

        found = neighbour(self.sizes, self.key, by)
        kind = "larger" if by > 0 else "smaller"
        words = (
            "" if found else f"Nothing {kind} goes with the other numbers as they are. space types one all the same."
        )
        self.take(found or self.sizes, words)

    def take(self, sizes: "Sizes", words: str = "") -> None:
        """Show these sizes; the cursor stays with its number."""
        key, keys = self.key, sizes.turned()
        self.sizes = sizes
        self.cursor = keys.index(key) if key in keys else min(self.cursor, len(keys) - 1)
        self.redraw()
        self.post_message(self.Turned(words))

    def action_type(self) -> None:
        """Type the number; where it cannot be, what can is offered."""
        from grpo_tui.plan.sizes import LABELS, Sizes, wish

        key = self.key
        label, what = LABELS[key]

        def typed(text: str | None) -> None:
            if text is None:
                return
            found = wish(self.sizes, key, float(text.replace(",", ".")))
            if isinstance(found, Sizes):
                self.take(found)
            else:
                self._offer(found)

        self.app.push_screen(Type(label.capitalize(), f"{self.sizes.value(key):.12g}", what, check=number), typed)

    def _offer(self, refused: "Refused") -> None:
        from grpo_tui.plan.sizes import changes

        choices = []
        for at, choice in enumerate(refused.choices):
            said = ", ".join(f"{label} {figure(value)}" for label, value in changes(choice, self.sizes))
            choices.append(Choice(str(at), said or "as it is now", f"{choice.batch.prompt_words} a step"))

        def chosen(at: str | None) -> None:
            if at is not None:
                self.take(refused.choices[int(at)])

        about = f"{one_line(refused.problem.what, 300)} The nearest that can be:"
        self.app.push_screen(Choose("This cannot be", choices, about=about), chosen)


class TurnBatch(Dialog["Sizes"]):
    """The sizes to take; leaving leaves all as it was."""

    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-tall")]  # noqa: RUF012  Textual's own
    KEYS = (("↑/↓", "move"), ("←/→", "turn"), ("space", "type"), ("enter", "take"), ("esc", "leave as it was"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", show=False),
        Binding("enter", "take", show=False),
    ]

    def __init__(self, turning: "Turning") -> None:
        super().__init__("The batch")
        self.turning = turning
        self.outcome: Outcome = turning.outcome(turning.start)
        self.words = ""

    def inside(self) -> ComposeResult:
        with VerticalScroll(id="batch", can_focus=False):
            yield Dials(self.turning.start)
            yield Block(self._said, id="said")
            yield Block(self._picture, id="picture")

    def on_mount(self) -> None:
        self.query_one(Dials).focus()

    @property
    def sizes(self) -> "Sizes":
        """As they are turned now."""
        return self.query_one(Dials).sizes

    @on(Dials.Turned)
    def turned(self, event: Dials.Turned) -> None:
        """Work out what the sizes come to."""
        self.words = event.words
        self.outcome = self.turning.outcome(self.sizes)
        for block in self.query("#said, #picture").results(Block):
            block.redraw()

    def action_take(self) -> None:
        """These, unless they cannot be taken."""
        if self.outcome.problems:
            self.words = "This cannot be taken. Turn it back, or leave."
            self.query_one("#said", Block).redraw()
        else:
            self.dismiss(self.sizes if self.sizes != self.turning.start else None)

    def _said(self, width: int) -> Sequence[Text]:
        """What the number under the cursor is, or why it does not go on."""
        from grpo_tui.plan.sizes import LABELS

        palette = palette_of(self.app)
        if self.words:
            return wrap(palette, self.words, width, "text", palette.text(("! ", "warn bold")))
        return wrap(palette, LABELS[self.query_one(Dials).key][1], width, "muted", "  ")

    def _picture(self, width: int) -> Sequence[Text]:
        sizes, palette = self.sizes, palette_of(self.app)
        on_policy = sizes.batch.on_policy
        policy = palette.text(("on-policy", "muted") if on_policy else ("! off-policy", "warn"))
        rows = [head(palette, width, "What it makes", reading=policy)]
        rows += [fit(row, width) for row in self._equations()]
        for words in self._run():
            rows += wrap(palette, words, width, "muted", " ")
        return [*rows, *self._memory(width)]

    def _equations(self) -> Sequence[Text]:
        """How the numbers make up a generation, a step, an evaluation; the one under the cursor stands out."""
        from grpo_tui.plan import sizes as keys

        sizes, batch, palette = self.sizes, self.sizes.batch, palette_of(self.app)
        here = self.query_one(Dials).key
        world, group = (keys.PROCESSES, batch.world), (keys.GENERATIONS, batch.generations)
        device = (keys.PER_DEVICE, batch.per_device)
        lines: list[tuple[str, tuple[tuple[str, float | str], ...]]] = [
            ("", tuple(("", title) for title in TITLES)),
            (
                "generation",
                (
                    world,
                    device,
                    (keys.STEPS, batch.steps_per_generation),
                    ("", batch.generation_batch),
                    ("", batch.prompts_per_generation),
                    group,
                ),
            ),
            (
                "optimizer step",
                (
                    world,
                    device,
                    (keys.ACCUMULATION, batch.accumulation),
                    ("", batch.completions_per_step),
                    ("", batch.prompts_per_step),
                    group,
                ),
            ),
        ]
        if sizes.evaluates:
            at_once = sizes.eval_per_device * batch.world
            evaluated = (("", ""), ("", at_once), ("", at_once // sizes.eval_group))
            sizes_of_it = (keys.EVAL_BATCH, sizes.eval_per_device), (keys.EVAL_GENERATIONS, sizes.eval_group)
            lines.append(("evaluation", (world, sizes_of_it[0], *evaluated, sizes_of_it[1])))
        rows = []
        for label, cells in lines:
            row = palette.text((f" {label:<15}", "muted"))
            for (key, value), width, sign in zip(cells, WIDTHS, SIGNS, strict=True):
                said = value if isinstance(value, str) else figure(value)
                style = "muted" if not label else "accent bold" if key and key == here else "text"
                blank = not label or value == ""
                row.append_text(palette.text(("   " if blank else sign, "muted"), (f"{said:>{width}}", style)))
            rows.append(row)
        return rows

    def _run(self) -> Sequence[str]:
        """What becomes of the rows, and how long the run is."""
        sizes, batch, rows = self.sizes, self.sizes.batch, self.sizes.rows
        told = []
        if rows is not None:
            epoch = batch.steps_per_epoch(rows)
            left = batch.dropped_rows(rows)
            over = f"{left:,} left over in each epoch" if left else "none left over"
            told.append(f"{rows:,} rows, {over}; optimizer steps of an epoch: {epoch:,}.")
            if sizes.length:
                told.append(f"{sizes.length:,} / {epoch:,} = {sizes.length / epoch:.3g} passes over the rows.")
            else:
                told.append(f"{epoch:,} × {sizes.epochs:g} = {sizes.optimizer_steps:,} optimizer steps in all.")
        else:
            told.append("The rows are not counted, so the steps of an epoch are not known.")
        if not batch.on_policy:
            told.append("The weights change while a generation is learnt from: watch the clip ratios.")
        return told

    def _memory(self, width: int) -> Sequence[Text]:
        palette, outcome = palette_of(self.app), self.outcome
        if outcome.problems:
            words = one_line(str(outcome.problems[0]), 600)
            return wrap(palette, words, width, "text", palette.text((" ✗ ", "fail bold")))
        peak, room = outcome.peak_bytes, outcome.available_bytes
        free = f" of {format_size(room)} free" if room else ""
        said = palette.text((" peak ", "muted"), (format_size(peak), "text bold"), (f"{free}, predicted ", "muted"))
        return [palette.text(said, gauge(palette, max(8, width - said.cell_len), peak / room if room else 0))]
