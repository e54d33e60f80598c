"""Shapes of well-known models as their config.json gives them, with counts taken from the instantiated modules."""

from typing import Any

from grpo_tui.plan.model import ModelShape, read_shape
from grpo_tui.problem import Problem


def _config(
    model_type: str,
    hidden: int,
    layers: int,
    heads: int,
    kv: int,
    width: int,
    vocab: int,
    tied: bool,
    head_dim: int = 0,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": width,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 32768,
    }
    return {**config, "head_dim": head_dim} if head_dim else config


CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": _config("qwen2", 896, 24, 14, 2, 4864, 151936, True),
    "Qwen2.5-1.5B": _config("qwen2", 1536, 28, 12, 2, 8960, 151936, True),
    "Qwen2.5-7B": _config("qwen2", 3584, 28, 28, 4, 18944, 152064, False),
    "Qwen2.5-14B": _config("qwen2", 5120, 48, 40, 8, 13824, 152064, False),
    "Qwen2.5-32B": _config("qwen2", 5120, 64, 40, 8, 27648, 152064, False),
    "Qwen3-0.6B": _config("qwen3", 1024, 28, 16, 8, 3072, 151936, True, 128),
    "Qwen3-8B": _config("qwen3", 4096, 36, 32, 8, 12288, 151936, False, 128),
    "Llama-3.2-3B": _config("llama", 3072, 28, 24, 8, 8192, 128256, True, 128),
    "Llama-3.1-8B": _config("llama", 4096, 32, 32, 8, 14336, 128256, False),
    "Mistral-7B-v0.3": _config("mistral", 4096, 32, 32, 8, 14336, 32768, False),
    "Phi-3.5-mini": _config("phi3", 3072, 32, 32, 32, 8192, 32064, False),
    "SmolLM2-135M": _config("llama", 576, 30, 9, 3, 1536, 49152, True),
    "SmolLM3-3B": _config("smollm3", 2048, 36, 16, 4, 11008, 128256, True),
    "Gemma-2-2B": _config("gemma2", 2304, 26, 8, 4, 9216, 256000, True, 256),
    "Gemma-3-1B": _config("gemma3_text", 1152, 26, 4, 1, 6912, 262144, True, 256),
    "OLMo-2-7B": _config("olmo2", 4096, 32, 32, 32, 11008, 100352, False),
    "Qwen3-30B-A3B": {
        **_config("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, False, 128),
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}

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
