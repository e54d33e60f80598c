"""How much there is to learn: what sampled groups say about a training with this model, data and rewards."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import (
    AGGREGATIONS,
    SCALES,
    Reward,
    groups,
    is_flat,
    normalised_columns,
    weighted_sums,
)
from grpo_tui.rewards.flatness import Flatness, Share, mean_share, tallies, tally

SIZES = (4, 8, 16, 32)
"""Groups of so many generations are forecast."""

PASSES_FROM = 0.5
"""A completion passes when the first reward gives it at least this."""

TOO_FLAT = 0.8
"""Share of groups without signal from which a training is not worth its time (knowledge: R01)."""

LEAST_PROMPTS = 8
GOOD_PROMPTS = 16

VERDICTS = ("will learn", "too hard", "too easy", "reward silent", "too few")


@dataclass(frozen=True, kw_only=True)
class SignalRequest:
    """Sampled rewards: neighbours of `generations` share a prompt."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    rewards: tuple[tuple[Reward, ...], ...]
    """One row per completion, one column per function."""

    generations: int
    planned: int = 0
    """Generations of the training for which the verdict is given; 0: as many as were sampled."""

    scale: str = "group"
    aggregation: str = "sum_then_normalize"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class PromptSignal:
    """One prompt's group."""

    passed: float | None
    """Share of its scored completions that passed; None: none was scored."""

    flat: bool
    """The sampled group as a whole has no signal."""


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What is to be expected of a training."""

    prompts: tuple[PromptSignal, ...]
    """In the order of the groups."""

    generations: int
    planned: int
    pass_rate: Share | None
    """None where the first reward scored nothing."""

    zero_signal: Mapping[int, Share]
    """Group size to the expected share of groups without signal."""

    deciding: Mapping[str, float]
    """Function to its share of the variance within groups; together 1. Negative: it works against the others. Empty
    where nothing varies.
    """

    correlation: Mapping[tuple[str, str], float | None]
    """Of two functions' rewards within groups; None where one of them does not vary."""

    silent: tuple[str, ...]
    """Weighted functions that tell no two completions of any group apart."""

    always_right: tuple[int, ...]
    """Groups, from 0, whose completions all passed."""

    always_wrong: tuple[int, ...]
    """Groups of which no completion passed."""

    verdict: str
    """One of `VERDICTS`."""

    why: str
    """The figures of the verdict, as a sentence."""

    more_prompts: int = 0
    """How many more prompts would probably settle it; only with the verdict `too few`."""


def learning_signal(request: SignalRequest) -> Signal | Problem:
    """What the sample says. A `Problem` when it is no sample of groups."""
    problem = _check(request)
    if problem:
        return problem
    names, weights = request.names, request.weights
    size, planned = request.generations, request.planned or request.generations
    columns = list(zip(*request.rewards, strict=True))
    lead = next((index for index, weight in enumerate(weights) if weight), 0)
    flatness = Flatness(tallies(request.rewards, weights, size, request.aggregation), request.seed)
    passed = [_passed(group) for group in groups(columns[lead], size)]
    known = [rate for rate in passed if rate is not None]
    sizes = sorted({*SIZES, planned})
    signal = Signal(
        prompts=tuple(
            PromptSignal(passed=rate, flat=each.flat_chance(size) == 1)
            for rate, each in zip(passed, flatness.tallies, strict=True)
        ),
        generations=size,
        planned=planned,
        pass_rate=_mean_of(known),
        zero_signal={k: flatness.share(k) for k in sizes},
        deciding=_deciding(request),
        correlation={
            (names[one], names[other]): _correlation(columns[one], columns[other], size)
            for one in range(len(names))
            for other in range(one + 1, len(names))
        },
        silent=tuple(
            name
            for name, weight, column in zip(names, weights, columns, strict=True)
            if weight and all(map(is_flat, groups(column, size)))
        ),
        always_right=tuple(index for index, rate in enumerate(passed) if rate == 1),
        always_wrong=tuple(index for index, rate in enumerate(passed) if rate == 0),
        verdict="",
        why="",
    )
    leading = Flatness([tally(group) for group in groups(columns[lead], size)], request.seed).share(planned)
    return _Judge(signal, request, names[lead], leading).judged()


def _check(request: SignalRequest) -> Problem | None:
    where, count = "completions", len(request.rewards)
    if request.generations < 2:
        return Problem(where, "A group of one has nothing to compare.", "Sample at least two completions a prompt.")
    if not count or count % request.generations:
        what = f"{count} completions are no whole number of groups of {request.generations}."
        return Problem(where, what, "Give every prompt the same number of completions.")
    if not request.names or len(request.weights) != len(request.names):
        what = f"There are {len(request.weights)} weights for {len(request.names)} functions."
        return Problem("weights", what, "Give one weight per function, in the same order.")
    if request.planned == 1 or request.planned < 0:
        return Problem("generations", "A group needs at least two completions.", "Plan for two or more.")
    if request.scale not in SCALES or request.aggregation not in AGGREGATIONS:
        what = f"Scale {request.scale!r} or aggregation {request.aggregation!r} is not known."
        return Problem("rewards", what, f"Scales: {', '.join(SCALES)}; aggregations: {', '.join(AGGREGATIONS)}.")
    return None


def _passed(group: Sequence[Reward]) -> float | None:
    given = [value for value in group if value is not None]
    return sum(value >= PASSES_FROM for value in given) / len(given) if given else None


