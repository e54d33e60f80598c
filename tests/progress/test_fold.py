"""From events to what a viewer shows: recorded runs, made ones, and files that change under the reader."""

import json
import math
from pathlib import Path

import pytest

from grpo_tui.progress import events as reading
from grpo_tui.progress.events import Event
from grpo_tui.progress.fold import Progress, advance, follow

RUNS = Path(__file__).parents[1] / "runs"


def of(run):
    return follow(RUNS / run / "events.jsonl").progress


def event(kind, step=0, t=None, **data):
    return Event(v=1, t=float(step) if t is None else t, kind=kind, step=step, data=data)


def log(step, t=None, **logs):
    return event("log", step, t, logs=logs)


def begin(step=0, **data):
    return event("begin", step, t=float(step), reward_names=["correct"], reward_weights=[1.0], **data)


def test_a_finished_run_shows_all_its_rows_and_none_more():
    progress = of("h01_base")
    assert progress.series["reward"].steps.tolist() == list(range(1, 241))
    assert (progress.step, progress.max_steps, progress.end.reason) == (240, 240, "completed")
    assert progress.reward_names == ("correctness_reward", "format_reward", "length_reward")
    assert progress.weights == (1.0, 0.3, 0.1)
    assert progress.num_generations == 8
    assert 0.1 < progress.seconds_per_step < 1
    assert 60 < progress.elapsed < 70


def test_the_latest_row_is_kept_as_it_was_logged():
    lines = (RUNS / "h01_base" / "events.jsonl").read_text().splitlines()
    newest = next(row for row in map(json.loads, reversed(lines)) if "loss" in row.get("logs", {}))
    assert of("h01_base").latest == newest["logs"]
    assert of("h01_base").series["entropy"].last() == (240, newest["logs"]["entropy"])


def test_the_summary_is_no_step():
    progress = of("h01_base")
    assert "train_runtime" in progress.summary
    assert "train_runtime" not in progress.series
    assert len(progress.times) == 240
    assert of("f25_zero_step").series == {}
    assert of("f25_zero_step").step == 0


def test_a_summary_that_carries_left_over_rewards_is_no_step_either():
    progress = advance(Progress(), [begin(), log(3, train_runtime=1.0, reward=0.5)])
    assert "reward" not in progress.series
    assert progress.summary["reward"] == 0.5


def test_evaluation_rows_are_kept_apart():
    progress = of("h04_beta_kl")
    assert progress.evals["eval_reward"].steps.tolist() == [28, 56, 84, 112, 140]
    assert not any(key.startswith("eval_") for key in progress.series)
    older = advance(Progress(), [begin(), log(2, eval_loss=0.1, eval_reward=0.5)])
    assert older.evals["eval_reward"].last() == (2, 0.5)
    assert older.latest == {}


def test_kl_is_there_with_beta_and_missing_without():
    assert len(of("h04_beta_kl").series["kl"]) == 140
    assert of("h04_beta_kl").beta == 0.04
    assert "kl" not in of("h01_base").series
    assert of("h01_base").beta == 0.0
    assert Progress().beta is None


def test_rows_without_generation_are_gaps_and_not_zeros():
    progress = of("h06_spg4_accum2")
    assert len(progress.series["loss"]) == 200
    assert len(progress.series["reward"]) == 100
    assert progress.series["reward"].values.min() > 0
    assert progress.series["reward"].at(progress.series["reward"].steps[0] + 1) is None


def test_none_is_no_point():
    progress = advance(Progress(), [begin(), log(1, reward=None, **{"rewards/correct/mean": None}), log(2, reward=1.0)])
    assert progress.series["reward"].steps.tolist() == [2]
    assert progress.latest_step == 2


def test_a_crash_and_a_kill_are_told_apart():
    assert of("f29_crash_exc").end.error.startswith("ValueError: could not convert")
    assert of("f31_sigkill").end is None


