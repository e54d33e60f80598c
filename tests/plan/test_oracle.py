"""The closed form against the trace of `tests.plan.oracle`, and the trace against published measurements.

A few shapes are retraced each time; `-m slow` retraces every fixture and a spread of families.
"""

import importlib
import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from grpo_tui.plan.known import CONFIGS, _config
from grpo_tui.plan.memory import GIB, predict
from tests.plan import test_logits, test_memory
from tests.plan.shapes import shape_of

SLOW = pytest.mark.slow


@cache
def traced(model: str, method: str, batch: int, prompt: int, completion: int, **more: Any) -> Mapping[str, float]:
    """Peaks of a model of CONFIGS in GiB, and what is there all the time. torch is imported no sooner."""
    oracle = importlib.import_module("tests.plan.oracle")
    job = oracle.Job(method=method, batch=batch, prompt=prompt, completion=completion, **more)
    return {name: size / GIB for name, size in oracle.trace(CONFIGS[model], job).items()}


def quick(cases: list[Any], *which: int) -> list[Any]:
    """`cases`, all but `which` marked slow."""
    return [case if place in which else pytest.param(*case, marks=SLOW) for place, case in enumerate(cases)]


@pytest.mark.parametrize(
    ("model", "method", "batch", "prompt", "completion", "static", "active"), quick(test_memory.TRACED, 0)
)
def test_the_fixtures_are_what_the_libraries_of_today_trace(
    model: str, method: str, batch: int, prompt: int, completion: int, static: float, active: float
) -> None:
    found = traced(model, method, batch, prompt, completion)
    assert found["static"] == pytest.approx(static, abs=0.011)
    assert found["train"] - found["static"] == pytest.approx(active, abs=0.011)


HEADS = {"1.9.2": "in place", "1.12.0": "divided", "1.14.1": "kernel"}


@pytest.mark.parametrize(
    ("trl", "model", "method", "batch", "prompt", "completion", "scoring", "training"), quick(test_logits.TRACED, 0)
)
def test_the_fixtures_of_older_trl_are_what_its_heads_trace(
    trl: str, model: str, method: str, batch: int, prompt: int, completion: int, scoring: float, training: float
) -> None:
    found = traced(model, method, batch, prompt, completion, head=HEADS[trl])
    assert (found["score"], found["train"]) == (pytest.approx(scoring, abs=0.002), pytest.approx(training, abs=0.002))


SPREAD = [
    ("Llama-3.2-3B", 4, 256, 512),
    ("Llama-3.1-8B", 4, 512, 1024),
    ("Qwen2.5-0.5B", 8, 256, 512),
    ("Qwen2.5-7B", 4, 512, 1024),
    ("Qwen3-0.6B", 8, 256, 1024),
    ("Qwen3-8B", 2, 512, 2048),
    ("Gemma-3-1B", 4, 512, 1024),
    ("Phi-3.5-mini", 4, 256, 768),
    ("OLMo-2-7B", 4, 256, 768),
    ("Mistral-7B-v0.3", 2, 512, 1536),
    ("SmolLM3-3B", 4, 256, 512),
]
"""Model, sequences, prompt and completion."""


@pytest.mark.parametrize(
    ("case", "method", "checkpointing"),
    quick(list(itertools.product(SPREAD, ("full", "lora", "qlora"), (True, False))), 39),
)
def test_every_phase_of_every_family_is_met_within_two_percent(
    case: tuple[str, int, int, int], method: str, checkpointing: bool
) -> None:
    model, batch, prompt, completion = case
    found = traced(model, method, batch, prompt, completion, checkpointing=checkpointing, generated=2 * batch)
    settings = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": 2,
        "max_completion_length": completion,
        "bf16": True,
        "activation_checkpointing": checkpointing,
    }
    memory = predict(shape_of(model), method, settings, prompt_tokens=prompt)
    assert not memory.estimate
    for phase in memory.phases:
        assert test_logits.allocated(memory, phase) == pytest.approx(found[phase], rel=0.02), phase


