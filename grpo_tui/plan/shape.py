"""The figures of a decoder, and its parameters in closed form, from the content of its `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_tui.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Family:
    """What an architecture adds to the common decoder layer. Counted on the modules of transformers 5.24."""

    memory: str = "llama"
    """Row of the tables in `grpo_tui.plan.activations`."""

    attention_bias: bool = False
    """Query, key and value projections have a bias."""

    query_key_norm: str = ""
    """`head`: a norm of head_dim for queries and for keys; `full`: over all heads; empty: none."""

    norms: int = 2
    """RMS norms of hidden size per layer."""

    fused: bool = False
    """Query, key and value are one matrix, and so are gate and up projection (matters for LoRA's size)."""

    tied: bool = False
    """Input and output embedding are one matrix when the configuration does not say."""

    traced: bool = True
    """Its activations were compared with a trace of the module."""

    exact: bool = True
    """The closed form of the parameter count was compared with the instantiated module."""


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(attention_bias=True),
    "qwen3": Family(memory="qwen3", query_key_norm="head"),
    "qwen3_moe": Family(memory="qwen3", query_key_norm="head"),
    "smollm3": Family(tied=True),
    "phi3": Family(memory="phi3", fused=True),
    "gemma2": Family(memory="gemma3", norms=4, tied=True, traced=False),
    "gemma3_text": Family(memory="gemma3", query_key_norm="head", norms=4, tied=True),
    "olmo2": Family(memory="olmo2", query_key_norm="full"),
}
_UNKNOWN_FAMILY = Family(
    tied=True, exact=False, traced=False
)  # transformers ties embeddings unless the class says otherwise

