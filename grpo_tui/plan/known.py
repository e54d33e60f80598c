"""Shapes of well-known models, for planning without the hub: what their config.json says, by the name of the family.

The figures are those of the published config.json files; the counts made from them are tested against modules of
transformers. A model that is on this machine is read from its files instead.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grpo_tui.plan.model import ModelFacts
from grpo_tui.plan.shape import read_shape
from grpo_tui.problem import Problem


def _config(
    model_type: str, hidden: int, layers: int, heads: int, kv: int, width: int, vocab: int, tied: bool,
    head_dim: int = 0, context: int = 32768,
) -> Mapping[str, Any]:  # fmt: skip
    config: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": width,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "max_position_embeddings": context,
    }
    return MappingProxyType({**config, "head_dim": head_dim} if head_dim else config)


CONFIGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Qwen2.5-0.5B": _config("qwen2", 896, 24, 14, 2, 4864, 151936, True),
        "Qwen2.5-1.5B": _config("qwen2", 1536, 28, 12, 2, 8960, 151936, True),
        "Qwen2.5-3B": _config("qwen2", 2048, 36, 16, 2, 11008, 151936, True),
        "Qwen2.5-7B": _config("qwen2", 3584, 28, 28, 4, 18944, 152064, False),
        "Qwen2.5-14B": _config("qwen2", 5120, 48, 40, 8, 13824, 152064, False),
        "Qwen2.5-32B": _config("qwen2", 5120, 64, 40, 8, 27648, 152064, False),
        "Qwen2.5-72B": _config("qwen2", 8192, 80, 64, 8, 29568, 152064, False),
        "Qwen3-0.6B": _config("qwen3", 1024, 28, 16, 8, 3072, 151936, True, 128, 40960),
        "Qwen3-1.7B": _config("qwen3", 2048, 28, 16, 8, 6144, 151936, True, 128, 40960),
        "Qwen3-4B": _config("qwen3", 2560, 36, 32, 8, 9728, 151936, True, 128, 40960),
        "Qwen3-8B": _config("qwen3", 4096, 36, 32, 8, 12288, 151936, False, 128, 40960),
        "Qwen3-14B": _config("qwen3", 5120, 40, 40, 8, 17408, 151936, False, 128, 40960),
        "Qwen3-32B": _config("qwen3", 5120, 64, 64, 8, 25600, 151936, False, 128, 40960),
        "Llama-3.2-1B": _config("llama", 2048, 16, 32, 8, 8192, 128256, True, 64, 131072),
        "Llama-3.2-3B": _config("llama", 3072, 28, 24, 8, 8192, 128256, True, 128, 131072),
        "Llama-3.1-8B": _config("llama", 4096, 32, 32, 8, 14336, 128256, False, 0, 131072),
        "Llama-3.1-70B": _config("llama", 8192, 80, 64, 8, 28672, 128256, False, 0, 131072),
        "Mistral-7B-v0.3": _config("mistral", 4096, 32, 32, 8, 14336, 32768, False),
        "Phi-3.5-mini": _config("phi3", 3072, 32, 32, 32, 8192, 32064, False, 0, 131072),
        "SmolLM2-135M": _config("llama", 576, 30, 9, 3, 1536, 49152, True, 0, 8192),
        "SmolLM2-360M": _config("llama", 960, 32, 15, 5, 2560, 49152, True, 0, 8192),
        "SmolLM2-1.7B": _config("llama", 2048, 24, 32, 32, 8192, 49152, True, 0, 8192),
        "SmolLM3-3B": _config("smollm3", 2048, 36, 16, 4, 11008, 128256, True, 0, 65536),
        "Gemma-2-2B": _config("gemma2", 2304, 26, 8, 4, 9216, 256000, True, 256, 8192),
        "Gemma-3-1B": _config("gemma3_text", 1152, 26, 4, 1, 6912, 262144, True, 256),
        "OLMo-2-7B": _config("olmo2", 4096, 32, 32, 32, 11008, 100352, False, 0, 4096),
        "Qwen3-30B-A3B": MappingProxyType(
            {
                **_config("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, False, 128, 40960),
                "num_experts": 128,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 768,
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
            }
        ),
    }
)

_VARIANT = re.compile(r"-(instruct|base|it|pt|chat|\d{4})(?=-|$)|^meta-|-hf$")
"""What names a variant of the same shape: trained otherwise, or released at another date."""


def _plain(name: str) -> str:
    """The name in the spelling in which variants of one shape are equal."""
    short = name.rpartition("/")[2].casefold()
    return re.sub(r"^olmo-2-\d{4}", "olmo-2", _VARIANT.sub("", short))


_BY_PLAIN = MappingProxyType({_plain(name): name for name in CONFIGS})


def known_model(name: str) -> ModelFacts | None:
    """The facts of a model of the table by its hub id, such as `Qwen/Qwen2.5-7B-Instruct`; None: it is not there."""
    known = _BY_PLAIN.get(_plain(name))
    if known is None:
        return None
    shape = read_shape(CONFIGS[known])
    if isinstance(shape, Problem):
        raise AssertionError(f"{known}: {shape}")  # a row of the table above is broken, which a test would show
    return ModelFacts(
        name=name,
        folder=Path(),
        commit="",
        shape=shape,
        weight_bytes=0,
        chat_template=True,
        tokenizer=False,
        end_tokens=(),
        notes=(*shape.notes, f"Its figures are those that grpo-tui knows of {known}; nothing was read from the hub."),
    )
