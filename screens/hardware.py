"""Where the training shall run: GPUs of this machine, its CPU, or a card typed by hand for planning."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import on
from textual.app import ComposeResult

from grpo_tui.hardware.machine import format_gib
from grpo_tui.inert import one_line

from .dialogs import positive
from .drawn import GLYPHS, Block, Choice, Column, Field, Fields, Rows
from .line import wrap
from .step import Say, Step, Trouble
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.hardware.environment import Check
    from grpo_tui.hardware.machine import GPU, Machine

GIB = 1024**3

PLACES = (
    Choice("gpus", "GPUs of this machine"),
    Choice("cpu", "CPU of this machine", "small models and trials"),
    Choice("other", "another machine", "plan only: type the card"),
)


class HardwareStep(Step):
    """Which GPUs, or the CPU."""

    NAME = "hardware"
    QUESTION = "Where shall it run?"
    WHY = "Memory and number of cards decide method, batch and length."
    HELP = (
        "Space takes a GPU or leaves it. A GPU that CUDA_VISIBLE_DEVICES hides cannot be taken. Memory that other "
        "processes hold is not counted as room."
    )

    machine: "Machine | None" = None
    checks: "Sequence[Check]" = ()

    def body(self) -> ComposeResult:
        yield Fields("Place", value_width=26, id="place")
        yield Rows(
            "GPUs",
            Column("use", 3),
            Column("name", rank=0),
            Column("total", 9, right=True, rank=2),
            Column("free", 9, right=True, rank=1),
            Column("cc", 4, rank=4),
            Column("held by", 20, rank=3),
            empty="No GPU was found.",
            id="gpus",
        )
        yield Block(self._checks, id="checks")

    def find(self, say: Say) -> object:
        say("Reading the GPUs, the installed versions and the disk…")
        machine = self.session.machine()
        return machine, self.session.checks()

    def found(self, result: object) -> None:
        self.machine, self.checks = result  # type: ignore[misc]  # the pair that `find` made
        if self.draft.hardware == type(self.draft.hardware)():
            self.answer(replace(self.draft, hardware=self.session.proposed_hardware()))

    @property
    def place(self) -> str:
        """`gpus`, `cpu` or `other`."""
        hardware = self.draft.hardware
        return "cpu" if hardware.cpu else "other" if hardware.manual_bytes or hardware.manual_name else "gpus"

    def refresh_body(self) -> None:
        hardware = self.draft.hardware
        label = next(choice.label for choice in PLACES if choice.value == self.place)
        fields = [Field(key="place", label="Train on", value=label, current=self.place, choices=PLACES)]
        if self.place == "other":
            size = f"{hardware.manual_bytes / GIB:g}" if hardware.manual_bytes else ""
            fields += [
                Field(key="manual_name", label="Card", value=hardware.manual_name, hint="Its name, for yourself."),
                Field(
                    key="manual_bytes",
                    label="Memory",
                    value=size,
                    note="GiB a card, as nvidia-smi shows it",
                    hint="GiB of one card: 24, 80, 39.4",
                    check=positive,
                ),
                Field(
                    key="manual_count",
                    label="Cards",
                    value=str(hardware.manual_count or ""),
                    hint="How many cards",
                    check=positive,
                ),
                Field(
                    key="manual_capability",
                    label="Capability",
                    value=hardware.manual_capability,
                    note="as 8.0; empty: taken as 8.0 or newer",
                    hint="Compute capability, such as 7.5, 8.0, 9.0",
                    check=lambda text: text and positive(text),
                ),
            ]
        self.query_one("#place", Fields).show(fields)
        rows = self.query_one("#gpus", Rows)
        rows.display = self.place == "gpus"
        gpus = self.machine.gpus if self.machine else ()
        problem = self.machine.problem if self.machine else None
        rows.show(
            [self._cells(gpu) for gpu in gpus],
            f"{len(hardware.gpus)} of {len(gpus)} taken" if gpus else "",
            empty=f"✗ {problem}" if problem else "No GPU was found. Left/right above: train on the CPU.",
        )
        self.query_one("#checks", Block).redraw()

    def _cells(self, gpu: "GPU") -> Sequence[Text]:
        text = self.palette.text
        taken = gpu.uuid in self.draft.hardware.gpus
        mark = text(("✓", "ok bold")) if taken else text(("·", "muted")) if gpu.visible else text(("✗", "muted"))
        role = "text" if gpu.visible else "muted"
        held = ", ".join(f"{process.user or process.name or process.pid}" for process in gpu.processes)
        if not gpu.visible:
            held = "hidden from CUDA"
        capability = ".".join(map(str, gpu.capability)) if gpu.capability else "–"
        return (
            mark,
            text((one_line(gpu.name, 60), role)),
            text((format_gib(gpu.total_bytes), role)),
            text((format_gib(gpu.free_bytes), f"{role} bold")),
            text((capability, "muted")),
            text((one_line(held, 40) or "–", "warn" if held and gpu.visible else "muted")),
        )

    def _checks(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        counts = {level: sum(check.level == level for check in self.checks) for level in ("ok", "warn", "fail")}
        words = [(f"{counts['fail']} failed", "fail")] if counts["fail"] else []
        words += [(f"{'  ' if words else ''}{counts['warn']} to know", "warn")] if counts["warn"] else []
        rows = [head(self.palette, width, "Checks", reading=text(*words) if words else text(("all fine", "muted")))]
        if not self.checks:
            return [rows[0], text(" ", ("They appear when the machine has been read.", "muted"))]
        order = {"fail": 0, "warn": 1, "ok": 2}
        for check in sorted(self.checks, key=lambda check: order[check.level]):
            lead = text((f" {GLYPHS[check.level]} ", f"{check.level} bold"))
            words_ = f"{check.text} {check.remedy}" if check.level != "ok" else check.text
            rows += wrap(self.palette, one_line(words_, 400), width, "muted" if check.level == "ok" else "text", lead)
        return rows

    @on(Fields.Changed)
    def changed(self, event: Fields.Changed) -> None:
        """Another place, or a figure of the typed card."""
        hardware = self.draft.hardware
        if event.key == "place":
            hardware = self.session.hardware_for(event.value)
        elif event.key in ("manual_name", "manual_capability"):
            changes: dict[str, Any] = {event.key: event.value}
            hardware = replace(hardware, **changes)
        else:
            number = float(event.value.replace(",", "."))
            hardware = (
                replace(hardware, manual_bytes=int(number * GIB))
                if event.key == "manual_bytes"
                else replace(hardware, manual_count=int(number))
            )
        self.answer(replace(self.draft, hardware=hardware))

    @on(Rows.Picked)
    def picked(self, event: Rows.Picked) -> None:
        """Take this GPU, or leave it."""
        if self.machine is None:
            return
        gpu = self.machine.gpus[event.index]
        if not gpu.visible:
            self.notify("CUDA_VISIBLE_DEVICES hides this GPU: change it and start again.", markup=False)
            return
        wanted = set(self.draft.hardware.gpus) ^ {gpu.uuid}
        gpus = tuple(each.uuid for each in self.machine.visible if each.uuid in wanted)
        self.answer(replace(self.draft, hardware=replace(self.draft.hardware, gpus=gpus, cpu=False)))

    def missing(self) -> Trouble | None:
        hardware = self.draft.hardware
        if self.place == "other" and not (hardware.manual_bytes and hardware.manual_count):
            return Trouble("Memory and number of cards are missing.", "space", "type them")
        if self.place == "gpus" and not hardware.gpus:
            return Trouble("No GPU is taken.", "space", "take one, or train on the CPU")
        return None
