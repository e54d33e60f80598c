"""Few columns that stand for many points."""

import numpy as np

from grpo_tui.progress.reduce import bridge, reduce_columns, smooth


def test_a_spike_among_a_hundred_thousand_points_is_seen() -> None:
    y = np.zeros(100_000)
    y[70_123] = 5.0
    columns = reduce_columns(np.arange(100_000), y, 120, 100_000)
    assert np.nanmax(columns.greatest) == 5.0
    assert columns.count.sum() == 100_000
    assert np.nanmax(columns.mean) < 0.01


def test_columns_hold_mean_and_extremes_of_their_own_points() -> None:
    columns = reduce_columns(np.array([0, 1, 2, 3]), np.array([1.0, 2.0, 3.0, 4.0]), 4, 3)
    assert columns.mean.tolist() == [1.0, 2.0, 3.0, 4.0]
    halves = reduce_columns(np.array([0, 0, 3, 3]), np.array([1.0, 3.0, 5.0, 9.0]), 2, 3)
    assert halves.mean.tolist() == [2.0, 7.0]
    assert halves.least.tolist() == [1.0, 5.0]
    assert halves.greatest.tolist() == [3.0, 9.0]


def test_figures_that_are_no_numbers_do_not_spoil_their_column() -> None:
    columns = reduce_columns(np.array([0, 0, 1, 1]), np.array([1.0, np.nan, np.inf, np.nan]), 2, 1)
    assert columns.mean[0] == 1.0
    assert np.isnan(columns.mean[1])


def test_missing_steps_are_bridged_and_broken_ones_are_a_gap() -> None:
    sparse = bridge(reduce_columns(np.array([0, 8]), np.array([0.0, 8.0]), 9, 8))
    assert sparse.tolist() == list(range(9))
    broken = bridge(reduce_columns(np.array([0, 4, 8]), np.array([0.0, np.nan, 8.0]), 9, 8))
    assert np.isnan(broken[1:8]).all()
    assert broken[[0, 8]].tolist() == [0.0, 8.0]


def test_smoothing_is_the_mean_of_a_row_and_those_before_it() -> None:
    assert smooth(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist() == [1.0, 2.0, 4.0, 6.0]
    with_gap = smooth(np.array([1.0, np.nan, 3.0]), 3)
    assert np.isnan(with_gap[1])
    assert with_gap[2] == 2.0
