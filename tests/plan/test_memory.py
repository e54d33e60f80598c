"""The closed form against a trace of what TRL 1.16 allocates (FakeTensor on transformers 5.24, no GPU): 27 shapes."""

import re

import pytest

from grpo_tui.plan.activations import activation_parts
from grpo_tui.plan.memory import GIB, PHASES, predict, static_parts
from grpo_tui.plan.sharding import STRATEGIES
from tests.plan.shapes import shape_of

# model, method, sequences, prompt, completion, static GiB, traced activations GiB
TRACED = [
    ("Qwen2.5-0.5B", "full", 8, 256, 512, 3.68, 1.32),
    ("Qwen2.5-0.5B", "lora", 8, 256, 512, 1.05, 0.846),
    ("Qwen2.5-0.5B", "qlora", 8, 256, 512, 0.49, 0.708),
    ("Qwen2.5-1.5B", "full", 8, 256, 1024, 11.5, 2.699),
    ("Qwen2.5-1.5B", "lora", 8, 256, 1024, 3.15, 2.615),
    ("Qwen2.5-1.5B", "qlora", 8, 256, 1024, 1.2, 2.208),
    ("Qwen2.5-7B", "full", 4, 512, 1024, 56.74, 4.686),
    ("Qwen2.5-7B", "lora", 4, 512, 1024, 14.79, 3.477),
    ("Qwen2.5-7B", "qlora", 4, 512, 1024, 5.47, 2.929),
    ("Qwen2.5-7B", "full", 1, 512, 4096, 56.74, 4.381),
    ("Qwen2.5-7B", "lora", 1, 512, 4096, 14.79, 2.65),
    ("Qwen2.5-7B", "qlora", 1, 512, 4096, 5.47, 2.238),
    ("Llama-3.1-8B", "full", 8, 256, 512, 59.83, 4.956),
    ("Llama-3.1-8B", "lora", 8, 256, 512, 15.58, 3.557),
    ("Llama-3.1-8B", "qlora", 8, 256, 512, 5.62, 3.016),
    ("Qwen3-8B", "full", 4, 512, 2048, 61.03, 7.05),
    ("Qwen3-8B", "lora", 4, 512, 2048, 15.91, 6.215),
    ("Qwen3-8B", "qlora", 4, 512, 2048, 5.98, 5.353),
    ("Qwen2.5-14B", "full", 2, 512, 2048, 110.05, 7.261),
    ("Qwen2.5-14B", "lora", 2, 512, 2048, 28.54, 4.237),
    ("Qwen2.5-14B", "qlora", 2, 512, 2048, 9.76, 3.726),
    ("Llama-3.2-3B", "full", 16, 128, 384, 23.94, 4.05),
    ("Llama-3.2-3B", "lora", 16, 128, 384, 6.35, 3.094),
    ("Llama-3.2-3B", "qlora", 16, 128, 384, 2.27, 2.592),
    ("Qwen2.5-32B", "full", 1, 512, 2048, 244.11, 6.197),
    ("Qwen2.5-32B", "lora", 1, 512, 2048, 63.03, 2.974),
    ("Qwen2.5-32B", "qlora", 1, 512, 2048, 18.89, 2.774),
]


@pytest.mark.parametrize(("model", "method", "batch", "prompt", "completion", "static", "active"), TRACED)
def test_the_closed_form_meets_the_trace_within_two_percent(
    model: str, method: str, batch: int, prompt: int, completion: int, static: float, active: float
) -> None:
    shape = shape_of(model)
    held = sum(part.bytes for part in static_parts(shape, method)) / GIB
    moving = sum(
        part.bytes for part in activation_parts(shape, method, batch=batch, prompt=prompt, completion=completion)
    )
    assert held == pytest.approx(static, rel=0.01, abs=0.01)
    assert held + moving / GIB == pytest.approx(static + active, rel=0.02)


