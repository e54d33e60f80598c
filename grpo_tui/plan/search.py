"""The core of a plan, what memory depends on: method, number type, batch, checkpointing; searched until it fits."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from grpo_tui.draft import Draft
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.footing import Footing
from grpo_tui.plan.ladder import SHORTEST, climb
from grpo_tui.plan.memory import GIB, METHODS, predict
from grpo_tui.plan.situation import MEMORY_SHARE, Choice, Facts, Situation
from grpo_tui.problem import Problem

SMALL_PARAMETERS = 300_000_000
"""Below this, all weights are trained: an adapter would save little memory. Rule of thumb."""

PROMPTS_PER_STEP = 8
"""Prompts that one optimizer step should learn from; below 4 the gradient is very noisy. Rule of thumb."""

_PER_DEVICE = (32, 16, 8, 4, 2, 1)


def methods(draft: Draft, facts: Facts, gpu: bool, ampere: bool) -> list[tuple[str, str]] | Problem:
    """Methods to try in this order, each with its reason."""
    shape = facts.model.shape
    chosen = draft.model.method
    if chosen and chosen not in METHODS:
        return Problem("model", f"There is no method {chosen!r}.", f"Choose one of {', '.join(METHODS)}.")
    if shape.quantized:
        if chosen in ("full", "qlora"):
            return Problem(
                "model",
                f"The weights are saved quantised ({shape.quantized}), so {chosen} training cannot start from them.",
                "Choose LoRA, or the model's unquantised weights.",
            )
        return [("lora", "The saved weights are quantised: only an adapter can be trained on them.")]
    if chosen == "qlora":
        blocked = _no_four_bit(facts, gpu, ampere)
        if blocked:
            return Problem("model", blocked, "Choose LoRA, or mend that first.")
    if chosen:
        return [(chosen, "You chose it.")]
    found = [("lora", "An adapter takes a fraction of the memory and learns as well in RL (TRL's PEFT guide).")]
    if not _no_four_bit(facts, gpu, ampere):
        found.append(("qlora", "The model fits the card only in 4 bit."))
    if shape.parameters < SMALL_PARAMETERS:
        found.insert(0, ("full", "The model is small: an adapter would save little."))
    return found


def _no_four_bit(facts: Facts, gpu: bool, ampere: bool) -> str:
    """Why loading in 4 bit is not possible; empty: it is."""
    if not gpu:
        return "Loading in 4 bit (QLoRA) needs an NVIDIA GPU."
    if "bitsandbytes" not in facts.packages:
        return "Loading in 4 bit (QLoRA) needs the package bitsandbytes, which is not installed."
    if not ampere:
        # TRL 1.16 casts adapters of a 4-bit model to bfloat16, whose gradients float16's loss scaling cannot handle.
        return "QLoRA needs a GPU with bfloat16, compute capability 8.0 or newer."
    return ""


def _dtypes(method: str, gpu: bool, ampere: bool) -> tuple[str, ...]:
    if not gpu:
        return ("float32",)
    if method == "full":  # float32 first: bfloat16 alone rounds steps of 1e-6 away
        return ("float32", "bfloat16") if ampere else ("float32",)
    return ("bfloat16",) if ampere else ("float16",)


def completion(facts: Facts, given: Mapping[str, Choice], prompt: int) -> tuple[int, str] | Problem:
    """Longest completion, and why."""
    wanted = given.get("grpo.max_completion_length")
    context = facts.model.shape.context
    if wanted is not None and wanted.value is not None:
        if isinstance(wanted.value, bool) or not isinstance(wanted.value, int) or wanted.value < 1:
            return Problem(
                "grpo.max_completion_length", f"{wanted.value!r} is no number of tokens.", "Write one, such as 512."
            )
        if context and prompt + wanted.value > context:
            ways = [f"Set it to {context - prompt} or less"] if context > prompt else []
            if context > wanted.value:
                limit = f"leave out prompts of more than {context - wanted.value} tokens (Longest, in the dataset step)"
                ways.append(limit if ways else limit.capitalize())
            return Problem(
                "grpo.max_completion_length",
                f"A prompt of {prompt} tokens and a completion of {wanted.value} do not fit the model's {context}.",
                f"{', or '.join(ways) or 'Set it far lower'}.",
            )
        return wanted.value, wanted.why
    if context and context - prompt < 512:
        if context <= prompt:
            return Problem(
                "data",
                f"The longest prompt has {prompt} tokens and the model reads {context}.",
                f"Leave out the long ones: a limit of {context * 3 // 4} tokens would leave room for a completion"
                " (Longest, in the dataset step; --max-prompt-tokens).",
            )
        return context - prompt, f"What the model's {context} tokens leave beside the longest prompt ({prompt})."
    return 512, "TRL's default. Raise it when many completions are cut off (clipped share)."


def batches(given: Mapping[str, Choice], world: int, rows: int | None, speed: bool) -> Iterator[Batch]:
    """Legal batches around what is given, in the order in which they are wanted."""

    def number(key: str) -> int | None:
        choice = given.get(f"grpo.{key}")
        return choice.value if choice is not None and isinstance(choice.value, int) else None

    generations = number("num_generations") or 8
    fixed_device, fixed_accumulation = number("per_device_train_batch_size"), number("gradient_accumulation_steps")
    fixed_steps, fixed_size = number("steps_per_generation"), number("generation_batch_size")
    iterations = number("num_iterations") or 1
    target = PROMPTS_PER_STEP if rows is None else max(1, min(PROMPTS_PER_STEP, rows))
    for per_device in (fixed_device,) if fixed_device else _PER_DEVICE:
        micro = per_device * world
        if not fixed_device and micro > generations * target:
            continue
        if fixed_accumulation:
            accumulations: Iterable[int] = (fixed_accumulation,)
        else:
            least = -(-generations * target // micro)
            accumulations = (n for n in range(least, least + generations + 1) if micro * n % generations == 0)
        accumulation = next(iter(accumulations), None)
        if accumulation is None:
            continue
        if fixed_size:
            lengths = [fixed_size // micro] if fixed_size % micro == 0 else []
        elif "grpo.steps_per_generation" in given:  # unset, it is the accumulation
            lengths = [fixed_steps or accumulation]
        else:  # all at once is fastest; in parts that still hold whole groups, the cache is smaller
            parts = [n for n in range(1, accumulation + 1) if accumulation % n == 0 and micro * n % generations == 0]
            lengths = sorted(parts, reverse=speed)
        for steps in lengths:
            batch = Batch(
                per_device=per_device,
                world=world,
                accumulation=accumulation,
                generations=generations,
                steps_per_generation=steps,
                iterations=iterations,
            )
            if batch.generation_batch % generations == 0:
                yield batch


def _core_settings(given: Mapping[str, Choice], core: Situation) -> dict[str, Any]:
    """The fields of GRPOConfig that memory depends on."""
    settings: dict[str, Any] = {
        **core.batch.settings(),
        "max_completion_length": core.completion,
        "activation_checkpointing": core.checkpointing,
        "optim": core.optim,
        "bf16": core.bf16,
        "fp16": bool(core.cards) and not core.bf16,
    }
    names = ("beta", "optim", "bf16", "fp16", "activation_checkpointing", "gradient_checkpointing")
    settings |= {name: given[f"grpo.{name}"].value for name in names if f"grpo.{name}" in given}
    return settings


def _cores(base: Situation, methods: Iterable[tuple[str, str]]) -> Iterator[Situation]:
    """Situations in the order in which they are wanted, each with its memory."""
    given, facts = base.given, base.facts
    gpu, ampere = bool(base.cards), base.bf16
    rank = base.wanted("lora.r", 16)
    small = base.parameters < 1_000_000_000
    without = (False, True) if base.speed and small and gpu else (True,)
    for method, why in methods:
        for dtype in (base.given["model.dtype"].value,) if "model.dtype" in given else _dtypes(method, gpu, ampere):
            for checkpointing in without:
                for batch in batches(given, base.world, facts.rows, base.speed):
                    eight_bit = method == "full" and not base.speed and gpu and "bitsandbytes" in facts.packages
                    core = replace(
                        base,
                        method=method,
                        method_why=why,
                        dtype=dtype,
                        batch=batch,
                        checkpointing=checkpointing,
                        optim="adamw_8bit" if eight_bit else "adamw_torch_fused",
                    )
                    memory = predict(
                        facts.model.shape,
                        method,
                        _core_settings(given, core),
                        core.world,
                        prompt_tokens=core.prompt,
                        rank=int(rank) if isinstance(rank, int) else 16,
                        dtype=dtype,
                        cpu=core.cpu,
                        strategy=core.strategy,
                        trl=facts.schema.versions.get("trl", ""),
                        overhead=facts.overhead,
                    )
                    yield replace(core, memory=memory)


def pick(base: Situation, methods: list[tuple[str, str]], *, fixed: bool = False) -> Situation | None:
    """The first situation that fits; with memory preferred, of its method the first that leaves room.

    Where none fits and several GPUs train, their memory is put together (FSDP2), unless the strategy is `fixed`.
    """
    if not base.available:
        return next(_cores(base, methods), None)
    found = _pick(base, methods)
    if found is None and not fixed and base.cards and base.world > 1:
        whole = [one for one in methods if one[0] != "qlora"]  # weights in 4 bit cannot be scattered
        return _pick(replace(base, strategy="fsdp2"), whole)
    return found


def _pick(base: Situation, methods: list[tuple[str, str]]) -> Situation | None:
    for one in methods:
        fitting = [core for core in _cores(base, [one]) if core.memory.fits(base.available)]
        roomy = [core for core in fitting if core.memory.peak_bytes <= MEMORY_SHARE * base.available]
        if fitting:
            smallest = min(fitting, key=lambda core: core.memory.peak_bytes)
            return fitting[0] if base.speed else (roomy[0] if roomy else smallest)
    return None


def too_large(base: Situation, methods: list[tuple[str, str]]) -> Problem:
    """Nothing fits: how much is missing, and the nearest change that fits."""
    tried = list(_cores(base, methods))
    if not tried:
        return Problem("settings", "No batch can be made of the values that are set.", "Let some of them be chosen.")
    least = min(tried, key=lambda core: core.memory.peak_bytes)
    needed, there = least.memory.needed(base.available) / GIB, base.available / GIB
    device = "main memory" if base.cpu else f"{base.cards[0].name or 'the GPU'}"
    reserve = 0 if base.cpu else base.cards[0].reserve_bytes
    left = f" beyond the {reserve / GIB:.1f} GiB that are left to the system" if reserve else ""
    what = (
        f"The smallest that was tried ({least.method}, batch {least.batch.per_device}, {base.completion} tokens) needs"
        f" {needed:.1f} GiB and {device} has {there:.1f} GiB free{left}."
    )
    rungs = climb(_footing(least))
    if rungs:
        lead = "This makes it fit" if len(rungs) == 1 else "Together these make it fit"
        return Problem("settings", what, f"{lead}: {'; '.join(map(str, rungs))}.")
    cheapest = _cheapest(base) / GIB
    return Problem("settings", what, f"Choose a smaller model, or a device with {cheapest:.0f} GiB free at the least.")


def _footing(core: Situation) -> Footing:
    """What a situation stands on, for the ladder."""
    given = {key.removeprefix("grpo."): each.value for key, each in core.given.items() if key.startswith("grpo.")}
    rank = core.wanted("lora.r", 16)
    return Footing(
        shape=core.facts.model.shape,
        method=core.method,
        settings={**given, **_core_settings(core.given, core)},
        prompt_tokens=core.prompt,
        world=core.world,
        strategy=core.strategy,
        rank=int(rank) if isinstance(rank, int) else 16,
        dtype=core.dtype,
        available_bytes=core.available,
        total_bytes=0 if core.cpu else min((card.total_bytes for card in core.cards if card.total_bytes), default=0),
        cpu=core.cpu,
        packages=core.facts.packages,
        trl=core.facts.schema.versions.get("trl", ""),
        overhead=core.facts.overhead,
    )


def _cheapest(base: Situation) -> int:
    """Bytes that a device must have free for the least that can be trained of this model."""
    given = {key: choice for key, choice in base.given.items() if key not in _FREED}
    smallest = replace(base, given=given, completion=min(base.completion, SHORTEST))
    ways = [(method, "") for method in ("lora", "qlora") if base.bf16 or method == "lora"]
    return min((core.memory.needed(base.available) for core in _cores(smallest, ways)), default=0)


_FREED = (
    "grpo.per_device_train_batch_size",
    "grpo.gradient_accumulation_steps",
    "grpo.steps_per_generation",
    "grpo.generation_batch_size",
    "grpo.beta",
    "model.dtype",
    "grpo.optim",
)