# Spellings of the same figure in config.json.
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim", "hidden_dim")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERT_SIZE = ("moe_intermediate_size",)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The figures of a decoder that memory and checks depend on."""

    model_type: str
    family: str
    """Row of the tables in `grpo_tui.plan.activations`."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Width of the feed-forward part that one token passes through (all experts used, for mixtures)."""

    vocab: int
    tied: bool
    context: int
    """Longest sequence the model was made for, in tokens; 0: not said."""

    dtype: str
    """Number type of the saved weights, as config.json says; empty: not said."""

    parameters: int
    linear: int
    """Parameters in linear layers but the output head: what 4-bit loading packs."""

    adapter_rank1: int
    """Parameters of a LoRA adapter of rank 1 on all linear layers."""

    windows: tuple[int, ...] = ()
    """Per layer, how many tokens its attention keeps; 0: all of them; -1: none (linear attention)."""

    experts: int = 0
    multimodal: bool = False
    quantized: str = ""
    """How the saved weights are quantised; empty: they are not."""

    estimate: bool = False
    """The counts follow the nearest known architecture rather than this one."""

    exact_parameters: bool = False
    """The parameter count was read from the weights' own headers."""

    notes: tuple[str, ...] = ()

    @property
    def attention(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def key_value(self) -> int:
        """Width of all key heads together."""
        return self.kv_heads * self.head_dim

    def adapter_parameters(self, rank: int) -> int:
        """Parameters of a LoRA adapter of `rank` on all linear layers."""
        return rank * self.adapter_rank1

    @property
    def nf4_bytes(self) -> int:
        """Bytes of the weights loaded in 4 bit with double quantisation, the rest in bf16 (0.5159 bytes a packed
        parameter)."""
        return int(2 * (self.parameters - self.linear) + self.linear * (0.5 + 1 / 64 + 4 / 64 / 256))

    def kv_bytes(self, sequences: int, tokens: int, bytes_per_value: int = 2) -> int:
        """Bytes of the key-value cache of `sequences` sequences of `tokens` tokens; a window keeps only its own."""
        windows = self.windows or (0,) * self.layers
        kept = sum(0 if window < 0 else min(tokens, window) if window else tokens for window in windows)
        return 2 * bytes_per_value * self.key_value * kept * sequences


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def whole(value: Any) -> int:
    """`value` where it is a whole number above 0, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def read_shape(config: Mapping[str, Any]) -> ModelShape | Problem:
    """The shape that the content of a `config.json` describes; of a multimodal model, its text part."""
    text = config.get("text_config")
    multimodal = isinstance(text, Mapping)
    inner: Mapping[str, Any] = {**config, **text} if isinstance(text, Mapping) else config
    if isinstance(text, Mapping):
        inner = {**inner, "tie_word_embeddings": text.get("tie_word_embeddings", config.get("tie_word_embeddings"))}
    model_type = str(inner.get("model_type") or "unknown")
    if config.get("is_encoder_decoder"):
        return Problem(
            "model",
            f"`{model_type}` is an encoder-decoder model; GRPO trains decoders that continue a text.",
            "Choose a causal language model.",
        )
    figures = {
        "hidden size": whole(_first(inner, _HIDDEN)),
        "number of layers": whole(_first(inner, _LAYERS)),
        "number of attention heads": whole(_first(inner, _HEADS)),
        "vocabulary size": whole(inner.get("vocab_size")),
    }
    missing = [name for name, figure in figures.items() if not figure]
    if missing:
        return Problem(
            "config.json",
            f"It names no {' and no '.join(missing)}, so it does not describe a causal language model.",
            "Choose the folder or hub id of a causal language model.",
        )
    hidden, layers, heads, vocab = figures.values()
    kv_heads = whole(_first(inner, _KV_HEADS)) or heads
    head_dim = whole(inner.get("head_dim")) or hidden // heads
    width = whole(_first(inner, _INTERMEDIATE)) or 4 * hidden
    known = FAMILIES.get(model_type)
    family = known or _UNKNOWN_FAMILY
    tied = inner.get("tie_word_embeddings")
    tied = family.tied if tied is None else bool(tied)
    attention, key_value = heads * head_dim, kv_heads * head_dim
    gated = model_type not in ("gpt2", "gpt_neox", "opt", "bloom", "phi", "falcon")

    experts = whole(_first(inner, _EXPERTS))
    expert_width = whole(_first(inner, _EXPERT_SIZE)) or width
    matrices = 3 if gated else 2
    attention_linear = hidden * (2 * attention + 2 * key_value)
    dense_linear = matrices * hidden * width
    expert_parameters = shared_parameters = active = 0
    if experts:
        used = whole(_first(inner, ("num_experts_per_tok", "experts_per_token"))) or 1
        shared = (
            whole(inner.get("shared_expert_intermediate_size")) or whole(inner.get("n_shared_experts")) * expert_width
        )
        expert_parameters = experts * 3 * hidden * expert_width + experts * hidden
        shared_parameters = 3 * hidden * shared
        active = used * expert_width + shared
    step = whole(inner.get("decoder_sparse_step")) or 1
    plain_listed = inner.get("mlp_only_layers")
    plain_layers = set(plain_listed) if isinstance(plain_listed, list) else set()
    dense_first = whole(inner.get("first_k_dense_replace"))
    sparse = [experts > 0 and i >= dense_first and i not in plain_layers and (i + 1) % step == 0 for i in range(layers)]
    sparse_layers, dense_layers = sum(sparse), layers - sum(sparse)

    norms = family.norms * hidden
    norms += {"head": 2 * head_dim, "full": attention + key_value, "": 0}[family.query_key_norm]
    biases = attention + 2 * key_value if family.attention_bias or inner.get("attention_bias") else 0
    if inner.get("attention_bias") and not family.attention_bias:
        biases += hidden  # the output projection has one too where the configuration asks for biases
    embeddings = vocab * hidden * (1 if tied else 2)
    if not gated:  # learned positions, biases everywhere and two-sided norms
        norms, biases = 4 * hidden, attention + 2 * key_value + 2 * hidden + width
        embeddings += (whole(_first(inner, _CONTEXT)) or 0) * hidden
    parameters = (
        embeddings
        + layers * (attention_linear + norms + biases)
        + dense_layers * dense_linear
        + sparse_layers * (expert_parameters + shared_parameters)
        + hidden
    )
    # Experts are three-dimensional parameters in transformers 5, which neither bitsandbytes nor `all-linear` reaches.
    linear = layers * attention_linear + dense_layers * dense_linear + sparse_layers * shared_parameters
    if family.fused:
        attention_rank1 = (hidden + attention + 2 * key_value) + (attention + hidden)
        dense_rank1 = (hidden + 2 * width) + (width + hidden)
    else:
        attention_rank1 = (hidden + attention) + 2 * (hidden + key_value) + (attention + hidden)
        dense_rank1 = matrices * (hidden + width)
    adapter_rank1 = layers * attention_rank1 + dense_layers * dense_rank1
    notes = []
    if known is None:
        notes.append(
            f"Architecture `{model_type}` is not in our table: counts are estimated as for a Llama of this size."
        )
    if experts:
        notes.append(
            f"A mixture of {experts} experts: memory is an estimate, and neither LoRA on all linear layers nor 4-bit"
            f" loading"
            " reaches the experts."
        )
    if multimodal:
        notes.append("A multimodal model: its text part is planned for.")
    quantization = config.get("quantization_config")
    quantized = ""
    if isinstance(quantization, Mapping):
        quantized = str(quantization.get("quant_method") or "unknown")
        notes.append(f"The saved weights are quantised ({quantized}): only a LoRA adapter can be trained on them.")
    return ModelShape(
        model_type=model_type,
        family=family.memory,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=max(active, width if dense_layers else 0),
        vocab=vocab,
        tied=tied,
        context=whole(_first(inner, _CONTEXT)),
        dtype=str(
            inner.get("dtype") or inner.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype") or ""
        ),
        parameters=parameters,
        linear=linear,
        adapter_rank1=adapter_rank1,
        windows=_windows(inner, layers, model_type),
        experts=experts,
        multimodal=multimodal,
        quantized=quantized,
        estimate=not (family.exact and family.traced) or experts > 0 or multimodal,
        notes=tuple(notes),
    )


def _windows(config: Mapping[str, Any], layers: int, model_type: str) -> tuple[int, ...]:
    """How many tokens each layer's attention keeps; see `ModelShape.windows`."""
    window = whole(config.get("sliding_window"))
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        kept = {"sliding_attention": window, "linear_attention": -1}
        return tuple(kept.get(str(kind), 0) for kind in kinds)
    if not window or config.get("use_sliding_window") is False:
        return ()
    if model_type in ("gemma2", "gemma3_text"):  # every second layer, and five of six, look at a window
        pattern = whole(config.get("sliding_window_pattern")) or (2 if model_type == "gemma2" else 6)
        return tuple(0 if (i + 1) % pattern == 0 else window for i in range(layers))
    return (window,) * layers if model_type == "mistral" else ()
