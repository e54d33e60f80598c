"""A configuration of another version or another tool, as our answers; and what changed on the way, key by key."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_tui.draft import DatasetAnswer, Draft, ModelAnswer, RewardItem
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.dialect import OLD_KEYS, Schema, bad_choice, renamed, spelled, unknown_key
from grpo_tui.plan.situation import AMPERE
from grpo_tui.plan.written import Written
from grpo_tui.problem import Problem


@dataclass(frozen=True)
class Change:
    """One key that does not mean here what it said there."""

    key: str
    """As it was written."""

    old: Any
    new_key: str
    """Dotted key of `config.toml`; empty: it is left out."""

    new: Any
    why: str

    def __str__(self) -> str:
        if not self.new_key:
            return f"{self.key} = {self.old!r} is left out. {self.why}"
        return f"{self.key} = {self.old!r} becomes {self.new_key} = {self.new!r}. {self.why}"

    def as_json(self) -> dict[str, Any]:
        return {"key": self.key, "old": self.old, "new_key": self.new_key, "new": self.new, "why": self.why}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the configuration is translated for."""

    schema: Schema
    world: int = 1
    """Training processes."""

    cpu: bool = False
    capability: tuple[int, int] | None = None
    """Compute capability of the oldest GPU; None: not known, taken as Ampere or newer."""

    packages: frozenset[str] = frozenset()
    """Optional packages that are installed, by import name."""

    @property
    def bf16(self) -> bool:
        return not self.cpu and (self.capability or AMPERE) >= AMPERE


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The answers that a configuration gives."""

    model: ModelAnswer = field(default_factory=ModelAnswer)
    """Name, revision and method; empty where it says nothing."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted key of `config.toml`, under the names of the installed versions."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the answer about the data: `source`, `split`, `options`, `prompt`, `system`, `max_prompt_tokens`."""

    rewards: tuple[RewardItem, ...] = ()
    """Reward functions by name; their code is not part of a configuration."""

    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()
    """What must be decided first, such as a misspelt key."""

    @property
    def method(self) -> str:
        return self.model.method

    @property
    def lora(self) -> dict[str, Any]:
        """The fields of `peft.LoraConfig` it sets."""
        return {key.removeprefix("lora."): value for key, value in self.overrides.items() if key.startswith("lora.")}


def apply(draft: Draft, translation: Translation, *, rewards: bool = False) -> Draft:
    """`draft` with the answers of a configuration; its rewards only on request, since their code must be there."""
    model = {name: value for name in ("name", "revision", "method") if (value := getattr(translation.model, name))}
    data = {name: value for name, value in translation.data.items() if name in DatasetAnswer.__dataclass_fields__}
    items = translation.rewards if rewards and translation.rewards else draft.rewards.items
    return replace(
        draft,
        model=replace(draft.model, **model),
        dataset=replace(draft.dataset, **data),
        rewards=replace(draft.rewards, items=items),
        settings=replace(draft.settings, overrides={**draft.settings.overrides, **translation.overrides}),
    )


# ------------------------------------------------------------------------------------------- keys with a new meaning

New = tuple[str, Any, str]
"""Dotted key of `config.toml` (empty: left out), its value, and why; no why: it means the same, and nothing is said."""

Meaning = Callable[[Any, Target], New]

_NO_BITSANDBYTES = "It needs the package bitsandbytes, which is not installed here."
_BITSANDBYTES = re.compile(r"8bit|4bit|bnb|paged|lion")


def _drop(why: str) -> Meaning:
    return lambda value, target: ("", None, why)


def _to(key: str, why: str = "") -> Meaning:
    return lambda value, target: (key, value, why)


def _optimizer(value: Any, target: Target) -> New:
    name = str(value)
    if _BITSANDBYTES.search(name) and not name.startswith("adamw_torch") and "bitsandbytes" not in target.packages:
        return "grpo.optim", "adamw_torch_fused", f"{_NO_BITSANDBYTES} An adapter's states are small anyway."
    return "grpo.optim", value, ""


def _bf16(value: Any, target: Target) -> New:
    if value and not target.bf16:
        where = "The CPU computes in float32" if target.cpu else "The GPU only emulates bfloat16"
        return "grpo.bf16", False, f"{where}."
    return "grpo.bf16", value, ""


def _fp16(value: Any, target: Target) -> New:
    return ("grpo.fp16", False, "The CPU computes in float32.") if value and target.cpu else ("grpo.fp16", value, "")


def _use_cpu(value: Any, target: Target) -> New:
    return "", None, "Which device trains is chosen with the GPUs."


def _use_vllm(value: Any, target: Target) -> New:
    if not value:
        return "grpo.use_vllm", False, ""
    if target.cpu:
        return "grpo.use_vllm", False, "vLLM needs a GPU: transformers generates."
    if "vllm" not in target.packages:
        return "grpo.use_vllm", False, "The package vllm is not installed here: transformers generates."
    why = 'It means colocate now, sharing the training GPU (TRL 1.0); launch.vllm = "server" is what it meant before.'
    return "grpo.use_vllm", True, why


def _report_to(value: Any, target: Target) -> New:
    names = [str(name) for name in (value if isinstance(value, list | tuple) else [value])]
    names = [name for name in names if name not in ("none", "None")]
    if "all" in names:
        return "grpo.report_to", "none", "Nothing leaves this machine unless a tracker is named."
    imported = {"comet": "comet_ml"}
    missing = [name for name in names if imported.get(name, name) not in target.packages and name in _TRACKERS]
    if missing:
        kept = [name for name in names if name not in missing] or "none"
        return "grpo.report_to", kept, f"The package {' and '.join(missing)} is not installed here."
    return "grpo.report_to", names or "none", ""


_TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow", "comet", "comet_ml", "swanlab")


def _eval_strategy(value: Any, target: Target) -> New:
    if str(value) == "no":
        return "grpo.eval_strategy", "no", ""
    return "grpo.eval_strategy", "no", "There is no evaluation set: train.py passes only the training prompts."


def _attention(value: Any, target: Target) -> New:
    name = str(value)
    if name.startswith("flash_attention"):
        if "flash_attn" not in target.packages:
            return (
                "model.attn_implementation",
                "sdpa",
                "The package flash-attn is not installed here; sdpa is in torch.",
            )
        if not target.bf16:
            return "model.attn_implementation", "sdpa", "Flash attention needs an Ampere GPU."
    elif "/" in name and "kernels" not in target.packages:
        return "model.attn_implementation", "sdpa", "The package kernels is not installed here; sdpa is in torch."
    return "model.attn_implementation", value, ""


def _dtype(value: Any, target: Target) -> New:
    name = str(value).removeprefix("torch.")
    if name == "auto":
        return "", None, "The number type is chosen by the method and the GPU, not by the file of the weights."
    if target.cpu and name != "float32":
        return "model.dtype", "float32", "The CPU computes in float32."
    if name == "bfloat16" and not target.bf16:
        return "model.dtype", "float16", "The GPU only emulates bfloat16."
    return "model.dtype", name, ""


def _torch_dtype(value: Any, target: Target) -> New:
    key, new, why = _dtype(value, target)
    return key, new, why or "It is called dtype now, and stands in [model] (transformers 5)."


def _revision(value: Any, target: Target) -> New:
    return ("", None, "") if value == "main" else ("model.revision", str(value), "")


def _warmup_ratio(value: Any, target: Target) -> New:
    name, value = spelled("warmup_ratio", value, target.schema)
    return f"grpo.{name}", value, "" if name == "warmup_ratio" else OLD_KEYS["warmup_ratio"].reason


_OTHER_PROGRAM = "It is a key of open-r1's own program."
_QUANTIZED = "Loading in 4 bit is written as nf4 with double quantisation."
_CHOSEN_GPUS = "There is one process for each GPU you choose."

_TRAINING: Mapping[str, Meaning] = {
    "max_prompt_length": _to("data.max_prompt_tokens", OLD_KEYS["max_prompt_length"].reason),
    "warmup_ratio": _warmup_ratio,
    "optim": _optimizer,
    "bf16": _bf16,
    "fp16": _fp16,
    "use_cpu": _use_cpu,
    "no_cuda": lambda value, target: ("", None, f"{OLD_KEYS['no_cuda'].reason} {_use_cpu(value, target)[2]}"),
    "use_vllm": _use_vllm,
    "vllm_device": lambda value, target: ("grpo.vllm_mode", "colocate", OLD_KEYS["vllm_device"].reason),
    "vllm_dtype": _drop("vLLM takes the number type of the weights (TRL 0.18)."),
    "report_to": _report_to,
    "eval_strategy": _eval_strategy,
    "evaluation_strategy": lambda value, target: (
        *_eval_strategy(value, target)[:2],
        f"{OLD_KEYS['evaluation_strategy'].reason} {_eval_strategy(value, target)[2]}".strip(),
    ),
    "do_eval": _drop("Whether there is an evaluation is said by eval_strategy."),
    "load_best_model_at_end": _drop("There is no evaluation that could say which one is best."),
    "remove_unused_columns": _drop("The rewards need the other columns."),
    "do_train": _drop("train.py trains."),
    "resume_from_checkpoint": _drop("grpo-tui run --resume goes on from a checkpoint."),
    "hub_token": _drop("Tokens are not written into files: log in with `hf auth login`, or set HF_TOKEN."),
    "deepspeed": _drop('The file is written anew: set launch.strategy = "zero1", "zero2" or "zero3".'),
    "fsdp": _drop('The file is written anew: set launch.strategy = "fsdp2".'),
    "fsdp_config": _drop('The file is written anew: set launch.strategy = "fsdp2".'),
    "num_processes": _drop(_CHOSEN_GPUS),
    "local_rank": _drop(_CHOSEN_GPUS),
    "trust_remote_code": _to("grpo.trust_remote_code"),
    "wandb_project": _drop("Set WANDB_PROJECT in the environment."),
    "wandb_entity": _drop("Set WANDB_ENTITY in the environment."),
    "wandb_run_group": _drop("Set WANDB_RUN_GROUP in the environment."),
    "chat_template": _drop("The tokenizer's own chat template is used."),
    "reward_model_name_or_path": _drop("A reward is a function here; one that asks a model can be written."),
    "ignore_bias_buffers": _drop("It was for debugging old models."),
    "dataset_streaming": _drop("Rows are read from the source directly."),
    "output_dir": _drop(OLD_KEYS["output_dir"].reason),
    **dict.fromkeys(
        (
            "benchmarks", "callbacks", "hub_model_revision", "overwrite_hub_revision", "push_to_hub_revision",
            "cosine_min_value_wrong", "cosine_max_value_wrong", "cosine_min_value_correct", "cosine_max_value_correct",
            "cosine_max_len", "repetition_n_grams", "repetition_max_penalty", "code_language", "code_provider",
            "code_eval_test_batch_size", "code_eval_scoring_mode", "parallel_code_exec_per_proc", "ioi_provider",
            "e2b_router_url", "morph_router_url", "max_completion_len", "soft_punish_cache",
        ),
        _drop(_OTHER_PROGRAM),
    ),
}  # fmt: skip
"""Keys of GRPOConfig and of the programs around it, of all versions, whose meaning is not plainly their own."""

_MODEL: Mapping[str, Meaning] = {
    "torch_dtype": _torch_dtype,
    "dtype": _dtype,
    "attn_implementation": _attention,
    "model_revision": _revision,
    "revision": _revision,
    "device_map": _drop("The launcher decides which process has which GPU; `auto` fails with several (accelerate)."),
    "load_in_8bit": _drop("Weights in 8 bit are not written here: choose qlora, which loads them in 4 bit."),
    "trust_remote_code": _to("grpo.trust_remote_code"),
    "use_cache": _drop("TRL sets it."),
    **dict.fromkeys(
        (
            "bnb_4bit_quant_type", "bnb_4bit_quant_storage", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant",
            "use_bnb_nested_quant",
        ),
        _drop(_QUANTIZED),
    ),
    **dict.fromkeys(("max_seq_length", "fast_inference", "gpu_memory_utilization"), _drop("It is a key of Unsloth.")),
}  # fmt: skip

_NAMES = ("model", "model_name_or_path", "model_name", "pretrained_model_name_or_path")

_DATA: Mapping[str, str] = {
    "dataset_name": "source",
    "dataset_train_split": "split",
    "dataset_prompt_column": "prompt",
    "system_prompt": "system",
}
"""Keys of data, and the fields of our answer that they are."""

_ACCELERATE: Mapping[str, str] = {
    "multi_gpu": "ddp",
    "ddp": "ddp",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero3": "zero3",
    "fsdp1": "fsdp2",
    "fsdp2": "fsdp2",
}
"""Names of accelerate's configurations that TRL ships and open-r1 uses, and our strategies."""


