"""How much memory a GRPO run takes, in closed form: no library is imported, nothing is loaded.

The formulas describe TRL 1.15 and newer, where log-probabilities are computed in tiles and logits are never
materialised (trl/kernels/chunked_logprob.py); `grpo_tui.plan.logits` says what older ones hold. Their coefficients
were read off a FakeTensor trace of transformers 5.24 and PEFT 0.21, which every phase of eleven models of eight
families meets within 2 % (tests/plan/test_oracle.py). What the allocator and the CUDA context add is published or
learnt (`grpo_tui.plan.overhead`): the least certain part, and given as an interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_tui.plan import sharding
from grpo_tui.plan.activations import activation_parts, forward_part, tiled_head
from grpo_tui.plan.logits import FRAGMENTATION as LOGITS_FRAGMENTATION
from grpo_tui.plan.logits import LOGITS, head_of, logits_parts
from grpo_tui.plan.overhead import PUBLISHED_OVERHEAD, Overhead
from grpo_tui.plan.shape import ModelShape
from grpo_tui.plan.sharding import Part

GIB = 2**30

METHODS = ("lora", "qlora", "full")
PHASES = ("load", "generate", "score", "train")

# Bytes of optimizer state per trained parameter, by the bytes of the parameter itself.
_ADAM_8BIT = 2.03
_OPTIMIZER_STATES: Mapping[str, float] = {"sgd": 0, "adafactor": 0.1}

_PYTHON_BYTES = int(0.6 * GIB)
"""A Python process with torch, transformers and TRL loaded: 557-619 MB resident."""

_MARGIN_SHARE, _MARGIN_BYTES = 0.03, GIB // 2


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The prediction for one device: steady state at maximum lengths. Bytes everywhere."""

    place: str
    """`GPU`, or `RAM` when training runs on the CPU."""

    parts_by_phase: Mapping[str, tuple[Part, ...]]
    interval: tuple[int, int]
    """Lowest and highest peak that is credible."""

    estimate: bool
    """The formulas were not made for this case: take the figures as an order of magnitude."""

    notes: tuple[str, ...]
    turn: tuple[str, ...]
    """What to turn to make the peak smaller, the strongest first."""

    remarks: tuple[str, ...] = ()
    """What moves the figures on this machine."""

    moving: tuple[Part, ...] = ()
    """Of `parts`, those that come and go."""

    @property
    def phases(self) -> dict[str, int]:
        """Bytes in use at the end of `load` and at the peak of `generate`, `score` and `train`."""
        return {phase: sum(part.bytes for part in self.parts_by_phase[phase]) for phase in PHASES}

    @property
    def peak_phase(self) -> str:
        phases = self.phases
        return max(PHASES, key=lambda phase: phases[phase])

    @property
    def peak_bytes(self) -> int:
        return max(self.phases.values())

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the phase that needs most."""
        return self.parts_by_phase[self.peak_phase]

    @property
    def dominant(self) -> str:
        """Name of the largest part of the peak."""
        return max(self.parts, key=lambda part: part.bytes).name

    def needed(self, available: int) -> int:
        """Bytes that must be free on a device of `available` bytes: the peak, and a margin for lengths that vary."""
        return self.peak_bytes + max(int(_MARGIN_SHARE * available), _MARGIN_BYTES)

    def fits(self, available: int) -> bool:
        """Whether the run fits a device with `available` free bytes, margin included."""
        return self.needed(available) <= available


def _bytes_of(dtype: str) -> int:
    return 4 if dtype in ("", "float32") else 2


def static_parts(
    shape: ModelShape,
    method: str,
    *,
    dtype: str = "bfloat16",
    rank: int = 16,
    optim: str = "adamw_torch_fused",
    beta: float = 0.0,
    autocast: bool = True,
    world: int = 1,
    strategy: str = "ddp",
) -> tuple[Part, ...]:
    """What stays allocated on one of `world` devices over the whole run: weights, gradients, optimizer states,
    reference, buckets of gradients.

    `strategy` is one of `sharding.STRATEGIES`.
    """
    # DeepSpeed trains 16-bit weights and keeps a float32 copy of what it trains (runtime/bf16_optimizer.py).
    master = world > 1 and autocast and strategy.startswith("zero")
    width = 2 if master else _bytes_of(dtype)
    weights = shape.nf4_bytes if method == "qlora" else width * shape.parameters
    trained = shape.parameters if method == "full" else shape.adapter_parameters(rank)
    # PEFT upcasts LoRA weights to float32; TRL casts those of a 4-bit model to bfloat16 (grpo_trainer.py, 1.16).
    trained_width = 2 if master else {"full": width, "lora": 4, "qlora": 2}[method]
    state_width = 8 if master else 2 * trained_width
    state = trained * (_ADAM_8BIT if "8bit" in optim else _OPTIMIZER_STATES.get(optim, state_width))
    parts = [
        Part(
            "weights",
            weights,
            f"{shape.parameters:,} parameters" + (" in 4 bit" if method == "qlora" else f" in {dtype}"),
        )
    ]
    if method != "full":
        parts.append(Part("adapter", trained_width * trained, f"LoRA of rank {rank}: {trained:,} parameters"))
    if method == "full" and width == 4 and autocast:
        parts.append(
            Part("autocast copy", 2 * shape.linear, "a 16-bit copy of each linear layer, cached in the forward pass")
        )
    parts.append(Part("gradients", trained_width * trained, "one per trained parameter"))
    parts.append(Part("optimizer", int(state), f"states of {optim}"))
    if master:
        parts.append(Part("master weights", 4 * trained, "float32, one per trained parameter"))
    if beta > 0 and method == "full":
        parts.append(Part("reference", weights, "a second copy of the model, because beta is above 0"))
    if world > 1 and (bucket := sharding.bucket(strategy, trained, trained_width)):
        parts.append(bucket)
    return tuple(part for part in sharding.divided(parts, strategy, world) if part.bytes)


def predict(
    shape: ModelShape,
    method: str,
    settings: Mapping[str, Any],
    world: int = 1,
    *,
    prompt_tokens: int,
    rank: int = 16,
    dtype: str = "bfloat16",
    cpu: bool = False,
    strategy: str = "ddp",
    trl: str = "",
    overhead: Overhead = PUBLISHED_OVERHEAD,
) -> Memory:
    """Memory of one device over a run of `method` (`lora`, `qlora`, `full`) with `settings`, fields of `GRPOConfig`,
    spread over `world` processes by `strategy`, one of `sharding.STRATEGIES`.

    `prompt_tokens` is the longest prompt; completions are taken at `max_completion_length`, the steady state after the
    first optimizer step (its states appear there, trl#2972). `dtype` is that of the loaded weights;
    `trl` is the version of TRL, empty for the newest; `overhead` is what a GPU holds beside tensors.
    """
    per_device = int(settings.get("per_device_train_batch_size") or 8)
    accumulation = int(settings.get("gradient_accumulation_steps") or 1)
    steps = int(settings.get("steps_per_generation") or 0)
    if not steps and settings.get("generation_batch_size"):
        steps = max(1, int(settings["generation_batch_size"]) // (per_device * world))
    steps = steps or accumulation
    completion = int(settings.get("max_completion_length") or 512)
    checkpointing = settings.get("activation_checkpointing", settings.get("gradient_checkpointing", True)) is not False
    beta = float(settings.get("beta") or 0.0)
    autocast = bool(settings.get("bf16") or settings.get("fp16"))
    width = 2 if autocast or (dtype not in ("", "float32") and not cpu) else 4

    static = static_parts(
        shape,
        method,
        dtype=dtype,
        rank=rank,
        optim=str(settings.get("optim") or "adamw_torch_fused"),
        beta=beta,
        autocast=autocast,
        world=world,
        strategy=strategy,
    )

    def spare(part: Part, of: Overhead = overhead) -> int:
        """What the allocator reserves beside a part that comes and goes."""
        return 0 if cpu else int((LOGITS_FRAGMENTATION if part.name == LOGITS else of.fragmentation) * part.bytes)

    scattered = world > 1 and sharding.gathers(strategy)
    micro_step: dict[str, Any] = {"batch": per_device, "prompt": prompt_tokens, "completion": completion}
    kept: dict[str, Any] = {**micro_step, "rank": rank, "checkpointing": checkpointing, "bytes_per_value": width}
    saved, peak = activation_parts(shape, method, **kept)
    length = prompt_tokens + completion
    generated = per_device * steps
    cache = int(
        shape.kv_bytes(generated, length, width) * (1 + 1 / shape.layers)
    )  # DynamicCache concatenates one layer
    sampling = 16 * generated * shape.vocab
    # The passes without gradients keep nothing: one layer at work, or one tile of the head.
    idle = {"rank": rank, "bytes_per_value": width}
    scoring = forward_part(shape, method, batch=per_device, length=length, **idle)
    tiles = tiled_head(shape, method, per_device * length, per_device * completion, width, gradients=False)
    forward = Part("forward pass", max(scoring, tiles.bytes), "one layer at work, or one tile of the head")
    prompts = shape.kv_bytes(generated, prompt_tokens, width)
    reading = prompts + forward_part(shape, method, batch=generated, length=prompt_tokens, **idle)
    remarks = []
    head = head_of(trl, fused=bool(settings.get("use_liger_kernel")))
    if head is not None:
        in_training, in_scoring = logits_parts(head, shape, method, **micro_step)
        tiled, peak = peak, activation_parts(shape, method, **kept, head=in_training)[1]
        forward = max(forward, in_scoring, key=lambda part: part.bytes)
        more = peak.bytes + spare(peak) - tiled.bytes - spare(tiled)
        if more > 0:
            remarks.append(
                f"TRL {trl} holds the logits: + {more / GIB:.1f} GiB in training. TRL 1.15 and newer does not."
            )

    resident = tuple(part for part in static if part.name not in ("gradients", "autocast copy"))
    if steps < accumulation:  # generating in the middle of an accumulation: gradients are there
        resident = tuple(part for part in static if part.name != "autocast copy")
    loaded = tuple(part for part in static if part.name in ("weights", "adapter", "reference"))
    whole = sum(part.bytes for part in static if part.name == "weights") * (world if scattered else 1)
    layer = (sharding.gathered_layer(shape, whole),) if scattered else ()
    to_generate = layer
    if scattered and strategy == "zero3" and settings.get("ds3_gather_for_generation", True):
        to_generate = (sharding.gathered_weights(whole, world),)
    process = (
        Part("Python and torch", _PYTHON_BYTES, "the process itself")
        if cpu
        else Part("CUDA and workspaces", overhead.context_bytes, "context, cuBLAS, what the driver keeps")
    )
    moving: dict[str, tuple[Part, ...]] = {
        "load": (),
        "generate": (
            Part("key-value cache", cache, f"{generated} sequences × {length} tokens"),
            Part("sampling", sampling, f"scores over {shape.vocab:,} tokens"),
            Part("prompts", max(0, reading - cache - sampling), "what reading them takes beyond that"),
        ),
        "score": (forward,),
        "train": (saved, peak),
    }
    held = {
        "load": loaded,
        "generate": (*resident, *to_generate),
        "score": (*resident, *layer),
        "train": (*static, *layer),
    }
    phases = {}
    for name in PHASES:
        unused = Part("allocator", sum(map(spare, moving[name])), "reserved but not in use")
        phases[name] = tuple(part for part in (*held[name], *moving[name], process, unused) if part.bytes)
    fullest = max(PHASES, key=lambda name: sum(part.bytes for part in phases[name]))
    largest = phases[fullest]
    total = sum(part.bytes for part in largest)
    beside = sum(part.bytes for part in largest if part.name in (process.name, "allocator"))
    allocated = total - beside
    if overhead.runs and not cpu:
        published = PUBLISHED_OVERHEAD.context_bytes + sum(spare(part, PUBLISHED_OVERHEAD) for part in moving[fullest])
        remarks.append(
            f"Overhead learnt from {overhead.runs} runs on this machine: {beside / GIB:.1f} GiB instead of"
            f" {published / GIB:.1f}."
        )
    uncertain = 0.05 * allocated + 0.25 * (total - allocated)
    notes = []
    shared_out = world > 1 and strategy != "ddp"
    estimate = shape.estimate or cpu or shared_out
    if cpu:
        notes.append("Made for GPUs: on the CPU the figure is an order of magnitude.")
    if shared_out:
        notes.append(f"What {strategy} divides is taken from its published formulas, not measured here.")
    if shape.estimate:
        notes.append("This architecture is estimated by its nearest relative.")
    return Memory(
        place="RAM" if cpu else "GPU",
        parts_by_phase=phases,
        interval=(int(total - uncertain), int(total + uncertain)),
        estimate=estimate,
        notes=tuple(notes),
        turn=_turn(largest, method, settings, per_device, checkpointing),
        remarks=tuple(remarks),
        moving=moving[fullest],
    )


def _turn(
    parts: tuple[Part, ...], method: str, settings: Mapping[str, Any], per_device: int, checkpointing: bool
) -> tuple[str, ...]:
    """What makes the largest parts of the peak smaller, the largest part first."""
    adapter_next = {"full": "train a LoRA adapter instead of all weights", "lora": "load the model in 4 bit (QLoRA)"}
    smaller_batch = (
        "halve per_device_train_batch_size and double gradient_accumulation_steps"
        if per_device > 1
        else "shorten max_completion_length"
    )
    ways: dict[str, str | None] = {
        "weights": adapter_next.get(method, "choose a smaller model"),
        "gathered weights": "set ds3_gather_for_generation = false, which generates slowly, or use vLLM",
        "master weights": adapter_next.get(method),
        "optimizer": adapter_next.get(method),
        "gradients": adapter_next.get(method),
        "autocast copy": "load the weights in bfloat16",
        "reference": "set beta = 0",
        "activations": smaller_batch if checkpointing else "turn activation_checkpointing on",
        "one layer": smaller_batch,
        "output head": smaller_batch,
        LOGITS: f"install TRL 1.15 or newer, which holds none; {smaller_batch}",
        "key-value cache": "lower steps_per_generation, or shorten max_completion_length",
        "sampling": "lower steps_per_generation",
        "prompts": "lower steps_per_generation",
    }
    ordered = sorted(parts, key=lambda part: -part.bytes)
    return tuple(dict.fromkeys(way for part in ordered if (way := ways.get(part.name))))[:3]