def _mean_of(rates: Sequence[float]) -> Share | None:
    """The pass rate of the prompts that have one."""
    return mean_share(rates) if rates else None


def _terms(request: SignalRequest) -> list[list[float]]:
    """[function][completion]: what each adds to the weighted reward; a missing reward adds nothing."""
    rows: Sequence[Sequence[Reward]] = request.rewards
    if request.aggregation == "normalize_then_sum":
        rows = normalised_columns(rows, request.generations)
    return [
        [weight * value if value is not None and math.isfinite(value) else 0.0 for value in column]
        for column, weight in zip(zip(*rows, strict=True), request.weights, strict=True)
    ]


def _deciding(request: SignalRequest) -> dict[str, float]:
    """Share of each function in the variance within groups: its covariance with the sum, over the sum's variance.

    Under `group` scaling every group with signal counts the same, else each by its variance.
    """
    terms = _terms(request)
    size = request.generations
    sums = [math.fsum(column) for column in zip(*terms, strict=True)]
    # A completion that nobody scored has no advantage and no part in the variance.
    flat = [each is None for each in weighted_sums(request.rewards, request.weights)]
    shares, total = [0.0] * len(terms), 0.0
    for start in range(0, len(sums), size):
        kept = [index for index in range(start, start + size) if not flat[index]]
        if is_flat([sums[index] for index in kept]):
            continue
        away = _centred([sums[index] for index in kept])
        variance = math.fsum(value * value for value in away)
        counts = 1.0 if request.scale == "group" else variance
        total += counts
        for number, column in enumerate(terms):
            own = _centred([column[index] for index in kept])
            shares[number] += counts * math.fsum(a * b for a, b in zip(own, away, strict=True)) / variance
    return {name: share / total for name, share in zip(request.names, shares, strict=True)} if total else {}


def _centred(values: Sequence[float]) -> list[float]:
    centre = math.fsum(values) / len(values)
    return [value - centre for value in values]


def _correlation(one: Sequence[Reward], other: Sequence[Reward], size: int) -> float | None:
    """Pearson's, of the deviations from the group's mean where both functions gave a finite reward."""
    ones: list[float] = []
    others: list[float] = []
    for start in range(0, len(one), size):
        pairs = [
            (a, b)
            for a, b in zip(one[start : start + size], other[start : start + size], strict=True)
            if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
        ]
        if len(pairs) > 1:
            ones += _centred([a for a, _ in pairs])
            others += _centred([b for _, b in pairs])
    spread = math.sqrt(math.fsum(a * a for a in ones) * math.fsum(b * b for b in others))
    return math.fsum(a * b for a, b in zip(ones, others, strict=True)) / spread if spread > 1e-12 else None


@dataclass(frozen=True)
class _Judge:
    """The sentence about a signal."""

    signal: Signal
    request: SignalRequest
    lead: str
    leading: Share
    """Share of groups, of the planned size, in which the first function alone tells nothing apart."""

    def judged(self) -> Signal:
        """The signal with its verdict."""
        verdict, why, more = self.verdict()
        return replace(self.signal, verdict=verdict, why=f"{verdict.capitalize()}: {why}", more_prompts=more)

    def verdict(self) -> tuple[str, str, int]:
        """Verdict, its figures, and how many more prompts are needed."""
        signal, rate = self.signal, self.signal.pass_rate
        count = len(signal.prompts)
        zero = signal.zero_signal[signal.planned]
        if count < LEAST_PROMPTS:
            need = GOOD_PROMPTS - count
            return "too few", f"{count} prompts say too little; sample at least {need} more.", need
        if rate is None:
            return "reward silent", f"{self.lead} scored no completion at all.", 0
        alike = f"{zero} of groups of {signal.planned} are expected to be without signal"
        right = f"{rate} of completions pass {self.lead}"
        sums = weighted_sums(self.request.rewards, self.request.weights)
        if is_flat(sums):
            if rate.estimate == 1:
                return "too easy", f"every completion of {count} prompts earned everything.", 0
            what = f"all completions of {count} prompts earned the same; {right}."
            return "reward silent", f"{what} Either the task is too hard or the check is broken: probe it.", 0
        if self.leading.low >= TOO_FLAT:
            only = f"{self.lead} tells nothing apart in {self.leading} of groups of {signal.planned}"
            if rate.estimate >= PASSES_FROM:
                return "too easy", f"{only}, and {right}.", 0
            return "too hard", f"{only}, and {right}; other rewards alone teach no answers.", 0
        if zero.low >= TOO_FLAT:
            return "reward silent", f"the rewards cancel each other: {alike}.", 0
        if self.leading.high <= TOO_FLAT and zero.high <= TOO_FLAT:
            return "will learn", f"{alike}, {right}, and {self.decides()}.", 0
        need = max(self.needed(self.leading), self.needed(zero))
        return "too few", f"{alike}, {right}; {need} more prompts would probably settle it.", need

    def decides(self) -> str:
        """Which function decides the advantages."""
        name, share = max(self.signal.deciding.items(), key=lambda item: item[1])
        return f"{name} decides {share:.0%} of the advantages"

    def needed(self, share: Share) -> int:
        """More prompts that move the interval off the threshold: its width falls with the root of their number."""
        count = len(self.signal.prompts)
        gap = max(0.05, abs(share.estimate - TOO_FLAT))
        reach = share.estimate - share.low if share.estimate > TOO_FLAT else share.high - share.estimate
        return max(math.ceil(count * (reach / gap) ** 2) - count, 1) if reach > gap else 1
