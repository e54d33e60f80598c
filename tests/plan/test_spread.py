"""Several GPUs, several machines, and vLLM beside them: who trains on what."""

from dataclasses import replace
from typing import Any

import pytest

from grpo_tui.plan.checks import check
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.sharding import STRATEGIES
from grpo_tui.plan.situation import Card
from grpo_tui.plan.tuning import tune
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts, planned

EVERYTHING = frozenset({"vllm", "deepspeed", "bitsandbytes"})


def on(model: str, schema: Schema, gpus: int, **overrides: Any) -> Plan:
    """The plan on so many cards of 80 GiB, each with a name of its own."""
    known = facts(model, schema, 80, gpus=gpus, packages=EVERYTHING)
    cards = tuple(replace(card, uuid=f"GPU-{number}") for number, card in enumerate(known.cards))
    return planned(draft(**overrides), replace(known, cards=cards))


def refused(schema: Schema, gpus: int, **overrides: Any) -> Problem:
    found = tune(draft(**overrides), facts("Qwen2.5-7B", schema, 80, gpus=gpus))
    assert isinstance(found, list), found
    return found[0]


def test_one_gpu_needs_no_strategy_and_several_get_the_plainest(schema: Schema) -> None:
    assert on("Qwen2.5-1.5B", schema, 1).value("launch.strategy") is None
    plan = on("Qwen2.5-1.5B", schema, 4)
    assert (plan.value("launch.strategy"), plan.world_size) == ("ddp", 4)
    assert check(plan, rows=1000, installed=EVERYTHING) == []


def test_all_weights_that_no_card_holds_are_shared_out(schema: Schema) -> None:
    answers = draft()
    answers = replace(answers, model=replace(answers.model, method="full"))
    known = facts("Qwen2.5-14B", schema, 80, gpus=8)
    plan = planned(answers, known)
    assert plan.value("launch.strategy") == "fsdp2"
    assert plan.memory is not None
    assert plan.memory.fits(80 * GIB)
    plain = replace(answers, settings=replace(answers.settings, overrides={"launch.strategy": "ddp"}))
    assert isinstance(tune(plain, known), list)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_that_was_chosen_is_kept_and_its_memory_counted(schema: Schema, strategy: str) -> None:
    plan = on("Qwen2.5-7B", schema, 4, launch__strategy=strategy)
    assert plan.value("launch.strategy") == strategy
    assert plan.memory is not None
    assert plan.memory.estimate == (strategy != "ddp"), "only what every process holds alone was traced"
    assert check(plan, rows=1000, installed=EVERYTHING) == []
    wanting = {problem.where for problem in check(plan, rows=1000, installed=EVERYTHING - {"deepspeed"})}
    assert wanting == ({"launch.strategy"} if strategy.startswith("zero") else set())


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_whole_weights_in_four_bit_may_have_their_states_divided(schema: Schema, strategy: str) -> None:
    answers = draft(launch__strategy=strategy)
    answers = replace(answers, model=replace(answers.model, method="qlora"))
    plan = planned(answers, facts("Qwen2.5-7B", schema, 80, gpus=2, packages=EVERYTHING))
    assert check(plan, rows=1000, installed=EVERYTHING) == []


def test_a_vllm_server_takes_the_last_gpus_and_training_the_others(schema: Schema) -> None:
    plan = on("Qwen2.5-7B", schema, 4, launch__vllm="server", launch__vllm_gpus=2)
    assert plan.value("launch.gpus") == ["GPU-0", "GPU-1"]
    assert plan.value("launch.vllm_devices") == ["GPU-2", "GPU-3"]
    assert (plan.world_size, plan.batch.world, plan.value("launch.vllm_gpus")) == (2, 2, 2)
    assert (plan.value("grpo.use_vllm"), plan.value("grpo.vllm_mode")) == (True, "server")
    assert plan.value("grpo.vllm_server_host") == "127.0.0.1"
    assert check(plan, rows=1000, installed=EVERYTHING) == []


