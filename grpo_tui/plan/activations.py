"""What comes and goes in a forward or backward pass, in closed form: layers, their recomputation, and the output head.

Bytes per token for each unit of width, read off a FakeTensor trace of transformers 5.24, PEFT 0.21 and TRL 1.16 (sdpa
with a padding mask, 16-bit values, adapters of rank 16 on all linear layers), where most follow from the code: a norm
keeps its input in float32, attention its repeated keys and values, a gated layer four times its width.
"""

from collections.abc import Mapping

from grpo_tui.plan.shape import ModelShape
from grpo_tui.plan.sharding import Part

Row = tuple[float, float, float, float]
"""Bytes per token, for each unit of (intermediate, hidden, attention, key-value) width."""

_KEPT: Mapping[tuple[str, str], Row] = {
    ("llama", "full"): (8, 16, 8.06, 0),
    ("llama", "lora"): (8, 18, 10.08, 0.02),
    ("llama", "qlora"): (8, 12, 8.06, 0),
    ("qwen3", "full"): (8, 16, 14.12, 6.06),
    ("qwen3", "lora"): (8, 18, 14.14, 4.08),
    ("qwen3", "qlora"): (8, 12, 12.12, 4.06),
    ("gemma3", "full"): (8, 36, 16.12, 8.06),
    ("gemma3", "lora"): (8, 26, 14.14, 4.08),
    ("gemma3", "qlora"): (8, 20, 12.12, 4.06),
    ("olmo2", "full"): (8, 28, 8.06, 8),
    ("olmo2", "lora"): (8, 22, 10.08, 4.02),
    ("olmo2", "qlora"): (8, 16, 8.06, 4),
    ("phi3", "full"): (8, 18, 8.06, 0),
    ("phi3", "lora"): (8, 12, 10.08, 0.02),
    ("phi3", "qlora"): (8, 14, 8.06, 0),
}
"""What one layer keeps for its backward pass, its input but for the norm's copy not counted."""

# In the backward pass one of two moments is the fullest: in the gated layer, where for a moment the gradient of a
# weight or an unpacked weight is there too, or in the norms after it.
_GATED: Mapping[tuple[str, str], Row] = {
    ("llama", "full"): (4, 2, 0, 0),
    ("llama", "lora"): (6.02, 10.05, 0, 0),
    ("llama", "qlora"): (4, 2, 0, 0),
    ("gemma3", "full"): (4, -2, 0, 0),
    ("gemma3", "lora"): (6.02, 12.06, 0, 0),
    ("gemma3", "qlora"): (4, 1, 0, 0),
    ("olmo2", "full"): (4, -6, 0, 0),
    ("olmo2", "qlora"): (4, -2, 0, 0),
}
_NORMS: Mapping[tuple[str, str], Row] = {
    ("gemma3", "full"): (0, 18, 0, 0),
    ("gemma3", "qlora"): (0, 22, 0, 0),
    ("olmo2", "full"): (0, 26, -12.06, 0),
    ("olmo2", "qlora"): (0, 29, -10.06, 0),
}

_FORWARD: Mapping[tuple[str, str], Row] = {
    ("llama", "full"): (6, 7.5, 0, 0),
    ("llama", "lora"): (8, 11, 0, 0),
    ("llama", "qlora"): (8, 7, 0, 0),
    ("phi3", "full"): (8, 7.5, 0, 0),
    ("phi3", "lora"): (12, 11.3, 0, 0),
    ("phi3", "qlora"): (12, 7.4, 0, 0),
}
"""What one layer works on where nothing is kept."""

_TILE_TOKENS, _TILE_VOCAB = 4096, 32768  # the tile of trl's chunked head


