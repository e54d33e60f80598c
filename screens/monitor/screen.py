"""The monitor's screen: reads the run once a second in a thread, and hands one `Sight` to its panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from grpo_tui.screens.dialogs import Ask, Choose, Show
from grpo_tui.screens.drawn import Choice
from grpo_tui.screens.line import wrap
from grpo_tui.screens.theme import palette_of
from grpo_tui.screens.widgets.keys import KeyLine
from grpo_tui.screens.widgets.lines import Lines
from grpo_tui.screens.widgets.scale import horizon
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.screen import Screen

from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem
from grpo_tui.run import control
from grpo_tui.run.folder import RUNS_FOLDER, RunSummary, runs

from .facts import STATES
from .figures import ago, exact
from .glance import Glance, look
from .layout import LEAST, TABS, arrange, is_wide
from .panels import (
    CardsPanel,
    ChartPanel,
    CompletionsPanel,
    FigureStrip,
    GradientPanel,
    HealthPanel,
    LogPanel,
    MonitorPanel,
    PartsPanel,
    PolicyPanel,
    RewardPanel,
    Sight,
    StatusLine,
)
from .values import ValuesScreen

PANELS: tuple[type[MonitorPanel], ...] = (
    RewardPanel, PartsPanel, PolicyPanel, GradientPanel, CardsPanel, HealthPanel, CompletionsPanel, LogPanel,
)  # fmt: skip
SMOOTHING = (1, 5, 20)
"""Rows averaged into each point, in turn."""

LOOK_SECONDS = 1.0
IDLE_LOOKS = 5
"""A run that is over is looked at every so many times only: it may be resumed."""


class TooSmall(Lines):
    """What a screen shows that is too small for panels."""

    def paint(self, width: int, height: int) -> list[Text]:
        """One sentence, as far as it goes."""
        words = f"The window is {self.app.size.width}×{self.app.size.height}; the monitor needs {LEAST[0]}×{LEAST[1]}."
        return wrap(self.palette, words, width, "text")


class MonitorScreen(Screen[None]):
    """One run, live or long over: they are the same folder."""

    CSS_PATH = "monitor.tcss"
    AUTO_FOCUS = "#panel-1"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "panel(1)", "panel", key_display="1-8",
                tooltip="Go to a panel; once more: its next metric (2, 3)."),
        *(Binding(str(number), f"panel({number})", "panel", show=False) for number in range(2, 9)),
        Binding("enter", "zoom", "zoom", key_display="enter", 
                tooltip="Enlarge the panel, or make it small again; on a completion: read it."),
        Binding("v", "values", "values", tooltip="Every logged figure exactly as logged, with its unit and meaning."),
        Binding("left", "cursor(-1)", "cursor", key_display="←/→",
                tooltip="Move the cursor over the steps; the panels' rules show the exact figures there."),
        Binding("right", "cursor(1)", "cursor", show=False),
        Binding("comma", "row(-1)", "row before", key_display=",", show=False, tooltip="The cursor one row back."),
        Binding("full_stop", "row(1)", "row after", key_display=".", show=False, tooltip="The cursor one row on."),
        Binding("p", "pause", "pause", tooltip="Keep what is on the screen; training goes on."),
        Binding("S", "stop", "stop", tooltip="Ask training to end after the current step, with a checkpoint."),
        Binding("w", "save", "save", tooltip="Ask training for a checkpoint after the current step."),
        Binding("q", "leave", "leave", tooltip="Leave the monitor. A training that runs goes on."),
        Binding("s", "smooth", "smooth", tooltip="Average 1, 5 or 20 rows into each point."),
        Binding("y", "log", "log scale", show=False, tooltip="Logarithmic scale, and back."),
        Binding("r", "runs", "runs", tooltip="All runs of this project."),
        Binding("l", "show_log", "log", show=False, tooltip="The log, enlarged."),
        Binding("a", "after", "after training", tooltip="Where the trained model is, and the lines that load it."),
        Binding("colon", "app.command_palette", "commands", key_display=":", show=False),
        Binding("escape", "back", "back", show=False, tooltip="Without cursor; from the enlarged panel to all."),
        Binding("question_mark", "help", "help", key_display="?"),
    ]  # fmt: skip

    @dataclass
    class Looked(Message):
        """The thread has read the folder."""

        glance: Glance

    def __init__(self, run: Path, *, read_only: bool = False, clock: Callable[[], float] | None = None) -> None:
        """`clock` gives Unix seconds; None: the real time."""
        super().__init__()
        self.run = run
        self.read_only = read_only
        self.sight: Sight | None = None
        self.paused = False
        self._clock = clock
        self._glance: Glance | None = None
        self._looking = False
        self._ticks = 0
        self._step: int | None = None
        self._tab = 6
        self._pair = (3, 4)
        self._zoom = 0

    # Composition

    def compose(self) -> ComposeResult:
        """Everything is there from the start; `arrange` says where."""
        yield StatusLine()
        yield FigureStrip()
        for panel in PANELS:
            yield panel()
        yield TooSmall()
        yield KeyLine()

    def on_mount(self) -> None:
        """Begin to look."""
        self.set_interval(LOOK_SECONDS, self._tick)
        self.look_once()

    def on_resize(self, event: Resize) -> None:
        """Another size, perhaps another arrangement."""
        self._arrange()

    # Looking

    def _tick(self) -> None:
        self._ticks += 1
        if self._glance is None or self._glance.life.alive or self._ticks % IDLE_LOOKS == 0:
            self.look_once()

    def look_once(self) -> None:
        """Read the folder once, unless the last reading still waits for its file system."""
        if not self._looking:
            self._looking = True
            self._read()

    @work(thread=True, group="look")
    def _read(self) -> None:
        import numpy  # noqa: F401 - here, so that the first picture that needs it does not wait in the event loop

        now = None if self._clock is None else self._clock()
        self.post_message(self.Looked(look(self.run, self._glance, step=self._step, now=now)))

    def on_monitor_screen_looked(self, event: Looked) -> None:
        """Show what was found."""
        self._looking = False
        before, self._glance = self._glance, event.glance
        if before is not None and before.life.alive and not event.glance.life.alive:
            self.app.bell()
        if not self.paused or self.sight is None:
            self._show(event.glance)
        if not event.glance.view.complete:
            self.look_once()
        if before is None or (before.life.state, before.after) != (event.glance.life.state, event.glance.after):
            self.refresh_bindings()

    def _show(self, glance: Glance) -> None:
        cards = len(self.sight.glance.cards) if self.sight else 0
        if self.sight is None:
            self.sight = Sight(glance=glance)
        self.sight = replace(self.sight, glance=glance, zoom=self._zoom, tab=0 if is_wide(*self.size) else self._tab)
        if cards != len(glance.cards):
            self._arrange()
        self._hand_out()

    def _hand_out(self) -> None:
        if self.sight is None:
            return
        self.query_one(StatusLine).show(self.sight)
        self.query_one(FigureStrip).show(self.sight)
        for panel in self.query(MonitorPanel):
            panel.show(self.sight)
        self.query_one(KeyLine).report(self._link(self.sight.glance))

    def _link(self, glance: Glance) -> Text:
        """The right end of the last line: where it runs, and how old the news is."""
        text, life = palette_of(self.app).text, glance.life
        host = (
            text((f"{one_line(life.host, 24)} ", "muted on_surface"))
            if life.host and self.size.width >= 100
            else text()
        )
        if self.paused:
            return text(host, ("! paused ", "warn bold on_surface"))
        sign, role = STATES.get(life.state, STATES["unknown"])
        if not life.alive:
            return text(host, (f"{sign} ", f"{role} on_surface"), (f"{life.state} ", "muted on_surface"))
        if life.last_event_age is None:
            return text(host, ("○ ", "muted on_surface"), ("no event yet ", "muted on_surface"))
        sign, role = ("!", "warn") if life.state == "silent" else ("●", "ok")
        return text(host, (f"{sign} ", f"{role} on_surface"), (f"{ago(life.last_event_age)} ", "muted on_surface"))

    # Arrangement

    def _arrange(self) -> None:
        """Put every panel in its place, or out of sight."""
        width, height = self.size
        cards = len(self._glance.cards) if self._glance else 0
        places = arrange(width, height, tab=self._tab, pair=self._pair, zoom=self._zoom, cards=cards)
        widgets = {"status": self.query_one(StatusLine), "strip": self.query_one(FigureStrip)}
        widgets |= {str(panel.NUMBER): panel for panel in self.query(MonitorPanel)}
        for name, widget in widgets.items():
            place = places.get(name)
            widget.display = place is not None
            if place is not None:
                widget.styles.offset = (place.x, place.y)
                widget.styles.width, widget.styles.height = place.width, place.height
        self.query_one(TooSmall).display = not places
        self.query_one(KeyLine).display = bool(places)
        if self.sight is not None:
            self.sight = replace(self.sight, zoom=self._zoom, tab=0 if is_wide(width, height) else self._tab)
        self.call_after_refresh(self._hand_out)

    def panel(self, number: int) -> MonitorPanel:
        """The panel with this number."""
        return self.query_one(f"#panel-{number}", MonitorPanel)

    @property
    def focused_panel(self) -> MonitorPanel | None:
        """The panel with the focus."""
        return self.focused if isinstance(self.focused, MonitorPanel) else None

    def action_panel(self, number: int) -> None:
        """Go to a panel, and bring it into sight; when it is there already, show its next metric."""
        panel = self.panel(number)
        if panel is self.focused and isinstance(panel, ChartPanel):
            panel.turn_over()
        if number in TABS:
            self._tab = number
        elif number in (2, 3, 4) and number not in self._pair:
            self._pair = (2, 3) if number == 2 else (3, 4)
        if self._zoom:
            self._zoom = number
        self._arrange()
        panel.focus(scroll_visible=False)

    def action_zoom(self) -> None:
        """Enlarge the panel with the focus, or show all again."""
        panel = self.focused_panel
        self._zoom = 0 if self._zoom or panel is None else panel.NUMBER
        self._arrange()

    def action_back(self) -> None:
        """One thing less: the cursor, the enlarged panel."""
        if self.sight is not None and self.sight.cursor is not None:
            self._change(cursor=None)
        elif self._zoom:
            self._zoom = 0
            self._arrange()

    # What the viewer wants shown

    def _change(self, *, cursor: int | None) -> None:
        if self.sight is not None:
            self.sight = replace(self.sight, cursor=cursor)
            self._hand_out()

    def action_cursor(self, by: int) -> None:
        """Move the cursor by one cell of the chart."""
        if self.sight is None:
            return
        focused = self.focused_panel
        chart = focused if isinstance(focused, ChartPanel) else self.panel(1)
        times = self.sight.progress.times
        last = times.point(-1)[0] if times else 0
        cells = max(1, chart.size.width - 6)
        self._move_cursor(by * max(1.0, horizon(last, self.sight.progress.max_steps) / cells))

    def action_row(self, by: int) -> None:
        """Move the cursor by one row."""
        self._move_cursor(by)

    def _move_cursor(self, by: float) -> None:
        """Move by so many steps, onto a step that was logged; at least to the next one."""
        if self.sight is None or not self.sight.progress.times:
            return
        steps = self.sight.progress.times.steps
        at = len(steps) - 1 if self.sight.cursor is None else int(steps.searchsorted(self.sight.cursor))
        if self.sight.cursor is None:
            self._change(cursor=int(steps[at]))
            return
        near = int(steps.searchsorted(steps[min(at, len(steps) - 1)] + by))
        near = max(near, at + 1) if by > 0 else min(near, at - 1)
        self._change(cursor=int(steps[max(0, min(len(steps) - 1, near))]))

    def action_smooth(self) -> None:
        """The next smoothing."""
        if self.sight is not None:
            now = SMOOTHING.index(self.sight.smoothing)
            self.sight = replace(self.sight, smoothing=SMOOTHING[(now + 1) % len(SMOOTHING)])
            self._hand_out()

    def action_log(self) -> None:
        """Logarithmic scale, and back."""
        if self.sight is not None:
            self.sight = replace(self.sight, log=not self.sight.log)
            self._hand_out()

    def action_pause(self) -> None:
        """Keep the picture, or go on."""
        self.paused = not self.paused
        if not self.paused and self._glance is not None:
            self._show(self._glance)
        else:
            self._hand_out()

    def action_show_log(self) -> None:
        """The log, enlarged."""
        self._zoom = 8
        self.action_panel(8)

    def action_other_step(self, by: int) -> None:
        """The completions of the kept step before or after."""
        if self._glance is None or not self._glance.steps_kept:
            return
        kept = self._glance.steps_kept
        shown = self.panel(7)
        table = shown.table if isinstance(shown, CompletionsPanel) else None
        at = kept.index(table.step) if table is not None and table.step in kept else len(kept) - 1
        at = max(0, min(len(kept) - 1, at + by))
        self._step = None if at == len(kept) - 1 else kept[at]
        self.look_once()

    # Reading

    def action_values(self) -> None:
        """Every figure."""
        self.app.push_screen(ValuesScreen(lambda: self.sight))

    def action_read_completion(self) -> None:
        """The whole of the completion under the cursor."""
        panel = self.panel(7)
        if not isinstance(panel, CompletionsPanel) or self.sight is None or (table := panel.table) is None:
            return
        palette, sight = palette_of(self.app), self.sight
        group, index = panel.order(table)[panel.place]
        total, advantage = panel.sums(sight, table)[index], table.advantages[index]
        weights = dict(zip(sight.progress.reward_names, sight.progress.weights, strict=False))

        def draw(width: int) -> list[Text]:
            lines = [palette.text(("Prompt", "muted bold"))]
            lines += wrap(palette, inert(table.prompts[index]), width, "muted")
            lines += [palette.text(), palette.text(("Completion", "muted bold"))]
            lines += wrap(palette, inert(table.completions[index]), width, "text")
            lines += [palette.text(), palette.text(("Rewards", "muted bold"))]
            for name, values in table.rewards.items():
                weight = f"  × {exact(weights[name])}" if name in weights else ""
                lines.append(palette.text((f"{one_line(name, 30):<30} ", "muted"), (exact(values[index]), "text bold"),
                                          (weight, "muted")))  # fmt: skip
            lines.append(palette.text((f"{'weighted sum':<30} ", "muted"), (exact(total), "text bold")))
            lines.append(palette.text((f"{'advantage':<30} ", "muted"), (exact(advantage), "text bold")))
            for name, texts in table.extra.items():
                lines += wrap(
                    palette, inert(texts[index]), width, "text", palette.text((f"{one_line(name, 30):<30} ", "muted"))
                )
            for note in table.notes:
                lines += wrap(palette, note, width, "text", palette.text(("! ", "warn bold")))
            return lines

        title = f"Step {table.step}, group {group + 1}, completion {panel.place + 1} of {len(table.completions)}"
        self.app.push_screen(Show(title, draw))

    def action_help(self) -> None:
        """All keys and what they do, made of the bindings."""
        palette = palette_of(self.app)
        bindings = [binding for binding in self.BINDINGS if isinstance(binding, Binding) and binding.tooltip]
        rows = [(binding.key_display or self.app.get_key_display(binding), binding.tooltip) for binding in bindings]
        rows += [("[ ]", "In the completions: the kept step before and after."),
                 ("↑ ↓", "In completions and log: up and down; g and G to the ends.")]  # fmt: skip
        notes = (
            "The arrows in the strip compare the last five rows with those fifty steps before. "
            "The band around the reward is its spread over the batch; the whisker over other lines reaches to the "
            "greatest of the rows that share a column. Groups without signal are computed here from the rewards."
        )

        def draw(width: int) -> list[Text]:
            lines = []
            for sign, words in rows:
                lines += wrap(palette, words, width, "text", palette.text((f"{sign:<9}", "accent bold")))
            return [*lines, palette.text(), *wrap(palette, notes, width, "muted")]

        self.app.push_screen(Show("Keys", draw))

    def action_after(self) -> None:
        """Where the trained model is and how to load it."""
        palette, after = palette_of(self.app), self._glance.after if self._glance else ""
        where = f"After training: {one_line(str(self.run), 60)}"
        self.app.push_screen(Show(where, lambda width: wrap(palette, inert(after), width, "text")))

    def action_runs(self) -> None:
        """The runs of this project, to look at another."""
        self._list_runs()

    @work(thread=True, exclusive=True, group="runs")
    def _list_runs(self) -> None:
        project = self.run.parent.parent if self.run.parent.name == RUNS_FOLDER else self.run.parent
        self.app.call_from_thread(self._choose_run, runs(project))

    def _choose_run(self, found: list[RunSummary]) -> None:
        if not found:
            self.app.notify("This folder is no run of a project: there is no list of runs.", markup=False)
            return

        def chosen(path: str | None) -> None:
            if path and Path(path) != self.run:
                self.app.switch_screen(MonitorScreen(Path(path), read_only=self.read_only, clock=self._clock))

        choices = [Choice(str(one.run), one_line(one.name, 28), self._in_words(one)) for one in found]
        self.app.push_screen(Choose("Runs of this project", choices, str(self.run)), chosen)

    @staticmethod
    def _in_words(one: RunSummary) -> str:
        far = f"step {one.life.step}" + (f" of {one.life.max_steps}" if one.life.max_steps else "")
        return f"{STATES[one.life.state][0]} {one.life.state}  {far}"

    # Control

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What cannot be done now is not offered."""
        glance = self._glance
        if action in ("stop", "save"):
            return glance is not None and glance.life.alive and not self.read_only
        if action == "after":
            return glance is not None and bool(glance.after)
        return True

    def action_stop(self) -> None:
        """Ask for the end, after a yes."""
        self._ask("stop", "Stop this training?", "It ends after the current step and writes a checkpoint first, from "
                  "which it can go on later. The request is written to the run's journal with your name.")  # fmt: skip

    def action_save(self) -> None:
        """Ask for a checkpoint, after a yes."""
        self._ask("save", "Write a checkpoint now?", "It is written after the current step; training goes on. The "
                  "request is written to the run's journal with your name.")  # fmt: skip

    def _ask(self, action: str, title: str, about: str) -> None:
        palette = palette_of(self.app)

        def answered(yes: bool | None) -> None:
            if yes:
                self._request(action)

        self.app.push_screen(
            Ask(title, lambda width: wrap(palette, about, width, "text"), yes=f"{action} it", no="no, go on"), answered
        )

    @work(thread=True, group="request")
    def _request(self, action: str) -> None:
        asked = control.request(self.run, action)
        self.app.call_from_thread(self._asked, action, asked)

    def _asked(self, action: str, asked: Path | Problem) -> None:
        if isinstance(asked, Problem):
            self.app.notify(inert(str(asked)), severity="error", timeout=15, markup=False)
            return
        words = (
            "Asked to stop after the current step." if action == "stop" else "Asked for a checkpoint after this step."
        )
        self.app.notify(words, markup=False)
        self.look_once()

    def action_leave(self) -> None:
        """Leave; training goes on."""
        words = self.farewell()
        if any(isinstance(screen, Screen) and screen is not self for screen in self.app.screen_stack[1:]):
            self.app.pop_screen()
            self.app.notify(words, markup=False)
        else:
            self.app.exit(words)

    def farewell(self) -> str:
        """What is said on leaving: the run's state, and how to come back."""
        life = self._glance.life if self._glance else None
        if life is not None and life.alive:
            return f"Training goes on in {self.run}. Watch it again: grpo-tui watch {self.run}"
        return f"{self.run}: {life.state}. {life.words}" if life else ""
