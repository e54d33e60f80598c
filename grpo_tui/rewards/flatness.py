"""How many groups of completions will teach nothing: an estimate from sampled groups, with its uncertainty.

A group is flat when all its completions earn the same; then its advantages are zero. From n sampled completions of a
prompt, the chance that a group of k ≤ n would be flat is estimated without bias by the share of the k-subsets that are.
For k > n it is extrapolated: let X be the probability of the value that a random completion earns; a group of k is flat
with probability E[X^(k-1)], and the distribution of X is fitted to how many of a completion's n - 1 neighbours earn the
same (a mixture on a grid, by expectation maximisation). For one pass rate p this is p^k + (1-p)^k.

The interval draws prompts anew (Bayesian bootstrap), with two half prompts added, one always flat and one never, so
that a sample without a single flat group does not claim certainty. Beyond n its lower end rests on the fact that
moments are log-convex, f(k) ≥ f(n) · (f(n) / f(n-1))^(k-n) whatever the distribution, and its upper end on a fit that
takes prompts whose completions were all alike for ones that always are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grpo_tui.rewards.advantages import FLAT_TOLERANCE, Reward, groups, weighted_sums

DRAWS = 600
"""Bootstrap draws: the ends of a 95 % interval then rest on 15 draws each."""

GRID = 101
ROUNDS = 60
"""Rounds of expectation maximisation; more would follow the noise of small samples."""

LEVEL = 0.95

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share from 0 to 1 and the interval that holds it in 95 of 100 samples."""

    estimate: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        """As commands print it."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.estimate:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True)
class Tally:
    """How the completions of one prompt share their rewards."""

    counts: tuple[int, ...]
    """Completions of each value, values that TRL cannot tell apart counted as one."""

    missing: int = 0
    """Completions without a reward: they keep no group from being flat."""

    infinite: int = 0
    """Completions with an infinite reward: it wipes out the advantages of the whole group."""

    @property
    def size(self) -> int:
        return sum(self.counts) + self.missing + self.infinite

    def flat_chance(self, k: int) -> float:
        """Share of the k-subsets of these completions that are flat groups; 1 ≤ k ≤ `size`."""
        unscored = math.comb(self.missing, k)
        flat = unscored + sum(math.comb(count + self.missing, k) - unscored for count in self.counts)
        finite = math.comb(self.size - self.infinite, k)
        return 1 - (finite - flat) / math.comb(self.size, k)

    def agreeing(self) -> dict[int, float]:
        """How many of the others earn the same as a completion, to the share of the completions with which it is so.

        Missing rewards agree with the most common value, infinite ones with everything: neither gives signal.
        """
        n = self.size
        if self.infinite or len(self.counts) < 2:
            return {n - 1: 1.0}
        ordered = sorted(self.counts)
        shares: dict[int, float] = {}
        for count in (*ordered[:-1], ordered[-1] + self.missing):
            shares[count - 1] = shares.get(count - 1, 0.0) + count / n
        return shares


def tally(values: Sequence[Reward]) -> Tally:
    """The tally of one group's weighted rewards."""
    finite = sorted(value for value in values if value is not None and math.isfinite(value))
    counts: list[int] = []
    first = -math.inf
    for value in finite:
        if counts and value - first < FLAT_TOLERANCE * max(1.0, abs(value), abs(first)):
            counts[-1] += 1
        else:
            counts.append(1)
            first = value
    missing = sum(value is None or math.isnan(value) for value in values)
    return Tally(tuple(counts), missing, len(values) - len(finite) - missing)


def tallies(
    rewards: Sequence[Sequence[Reward]],
    weights: Sequence[float],
    generations: int,
    aggregation: str = "sum_then_normalize",
) -> tuple[Tally, ...]:
    """The tally of every group; neighbours of `generations` share a prompt.

    Under `normalize_then_sum` a group is flat only where each weighted function is, so that whole rows are compared.
    """
    if aggregation == "normalize_then_sum":
        kept = [index for index, weight in enumerate(weights) if weight]
        rows = [tuple(row[index] for index in kept) for row in rewards]
        return tuple(_tally_rows(rows[start : start + generations]) for start in range(0, len(rows), generations))
    return tuple(map(tally, groups(weighted_sums(rewards, weights), generations)))


def _tally_rows(rows: Sequence[tuple[Reward, ...]]) -> Tally:
    scored = [row for row in rows if any(value is not None for value in row)]
    counts: dict[tuple[Reward, ...], int] = {}
    for row in scored:
        counts[row] = counts.get(row, 0) + 1
    return Tally(tuple(counts.values()), len(rows) - len(scored))


