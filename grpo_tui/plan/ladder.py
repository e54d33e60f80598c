"""What to give up, and in which order, when a configuration does not fit: each rung with the memory it frees.

Every rung keeps the completions that one optimizer step learns from, and the completions of a group. Those that change
only how the work is cut up stand first, then those that cost time, then those that change what is trained.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_tui.draft import Draft
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.footing import Footing
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.sharding import gathers
from grpo_tui.plan.vllm_share import share_of

Changes = Mapping[str, Any]

SHORTEST = 64
"""Completions are not cut below this many tokens: hardly any answer fits."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One change, and what it brings."""

    id: str
    title: str
    changes: Changes
    """Values by dotted key of `config.toml`, None to take a key out; `method` is the answer of the model step."""

    frees_bytes: int
    peak_bytes: int
    """With the change."""

    fits: bool | None
    """Whether it fits then; None: how much is free is not known."""

    why: str
    """What it does and what it costs, as one sentence."""

    needs: str = ""
    """A package that must be installed first; empty: none."""

    def __str__(self) -> str:
        """What to set, and what it frees; a phrase."""
        changes = ", ".join(map(_in_words, self.changes.items()))
        first = f", after pip install {self.needs}" if self.needs else ""
        return f"{changes} (frees {self.frees_bytes / GIB:.1f} GiB{first})"


_METHODS: Mapping[str, str] = {"lora": "a LoRA adapter", "qlora": "QLoRA (4 bit)"}


def _in_words(change: tuple[str, Any]) -> str:
    key, value = change
    if key == "method":
        return _METHODS.get(value, str(value))
    name = key.rpartition(".")[2]
    return f"no {name}" if value is None else f"{name} = {json.dumps(value)}"


@dataclass(frozen=True)
class Way:
    """How one rung is found: its candidates, the mildest first."""

    id: str
    title: str
    why: str
    candidates: Callable[[Footing], Iterator[Changes]]
    package: str = ""


def _checkpointing(footing: Footing) -> Iterator[Changes]:
    key = "gradient_checkpointing" if "gradient_checkpointing" in footing.settings else "activation_checkpointing"
    if footing.settings.get(key) is False:
        yield {f"grpo.{key}": True}


def _batch(footing: Footing) -> Batch | None:
    found = arithmetic.read({**footing.settings, "eval_strategy": "no"}, footing.world)
    return found if isinstance(found, Batch) else None


def _micro_batch(footing: Footing) -> Iterator[Changes]:
    batch = _batch(footing)
    if batch is None:
        return
    for size in range(batch.per_device - 1, 0, -1):
        if batch.per_device % size:
            continue
        times = batch.per_device // size
        changes: dict[str, Any] = {
            "grpo.per_device_train_batch_size": size,
            "grpo.gradient_accumulation_steps": batch.accumulation * times,
        }
        if footing.settings.get("steps_per_generation"):
            changes["grpo.steps_per_generation"] = batch.steps_per_generation * times
        yield changes


def _fewer_at_a_time(footing: Footing) -> Iterator[Changes]:
    batch = _batch(footing)
    if batch is None or footing.settings.get("use_vllm"):
        return
    micro = batch.per_device * batch.world
    for steps in range(batch.steps_per_generation - 1, 0, -1):
        if batch.accumulation % steps == 0 and micro * steps % batch.generations == 0:
            changes: dict[str, Any] = {"grpo.steps_per_generation": steps}
            if footing.settings.get("generation_batch_size"):
                changes["grpo.generation_batch_size"] = None
            yield changes


def _sleep(footing: Footing) -> Iterator[Changes]:
    if footing.colocated and not footing.settings.get("vllm_enable_sleep_mode"):
        yield {"grpo.vllm_enable_sleep_mode": True}


def _smaller_share(footing: Footing) -> Iterator[Changes]:
    if not footing.colocated or not (footing.total_bytes or footing.available_bytes):
        return
    least = share_of(footing).least
    hundredths = range(round(footing.share * 100) - 5, 0, -5)
    yield from ({"grpo.vllm_gpu_memory_utilization": each / 100} for each in hundredths if each / 100 >= least)


def _offloaded_cache(footing: Footing) -> Iterator[Changes]:
    if not footing.cpu and not footing.settings.get("use_vllm") and not footing.settings.get("cache_implementation"):
        yield {"grpo.cache_implementation": "offloaded"}


