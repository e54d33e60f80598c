"""Columns that grow while they are looked at, and names that changed."""

import pytest

from grpo_tui.progress.series import METRICS, Column, Series, canonical, metric


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
