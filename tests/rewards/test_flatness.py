"""Forecasts of flat groups against the truth of simulated prompts."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from grpo_tui.rewards.advantages import Reward, is_flat
from grpo_tui.rewards.flatness import Flatness, Tally, mean_share, tallies, tally

REWARDS = st.sampled_from([None, 0.0, 0.0, 1.0, 1.3, 0.25])
SAMPLED = 8
SIZES = (4, 8, 16, 32)
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

WORLDS: dict[str, Draw] = {
    "easy and hard prompts": lambda random, n: random.beta(0.5, 0.5, n),
    "all alike": lambda random, n: np.full(n, 0.25),
    "most rather hard": lambda random, n: random.beta(2, 6, n),
    "nearly impossible": lambda random, n: np.full(n, 0.02),
    "half impossible": lambda random, n: np.where(random.random(n) < 0.5, 0.0, 0.3),
    "nearly solved": lambda random, n: random.beta(20, 1, n),
}


@given(values=st.lists(REWARDS, min_size=2, max_size=7), k=st.integers(1, 7))
def test_the_chance_of_a_flat_group_is_that_of_counting_every_subset(values: list[Reward], k: int) -> None:
    k = min(k, len(values))
    subsets = list(combinations(values, k))
    assert tally(values).flat_chance(k) == pytest.approx(sum(map(is_flat, subsets)) / len(subsets))


def test_values_that_trl_cannot_tell_apart_are_one_and_an_infinite_one_spoils_its_group() -> None:
    assert tally([1.3, 1.3 + 1e-9, 0.0, None]) == Tally((1, 2), missing=1)
    spoilt = tally([1.0, 0.0, float("inf"), 0.0])
    assert spoilt == Tally((2, 1), infinite=1)
    assert spoilt.flat_chance(4) == 1
    assert spoilt.flat_chance(2) == pytest.approx(4 / 6), "three pairs with it, and the pair of zeros"


def test_each_function_is_looked_at_when_they_are_normalised_before_they_are_summed() -> None:
    rewards = [[1.0, 0.0], [0.0, 1.0]]
    assert tallies(rewards, [1.0, 1.0], 2)[0].flat_chance(2) == 1
    assert tallies(rewards, [1.0, 1.0], 2, "normalize_then_sum")[0].flat_chance(2) == 0
    assert tallies(rewards, [0.0, 0.0], 2, "normalize_then_sum")[0].flat_chance(2) == 1, "no weight, no signal"


def sampled(rates: NDArray[np.float64], random: np.random.Generator, seed: int) -> Flatness:
    right = random.binomial(SAMPLED, rates)
    return Flatness([Tally((int(count), SAMPLED - int(count))) for count in right], seed=seed, draws=200)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("prompts", [16, 64])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(world: str, prompts: int) -> None:
    """95 in 100 are promised. Asked for are 80 in each world: the bootstrap of 16 prompts is a little too sure."""
    random = np.random.default_rng(7)
    rates = WORLDS[world](random, 100_000)
    truth = {k: float(np.mean(rates**k + (1 - rates) ** k)) for k in SIZES}
    repeats = 50
    held = dict.fromkeys(SIZES, 0)
    off = dict.fromkeys(SIZES, 0.0)
    for seed in range(repeats):
        flatness = sampled(WORLDS[world](random, prompts), random, seed)
        for k in SIZES:
            share = flatness.share(k)
            held[k] += share.low <= truth[k] <= share.high
            off[k] += (share.estimate - truth[k]) / repeats
    assert min(held.values()) >= 0.8 * repeats, held
    assert max(abs(off[4]), abs(off[8])) < 0.04, "up to the sampled size there is no bias"
    assert max(map(abs, off.values())) < 0.15, off


def test_over_all_worlds_nine_in_ten_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(11)
    held = []
    for draw in WORLDS.values():
        rates = draw(random, 100_000)
        for seed in range(20):
            flatness = sampled(draw(random, 32), random, seed)
            for k in SIZES:
                share = flatness.share(k)
                held.append(share.low <= float(np.mean(rates**k + (1 - rates) ** k)) <= share.high)
    assert sum(held) / len(held) > 0.9


def test_rewards_of_several_values_are_forecast_as_well() -> None:
    """Three values at 0.5, 0.3 and 0.2 for every prompt: a group of 16 is flat once in 60,000."""
    random = np.random.default_rng(3)
    shares = np.array([0.5, 0.3, 0.2])
    flatness = Flatness([Tally(tuple(int(each) for each in random.multinomial(8, shares))) for _ in range(64)])
    for k in (4, 8, 16):
        share = flatness.share(k)
        assert share.low <= float(np.sum(shares**k)) <= share.high, (k, share)
        assert share.high < 0.2


def test_what_will_be_seen_in_few_groups_is_less_certain_than_the_expectation() -> None:
    random = np.random.default_rng(5)
    flatness = sampled(WORLDS["easy and hard prompts"](random, 64), random, 0)
    expected, few, many = flatness.share(8), flatness.seen(8, 16), flatness.seen(8, 100_000)
    assert few.low < expected.low < expected.high < few.high
    assert many.low == pytest.approx(expected.low, abs=0.02)
    assert many.high == pytest.approx(expected.high, abs=0.02)


def test_no_flat_group_among_few_prompts_is_no_certainty() -> None:
    share = Flatness([Tally((4, 4))] * 16).share(8)
    assert share.estimate == 0
    assert 0.05 < share.high < 0.25
    always = Flatness([Tally((8,))] * 16).share(8)
    assert (always.estimate, always.high) == (1, 1)
    assert always.low < 0.95


def test_a_mean_over_prompts_has_an_interval_too() -> None:
    share = mean_share([0.0] * 20)
    assert share.estimate == 0
    assert 0.03 < share.high < 0.2
    assert str(mean_share([0.0, 1.0] * 200)).startswith("50% (45% to 5")


def test_the_same_sample_gives_the_same_interval() -> None:
    groups = [Tally((3, 5)), Tally((8,)), Tally((1, 7))]
    assert Flatness(groups, seed=1).share(16) == Flatness(groups, seed=1).share(16)