def _eight_bit_states(footing: Footing) -> Iterator[Changes]:
    if (
        not footing.cpu
        and str(footing.settings.get("optim") or "adamw").startswith("adamw")
        and ("8bit" not in str(footing.settings.get("optim")))
    ):
        yield {"grpo.optim": "adamw_8bit"}


def _no_vllm(footing: Footing) -> Iterator[Changes]:
    if footing.colocated:
        yield {"grpo.use_vllm": False}


def _half_weights(footing: Footing) -> Iterator[Changes]:
    if not footing.cpu and footing.method == "full" and footing.dtype == "float32" and footing.settings.get("bf16"):
        yield {"model.dtype": "bfloat16"}


def _no_reference(footing: Footing) -> Iterator[Changes]:
    if float(footing.settings.get("beta") or 0) > 0 and footing.method == "full":
        yield {"grpo.beta": 0.0}


def _adapter(footing: Footing) -> Iterator[Changes]:
    if footing.method == "full":
        loaded = {} if footing.cpu or footing.dtype != "float32" else {"model.dtype": "bfloat16"}
        yield {"method": "lora", **loaded}


def _four_bit(footing: Footing) -> Iterator[Changes]:
    scattered = footing.world > 1 and gathers(footing.strategy)  # weights in 4 bit cannot be
    usable = not footing.cpu and not footing.settings.get("fp16") and not footing.shape.quantized and not scattered
    if footing.method != "qlora" and usable:
        yield {"method": "qlora", "model.dtype": "bfloat16"}


def _usual_prompts(footing: Footing) -> Iterator[Changes]:
    if 0 < footing.usual_prompt_tokens < footing.prompt_tokens:
        yield {"data.max_prompt_tokens": footing.usual_prompt_tokens}