def test_figures_that_are_no_numbers_are_points_and_are_counted():
    progress = of("made_nan")
    assert progress.first_nonfinite.step == 8
    assert progress.first_nonfinite.keys == ("grad_norm",)
    assert progress.nonfinite.steps.tolist() == [8, 9]
    assert math.isnan(progress.series["grad_norm"].at(9))
    assert progress.series["reward"].at(9) == math.inf
    assert progress.series["rewards/format_reward/mean"].at(9) == -math.inf
    assert progress.series["rewards/correctness_reward/mean"].at(9) is None
    assert progress.series["loss"].at(8) == 0.0  # the Trainer replaces it: it tells nothing


def test_memory_phases_groups_and_saves_are_folded():
    progress = of("made_nan")
    assert progress.memory["cuda:0/allocated"].last() == (9, 5 * 2**30 + 9000)
    assert progress.phases["generate"].at(3) == 0.12
    assert progress.phase_memory == {"generate": 3 * 2**30, "train": 5 * 2**30 + 9000}
    assert progress.flat.last() == (9, 0.25)
    assert progress.spread[:2] == (1.3, 0.0)
    assert [save.path for save in progress.saves] == ["checkpoint-6"]


def test_a_torn_file_gives_every_whole_row():
    view = follow(RUNS / "made_torn" / "events.jsonl")
    assert view.progress.series["reward"].steps.tolist() == [1, 2, 3, 4, 5]
    assert view.skipped == 4
    assert view.progress.other_kinds == {"from_the_future": 1}


def test_a_later_attempt_drops_what_came_after_its_checkpoint():
    first = advance(
        Progress(),
        [begin(), *(log(step, reward=float(step), kl=math.nan if step == 5 else 0.1) for step in range(1, 7)),
         event("save", 3, checkpoint="checkpoint-3"), event("save", 6, checkpoint="checkpoint-6"),
         event("end", 6, reason="error", error="RuntimeError: x")],
    )  # fmt: skip
    later = advance(first, [begin(3, resumed_from=3), log(4, t=20.0, reward=40.0)])
    assert later.series["reward"].steps.tolist() == [1, 2, 3, 4]
    assert later.series["reward"].values.tolist() == [1.0, 2.0, 3.0, 40.0]
    assert later.series["kl"].steps.tolist() == [1, 2, 3]
    assert (later.attempts, later.resumed_from, later.step, later.end) == (2, 3, 4, None)
    assert later.first_nonfinite is None
    assert [save.step for save in later.saves] == [3]
    # The snapshot before is as it was.
    assert first.series["reward"].values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert first.end is not None


def test_two_futures_of_one_snapshot_do_not_meet():
    common = advance(Progress(), [begin(), log(1, reward=1.0)])
    left = advance(common, [log(2, reward=2.0), log(3, reward=3.0)])
    right = advance(common, [log(2, reward=-2.0)])
    assert left.series["reward"].values.tolist() == [1.0, 2.0, 3.0]
    assert right.series["reward"].values.tolist() == [1.0, -2.0]
    assert common.series["reward"].values.tolist() == [1.0]


def test_a_new_training_in_the_same_file_starts_from_nothing():
    progress = advance(Progress(), [begin(), log(1, reward=1.0), begin(), log(1, reward=5.0)])
    assert progress.series["reward"].values.tolist() == [5.0]
    assert progress.attempts == 1


def test_a_step_that_comes_again_replaces_the_earlier_row():
    progress = advance(Progress(), [begin(), log(1, reward=1.0), log(2, reward=2.0), log(2, reward=3.0)])
    assert progress.series["reward"].values.tolist() == [1.0, 3.0]


def test_rows_of_older_libraries_fill_the_same_charts():
    progress = advance(
        Progress(),
        [
            log(1, completion_length=232.8, reward=1.7, **{"rewards/format_reward2": 1.0}),
            log(2, mean_completion_length=230.0),
        ],
    )
    assert progress.series["completions/mean_length"].values.tolist() == [232.8, 230.0]
    assert progress.reward_names == ("format_reward2",)
    assert progress.weights == (1.0,)
    assert "frac_reward_zero_std" not in progress.series
    assert progress.latest == {"mean_completion_length": 230.0}


