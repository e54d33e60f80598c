"""Shapes of well-known models as their config.json gives them, with counts taken from the instantiated modules."""

from grpo_tui.plan.known import CONFIGS
from grpo_tui.plan.shape import ModelShape, read_shape
from grpo_tui.problem import Problem

# Parameters, rank-16 adapter (millions), bf16 and 4-bit weights (GiB); counted on modules of transformers 5.24
# (meta device).
COUNTS: dict[str, tuple[int, float, float]] = {
    "Qwen2.5-0.5B": (494_032_768, 8.8, 0.43),
    "Qwen2.5-1.5B": (1_543_714_304, 18.5, 1.06),
    "Qwen2.5-7B": (7_615_616_512, 40.4, 5.17),
    "Qwen2.5-14B": (14_770_033_664, 68.8, 9.25),
    "Qwen2.5-32B": (32_763_876_352, 134.2, 17.89),
    "Qwen3-0.6B": (596_049_920, 10.1, 0.50),
    "Qwen3-8B": (8_190_735_360, 43.6, 5.66),
    "Llama-3.2-3B": (3_212_749_824, 24.3, 2.09),
    "Llama-3.1-8B": (8_030_261_248, 41.9, 5.31),
    "Mistral-7B-v0.3": (7_248_023_552, 41.9, 3.85),
    "Phi-3.5-mini": (3_821_079_552, 25.2, 2.11),
    "SmolLM2-135M": (134_515_008, 4.9, 0.10),
    "SmolLM3-3B": (3_075_098_624, 30.2, 1.84),
    "Gemma-2-2B": (2_614_341_888, 20.8, 2.07),
    "Gemma-3-1B": (999_885_952, 13.0, 0.90),
    "OLMo-2-7B": (7_298_617_344, 40.0, 4.64),
    "Qwen3-30B-A3B": (30_532_122_624, 13.4, 55.62),
}


def shape_of(name: str) -> ModelShape:
    """The shape of a model of CONFIGS."""
    shape = read_shape(CONFIGS[name])
    assert not isinstance(shape, Problem)
    return shape