def _shorter(footing: Footing) -> Iterator[Changes]:
    now = int(footing.settings.get("max_completion_length") or 512)
    lengths = (now * part // 8 // 8 * 8 for part in (6, 4, 3, 2))
    yield from ({"grpo.max_completion_length": length} for length in lengths if SHORTEST <= length < now)


WAYS: tuple[Way, ...] = (
    Way(
        "checkpointing",
        "Recompute activations",
        "They are computed again in the backward pass instead of kept: about a fifth more time, the same result.",
        _checkpointing,
    ),
    Way(
        "micro_batch",
        "Fewer completions at a time, more accumulation",
        "The same completions make up a step, in smaller portions: some more time, the same result.",
        _micro_batch,
    ),
    Way(
        "steps_per_generation",
        "Generate fewer completions at a time",
        "The cache holds whole groups still, only fewer of them; generating in portions takes longer.",
        _fewer_at_a_time,
    ),
    Way(
        "vllm_sleep",
        "Let vLLM sleep while the training works",
        "Its memory is given back between generations; waking it up takes some time each step.",
        _sleep,
    ),
    Way(
        "vllm_share",
        "Give vLLM a smaller share",
        "Its cache holds fewer sequences at a time, so generating takes longer.",
        _smaller_share,
    ),
    Way(
        "offloaded_cache",
        "Keep the cache in main memory",
        "Only the layer at work has its part on the GPU: generating becomes much slower.",
        _offloaded_cache,
    ),
    Way(
        "optimizer",
        "Keep the optimizer's states in 8 bit",
        "A quarter of their memory, with little effect on what is learnt.",
        _eight_bit_states,
        "bitsandbytes",
    ),
    Way("lora", "Train an adapter (LoRA)", "The weights stay as they are, without gradients or states.", _adapter),
    Way(
        "no_vllm",
        "Generate without vLLM",
        "transformers generates with the training's own weights, which takes longer.",
        _no_vllm,
    ),
    Way(
        "dtype",
        "Load the weights in bfloat16",
        "Half their memory; very small steps are partly lost to rounding.",
        _half_weights,
    ),
    Way("reference", "Do without the reference model", "No KL term holds the model to its beginning.", _no_reference),
    Way(
        "qlora",
        "Load the weights in 4 bit (QLoRA)",
        "A quarter of their memory; each step is slower.",
        _four_bit,
        "bitsandbytes",
    ),
    Way(
        "prompts",
        "Leave the longest prompts out",
        "Few rows are lost, and the rest needs less.",
        _usual_prompts,
    ),
    Way(
        "completions",
        "Shorten the completions",
        "Longer answers are cut off and earn what a cut answer earns: watch the clipped share.",
        _shorter,
    ),
)
"""From the mildest."""


def ladder(footing: Footing, phase: str = "", *, enough_bytes: int | None = None) -> tuple[Rung, ...]:
    """Every change that frees memory, the mildest first, each taken alone.

    `phase` measures one phase instead of the peak of all. Of a change with degrees the mildest is taken with which it
    fits, or which frees `enough_bytes`; where none does, the strongest.
    """
    return tuple(rung for way in WAYS if (rung := _rung(way, footing, phase, enough_bytes)))


def climb(footing: Footing) -> tuple[Rung, ...]:
    """The changes that, taken together in this order, make it fit; each with what it frees beside those before it.

    Empty where it fits already, or does not fit whatever is done. A change without which it fits too is left out.
    """
    if footing.fits is not False:
        return ()
    taken: list[Rung] = []
    now = footing
    for way in WAYS:
        rung = _rung(way, now, "", None)
        if rung is None:
            continue
        taken.append(rung)
        now = now.having(rung.changes)
        if now.fits:
            return tuple(_needed(footing, taken))
    return ()


def _needed(footing: Footing, taken: Sequence[Rung]) -> list[Rung]:
    """`taken` without those that the others do without."""
    kept = list(taken)
    for rung in taken:
        others = [each for each in kept if each is not rung]
        if others and _climbed(footing, others).fits:
            kept = others
    measured, now = [], footing
    for rung in kept:
        after = now.having(rung.changes)
        freed = now.peak_bytes - after.peak_bytes
        measured.append(replace(rung, frees_bytes=freed, peak_bytes=after.peak_bytes, fits=after.fits))
        now = after
    return measured


def _climbed(footing: Footing, rungs: Sequence[Rung]) -> Footing:
    for rung in rungs:
        footing = footing.having(rung.changes)
    return footing


def first_rung(footing: Footing, phase: str, missing: int, *, only: Sequence[str] = ()) -> Rung | None:
    """The mildest change that frees `missing` bytes in `phase`; where none does, the one that frees most there.

    `only`: the ids to choose from; empty: all. None: nothing frees anything there.
    """
    rungs = [rung for rung in ladder(footing, phase, enough_bytes=max(1, missing)) if not only or rung.id in only]
    enough = next((rung for rung in rungs if rung.frees_bytes >= missing), None)
    return enough or max(rungs, key=lambda rung: rung.frees_bytes, default=None)


def take(draft: Draft, rung: Rung) -> Draft:
    """The answers with the change of `rung` among them, as if it had been typed."""
    overrides = dict(draft.settings.overrides)
    for key, value in rung.changes.items():
        if key in ("method", "data.max_prompt_tokens"):
            continue
        if value is None:
            overrides.pop(key, None)
        else:
            overrides[key] = value
    method = str(rung.changes.get("method", draft.model.method))
    dataset = draft.dataset
    if "data.max_prompt_tokens" in rung.changes:
        choices = {kind: choice for kind, choice in dataset.faults.items() if kind != "over_long"}
        dataset = replace(dataset, max_prompt_tokens=int(rung.changes["data.max_prompt_tokens"]), faults=choices)
    return replace(
        draft,
        model=replace(draft.model, method=method),
        dataset=dataset,
        settings=replace(draft.settings, overrides=overrides),
    )


def _rung(way: Way, footing: Footing, phase: str, enough_bytes: int | None) -> Rung | None:
    before = _measured(footing, phase)
    best: Rung | None = None
    for changes in way.candidates(footing):
        after = footing.having(changes)
        freed = before - _measured(after, phase)
        if freed <= 0:
            continue
        best = Rung(
            id=way.id,
            title=way.title,
            changes=changes,
            frees_bytes=freed,
            peak_bytes=after.peak_bytes,
            fits=after.fits,
            why=way.why,
            needs="" if way.package in footing.packages else way.package,
        )
        if best.fits if enough_bytes is None else freed >= enough_bytes:
            break
    return best


def _measured(footing: Footing, phase: str) -> int:
    return footing.phases[phase] if phase else footing.peak_bytes