class _Sheet:
    """The translation while it is being made."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.overrides: dict[str, Any] = {}
        self.changes: list[Change] = []
        self.problems: list[Problem] = []

    def set(self, key: str, old: Any, new: New) -> None:
        """Take `new` over as what `key` = `old` is today."""
        dotted, value, why = new
        if dotted:
            self.overrides[dotted] = value
        if why:
            self.changes.append(Change(key, old, dotted, value, why))

    def drop(self, key: str, old: Any, why: str) -> None:
        self.changes.append(Change(key, old, "", None, why))


def translate(written: Written, target: Target) -> Translation:
    """The answers that `written` gives on `target`.

    What cannot be on this machine (a package that is missing, bfloat16 on an old GPU) is replaced, and said; so is a
    batch that the installed version refuses. What it leaves open stays open: the tuning chooses it.
    """
    sheet = _Sheet(target)
    model = _model(written, sheet)
    _adapter(written.lora or {}, sheet)
    data = _dataset(written.data, sheet)
    weights = None
    for key, value in written.training.items():
        if key == "reward_weights":
            weights = value
        elif key == "accelerate_config":
            strategy = _ACCELERATE.get(re.sub(r".*/|\.ya?ml$", "", str(value)))
            new = ("launch.strategy", strategy, "accelerate.yaml is written for it.") if strategy else None
            sheet.set(key, value, new or ("", None, _CHOSEN_GPUS))
        else:
            _training(key, value, sheet)
    for key, source in written.computed:
        if key not in ("output_dir", "run_name", "**"):
            sheet.drop(key, source, "Its value is computed in the script, and nothing in it is executed.")
    limit = sheet.overrides.pop("data.max_prompt_tokens", None)
    if isinstance(limit, int) and limit > 0:
        data["max_prompt_tokens"] = limit
    _precision(sheet)
    _shared_gpu(sheet)
    _room_for_prompts(sheet, limit)
    _legal_batch(sheet)
    rewards = _rewards(written.rewards, weights, sheet)
    return Translation(
        model=model,
        overrides=sheet.overrides,
        data=data,
        rewards=rewards,
        changes=tuple(sheet.changes),
        problems=tuple(sheet.problems),
    )


def _training(key: str, value: Any, sheet: _Sheet) -> None:
    """One key that was meant for GRPOConfig."""
    schema = sheet.target.schema
    if value is None:
        declared = schema.field("grpo", key)
        if declared is not None and declared.default is not None and "None" not in declared.kind:
            sheet.drop(key, value, f"None is no value of it: the default, {declared.default!r}, stands.")
        return
    if key in _TRAINING:
        sheet.set(key, value, _TRAINING[key](value, sheet.target))
        return
    name, value = renamed(key, _typed(key, value, schema), schema)
    wrong = unknown_key(name, schema)
    if wrong is None:
        wrong = bad_choice(name, value, schema)
        if wrong is not None:
            sheet.problems.append(wrong)
        elif name != key:
            old = OLD_KEYS.get(key)
            sheet.set(key, value, (f"grpo.{name}", value, old.reason if old else "The installed version calls it so."))
        else:
            sheet.set(key, value, (f"grpo.{name}", value, ""))
    elif wrong.remedy.startswith("Did you mean"):
        sheet.problems.append(wrong)
        sheet.drop(key, value, f"{wrong.what} {wrong.remedy}")
    else:
        sheet.drop(key, value, wrong.what)


def _typed(key: str, value: Any, schema: Schema) -> Any:
    """`value` as the number it stands for: YAML 1.1 reads `1e-6` as text, and TRL's own parser forgives that."""
    declared = schema.field("grpo", key)
    kind = declared.kind if declared else "float"
    if isinstance(value, str) and re.match(r"(float|int)\b", kind):
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() and kind.startswith("int") else number
    return list(value) if isinstance(value, tuple) else value


