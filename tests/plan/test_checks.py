"""What is wrong with a plan, said before anything is loaded (public reports and TRL 1.16's own behaviour)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.draft import RewardItem
from grpo_tui.plan.checks import check, constructed, packages
from grpo_tui.plan.dialect import Schema, installed
from grpo_tui.plan.footing import footing_of
from grpo_tui.plan.plan import Plan, Setting
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts, planned

EVERYTHING = ("bitsandbytes", "vllm", "flash_attn", "kernels", "wandb", "trackio", "tensorboard")


def with_values(plan: Plan, **values: Any) -> Plan:
    """`plan` with single values changed, as a hand-edited file would have them."""
    changed = {key.replace("__", "."): value for key, value in values.items()}
    kept = tuple(setting for setting in plan.settings if setting.key not in changed)
    return replace(plan, settings=kept + tuple(Setting(k, v, "", "", "set by you") for k, v in changed.items()))


@pytest.fixture(scope="module")
def plan(schema: Schema) -> Plan:
    return planned(draft(), facts("Qwen2.5-7B", schema, 80))


def test_what_the_tuning_plans_has_nothing_against_it(plan: Plan, introspect: Worker) -> None:
    assert check(plan, introspect, rows=1000, experts=0) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("loss_type", "drgrpo", "Did you mean dr_grpo?"),
        ("scale_rewards", "groups", "Did you mean group?"),
        ("importance_sampling_level", "seq", "It can be token, sequence."),
        ("multi_objective_aggregation", "sum", "sum_then_normalize"),
        ("temperature", 0.0, "let it be chosen"),
        ("top_p", 2.0, "let it be chosen"),
        ("delta", 0.9, "Raise or drop"),
        ("sync_ref_model", True, "raise beta"),
        ("router_aux_loss_coef", 0.1, "Leave it out"),
        ("eval_strategy", "steps", "eval_strategy"),
        ("fp16", True, "Turn one of the two off"),
        ("remove_unused_columns", True, "false"),
    ],
)
def test_values_that_trl_notices_too_late_are_found_first(plan: Plan, key: str, value: Any, words: str) -> None:
    problems = check(with_values(plan, **{f"grpo__{key}": value}), rows=1000, experts=0, installed=EVERYTHING)
    assert any(problem.where.endswith(key) and words in problem.remedy for problem in problems), problems


def test_a_misspelt_vllm_mode_is_found_where_vllm_is_used(plan: Plan) -> None:
    used = with_values(plan, grpo__use_vllm=True, grpo__vllm_mode="colocated")
    assert any("Did you mean colocate?" in p.remedy for p in check(used, installed=EVERYTHING))
    assert check(with_values(plan, grpo__vllm_mode="colocated"), installed=EVERYTHING) == []


@pytest.mark.parametrize(
    ("values", "package"),
    [
        ({"grpo__report_to": "wandb"}, "wandb"),
        ({"grpo__report_to": ["tensorboard", "none"]}, "tensorboard"),
        ({"grpo__optim": "adamw_8bit"}, "bitsandbytes"),
        ({"grpo__optim": "paged_adamw_8bit"}, "bitsandbytes"),
        ({"model__attn_implementation": "flash_attention_2"}, "flash-attn"),
        ({"model__attn_implementation": "kernels-community/flash-attn2"}, "kernels"),
        ({"grpo__use_vllm": True}, "vllm"),
    ],
)
def test_a_package_that_is_missing_is_named_before_the_run_needs_it(
    plan: Plan, values: dict[str, Any], package: str
) -> None:
    (problem,) = check(with_values(plan, **values), installed=())
    assert f"pip install {package}" in problem.remedy
    assert check(with_values(plan, **values), installed=EVERYTHING) == []


def test_optimizers_of_torch_need_no_other_package(plan: Plan) -> None:
    assert check(with_values(plan, grpo__optim="adamw_torch_8bit"), installed=()) == []


def test_rewards_are_counted_and_their_names_must_differ(plan: Plan) -> None:
    twice = replace(plan, rewards=(RewardItem(name="a"), RewardItem(name="a", weight=0.5)))
    nothing = replace(plan, rewards=())
    worthless = replace(plan, rewards=(RewardItem(name="a", weight=0.0),))
    words = [check(one, installed=EVERYTHING)[0].what for one in (twice, nothing, worthless)]
    assert ["twice" in words[0], "No reward" in words[1], "Every weight is 0" in words[2]] == [True] * 3


@pytest.mark.parametrize("file", ["../rewards.py", "/home/me/rewards.py"])
def test_rewards_outside_the_project_cannot_be_kept_with_a_run(plan: Plan, file: str) -> None:
    (problem,) = check(with_values(plan, launch__rewards_file=file), installed=EVERYTHING)
    assert "outside the project" in problem.what
    assert check(with_values(plan, launch__rewards_file="my/rewards.py"), installed=EVERYTHING) == []


def test_too_few_rows_for_one_generation_are_the_trap_of_a_run_with_no_steps(plan: Plan) -> None:
    needed = plan.batch.prompts_per_generation
    assert check(plan, rows=needed, installed=EVERYTHING) == []
    (problem,) = check(plan, rows=needed - 1, installed=EVERYTHING)
    assert "0 steps" in problem.what


def test_old_cards_are_not_given_bfloat16(plan: Plan) -> None:
    turing = replace(plan, capability=(7, 5))
    assert any(p.where == "grpo.bf16" and "fp16 = true" in p.remedy for p in check(turing, installed=EVERYTHING))


def test_the_library_is_asked_as_on_the_planned_machine(plan: Plan, introspect: Worker) -> None:
    assert constructed(plan, introspect) == []  # bf16 on a GPU, constructed where there is none
    (turing,) = constructed(replace(plan, capability=(7, 5)), introspect)
    assert "bf16" in turing.what
    three = with_values(plan, grpo__per_device_train_batch_size=1, grpo__gradient_accumulation_steps=1)
    (problem,) = constructed(replace(three, world_size=3), introspect)
    assert "generation_batch_size (3) must be divisible by num_generations (8)" in problem.what
    assert problem.where == "grpo.num_generations"


@pytest.mark.parametrize(
    ("values", "where", "text"),
    [
        ({"grpo__max_prompt_length": 256}, "grpo.max_prompt_length", "unexpected keyword"),
        ({"grpo__lr_scheduler_type": "bogus"}, "grpo", "bogus"),
        ({"grpo__logging_steps": 0}, "grpo", "non-zero"),
        ({"lora__rr": 3}, "lora.rr", "unexpected keyword"),
    ],
)
def test_what_the_library_raises_is_passed_on_in_its_own_words(
    plan: Plan, introspect: Worker, values: dict[str, Any], where: str, text: str
) -> None:
    (problem,) = constructed(with_values(plan, **values), introspect)
    assert problem.where == where
    assert text in problem.what


def test_an_output_folder_named_like_a_package_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages(["wandb", "torch"]) == {"torch"} | ({"wandb"} if installed(("wandb",)) else set())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_steps", "abc"),
        ("num_generations", "8"),
        ("bf16", "yes"),
        ("logging_steps", "1"),
        ("temperature", "hot"),
        ("log_completions", 1),
    ],
)
def test_a_value_of_another_type_is_refused_although_the_library_takes_it(
    plan: Plan, introspect: Worker, key: str, value: Any
) -> None:
    problems = check(with_values(plan, **{f"grpo__{key}": value}), introspect, installed=EVERYTHING)
    assert any(problem.where == f"grpo.{key}" for problem in problems), problems


@pytest.mark.parametrize(
    ("key", "value"),
    [("hub_token", "hf_abc"), ("run_name", "at http://ada:geheim@example.org"), ("push_to_hub_token", "x")],
)
def test_a_secret_is_refused_before_it_is_written(plan: Plan, key: str, value: str) -> None:
    problems = check(with_values(plan, **{f"grpo__{key}": value}), installed=EVERYTHING)
    assert any(problem.where == f"grpo.{key}" and "secret" in problem.what for problem in problems), problems
    assert not any(value in str(problem) for problem in problems)


def test_a_share_of_vllm_that_starves_one_of_the_two_is_found_where_the_device_is_known(
    plan: Plan, schema: Schema
) -> None:
    """trl#2688, vllm#5274: the library's own advice is to raise it, which is right for one of the two only."""
    shape = facts("Qwen2.5-7B", schema, 80).model.shape

    def found(share: float) -> list[Problem]:
        shared = with_values(
            plan, grpo__use_vllm=True, grpo__vllm_gpu_memory_utilization=share, grpo__vllm_max_model_length=1024
        )
        stands = footing_of(shared, shape, total_bytes=plan.available_bytes)
        return check(shared, rows=1000, experts=0, installed=EVERYTHING, footing=stands)

    assert [problem.where for problem in found(0.95)] == ["grpo.vllm_gpu_memory_utilization"]
    assert "too little for the training" in found(0.95)[0].what
    assert "its own copy of the weights" in found(0.1)[0].what
    assert found(0.4) == []


def test_room_in_vllm_for_less_than_prompt_and_completion_is_found(plan: Plan, schema: Schema) -> None:
    """DS-10: vLLM stops with "longer than the maximum model length", in the middle of a run."""
    shape = facts("Qwen2.5-7B", schema, 80).model.shape

    def found(room: int, mode: str) -> list[Problem]:
        served = with_values(plan, grpo__use_vllm=True, grpo__vllm_mode=mode, grpo__vllm_max_model_length=room,
                             grpo__max_completion_length=512)  # fmt: skip
        stands = footing_of(served, shape, prompt_tokens=900)
        return check(served, rows=1000, experts=0, installed=EVERYTHING, footing=stands)

    for mode in ("colocate", "server"):
        [problem] = [each for each in found(1411, mode) if each.where == "grpo.vllm_max_model_length"]
        assert "Set it to 1412 or more" in problem.remedy
        assert not [each for each in found(1412, mode) if each.where == "grpo.vllm_max_model_length"]
