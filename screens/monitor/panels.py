"""The panels of the monitor: each one widget, its rule and what stands under it, painted from one `Sight`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from grpo_tui.screens.line import fit, spread, wrap
from grpo_tui.screens.widgets.chart import Chart, Curve, Picture
from grpo_tui.screens.widgets.gauge import gauge
from grpo_tui.screens.widgets.lines import Lines
from grpo_tui.screens.widgets.panel import head
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.strip import Strip

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.progress.completions import CompletionTable
from grpo_tui.progress.fold import Progress
from grpo_tui.progress.series import Series, metric
from grpo_tui.rewards.advantages import weighted_sums

from .facts import STATES, facts, metric_gap
from .figures import brief_name, duration, exact, short, size, strip
from .glance import Card, Glance

SERIES_ROLES = ("s1", "s2", "s3", "s4", "s5", "s6")
PHASES = {
    "generate": "generating",
    "sync": "syncing weights",
    "train": "updating",
    "save": "saving",
    "eval": "evaluating",
}
"""Phases of a step as verbs; `reward:<name>` is scoring."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What the panels paint: one glance, and how the viewer wants it shown."""

    glance: Glance
    cursor: int | None = None
    """The step under the cursor."""

    smoothing: int = 1
    log: bool = False
    zoom: int = 0
    """The enlarged panel."""

    tab: int = 0
    """The panel in the shared place of a small screen; 0: all are in sight."""

    @property
    def progress(self) -> Progress:
        """What the events tell."""
        return self.glance.progress


class StatusLine(Lines):
    """The first line: which run, how it is, how far."""

    sight: Sight | None = None

    def show(self, sight: Sight) -> None:
        """Paint this."""
        self.sight = sight
        self.repaint()

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


class FigureStrip(Lines):
    """The newest figures, label above value."""

    sight: Sight | None = None

    def show(self, sight: Sight) -> None:
        """Paint this."""
        self.sight = sight
        self.repaint()

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


class MonitorPanel(Lines, can_focus=True):
    """A numbered panel: its rule, and under it what `body` paints."""

    NUMBER: ClassVar[int]
    NAME: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(id=f"panel-{self.NUMBER}")
        self.sight: Sight | None = None

    def show(self, sight: Sight) -> None:
        """Paint this."""
        self.sight = sight
        if self.display:
            self.repaint()

    @property
    def heading(self) -> str:
        """The title in the rule."""
        return self.NAME

    def reading(self, sight: Sight) -> Text | None:
        """What stands at the right end of the rule."""
        return None

    def mark(self, sight: Sight) -> str:
        """The state shown after the panel's name while another panel has the shared place: `warn`, `fail` or empty."""
        return ""

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text | Strip]:
        """The lines under the rule."""
        raise NotImplementedError

    def paint(self, width: int, height: int) -> Sequence[Text | Strip]:
        """Rule and body."""
        if self.sight is None:
            return [head(self.palette, width, self.heading, number=str(self.NUMBER), focused=self.has_focus)]
        return [self._rule(self.sight, width), *self.body(self.sight, width, height - 1)]

    def _rule(self, sight: Sight, width: int) -> Text:
        reading = self.reading(sight)
        if not sight.tab or sight.zoom or sight.tab != self.NUMBER:
            return head(
                self.palette, width, self.heading, number=str(self.NUMBER), reading=reading, focused=self.has_focus
            )
        return self._tabs(sight, width, reading)

    def _tabs(self, sight: Sight, width: int, reading: Text | None) -> Text:
        """The rule of the shared place: the names of all panels in it."""
        text = self.palette.text
        rule = "accent" if self.has_focus else "border"
        line = text(("▌" if self.has_focus else "─", rule))
        panels = [panel for panel in self.screen.query(MonitorPanel) if panel.NUMBER in TAB_ORDER]
        for place, panel in enumerate(sorted(panels, key=lambda panel: TAB_ORDER[panel.NUMBER])):
            here, mark = panel is self, panel.mark(sight)
            line.append_text(text(("── " if place else " ", rule), (f"{panel.NUMBER} ", "accent" if here else "faint")))
            line.append_text(text((panel.heading, "text bold" if here else "muted")))
            line.append_text(text((f" {'✗' if mark == 'fail' else '!'} ", f"{mark} bold") if mark else (" ", rule)))
        tail = text((" ", rule), reading, (" ─", rule)) if reading is not None and reading.cell_len else text()
        room = width - line.cell_len
        if tail.cell_len + 2 > room:
            tail = text()
        line.append_text(text(("─" * (width - line.cell_len - tail.cell_len), rule), tail))
        line.truncate(width)
        return line

    def sentence(self, words: str, width: int, *, key: str = "", verb: str = "") -> list[Text]:
        """An empty state: one sentence, and the key that helps."""
        lines = [text.copy() for text in wrap(self.palette, words, max(10, width - 2), "muted", " ")]
        if key:
            lines.append(self.palette.text((f" {key}", "accent bold"), (f" {verb}", "muted")))
        return lines

    def on_focus(self) -> None:
        """Lit."""
        self.repaint()

    def on_blur(self) -> None:
        """No longer lit."""
        self.repaint()