def _model(written: Written, sheet: _Sheet) -> ModelAnswer:
    """Which model, and how it is loaded."""
    name, four_bit = "", False
    for key, value in written.model.items():
        if value is None:
            continue
        if key in _NAMES:
            name = str(value)
        elif key == "load_in_4bit":
            four_bit = bool(value)
        elif key == "load_in_8bit" and not value:
            continue
        elif key in _MODEL:
            sheet.set(key, value, _MODEL[key](value, sheet.target))
        else:
            sheet.drop(key, value, "train.py loads the model without it.")
    method = "" if written.lora is None else "lora"
    if four_bit and (sheet.target.cpu or "bitsandbytes" not in sheet.target.packages):
        why = "Loading in 4 bit needs an NVIDIA GPU." if sheet.target.cpu else _NO_BITSANDBYTES
        sheet.changes.append(Change("load_in_4bit", True, "model.method", "lora", why))
        method = "lora"
    elif four_bit:
        method = "qlora"
    elif name and written.lora is None:
        method = "full"
        why = "There is no adapter in it: all weights are trained."
        sheet.changes.append(Change("peft_config", None, "model.method", "full", why))
    return ModelAnswer(name=name, revision=str(sheet.overrides.pop("model.revision", "")), method=method)


def _adapter(lora: Mapping[str, Any], sheet: _Sheet) -> None:
    """The fields of LoraConfig."""
    known = sheet.target.schema.lora
    for key, value in lora.items():
        if value is None or key == "task_type":  # train.py says CAUSAL_LM, as every GRPO run needs
            continue
        if key == "target_modules" and isinstance(value, list | tuple) and "lm_head" in value:
            kept = [name for name in value if name != "lm_head"] or "all-linear"
            sheet.set(key, list(value), ("lora.target_modules", kept, "TRL refuses an adapter on lm_head (1.15 on)."))
        elif known and key not in known:
            sheet.drop(key, value, "peft.LoraConfig does not know this key.")
        else:
            sheet.set(key, value, (f"lora.{key}", list(value) if isinstance(value, tuple) else value, ""))


