"""Every value of the configuration, with its reason; memory or speed; single values by hand."""

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui.draft import STEPS, Draft
from grpo_tui.hardware.machine import format_size
from grpo_tui.inert import one_line

from .batch import TurnBatch
from .dialogs import Show, Type
from .drawn import Block, Choice, Column, Field, Fields, Rows
from .line import fit, wrap
from .plans import Compare
from .step import FRAME_KEYS, Say, Step, Trouble
from .widgets.gauge import gauge
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.draft import ModelAnswer, SettingsAnswer
    from grpo_tui.plan.alternatives import Alternative
    from grpo_tui.plan.plan import Plan, Setting
    from grpo_tui.plan.sizes import Sizes, Turning
    from grpo_tui.problem import Problem

AIMS = (
    Choice("memory", "memory", "leave room on the card"),
    Choice("speed", "speed", "the largest batch that fits"),
)


class SettingsStep(Step, inherit_bindings=False):
    """The plan, value by value."""

    NAME = "settings"
    QUESTION = "How shall it train?"
    WHY = "Every value has a reason and a source, and can be set by hand."
    HELP = (
        "Space changes the value under the cursor, u gives it back to the tuning. b shows how the sizes of the batch "
        "make up generations, steps and epochs, and turns them; p shows other plans that fit. Checked means: the "
        "installed GRPOConfig was really constructed with these values, for the planned machine."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "find", key_display="/"),
        Binding("b", "batch", "batch"),
        Binding("p", "plans", "other plans"),
        Binding("a", "add", "another key"),
        Binding("m", "memory", "memory", show=False),
        Binding("u", "undo", "undo"),
        *FRAME_KEYS,
    ]

    plan: "Plan | None" = None
    before: "tuple[ModelAnswer, SettingsAnswer] | None" = None
    """The answers that another plan took the place of, until something else is answered; None: there are none."""

    wanted = ""
    """Only values with this text in key, value or reason are shown."""

    def body(self) -> ComposeResult:
        yield Fields("Aim", value_width=24, label_width=14, id="aim")
        yield Block(self._memory_here, id="memory")
        yield Rows(
            "Values",
            Column("key", least=30),
            Column("value", 18),
            Column("source", 15, rank=1),
            Column("why", least=30, rank=2),
            empty="The values appear when model and data have been read.",
            id="values",
        )
        yield Block(self._detail, id="detail")

    def find(self, say: Say) -> object:
        return self.session.checked_plan(self.draft, say)

    def found(self, result: object) -> None:
        self.plan = result  # type: ignore[assignment]  # a Plan: problems never come here

    def refresh_body(self) -> None:
        text, settings = self.palette.text, self.draft.settings
        label = next(choice.label for choice in AIMS if choice.value == settings.prefer)
        batch = self.plan.batch.words() if self.plan else ""
        fields = [
            Field(key="prefer", label="Prefer", value=label, current=settings.prefer, choices=AIMS, note=batch),
            Field(
                key="notify_command",
                label="When it ends",
                value=settings.notify_command,
                note="a command to run; may be empty",
                hint="A shell command; it gets GRPO_TUI_RUN and GRPO_TUI_EXIT.",
            ),
        ]
        self.query_one("#aim", Fields).show(fields)
        values = self.query_one("#values", Rows)
        values.most = max(5, self.query_one("#body").size.height - (18 if self.size.height >= 30 else 12))
        cells = []
        for setting in self.shown:
            mine = setting.key in settings.overrides
            cells.append(
                (
                    text((one_line(setting.key, 60), "text bold" if mine else "text")),
                    text((one_line(spell(setting.value), 60), "text bold")),
                    text((setting.source, "text" if mine else "muted")),
                    text((one_line(setting.why, 200), "muted")),
                )
            )
        checked = "checked with the installed GRPOConfig" if self.plan and not self.failed else ""
        found = f"with “{one_line(self.wanted, 20)}”" if self.wanted else checked
        none = f"No value has “{one_line(self.wanted, 20)}”. a adds another key, / and nothing shows all."
        empty = none if self.wanted else ""
        values.show(cells, f"{len(cells)} · {found}" if cells else "", empty=empty)
        for block in self.query(Block):
            block.redraw()

    @property
    def shown(self) -> "Sequence[Setting]":
        """The values in sight of the search."""
        word = self.wanted.casefold()
        known = self.plan.settings if self.plan else ()
        return [each for each in known if word in f"{each.key} {spell(each.value)} {each.why} {each.source}".casefold()]

    def _memory_here(self, width: int) -> Sequence[Text]:
        """By phase where there is room for it, else the peak alone."""
        if self.size.height >= 30 or self.plan is None or self.plan.memory is None:
            return self._memory(width)
        memory, room = self.plan.memory, self.plan.available_bytes
        peak = format_size(memory.peak_bytes)
        reading = f"peak {peak} of {format_size(room)} free" if room else f"peak {peak}"
        return [head(self.palette, width, "Memory, predicted", reading=self.palette.text((reading, "text")))]

    def action_memory(self) -> None:
        """The memory by phase."""
        if self.plan is not None and self.plan.memory is not None:
            self.app.push_screen(Show("Memory, predicted", self._memory))

    def action_search(self) -> None:
        """Show only the values with a text."""

        def typed(text: str | None) -> None:
            if text is not None:
                self.wanted = text
                self.refresh_body()
                self.query_one("#values", Rows).focus()

        self.app.push_screen(Type("Find", self.wanted, "A part of a key, a value or a reason; empty: all."), typed)

    def _memory(self, width: int) -> Sequence[Text]:
        if self.plan is None or self.plan.memory is None:
            return []
        text, plan, memory = self.palette.text, self.plan, self.plan.memory
        room = plan.available_bytes
        reading = text((f"{plan.method}, {format_size(room)} free a device" if room else plan.method, "muted"))
        rows = [head(self.palette, width, f"Memory ({memory.place}), predicted", reading=reading)]
        scale = room or memory.peak_bytes
        for phase, needed in memory.phases.items():
            parts = sorted(memory.parts_by_phase[phase], key=lambda part: -part.bytes)
            largest = ", ".join(f"{part.name} {format_size(part.bytes)}" for part in parts[:2])
            over = bool(room) and needed > room
            row = text(
                (f" {phase:<9}", "text"),
                gauge(self.palette, max(8, width // 3), needed / scale, "warn" if over else "accent"),
                (f" {format_size(needed):>9}", "text bold"),
                (f"  {largest}", "muted"),
            )
            rows.append(row if row.cell_len <= width else fit(row, width))
        low, high = memory.interval
        peak = f" peak {format_size(low)}–{format_size(high)}" + ("; an estimate" if memory.estimate else "")
        rows.append(text((peak, "muted")))
        return rows

    def _detail(self, width: int) -> Sequence[Text]:
        setting = self._here()
        if setting is None:
            return []
        rows = [
            head(self.palette, width, one_line(setting.key, 50), reading=self.palette.text((setting.source, "muted")))
        ]
        rows += wrap(self.palette, one_line(setting.what, 300), width, "text", " ")
        rows += wrap(self.palette, one_line(setting.why, 400), width, "muted", " ")
        for note in self.plan.notes if self.plan else ():
            rows += wrap(self.palette, one_line(note, 300), width, "text", self.palette.text((" ! ", "warn bold")))
        return rows

    def on_rows_moved(self) -> None:
        """Show the value under the cursor."""
        self.query_one("#detail", Block).redraw()

    def _here(self) -> "Setting | None":
        shown = self.shown
        return shown[min(self.query_one("#values", Rows).cursor, len(shown) - 1)] if shown else None

    @on(Fields.Changed)
    def changed(self, event: Fields.Changed) -> None:
        """Another aim, or the command for the end."""
        changes: dict[str, Any] = {event.key: event.value}
        settings = replace(self.draft.settings, **changes)
        self.answer(replace(self.draft, settings=settings), look=event.key == "prefer")

    @on(Rows.Picked)
    def picked(self) -> None:
        """Set the value under the cursor by hand."""
        setting = self._here()
        if setting is not None:
            self._ask(setting.key, written(setting.value), setting.what)

    def action_add(self) -> None:
        """Set a key that the plan does not set."""

        def named(key: str | None) -> None:
            if key:
                key = key if "." in key else f"grpo.{key}"
                self._ask(key, written(self.plan.value(key, "")) if self.plan else "", "")

        about = "A field of GRPOConfig, or lora.… for one of LoraConfig."
        self.app.push_screen(Type("Another key", "", about, check=self.session.key_fault), named)

    def _ask(self, key: str, value: str, what: str) -> None:
        def typed(answer: str | None) -> None:
            if answer is not None and answer != value:
                self._override({**self.draft.settings.overrides, key: parse(answer)})

        about = f"{one_line(what, 200)} A number, true or false, or text; empty: none.".strip()
        self.app.push_screen(Type(key, value, about), typed)

    def action_plans(self) -> None:
        """Other plans beside this one."""

        def work_out(say: Say) -> "Problem | None":
            plans = self.session.plans(self.draft, say)
            if not isinstance(plans, Sequence):
                return plans
            self.app.call_from_thread(self._compare, plans)
            return None

        self.do(work_out)

    def _compare(self, plans: "Sequence[Alternative]") -> None:
        hardware = self.draft.hardware
        if hardware.cpu:
            about = "For the CPU, where 4 bit and vLLM do not run. A card of another machine is typed in at Hardware."
        elif hardware.manual_bytes:
            about = f"For a card typed by hand: {one_line(hardware.manual_name, 40) or 'without a name'}."
        else:
            about = "For the chosen GPUs, with what is free on them now."
        if not [plan for plan in plans if plan.name != "now"]:
            none = "No other plan fits that is safer or faster, or trains a larger model of the series."
            self.app.push_screen(
                Show("Plans, side by side", lambda width: wrap(self.palette, f"{none} {about}", width))
            )
            return
        self.app.push_screen(Compare(plans, about), self._take_plan)

    def _take_plan(self, taken: "Alternative | None") -> None:
        if taken is None:
            return
        if not taken.model:
            self._exchange(taken.answers.model, taken.answers.settings)
            self.news = f"Taken: {taken.name}. {taken.why} u takes it back."
            self.refresh_frame()
            return

        def named(name: str | None) -> None:
            if name:
                self._exchange(replace(taken.answers.model, name=name), taken.answers.settings)
                self.action_jump(STEPS.index("model") + 1)

        about = (
            f"The hub id (owner/name) or the folder of {taken.model}. The Model step then fetches its configuration."
        )
        self.app.push_screen(Type("The larger model", taken.proposed_name(self.draft.model.name), about), named)

    def action_batch(self) -> None:
        """The sizes of the batch as one picture, to be turned."""

        def work_out(say: Say) -> "Problem | None":
            turning = self.session.turning(self.draft, say)
            if isinstance(turning, list):
                return turning[0]
            self.app.call_from_thread(self._turn, turning)
            return None

        self.do(work_out)

    def _turn(self, turning: "Turning") -> None:
        def turned(sizes: "Sizes | None") -> None:
            if sizes is not None:
                overrides = turning.overrides(sizes)
                self._exchange(self.draft.model, replace(self.draft.settings, overrides=overrides))
                self.news = f"Taken: {sizes.batch.words()}. u takes it back."
                self.refresh_frame()

        self.app.push_screen(TurnBatch(turning), turned)

    def _exchange(self, model: "ModelAnswer", settings: "SettingsAnswer") -> None:
        before = self.draft.model, self.draft.settings
        self.answer(replace(self.draft, model=model, settings=settings), look=True)
        self.before = before

    def answer(self, draft: Draft, *, look: bool = False) -> None:
        """Take an answer; what another plan took the place of is behind it."""
        self.before, self.news = None, ""
        super().answer(draft, look=look)

    def action_undo(self) -> None:
        """Let the tuning choose the value under the cursor again, or take back another plan."""
        setting = self._here()
        overrides = dict(self.draft.settings.overrides)
        key = setting.key if setting and setting.key in overrides else next(reversed(overrides), None)
        if self.before is not None:
            model, settings = self.before
            self.answer(replace(self.draft, model=model, settings=settings), look=True)
        elif key is not None:
            del overrides[key]
            self._override(overrides)

    def _override(self, overrides: dict[str, object]) -> None:
        self.answer(replace(self.draft, settings=replace(self.draft.settings, overrides=overrides)), look=True)

    def missing(self) -> Trouble | None:
        return None if self.plan is not None else Trouble("There is no plan yet.", "r", "look again")


def spell(value: object) -> str:
    """A value as `config.toml` would have it, more or less."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def written(value: object) -> str:
    """A value exactly, as it is edited."""
    return repr(value) if isinstance(value, float) else spell(value)


def parse(text: str) -> object:
    """What a typed value means: a number, true or false, a list, or the text itself."""
    known = {"true": True, "false": False, "none": None, "": None}
    if text.lower() in known:
        return known[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