def test_a_phase_that_runs_is_told_until_the_step_ends():
    running = advance(Progress(), [begin(), event("now", 4, t=50.0, phase="generate")])
    assert (running.now, running.now_since) == ("generate", 50.0)
    assert advance(running, [event("phase", 5, seconds={"train": 1.0})]).now == ""


@pytest.mark.parametrize(
    "strange",
    [
        event("log", 1),
        event("log", 1, logs="text"),
        event("log", 1, logs={"reward": [1]}, groups=3, memory=[1]),
        event("log", 1, logs={"reward": True, "x": 10**400}),
        event("log", 1, memory={"cuda:0": {"allocated": "much"}}, groups={"flat_share": "x", "spread": {}}),
        event("log", -5, logs={"reward": 1.0}),
        event("begin", 0, reward_names=7, reward_weights="x", batch=1),
        event("begin", 0, max_steps="many", settings=[], world_size=-1),
        event("phase", 1, seconds=4, memory={"a": "b"}),
        event("end", 1),
        event("save", 1),
        event("control", 1),
        event("now", 1),
    ],
)
def test_nothing_in_an_event_raises(strange):
    progress = advance(Progress(), [begin(), strange, log(2, reward=0.5)])
    assert progress.series["reward"].last() == (2, 0.5)
    assert isinstance(progress.weights, tuple)
    assert isinstance(progress.reward_names, tuple)
    assert progress.world_size >= 1


def test_events_of_a_newer_program_are_read_as_far_as_they_are_known():
    progress = advance(Progress(), [Event(v=9, t=1.0, kind="log", step=1, data={"logs": {"reward": 1.0}})])
    assert progress.version == 9
    assert progress.series["reward"].last() == (1, 1.0)


def test_following_a_live_file_gives_what_reading_it_at_once_gives(tmp_path):
    path = tmp_path / "events.jsonl"
    text = (RUNS / "h04_beta_kl" / "events.jsonl").read_bytes()
    view = follow(path)
    assert view.progress.step == 0
    for cut in range(0, len(text), 7001):
        path.write_bytes(text[:cut])
        view = follow(path, view)
        assert not view.restarted
    path.write_bytes(text)
    view = follow(path, view)
    whole = of("h04_beta_kl")
    assert view.progress.latest == whole.latest
    for key, series in whole.series.items():
        assert view.progress.series[key].values.tolist() == series.values.tolist(), key


def test_a_replaced_file_is_followed_from_its_start(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes((RUNS / "h01_base" / "events.jsonl").read_bytes())
    view = follow(path)
    path.write_bytes((RUNS / "f31_sigkill" / "events.jsonl").read_bytes())
    view = follow(path, view)
    assert view.restarted
    assert (view.progress.step, view.progress.end) == (70, None)


def test_a_large_file_shows_at_once_and_completely_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "WHOLE_BYTES", 4096)
    monkeypatch.setattr(reading, "TAIL_BYTES", 4096)
    monkeypatch.setattr(reading, "SAMPLES", 10)
    path = tmp_path / "events.jsonl"
    path.write_bytes((RUNS / "h01_base" / "events.jsonl").read_bytes())
    view = follow(path)
    assert not view.complete
    assert view.progress.step == 240
    assert view.progress.reward_names
    assert 10 < len(view.progress.series["reward"]) < 100
    looks = 0
    while not view.complete:
        view = follow(path, view, budget=20_000)
        looks += 1
        assert view.progress.step == 240
    assert looks > 5
    whole = advance(Progress(), reading.read_new(path)[0])
    assert view.progress.series["reward"].values.tolist() == whole.series["reward"].values.tolist()
    assert view.read == view.size
