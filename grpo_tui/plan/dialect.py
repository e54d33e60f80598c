"""What the installed TRL calls things: the fields of its GRPOConfig, read once per set of versions, and renamed keys.

The fields are read in a worker (`grpo_tui.workers.introspect`) and kept in the user's cache folder; which libraries are
installed is asked without importing them.
"""

import difflib
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grpo_tui import atomic
from grpo_tui.problem import Problem

LIBRARIES = ("trl", "transformers", "accelerate", "peft", "datasets", "torch")
"""The libraries whose versions decide what a configuration may say."""

LIBRARY_DEFAULT = "library default"
"""Stands among the answers for the value of a key of [grpo] or [lora] that the user left to the library.

That is what a key deleted from config.toml means. Kept as these words, and not as the default of the day, it follows
the library when its default changes; and unlike None, TOML can hold it.
"""

LIBRARY_SECTIONS = ("lora", "grpo")
"""The tables of config.toml whose keys are a library's, so that each has a default there."""

_CACHE_FORMAT = 2


class Caller(Protocol):
    """The part of `grpo_tui.child.Worker` that is needed here."""

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any] | Problem: ...


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a configuration class."""

    name: str
    default: Any = None
    help: str = ""
    kind: str = ""
    """Its type, as the source spells it."""

    choices: tuple[str, ...] = ()
    """The values it may take, where its type is a closed list."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What the installed libraries accept."""

    fields: Mapping[str, Field]
    """Fields of `trl.GRPOConfig`."""

    lora: Mapping[str, Field] = field(default_factory=dict)
    """Fields of `peft.LoraConfig`."""

    trainer: tuple[str, ...] = ()
    """Parameters of `trl.GRPOTrainer`."""

    versions: Mapping[str, str] = field(default_factory=dict)

    def field(self, section: str, key: str) -> Field | None:
        """The field of a table of LIBRARY_SECTIONS, under whatever spelling; None: the library has none."""
        return self.lora.get(key) if section == "lora" else self.fields.get(spelling(key, self))

    def major(self, library: str) -> int:
        """First number of a library's version; 0 where it is not known."""
        return release(self.versions.get(library, ""))[0]