def _dataset(written: Mapping[str, Any], sheet: _Sheet) -> dict[str, Any]:
    """What is trained on, as fields of our answer."""
    data: dict[str, Any] = {}
    for key, value in written.items():
        if value is None or value == []:
            continue
        if key in _DATA:
            data[_DATA[key]] = str(value)
        elif key in ("dataset_config", "dataset_configs"):
            names = value if isinstance(value, list | tuple) else [value]
            if str(names[0]) != "default":
                data["options"] = {"config": str(names[0])}
            if len(names) > 1:
                sheet.drop(key, list(names), f"One part is trained on, and the first was taken: {names[0]}.")
        elif key == "datasets" and isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
            one = value[0]
            files = one.get("data_files")
            data["source"] = str(files if isinstance(files, str) else one.get("path", ""))
            data |= {"split": str(one["split"])} if one.get("split") else {}
            data |= {"options": {"config": str(one["name"])}} if one.get("name") else {}
        elif key in ("datasets", "dataset_mixture"):
            sheet.drop(key, value, "Several data sets are not mixed here: make one file of them.")
        else:
            sheet.drop(key, value, "There is no evaluation set here.")
    return data


def _rewards(names: tuple[str, ...], weights: Any, sheet: _Sheet) -> tuple[RewardItem, ...]:
    """The reward functions by name, with their weights."""
    if not names:
        if weights is not None:
            sheet.drop("reward_weights", weights, OLD_KEYS["reward_weights"].reason)
        return ()
    why = "Their code is not in a configuration: take it over with --rewards FILE, or choose others."
    sheet.changes.append(Change("reward_funcs", list(names), "rewards", list(names), why))
    if weights is None:
        return tuple(RewardItem(name=name) for name in names)
    if not isinstance(weights, list | tuple) or len(weights) != len(names):
        what = f"{len(names)} reward functions have {weights!r} for weights."
        sheet.problems.append(Problem("reward_weights", what, "Write one weight for each function."))
        return tuple(RewardItem(name=name) for name in names)
    return tuple(RewardItem(name=name, weight=float(weight)) for name, weight in zip(names, weights, strict=True))