TAB_ORDER = {6: 0, 5: 1, 7: 2, 8: 3}


class ChartPanel(MonitorPanel):
    """A panel with one chart."""

    def __init__(self) -> None:
        super().__init__()
        self.chart = Chart()
        self.turn = 0

    def keys(self, sight: Sight) -> list[str]:
        """The metrics this panel can show, first the one it shows by itself."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """The metric shown now."""
        keys = self.keys(self.sight) if self.sight else []
        return keys[self.turn % len(keys)] if keys else ""

    def turn_over(self) -> None:
        """Show the next of the panel's metrics."""
        self.turn += 1
        self.repaint()

    def series(self, sight: Sight) -> Series:
        """The points of the metric shown."""
        return sight.glance.flat if self.key == "flat" else sight.progress.series.get(self.key) or Series()

    def picture(self, sight: Sight) -> Picture:
        """What the chart shows."""
        raise NotImplementedError

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text | Strip]:
        """The chart."""
        return self.chart.draw(self.picture(sight), self.palette, width, height)

    def reading(self, sight: Sight) -> Text | None:
        """At the cursor the exact figure, else what must not be overlooked, else the panel's own remark."""
        text = self.palette.text
        series = self.series(sight)
        if sight.cursor is not None and series:
            value = series.at(sight.cursor)
            figure = ("not logged", "muted") if value is None else (exact(value), "text bold")
            reading = text(figure, self.beside(sight))
            step = text((f"step {sight.cursor}  ", "muted"))
            room = self.size.width - len(self.heading) - 9  # the figure before the step: another rule has that too
            return step.append_text(reading) if step.cell_len + reading.cell_len <= room else reading
        if series and (broken := first_broken(series)) is not None:
            return text((f"✗ {short(broken[1])} at step {broken[0]}", "fail"))
        return self.remark(sight)

    def beside(self, sight: Sight) -> Text:
        """What follows the figure at the cursor."""
        return self.palette.text()

    def remark(self, sight: Sight) -> Text | None:
        """What the rule says without a cursor."""
        scale = " ".join(
            words
            for words in (f"mean of {sight.smoothing}" if sight.smoothing > 1 else "", "log" if sight.log else "")
            if words
        )
        return self.palette.text((scale, "muted")) if scale else None

    def empty(self, sight: Sight) -> str:
        """Why there is nothing to draw."""
        if reason := metric_gap(sight.progress, self.key):
            return reason
        if sight.progress.series:
            return "Not logged by this run."
        if not sight.glance.life.alive:
            return "No step was finished."
        every = sight.progress.settings.get("logging_steps", 1)
        first = int(every) if isinstance(every, int) and every > 1 else 1
        return f"No steps yet. First metrics expected at step {first}."

    def plain(self, sight: Sight, series: Series, **more: object) -> Picture:
        """One line, in the first colour."""
        curve = Curve(series.steps, series.values, label=end_label(series), whisker=True) if series else None
        return Picture(
            curves=(curve,) if curve else (),
            end=sight.progress.max_steps,
            cursor=sight.cursor,
            log=sight.log,
            smoothing=sight.smoothing,
            empty=self.empty(sight),
            **more,  # type: ignore[arg-type]  # fields of Picture, given by name
        )


