"""The numbers of a batch, of its evaluation and of the run's length, turned one at a time and only to legal values.

What is legal is asked of `batch.read`, TRL's own rules; in addition a generation takes no more prompts than there are
rows, for TRL would then train nothing without a word.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from types import MappingProxyType
from typing import Any

from grpo_tui.draft import Draft
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import MOST, Batch
from grpo_tui.plan.dialect import LIBRARY_DEFAULT
from grpo_tui.plan.footing import planned_footing
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.tuning import Facts, cards_of, tune
from grpo_tui.problem import Problem

PROCESSES = "launch.processes"
PER_DEVICE = "grpo.per_device_train_batch_size"
ACCUMULATION = "grpo.gradient_accumulation_steps"
STEPS = "grpo.steps_per_generation"
GENERATIONS = "grpo.num_generations"
ITERATIONS = "grpo.num_iterations"
EPOCHS = "grpo.num_train_epochs"
LENGTH = "grpo.max_steps"
EVAL_BATCH = "grpo.per_device_eval_batch_size"
EVAL_GENERATIONS = "grpo.num_generations_eval"
GENERATION_BATCH = "grpo.generation_batch_size"

_SAME: Mapping[str, str] = MappingProxyType({STEPS: GENERATION_BATCH, EPOCHS: LENGTH, LENGTH: EPOCHS})
"""Keys that say the same in two ways: where one is set, the other gives way."""

LABELS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        PROCESSES: ("processes", "Training processes, one a GPU."),
        PER_DEVICE: ("per device", "Completions a process learns from in one micro-step."),
        ACCUMULATION: ("accumulation", "Micro-steps that make up one optimizer step."),
        STEPS: ("steps per generation", "Micro-steps that one generation feeds."),
        GENERATIONS: ("generations", "Completions of one prompt, compared with one another."),
        ITERATIONS: ("uses of a generation", "How often each generation is learnt from."),
        EPOCHS: ("epochs", "Passes over the rows."),
        LENGTH: ("optimizer steps", "Length of the run; 0: by epochs."),
        EVAL_BATCH: ("evaluated per device", "Completions a process evaluates at a time; accumulation does not count."),
        EVAL_GENERATIONS: ("evaluated generations", "Completions of one prompt in an evaluation; 0: as in training."),
    }
)
"""Dotted key to what it is called here, and what it is. In this order they are shown."""

_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        PROCESSES: "world",
        PER_DEVICE: "per_device",
        ACCUMULATION: "accumulation",
        STEPS: "steps_per_generation",
        GENERATIONS: "generations",
        ITERATIONS: "iterations",
    }
)
"""Key to the field of `Batch`."""

_EPOCHS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Steps of the epochs up to two; from there on they are whole numbers."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A set of numbers. `problem` says whether it can be."""

    batch: Batch
    follows: bool = False
    """`steps_per_generation` is left to TRL, so it is the accumulation whatever that is."""

    most_processes: int = 1
    nodes: int = 1
    rows: int | None = None
    """Usable rows; None: not counted."""

    epochs: float = 1.0
    length: int = 0
    """Optimizer steps where the run's length is said so; 0: by epochs."""

    evaluates: bool = False
    eval_wanted: int = 8
    """Completions a process shall evaluate at a time; what is legal nearby is taken."""

    eval_generations: int = 0
    """Completions of one prompt in an evaluation; 0: as in training."""

    knows_eval_groups: bool = True
    """The installed TRL has a number of generations for the evaluation alone."""

    @property
    def eval_group(self) -> int:
        return max(1, self.eval_generations or self.batch.generations)

    @property
    def eval_per_device(self) -> int:
        """The number nearest to the one wanted that makes whole groups; of two as near, the larger."""
        whole = self.eval_group // gcd(self.eval_group, self.batch.world)
        return arithmetic.nearest_multiple(max(0, self.eval_wanted), whole, larger=True)

    @property
    def optimizer_steps(self) -> int | None:
        """Of the whole run; None: the rows are not counted."""
        if self.length:
            return self.length
        return None if self.rows is None else int(self.epochs * self.batch.steps_per_epoch(self.rows))

    def value(self, key: str) -> int | float:
        """The number of one key."""
        if key in _FIELDS:
            number: int = getattr(self.batch, _FIELDS[key])
            return number
        others = {EPOCHS: self.epochs, LENGTH: self.length, EVAL_BATCH: self.eval_per_device}
        return others.get(key, self.eval_group)

    def turned(self) -> tuple[str, ...]:
        """What can be turned, in the order of LABELS."""
        return tuple(key for key in self.values() if key != PROCESSES or self.most_processes > self.nodes)

    def values(self) -> dict[str, int | float]:
        """Dotted key of config.toml to number: everything that says these sizes."""
        left_out = {EPOCHS if self.length else LENGTH}
        if not self.evaluates:
            left_out.add(EVAL_BATCH)
        if not (self.evaluates and self.knows_eval_groups):
            left_out.add(EVAL_GENERATIONS)
        return {key: self.value(key) for key in LABELS if key not in left_out}

    def settings(self) -> dict[str, Any]:
        """The fields of `GRPOConfig` that TRL's rules read."""
        found: dict[str, Any] = {
            key.removeprefix("grpo."): value for key, value in self.values().items() if key != PROCESSES
        }
        if self.follows:
            del found["steps_per_generation"]
        return {**found, "eval_strategy": "steps"} if self.evaluates else found

    def problem(self) -> Problem | None:
        """Which rule is broken; None: none is."""
        if not self.nodes <= self.batch.world <= self.most_processes or self.batch.world % self.nodes:
            what = f"{self.batch.world} processes cannot be: {self.most_processes} can train."
            return Problem(PROCESSES, what, "Choose more GPUs at Hardware, or fewer processes.")
        if not 0 < self.epochs <= MOST or not 0 <= self.length <= MOST:
            return Problem(EPOCHS, "A run is as long as a number above zero says.", "Write one, such as 1.")
        if self.eval_generations < 0:
            return Problem(EVAL_GENERATIONS, "There are no completions below none.", "Write 0: as in training.")
        found = arithmetic.read(self.settings(), self.batch.world)
        if isinstance(found, list):
            return found[0]
        return None if self.rows is None else arithmetic.too_few_rows(found, self.rows)


