"""The yes, and the start."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from grpo_tui import preflight
from grpo_tui.draft import STEPS, Approval, Draft
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

from .dialogs import Ask
from .drawn import GLYPHS, Block
from .line import wrap
from .rail import TITLES
from .step import FRAME_KEYS, Say, Step, Trouble
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.preflight import Departure
    from grpo_tui.run.launch import Started


class LaunchStep(Step, inherit_bindings=False):
    """What will be executed, and whether it shall be."""

    NAME = "launch"
    QUESTION = "Start the training?"
    WHY = "Nothing runs before your yes; it is recorded with the files' hash."
    HELP = (
        "The training runs in a session of its own: it goes on when this terminal or the SSH connection ends. "
        "`grpo-tui watch` shows it again, `grpo-tui stop` ends it after the current step with a checkpoint."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("m", "monitor", "newest run"), *FRAME_KEYS]

    @dataclass
    class Launched(Message):
        """A run to be watched."""

        draft: Draft
        run: Path
        started: bool = False
        """It was started just now."""

    departure: "Departure | None" = None
    starting = False

    def body(self) -> ComposeResult:
        yield Block(self._command, id="command")
        yield Block(self._changed, id="changed")
        yield Block(self._runs, id="runs")

    def find(self, say: Say) -> object:
        say("Reading data, model, versions and files again…")
        return preflight.departure(self.session, self.draft)

    def found(self, result: object) -> None:
        self.departure = result  # type: ignore[assignment]  # what `find` made

    def refresh_body(self) -> None:
        for block in self.query(Block):
            block.redraw()

    def _facts(self) -> Sequence[tuple[str, str]]:
        if (departure := self.departure) is None:
            return ()
        return (
            ("command", str(departure.command)),
            ("folder", str(departure.command.directory)),
            ("devices", departure.devices),
            ("files", ", ".join(departure.files)),
            ("hash", departure.sha256[:16] + "…"),
            ("steps", departure.steps),
            ("dry run", departure.tried),
            *((("fetches", departure.fetched),) if departure.fetched else ()),
        )

    def _command(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        rows = [head(self.palette, width, "What will run")]
        for label, value in self._facts():
            rows += wrap(self.palette, one_line(value, 1200), width, "text", text((f" {label:<9}", "muted")))
        return rows if self.departure else []

    def _changed(self, width: int) -> Sequence[Text]:
        if (departure := self.departure) is None:
            return []
        text = self.palette.text
        rows = [head(self.palette, width, "Since the review")]
        if not departure.changed and not departure.warnings:
            return [*rows, text((" ✓ ", "ok bold"), ("Data, model, versions and files are as they were.", "muted"))]
        for words in departure.changed:
            rows += wrap(self.palette, one_line(words, 300), width, "text", text((" ! ", "warn bold")))
        for problem in departure.warnings:
            rows += wrap(self.palette, one_line(str(problem), 400), width, "text", text((" ! ", "warn bold")))
        return rows

    def _runs(self, width: int) -> Sequence[Text]:
        if self.departure is None or not self.departure.runs:
            return []
        text = self.palette.text
        rows = [head(self.palette, width, "Runs here", reading=text((str(len(self.departure.runs)), "muted")))]
        for name, alive, words in self.departure.runs[:4]:
            sign = (f" {GLYPHS['now'] if alive else GLYPHS['next']} ", "ok bold" if alive else "muted")
            rows.append(text(sign, (f"{one_line(name, 24):<24}  ", "text"), (one_line(words, 80), "muted")))
        return rows

    def missing(self) -> Trouble | None:
        if self.starting:
            return Trouble("The training is being started…")
        if self.read_only:
            return Trouble("Opened for looking only: nothing can be started here.")
        if self.departure is None:
            return Trouble("The files have not been read.", "r", "look again")
        if self.departure.stale:
            return Trouble(self.departure.stale, "esc", "back to Review")
        return None

    def remark(self) -> Trouble | None:
        if not self.stale:
            return None
        names = ", ".join(TITLES[name] for name in STEPS if name in self.stale)
        return Trouble(f"Something under these steps changed, and they were not looked at since: {names}.")

    def onward(self) -> str:
        return "start…"

    def action_next(self) -> None:
        """Ask for the yes."""
        departure = self.departure
        if self.doing or self.failed or self.missing() is not None or departure is None:
            super().action_next()
            return

        def about(width: int) -> Sequence[Text]:
            rows = [
                row
                for label, value in self._facts()
                for row in wrap(
                    self.palette, one_line(value, 1200), width, "text", self.palette.text((f"{label:<9}", "muted"))
                )
            ]
            for words in departure.changed:
                rows += wrap(self.palette, one_line(words, 300), width, "text", self.palette.text(("! ", "warn bold")))
            return rows

        def answered(yes: bool | None) -> None:
            if yes:
                approval = preflight.approval(departure)
                # Kept before anything starts: whoever leaves now finds the yes, and the run, on return.
                self.answer(replace(self.draft, approvals=(*self.draft.approvals, approval)))
                self.starting = True
                self.doing = "Starting the training…"
                self.refresh_frame()
                self._start(departure, approval)

        self.app.push_screen(Ask("Start this training?", about, yes="start it", no="not now"), answered)

    @work(thread=True, exclusive=True, group="start")
    def _start(self, departure: "Departure", approval: Approval) -> None:
        result = preflight.start(self.session, self.draft, departure, approval)
        self.app.call_from_thread(self._started, result)

    def _started(self, result: "Started | Problem") -> None:
        self.starting = False
        self.doing = ""
        if isinstance(result, Problem):
            self.refuse([result])
            return
        self.post_message(self.Launched(self.draft, result.run, started=True))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "monitor":
            return bool(self.departure and self.departure.runs)
        return super().check_action(action, parameters)

    def action_monitor(self) -> None:
        """Watch the newest run."""
        if self.departure and self.departure.runs:
            self.post_message(self.Launched(self.draft, preflight.run_folder(self.session, self.departure.runs[0][0])))
