"""Keys are those of the installed TRL; older and misspelt ones are told from one another."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.plan.dialect import (
    OLD_KEYS,
    Field,
    Schema,
    bad_choice,
    cache_file,
    load_schema,
    renamed,
    spelled,
    unknown_key,
)
from grpo_tui.problem import Problem


class Asked:
    """A worker that counts how often it is asked."""

    def __init__(self, answer: dict[str, Any] | Problem) -> None:
        self.answer, self.calls = answer, 0

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any] | Problem:
        self.calls += 1
        return self.answer


ANSWER = {"fields": {"beta": {"name": "beta", "default": 0.0}}, "lora": {}, "trainer": ["model"]}


def test_the_installed_configuration_is_read_with_defaults_help_and_choices(schema: Schema) -> None:
    assert schema.fields["num_generations"].default == 8
    assert "constant_with_warmup" in schema.fields["lr_scheduler_type"].choices
    assert schema.fields["temperature"].help
    assert {"model", "reward_funcs", "args", "train_dataset", "peft_config"} <= set(schema.trainer)
    assert {"r", "lora_alpha", "target_modules"} <= schema.lora.keys()
    assert schema.major("trl") >= 1


def test_what_was_read_once_is_kept_until_a_version_changes(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    worker = Asked(ANSWER)
    first, again = load_schema(worker, environ), load_schema(worker, environ)
    assert worker.calls == 1
    assert isinstance(first, Schema)
    assert first == again
    assert cache_file({"trl": "1"}, environ) != cache_file({"trl": "2"}, environ)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fields": 3}', "null"])
def test_a_damaged_cache_is_read_anew(tmp_path: Path, content: str) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    load_schema(Asked(ANSWER), environ)
    (path,) = (tmp_path / "grpo-tui").iterdir()
    path.write_text(content)
    worker = Asked(ANSWER)
    assert isinstance(load_schema(worker, environ), Schema)
    assert worker.calls == 1
    assert json.loads(path.read_text())["fields"]


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "grpo-tui").write_text("a file where the folder should be")
    assert isinstance(load_schema(Asked(ANSWER), {"XDG_CACHE_HOME": str(tmp_path)}), Schema)


def test_a_worker_that_fails_is_passed_on(tmp_path: Path) -> None:
    problem = Problem("worker", "It died.", "Try again.")
    assert load_schema(Asked(problem), {"XDG_CACHE_HOME": str(tmp_path)}) == problem


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("max_prompt_length", "Leave it out."),
        ("warmup_ratio", "Write warmup_steps instead."),
        ("evaluation_strategy", "Write eval_strategy instead."),
        ("no_cuda", "Write use_cpu instead."),
        ("vllm_device", "Write vllm_mode instead."),
        ("vllm_guided_decoding_regex", "Write vllm_structured_outputs_regex instead."),
        ("wandb_log_unique_prompts", "Write log_unique_prompts instead."),
        ("use_liger_loss", "Leave it out."),
        ("overwrite_output_dir", "Leave it out."),
        ("logging_dir", "Leave it out."),
        ("save_safetensors", "Leave it out."),
        ("num_generation", "Did you mean num_generations?"),
        ("learning_rte", "Did you mean learning_rate?"),
        ("xyzzy", "Leave it out, or look the name up in TRL's documentation."),
        ("reward_weights", "Leave it out."),
        ("output_dir", "Leave it out."),
        ("auto_find_batch_size", "Leave it out."),
    ],
)
def test_a_key_of_old_recipes_gets_its_name_of_today(schema: Schema, key: str, remedy: str) -> None:
    problem = unknown_key(key, schema)
    assert problem is not None
    assert problem.remedy == remedy
    assert problem.where == f"grpo.{key}"


def test_keys_of_today_pass(schema: Schema) -> None:
    assert [key for key in ("beta", "loss_type", "activation_checkpointing") if unknown_key(key, schema)] == []


def test_every_old_key_points_at_one_that_exists_or_at_none(schema: Schema) -> None:
    assert [key for key, old in OLD_KEYS.items() if old.new and old.new not in schema.fields] == []


def test_older_versions_get_the_older_names() -> None:
    names = ("gradient_checkpointing", "warmup_ratio", "warmup_steps", "no_cuda")
    old = Schema(fields={name: Field(name=name) for name in names}, versions={"transformers": "4.57.0"})
    assert spelled("activation_checkpointing", True, old) == ("gradient_checkpointing", True)
    assert spelled("warmup_steps", 0.05, old) == ("warmup_ratio", 0.05)
    assert spelled("warmup_steps", 5, old) == ("warmup_steps", 5)
    assert spelled("use_cpu", True, old) == ("no_cuda", True)


def test_newer_versions_get_the_newer_names(schema: Schema) -> None:
    assert spelled("gradient_checkpointing", False, schema) == ("activation_checkpointing", False)
    assert spelled("warmup_ratio", 0.1, schema) == ("warmup_steps", 0.1)
    assert spelled("warmup_steps", 0.1, schema) == ("warmup_steps", 0.1)


def test_a_value_outside_a_closed_list_gets_the_nearest_one(schema: Schema) -> None:
    problem = bad_choice("loss_type", "drgrpo", schema)
    assert problem is not None
    assert problem.remedy.startswith("Did you mean dr_grpo?")
    assert bad_choice("scale_rewards", False, schema) is None
    assert bad_choice("lr_scheduler_type", "cosine", schema) is None
    assert bad_choice("lr_scheduler_type", "cosinus", schema) is not None
    assert bad_choice("learning_rate", 1.0, schema) is None


@pytest.mark.parametrize(
    ("key", "known", "name"),
    [
        ("evaluation_strategy", "eval_strategy", "eval_strategy"),
        ("eval_strategy", "evaluation_strategy", "evaluation_strategy"),  # an older library under a new recipe
        ("vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_max"),
        ("vllm_device", "vllm_mode", "vllm_device"),  # its value means something else there
        ("xyzzy", "beta", "xyzzy"),
    ],
)
def test_a_key_of_any_version_is_translated_where_it_means_the_same(key: str, known: str, name: str) -> None:
    one = Schema(fields={known: Field(name=known)})
    assert renamed(key, 1, one) == (name, 1)