def end_label(series: Series) -> str:
    """The figure at the end of the line: the newest that is a finite number, where the line ends."""
    return next((short(value) for value in reversed(series.recent(1000)) if math.isfinite(value)), "")


def first_broken(series: Series) -> tuple[int, float] | None:
    """The first point that is not a finite number."""
    import numpy as np

    places = np.flatnonzero(~np.isfinite(series.values))
    return series.point(int(places[0])) if len(places) else None


class RewardPanel(ChartPanel):
    """The hero: the reward, its spread over the batch, and the evaluations."""

    NUMBER, NAME = 1, "Reward"

    def keys(self, sight: Sight) -> list[str]:
        """The reward and nothing else."""
        return ["reward"]

    def beside(self, sight: Sight) -> Text:
        """The spread at the cursor."""
        spreads = sight.progress.series.get("reward_std")
        value = spreads.at(sight.cursor) if spreads and sight.cursor is not None else None
        return self.palette.text((f" ± {exact(value)}", "muted")) if value is not None else self.palette.text()

    def picture(self, sight: Sight) -> Picture:
        """Line, band, and evaluations beside it."""
        series = self.series(sight)
        if not series:
            return self.plain(sight, series)
        spreads = sight.progress.series.get("reward_std")
        fits = spreads is not None and len(spreads) == len(series) and spreads.point(-1)[0] == series.point(-1)[0]
        curve = Curve(
            series.steps, series.values, label=short(series.point(-1)[1]),
            spread=spreads.values if fits and spreads else None,
        )  # fmt: skip
        tests = sight.progress.evals.get("eval_reward")
        beside = (Curve(tests.steps, tests.values, "s2", "test"),) if tests else ()
        return Picture(
            curves=(*beside, curve), end=sight.progress.max_steps, cursor=sight.cursor, log=sight.log, thick=True,
            smoothing=sight.smoothing,
        )  # fmt: skip


class PartsPanel(ChartPanel):
    """Every reward function by itself, before its weight."""

    NUMBER, NAME = 2, "Reward parts"

    def keys(self, sight: Sight) -> list[str]:
        """The functions, heaviest first."""
        pairs = sorted(
            zip(sight.progress.reward_names, sight.progress.weights, strict=False), key=lambda pair: -abs(pair[1])
        )
        return [f"rewards/{name}/mean" for name, _ in pairs]

    def reading(self, sight: Sight) -> Text | None:
        """At the cursor the figure of each function drawn, else how many there are beyond those drawn."""
        text, progress = self.palette.text, sight.progress
        keys = self._shown(sight)
        if sight.cursor is None:
            hidden = len(self.keys(sight)) - len(keys)
            return (
                text((f"{len(keys)} of {len(keys) + hidden}", "muted")) if keys and hidden > 0 else self.remark(sight)
            )
        figures = text()
        for key in keys:
            series = progress.series.get(key)
            value = series.at(sight.cursor) if series else None
            figure = "–" if value is None else exact(value) if sight.zoom else short(value)
            figures.append_text(text((f" {figure}", f"{self._role(sight, key)} bold")))
        step = text((f"step {sight.cursor}", "muted"))
        room = self.size.width - len(self.heading) - 9
        return step.append_text(figures) if step.cell_len + figures.cell_len <= room else figures

    def _shown(self, sight: Sight) -> list[str]:
        keys = [key for key in self.keys(sight) if sight.progress.series.get(key)]
        most = 6 if sight.zoom else 3
        return [keys[(place + self.turn) % len(keys)] for place in range(min(most, len(keys)))] if keys else []

    def _role(self, sight: Sight, key: str) -> str:
        """The colour belongs to the function, whichever are shown; one that counts nothing is dim."""
        names = [f"rewards/{name}/mean" for name in sight.progress.reward_names]
        place = names.index(key) if key in names else 0
        weights = sight.progress.weights
        return "faint" if place < len(weights) and weights[place] == 0 else SERIES_ROLES[place % len(SERIES_ROLES)]

    def picture(self, sight: Sight) -> Picture:
        """A line a function, the heaviest on top."""
        curves = []
        for key in self._shown(sight):
            series = sight.progress.series[key]
            name = brief_name(key.removeprefix("rewards/").removesuffix("/mean"))
            label = one_line(name, 18 if sight.zoom else 11)
            curves.append(Curve(series.steps, series.values, self._role(sight, key), label))
        return Picture(
            curves=tuple(reversed(curves)), end=sight.progress.max_steps, cursor=sight.cursor, log=sight.log,
            smoothing=sight.smoothing, empty=self.empty(sight),
        )  # fmt: skip


