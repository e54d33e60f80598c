"""The lines around the panels: which run, how it is, how far; its newest figures; how old the news is."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_tui.screens.line import fit, spread, wrap
from grpo_tui.screens.theme import Palette
from grpo_tui.screens.widgets.gauge import gauge
from grpo_tui.screens.widgets.lines import Lines
from rich.text import Text

from grpo_tui.inert import one_line
from grpo_tui.progress.fold import Progress

from .facts import STATES
from .figures import ago, duration, short, strip
from .glance import Glance
from .layout import LEAST
from .sight import Seen

PHASES = {
    "generate": "generating",
    "sync": "syncing weights",
    "train": "updating",
    "save": "saving",
    "eval": "evaluating",
}
"""Phases of a step as verbs; `reward:<name>` is scoring."""


class StatusLine(Seen):
    """The first line: which run, how it is, how far."""

    def paint(self, width: int, height: int) -> Sequence[Text]:
        """The one line."""
        text = self.palette.text
        if self.sight is None:
            return [text(" ", ("grpo-tui", "accent bold"), ("  reading …", "muted"))]
        glance, progress = self.sight.glance, self.sight.progress
        sign, role = STATES.get(glance.life.state, STATES["unknown"])
        wide = width >= 100
        brand = text((" grpo-tui ", "accent bold"), ("│ ", "border")) if wide else text(" ")
        state = text((f"{sign} ", role), (glance.life.state, f"{role} bold"))
        right = self._far(progress, glance, 20 if wide else 14, rate=wide)
        method = text((f"  {glance.method}", "muted")) if wide else text()
        room = width - brand.cell_len - method.cell_len - state.cell_len - right.cell_len - 4
        name = text((one_line(glance.run.name, max(8, room)), "text bold"))
        left = text(brand, name, method, "  " if not wide else "   ", state)
        phase = self._phase(progress) if glance.life.alive else ""
        if phase and left.cell_len + len(phase) + 3 + right.cell_len < width:
            left.append_text(text((f"  {phase}", "muted")))
        return [spread(width, left, right)]

    def _far(self, progress: Progress, glance: Glance, cells: int, *, rate: bool) -> Text:
        """Step, gauge, share, seconds a step, elapsed. What is to come is not guessed."""
        text, far = self.palette.text, self.palette.text
        parts = text(("step ", "muted"), (f"{progress.step:,}", "text bold"))
        if progress.max_steps:
            share = progress.step / progress.max_steps
            parts = far(parts, (f" of {progress.max_steps:,}  ", "muted"), gauge(self.palette, cells, share),
                        (f"  {int(100 * share):>3d}%", "text bold"))  # fmt: skip
        pace = progress.seconds_per_step
        if rate and pace is not None:
            parts = far(parts, (f"   {short(pace)} s/step", "muted"))
        elapsed = progress.elapsed
        if elapsed is not None:
            if glance.life.alive:
                elapsed += glance.life.last_event_age or 0.0
            parts = far(parts, (f"   {duration(elapsed)} ", "text bold"))
        return parts

    def _phase(self, progress: Progress) -> str:
        if progress.now.startswith("reward:"):
            return f"scoring {one_line(progress.now.removeprefix('reward:'), 24)}"
        return PHASES.get(progress.now, one_line(progress.now, 24))


class FigureStrip(Seen):
    """The newest figures, label above value."""

    def paint(self, width: int, height: int) -> Sequence[Text]:
        """Two lines."""
        if self.sight is None:
            return []
        text = self.palette.text
        deltas = width >= 100
        places = min(8, width // (15 if deltas else 13))
        figures = strip(self.sight.progress, self.sight.glance.flat, places)
        labels, values = text(), text()
        for number, figure in enumerate(figures):
            cells = width * (number + 1) // len(figures) - width * number // len(figures)
            cells = min(cells, 17)
            title = figure.entry.title if deltas else figure.entry.brief
            labels.append_text(fit(text((f" {title}", "muted")), cells))
            value = text((f" {figure.value}", "fail bold" if figure.bad else "text bold"))
            if figure.direction:
                good = figure.entry.good * figure.direction > 0
                arrow = "▲" if figure.direction > 0 else "▼"
                delta = f" {figure.delta}" if deltas else ""
                value.append_text(text((f" {arrow}{delta}", "ok" if good else "muted")))
            values.append_text(fit(value, cells))
        return [labels, values]


def link(palette: Palette, glance: Glance, *, paused: bool, wide: bool) -> Text:
    """The right end of the last line: where it runs, and how old the news is."""
    text, life = palette.text, glance.life
    host = text((f"{one_line(life.host, 24)} ", "muted on_surface")) if life.host and wide else text()
    if paused:
        return text(host, ("! paused ", "warn bold on_surface"))
    sign, role = STATES.get(life.state, STATES["unknown"])
    if not life.alive:
        return text(host, (f"{sign} ", f"{role} on_surface"), (f"{life.state} ", "muted on_surface"))
    if life.last_event_age is None:
        return text(host, ("○ ", "muted on_surface"), ("no event yet ", "muted on_surface"))
    sign, role = ("!", "warn") if life.state == "silent" else ("●", "ok")
    return text(host, (f"{sign} ", f"{role} on_surface"), (f"{ago(life.last_event_age)} ", "muted on_surface"))


class TooSmall(Lines):
    """What a screen shows that is too small for panels."""

    def paint(self, width: int, height: int) -> list[Text]:
        """One sentence, as far as it goes."""
        words = f"The window is {self.app.size.width}×{self.app.size.height}; the monitor needs {LEAST[0]}×{LEAST[1]}."
        return wrap(self.palette, words, width, "text")
