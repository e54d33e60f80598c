"""The batch arithmetic: TRL's own rules, and legal neighbours instead of a mere refusal."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.plan.batch import Batch, nearest, read, too_few_rows
from grpo_tui.problem import Problem


def settings(
    batch: int | None = None, accumulation: int | None = None, generations: int | None = None, **more: Any
) -> dict[str, Any]:
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
    given = dict(zip(names, (batch, accumulation, generations), strict=True))
    return {key: value for key, value in {**given, **more}.items() if value is not None}


def refused(given: dict[str, Any]) -> list[Problem]:
    """What stands against the settings, which there must be."""
    found = read(given)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("given", "world", "legal"),
    [  # the combinations people report most, on TRL 1.16 (trl#2858, #2876, #3020, #3199)
        (settings(1, 1, 8), 1, False),
        (settings(1, 8, 8), 1, True),
        (settings(4, 1, 6), 1, False),
        (settings(3, 3, 8), 1, False),
        (settings(2, 4, 8), 3, True),
        (settings(generations=1), 1, False),
        (settings(generation_batch_size=8, steps_per_generation=1), 1, False),
        (settings(4, 1, 2, generation_batch_size=10), 1, False),
        (settings(1, 4, 8), 2, True),
        (settings(4, 1, 8), 3, False),
        (settings(2, 2, 8), 6, True),
        (settings(1, 4, 6), 8, False),
    ],
)
def test_the_reported_combinations_get_trls_verdict(given: dict[str, Any], world: int, legal: bool) -> None:
    found = read(given, world)
    assert isinstance(found, Batch) == legal
    if not isinstance(found, Batch):
        assert all(problem.remedy for problem in found)


def test_a_refusal_names_what_would_do() -> None:
    (first,) = refused(settings(1, 1, 8))
    assert "gradient_accumulation_steps = 8 (1 prompt per step)" in str(first)
    (third,) = refused(settings(4, 1, 6))
    assert "gradient_accumulation_steps = 3" in str(third)
    assert "num_generations = 4" in str(third)
    (eighth,) = refused(settings(4, 1, 2, generation_batch_size=10))
    assert "8 or 12" in str(eighth)


GRID = list(itertools.product((1, 2, 3, 4, 8), (1, 2, 3, 6), (1, 2, 3, 6, 8), (1, 2, 3)))


def test_every_verdict_and_every_size_is_that_of_the_installed_trl(introspect: Worker) -> None:
    more = [{}, {"steps_per_generation": 2}, {"generation_batch_size": 24}, {"generation_batch_size": 8}]
    evaluating = {"eval_strategy": "steps", "eval_steps": 10, "per_device_eval_batch_size": 4}
    cases = [(settings(b, a, g, **extra), w) for b, a, g, w in GRID for extra in more]
    cases += [(settings(b, a, g, **evaluating), w) for b, a, g, w in GRID]
    requests = [{"settings": {**given, "use_cpu": True, "bf16": False}, "world_size": world} for given, world in cases]
    answer = introspect.call("construct", {"requests": requests})
    assert not isinstance(answer, Problem), answer
    assert len(answer["results"]) == len(cases) > 1000
    for (given, world), theirs in zip(cases, answer["results"], strict=True):
        mine = read(given, world)
        assert isinstance(mine, list) == ("error" in theirs), (given, world, mine, theirs)
        if isinstance(mine, Batch):
            assert mine.generation_batch == theirs["generation_batch_size"]
            assert mine.steps_per_generation == theirs["steps_per_generation"]


def test_every_neighbour_that_is_offered_is_legal_and_asks_for_no_larger_micro_step(introspect: Worker) -> None:
    requests = []
    for per_device, accumulation, generations, world in GRID:
        batch = Batch(
            per_device=per_device,
            world=world,
            accumulation=accumulation,
            steps_per_generation=accumulation,
            generations=max(2, generations),
        )
        if batch.generation_batch % batch.generations:
            choices = nearest(batch)
            assert choices
            for choice in choices:
                assert choice.per_device == per_device
                requests.append(
                    {"settings": {**choice.settings(), "use_cpu": True, "bf16": False}, "world_size": world}
                )
    answer = introspect.call("construct", {"requests": requests})
    assert not isinstance(answer, Problem), answer
    assert [result for result in answer["results"] if "error" in result] == []
    assert len(requests) > 100


def test_evaluation_needs_full_groups_without_accumulation() -> None:
    asked = settings(8, 1, 8, eval_strategy="steps", per_device_eval_batch_size=4)
    (problem,) = refused(asked)
    assert "per_device_eval_batch_size = 8 or num_generations_eval = 4" in str(problem)
    assert isinstance(read({**asked, "num_generations_eval": 4}), Batch)
    best = {"load_best_model_at_end": True, "eval_steps": 10, "save_steps": 15, "num_generations_eval": 4}
    (problem,) = refused({**asked, **best})
    assert "save_steps = 10 or 20" in str(problem)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
def test_a_size_that_is_no_number_is_refused(value: Any) -> None:
    (problem,) = refused({"per_device_train_batch_size": value})
    assert isinstance(problem, Problem)
    assert repr(value) in problem.what


def test_prompts_steps_and_left_over_rows_are_counted_as_the_sampler_does() -> None:
    batch = Batch(per_device=2, world=3, accumulation=4, generations=8, steps_per_generation=4)
    assert (batch.generation_batch, batch.prompts_per_generation, batch.prompts_per_step) == (24, 3, 3)
    assert (batch.used_rows(100), batch.dropped_rows(100)) == (99, 1)
    assert batch.steps_per_epoch(100) == 33
    often = Batch(per_device=2, world=3, accumulation=8, generations=8, steps_per_generation=4)
    assert often.steps_per_epoch(100) == 17  # 33 generations of 4 micro-steps, the last step is half a one
    assert batch.on_policy
    assert often.on_policy
    assert not Batch(per_device=8, accumulation=1, steps_per_generation=2, generations=8).on_policy


def test_a_generation_that_lasts_over_an_optimizer_step_is_learnt_from_by_newer_weights() -> None:
    batch = Batch(per_device=8, accumulation=3, steps_per_generation=2, generations=8)
    assert not batch.on_policy  # micro-steps 3 and 4 share a generation, and the weights change between them
    assert not replace(batch, steps_per_generation=1, iterations=2).on_policy
    assert replace(batch, accumulation=4).on_policy
    assert replace(batch, accumulation=4, iterations=2).on_policy


def test_fewer_rows_than_one_generation_takes_would_train_nothing() -> None:
    batch = Batch(per_device=8, accumulation=4, steps_per_generation=4, generations=8)
    assert too_few_rows(batch, 4) is None
    problem = too_few_rows(batch, 3)
    assert problem is not None
    assert "0 steps" in problem.what
