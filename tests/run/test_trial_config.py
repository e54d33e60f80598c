"""What of a configuration a trial keeps, and what it says it does not cover."""

from typing import Any

from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.problem import Problem
from grpo_tui.run.trial_config import Reduced, full_length, reduced


def config(**grpo: Any) -> dict[str, Any]:
    return {
        "model": {"name": "team/model", "revision": "abc", "dtype": "bfloat16", "load_in_4bit": True,
                  "attn_implementation": "flash_attention_2"},
        "data": {"file": "rows.jsonl", "prompt": "question"},
        "rewards": [{"name": "correct", "weight": 1.0}],
        "grpo": {
            "per_device_train_batch_size": 6, "gradient_accumulation_steps": 4, "num_generations": 8,
            "max_completion_length": 1024, "bf16": True, "use_vllm": True, "optim": "paged_adamw_8bit",
            "report_to": ["wandb"], "temperature": 0.9, "deepspeed": "zero3.json", **grpo,
        },
        "launch": {"processes": 4, "gpus": ["GPU-1"], "notify_command": "mail me"},
    }  # fmt: skip


def test_it_is_made_small_and_keeps_what_can_be_tried() -> None:
    planned = config()
    found = reduced(planned, "/trial/model")
    assert isinstance(found, Reduced)
    first, second = found.configs
    grpo = first["grpo"]
    assert (grpo["max_steps"], second["grpo"]["max_steps"]) == (1, 2)
    assert {**second["grpo"], "max_steps": 1} == grpo
    small = arithmetic.read(grpo)
    assert isinstance(small, Batch)
    assert (small.generations, small.generation_batch, small.world) == (2, 2, 1)
    assert (grpo["max_completion_length"], grpo["temperature"], grpo["optim"]) == (16, 0.9, "adamw_torch")
    assert (grpo["use_cpu"], grpo["bf16"], grpo["use_vllm"], grpo["report_to"]) == (True, False, False, "none")
    assert "deepspeed" not in grpo
    assert first["model"] == {
        "name": "/trial/model", "dtype": "float32", "load_in_4bit": True, "attn_implementation": "sdpa"
    }  # fmt: skip
    assert first["launch"] == {"processes": 1}
    assert (first["data"], first["rewards"]) == (planned["data"], planned["rewards"])
    assert planned == config()


def test_what_it_does_not_cover_is_said_and_nothing_else() -> None:
    found = reduced(config(), "m")
    assert isinstance(found, Reduced)
    said = "\n".join(found.uncovered)
    for word in ("real weights", "CUDA", "1024", "96 completions", "4 processes", "vLLM", "4 bit", "flash", "8bit",
                 "wandb", "sharding"):  # fmt: skip
        assert word in said, word
    plain = reduced(
        {
            "grpo": {
                "per_device_train_batch_size": 2,
                "num_generations": 2,
                "max_completion_length": 8,
                "use_cpu": True,
            },
            "rewards": [],
            "data": {},
        },
        "m",
    )
    assert isinstance(plain, Reduced)
    assert len(plain.uncovered) == 1
    assert "real weights" in plain.uncovered[0]


def test_short_completions_are_not_made_longer() -> None:
    found = reduced(config(max_completion_length=4), "m")
    assert isinstance(found, Reduced)
    assert found.configs[0]["grpo"]["max_completion_length"] == 4


def test_a_batch_is_checked_as_it_is_planned_over_all_processes() -> None:
    found = reduced(config(num_generations=7), "m")
    assert isinstance(found, list)
    assert isinstance(found[0], Problem)
    assert "no multiple of num_generations = 7" in found[0].what


def test_to_be_measured_completions_are_forced_to_their_full_length_and_nothing_is_kept() -> None:
    grpo = full_length(config(use_vllm=False, generation_kwargs={"top_k": 5}))["grpo"]
    assert grpo["generation_kwargs"] == {"top_k": 5, "min_new_tokens": 1024}
    assert (grpo["max_steps"], grpo["save_strategy"], grpo["report_to"]) == (2, "no", "none")
    assert grpo["per_device_train_batch_size"] == 6
    assert full_length(config())["grpo"]["generation_kwargs"] == {"min_tokens": 1024}
