"""Configurations of other versions and tools become plans that the installed TRL takes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_tui.child import Worker
from grpo_tui.plan.batch import Batch, read
from grpo_tui.plan.checks import check
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.translate import Change, Target, Translation, apply, translate
from grpo_tui.plan.tuning import tune
from grpo_tui.plan.written import Written, read_yaml, sort
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts, planned
from tests.plan.test_script import environment, write_project

SMALL_GPU: dict[str, Any] = {
    "output_dir": "outputs/grpo-model", "learning_rate": 5e-6, "adam_beta1": 0.9, "adam_beta2": 0.99,
    "weight_decay": 0.1, "warmup_ratio": 0.1, "lr_scheduler_type": "cosine", "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 4, "num_generations": 8, "max_prompt_length": 256, "max_completion_length": 512,
    "num_train_epochs": 1, "max_steps": None, "bf16": True, "optim": "adamw_8bit", "max_grad_norm": 0.1,
    "logging_steps": 1, "save_steps": 100, "report_to": "wandb",
}  # fmt: skip
LARGE_GPU: dict[str, Any] = {
    "output_dir": "outputs/grpo-model", "learning_rate": 1e-5, "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2, "num_generations": 16, "max_prompt_length": 512, "max_completion_length": 1024,
    "num_train_epochs": 1, "bf16": True, "use_vllm": True, "logging_steps": 10,
}  # fmt: skip
MODEL: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-1.5B-Instruct",
    "torch_dtype": "bfloat16",
    "attn_implementation": "flash_attention_2",
    "device_map": "auto",
    "lora": {
        "r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "task_type": "CAUSAL_LM",
    },
}
"""Published sample configurations for a small and a large GPU, and their model: all three fail as they stand."""

OPEN_R1 = """
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2
dataset_name: open-r1/problems
dataset_configs:
- all
system_prompt: "Think first.\\nThen answer."
num_processes: 7
use_vllm: true
vllm_device: auto
vllm_gpu_memory_utilization: 0.7
do_eval: true
eval_strategy: steps
eval_steps: 100
gradient_accumulation_steps: 16
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
learning_rate: 2.0e-05
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs:
  min_lr_rate: 0.1
