"""What several processes divide among one another, and what that costs each of them for a moment.

The formulas are those of the ZeRO paper (arXiv 1910.02054) and of PyTorch's fully_shard. They were not measured here,
so a prediction with them is called an estimate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_tui.plan.shape import ModelShape

STRATEGIES = ("ddp", "fsdp2", "zero1", "zero2", "zero3")
"""How training is spread over several processes; `ddp` gives each of them everything."""

_STATES = frozenset({"optimizer", "master weights"})
_ALL = _STATES | {"gradients", "weights", "adapter", "reference", "autocast copy"}

DIVIDED: Mapping[str, frozenset[str]] = {
    "ddp": frozenset(),
    "zero1": _STATES,
    "zero2": _STATES | {"gradients"},
    "zero3": _ALL,
    "fsdp2": _ALL,
}
"""Which parts of the static memory each process has only its share of."""

_REDUCE_BUCKET = 500_000_000
"""Gradients that DeepSpeed sends at a time: its default `reduce_bucket_size`, in elements."""


@dataclass(frozen=True)
class Part:
    """One share of a phase's memory."""

    name: str
    bytes: int
    what: str


def gathers(strategy: str) -> bool:
    """Do the weights lie scattered over the processes, so that each layer is gathered before its turn?"""
    return "weights" in DIVIDED[strategy]


def divided(parts: Sequence[Part], strategy: str, world: int) -> tuple[Part, ...]:
    """`parts` as one of `world` processes holds them."""
    if world == 1:
        return tuple(parts)
    names = DIVIDED[strategy]
    return tuple(
        replace(part, bytes=-(-part.bytes // world), what=f"{part.what}, divided by {world}") if part.name in names
        else part
        for part in parts
    )  # fmt: skip


def bucket(strategy: str, trained: int, width: int) -> Part | None:
    """What is kept for sending gradients around; `trained` parameters of `width` bytes. None: nothing to speak of."""
    if strategy == "ddp":
        return Part("gradient buckets", width * trained, "DDP's copy of the gradients")
    if strategy.startswith("zero"):
        return Part("gradient buckets", width * min(trained, _REDUCE_BUCKET), "what DeepSpeed sends at a time")
    return None


def gathered_layer(shape: ModelShape, weight_bytes: int) -> Part:
    """What is whole at a time where weights lie scattered: a layer, the one that is fetched meanwhile, and the head.

    `weight_bytes` is the size of all weights on one device.
    """
    width = weight_bytes / shape.parameters
    layer = shape.linear / shape.layers
    return Part(
        "gathered layer",
        int(width * (2 * layer + shape.vocab * shape.hidden)),
        "two layers and the output head, whole for a moment",
    )


def gathered_weights(weight_bytes: int, world: int) -> Part:
    """What generation needs under ZeRO-3 beside the own share: every weight (`ds3_gather_for_generation`)."""
    return Part("gathered weights", weight_bytes - -(-weight_bytes // world), "all of them, gathered to generate")