def release(version: str) -> tuple[int, int]:
    """First two numbers of a version; (0, 0) where it begins with none."""
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def installed(names: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """Versions of those of `names` that are installed, read without importing them."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cache_file(versions: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Path:
    """Where the schema of these versions is kept."""
    home = Path(environ.get("HOME", "~")).expanduser()
    folder = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "grpo-tui"
    text = json.dumps([_CACHE_FORMAT, sys.executable, sorted(versions.items())])
    return folder / f"schema-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _from_json(content: Mapping[str, Any]) -> Schema:
    def fields(name: str) -> dict[str, Field]:
        return {
            key: Field(**{**entry, "choices": tuple(entry.get("choices", ()))}) for key, entry in content[name].items()
        }

    return Schema(
        fields=fields("fields"),
        lora=fields("lora"),
        trainer=tuple(content["trainer"]),
        versions=dict(content["versions"]),
    )


def load_schema(worker: Caller, environ: Mapping[str, str] = os.environ) -> Schema | Problem:
    """The schema of the installed libraries: from the cache, or read by `worker` (`introspect`) and then kept."""
    versions = installed()
    missing = [name for name in ("trl", "transformers", "torch") if name not in versions]
    if missing:
        return Problem(
            "environment",
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed for {sys.executable}.",
            f"Install with: {sys.executable} -m pip install {' '.join(missing)}",
        )
    path = cache_file(versions, environ)
    try:
        return _from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not there, or of another make: it is read again
    answer = worker.call("schema", {})
    if isinstance(answer, Problem):
        return answer
    schema = _from_json({**answer, "versions": versions})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, json.dumps(asdict(schema)))
    except OSError:
        pass  # a cache that cannot be written only costs time
    return schema


# ------------------------------------------------------------------------------------------------------- renames


@dataclass(frozen=True)
class Old:
    """A key of older versions or other tools, and what became of it."""

    new: str
    """Its name today; empty: there is none."""

    reason: str
    same: bool = True
    """Its value means the same under the new name."""


OLD_KEYS: Mapping[str, Old] = {
    "max_prompt_length": Old("", "TRL no longer cuts prompts (0.28): data.max_prompt_tokens leaves long ones out."),
    "warmup_ratio": Old("warmup_steps", "A number below 1 is a share of all steps now (transformers 5)."),
    "evaluation_strategy": Old("eval_strategy", "It was renamed (transformers 4.46)."),
    "no_cuda": Old("use_cpu", "It was renamed (transformers 5)."),
    "gradient_checkpointing": Old("activation_checkpointing", "It was renamed (transformers 5.24)."),
    "vllm_device": Old("vllm_mode", "vLLM shares the training GPU (colocate) or is a server (TRL 0.18).", same=False),
    "vllm_guided_decoding_regex": Old("vllm_structured_outputs_regex", "It was renamed (TRL 0.27)."),
    "vllm_max_model_len": Old("vllm_max_model_length", "It was renamed (TRL 0.26)."),
    "wandb_log_unique_prompts": Old("log_unique_prompts", "It was renamed (TRL 0.26)."),
    "use_transformers_paged": Old("use_transformers_continuous_batching", "It was renamed (TRL 1.7)."),
    "vllm_importance_sampling_cap": Old("vllm_importance_sampling_clip_max", "It was renamed (TRL 1.6)."),
    "group_by_length": Old(
        "train_sampling_strategy", "It was renamed (transformers 5), and GRPO samples by itself.", same=False
    ),
    "torch_dtype": Old("", "The number type of the weights is dtype in [model]."),
    "reward_weights": Old("", "The weights stand beside the names, in [[rewards]]."),
    "output_dir": Old("", "A run's folder is made anew for each run."),
    "model_init_kwargs": Old("", "What the model is loaded with stands in [model]."),
    "use_liger_loss": Old("", "The head is computed in tiles by default now (TRL 1.15)."),
    "overwrite_output_dir": Old("", "Each run has a folder of its own."),
    "logging_dir": Old("", "TensorBoard's folder is set by TENSORBOARD_LOGGING_DIR (transformers 5)."),
    "save_safetensors": Old("", "Weights are always saved as safetensors (transformers 5)."),
    "auto_find_batch_size": Old("", "GRPO cannot halve its batch by itself: groups would break."),
    "enable_jit_checkpoint": Old("", "It takes SIGTERM for itself, which the orderly stop of a run needs."),
}
"""Verified on TRL 1.16 and transformers 5.24: each is unknown there, or ours to set."""

_OWN_KEYS = frozenset(
    {"reward_weights", "output_dir", "model_init_kwargs", "auto_find_batch_size", "enable_jit_checkpoint"}
)
"""Fields that exist, and that a configuration of ours must not set."""

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "activation_checkpointing": ("gradient_checkpointing",),
    "use_cpu": ("no_cuda",),
}
"""Names of one field, the newest first; older ones are written where the newest does not exist yet."""


def spelling(key: str, schema: Schema) -> str:
    """The name under which the installed version knows the field; `key` itself where it knows none."""
    for newest, older in _SPELLINGS.items():
        if key == newest or key in older:
            return next((name for name in (newest, *older) if name in schema.fields), key)
    return key


def spelled(key: str, value: Any, schema: Schema) -> tuple[str, Any]:
    """A field and its value as the installed version wants them written."""
    if key == "warmup_ratio" and key not in schema.fields:
        return "warmup_steps", value
    share = isinstance(value, float) and 0 < value < 1
    if key == "warmup_steps" and share and schema.major("transformers") < 5 and "warmup_ratio" in schema.fields:
        return "warmup_ratio", value
    return spelling(key, schema), value


def renamed(key: str, value: Any, schema: Schema) -> tuple[str, Any]:
    """A field and its value under the name that the installed version has for it, of whatever version the key is.

    A key that has no name of the same meaning there comes back as it is.
    """
    key, value = spelled(key, value, schema)
    if key in schema.fields:
        return key, value
    old = OLD_KEYS.get(key)
    newer = [old.new] if old is not None and old.same else []
    older = [name for name, entry in OLD_KEYS.items() if entry.new == key and entry.same]
    return next((name for name in (*newer, *older) if name in schema.fields), key), value


def unknown_key(key: str, schema: Schema) -> Problem | None:
    """What is wrong with a key of [grpo]: None where the installed GRPOConfig has it and it may be set."""
    where = f"grpo.{key}"
    old = OLD_KEYS.get(key)
    if key in schema.fields and key not in _OWN_KEYS:
        return None
    version = schema.versions.get("trl", "")
    if old is not None:
        remedy = f"Write {old.new} instead." if old.new in schema.fields else "Leave it out."
        what = "This is not set here." if key in _OWN_KEYS else f"TRL {version} does not know this key."
        return Problem(where, f"{what} {old.reason}", remedy)
    near = difflib.get_close_matches(key, schema.fields, 1, 0.75)
    return Problem(
        where,
        f"TRL {version} does not know this key.",
        f"Did you mean {near[0]}?" if near else "Leave it out, or look the name up in TRL's documentation.",
    )


# -------------------------------------------------------------------------------------------------- closed lists

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_mode": ("colocate", "server"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
}
"""Values that TRL 1.16 compares only inside the first training step, after the model was loaded and has generated."""


def bad_choice(key: str, value: Any, schema: Schema | None = None) -> Problem | None:
    """A value outside its closed list, with the nearest one in it."""
    known = CHOICES.get(key)
    declared = schema.fields.get(key) if schema else None
    allowed: tuple[Any, ...] = known or (declared.choices if declared else ())
    if not allowed or value in allowed or (value is None and declared is not None and declared.default is None):
        return None
    words = [str(choice) for choice in allowed if not isinstance(choice, bool)]
    near = difflib.get_close_matches(str(value), words, 1, 0.5)
    rest = f"It can be {', '.join(words)}."
    return Problem(
        f"grpo.{key}", f"{value!r} is none of its values.", f"Did you mean {near[0]}? {rest}" if near else rest
    )
