"""The verdict on a sample before a training: will it learn, and from what."""

import numpy as np
import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.signal import Signal, SignalRequest, learning_signal

Rows = list[tuple[float | None, ...]]


def signal(rewards: Rows, names: str = "correct format", weights: tuple[float, ...] = (), **more: object) -> Signal:
    functions = tuple(names.split())
    request = SignalRequest(
        names=functions, weights=weights or (1.0, 0.25)[: len(functions)], rewards=tuple(rewards),
        **{"generations": 8, **more},  # type: ignore[arg-type]  # the fields of SignalRequest
    )  # fmt: skip
    found = learning_signal(request)
    assert not isinstance(found, Problem), str(found)
    return found


def drawn(prompts: int, right: float, formed: float = 0.5, generations: int = 8, seed: int = 1) -> Rows:
    """Completions that are right and well formed by chance."""
    random = np.random.default_rng(seed)
    return [(float(random.random() < right), float(random.random() < formed)) for _ in range(prompts * generations)]


def test_a_task_of_middling_difficulty_will_be_learnt() -> None:
    found = signal(drawn(32, 0.3))
    assert found.verdict == "will learn"
    assert found.why.startswith("Will learn: 0% (")
    assert "pass correct" in found.why
    assert "correct decides" in found.why
    assert found.pass_rate is not None
    assert found.pass_rate.low < 0.3 < found.pass_rate.high
    assert set(found.zero_signal) == {4, 8, 16, 32}
    assert found.zero_signal[4].estimate > found.zero_signal[8].estimate >= found.zero_signal[16].estimate


@pytest.mark.parametrize(
    ("right", "formed", "verdict", "words"),
    [
        (0.0, 0.5, "too hard", "other rewards alone teach no answers"),
        (1.0, 0.5, "too easy", "100%"),
        (0.0, 0.0, "reward silent", "the check is broken"),
        (1.0, 1.0, "too easy", "earned everything"),
        (0.0, 1.0, "reward silent", "earned the same"),
    ],
)
def test_where_nothing_is_to_be_learnt_it_says_why(right: float, formed: float, verdict: str, words: str) -> None:
    found = signal(drawn(32, right, formed))
    assert found.verdict == verdict
    assert words in found.why


def test_a_reward_that_scores_nothing_is_silent() -> None:
    found = signal([(None, 1.0), (None, 0.0)] * 64)
    assert found.verdict == "reward silent"
    assert found.pass_rate is None
    assert "scored no completion" in found.why


def test_rewards_that_cancel_are_silent_although_each_speaks() -> None:
    found = signal([(1.0, 0.0), (0.0, 1.0)] * 64, weights=(1.0, 1.0))
    assert found.verdict == "reward silent"
    assert found.silent == ()


def test_a_sample_too_small_says_how_many_more_are_needed() -> None:
    found = signal(drawn(4, 0.3))
    assert (found.verdict, found.more_prompts) == ("too few", 12)
    assert "at least 12 more" in found.why
    unsure = signal(drawn(12, 0.03, seed=3))
    assert unsure.verdict == "too few"
    assert unsure.more_prompts > 1
    assert f"{unsure.more_prompts} more prompts" in unsure.why


def test_the_verdict_is_for_the_planned_group_and_not_for_the_sampled() -> None:
    rows = drawn(64, 0.04, formed=0.0, generations=16, seed=2)
    small = signal(rows, generations=16, planned=4)
    large = signal(rows, generations=16, planned=32)
    assert small.zero_signal[4].estimate > 0.75
    assert large.verdict == "will learn"
    assert small.verdict in ("too hard", "too few")


def test_prompts_that_are_always_right_or_always_wrong_are_listed() -> None:
    group = [(1.0, 0.0)] * 8
    found = signal([*group, *drawn(8, 0.4, seed=5), *[(0.0, 1.0)] * 8])
    assert found.always_right == (0,)
    assert found.always_wrong[-1] == 9
    assert found.prompts[0].flat
    assert found.prompts[0].passed == 1


def test_shares_in_the_decision_add_up_to_one_and_name_what_works_against() -> None:
    found = signal([(1.0, 0.0), (0.0, 0.25)] * 64, weights=(1.0, 1.0), scale="none")
    assert found.deciding == pytest.approx({"correct": 4 / 3, "format": -1 / 3})
    assert found.correlation["correct", "format"] == pytest.approx(-1)


def test_under_group_scaling_a_quiet_group_decides_as_much_as_a_loud_one() -> None:
    loud: Rows = [(100.0, 0.0), (0.0, 0.0)] * 4
    quiet: Rows = [(0.0, 0.1), (0.0, 0.0)] * 4
    assert signal(loud + quiet, weights=(1.0, 1.0)).deciding == pytest.approx({"correct": 0.5, "format": 0.5})
    assert signal(loud + quiet, weights=(1.0, 1.0), scale="batch").deciding["correct"] > 0.99


def test_a_reward_that_never_varies_is_named_and_has_no_correlation() -> None:
    found = signal(drawn(16, 0.4, formed=1.0))
    assert found.silent == ("format",)
    assert found.correlation["correct", "format"] is None
    assert found.deciding == pytest.approx({"correct": 1.0, "format": 0.0})


def test_a_shadow_reward_neither_decides_nor_leads() -> None:
    found = signal(drawn(16, 0.5), weights=(0.0, 1.0))
    assert found.deciding == pytest.approx({"correct": 0.0, "format": 1.0})
    assert "pass format" in found.why
    assert "correct" not in found.silent


@pytest.mark.parametrize(
    ("rewards", "more", "what"),
    [
        ([(1.0, 1.0)] * 9, {}, "no whole number of groups of 8"),
        ([], {}, "no whole number"),
        ([(1.0, 1.0)] * 8, {"generations": 1}, "nothing to compare"),
        ([(1.0, 1.0)] * 8, {"weights": (1.0,)}, "1 weights for 2"),
        ([(1.0, 1.0)] * 8, {"planned": 1}, "at least two"),
        ([(1.0, 1.0)] * 8, {"scale": "rows"}, "'rows'"),
    ],
)
def test_what_is_no_sample_of_groups_is_refused(rewards: Rows, more: dict[str, object], what: str) -> None:
    request = SignalRequest(
        **{"names": ("a", "b"), "weights": (1.0, 1.0), "rewards": tuple(rewards), "generations": 8, **more}  # type: ignore[arg-type]  # the fields of SignalRequest
    )
    problem = learning_signal(request)
    assert isinstance(problem, Problem)
    assert what in problem.what
