"""What other weights or other code would have done to completions that are there already."""

import math
import os
from pathlib import Path

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.stored import Stored, WhatIf, group_size_of, read_completions, standing, what_if

# Two groups of three: right and wordy, wrong and well formed, wrong and nothing.
STORED = Stored(
    names=("correct", "format"),
    weights=(1.0, 0.25),
    rewards=((1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.0, 1.0), (0.0, 1.0), (0.0, None)),
    group_size=3,
)


def changed(stored: Stored = STORED, **change: object) -> WhatIf:
    found = what_if(stored, **change)  # type: ignore[arg-type]  # the keywords of what_if
    assert not isinstance(found, Problem), str(found)
    return found


def test_completions_stand_by_their_weighted_reward_within_their_group() -> None:
    now = standing(STORED)
    assert now.weighted == (1.0, 0.25, 0.0, 0.25, 0.25, 0.0)
    assert now.ranks == (1, 2, 3, 1, 1, 3)
    assert now.advantages[0] > 0 > now.advantages[2]
    assert now.flat_share == 0


def test_a_heavier_form_turns_the_order_of_a_group() -> None:
    found = changed(weights=(1.0, 2.0))
    assert found.after.ranks[:3] == (2, 1, 3)
    assert found.moved == (0, 1)
    assert found.other_best == (0,)
    assert found.turned == (0, 1), "the first one would stand in the middle"
    assert "2 of 6 completions would have had another rank, 2 would" in found.sentence
    assert "1 of 2 groups had another best one" in found.sentence


def test_without_the_form_a_group_of_wrong_answers_teaches_nothing() -> None:
    found = changed(weights=(1.0, 0.0))
    assert (found.before.flat_share, found.after.flat_share) == (0, 0.5)
    assert set(found.turned) >= {3, 4, 5}
    assert "Without signal: 0% of the groups before, 50% after." in found.sentence


def test_only_the_ratio_of_the_weights_matters() -> None:
    found = changed(weights=(4.0, 1.0))
    assert (found.moved, found.turned) == ((), ())
    assert found.sentence == "No completion of 6 would have stood otherwise in its group of 3."


def test_new_rewards_of_the_same_completions_take_the_place_of_the_old() -> None:
    found = changed(names=("strict",), weights=(1.0,), rewards=[[0.0], [1.0], [0.0], [0.0], [0.0], [0.0]])
    assert found.after.weighted == (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert found.other_best == (0, 1)


def test_functions_normalised_one_by_one_rank_by_their_advantages() -> None:
    found = changed(aggregation="normalize_then_sum", weights=(1.0, 1.0))
    assert found.after.ranks[:3] == (1, 1, 3)


def test_a_completion_that_nobody_scored_has_no_rank() -> None:
    stored = Stored(names=("f",), weights=(1.0,), rewards=((1.0,), (None,), (0.0,)), group_size=3)
    assert standing(stored).ranks == (1, None, 2)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"weights": (1.0,)}, "1 weights for 2"),
        ({"rewards": [[1.0, 0.0]] * 3}, "3 completions for 6"),
        ({"rewards": [[1.0]] * 6}, "2 weights for 2"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(change: dict[str, object], what: str) -> None:
    problem = what_if(STORED, **change)  # type: ignore[arg-type]  # the keywords of what_if
    assert isinstance(problem, Problem)
    assert what in problem.what


@pytest.mark.parametrize(
    ("prompts", "size"), [("aabbcc", 2), ("aaaabb", 2), ("aaaa", 4), ([["x"], ["x"], ["y"], ["y"]], 2)]
)
def test_neighbours_with_one_prompt_are_a_group(prompts: object, size: int) -> None:
    assert group_size_of(list(prompts)) == size  # type: ignore[call-overload]  # text or list


@pytest.mark.parametrize("prompts", ["abab", "aab", ""])
def test_prompts_that_do_not_stand_together_make_no_groups(prompts: str) -> None:
    assert isinstance(group_size_of(list(prompts)), Problem)


def test_a_line_separator_inside_a_text_does_not_cut_the_line(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('"one\u2028two"\r\n{"completion": "three"}\n', encoding="utf-8", newline="")
    assert read_completions(path) == [{"completion": "one\u2028two"}, {"completion": "three"}]


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "samples.jsonl")
    found = read_completions(tmp_path / "samples.jsonl")
    assert isinstance(found, Problem)
    assert "a pipe or a device" in found.what


def test_equal_rewards_share_a_rank_and_rounding_makes_no_difference() -> None:
    rewards = ((0.3,), (0.1 + 0.2,), (1.0,), (None,), (-math.inf,))
    stored = Stored(names=("a",), weights=(1.0,), rewards=rewards, group_size=5)
    assert standing(stored).ranks == (2, 2, 1, None, 4)