# ------------------------------------------------------------------------------------------ what hangs together


def _precision(sheet: _Sheet) -> None:
    """An old GPU that cannot have bfloat16 gets float16 instead."""
    wanted = next((change for change in sheet.changes if change.key == "bf16" and change.new is False), None)
    if wanted is not None and not sheet.target.cpu:
        sheet.set(
            "fp16", sheet.overrides.get("grpo.fp16"), ("grpo.fp16", True, "In the place of bf16; watch grad_norm.")
        )


def _shared_gpu(sheet: _Sheet) -> None:
    """A share of memory that was meant for a GPU of vLLM's own is not one of the training GPU."""
    if "vllm_device" in (change.key for change in sheet.changes):
        share = sheet.overrides.pop("grpo.vllm_gpu_memory_utilization", None)
        if share is not None:
            sheet.drop("vllm_gpu_memory_utilization", share, "It was for a GPU of vLLM's own, and now it shares one.")


def _room_for_prompts(sheet: _Sheet, limit: Any) -> None:
    """What vLLM makes room for is at least the longest prompt that is kept and a full completion (TRL's own rule)."""
    name = "vllm_max_model_length"
    room, completion = (sheet.overrides.get(f"grpo.{key}") for key in (name, "max_completion_length"))
    if all(isinstance(each, int) for each in (room, completion, limit)) and room < limit + completion:
        why = f"Prompts of {limit} tokens and completions of {completion} need as much; shorter, vLLM ends the run."
        sheet.set(name, room, (f"grpo.{name}", limit + completion, why))


