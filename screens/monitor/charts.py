"""The panels with a chart: reward, its parts, the policy, the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from grpo_tui.screens.widgets.chart import Chart, Curve, Picture
from rich.text import Text
from textual.strip import Strip

from grpo_tui.inert import one_line
from grpo_tui.progress.series import Series, metric

from .facts import metric_gap
from .figures import brief_name, exact, short
from .panel import MonitorPanel
from .sight import Sight

SERIES_ROLES = ("s1", "s2", "s3", "s4", "s5", "s6")


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