SETTINGS = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 8,
    "max_completion_length": 512,
    "bf16": True,
    "beta": 0.0,
}


def test_a_kl_term_costs_a_second_model_only_when_all_weights_are_trained() -> None:
    shape = shape_of("Qwen2.5-1.5B")
    more = {**SETTINGS, "beta": 0.04}
    full = [predict(shape, "full", settings, prompt_tokens=256).peak_bytes for settings in (SETTINGS, more)]
    lora = [predict(shape, "lora", settings, prompt_tokens=256).peak_bytes for settings in (SETTINGS, more)]
    assert full[1] - full[0] == 2 * shape.parameters
    assert lora[0] == lora[1]


def test_generation_holds_the_cache_of_the_whole_generation_batch() -> None:
    shape = shape_of("OLMo-2-7B")  # 512 KiB of cache a token: the case where generation is the peak
    often = {**SETTINGS, "steps_per_generation": 2}
    memory, less = (predict(shape, "lora", settings, prompt_tokens=512) for settings in (SETTINGS, often))
    assert memory.peak_phase == "generate"
    assert memory.dominant == "key-value cache" or memory.phases["generate"] > memory.phases["train"]
    assert less.phases["generate"] < memory.phases["generate"]
    assert any("steps_per_generation" in way for way in memory.turn)


def test_more_generations_cost_training_no_memory_but_a_larger_batch_does() -> None:
    shape = shape_of("Qwen2.5-7B")
    train = [
        predict(shape, "lora", {**SETTINGS, **change}, prompt_tokens=256).phases["train"]
        for change in ({}, {"num_generations": 16}, {"per_device_train_batch_size": 8})
    ]
    assert train[0] == train[1] < train[2]


def test_the_interval_holds_the_peak_and_every_phase_has_its_parts() -> None:
    memory = predict(shape_of("Qwen2.5-7B"), "qlora", SETTINGS, prompt_tokens=256)
    low, high = memory.interval
    assert low < memory.peak_bytes < high
    assert set(memory.phases) == set(PHASES)
    assert sum(part.bytes for part in memory.parts) == memory.peak_bytes
    assert not memory.estimate


def test_a_plan_for_the_cpu_predicts_main_memory_and_calls_it_an_estimate() -> None:
    memory = predict(
        shape_of("SmolLM2-135M"), "full", {**SETTINGS, "bf16": False}, prompt_tokens=64, dtype="float32", cpu=True
    )
    assert memory.place == "RAM"
    assert memory.estimate
    assert memory.phases["load"] > 4 * shape_of("SmolLM2-135M").parameters


def test_weights_in_float32_cost_twice_as_much_and_an_autocast_copy() -> None:
    shape = shape_of("Qwen2.5-7B")
    names = {part.name: part.bytes for part in static_parts(shape, "full", dtype="float32")}
    assert sum(names.values()) == 16 * shape.parameters + 2 * shape.linear
    assert names["autocast copy"] == pytest.approx(12.4 * GIB, rel=0.02)


def test_eight_bit_adam_shrinks_the_states_to_two_bytes_a_parameter() -> None:
    shape = shape_of("Qwen2.5-7B")
    total = sum(part.bytes for part in static_parts(shape, "full", optim="adamw_8bit"))
    assert total == pytest.approx(6.03 * shape.parameters, rel=0.001)


def test_what_to_turn_names_the_way_out_of_the_largest_part() -> None:
    assert re.search("adapter", predict(shape_of("Qwen2.5-7B"), "full", SETTINGS, prompt_tokens=256).turn[0])
    assert re.search("4 bit", predict(shape_of("Qwen2.5-7B"), "lora", SETTINGS, prompt_tokens=256).turn[0])


def test_a_card_is_full_before_its_last_byte() -> None:
    memory = predict(shape_of("Qwen2.5-1.5B"), "lora", SETTINGS, prompt_tokens=256)
    assert not memory.fits(memory.peak_bytes)
    assert memory.fits(memory.peak_bytes + GIB)


