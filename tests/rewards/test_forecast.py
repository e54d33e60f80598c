"""The forecast of groups without signal, against what real trainings then had."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE, read_new
from grpo_tui.rewards.bench import ScoreRequest, ScoreTable, score
from grpo_tui.rewards.flatness import Flatness, Share, tallies
from grpo_tui.rewards.loading import load_module
from grpo_tui.rewards.sampling import LocalModel, SampleRequest, sample, start_sampler

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "word_problems"
SYSTEM = "Think inside <reasoning></reasoning>, then reply inside <answer></answer>."

STEPS = 5
"""The first of them changes nothing, the others little: the learning rate is still being warmed up."""

SEEDS = (1, 2, 3)
GENERATIONS = 8
PROMPTS = 96
SETS: dict[str, dict[str, float]] = {
    "correct": {"correct": 1.0},
    "form": {"format": 0.5},
    "all": {"correct": 1.0, "format": 0.25, "brevity": 0.125},
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    made = load_module(RECIPE / "rows.py")
    assert not isinstance(made, Problem)
    return [
        {
            "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
            "answer": row["answer"],
        }
        for row in made.rows()
    ]


@pytest.fixture(scope="module")
def flatness(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Flatness]:
    """Of every reward set, from one sample of the model before any training."""
    chosen = rows[:: len(rows) // PROMPTS][:PROMPTS]
    model = LocalModel(name=str(RECIPE / "model"), device="cpu")
    request = SampleRequest(
        prompts=tuple(row["prompt"] for row in chosen), generations=GENERATIONS, max_completion_length=24, seed=77
    )
    with start_sampler(model) as sampler:
        samples = sample(sampler, model, request)
    assert not isinstance(samples, Problem), str(samples)
    names = ("correct", "format", "brevity")
    with Worker("score") as worker:
        table = score(
            worker,
            ScoreRequest(
                path=RECIPE / "rewards.py",
                names=names,
                completions=samples.texts,
                prompts=tuple(row["prompt"] for row in chosen for _ in range(GENERATIONS)),
                columns={"answer": [row["answer"] for row in chosen for _ in range(GENERATIONS)]},
            ),
        )
    assert isinstance(table, ScoreTable), str(table)
    return {
        name: Flatness(tallies(table.rewards, [weights.get(each, 0.0) for each in names], GENERATIONS))
        for name, weights in SETS.items()
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[int, int]]:
    """Flat groups, and all groups, of the first steps of every training, as its recorder counted them."""
    folder = tmp_path_factory.mktemp("runs")
    asked = json.dumps({"steps": STEPS, "seeds": SEEDS, "sets": SETS})
    done = subprocess.run(
        [sys.executable, "-m", "tests.rewards.forecast_train", str(folder), asked],
        cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = {}
    for name in SETS:
        for seed in SEEDS:
            events, _ = read_new(folder / f"{name}-{seed}" / EVENTS_FILE)
            groups = [event.data["groups"] for event in events if event.kind == "log" and "groups" in event.data]
            assert len(groups) == STEPS
            found[name, seed] = (
                sum(round(each["flat_share"] * each["count"]) for each in groups),
                sum(each["count"] for each in groups),
            )
    return found


def test_the_forecast_holds_in_the_first_steps_of_real_trainings(
    flatness: dict[str, Flatness], seen: dict[tuple[str, int], tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of nine intervals of 95 per cent one may miss; over the seeds together each reward set has to be met."""
    held = []
    lines = []
    for name in SETS:
        for seed in SEEDS:
            flat, count = seen[name, seed]
            interval = flatness[name].seen(GENERATIONS, count)
            held.append(interval.low <= flat / count <= interval.high)
            lines.append(
                f"  {name:<8} seed {seed}: {flat:>2} of {count} flat, {flat / count:.1%}; to be seen: {interval}"
            )
        flat, count = (sum(seen[name, seed][part] for seed in SEEDS) for part in (0, 1))
        together: Share = flatness[name].seen(GENERATIONS, count)
        lines.append(
            f"{name:<8} expected {flatness[name].share(GENERATIONS)}, seen {flat / count:.1%} of {count} groups"
        )
        assert together.low <= flat / count <= together.high, "\n".join(lines)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert sum(held) >= len(held) - 1, "\n".join(lines)