def test_mixtures_and_families_that_cannot_be_traced_are_called_estimates() -> None:
    for model in ("Qwen3-30B-A3B", "Gemma-2-2B"):
        assert predict(shape_of(model), "lora", {"bf16": True}, prompt_tokens=256).estimate, model


@pytest.mark.slow
def test_peaks_grow_by_the_same_bytes_with_each_layer() -> None:
    oracle = importlib.import_module("tests.plan.oracle")
    for model in ("Qwen2.5-0.5B", "Gemma-3-1B"):
        figures = CONFIGS[model]
        job = oracle.Job(method="lora", batch=4, prompt=256, completion=512, generated=8)
        whole = oracle.run(figures, oracle.kinds_of(figures), job)
        whole["generate"] = max(whole.pop("read"), whole.pop("draw"))
        assert oracle.trace(figures, job) == pytest.approx(whole, rel=0.002), model


POWER, MISTRAL = (
    _config("granite", 2304, 40, 36, 36, 9216, 49152, True),
    _config("mistral", 4096, 32, 32, 8, 14336, 32000, False),
)
# Fine-tuning on an A100 with flash attention, sequences of 4096 tokens, bfloat16, checkpointing, adapters of rank 16 on
# the attention; max_memory_allocated in GiB as published (fms-acceleration). PowerLM's shape is recalled.
PUBLISHED = [
    ("PowerLM-3B", POWER, "lora", 4, 18.807),
    ("PowerLM-3B", POWER, "lora", 8, 30.898),
    ("PowerLM-3B", POWER, "qlora", 4, 14.111),
    ("PowerLM-3B", POWER, "full", 4, 32.722),
    ("PowerLM-3B", POWER, "full", 8, 43.827),
    ("Mistral-7B-v0.1", MISTRAL, "lora", 8, 34.551),
]


@pytest.mark.parametrize(("name", "figures", "method", "batch", "measured"), quick(PUBLISHED, 1))
def test_published_measurements_are_traced_within_two_percent(
    name: str, figures: Mapping[str, Any], method: str, batch: int, measured: float
) -> None:
    oracle = importlib.import_module("tests.plan.oracle")
    attention = "all-linear" if method == "full" else ("q_proj", "k_proj", "v_proj", "o_proj")
    job = oracle.Job(
        method=method, batch=batch, prompt=0, completion=4096, targets=attention, padded=False, head="fine-tuning",
        accumulated=False,
    )  # fmt: skip
    found = oracle.trace(figures, job)
    # The step of an AdamW that works on all parameters at once: gradients, and a copy of them.
    step = found["static"] + 2 * found["load"] if method == "full" else 0
    assert max(found["train"], step) / GIB == pytest.approx(measured, rel=0.02), name


# Fine-tuning on an RTX 4080 by a loop without autocast that holds the model's output, one sequence, bfloat16,
# checkpointing, adapters of rank 16 on the attention; 4-bit models prepared by PEFT, with the rest in float32.
# max_memory_allocated in GiB as published (can-i-finetune-this).
HELD = [
    ("Qwen2.5-0.5B", "qlora", 2048, 5.522),
    ("Qwen2.5-1.5B", "qlora", 512, 2.794),
    ("Qwen2.5-1.5B", "qlora", 1024, 4.041),
    ("Qwen2.5-1.5B", "qlora", 2048, 6.532),
    ("Qwen2.5-1.5B", "qlora", 4096, 11.507),
    ("Qwen2.5-3B", "qlora", 1024, 5.172),
    ("Qwen2.5-0.5B", "lora", 1024, 3.032),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "method", "length", "measured"), HELD)
def test_published_measurements_of_smaller_models_are_traced_within_one_percent(
    model: str, method: str, length: int, measured: float
) -> None:
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    found = traced(
        model, method, 1, 0, length, targets=attention, padded=False, head="kept", autocast=False, accumulated=False,
        kbit=method == "qlora",
    )  # fmt: skip
    assert found["train"] == pytest.approx(measured, rel=0.01)