max_prompt_length: 512
max_completion_length: 1024
max_steps: -1
num_generations: 7
overwrite_output_dir: true
per_device_train_batch_size: 16
push_to_hub: false
report_to:
- wandb
reward_funcs:
- accuracy
- format
reward_weights:
- 1.0
- 0.1
save_strategy: "epoch"
wandb_project: mine
warmup_ratio: 0.1
"""


def translated(settings: dict[str, Any] | str, schema: Schema, **target: Any) -> Translation:
    written = read_yaml(settings) if isinstance(settings, str) else sort(settings)
    assert isinstance(written, Written), written
    return translate(written, Target(schema=schema, **target))


def change_of(key: str, translation: Translation) -> Change:
    """The one line about this key."""
    [found] = [change for change in translation.changes if change.key == key]
    return found


def accepted(translation: Translation, schema: Schema, introspect: Worker, gib: float = 80, **known: Any) -> Plan:
    """The plan for an 80 GiB card, which the installed TRL constructs and nothing is wrong with."""
    assert not translation.problems
    packages = known.pop("packages", frozenset())
    plan = tune(apply(draft(), translation), facts("Qwen2.5-1.5B", schema, gib, packages=packages, **known))
    assert isinstance(plan, Plan), plan
    assert check(plan, introspect, rows=1000, installed=packages) == []
    return plan


def test_the_sample_for_a_small_gpu_becomes_a_plan_with_a_batch_that_holds_whole_groups(
    schema: Schema, introspect: Worker
) -> None:
    translation = translated({**SMALL_GPU, **MODEL}, schema)
    plan = accepted(translation, schema, introspect)
    assert (plan.method, plan.value("grpo.learning_rate"), plan.value("lora.lora_dropout")) == ("lora", 5e-6, 0.05)
    assert (plan.batch.per_device, plan.batch.accumulation, plan.batch.generations) == (1, 8, 8)
    assert plan.value("data.max_prompt_tokens") == 256
    assert change_of("warmup_ratio", translation).new_key == "grpo.warmup_steps"
    assert change_of("max_steps", translation).new_key == ""
    assert change_of("torch_dtype", translation).new_key == "model.dtype"
    assert change_of("optim", translation).new == "adamw_torch_fused"
    assert change_of("report_to", translation).new == "none"
    assert change_of("attn_implementation", translation).new == "sdpa"
    assert change_of("device_map", translation).new_key == ""
    assert all(change.why for change in translation.changes)


def test_the_sample_for_a_large_gpu_says_that_vllm_now_shares_the_card(schema: Schema, introspect: Worker) -> None:
    without = accepted(translated(LARGE_GPU, schema), schema, introspect)
    assert (without.batch.accumulation, without.value("grpo.use_vllm")) == (4, False)
    there = frozenset({"vllm"})
    translation = translated(LARGE_GPU, schema, packages=there)
    assert "colocate" in change_of("use_vllm", translation).why
    plan = accepted(translation, schema, introspect, packages=there)
    assert plan.value("grpo.use_vllm") is True


def test_on_two_gpus_the_sample_for_a_large_one_needs_no_other_batch(schema: Schema) -> None:
    keys = [change.key for change in translated(LARGE_GPU, schema, world=2).changes]
    assert "gradient_accumulation_steps" not in keys


def test_what_the_machine_cannot_do_is_replaced_and_said(schema: Schema) -> None:
    old = translated({**SMALL_GPU, **MODEL}, schema, capability=(7, 5))
    assert (old.overrides["grpo.bf16"], old.overrides["grpo.fp16"]) == (False, True)
    assert old.overrides["model.dtype"] == "float16"
    cpu = translated({**SMALL_GPU, **MODEL}, schema, cpu=True)
    assert (cpu.overrides["grpo.bf16"], cpu.overrides.get("grpo.fp16")) == (False, None)
    assert cpu.overrides["model.dtype"] == "float32"


def test_a_recipe_of_open_r1_is_understood_key_by_key(schema: Schema, introspect: Worker) -> None:
    translation = translated(OPEN_R1, schema)
    assert translation.model.name == "Qwen/Qwen2.5-1.5B-Instruct"
    assert translation.method == "full"
    assert translation.data["options"] == {"config": "all"}
    assert translation.data["system"] == "Think first.\nThen answer."
    assert [(item.name, item.weight) for item in translation.rewards] == [("accuracy", 1.0), ("format", 0.1)]
    assert "share" in change_of("vllm_gpu_memory_utilization", translation).why
    assert change_of("gradient_checkpointing", translation).new_key == "grpo.activation_checkpointing"
    assert change_of("num_processes", translation).new_key == ""
    assert change_of("wandb_project", translation).why.startswith("Set WANDB_PROJECT")
    plan = accepted(translation, schema, introspect, 141)
    assert plan.batch.generations == 7
    assert plan.batch.generation_batch % 7 == 0


def test_keys_that_are_gone_or_renamed_have_a_line_each(schema: Schema) -> None:
    translation = translated(
        {
            "max_prompt_length": 512, "warmup_ratio": 0.1, "vllm_device": "cuda:1", "use_liger_loss": True,
            "evaluation_strategy": "steps", "overwrite_output_dir": True, "group_by_length": False,
            "logging_dir": "logs", "save_safetensors": True, "no_cuda": False, "vllm_guided_decoding_regex": "x",
            "wandb_log_unique_prompts": True, "num_generation": 8,
        },
        schema,
    )  # fmt: skip
    became = {change.key: change.new_key for change in translation.changes}
    assert became == {
        "max_prompt_length": "data.max_prompt_tokens",
        "warmup_ratio": "grpo.warmup_steps",
        "vllm_device": "grpo.vllm_mode",
        "use_liger_loss": "",
        "evaluation_strategy": "grpo.eval_strategy",
        "overwrite_output_dir": "",
        "group_by_length": "",
        "logging_dir": "",
        "save_safetensors": "",
        "no_cuda": "",
        "vllm_guided_decoding_regex": "grpo.vllm_structured_outputs_regex",
        "wandb_log_unique_prompts": "grpo.log_unique_prompts",
        "num_generation": "",
    }
    [misspelt] = translation.problems
    assert "Did you mean num_generations?" in misspelt.remedy


def test_a_limit_that_cut_prompts_leaves_them_out_and_vllm_gets_room_for_the_longest_that_stays(schema: Schema) -> None:
    """DS-10: nothing is dropped or cut in silence; vLLM's length is at least prompt and completion together."""
    old = {"max_prompt_length": 512, "max_completion_length": 256, "use_vllm": True, "vllm_max_model_len": 600}
    translation = translated(old, schema, packages=frozenset({"vllm"}))
    assert translation.data["max_prompt_tokens"] == 512
    cut = change_of("max_prompt_length", translation)
    assert str(cut) == (
        "max_prompt_length = 512 becomes data.max_prompt_tokens = 512. TRL no longer cuts prompts (0.28):"
        " data.max_prompt_tokens leaves long ones out."
    )
    assert translation.overrides["grpo.vllm_max_model_length"] == 768
    assert "Prompts of 512 tokens and completions of 256" in change_of("vllm_max_model_length", translation).why
    enough = translated({**old, "vllm_max_model_len": 900}, schema, packages=frozenset({"vllm"}))
    assert enough.overrides["grpo.vllm_max_model_length"] == 900


