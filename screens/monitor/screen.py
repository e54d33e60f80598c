"""The monitor's screen: reads the run once a second in a thread, and hands one `Sight` to its panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from grpo_tui.screens.theme import palette_of
from grpo_tui.screens.widgets.keys import KeyLine
from grpo_tui.screens.widgets.scale import horizon
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.screen import Screen

from grpo_tui.inert import inert
from grpo_tui.problem import Problem
from grpo_tui.run import control
from grpo_tui.run.folder import RUNS_FOLDER, RunSummary, runs

from .cards import CardsPanel, lines_of
from .charts import ChartPanel, GradientPanel, PartsPanel, PolicyPanel, RewardPanel
from .completions import CompletionsPanel
from .glance import Glance, look
from .health import HealthPanel
from .keys import KEYS
from .layout import TABS, arrange, is_wide
from .log import LogPanel
from .panel import MonitorPanel
from .sight import Seen, Sight, moved
from .status import FigureStrip, StatusLine, TooSmall, link

PANELS: tuple[type[MonitorPanel], ...] = (
    RewardPanel, PartsPanel, PolicyPanel, GradientPanel, CardsPanel, HealthPanel, CompletionsPanel, LogPanel,
)  # fmt: skip
SMOOTHING = (1, 5, 20)
"""Rows averaged into each point, in turn."""

LOOK_SECONDS = 1.0
IDLE_LOOKS = 5
"""A run that is over is looked at every so many times only: it may be resumed."""


class MonitorScreen(Screen[None]):
    """One run, live or long over: they are the same folder."""

    CSS_PATH = "monitor.tcss"
    AUTO_FOCUS = "#panel-1"
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    @dataclass
    class Looked(Message):
        """The thread has read the folder."""

        glance: Glance

    class ProjectWanted(Message):
        """The viewer goes back to the steps of the project."""

    def __init__(
        self,
        run: Path,
        *,
        read_only: bool = False,
        in_project: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`in_project`: there are steps to go back to; `clock` gives Unix seconds, None: the real time."""
        super().__init__()
        self.in_project = in_project
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
        self.call_after_refresh(self.look_once)  # a thread that reads, and imports numpy, would hold up the first paint

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
        before = lines_of(self.sight.glance) if self.sight else 0
        if self.sight is None:
            self.sight = Sight(glance=glance)
        self.sight = replace(self.sight, glance=glance, zoom=self._zoom, tab=0 if is_wide(*self.size) else self._tab)
        if before != lines_of(glance):
            self._arrange()
        self._hand_out()

    def _hand_out(self) -> None:
        if self.sight is None:
            return
        for seen in self.query(Seen):
            seen.show(self.sight)
        self.query_one(KeyLine).report(
            link(palette_of(self.app), self.sight.glance, paused=self.paused, wide=self.size.width >= 100)
        )

    # Arrangement

    def _arrange(self) -> None:
        """Put every panel in its place, or out of sight."""
        width, height = self.size
        wanted = lines_of(self._glance) if self._glance else 0
        places = arrange(width, height, tab=self._tab, pair=self._pair, zoom=self._zoom, gpu_lines=wanted)
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
        if self.sight is not None and self.sight.progress.times:
            self._change(cursor=moved(self.sight.progress.times.steps, self.sight.cursor, by))

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
        from .values import ValuesScreen

        self.app.push_screen(ValuesScreen(lambda: self.sight))

    def action_read_completion(self) -> None:
        """The whole of the completion under the cursor."""
        from . import pages

        panel = self.panel(7)
        if isinstance(panel, CompletionsPanel) and self.sight is not None and panel.table is not None:
            self.app.push_screen(pages.completion(palette_of(self.app), self.sight, panel, panel.table))

    def action_help(self) -> None:
        """All keys and what they do, made of the bindings."""
        from . import pages

        bindings = [binding for binding in self.BINDINGS if isinstance(binding, Binding) and binding.tooltip]
        bindings = [binding for binding in bindings if binding.action != "project" or self.in_project]
        rows = [(binding.key_display or self.app.get_key_display(binding), binding.tooltip) for binding in bindings]
        self.app.push_screen(pages.keys(palette_of(self.app), rows))

    def action_after(self) -> None:
        """Where the trained model is and how to load it."""
        from . import pages

        self.app.push_screen(
            pages.after_training(palette_of(self.app), self.run, self._glance.after if self._glance else "")
        )

    def action_runs(self) -> None:
        """The runs of this project, to look at another."""
        self._list_runs()

    @work(thread=True, exclusive=True, group="runs")
    def _list_runs(self) -> None:
        project = self.run.parent.parent if self.run.parent.name == RUNS_FOLDER else self.run.parent
        self.app.call_from_thread(self._choose_run, runs(project))

    def _choose_run(self, found: list[RunSummary]) -> None:
        from . import pages

        if not found:
            self.app.notify("This folder is no run of a project: there is no list of runs.", markup=False)
            return

        def chosen(path: str | None) -> None:
            if path and Path(path) != self.run:
                other = MonitorScreen(
                    Path(path), read_only=self.read_only, in_project=self.in_project, clock=self._clock
                )
                self.app.switch_screen(other)

        self.app.push_screen(pages.choice_of_run(found, self.run), chosen)

    # Control

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What cannot be done now is not offered."""
        glance = self._glance
        if action in ("stop", "save"):
            return glance is not None and glance.life.alive and not self.read_only
        if action == "project":
            return self.in_project
        if action == "after":
            return glance is not None and bool(glance.after)
        return True

    def action_stop(self) -> None:
        """Ask for the end, after a yes."""
        self._ask("stop")

    def action_save(self) -> None:
        """Ask for a checkpoint, after a yes."""
        self._ask("save")

    def _ask(self, action: str) -> None:
        from . import pages

        def answered(yes: bool | None) -> None:
            if yes:
                self._request(action)

        self.app.push_screen(pages.request(palette_of(self.app), action), answered)

    @work(thread=True, group="request")
    def _request(self, action: str) -> None:
        asked = control.request(self.run, action)
        self.app.call_from_thread(self._asked, action, asked)

    def _asked(self, action: str, asked: Path | Problem) -> None:
        if isinstance(asked, Problem):
            self.app.notify(inert(str(asked)), severity="error", timeout=15, markup=False)
            return
        from . import pages

        self.app.notify(pages.REQUESTS[action].asked, markup=False)
        self.look_once()

    def action_project(self) -> None:
        """Back to the steps; training goes on."""
        self.post_message(self.ProjectWanted())

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
