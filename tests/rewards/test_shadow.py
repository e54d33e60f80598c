"""Rewards of weight 0 in a real training: recorded as canaries, without a say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rewards.shadow_train", str(tmp_path_factory.mktemp("shadow"))],
        cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_a_shadow_reward_is_logged_and_kept_beside_the_completions(trained: dict[str, Any]) -> None:
    rows = trained["shadowed"]["rows"]
    assert len(rows) == 3
    assert all(row["rewards/loud/mean"] > 1000 for row in rows)
    assert all("rewards/broken/mean" in row for row in rows)
    assert trained["shadowed"]["names"] == ["correct", "loud", "broken"]


def test_it_changes_neither_advantages_nor_what_is_learnt_be_it_nan_or_infinite(trained: dict[str, Any]) -> None:
    plain, shadowed = trained["plain"], trained["shadowed"]
    assert shadowed["advantages"] == plain["advantages"]
    assert any(any(step) for step in plain["advantages"])
    assert shadowed["completions"] == plain["completions"], "the weights after each step are the same"
    for name in ("reward", "reward_std", "loss", "grad_norm", "frac_reward_zero_std"):
        assert [row[name] for row in shadowed["rows"]] == [row[name] for row in plain["rows"]], name


def test_it_has_a_say_where_no_other_function_scored(trained: dict[str, Any]) -> None:
    """TRL (1.16) takes such a completion for scored, with 0: a canary has to skip what the paid rewards skip."""
    alone, shadowed = trained["skipping"]["advantages"][0], trained["skipping_shadowed"]["advantages"][0]
    assert set(alone[::2]) == {0.0}
    assert any(value != 0 for value in shadowed[::2])