def test_vllm_on_the_training_gpus_is_the_same_by_either_key(schema: Schema) -> None:
    plans = [on("Qwen2.5-1.5B", schema, 1, **{key: value}) for key, value in
             (("launch__vllm", "colocate"), ("grpo__use_vllm", True))]  # fmt: skip
    for plan in plans:
        assert plan.value("launch.vllm") == plan.value("grpo.vllm_mode") == "colocate"
        assert plan.value("grpo.vllm_max_model_length") == 200 + plan.value("grpo.max_completion_length")
        assert plan.value("launch.vllm_gpus") is None


def test_nodes_multiply_the_processes_and_name_no_gpu_of_this_machine(schema: Schema) -> None:
    plan = on("Qwen2.5-7B", schema, 8, launch__nodes=2)
    assert (plan.world_size, plan.value("launch.processes"), plan.batch.world) == (16, 16, 16)
    assert plan.value("launch.gpus") is None


@pytest.mark.parametrize(
    ("gpus", "overrides", "where"),
    [
        (1, {"launch__vllm": "server"}, "launch.vllm_gpus"),
        (4, {"launch__vllm": "servre"}, "launch.vllm"),
        (4, {"launch__vllm": "server", "grpo__use_vllm": False}, "launch.vllm"),
        (4, {"launch__strategy": "zero9"}, "launch.strategy"),
        (1, {"launch__strategy": "fsdp2"}, "launch.strategy"),
        (4, {"launch__nodes": 0}, "launch.nodes"),
        (4, {"launch__nodes": 2, "launch__processes": 3}, "launch.processes"),
        (0, {"launch__nodes": 2}, "launch.nodes"),
    ],
)
def test_what_cannot_be_is_refused_by_the_key(schema: Schema, gpus: int, overrides: dict[str, Any], where: str) -> None:
    if gpus:
        problem = refused(schema, gpus, **overrides)
    else:
        found = tune(draft(**overrides), facts("SmolLM2-135M", schema))
        assert isinstance(found, list)
        problem = found[0]
    assert problem.where == where


@pytest.mark.parametrize(
    ("overrides", "missing", "where"),
    [
        ({"launch__strategy": "zero3"}, {"deepspeed"}, "launch.strategy"),
        ({"launch__vllm": "colocate", "grpo__vllm_tensor_parallel_size": 3}, set(), "grpo.vllm_tensor_parallel_size"),
        (
            {"launch__strategy": "zero3", "launch__vllm": "colocate", "grpo__ds3_gather_for_generation": False},
            set(),
            "grpo.ds3_gather_for_generation",
        ),
    ],
)
def test_what_would_fail_on_the_cards_is_said_before(
    schema: Schema, overrides: dict[str, Any], missing: set[str], where: str
) -> None:
    plan = on("Qwen2.5-1.5B", schema, 4, **overrides)
    found = check(plan, rows=1000, installed=EVERYTHING - missing)
    assert where in {problem.where for problem in found}


def test_four_bit_weights_are_not_scattered(schema: Schema) -> None:
    answers = draft(launch__strategy="fsdp2")
    answers = replace(answers, model=replace(answers.model, method="qlora"))
    plan = tune(answers, facts("Qwen2.5-7B", schema, 80, gpus=2, packages=EVERYTHING))
    assert isinstance(plan, Plan)
    assert "launch.strategy" in {problem.where for problem in check(plan, rows=1000, installed=EVERYTHING)}


def test_cards_of_one_kind_have_no_need_of_names(schema: Schema) -> None:
    known = replace(facts("Qwen2.5-7B", schema, 80), cards=(Card(total_bytes=80 * GIB, free_bytes=80 * GIB),) * 2)
    plan = planned(draft(launch__vllm="server"), replace(known, packages=EVERYTHING))
    assert (plan.value("launch.vllm_gpus"), plan.value("launch.vllm_devices")) == (1, None)
