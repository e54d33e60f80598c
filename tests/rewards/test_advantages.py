"""Advantages against what TRL itself computed: recorded completions, and its formulas run by torch."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_tui.rewards.advantages import (
    AGGREGATIONS,
    SCALES,
    advantages,
    flat_share,
    is_binary_exact,
    is_flat,
    weight_warning,
    weighted_sum,
)

BASE = Path(__file__).parent / "completions_base.parquet"  # TRL 1.16, three rewards, groups of 8

TRL_FORMULAS = """
import json, sys, torch
from trl.trainer.utils import nanstd
cases = json.load(sys.stdin)
out = []
for case in cases:
    r = torch.tensor([[float("nan") if v is None else v for v in row] for row in case["rewards"]], dtype=torch.float64)
    w = torch.tensor(case["weights"], dtype=torch.float64); g = case["group"]
    un = torch.isnan(r).all(dim=1)
    if case["aggregation"] == "sum_then_normalize":
        s = (r * w.unsqueeze(0)).nansum(dim=1); s[un] = torch.nan
        m = torch.nanmean(s.view(-1, g), dim=1).repeat_interleave(g, dim=0)
        d = nanstd(s).expand_as(s) if case["scale"] == "batch" else nanstd(s.view(-1, g), dim=1).repeat_interleave(g)
        a = s - m
        a = a / (d + 1e-4) if case["scale"] != "none" else a
    else:
        x = r.view(-1, g, len(w)); m = torch.nanmean(x, dim=1, keepdim=True)
        k = (x - m) / (nanstd(x, dim=1, keepdim=True) + 1e-4)
        s = (k.view(-1, len(w)) * w.unsqueeze(0)).nansum(dim=1); s[un] = torch.nan
        a = (s - torch.nanmean(s)) / (nanstd(s).expand_as(s) + 1e-4)
    out.append(torch.nan_to_num(a, nan=0.0).tolist())
json.dump(out, sys.stdout)
"""

REWARDS = [
    [[1.0, 0.5], [0.0, 0.5], [0.25, None], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]],
    [[1.0, 0.5], [None, None], [0.25, None], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
    [[None, 1.0], [None, None], [None, None], [3.0, None], [-2.0, 0.0], [0.0, 0.0]],
    [[1.0, 9.0], [0.0, None], [None, 4.0], [1.0, math.inf], [0.0, 0.0], [None, None]],
]


def test_advantages_are_those_of_trls_formulas_under_every_scale_and_aggregation() -> None:
    cases = [
        {"rewards": rewards, "weights": weights, "group": 3, "scale": scale, "aggregation": aggregation}
        for rewards, weights in [*((each, [1.0, 0.25]) for each in REWARDS[:-1]), (REWARDS[-1], [1.0, 0.0])]
        for scale in SCALES
        for aggregation in AGGREGATIONS
    ]
    answer = subprocess.run(
        [sys.executable, "-c", TRL_FORMULAS], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    for case, expected in zip(cases, json.loads(answer.stdout), strict=True):
        ours = advantages(case["rewards"], case["weights"], case["group"], case["scale"], case["aggregation"])  # type: ignore[arg-type]  # a plain dict of the case
        assert ours == pytest.approx(expected, abs=1e-6), case  # nanstd corrects in float32


def test_advantages_are_those_that_a_recorded_run_was_trained_with() -> None:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(BASE).to_pylist()
    rewards = [[row["correctness_reward"], row["format_reward"], row["length_reward"]] for row in rows]
    ours = advantages(rewards, [1.0, 0.3, 0.1], 8)
    # 1, .3, .1 leave float32 noise in flat groups: there TRL has up to 0.002 where the truth is 0.
    assert ours == pytest.approx([row["advantage"] for row in rows], abs=3e-3)
    assert max(map(abs, ours)) > 1


def test_a_completion_without_any_reward_gets_no_advantage_and_does_not_move_the_others() -> None:
    with_it = advantages([[1.0], [0.0], [None]], [1.0], 3)
    assert with_it[2] == 0
    assert with_it[:2] == advantages([[1.0], [0.0]], [1.0], 2)


def test_a_group_with_an_infinite_reward_teaches_nothing() -> None:
    assert advantages([[float("inf")], [0.0], [1.0]], [1.0], 3) == [0.0, 0.0, 0.0]


def test_a_missing_reward_drops_only_its_own_term() -> None:
    assert weighted_sum([None, 1.0, 0.5], [1.0, 0.25, 2.0]) == 1.25
    assert weighted_sum([None, None], [1.0, 1.0]) is None


def test_completions_that_fill_no_whole_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="no whole number of groups"):
        advantages([[1.0]] * 5, [1.0], 2)


@pytest.mark.parametrize(
    ("group", "flat"),
    [
        ([1.3] * 8, True),
        ([1.3, 1.3 + 1e-7], True),
        ([1000.0, 1000.0005], True),
        ([0.0, 1e-5], False),
        ([None, None], True),
        ([None, 2.0, None], True),
        ([0.0, 1.0], False),
        ([float("inf"), 0.0], False),
    ],
)
def test_a_group_is_flat_when_its_rewards_differ_by_rounding_only(group: list[float | None], flat: bool) -> None:
    assert is_flat(group) is flat


def test_the_share_of_flat_groups_counts_groups() -> None:
    assert flat_share([1.3, 1.3, 0.0, 1.0, None, None, 0.5, 0.5], 2) == 0.75
    assert flat_share([], 8) is None


@pytest.mark.parametrize(("weight", "exact"), [(1.0, True), (0.125, True), (0.375, True), (0.3, False), (0.1, False)])
def test_weights_that_leave_rounding_noise_are_told_from_exact_ones(weight: float, exact: bool) -> None:
    assert is_binary_exact(weight) is exact
    assert (weight_warning("format", weight) == "") is exact


def test_the_warning_about_a_weight_offers_an_exact_one() -> None:
    assert "0.25 is exact" in weight_warning("format", 0.3)
    assert "frac_reward_zero_std" in weight_warning("format", 0.1)
    assert "negative" in weight_warning("format", -0.5)