class PolicyPanel(ChartPanel):
    """How the policy moves: entropy, and on asking KL, lengths, the clipped share, groups without signal, the rest."""

    NUMBER, NAME = 3, "Entropy"

    _FIRST = (
        "entropy",
        "kl",
        "completions/mean_length",
        "completions/clipped_ratio",
        "flat",
        "reward_std",
        "step_time",
    )
    _NAMES: ClassVar = {"flat": "No signal", "kl": "KL", "completions/clipped_ratio": "Clipped", "entropy": "Entropy"}

    def keys(self, sight: Sight) -> list[str]:
        """What is usually looked at, then every other metric logged."""
        logged = sight.progress.series
        others = [key for key in logged if key not in self._FIRST and not key.startswith("rewards/")]
        others = [key for key in others if key not in ("reward", "grad_norm", "epoch")]
        return [*(key for key in self._FIRST if logged.get(key) or key in ("entropy", "kl", "flat")), *others]

    @property
    def heading(self) -> str:
        """The metric."""
        name = self._NAMES.get(self.key) or metric(self.key).title or self.NAME
        return one_line(name[:1].upper() + name[1:], 24)

    def remark(self, sight: Sight) -> Text | None:
        """Which of how many, when it is not the first."""
        keys = self.keys(sight)
        place = self.turn % len(keys)
        return self.palette.text((f"{place + 1} of {len(keys)}", "muted")) if place else super().remark(sight)

    def empty(self, sight: Sight) -> str:
        """For the share without signal: where it comes from."""
        if self.key == "flat" and sight.progress.series:
            return "Neither recorded nor any completions kept."
        return super().empty(sight)

    def picture(self, sight: Sight) -> Picture:
        """One line."""
        include = (0.0,) if self.key in ("entropy", "kl", "flat", "completions/clipped_ratio") else ()
        return self.plain(sight, self.series(sight), include=include)


class GradientPanel(ChartPanel):
    """The gradient's length before clipping, with its peaks."""

    NUMBER, NAME = 4, "Grad norm"

    def keys(self, sight: Sight) -> list[str]:
        """The one metric."""
        return ["grad_norm"]

    def _limit(self, sight: Sight) -> float | None:
        limit = sight.progress.settings.get("max_grad_norm", 1.0)  # TrainingArguments' default
        return float(limit) if isinstance(limit, int | float) and limit > 0 else None

    def remark(self, sight: Sight) -> Text | None:
        """How many rows were above the limit that gradients are clipped to."""
        import numpy as np

        series, limit = self.series(sight), self._limit(sight)
        if not series or limit is None:
            return super().remark(sight)
        peaks = int(np.count_nonzero(series.values > limit))
        return self.palette.text((f"{peaks:,} over {short(limit)}" if peaks else f"none over {short(limit)}", "muted"))

    def picture(self, sight: Sight) -> Picture:
        """Line, peaks, limit."""
        return self.plain(sight, self.series(sight), include=(0.0,), limit=self._limit(sight))