def activation_parts(
    shape: ModelShape,
    method: str,
    *,
    batch: int,
    prompt: int,
    completion: int,
    rank: int = 16,
    checkpointing: bool = True,
    padding_mask: bool = True,
    bytes_per_value: int = 2,
    head: Part | None = None,
) -> tuple[Part, Part]:
    """What a micro-step of `batch` sequences holds beside the static part: saved between layers, and at the peak
    itself.

    `prompt` and `completion` are tokens, padded to their maximum. `head`: the output head where it works otherwise
    than in tiles.
    """
    length = prompt + completion
    tokens, targets = batch * length, batch * completion
    scale = bytes_per_value / 2
    # Of the mask every layer makes its own copy in the type of the values; one of truth values is there for all.
    mask, masks = (batch * length**2, 2 * batch * length**2) if padding_mask else (0, 0)
    kept = scale * tokens * _per_token(shape, _KEPT, method) + scale * tokens * _attention(shape) + masks
    if method == "lora":  # autocast makes 16-bit copies of the adapters, which the backward pass needs
        kept += 2 * shape.adapter_parameters(rank) / shape.layers
    gated = scale * tokens * _per_token(shape, _GATED, method) + _weight(shape, method, tokens)
    norms = scale * tokens * _per_token(shape, _NORMS, method, default=(0, 0, 0, 0))
    backward = max(gated, norms)
    head = head or tiled_head(shape, method, tokens, targets, bytes_per_value)
    if checkpointing:
        saved, layer = shape.layers * bytes_per_value * tokens * shape.hidden, kept + backward + mask
    else:
        saved, layer = int(shape.layers * kept + mask), backward
    at_work = Part("one layer", int(layer), "recomputed in the backward pass" if checkpointing else "its backward pass")
    return (
        Part(
            "activations", int(saved), f"{batch} × {length} tokens × {shape.layers} layers, kept for the backward pass"
        ),
        at_work if at_work.bytes > head.bytes else head,
    )


def forward_part(
    shape: ModelShape, method: str, *, batch: int, length: int, rank: int = 16, bytes_per_value: int = 2
) -> int:
    """Bytes that one layer works on in a pass without gradients over `batch` sequences of `length` tokens."""
    layer = bytes_per_value / 2 * batch * length * _per_token(shape, _FORWARD, method) + 3 * batch * length**2
    return int(layer) + (2 * shape.adapter_parameters(rank) if method == "lora" else 0)


def _per_token(
    shape: ModelShape, table: Mapping[tuple[str, str], Row], method: str, default: Row | None = None
) -> float:
    row = table.get((shape.family, method), default) or table["llama", method]
    widths = (shape.intermediate, shape.hidden, shape.attention, shape.key_value)
    return sum(each * width for each, width in zip(row, widths, strict=True))


def _attention(shape: ModelShape) -> int:
    """Where keys and values are not repeated, or one repeated for all is a view; bytes per token."""
    if shape.kv_heads == 1 < shape.heads:
        return 4 * (shape.key_value - shape.attention)
    if shape.family == "phi3" and shape.kv_heads == shape.heads:  # the values are a view that keeps the whole matrix
        return 4 * shape.key_value
    return 0


def _weight(shape: ModelShape, method: str, tokens: int) -> float:
    """A weight's gradient, or its unpacked values, as far as it is larger than the tokens' values that have gone."""
    if method == "lora":
        return 0.0
    if shape.family == "phi3":  # gate and up projection are one matrix
        return max(0.0, 4 * shape.intermediate * (shape.hidden - 1.8 * tokens))
    return max(0.0, 2.0 * shape.intermediate * (shape.hidden - tokens))


def tiled_head(
    shape: ModelShape, method: str, tokens: int, targets: int, bytes_per_value: int = 2, *, gradients: bool = True
) -> Part:
    """The output head of TRL 1.15 and newer over `tokens` tokens, `targets` of them completions."""
    size = min(targets, _TILE_TOKENS) * _TILE_VOCAB * bytes_per_value
    size += (8 * targets + 6 * tokens if gradients else 2 * (targets + tokens)) * shape.hidden
    if method == "full" and gradients:
        size += 6 * shape.vocab * shape.hidden  # the head's gradient in float32 and its cast
    return Part("output head", size, "log-probabilities, tile by tile")
