"""One question of the wizard: the frame that every step shares."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.worker import get_current_worker

from grpo_tui.draft import STEPS, Draft
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.session import LOOK, Session
from grpo_tui.terminal import report_crash

from .drawn import Block
from .line import fit, spread, wrap
from .rail import TITLES, Rail
from .theme import Palette, palette_of
from .widgets.keys import KeyLine

MIN_SIZE = (80, 23)
"""The smallest terminal the wizard is drawn in: 80×24 less the line of tmux."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Trouble:
    """What stands in the way in a step, and the key that helps."""

    text: str
    key: str = ""
    verb: str = ""


FRAME_KEYS: list[BindingType] = [
    Binding("escape", "back", "back", key_display="esc"),
    Binding("enter", "next", "go on", key_display="enter", show=False),
    Binding("tab", "app.focus_next", "next panel", key_display="tab"),
    Binding("left_square_bracket", "turn(-1)", "step before", show=False),
    Binding("right_square_bracket", "turn(1)", "step after", show=False),
    *(Binding(str(k), f"jump({k})", f"to {TITLES[name]}", show=False) for k, name in enumerate(STEPS, start=1)),
    Binding("x", "cancel", "cancel", show=False),
    Binding("r", "look", "look again", show=False),
    Binding("question_mark", "help", "help", key_display="?"),
    Binding("q", "app.leave", "quit"),
    Binding("colon", "app.command_palette", "commands", key_display=":", show=False),
    Binding("shift+tab", "app.focus_previous", "panel before", show=False),
]
"""What every step answers to. A step with keys of its own puts them before these: the key line drops the last first."""