class CardsPanel(MonitorPanel):
    """The GPUs, two lines each."""

    NUMBER, NAME = 5, "GPUs"

    def reading(self, sight: Sight) -> Text | None:
        """How many of which."""
        cards = sight.glance.cards
        if not cards:
            return None
        name, *others = sorted({card.name.removeprefix("NVIDIA ") for card in cards})
        return self.palette.text((f"{len(cards)} × {name}" if name and not others else f"{len(cards)}", "muted"))

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """Use and memory of each; with little room, one line a card."""
        cards = sight.glance.cards
        if not cards:
            cpu = sight.progress.settings.get("use_cpu") is True
            return self.sentence("Trained on the CPU." if cpu else "No GPU figures are recorded for this run.", width)
        if 2 * len(cards) <= height:
            return [line for card in cards for line in self._two(card, width)]
        lines = [self._one(card, width) for card in cards]
        if len(lines) > height > 1:
            lines[height - 1 :] = [self.palette.text((f" and {len(cards) - height + 1} more", "muted"))]
        return lines

    def _two(self, card: Card, width: int) -> list[Text]:
        text, bar = self.palette.text, max(6, width - 31)
        use = card.utilisation
        right = "".join((f"  {card.temperature:.0f}°C" if card.temperature is not None else "",
                         f" {card.watts:.0f}W" if card.watts is not None else ""))  # fmt: skip
        return [
            text((f" {card.index:>2} ", "muted"), ("util ", "muted"), gauge(self.palette, bar, (use or 0) / 100),
                 (f" {use:>3.0f}%" if use is not None else "    –", "text bold"), (right, "muted")),
            text(("    mem  ", "muted"), self._memory(card, bar)),
        ]  # fmt: skip

    def _memory(self, card: Card, bar: int) -> Text:
        text = self.palette.text
        if card.used is None or not card.total:
            return text(("not told by the driver", "muted"))
        share = card.used / card.total
        role = "warn" if share > 0.95 else "accent"
        return text(
            gauge(self.palette, bar, share, role),
            (f" {100 * share:>3.0f}%", f"{'warn' if role == 'warn' else 'text'} bold"),
            (f"  {size(card.used)}/{size(card.total)} GB", "warn" if role == "warn" else "muted"),
        )

    def _one(self, card: Card, width: int) -> Text:
        text = self.palette.text
        use = f"{card.utilisation:>3.0f}%" if card.utilisation is not None else "   –"
        return text((f" {card.index:>2} ", "muted"), (use, "text bold"), ("  mem ", "muted"),
                    self._memory(card, max(6, width - 32)))  # fmt: skip


class HealthPanel(MonitorPanel):
    """Facts about the run, one a line."""

    NUMBER, NAME = 6, "Health"

    def mark(self, sight: Sight) -> str:
        """The worst there is."""
        states = {fact.state for fact in facts(sight.glance)}
        return next((state for state in ("fail", "warn") if state in states), "")

    def reading(self, sight: Sight) -> Text | None:
        """How many lines are not as they should be."""
        states = [fact.state for fact in facts(sight.glance)]
        if failed := states.count("fail"):
            return self.palette.text((f"✗ {failed} {'failure' if failed == 1 else 'failures'}", "fail"))
        if warned := states.count("warn"):
            return self.palette.text((f"! {warned} {'warning' if warned == 1 else 'warnings'}", "warn"))
        return None

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """Sign, name, words; what is not as it should be comes first, and words wrap while there is room."""
        found = facts(sight.glance)
        ordered = [fact for state in ("fail", "warn") for fact in found if fact.state == state]
        ordered += [fact for fact in found if fact.state not in ("fail", "warn")]
        lines: list[Text] = []
        for place, fact in enumerate(ordered):
            role = fact.state or "muted"
            calm = fact.state in ("ok", "")
            lead = self.palette.text(
                (f" {fact.sign} ", f"{role} bold"), (f"{fact.name:<9}", "text" if calm else f"{role} bold"), " "
            )
            rows = wrap(self.palette, fact.words, width - 1, "muted" if calm else "text", lead)
            room = max(1, height - len(lines) - (len(ordered) - place - 1))
            if len(rows) > room:
                rest = " ".join(row.plain.strip() for row in rows[room:])
                rows = rows[:room]
                rows[-1] = fit(rows[-1].append(f" {rest}", rows[-1].spans[-1].style), width)
            lines += rows
        return lines


