"""The wizard: which step is on the screen, and the draft kept after every answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import SystemCommand
from textual.screen import Screen
from textual.worker import get_current_worker

from grpo_tui import lock, state
from grpo_tui.draft import STEPS, Draft, finish, stale
from grpo_tui.leaving import farewell, what_is_done
from grpo_tui.problem import Problem
from grpo_tui.session import LOOK, TRY, Session, now

from .drawn import Choice
from .rail import TITLES
from .step import Step
from .theme import THEME_CSS, ThemedApp

if TYPE_CHECKING:
    from .launch import LaunchStep


def step_class(name: str) -> type[Step]:
    """The screen of a step, imported when it is wanted: the first paint needs one of the nine."""
    return getattr(import_module(f"grpo_tui.screens.{name}"), f"{TITLES[name]}Step")  # type: ignore[no-any-return]  # one class a file, by name


class GrpoApp(ThemedApp[str]):
    """Nine questions, then the panel of the run."""

    TITLE = "grpo-tui"
    CSS_PATH: ClassVar = [THEME_CSS, Path(__file__).with_name("app.tcss")]

    def __init__(
        self,
        project: Path,
        *,
        recipe: str = "",
        session: Session | None = None,
        theme: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(theme=theme, environ=environ)
        self.project = project
        self.recipe = recipe
        self.session = session or Session(project)
        self.draft = Draft()
        self.facts: Mapping[str, str] = {}
        self.read_only = False
        self._lock: lock.Lock | None = None
        self._loaded = False
        self._saver = ThreadPoolExecutor(max_workers=1, thread_name_prefix="save")

    def on_mount(self) -> None:
        """Open the project."""
        self.open_project()

    # Opening

    @work(thread=True, exclusive=True, group="open")
    def open_project(self, *, take_over: bool = False, read_only: bool = False) -> None:
        """Take the lock and read the draft, away from the event loop: a network file system may block."""
        holder: lock.Lock | lock.Holder | Problem | None = None
        try:
            self.project.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.call_from_thread(
                self.opened,
                None,
                Problem(str(self.project), f"The folder cannot be made: {error.strerror}.", "Choose another folder."),
                read_only,
            )
            return
        if not read_only and self._lock is None:
            holder = lock.acquire(self.project, take_over=take_over)
        loaded = state.load(self.project)
        if isinstance(loaded, state.Loaded) and self.recipe and loaded.draft == Draft():
            begun = self.session.draft_for(self.recipe)
            loaded = begun if isinstance(begun, Problem) else state.Loaded(draft=begun)
        running = self.last_run(loaded.draft) if isinstance(loaded, state.Loaded) else None
        self.call_from_thread(self.opened, holder, loaded, read_only, running)

    def last_run(self, draft: Draft) -> Path | None:
        """The run to come back to: the newest one, where launching it was the last thing done."""
        from grpo_tui.run.folder import newest

        return newest(self.project) if draft.step == "launch" and "launch" in draft.done else None

    def opened(
        self,
        holder: lock.Lock | lock.Holder | Problem | None,
        loaded: state.Loaded | Problem,
        read_only: bool,
        running: Path | None = None,
    ) -> None:
        """Show the step where the user left, or what stands in the way of it."""
        if isinstance(holder, lock.Lock):
            self._lock = holder
        if isinstance(holder, lock.Holder):
            from .dialogs import Choose  # see Step.action_help

            self.push_screen(
                Choose("This project is open elsewhere", self.holder_choices(holder), "watch", f"{holder} has it."),
                self.holder_answered,
            )
            return
        if isinstance(loaded, Problem):
            from .dialogs import Choose

            self.push_screen(
                # Only who holds the lock may put the last good copy in its place.
                Choose(
                    "The state of this project cannot be read", BROKEN_CHOICES[self._lock is None :], "", str(loaded)
                ),
                self.broken_answered,
            )
            return
        self.read_only = read_only or loaded.read_only or isinstance(holder, Problem)
        self.draft = loaded.draft
        self._loaded = True
        news = " ".join([*loaded.notes, *([str(holder)] if isinstance(holder, Problem) else [])])
        news = news or what_is_done(self.draft)
        self.show_step(self.draft.step, news)
        if running is not None:
            self.watch_run(running)

    def holder_choices(self, holder: lock.Holder) -> list[Choice]:
        """What can be done about another instance."""
        choices = [Choice("watch", "look only", "nothing you change is kept"), Choice("quit", "quit")]
        if holder.alive is None:
            choices.insert(1, Choice("take", "take over", "only if you know that the other one has ended"))
        return choices

    def holder_answered(self, answer: str | None) -> None:
        """Look only, take over, or leave."""
        if answer == "watch":
            self.open_project(read_only=True)
        elif answer == "take":
            self.open_project(take_over=True)
        else:
            self.exit(result="", return_code=2)

    def broken_answered(self, answer: str | None) -> None:
        """The last good copy, a fresh look without saving, or leave."""
        if answer == "backup":
            self._restore()
        elif answer == "fresh":
            self.opened(None, state.Loaded(draft=Draft()), True)
        else:
            self.exit(result="", return_code=2)

    @work(thread=True, exclusive=True, group="open")
    def _restore(self) -> None:
        restored = state.restore_backup(self.project)
        self.call_from_thread(self.opened, None, restored, False)

    # Steps

    def show_step(self, name: str, news: str = "") -> None:
        """Put a step on the screen."""
        self.session.stop(LOOK)  # what the step before still looks at; this one looks for itself
        step = step_class(name)(self.draft, self.session)
        step.news = news
        step.read_only = self.read_only
        step.stale = stale(self.draft, self.facts)
        if len(self.screen_stack) > 1:
            self.switch_screen(step)
        else:
            self.push_screen(step)
        step.call_after_refresh(self.gather_facts)  # a thread that works now would hold up the first paint

    def on_step_answered(self, message: Step.Answered) -> None:
        """Keep the answer."""
        self.keep(message.draft)
        self.gather_facts()

    def on_step_wanted(self, message: Step.Wanted) -> None:
        """Another step: any that is done, and the first that is not."""
        first_open = next((name for name in STEPS if name not in self.draft.done), STEPS[-1])
        if STEPS.index(message.name) > STEPS.index(first_open):
            self.notify(f"{TITLES[first_open]} comes first.", timeout=3, markup=False)
            return
        self.keep(replace(self.draft, step=message.name))
        self.show_step(message.name)

    @work(exclusive=True, group="finish")
    async def on_step_finished(self, message: Step.Finished) -> None:
        """Mark the step as done on the facts it rests on, and show the next."""
        step = message.step
        if self.read_only:  # nothing is written, nothing is marked: the next step is shown
            self.show_step(STEPS[min(STEPS.index(step.NAME) + 1, len(STEPS) - 1)])
            return
        result = await asyncio.to_thread(step.commit)
        if not isinstance(result, Draft):
            step.refuse([result] if isinstance(result, Problem) else result)
            return
        self.draft = result
        self.facts = await asyncio.to_thread(self.session.facts, self.draft)
        done = finish(self.draft, step.NAME, now(), self.facts)
        following = STEPS[min(STEPS.index(step.NAME) + 1, len(STEPS) - 1)]
        self.keep(replace(done, step=following))
        self.show_step(following)

    @work(thread=True, exclusive=True, group="facts")
    def gather_facts(self) -> None:
        """Find out in a thread whether what finished steps rest on is still as it was."""
        worker = get_current_worker()
        facts = self.session.facts(self.draft)
        if not worker.is_cancelled:  # a later look has begun: what this one saw is old
            self.call_from_thread(self.facts_known, facts)

    def facts_known(self, facts: Mapping[str, str]) -> None:
        """Show in the rail what changed."""
        self.facts = facts
        screen = self.screen_stack[-1] if self.screen_stack else None
        for step in (screen, *self.screen_stack):
            if isinstance(step, Step):
                step.stale = stale(self.draft, facts)
                step.refresh_frame()
                break

    def on_launch_step_launched(self, message: LaunchStep.Launched) -> None:
        """Watch the run."""
        if message.started:
            self.keep(finish(message.draft, "launch", now(), self.facts))
        self.watch_run(message.run)

    def watch_run(self, run: Path) -> None:
        """The panel of a run, in place of the step."""
        from .monitor.screen import MonitorScreen

        self.switch_screen(MonitorScreen(run, read_only=self.read_only, in_project=True))

    def on_monitor_screen_project_wanted(self) -> None:
        """Back from the panel of a run to the step that led to it."""
        self.show_step(self.draft.step)

    # Keeping

    def keep(self, draft: Draft) -> None:
        """Save after every answer, in order, away from the event loop."""
        self.draft = draft
        if not self.read_only and self._loaded:
            self._saver.submit(state.save, self.project, draft).add_done_callback(self._saved)

    def _saved(self, done: Future[Problem | None]) -> None:
        problem = done.result()
        self.unsaved = str(problem) if problem is not None else ""
        if problem is not None and self.is_running:
            self.call_from_thread(self.notify, str(problem), title="Not saved", severity="error", markup=False)

    # Leaving

    def action_leave(self) -> None:
        """Leave; everything is kept."""
        self._leave(0)

    async def action_quit(self) -> None:
        """Textual's own key for leaving does the same."""
        self.action_leave()

    def leave_by_signal(self, number: int) -> None:
        """Restore the terminal and end as the signal wants it; what is done and what is not is said."""
        self._leave(128 + number)

    def _leave(self, code: int) -> None:
        self.session.stop(LOOK, TRY)  # the end waits for its threads
        self.exit(result=self.last_words(), return_code=code)

    def last_words(self) -> str:
        """What is done, what is not, and how to go on; printed after the screen is gone."""
        if not self._loaded or self.read_only:
            return "It was opened for looking only: nothing was kept." if self._loaded else ""
        return farewell(self.project, self.draft, stale(self.draft, self.facts))

    async def on_unmount(self) -> None:
        """Finish the last save, end the workers, give the lock back."""
        await asyncio.to_thread(self._saver.shutdown)
        if self._loaded and not self.read_only and not self.unsaved and self.draft != Draft():
            self.unsaved = await asyncio.to_thread(state.lost, self.project)
        await asyncio.to_thread(self.session.close)
        if self._lock is not None:
            self._lock.release()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette offers: the keys of the screen, the steps, the themes."""
        for active in screen.active_bindings.values():
            binding = active.binding
            if active.enabled and binding.description and not binding.tooltip:
                run = partial(self.run_action, binding.action, active.node)
                yield SystemCommand(binding.description.capitalize(), f"key {self.get_key_display(binding)}", run)
        for name in STEPS:
            wanted = partial(self.on_step_wanted, Step.Wanted(name))
            yield SystemCommand(f"Step: {TITLES[name]}", "Go to this step", wanted)
        yield from super().get_system_commands(screen)


BROKEN_CHOICES = (
    Choice("backup", "use the last good copy", "the broken file is kept beside it"),
    Choice("fresh", "look only, from the start", "nothing is written"),
    Choice("quit", "quit", "and mend the file by hand"),
)