def parts_of(phase: str, strategy: str, world: int = 8, method: str = "full", **more: object) -> dict[str, int]:
    """Bytes of each part of a phase on one of `world` devices."""
    memory = predict(shape_of("Qwen2.5-7B"), method, {**SETTINGS, **more}, world, prompt_tokens=256, strategy=strategy)
    return {part.name: part.bytes for part in memory.parts_by_phase[phase]}


def test_data_parallel_gives_every_device_everything_and_a_copy_of_the_gradients() -> None:
    alone, together = parts_of("train", "ddp", world=1), parts_of("train", "ddp")
    assert together.pop("gradient buckets") == alone["gradients"]
    assert together == alone


def test_zero2_divides_gradients_and_states_and_zero3_the_weights_too() -> None:
    parameters = shape_of("Qwen2.5-7B").parameters
    two, three = parts_of("train", "zero2"), parts_of("train", "zero3")
    assert (two["weights"], two["gradients"]) == (2 * parameters, 2 * parameters // 8)
    assert three["weights"] == 2 * parameters // 8
    for parts in (two, three):  # 12 bytes a parameter of float32 states and master copy (ZeRO paper, table 1)
        assert parts["optimizer"] + parts["master weights"] == 12 * parameters // 8
        assert parts["gradient buckets"] == 2 * 500_000_000


def test_zero1_divides_the_states_alone() -> None:
    parameters = shape_of("Qwen2.5-7B").parameters
    one, two = parts_of("train", "zero1"), parts_of("train", "zero2")
    assert (one["weights"], one["gradients"]) == (2 * parameters, 2 * parameters)
    assert one["optimizer"] + one["master weights"] == 12 * parameters // 8  # ZeRO paper, table 1: P_os
    assert {name: size for name, size in one.items() if name not in ("gradients", "allocator")} == {
        name: size for name, size in two.items() if name not in ("gradients", "allocator")
    }
    assert parts_of("generate", "zero1") == parts_of("generate", "zero2"), "gradients are not there yet"
    assert "gathered layer" not in one


def test_scattered_weights_cost_a_whole_layer_at_a_time() -> None:
    for strategy in ("zero3", "fsdp2"):
        layer = parts_of("train", strategy)["gathered layer"] / GIB
        assert 1.5 < layer < 2.5, "two layers of 0.23 G parameters and a head of 0.54 G, in bfloat16"
    assert "gathered layer" not in parts_of("train", "fsdp2", world=1)
    assert "gathered layer" not in parts_of("train", "zero2")


def test_zero3_gathers_every_weight_to_generate_unless_told_not_to() -> None:
    parameters = shape_of("Qwen2.5-7B").parameters
    gathered = parts_of("generate", "zero3")
    assert gathered["weights"] + gathered["gathered weights"] == pytest.approx(2 * parameters, rel=1e-6)
    slow = parts_of("generate", "zero3", ds3_gather_for_generation=False)
    assert "gathered weights" not in slow
    assert "gathered weights" not in parts_of("generate", "fsdp2")


def test_what_one_card_cannot_hold_eight_can_together() -> None:
    shape = shape_of("Qwen2.5-14B")
    peaks = {
        strategy: predict(shape, "full", SETTINGS, 8, prompt_tokens=256, strategy=strategy) for strategy in STRATEGIES
    }
    assert peaks["ddp"].peak_bytes > 100 * GIB
    by_size = sorted(STRATEGIES, key=lambda strategy: -peaks[strategy].peak_bytes)
    assert by_size[:3] == ["ddp", "zero1", "zero2"]
    assert set(by_size[3:]) == {"zero3", "fsdp2"}
    assert peaks["fsdp2"].fits(80 * GIB)
    assert not peaks["ddp"].estimate
    assert peaks["fsdp2"].estimate