class CompletionsPanel(MonitorPanel):
    """What the model wrote at one step, with rewards and advantages."""

    NUMBER, NAME = 7, "Completions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "one up", show=False),
        Binding("down,j", "move(1)", "one down", show=False),
        Binding("pageup", "move(-10)", "ten up", show=False),
        Binding("pagedown", "move(10)", "ten down", show=False),
        Binding("home,g", "move(-100000)", "first", show=False),
        Binding("end,G", "move(100000)", "last", show=False),
        Binding("enter", "screen.read_completion", "read", key_display="enter"),
        Binding("left_square_bracket", "screen.other_step(-1)", "step before", key_display="[", show=False),
        Binding("right_square_bracket", "screen.other_step(1)", "step after", key_display="]", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.place = 0
        self._step = -1

    @property
    def table(self) -> CompletionTable | None:
        """What is shown; None without completions."""
        table = self.sight.glance.table if self.sight else None
        return table if isinstance(table, CompletionTable) and table.completions else None

    def order(self, table: CompletionTable) -> list[tuple[int, int]]:
        """Group and completion, group by group."""
        return [(number, index) for number, group in enumerate(table.groups) for index in group]

    def sums(self, sight: Sight, table: CompletionTable) -> list[float | None]:
        """The weighted sum of each completion's rewards."""
        pairs = [(table.rewards[name], weight)
                 for name, weight in zip(sight.progress.reward_names, sight.progress.weights, strict=False)
                 if name in table.rewards]  # fmt: skip
        rows = [[column[index] for column, _ in pairs] for index in range(len(table.completions))]
        return list(weighted_sums(rows, [weight for _, weight in pairs])) if pairs else [None] * len(rows)

    def action_move(self, by: int) -> None:
        """Another completion."""
        if self.table is not None:
            self.place = max(0, min(len(self.table.completions) - 1, self.place + by))
            self.repaint()

    def reading(self, sight: Sight) -> Text | None:
        """Step, place, number."""
        table = self.table
        if table is None:
            return None
        return self.palette.text((f"step {table.step} · {self.place + 1} of {len(table.completions)}", "muted"))

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """A row a completion; columns go by rank when it gets narrow."""
        table = sight.glance.table
        if isinstance(table, Problem):
            return self.sentence(f"✗ {table.what} {table.remedy}", width)
        if table is None or not table.completions:
            alive = sight.glance.life.alive
            return self.sentence(
                "No completions yet. They appear after step 1." if alive else "No completions were kept.", width
            )
        if table.step != self._step:
            self.place = min(self.place, len(table.completions) - 1)
            self._step = table.step
        order, sums = self.order(table), self.sums(sight, table)
        names = [name for name in sight.progress.reward_names if name in table.rewards]
        names += [name for name in table.rewards if name not in names]
        fixed = 6 + 8 + 9
        shown = names[: max(0, (width - fixed - 32) // 9)]
        left = width - fixed - 9 * len(shown) - 2
        rows = max(1, height - 1)
        first = max(0, min(self.place - rows // 2, len(order) - rows))
        text = self.palette.text
        titles = "".join(f"{one_line(brief_name(name), 8):>9}" for name in shown)
        lines = [text((f"{'group':>6}{'reward':>8}{'advant.':>9}{titles}  completion", "muted"))]
        for place in range(first, min(len(order), first + rows)):
            group, index = order[place]
            here = place == self.place
            ground = " on_select" if here else ""
            new = place == first or order[place - 1][0] != group
            total, advantage = sums[index], table.advantages[index]
            figures = "".join(f"{_figure(table.rewards[name][index]):>9}" for name in shown)
            line = text(
                ("▌" if here and self.has_focus else " ", f"accent{ground}"),
                (f"{group + 1 if new or here else '':>5}", f"muted{ground}"),
                (f"{_figure(total):>8}", f"text{' bold' if total is not None and total > 0 else ''}{ground}"),
                (f"{_signed(advantage):>9}", f"muted{ground}"),
                (figures, f"{'text' if here else 'muted'}{ground}"),
                ("  " + one_line(table.completions[index], left), f"{'text' if here else 'muted'}{ground}"),
            )
            line = fit(line, width)
            if here:
                line.stylize(self.palette.style("on_select"))
            lines.append(line)
        return lines


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if math.isfinite(value) and abs(value) < 1e4 else short(value)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}" if math.isfinite(value) else short(value)


_LEVEL = re.compile(
    r"(?P<fail>\b(?:ERROR|FATAL|CRITICAL)\b|^Traceback \(most recent call last\)|^(?:\w+\.)*\w+(?:Error|Exception)\b)"
    r"|(?P<warn>\b(?:WARN|WARNING)\b)"
)
"""Levels as loggers write them, and the two lines of a Python traceback that say what happened. A library's
`FutureWarning` is not among them: logs are full of those, and amber must stay rare."""


class LogPanel(MonitorPanel):
    """The end of the log, following it unless the viewer scrolled up."""

    NUMBER, NAME = 8, "Log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "one up", show=False),
        Binding("down,j", "scroll(1)", "one down", show=False),
        Binding("pageup", "scroll(-10)", "ten up", show=False),
        Binding("pagedown", "scroll(10)", "ten down", show=False),
        Binding("home,g", "scroll(-100000)", "first", show=False),
        Binding("end,G", "scroll(100000)", "follow", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.back = 0
        """Lines between the last one and the last one in sight; 0: following."""

    def action_scroll(self, by: int) -> None:
        """Up or down; at the end it follows again."""
        lines = len(self.sight.glance.log.lines) if self.sight else 0
        self.back = max(0, min(lines - 1, self.back - by))
        self.repaint()

    def mark(self, sight: Sight) -> str:
        """A run that failed left its reason here."""
        return "fail" if sight.glance.life.state == "failed" else ""

    def reading(self, sight: Sight) -> Text | None:
        """Following or where."""
        log = sight.glance.log
        if log.missing or not log.lines:
            return None
        if self.back:
            return self.palette.text((f"line {len(log.lines) - self.back} of {len(log.lines)}", "muted"))
        return self.palette.text(("following", "ok") if sight.glance.life.alive else ("end", "muted"))

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """The lines, cut; enlarged they wrap."""
        log = sight.glance.log
        if log.missing or not log.lines:
            return self.sentence("The log is empty so far." if not log.missing else "This run has no train.log.", width)
        last = len(log.lines) - self.back
        rows: list[Text] = []
        for line in reversed(log.lines[max(0, last - height) : last]):
            rows[:0] = self._rows(line, width, sight)
            if len(rows) >= height:
                return rows[-height:]
        for line in log.lines[last : last + height]:  # scrolled to the top: what follows fills the room
            rows += self._rows(line, width, sight)
        return rows[:height]

    def _rows(self, line: str, width: int, sight: Sight) -> list[Text]:
        shown = wrap(self.palette, line, width - 1, "text", " ") if sight.zoom else [self._row(line, width)]
        for row in shown:
            self._colour(row)
        return shown

    def _row(self, line: str, width: int) -> Text:
        return fit(self.palette.text(" ", (line[: 4 * width].replace("\n", " "), "muted")), width)

    def _colour(self, row: Text) -> None:
        """The level is the only colour."""
        if found := _LEVEL.search(row.plain[1:]):
            role = found.lastgroup or "fail"
            row.stylize(self.palette.style(f"{role} bold"), found.start() + 1, found.end() + 1)