class Flatness:
    """The groups of a sample, and what they say about groups of any size."""

    def __init__(self, tallies: Sequence[Tally], seed: int = 0, draws: int = DRAWS) -> None:
        """`tallies`: one per prompt, at least one, all of the same size n ≥ 2."""
        self.tallies = tuple(tallies)
        self.n = self.tallies[0].size
        self._random = np.random.default_rng(seed)
        self._weights = _draw_weights(self._random, len(self.tallies), draws)

    def share(self, k: int) -> Share:
        """The expected share of flat groups among groups of `k`."""
        estimate, lows, highs = self._at(k)
        low, high = _ends(lows, highs)
        return Share(estimate=estimate, low=min(low, estimate), high=max(high, estimate))

    def seen(self, k: int, count: int) -> Share:
        """The share that will be seen among `count` new groups of `k`, for prompts drawn as these were."""
        estimate, lows, highs = self._at(k)
        low, high = _ends(*(self._random.binomial(count, each.clip(0, 1)) / count for each in (lows, highs)))
        return Share(estimate=estimate, low=low, high=high)

    def _at(self, k: int) -> tuple[float, Numbers, Numbers]:
        """Estimate, and the draws of the lower and of the upper end."""
        if k <= self.n:
            draws = self._weights @ self._chances(k)
            return float(np.mean(self._chances(k)[:-2])), draws, draws
        full, before = (self._weights @ self._chances(size) for size in (self.n, self.n - 1))
        lows = full * np.divide(full, before, out=np.zeros_like(full), where=before > 0) ** (k - self.n)
        highs = np.minimum(self._fitted(self._weights, k, alike=0.5), full)
        equal = np.zeros((1, len(self.tallies) + 2))
        equal[0, :-2] = 1 / len(self.tallies)
        estimate = float(np.minimum(self._fitted(equal, k), equal @ self._chances(self.n))[0])
        return estimate, np.minimum(lows, highs), highs

    def _chances(self, k: int) -> Numbers:
        """Chance of a flat group of k ≤ n for each prompt and the two half prompts."""
        return np.array([*(each.flat_chance(k) for each in self.tallies), 1.0, 0.0])

    @cached_property
    def _agreeing(self) -> Numbers:
        """[prompt, others that earn the same]: share of the prompt's completions."""
        table = np.zeros((len(self.tallies) + 2, self.n))
        for index, each in enumerate(self.tallies):
            for others, share in each.agreeing().items():
                table[index, others] += share
        table[-2, -1] = table[-1, 0] = 1.0
        return table

    def _fitted(self, weights: Numbers, k: int, alike: float = 0.0) -> Numbers:
        """E[X^(k-1)] for each row of prompt weights. The fit begins with the share `alike` at X = 1."""
        grid = np.linspace(0.0, 1.0, GRID)
        others = np.arange(self.n)[:, None]
        ways = np.array([math.comb(self.n - 1, j) for j in range(self.n)], float)[:, None]
        likelihood = ways * grid**others * (1 - grid) ** (self.n - 1 - others)
        observed = weights @ self._agreeing
        prior = np.full((len(weights), GRID), (1 - alike) / GRID)
        prior[:, -1] += alike
        for _ in range(ROUNDS):
            prior *= (observed / (prior @ likelihood.T)) @ likelihood
        fitted: Numbers = prior @ grid ** (k - 1)
        return fitted


def mean_share(values: Sequence[float], seed: int = 0, draws: int = DRAWS) -> Share:
    """The mean over prompts of a share that each of them has, at least one."""
    weights = _draw_weights(np.random.default_rng(seed), len(values), draws)
    low, high = _ends(*(weights @ np.array([*values, 1.0, 0.0]),) * 2)
    estimate = sum(values) / len(values)
    return Share(estimate=estimate, low=min(low, estimate), high=max(high, estimate))


def _draw_weights(random: np.random.Generator, prompts: int, draws: int) -> Numbers:
    """Weights of the prompts and of the two half prompts; each row sums to 1."""
    drawn = random.gamma([1.0] * prompts + [0.5, 0.5], size=(draws, prompts + 2))
    weights: Numbers = drawn / drawn.sum(axis=1, keepdims=True)
    return weights


def _ends(lows: Numbers, highs: Numbers) -> tuple[float, float]:
    outside = (1 - LEVEL) / 2
    return float(np.quantile(lows, outside)), float(np.quantile(highs, 1 - outside))
