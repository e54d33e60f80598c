"""The scale of a chart: round ticks, limits that put them in the middle of a cell, and steadiness over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

PATIENCE = 20
"""Steps for which a scale that has become too wide is kept."""


@dataclass(frozen=True)
class Scale:
    """The vertical scale: `low` and `high` are the edges of the plot, `ticks` the round values named beside it.

    On a logarithmic scale all of them are powers of ten: -3 stands for 0.001.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    fitted_at: float = 0.0
    """The step at which it was last fitted to the data."""

    def label(self, tick: float) -> str:
        """The tick as written beside the axis: equal decimals for all ticks, no exponent but far from one."""
        if self.log:
            return f"{10**tick:.0e}".replace("e-0", "e-").replace("e+0", "e") if abs(tick) > 3 else f"{10**tick:g}"
        step = min((b - a for a, b in pairwise(self.ticks)), default=abs(tick) or 1.0)
        largest = max(map(abs, self.ticks), default=0.0)
        if largest >= 1e5:
            return f"{tick:.0e}".replace("e+0", "e") if tick else "0"
        if step < 1e-3:
            return f"{tick:.0e}".replace("e-0", "e-") if tick else "0"
        return f"{tick:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def nice_steps(span: float) -> list[float]:
    """The round steps (1, 2, 5 × 10ⁿ) between a tenth of `span` and twice it, ascending."""
    exponent = math.floor(math.log10(span))
    steps = [mantissa * 10.0**power for power in range(exponent - 2, exponent + 2) for mantissa in (1, 2, 5)]
    return [step for step in steps if span / 10 <= step <= span * 2]


def fit(low: float, high: float, rows: int, *, log: bool = False, at: float = 0.0) -> Scale:
    """The scale of `rows` cells that holds `low`…`high` with a few ticks, each in the middle of a cell.

    A row is worth a whole part of a step, and limits lie outward. Of the ways to do that the one that wastes least is
    taken, with about one tick in five rows. With `log` the values are given as powers of ten.
    """
    if not low < high:
        pad = abs(low) * 0.1 or 0.5
        low, high = low - pad, high + pad
    ideal = 2 if rows < 6 else min(6, max(3, rows // 5))
    best: tuple[float, float, float, float] | None = None
    for step in (s for s in nice_steps(high - low) if not log or s >= 1):
        for per_step in range(1, rows + 1):
            row = step / per_step
            if row * rows < (high - low) * (1 - 1e-9):
                break
            first = math.ceil(low / step - 1e-9) * step  # the lowest tick inside the data; half a cell lies below it
            below = max(0, math.ceil((first - low) / row - 0.5 - 1e-9))
            edge = first - (below + 0.5) * row
            spare = edge + row * rows - high
            if spare < -1e-9 * (high - low):
                continue
            count = math.floor((edge + row * (rows - 0.5) - first) / step + 1e-9) + 1
            count += math.floor(below / per_step)
            cost = row * rows / (high - low) + 0.15 * abs(count - ideal) + (0.6 if count < 2 else 0.0)
            if best is None or cost < best[0]:
                best = (cost, edge, row, step)
    if best is None:  # one row, or a span no round step fits: the plain limits
        return Scale(low, high, (), log, at)
    _, edge, row, step = best
    top = edge + row * rows
    number = math.ceil((edge + row / 2) / step - 1e-6)
    ticks = []
    while (tick := number * step) <= top - row / 2 + 1e-6 * step:
        ticks.append(round(tick, 12))
        number += 1
    if log:
        ticks = [tick for tick in ticks if tick == round(tick)]
    return Scale(edge, top, tuple(ticks), log, at)


def steady(scale: Scale | None, low: float, high: float, rows: int, *, log: bool, step: float) -> Scale:
    """`scale` as long as it serves: it grows at once, and shrinks only when `PATIENCE` steps have passed."""
    if scale is None or scale.log != log or not (scale.low <= low and high <= scale.high) or step < scale.fitted_at:
        return fit(low, high, rows, log=log, at=step)
    if step - scale.fitted_at < PATIENCE:
        return scale
    tighter = fit(low, high, rows, log=log, at=step)
    return tighter if tighter.high - tighter.low < 0.75 * (scale.high - scale.low) else scale


def horizon(last: float, planned: float | None) -> float:
    """The right end of the steps: the planned last step, or the next round number beyond `last`."""
    if planned is not None and planned >= last and planned > 0:
        return planned
    if last <= 10:
        return 10.0
    power = 10.0 ** math.floor(math.log10(last))
    return next(mantissa * power for mantissa in (1.5, 2, 3, 5, 7.5, 10, 15) if mantissa * power >= last)


def step_ticks(end: float, cells: int) -> list[int]:
    """Three to six round steps from 0 to `end`: those that divide it, or without the end."""
    most = 5 if cells >= 50 else 2
    exponent = math.floor(math.log10(max(1.0, end)))
    steps = [m * 10.0**power for power in range(exponent - 1, exponent + 1) for m in (1, 2, 2.5, 5)]
    steps = [step for step in steps if step >= 1 and step == int(step) and end / step <= most + 0.999]
    whole = [step for step in steps if end % step == 0 and end / step >= 2]
    step = min(whole or steps or [max(1.0, end)])
    return [int(step * number) for number in range(int(end / step) + 1)]