class Step(Screen[None], inherit_bindings=False):
    """A question, why it matters, the answer so far, and what is still missing."""

    NAME: ClassVar[str]
    QUESTION: ClassVar[str]
    WHY: ClassVar[str]
    HELP: ClassVar[str] = ""
    """More about the step, shown by `?`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (MIN_SIZE[0], "-narrow"), (90, "-wide")]  # noqa: RUF012  Textual's own
    VERTICAL_BREAKPOINTS = [(0, "-short"), (MIN_SIZE[1], "-low"), (30, "-tall")]  # noqa: RUF012  Textual's own

    BINDINGS: ClassVar[list[BindingType]] = FRAME_KEYS

    @dataclass
    class Answered(Message):
        """The draft has another answer."""

        draft: Draft

    @dataclass
    class Finished(Message):
        """The user goes on; this step is done."""

        step: Step

    @dataclass
    class Wanted(Message):
        """The user wants to see another step."""

        name: str

    @dataclass
    class Found(Message):
        """What looking yielded."""

        result: object
        serial: int

    @dataclass
    class Said(Message):
        """How far the looking is."""

        text: str
        serial: int

    def __init__(self, draft: Draft, session: Session) -> None:
        super().__init__()
        self.draft = draft
        self.session = session
        self.stale: Mapping[str, tuple[str, ...]] = {}
        self.news = ""
        """A sentence about what happened before this step came up, such as what was done last time."""

        self.doing = ""
        """What is under way now; empty: nothing."""

        self.failed: tuple[Problem, ...] = ()
        self.errand: Callable[[Say], Problem | None] | None = None
        """What to do before the next look."""

        self.read_only = False
        self.finishing = False
        """The user went on, and what that means is being done: nothing can be changed now."""

        self._serial = 0
        self._go_on_when_ready = False
        self._edited = False
        """What changed since the step was done was changed here, before the user's eyes."""

        self._pressed_without_use = False

    # What a step fills in

    def body(self) -> ComposeResult:
        """The widgets of the step."""
        raise NotImplementedError

    def refresh_body(self) -> None:
        """Show the draft, and what was found, in the widgets of `body`."""

    def find(self, say: Say) -> object:
        """Look at files, machines, workers. Runs in a thread; returns what `found` takes, or problems."""
        return None

    def found(self, result: object) -> None:
        """Keep what `find` returned. Runs in the event loop."""

    def missing(self) -> Trouble | None:
        """What must be answered before the next step; None: nothing."""
        return None

    def remark(self) -> Trouble | None:
        """What is worth knowing although nothing is missing; None: nothing."""
        return None

    def settle(self) -> Draft:
        """The draft with what the user accepts by going on: a default becomes an answer."""
        return self.draft

    def commit(self) -> Draft | Problem | list[Problem]:
        """Do what going on means, such as writing files. Runs in a thread; the draft afterwards, or what is wrong."""
        return self.settle()

    # The frame

    @property
    def palette(self) -> Palette:
        """The colours in use."""
        return palette_of(self.app)

    def compose(self) -> ComposeResult:
        yield Block(self._top, id="top")
        with Horizontal(id="frame"):
            yield Rail()
            with Vertical(id="main"):
                yield Block(self._question, id="question")
                with VerticalScroll(id="body", can_focus=False):
                    yield from self.body()
                yield Block(self._last, id="last")
        yield Block(self._too_small, id="small")
        yield KeyLine()

    def on_mount(self) -> None:
        self.refresh_frame()
        self.refresh_body()
        self.look()
        for widget in self.query("#body *"):
            if widget.focusable:
                widget.focus()
                break

    def refresh_frame(self) -> None:
        """Draw rail, title, last line and key line anew."""
        if not self.is_mounted:
            return
        self.query_one(Rail).show(self.draft, self.NAME, self.stale)
        for block in self.query("#top, #question, #last").results(Block):
            block.redraw()
        self.query_one(KeyLine).report(self._chip())

    def _top(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        name = one_line(self.session.project.resolve().name or "/", 40)
        mark = text(("  read only", "warn bold")) if self.read_only else text()
        left = text(
            ("  " if width < 90 else " grpo-tui ", "accent bold"),
            ("│ " if width >= 90 else "", "border"),
            (name, "text bold"),
            mark,
        )
        return [spread(width, left, text((self.session.machine_words(), "muted"), " "))]

    def _question(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        place = text((f"step {STEPS.index(self.NAME) + 1} of {len(STEPS)}", "muted"))
        rows = [spread(width, text((self.QUESTION, "text bold")), place), *wrap(self.palette, self.WHY, width, "muted")]
        if self.NAME in self.stale and not self._edited:
            rows += wrap(
                self.palette, self.session.what_changed(self.stale[self.NAME]), width, "text", text(("! ", "warn bold"))
            )
        if self.news:
            rows += wrap(self.palette, self.news, width, "text", text(("  ", "text")))
        return rows

    def _last(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        if self.doing:
            after = "  continues by itself" if self._go_on_when_ready else ""
            tail = text((after, "muted"), ("  x ", "accent bold"), ("cancel", "muted"))
            doing = text(("● ", "accent bold"), (self.doing, "text"))
            return [text(fit(doing, min(doing.cell_len, max(1, width - tail.cell_len))), tail)]
        if self.failed:
            problem = self.failed[0]
            more = f"  ({len(self.failed) - 1} more)" if len(self.failed) > 1 else ""
            return wrap(self.palette, f"{one_line(str(problem), 600)}{more}", width, "text", text(("✗ ", "fail bold")))
        trouble = self.missing() or self.remark()
        if trouble is None:
            return [text(("✓ ", "ok bold"), ("Nothing is missing here.", "muted"))]
        sign = text(("! ", "warn bold" if self._pressed_without_use else "warn"))
        rows = wrap(self.palette, trouble.text, width, "text bold" if self._pressed_without_use else "text", sign)
        if trouble.key:
            key = text((f"  {trouble.key} ", "accent bold"), (trouble.verb, "muted"))
            if rows[-1].cell_len + key.cell_len > width:
                rows.append(text())
            rows[-1].append_text(key)
        return rows

    def _chip(self) -> Text | None:
        if self.doing or self.failed or self.missing() is not None:
            return None
        text = self.palette.text
        return text(("  enter ", "accent bold on_select"), (f"{self.onward()}  ", "text bold on_select"))

    def onward(self) -> str:
        """What enter does when nothing is missing."""
        return f"continue to {TITLES[STEPS[STEPS.index(self.NAME) + 1]]}"

    def _too_small(self, width: int) -> Sequence[Text]:
        wanted = f"Terminal too small: need {MIN_SIZE[0]}×{MIN_SIZE[1]}, have {self.size.width}×{self.size.height}."
        return wrap(self.palette, wanted, width)

    # Answers

    def answer(self, draft: Draft, *, look: bool = False) -> None:
        """Take an answer: kept at once, shown at once; `look`: what rests on it must be found anew."""
        if self.finishing:
            self.notify("This step is being finished; one moment.", markup=False)
            return
        self._edited = True
        self.draft = draft
        self._pressed_without_use = False
        self.post_message(self.Answered(draft))
        if look:
            self.look()
        self.refresh_body()
        self.refresh_frame()

    def action_next(self) -> None:
        """Go on, or say what is missing; while something is under way, go on when it is ready."""
        if self.doing:
            self._go_on_when_ready = self._serial > 0
        elif self.failed or self.missing() is not None:
            self._pressed_without_use = True
        else:
            self.doing = "One moment…"
            self.finishing = True
            self.post_message(self.Finished(self))
        self.refresh_frame()

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Going on failed: show why."""
        self.doing = ""
        self.finishing = False
        self.failed = tuple(problems)
        self.refresh_frame()

    def action_back(self) -> None:
        """The step before."""
        self.action_turn(-1)

    def action_turn(self, by: int) -> None:
        """Another step, without saying that this one is done."""
        at = STEPS.index(self.NAME) + by
        if 0 <= at < len(STEPS):
            self.post_message(self.Wanted(STEPS[at]))

    def action_jump(self, number: int) -> None:
        """Step `number`."""
        self.post_message(self.Wanted(STEPS[number - 1]))

    def action_help(self) -> None:
        """What this step is about, and every key that works."""
        from .dialogs import Show  # its widgets take 10 ms that the first picture does not wait for

        self.app.push_screen(Show(self.QUESTION, self._help_rows))

    def _help_rows(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        rows = [*wrap(self.palette, self.WHY, width)]
        if self.HELP:
            rows += [text(), *wrap(self.palette, self.HELP, width)]
        rows.append(text())
        keys: dict[str, list[str]] = {}
        for active in self.active_bindings.values():
            binding = active.binding
            own = not binding.action.startswith(("scroll_", "page_", "app.command", "copy", "minimize"))
            if binding.description and active.enabled and own:
                sign = binding.key_display or self.app.get_key_display(binding)
                signs = keys.setdefault(binding.description, [])
                signs += [sign] if sign not in signs else []
        rows += [text((f"{'/'.join(signs):>10}  ", "accent bold"), (said, "text")) for said, signs in keys.items()]
        return rows

    # Looking

    def do(self, errand: Callable[[Say], Problem | None]) -> None:
        """Do something that takes a while in the thread that looks, and then look; a problem is shown instead."""
        self.errand = errand
        self.look()
        self.refresh_frame()

    def action_look(self) -> None:
        """Look again."""
        self.session.forget()
        self.look()
        self.refresh_frame()

    def look(self) -> None:
        """Find anew, in a thread; what an earlier look finds is thrown away."""
        if type(self).find is Step.find:
            return
        if self.doing:
            self.session.stop(LOOK)  # for a look that nobody waits for any longer
        self._serial += 1
        self.failed = ()
        self.doing = "Looking…"
        self._find_in_thread(self._serial)

    @work(thread=True, exclusive=True, group="look")
    def _find_in_thread(self, serial: int) -> None:
        worker = get_current_worker()

        def say(text: str) -> None:
            self.post_message(self.Said(text, serial))

        errand, self.errand = self.errand, None
        try:
            result = (errand(say) if errand else None) or self.find(say)
        except Exception:  # noqa: BLE001 - whatever it is, the other steps must stay within reach
            where = report_crash(traceback.format_exc())
            result = Problem(
                TITLES[self.NAME], f"A fault of ours; the report is in {where}.", "Change an answer, or press r."
            )
        if not worker.is_cancelled:
            self.post_message(self.Found(result, serial))

    def on_step_said(self, message: Said) -> None:
        """Progress."""
        if message.serial == self._serial and self.doing:
            self.doing = message.text
            self.refresh_frame()

    def on_step_found(self, message: Found) -> None:
        """The look is over."""
        if message.serial != self._serial:
            return
        self.doing = ""
        match message.result:
            case Problem() as problem:
                self.failed = (problem,)
            case [Problem(), *_] as problems:
                self.failed = tuple(problem for problem in problems if isinstance(problem, Problem))
            case result:
                self.found(result)
        self.refresh_body()
        self.refresh_frame()
        if self._go_on_when_ready:
            self._go_on_when_ready = False
            if self.app.screen is self:  # else a question came up meanwhile, and the key was meant for it
                self.action_next()

    def action_cancel(self) -> None:
        """Stop looking; the worker's process is ended."""
        if self.finishing:
            self.notify("Files are being written; one moment.", markup=False)
        if not self.doing or self.finishing:
            return
        self._serial += 1
        self._go_on_when_ready = False
        self.doing = ""
        self.failed = (Problem(TITLES[self.NAME], "You cancelled this.", "Press r to look again."),)
        self.session.cancel()
        self.refresh_frame()
