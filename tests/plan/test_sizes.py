"""The sizes of a batch, turned by hand: every number that can be reached or is offered is one that TRL takes."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from grpo_tui.child import Worker
from grpo_tui.plan.batch import MOST, Batch
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.situation import Advice, Facts
from grpo_tui.plan.sizes import (
    ACCUMULATION,
    EPOCHS,
    EVAL_BATCH,
    EVAL_GENERATIONS,
    GENERATIONS,
    LABELS,
    LENGTH,
    PER_DEVICE,
    PROCESSES,
    STEPS,
    Refused,
    Sizes,
    Turning,
    changes,
    neighbour,
    pinned,
    put,
    sizes_of,
    trial,
    turning,
    wish,
)
from grpo_tui.plan.tuning import tune
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts, planned


def sizes(per_device: int, accumulation: int, generations: int, world: int = 1, **more: Any) -> Sizes:
    """Sizes whose generations follow the accumulation."""
    batch = Batch(
        per_device=per_device,
        accumulation=accumulation,
        steps_per_generation=accumulation,
        generations=generations,
        world=world,
    )
    return Sizes(**{"batch": batch, "follows": True, "most_processes": 4, **more})


@some.composite
def legal(make: some.DrawFn) -> Sizes:
    """Legal sizes of every kind."""
    generations = make(some.integers(2, 12))
    world = make(some.integers(1, 4))
    follows = make(some.booleans())
    steps = make(some.integers(1, 12))
    found = Sizes(
        batch=Batch(
            per_device=make(some.integers(1, 6)) * generations,
            world=world,
            accumulation=steps if follows else make(some.integers(1, 12)),
            steps_per_generation=steps,
            generations=generations,
            iterations=make(some.integers(1, 3)),
        ),
        follows=follows,
        most_processes=4,
        rows=make(some.one_of(some.none(), some.integers(300, 3000))),
        length=make(some.sampled_from((0, 1, 37, 500))),
        evaluates=make(some.booleans()),
        eval_wanted=make(some.integers(1, 40)),
        eval_generations=make(some.sampled_from((0, 2, 3, 4))),
    )
    assert found.problem() is None
    return found


def fields(found: Sizes) -> dict[str, Any]:
    """What is asked of the installed `GRPOConfig`."""
    return {"settings": {**found.settings(), "use_cpu": True, "bf16": False}, "world_size": found.batch.world}


def refused_by_trl(found: list[Sizes], introspect: Worker) -> list[Any]:
    """What the installed TRL has against any of them."""
    answer = introspect.call("construct", {"requests": [fields(each) for each in found]})
    assert not isinstance(answer, Problem), answer
    assert len(answer["results"]) == len(found)
    return [(each.settings(), result) for each, result in zip(found, answer["results"], strict=True)
            if "error" in result]  # fmt: skip


def test_wherever_the_arrows_lead_trl_takes_it(introspect: Worker) -> None:
    chance = random.Random(7)
    seen: list[Sizes] = []
    starts = [sizes(1, 8, 8), sizes(4, 3, 6, 2, evaluates=True), sizes(8, 1, 8, rows=40, evaluates=True, length=3)]
    for start in (*starts, *(replace(each, follows=False) for each in starts)):
        here = start
        for _ in range(120):
            key, by = chance.choice(here.turned()), chance.choice((-1, 1))
            here = neighbour(here, key, by) or here
            seen.append(here)
    assert {key for each in seen for key in each.turned()} == set(LABELS)
    assert len({each.batch for each in seen}) > 100
    assert refused_by_trl(seen, introspect) == []


@settings(deadline=None)
@given(legal(), some.data())
def test_an_arrow_goes_to_the_next_number_that_can_be(start: Sizes, data: some.DataObject) -> None:
    key = data.draw(some.sampled_from(start.turned()))
    by = data.draw(some.sampled_from((-1, 1)))
    found = neighbour(start, key, by)
    if found is None:
        assert key not in (EPOCHS, LENGTH) or by < 0
        return
    assert found.problem() is None
    assert (found.value(key) - start.value(key)) * by > 0
    others = set(start.turned()) - {key, EVAL_BATCH} - ({STEPS} if start.follows and key == ACCUMULATION else set())
    if key == GENERATIONS and not start.eval_generations:
        others.discard(EVAL_GENERATIONS)
    assert {other for other in others if found.value(other) != start.value(other)} == set()
    if key not in (EPOCHS, LENGTH):  # those have endless legal numbers, and go on by round ones
        between = range(min(int(found.value(key)), int(start.value(key))) + 1,
                        max(int(found.value(key)), int(start.value(key))))  # fmt: skip
        for number in between:
            other = put(start, key, number)
            kept = other.eval_per_device == start.eval_per_device or key != EVAL_GENERATIONS
            assert other.problem() is not None or other.value(key) != number or not kept


@settings(deadline=None)
@given(legal(), some.data())
def test_back_and_forth_leads_home(start: Sizes, data: some.DataObject) -> None:
    key = data.draw(some.sampled_from([each for each in start.turned() if each not in (EPOCHS, LENGTH, STEPS)]))
    there = neighbour(start, key, 1)
    if there is not None:
        assert neighbour(there, key, -1) is not None
        assert neighbour(there, key, -1).value(key) == start.value(key)  # type: ignore[union-attr]  # asserted above


NUMBERS = some.one_of(
    some.integers(-3, 60), some.sampled_from((2.5, -1e12, 1e12, float(MOST), MOST + 1.0, 1e-9)), some.floats(-9, 99)
)


@settings(deadline=None, max_examples=300)
@given(legal(), NUMBERS, some.data())
def test_a_typed_number_is_taken_or_answered_with_what_can_be(start: Sizes, number: float, data: Any) -> None:
    key = data.draw(some.sampled_from(start.turned()))
    found = wish(start, key, number)
    if isinstance(found, Sizes):
        assert found.problem() is None
        assert found.value(key) == number or (key == EVAL_GENERATIONS and number == 0 and not found.eval_generations)
        return
    assert found.problem.what
    assert 1 <= len(found.choices) <= 2
    assert all(choice.problem() is None for choice in found.choices)
    assert len(set(found.choices)) == len(found.choices)


def offered(start: Sizes, key: str, number: float) -> tuple[Refused, list[list[tuple[str, int | float]]]]:
    """What is offered for a number that cannot be."""
    found = wish(start, key, number)
    assert isinstance(found, Refused)
    return found, [changes(choice, start) for choice in found.choices]


def test_the_reported_combinations_are_answered_with_settings_of_the_same_memory(introspect: Worker) -> None:
    refused, ways = offered(sizes(1, 8, 8), ACCUMULATION, 1)
    assert "no multiple" in refused.problem.what
    assert ways[0] == []  # one prompt takes the eight micro-steps there are
    assert all(choice.batch.per_device == 1 for choice in refused.choices)
    refused, ways = offered(sizes(4, 1, 4), GENERATIONS, 6)
    assert ways == [[("accumulation", 3), ("generations", 6)], []]
    assert all(choice.batch.per_device == 4 for choice in refused.choices)
    refused, ways = offered(sizes(1, 8, 8), GENERATIONS, 1)
    assert "at least 2" in refused.problem.what
    assert refused_by_trl(list(refused.choices), introspect) == []


def test_an_evaluation_of_half_a_group_is_answered_with_a_smaller_group_or_a_whole_one(introspect: Worker) -> None:
    refused, ways = offered(sizes(8, 1, 8, evaluates=True, eval_wanted=16), EVAL_BATCH, 4)
    assert "accumulation does not count" in refused.problem.what
    assert ways == [
        [("evaluated per device", 4), ("evaluated generations", 4)],
        [("evaluated per device", 8)],
    ]
    assert refused_by_trl(list(refused.choices), introspect) == []


def test_the_evaluation_goes_along_with_larger_groups_and_comes_back() -> None:
    start = sizes(16, 1, 8, evaluates=True)
    larger = neighbour(start, GENERATIONS, 1)
    assert larger is not None
    assert (larger.batch.generations, larger.eval_per_device, larger.eval_group) == (16, 16, 16)
    back = neighbour(larger, GENERATIONS, -1)
    assert back == start


def test_no_generation_is_made_that_takes_more_prompts_than_there_are() -> None:
    start = sizes(8, 3, 8, rows=3)
    assert neighbour(start, ACCUMULATION, 1) is None
    assert neighbour(start, PER_DEVICE, 1) is None  # the next whole groups are 16 × 3 completions, of 6 prompts
    refused, _ = offered(start, ACCUMULATION, 4)
    assert "0 steps" in refused.problem.what


def test_there_are_no_more_processes_than_gpus(schema: Schema) -> None:
    known = facts("Qwen2.5-7B", schema, 80, gpus=2)
    plan = planned(draft(), known)
    start = sizes_of(plan, draft(), known)
    assert start.batch.world == 2
    assert neighbour(start, PROCESSES, 1) is None
    refused, ways = offered(start, PROCESSES, 3)
    assert "2 can train" in refused.problem.what
    assert [] in ways  # two, as it is


# ------------------------------------------------------------------------------------------- back into the answers

WORLDS: dict[str, dict[str, Any]] = {
    "alone": {},
    "recipe": {
        "recipe": {
            "generation_batch_size": Advice(value=16, why="So."),
            "per_device_train_batch_size": Advice(value=8, why="So."),
            "max_steps": Advice(value=40, why="So."),
        }
    },
    "two": {"gpus": 2},
    "cpu": {"gib": 0},
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, schema: Schema) -> Facts:
    more = dict(WORLDS[request.param])
    return facts("Qwen2.5-0.5B", schema, more.pop("gib", 80), **more)


def test_what_was_turned_is_what_the_tuning_comes_to_and_no_more_is_pinned(world: Facts) -> None:
    chance = random.Random(11)
    answers = draft(grpo__beta=0.04, grpo__num_generations=16)
    answers = replace(answers, dataset=replace(answers.dataset, eval_share=0.1))
    start = sizes_of(planned(answers, world), answers, world)
    assert pinned(answers, world, start.values()) == dict(answers.settings.overrides)
    turned = 0
    for _ in range(12):
        here = start
        for _ in range(chance.randint(1, 5)):
            here = neighbour(here, chance.choice(here.turned()), chance.choice((-1, 1))) or here
        overrides = pinned(answers, world, here.values())
        mine = replace(answers, settings=replace(answers.settings, overrides=overrides))
        plan = tune(mine, world)
        there = trial(answers, world, here)
        if isinstance(plan, list):
            assert isinstance(there, list)  # it does not fit, and both say so
            continue
        turned += 1
        assert isinstance(there, Plan)
        assert sizes_of(plan, mine, world).values() == here.values()
        assert plan.memory is not None
        assert there.memory is not None
        assert plan.memory.peak_bytes == there.memory.peak_bytes
        assert overrides["grpo.beta"] == 0.04
    assert turned > 3


def test_a_length_in_steps_gives_way_to_epochs_when_it_is_set_to_nothing(schema: Schema) -> None:
    known = facts("Qwen2.5-0.5B", schema, 24)
    answers = draft(grpo__max_steps=30)
    start = sizes_of(planned(answers, known), answers, known)
    assert start.optimizer_steps == 30
    found = wish(start, LENGTH, 0)
    assert isinstance(found, Sizes)
    overrides = pinned(answers, known, found.values())
    assert "grpo.max_steps" not in overrides
    plan = planned(replace(answers, settings=replace(answers.settings, overrides=overrides)), known)
    assert plan.total_steps == found.optimizer_steps
    assert EPOCHS in found.values()


def test_sizes_that_cannot_be_are_turned_from_what_would_be_without_them(schema: Schema) -> None:
    known = facts("Qwen2.5-0.5B", schema, 24)
    answers = draft(grpo__num_generations=7, grpo__generation_batch_size=8, grpo__beta=0.04)
    assert isinstance(tune(answers, known), list)
    found = turning(answers, known)
    assert isinstance(found, Turning)
    assert found.start.problem() is None
    outcome = found.outcome(found.start)
    assert not outcome.problems
    assert 0 < outcome.peak_bytes < outcome.available_bytes
    overrides = found.overrides(found.start)
    assert overrides == {"grpo.beta": 0.04}


def test_a_batch_that_does_not_fit_says_so_and_what_would(schema: Schema) -> None:
    known = facts("Qwen2.5-7B", schema, 24)
    found = turning(draft(), known)
    assert isinstance(found, Turning)
    larger = wish(found.start, PER_DEVICE, 512)
    assert isinstance(larger, Sizes)
    outcome = found.outcome(larger)
    assert "GiB" in str(outcome.problems[0])
    assert outcome.problems[0].remedy


@pytest.mark.parametrize("value", ["two", -1, 0, True])
def test_a_value_that_is_no_number_is_for_the_checks_to_name(value: Any, schema: Schema) -> None:
    known = facts("Qwen2.5-0.5B", schema, 24)
    found = turning(draft(grpo__num_generations_eval=value, grpo__max_steps=value), known)
    assert isinstance(found, Turning)
    assert found.start.problem() is None
    assert found.start.length == 0
