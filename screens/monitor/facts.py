"""The health panel's facts: what is so, with its figures. Verdicts are not its business."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_tui.progress.fold import Progress
from grpo_tui.progress.series import Series

from .figures import ago, percent
from .glance import Glance

STATES = {
    "starting": ("○", "text"),
    "running": ("●", "ok"),
    "stopping": ("●", "warn"),
    "silent": ("!", "warn"),
    "finished": ("✓", "ok"),
    "stopped": ("✓", "text"),
    "failed": ("✗", "fail"),
    "killed": ("✗", "fail"),
    "lost": ("✗", "fail"),
    "unknown": ("○", "muted"),
}
"""State of a run to its sign and its colour; the word stands beside them."""

WINDOW = 10
"""Rows that a mean over the newest rows is taken over."""


@dataclass(frozen=True)
class Fact:
    """One line of the panel."""

    state: str
    """`ok`, `warn`, `fail`, `do`: what to change, or empty: a figure that speaks neither way."""

    name: str
    words: str

    @property
    def sign(self) -> str:
        """The sign of the state."""
        return {"ok": "✓", "warn": "!", "fail": "✗", "do": "→"}.get(self.state, "·")


def facts(glance: Glance) -> list[Fact]:
    """What is known, in the order of importance."""
    progress = glance.progress
    found = [_life(glance), *_change(glance), _signal(glance), _cut(progress), _finite(progress)]
    if progress.recorder_errors:
        found.append(Fact("warn", "Recorder", f"it failed and went on: {progress.recorder_errors[-1]}"))
    if glance.view.skipped:
        found.append(Fact("warn", "Events", f"{glance.view.skipped} lines of events.jsonl could not be read"))
    if progress.saves:
        save = progress.saves[-1]
        others = f", the newest of {len(progress.saves)}" if len(progress.saves) > 1 else ""
        found.append(Fact("", "Saved", f"checkpoint-{save.step}{others}"))
    return found


def _life(glance: Glance) -> Fact:
    sort = STATES.get(glance.life.state, STATES["unknown"])[1]
    state = sort if sort in ("ok", "warn", "fail") else ""
    words = glance.life.words
    if glance.life.state == "running" and glance.life.last_event_age is not None:
        words = f"last event {ago(glance.life.last_event_age)}" + (
            f", pid {glance.life.pid}" if glance.life.pid else ""
        )
    if state == "fail" and glance.failure is None:
        words += " Press l for the log."
    return Fact(state, glance.life.state.capitalize(), words)


def _change(glance: Glance) -> list[Fact]:
    return [Fact("do", "Change", f"{glance.failure.remedy} Press l for the log.")] if glance.failure else []


def _signal(glance: Glance) -> Fact:
    flat = glance.flat
    if not flat:
        return Fact("", "Groups", "how many have a signal is not known yet")
    step, share = flat.point(-1)
    if not math.isfinite(share):
        return Fact("", "Groups", f"no rewards at step {step}")
    mean = _mean(flat)
    if share >= 1:
        return Fact("warn", "Groups", f"0% have spread at step {step}: no gradient")
    sampled = f" at step {step}" if glance.flat_sampled else ""
    trend = _trend(percent(1 - share), None if mean is None else percent(1 - mean), flat)
    return Fact("ok", "Groups", f"{percent(1 - share)} have spread{sampled}{trend}")


def _cut(progress: Progress) -> Fact:
    series = progress.series.get("completions/clipped_ratio")
    limit = progress.settings.get("max_completion_length")
    at = f"at {limit} tokens" if isinstance(limit, int) else "at the limit"
    if not series:
        return Fact("", "Clipped", "how many are cut is not known yet")
    _, share = series.point(-1)
    mean = _mean(series)
    trend = _trend(percent(share), None if mean is None else percent(mean), series)
    return Fact("ok" if share == 0 and not mean else "", "Clipped", f"{percent(share)} cut {at}{trend}")


def _finite(progress: Progress) -> Fact:
    if progress.first_nonfinite is None:
        return Fact(
            "ok" if progress.latest else "", "Finite", "every figure so far" if progress.latest else "no figures yet"
        )
    first = progress.first_nonfinite
    keys = ", ".join(first.keys[:2]) + (f" and {len(first.keys) - 2} more" if len(first.keys) > 2 else "")
    rows = len(progress.nonfinite)
    more = f", {rows} rows in all" if rows > 1 else ""
    return Fact("fail", "Finite", f"not a number at step {first.step}: {keys}{more}")


def _trend(newest: str, mean: str | None, series: Series) -> str:
    """The mean over the newest rows, where it says something else than the newest row."""
    return f", {mean} over the last {min(WINDOW, len(series))}" if mean is not None and mean != newest else ""


def _mean(series: Series) -> float | None:
    recent = [value for value in series.recent(WINDOW) if math.isfinite(value)]
    return sum(recent) / len(recent) if recent else None


def metric_gap(progress: Progress, key: str) -> str:
    """Why a chart of `key` is empty, as a sentence; empty when there is nothing to say."""
    if key == "kl" and progress.beta == 0:
        return "KL is not computed: beta is 0."
    if key in ("reward", "entropy", "grad_norm") and progress.series:
        return f"This run does not log {key}."
    return ""
