"""TRL's completion files, as they are found beside real runs."""

from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from grpo_tui.problem import Problem
from grpo_tui.progress import completions
from grpo_tui.progress.fold import follow
from grpo_tui.progress.series import Series

RUNS = Path(__file__).parents[1] / "runs"


def keep(run, step, columns):
    path = completions.path_of(run, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table(columns), path)


def test_the_completions_of_a_step_come_in_groups_of_one_prompt():
    table = completions.read(RUNS / "h01_base", 61, num_generations=8)
    assert len(table.completions) == 64
    assert [len(group) for group in table.groups] == [8] * 8
    assert all(len({table.prompts[place] for place in group}) == 1 for group in table.groups)
    assert list(table.rewards) == ["correctness_reward", "format_reward", "length_reward"]
    assert table.prompts[0].startswith("system: ")
    assert table.questions[0] in table.prompts[0]
    assert "user:" not in table.questions[0]
    assert sum(table.advantages[place] for place in table.groups[0]) == pytest.approx(0, abs=1e-4)


def test_the_steps_that_were_kept_are_listed():
    assert completions.steps(RUNS / "h01_base") == (1, 61, 121, 180, 240)
    assert completions.steps(RUNS / "made_nan") == ()


def test_groups_without_signal_are_found_where_trl_sees_none():
    progress = follow(RUNS / "h01_base" / "events.jsonl").progress
    series = completions.flat_series(RUNS / "h01_base", progress.reward_names, progress.weights, num_generations=8)
    assert series.steps.tolist() == [1, 61, 121, 180, 240]
    assert series.values.tolist() == [0.0, 0.5, 0.375, 0.5, 0.625]
    assert progress.series["frac_reward_zero_std"].at(240) == 0.0


def test_a_look_reads_only_files_that_are_new(tmp_path):
    keep(tmp_path, 2, {"prompt": ["a", "a"], "completion": ["x", "y"], "r": [1.0, 1.0], "advantage": [0.0, 0.0]})
    known = Series.of([(1, 0.5)])
    series = completions.flat_series(tmp_path, ["r"], [1.0], known=known)
    assert [series.point(0), series.point(1)] == [(1, 0.5), (2, 1.0)]


def test_two_groups_with_one_prompt_are_told_apart_by_their_size(tmp_path):
    keep(tmp_path, 1, {"prompt": ["a"] * 4 + ["b"] * 2, "completion": list("uvwxyz"), "advantage": [0.0] * 6})
    assert completions.read(tmp_path, 1, num_generations=2).groups == ((0, 1), (2, 3), (4, 5))
    assert completions.read(tmp_path, 1).groups == ((0, 1, 2, 3), (4, 5))


def test_plain_prompts_missing_rewards_and_extra_columns_are_shown(tmp_path):
    keep(
        tmp_path, 7,
        {"prompt": ["2+2=", "2+2="], "completion": ["4", "5"], "correct": [1.0, None], "none": [None, None],
         "judge_says": ["good", None], "advantage": [float("nan"), 0.7]},
    )  # fmt: skip
    table = completions.read(tmp_path, 7, evaluated=True)
    assert table.questions == ("2+2=", "2+2=")
    assert table.rewards == {"correct": (1.0, None), "none": (None, None)}
    assert table.extra == {"judge_says": ("good", "")}
    assert table.advantages == (None, 0.7)
    assert "evaluation" in table.notes[0].lower()


def test_images_and_tool_calls_in_messages_become_text(tmp_path):
    prompt = [{"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "what is it?"}]}]
    keep(tmp_path, 1, {"prompt": [prompt], "completion": [[{"role": "assistant", "content": "a cat"}]]})
    table = completions.read(tmp_path, 1)
    assert table.questions == ("[image] what is it?",)
    assert table.completions == ("a cat",)
    assert table.advantages == (None,)


@pytest.mark.parametrize("damage", ["missing", "empty", "half", "garbage", "folder", "other"])
def test_a_file_that_cannot_be_read_is_a_problem_and_not_a_crash(tmp_path, damage):
    path = completions.path_of(tmp_path, 1)
    path.parent.mkdir()
    whole = completions.path_of(RUNS / "h01_base", 61).read_bytes()
    if damage == "folder":
        path.mkdir()
    elif damage == "other":
        parquet.write_table(arrow.table({"x": [1]}), path)
    elif damage != "missing":
        path.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "garbage": b"\x00\xff" * 500}[damage])
    assert isinstance(completions.read(tmp_path, 1), Problem)
    assert not completions.flat_series(tmp_path, ["r"], [1.0])


def test_a_run_without_a_step_has_a_file_without_completions():
    table = completions.read(RUNS / "f25_zero_step", 0)
    assert table.completions == ()
    assert "No completion" in table.notes[0]
    assert completions.share_without_signal(table, ["correctness_reward"], [1.0]) is None
