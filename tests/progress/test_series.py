"""Columns that grow while they are looked at, and few points that stand for many."""

import math

import numpy as np
import pytest

from grpo_tui.progress.series import METRICS, Column, Series, canonical, downsample, metric, smooth


def test_a_snapshot_stays_as_it_was_while_the_column_grows():
    column = Column.empty()
    for step in range(10):
        column.append(step, float(step))
    early = Series(column, column.used)
    values = early.values  # numpy looks at the buffer while it grows
    for step in range(10, 1000):
        column.append(step, -1.0)
    assert values.tolist() == list(map(float, range(10)))
    assert early.values.tolist() == values.tolist()
    assert len(Series(column, column.used)) == 1000
    assert early.last() == (9, 9.0)


def test_a_step_that_was_not_logged_has_no_value():
    series = Series.of([(1, 0.5), (4, 2.0)])
    assert (series.at(1), series.at(2), series.at(4), series.at(5)) == (0.5, None, 2.0, None)
    assert Series().last() is None
    with pytest.raises(IndexError):
        series.point(2)


def test_one_spike_among_100000_points_stays_visible():
    values = np.zeros(100_000)
    values[41_234] = 7.0
    values[41_235] = -3.0
    series = Series.of(zip(range(1, 100_001), values.tolist(), strict=True))
    few = downsample(series, 120, 1, 100_000)
    assert (np.nanmax(few.high), np.nanmin(few.low)) == (7.0, -3.0)
    assert few.count.sum() == 100_000
    assert np.flatnonzero(few.high > 0).tolist() == [int(41_234 / (99_999 / 120))]


def test_downsampling_agrees_with_the_plain_definition():
    random = np.random.default_rng(5)
    steps = np.sort(random.choice(3000, 700, replace=False))
    values = random.normal(size=700)
    values[::50] = np.nan
    values[7::90] = np.inf
    few = downsample(Series.of(zip(steps.tolist(), values.tolist(), strict=True)), 37, 200, 2500)
    width = (2500 - 200) / 37
    for column in range(37):
        inside = [
            value for step, value in zip(steps, values, strict=True)
            if 200 <= step <= 2500 and min(int((step - 200) / width), 36) == column
        ]  # fmt: skip
        finite = [value for value in inside if math.isfinite(value)]
        assert few.count[column] == len(finite)
        assert few.nonfinite[column] == len(inside) - len(finite)
        if finite:
            assert (few.low[column], few.high[column]) == (min(finite), max(finite))
            assert few.mean[column] == pytest.approx(sum(finite) / len(finite))
        else:
            assert math.isnan(few.low[column])


@pytest.mark.parametrize("points", [[], [(5, 1.0)], [(5, math.nan)]])
def test_nothing_and_one_point_can_be_drawn(points):
    few = downsample(Series.of(points), 10, 5, 5)
    assert few.count.sum() == sum(math.isfinite(value) for _, value in points)
    assert few.nonfinite.sum() == sum(not math.isfinite(value) for _, value in points)


def test_smoothing_starts_at_the_first_value_and_leaves_gaps():
    out = smooth(np.array([2.0, 2.0, np.nan, 2.0]), 0.9)
    assert out[[0, 1, 3]].tolist() == pytest.approx([2.0, 2.0, 2.0])
    assert math.isnan(out[2])
    assert smooth(np.array([0.0, 1.0]), 0.0).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("completion_length", "completions/mean_length"),
        ("mean_completion_length", "completions/mean_length"),
        ("clip_ratio", "clip_ratio/region_mean"),
        ("rewards/format_reward2", "rewards/format_reward2/mean"),
        ("rewards/format_reward2/std", "rewards/format_reward2/std"),
        ("completions/mean_length", "completions/mean_length"),
        ("eval_completion_length", "eval_completions/mean_length"),
        ("eval_loss", "eval_loss"),
        ("judge/latency", "judge/latency"),
    ],
)
def test_names_of_every_generation_of_the_library_become_one(old, new):
    assert canonical(old) == new


def test_every_logged_key_has_a_meaning():
    for key, known in METRICS.items():
        assert known.title, key
        assert known.meaning.endswith("."), key
    assert "Says little" in metric("loss").meaning
    assert metric("rewards/correct/std").title == "correct spread"
    assert metric("eval_reward").title == "reward, test prompts"
    assert "extra metric" in metric("judge/latency").meaning
    assert "TRL" in metric("frac_reward_zero_std").title
