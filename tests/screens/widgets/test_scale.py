"""Scales have round ticks in the middle of cells, and hold still."""

import itertools
import math

import pytest
from grpo_tui.screens.widgets.scale import PATIENCE, Scale, fit, horizon, steady, step_ticks

SPANS = [(0.0, 1.0), (-0.2, 1.2), (0.0, 0.0031), (0.55, 0.56), (-12.0, 480.0), (0.0, 2.6), (1e-7, 3e-7), (0.0, 1.0e6)]


@pytest.mark.parametrize(("low", "high"), SPANS)
@pytest.mark.parametrize("rows", [3, 4, 6, 11, 28])
def test_the_limits_hold_the_data_and_every_tick_lies_in_the_middle_of_a_cell(
    low: float, high: float, rows: int
) -> None:
    scale = fit(low, high, rows)
    assert scale.low <= low + 1e-9 * (high - low)
    assert scale.high >= high - 1e-9 * (high - low)
    row = (scale.high - scale.low) / rows
    for tick in scale.ticks:
        assert (tick - scale.low) / row % 1 == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(("low", "high"), SPANS)
@pytest.mark.parametrize("rows", [4, 6, 11])
def test_ticks_are_round_and_few(low: float, high: float, rows: int) -> None:
    ticks = fit(low, high, rows).ticks
    assert 2 <= len(ticks) <= 5
    steps = {
        round((b - a) / 10 ** math.floor(math.log10((b - a) * (1 + 1e-9))), 6) for a, b in itertools.pairwise(ticks)
    }
    assert len(steps) == 1
    assert steps <= {1.0, 2.0, 5.0}


def test_a_constant_has_a_scale_too() -> None:
    scale = fit(0.3, 0.3, 6)
    assert scale.low < 0.3 < scale.high


def test_a_scale_grows_at_once() -> None:
    before = fit(0.0, 1.0, 6, at=10)
    after = steady(before, 0.0, 1.7, 6, log=False, step=11)
    assert after.high >= 1.7


def test_a_scale_shrinks_only_after_some_steps() -> None:
    wide = fit(0.0, 10.0, 6, at=10)
    assert steady(wide, 0.0, 1.0, 6, log=False, step=10 + PATIENCE - 1) is wide
    assert steady(wide, 0.0, 1.0, 6, log=False, step=10 + PATIENCE).high < wide.high


def test_a_scale_that_still_serves_is_kept_for_good() -> None:
    scale = fit(0.0, 1.0, 6, at=0)
    assert steady(scale, 0.05, 0.98, 6, log=False, step=10_000) is scale


def test_a_run_that_begins_anew_gets_a_new_scale() -> None:
    scale = fit(0.0, 100.0, 6, at=500)
    assert steady(scale, 0.0, 1.0, 6, log=False, step=1).high < 10


def test_all_ticks_have_the_same_decimals() -> None:
    assert [Scale(0, 1, (0.0, 0.5, 1.0)).label(tick) for tick in (0.0, 0.5, 1.0)] == ["0.0", "0.5", "1.0"]


def test_a_logarithmic_scale_names_powers_of_ten() -> None:
    scale = fit(-4.2, 0.3, 8, log=True)
    assert {scale.label(tick) for tick in scale.ticks} <= {"1e-5", "1e-4", "0.001", "0.01", "0.1", "1", "10"}


@pytest.mark.parametrize(
    ("end", "cells", "ticks"),
    [(500, 70, [0, 100, 200, 300, 400, 500]), (500, 33, [0, 250, 500]), (20, 33, [0, 10, 20]), (1, 33, [0, 1])],
)
def test_steps_are_named_at_round_places_to_the_planned_end(end: int, cells: int, ticks: list[int]) -> None:
    assert step_ticks(end, cells) == ticks


def test_the_empty_part_of_a_chart_is_the_steps_to_come() -> None:
    assert horizon(312, 500) == 500


def test_without_a_planned_end_the_horizon_moves_in_leaps() -> None:
    ends = {horizon(last, None) for last in range(1, 1000)}
    assert len(ends) < 16
    assert all(horizon(last, None) >= last for last in range(1, 1000))


def test_a_plan_that_was_overrun_does_not_hide_steps() -> None:
    assert horizon(600, 500) >= 600
