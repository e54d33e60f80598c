"""A project's configuration cut down for a trial: the same keys, made small, offline and fit for the CPU."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.problem import Problem

COMPLETION_TOKENS = 16
"""Completions of the trial are cut here."""

_FORCED: Mapping[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "report_to": "none",
    "push_to_hub": False,
    "logging_strategy": "steps",
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "save_strategy": "steps",
    "save_steps": 1,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "dataloader_num_workers": 0,
}
"""Keys of [grpo] that every trial has, whatever was planned."""

_TAKEN_OUT = (
    "tf32", "fsdp", "fsdp_config", "deepspeed", "parallelism_config", "ddp_backend", "torch_compile",
    "torch_compile_backend", "torch_compile_mode", "use_liger_kernel", "liger_kernel_config", "hub_token",
    "hub_model_id", "hub_strategy", "log_completions_hub_repo", "dataloader_persistent_workers",
    "dataloader_prefetch_factor", "use_transformers_continuous_batching", "transformers_continuous_batching_config",
)  # fmt: skip
"""Keys of [grpo] that need devices, other processes or the network."""


GROUP = 2
"""Completions that the trial generates and learns from at a time: the fewest GRPO takes."""


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """What a trial is run with."""

    configs: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Contents of `config.toml` for the first step, and for the second one from its checkpoint."""

    uncovered: tuple[str, ...]
    """What of the planned training the trial says nothing about."""

    batch: Batch
    """The planned batch, which the trial does not run whole."""


def reduced(config: Mapping[str, Any], model: str) -> Reduced | list[Problem]:
    """`config` for the model folder `model`, or the rules of the batch that it breaks as it is planned."""
    launch = dict(config.get("launch") or {})
    processes = launch.get("processes", 1)
    world = processes if isinstance(processes, int) and processes > 0 else 1
    grpo = dict(config.get("grpo") or {})
    batch = arithmetic.read(grpo, world)
    if isinstance(batch, list):
        return batch
    small = {key: value for key, value in grpo.items() if key not in _TAKEN_OUT} | dict(_FORCED)
    small |= _one_group(batch)
    for key in ("generation_batch_size", "steps_per_generation"):
        small.pop(key, None)
    length = grpo.get("max_completion_length")
    small["max_completion_length"] = min(COMPLETION_TOKENS, length if isinstance(length, int) else COMPLETION_TOKENS)
    if small.get("use_vllm"):
        small["use_vllm"] = False
    if _needs_gpu(str(small.get("optim") or "")):
        small["optim"] = "adamw_torch"
    if str(small.get("cache_implementation") or "").startswith("offloaded"):
        del small["cache_implementation"]
    planned = dict(config.get("model") or {})
    chosen = {key: value for key, value in planned.items() if key != "revision"} | {"name": model, "dtype": "float32"}
    if chosen.get("attn_implementation") not in (None, "sdpa", "eager"):
        chosen["attn_implementation"] = "sdpa"
    started = {key: value for key, value in launch.items() if key not in ("gpus", "notify_command")} | {"processes": 1}
    whole = {**config, "model": chosen, "launch": started}
    return Reduced(
        configs=({**whole, "grpo": {**small, "max_steps": 1}}, {**whole, "grpo": {**small, "max_steps": 2}}),
        uncovered=tuple(_uncovered(planned, grpo, world, batch)),
        batch=batch,
    )


def full_length(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` for two steps of the real model at full length, to measure its memory; nothing is saved or reported.

    Completions are forced to their longest by the generation's own minimum; vLLM calls it `min_tokens`.
    """
    grpo = dict(config.get("grpo") or {})
    length = grpo.get("max_completion_length") or 512
    least = "min_tokens" if grpo.get("use_vllm") else "min_new_tokens"
    grpo |= {
        "max_steps": 2,
        "save_strategy": "no",
        "report_to": "none",
        "push_to_hub": False,
        "logging_steps": 1,
        "log_completions": False,
        "generation_kwargs": {**(grpo.get("generation_kwargs") or {}), least: length},
    }
    return {**config, "grpo": grpo}


def _one_group(batch: Batch) -> dict[str, int]:
    """One small group on one process, in as many portions as it is planned in.

    Without Triton, TRL computes the head over every token of prompt and completion and the whole vocabulary: 1,000
    tokens at 150,000 words take seconds on a core, so the number of completions decides how long the trial takes.
    """
    group = min(batch.generations, GROUP)
    size = min(batch.per_device, group)
    return {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": group // size,
        "num_generations": group,
    }


def _needs_gpu(optimizer: str) -> bool:
    return any(word in optimizer for word in ("8bit", "4bit", "paged", "bnb", "apex"))


def _uncovered(model: Mapping[str, Any], grpo: Mapping[str, Any], world: int, batch: Batch) -> Iterator[str]:
    yield "the real weights: the model of the trial is small and random, and so are its completions and rewards"
    if not grpo.get("use_cpu"):
        yield "CUDA, its kernels and number types, and the GPU's memory"
    length = grpo.get("max_completion_length") or 512
    if not isinstance(length, int) or length > COMPLETION_TOKENS:
        yield f"completions of more than {COMPLETION_TOKENS} tokens (planned: {length})"
    if batch.generation_batch > GROUP:
        yield (
            f"the whole batch of {batch.generation_batch} completions in groups of {batch.generations}: the trial"
            f" generates {GROUP}"
        )
    if world > 1:
        yield f"{world} processes: the trial has one"
    if grpo.get("use_vllm"):
        yield "vLLM: the trial generates with transformers"
    if model.get("load_in_4bit"):
        yield "loading the weights in 4 bit"
    if model.get("attn_implementation") not in (None, "sdpa", "eager"):
        yield f"attention by {model['attn_implementation']}"
    if _needs_gpu(str(grpo.get("optim") or "")):
        yield f"the optimizer {grpo['optim']}"
    if any(grpo.get(key) for key in ("fsdp", "deepspeed", "parallelism_config", "torch_compile", "use_liger_kernel")):
        yield "sharding, compilation and fused kernels"
    if grpo.get("report_to") not in (None, "none", []):
        yield f"reporting to {_listed(grpo['report_to'])}"
    if grpo.get("push_to_hub") or grpo.get("log_completions_hub_repo"):
        yield "uploads to the hub"
    if str(grpo.get("save_strategy") or "steps") == "no":
        yield "that nothing is saved: the trial writes checkpoints"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