@pytest.mark.parametrize(
    ("file", "strategy"),
    [
        ("zero1", "zero1"), ("configs/zero2.yaml", "zero2"), ("zero3", "zero3"), ("fsdp1.yml", "fsdp2"),
        ("multi_gpu", "ddp"),
    ],
)  # fmt: skip
def test_the_configurations_that_trl_ships_are_strategies(schema: Schema, file: str, strategy: str) -> None:
    translation = translated({"accelerate_config": file}, schema)
    assert translation.overrides["launch.strategy"] == strategy


def test_numbers_that_yaml_reads_as_text_are_numbers(schema: Schema) -> None:
    translation = translated("learning_rate: 1e-6\nmax_completion_length: '256'\n", schema)
    assert translation.overrides["grpo.learning_rate"] == 1e-6


def test_a_misspelt_choice_is_named_before_anything_trains(schema: Schema) -> None:
    [wrong] = translated({"loss_type": "drgrpo"}, schema).problems
    assert "dr_grpo" in wrong.remedy


def test_what_is_written_twice_for_the_batch_is_written_once(schema: Schema) -> None:
    translation = translated(
        {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 3, "num_generations": 8,
         "generation_batch_size": 10, "steps_per_generation": 2},
        schema,
    )  # fmt: skip
    assert "grpo.generation_batch_size" not in translation.overrides
    overrides = {key: value for key, value in translation.overrides.items() if key.startswith("grpo.")}
    assert 3 * overrides["grpo.steps_per_generation"] % overrides["grpo.num_generations"] == 0


@given(
    per_device=st.integers(1, 12),
    accumulation=st.integers(1, 12),
    generations=st.integers(1, 20),
    steps=st.none() | st.integers(1, 12),
    size=st.none() | st.integers(1, 64),
    world=st.integers(1, 8),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_batch_was_written_a_legal_one_comes_out_with_no_more_at_a_time(
    schema: Schema,
    per_device: int,
    accumulation: int,
    generations: int,
    steps: int | None,
    size: int | None,
    world: int,
) -> None:
    written = {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": accumulation,
        "num_generations": generations,
        **({} if steps is None else {"steps_per_generation": steps}),
        **({} if size is None else {"generation_batch_size": size}),
    }
    overrides = translated(written, schema, world=world).overrides
    batch = read({key.removeprefix("grpo."): value for key, value in overrides.items()}, world)
    assert isinstance(batch, Batch), batch
    assert batch.per_device == per_device


def test_an_adapter_on_the_head_is_taken_off(schema: Schema) -> None:
    translation = translated({"learning_rate": 1e-5, "lora": {"target_modules": ["q_proj", "lm_head"]}}, schema)
    assert translation.lora == {"target_modules": ["q_proj"]}


def test_four_bit_without_bitsandbytes_becomes_a_plain_adapter(schema: Schema) -> None:
    settings = {"model": "a/b", "load_in_4bit": True, "lora": {"r": 8}}
    assert translated(settings, schema).method == "lora"
    assert translated(settings, schema, packages=frozenset({"bitsandbytes"})).method == "qlora"


def test_weights_that_do_not_match_the_rewards_are_a_problem(schema: Schema) -> None:
    [wrong] = translated({"reward_funcs": ["a", "b"], "reward_weights": [1.0]}, schema).problems
    assert isinstance(wrong, Problem)
    assert wrong.where == "reward_weights"


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SMALL_GPU, LARGE_GPU])
def test_the_translated_samples_really_train(tmp_path: Path, schema: Schema, settings: dict[str, Any]) -> None:
    translation = translated(settings, schema, cpu=True)
    answers = apply(draft(grpo__max_completion_length=4, grpo__save_steps=1), translation)
    short = {"grpo.max_steps": 2, "grpo.max_completion_length": 4, "data.max_prompt_tokens": 200}
    overrides = {**answers.settings.overrides, **short}
    answers = replace(
        answers,
        model=replace(answers.model, method="lora"),
        settings=replace(answers.settings, overrides=overrides),
        dataset=replace(answers.dataset, max_prompt_tokens=200),
    )
    project = write_project(tmp_path / "project", schema, answers)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=project,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Finished at step 2 of 2." in done.stdout
    (run,) = (project / "runs").iterdir()
    state = json.loads((run / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["global_step"] == 2


def test_what_an_import_leaves_open_the_tuning_chooses(schema: Schema) -> None:
    plan = planned(apply(draft(), translated({"num_generations": 16}, schema)), facts("Qwen2.5-1.5B", schema, 24))
    assert plan.batch.generations == 16
    assert plan.setting("grpo.learning_rate") is not None