_BATCH: Mapping[str, str] = {
    "per_device": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "generations": "num_generations",
    "steps_per_generation": "steps_per_generation",
}


def _legal_batch(sheet: _Sheet) -> None:
    """An impossible batch becomes the nearest that holds whole groups: as many completions a prompt, as much memory."""
    names = (*_BATCH.values(), "generation_batch_size", "num_iterations")
    given = {name: sheet.overrides[f"grpo.{name}"] for name in names if f"grpo.{name}" in sheet.overrides}
    if not all(isinstance(value, int) and value > 0 for value in given.values()):
        return  # the tuning says what is wrong with it
    if "generation_batch_size" in given and "steps_per_generation" in given:
        why = "It says the same as steps_per_generation, and TRL takes only one of the two."
        sheet.drop("generation_batch_size", given.pop("generation_batch_size"), why)
        del sheet.overrides["grpo.generation_batch_size"]
    if "per_device_train_batch_size" not in given or "gradient_accumulation_steps" not in given:
        return  # the tuning finds what fits the rest
    if isinstance(arithmetic.read(given, sheet.target.world), Batch):
        return
    size = given.pop("generation_batch_size", None)
    per_device, accumulation = given["per_device_train_batch_size"], given["gradient_accumulation_steps"]
    wanted = Batch(
        per_device=per_device,
        world=sheet.target.world,
        accumulation=accumulation,
        generations=given.get("num_generations", 8),
        steps_per_generation=given.get("steps_per_generation", accumulation),
        iterations=given.get("num_iterations", 1),
    )
    legal = next(iter(arithmetic.nearest(wanted)), None)
    if legal is None:
        return
    if size is not None:
        why = f"{legal.generation_batch} completions are generated at a time, what the other settings make."
        sheet.drop("generation_batch_size", size, why)
        del sheet.overrides["grpo.generation_batch_size"]
    why = (
        f"{wanted.generation_batch} completions at a time are no multiple of {wanted.generations} a prompt; this is the"
        f" nearest that is, with as much memory for a micro-step: {legal.words()}."
    )
    for attribute, name in _BATCH.items():
        old, new = getattr(wanted, attribute), getattr(legal, attribute)
        if attribute == "steps_per_generation" and name not in given:
            continue  # unset it is the accumulation
        if old != new:
            sheet.set(name, given.get(name, old), (f"grpo.{name}", new, why))
