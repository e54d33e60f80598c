"""Figures as the monitor shows them: short in strips and charts, exact wherever they are quoted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_tui.progress.fold import Progress
from grpo_tui.progress.series import Series

DELTA_STEPS = 50
"""A figure's arrow compares its newest values with those of so many steps before."""

_MEANED = 5
"""Rows averaged at both ends of a comparison, so that one noisy batch does not turn the arrow."""


def short(value: float) -> str:
    """Three significant digits; thousands get commas; exponents only below 0.001."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 999.5:
        return f"{value:,.0f}" if size < 1e7 else f"{value:.2e}".replace("e+0", "e").replace("e+", "e")
    if size < 0.00095:
        return f"{value:.2g}".replace("e-0", "e-")
    decimals = 2 - math.floor(math.log10(size * (1 + 1e-12)))
    text = f"{value:.{min(4, max(0, decimals))}f}"
    return text if float(text) else "0"


def percent(share: float) -> str:
    """A share as per cent: one decimal below ten."""
    if not math.isfinite(share):
        return short(share)
    figure = 100 * share
    return f"{figure:.0f}%" if figure in (0.0, 100.0) or figure >= 9.95 else f"{figure:.1f}%"


def exact(value: object) -> str:
    """The figure as it was logged: the shortest decimal that is this very float, no rounding."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else short(value)
    return str(value)


def duration(seconds: float) -> str:
    """Elapsed time as a clock: `43:41`, `2:03:41`, `3 d 02:03`."""
    whole = max(0, int(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24} d {hours % 24:02d}:{minute:02d}"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def ago(seconds: float) -> str:
    """How long ago, in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def size(count: float) -> str:
    """Bytes in GB of 10⁹, as vendors name cards."""
    return f"{count / 1e9:.1f}" if count < 9.95e9 else f"{count / 1e9:.0f}"


@dataclass(frozen=True)
class Entry:
    """A place in the strip under the status line."""

    key: str
    """TRL's name, or `flat`: our share of groups without signal."""

    title: str
    brief: str
    """The title where room is short."""

    rank: int
    """The highest go first when room is short."""

    share: bool = False
    """Shown as per cent."""

    good: int = 0
    """Direction that is good in itself: 1 up, 0 neither."""


STRIP = (
    Entry("reward", "reward", "reward", 0, good=1),
    Entry("reward_std", "reward std", "std", 7),
    Entry("entropy", "entropy", "entropy", 3),
    Entry("kl", "KL", "KL", 4),
    Entry("grad_norm", "grad norm", "grad", 5),
    Entry("completions/mean_length", "length", "length", 6),
    Entry("completions/clipped_ratio", "clipped", "clipped", 2, share=True),
    Entry("flat", "no signal", "no signal", 1, share=True),
)
"""In the order shown. Groups without signal and the clipped share are always among those that fit."""


@dataclass(frozen=True)
class Figure:
    """One figure of the strip, ready to be drawn."""

    entry: Entry
    value: str
    bad: bool = False
    """Not a finite number."""

    delta: str = ""
    direction: int = 0
    """-1 fallen, 0 the same or not known, 1 risen."""


def change(series: Series) -> float | None:
    """The mean of the newest rows minus that of the rows `DELTA_STEPS` steps before; None with too few of them."""
    window = min(DELTA_STEPS, len(series) // 2)
    if window < 2:
        return None
    rows = min(_MEANED, window)
    recent = series.recent(window + rows)
    new, old = recent[-rows:], recent[:rows]
    if not all(map(math.isfinite, new + old)):
        return None
    return sum(new) / len(new) - sum(old) / len(old)


def strip(progress: Progress, flat: Series, places: int) -> list[Figure]:
    """The figures for `places` places: those that were logged, by rank, in the order of `STRIP`."""
    logged: Mapping[str, Series] = {**progress.series, "flat": flat}
    present = [entry for entry in STRIP if logged.get(entry.key)]
    kept = sorted(present, key=lambda entry: entry.rank)[:places]
    return [_figure(entry, logged[entry.key]) for entry in STRIP if entry in kept]


def _figure(entry: Entry, series: Series) -> Figure:
    _, value = series.point(-1)
    text = percent if entry.share else short
    delta = change(series)
    if delta is None or text(delta) in ("0", "0%", "0.0%", "-0.0%"):
        return Figure(entry, text(value), not math.isfinite(value))
    figure = f"{100 * abs(delta):.1f}" if entry.share else short(abs(delta)).removeprefix("0")
    return Figure(entry, text(value), not math.isfinite(value), figure, 1 if delta > 0 else -1)


def brief_name(name: str) -> str:
    """A reward function's name without what all of them share."""
    for ending in ("_reward_func", "_reward", "_func"):
        if name.endswith(ending) and len(name) > len(ending):
            name = name.removesuffix(ending)
    return name.removeprefix("reward_")