@dataclass(frozen=True)
class Refused:
    """A number that cannot be, and what can."""

    problem: Problem
    choices: tuple[Sizes, ...]
    """The nearest that can be, at most two."""


def sizes_of(plan: Plan, draft: Draft, facts: Facts) -> Sizes:
    """The numbers of a plan."""

    def number(key: str, default: float) -> float:
        """That of the plan, or the default for what is none: other checks say so."""
        value = plan.value(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else default

    nodes, apart = int(number("launch.nodes", 1)), int(number(EVAL_GENERATIONS, 0))
    cards = cards_of(draft, facts.cards)
    training = 0 if isinstance(cards, Problem) else len(cards) - int(number("launch.vllm_gpus", 0))
    return Sizes(
        batch=plan.batch,
        follows=plan.value(STEPS) is None and plan.value(GENERATION_BATCH) is None,
        most_processes=max(plan.world_size, training * nodes),
        nodes=nodes,
        rows=facts.rows,
        epochs=float(number(EPOCHS, 1.0)),
        length=int(number(LENGTH, 0)),
        evaluates=str(plan.value("grpo.eval_strategy") or "no") != "no",
        eval_wanted=int(number(EVAL_BATCH, arithmetic.DEFAULTS["per_device_eval_batch_size"])),
        eval_generations=0 if apart == plan.batch.generations else apart,
        knows_eval_groups=EVAL_GENERATIONS.removeprefix("grpo.") in facts.schema.fields,
    )


def put(sizes: Sizes, key: str, value: float) -> Sizes:
    """With another number, legal or not. Where the steps of a generation follow the accumulation, they go along."""
    if key == EPOCHS:
        return replace(sizes, epochs=float(value))
    number = int(value)
    if key == LENGTH:
        return replace(sizes, length=number)
    if key == EVAL_BATCH:
        return replace(sizes, eval_wanted=number)
    if key == EVAL_GENERATIONS:
        group = 0 if number == sizes.batch.generations else number
        return replace(sizes, eval_generations=group, eval_wanted=sizes.eval_per_device)
    changes = {_FIELDS[key]: number}
    if key == ACCUMULATION and sizes.follows:
        changes[_FIELDS[STEPS]] = number
    return replace(sizes, batch=replace(sizes.batch, **changes), follows=sizes.follows and key != STEPS)


def neighbour(sizes: Sizes, key: str, by: int) -> Sizes | None:
    """The sizes with the next legal number of `key` above (`by` = 1) or below (-1); None: there is none."""
    return next(_legal(sizes, key, _beyond(sizes, key, by)), None)


def _legal(sizes: Sizes, key: str, numbers: Iterable[float]) -> Iterator[Sizes]:
    for number in numbers:
        other = put(sizes, key, number)
        if other.value(key) == number and other.problem() is None:
            yield other


def _beyond(sizes: Sizes, key: str, by: int, start: float | None = None) -> Iterator[float]:
    """Numbers to try on one side of the present one, or of `start`, the nearest first.

    Whole groups come back after as many numbers as a group has, so there is an end to the search.
    """
    here = sizes.value(key) if start is None else start
    if key == EPOCHS:
        ladder = [*_EPOCHS, *(float(n) for n in range(3, min(MOST, max(0, int(here))) + 3))]
        tried: Iterable[float] = ladder if by > 0 else reversed(ladder)
    elif key == LENGTH:
        tried = _round(int(here), by)
    elif key in (GENERATIONS, EVAL_GENERATIONS):
        batch = sizes.batch
        whole = batch.generation_batch if key == GENERATIONS else sizes.eval_per_device * batch.world
        tried = arithmetic.divisors(whole) if by > 0 else reversed(arithmetic.divisors(whole))
    elif by > 0:
        first = max(0, int(here // 1)) + 1
        tried = range(first, first + max(sizes.batch.generations, sizes.eval_group, sizes.nodes))
    else:
        tried = range(min(-int(-here // 1) - 1, _most(sizes, key)), 0, -1)
    return (number for number in tried if (number > here) == (by > 0) and number != here)


def _round(here: int, by: int) -> list[int]:
    """The next number of optimizer steps with two leading digits."""
    here = max(0, min(here, MOST + 1))
    digits = len(str(max(1, here if by > 0 else here - 1)))
    unit = 10 ** max(0, digits - 2)
    return [(here // unit + 1) * unit if by > 0 else (here - 1) // unit * unit]


def _most(sizes: Sizes, key: str) -> int:
    """The largest number of `key` that can be legal: a generation takes no more prompts than there are rows."""
    batch = sizes.batch
    if key == PROCESSES:
        return sizes.most_processes
    per_unit = {PER_DEVICE: batch.world * batch.steps_per_generation, STEPS: batch.per_device * batch.world}
    if sizes.follows:
        per_unit[ACCUMULATION] = per_unit[STEPS]
    if sizes.rows is None or key not in per_unit:
        return MOST
    return min(MOST, (sizes.rows + 1) * batch.generations // per_unit[key])


def wish(sizes: Sizes, key: str, value: float) -> Sizes | Refused:
    """A typed number, or why it cannot be, with the nearest that can: with the number kept and another one changed,
    or with the number itself changed.
    """
    wanted = put(sizes, key, value)
    problem = wanted.problem()
    if key != EPOCHS and value != int(value):
        problem = Problem(key, f"{value:g} is not a whole number.", "Write one, such as 8.")
    elif key in (EVAL_BATCH, EVAL_GENERATIONS) and problem is None:
        asked = sizes.eval_per_device if key == EVAL_GENERATIONS else int(value)
        given = replace(wanted, evaluates=False).settings()
        evaluation = {"per_device_eval_batch_size": asked, "num_generations_eval": wanted.eval_group}
        found = arithmetic.read({**given, **evaluation, "eval_strategy": "steps"}, wanted.batch.world)
        problem = found[0] if isinstance(found, list) else None
    if problem is None:
        return wanted
    nearby = [next(_legal(sizes, key, _beyond(sizes, key, by, value)), None) for by in (-1, 1)]
    nearby.sort(key=lambda other: abs(other.value(key) - value) if other else MOST)
    legal = [way for way in (*_ways(sizes, wanted, key), *nearby) if way is not None and way.problem() is None]
    return Refused(problem, tuple(dict.fromkeys(legal))[:2])


def _ways(sizes: Sizes, wanted: Sizes, key: str) -> Iterator[Sizes]:
    """What could be if another number gave way to the one that is wanted."""
    batch = wanted.batch
    if key == EVAL_GENERATIONS:
        yield wanted  # with the batch that holds such groups
    elif key == EVAL_BATCH and 0 < wanted.eval_wanted <= MOST and sizes.knows_eval_groups:
        smaller = arithmetic.evaluation_ways(wanted.eval_wanted, batch.world, sizes.eval_group)
        if "num_generations_eval" in smaller:
            group = smaller["num_generations_eval"]
            yield replace(wanted, eval_generations=0 if group == batch.generations else group)
    elif key in _FIELDS and min(batch.per_device, batch.steps_per_generation, batch.generations, batch.world) > 0:
        for choice in arithmetic.nearest(batch):
            follows = sizes.follows and choice.steps_per_generation == choice.accumulation
            yield replace(wanted, batch=choice, follows=follows)


def changes(choice: Sizes, against: Sizes) -> list[tuple[str, int | float]]:
    """Name and number of everything that differs; what only goes along is not named."""
    along: set[str] = set()
    if choice.follows and choice.batch.accumulation != against.batch.accumulation:
        along.add(STEPS)
    if choice.batch.generations != against.batch.generations and choice.eval_wanted == against.eval_wanted:
        along.add(EVAL_BATCH)
    if choice.batch.generations != against.batch.generations and not choice.eval_generations:
        along.add(EVAL_GENERATIONS)
    return [
        (LABELS[key][0], choice.value(key))
        for key in choice.turned()
        if key not in along and choice.value(key) != against.value(key)
    ]


def trial(draft: Draft, facts: Facts, sizes: Sizes) -> Plan | list[Problem]:
    """The plan with exactly these sizes; what they leave open is tuned around them."""
    wanted = sizes.values()
    return tune(_with(draft, {**_others(draft, wanted), **_said(wanted, facts)}), facts)


def pinned(draft: Draft, facts: Facts, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The user's single values, with as few of `wanted` among them as make the tuning come to all of them.

    `wanted` are dotted keys of config.toml. Those that the user has set so already stay set.
    """
    overrides = draft.settings.overrides
    mine = {key: value for key, value in wanted.items() if key in overrides and overrides[key] == value}
    while True:
        found = {**_others(draft, wanted), **_said(mine, facts)}
        plan = tune(_with(draft, found), facts)
        came: dict[str, Any] = {}
        if not isinstance(plan, list):
            came = {**{key: plan.value(key) for key in wanted}, **sizes_of(plan, draft, facts).values()}
        more = {key: value for key, value in wanted.items() if key not in mine and came.get(key) != value}
        if not more:
            return found
        mine |= more


def _with(draft: Draft, overrides: Mapping[str, Any]) -> Draft:
    return replace(draft, settings=replace(draft.settings, overrides=overrides))


def _others(draft: Draft, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The user's single values but for those that `wanted` says."""
    said = {*wanted, *(_SAME[key] for key in wanted if key in _SAME)}
    return {key: value for key, value in draft.settings.overrides.items() if key not in said}


def _said(wanted: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """`wanted`, and what takes a recipe's other way to say the same back."""
    recipes = [_SAME[key] for key in wanted if _SAME.get(key, "").removeprefix("grpo.") in facts.recipe]
    return {**wanted, **dict.fromkeys(recipes, LIBRARY_DEFAULT)}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What sizes would come to."""

    problems: tuple[Problem, ...] = ()
    """Why they cannot be taken, such as a card that is too small; empty: they can."""

    peak_bytes: int = 0
    """Predicted memory of one device; 0: not known."""

    available_bytes: int = 0
    """Free on it; 0: not known."""


@dataclass(frozen=True, kw_only=True)
class Turning:
    """The sizes of a draft's plan, to be turned."""

    draft: Draft
    facts: Facts
    start: Sizes

    def outcome(self, sizes: Sizes) -> Outcome:
        """What these sizes would come to; quick enough for every press of a key."""
        plan = trial(self.draft, self.facts, sizes)
        if isinstance(plan, list):
            return Outcome(problems=tuple(plan))
        return Outcome(peak_bytes=planned_footing(plan, self.facts).peak_bytes, available_bytes=plan.available_bytes)

    def overrides(self, sizes: Sizes) -> dict[str, Any]:
        """The user's single values that make the plan have these sizes, as few as can be."""
        return pinned(self.draft, self.facts, sizes.values())


def turning(draft: Draft, facts: Facts) -> Turning | list[Problem]:
    """The sizes of a draft's plan; where what the user set of them cannot be, those that would be without it."""
    plan = tune(draft, facts)
    if isinstance(plan, list):
        plan = tune(_with(draft, _others(draft, LABELS)), facts)
    if isinstance(plan, list):
        return plan
    return Turning(draft=draft, facts=facts, start=sizes_of(plan, draft, facts))
