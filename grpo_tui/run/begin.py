"""What a training is, read off its trainer before the first step."""

import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from grpo_tui.lock import boot_id, process_start
from grpo_tui.progress.events import strict
from grpo_tui.secret import scrubbed

LIBRARIES = ("trl", "transformers", "torch", "datasets", "accelerate", "peft", "vllm")


def begin_row(trainer: Any, run: Path, step: int, max_steps: int) -> dict[str, Any]:
    """What `trainer` trains, and with what, as the `begin` row of the run in the folder `run` has it."""
    args = trainer.args
    generation_batch, size = int(args.generation_batch_size), int(trainer.num_generations)
    row: dict[str, Any] = {
        "versions": _versions(),
        "settings": _settings(args),
        "reward_names": list(map(str, trainer.reward_func_names)),
        "reward_weights": weights_of(trainer),
        "world_size": int(args.world_size),
        "batch": {
            "per_device_train_batch_size": int(args.per_device_train_batch_size),
            "gradient_accumulation_steps": int(args.gradient_accumulation_steps),
            "steps_per_generation": int(args.steps_per_generation),
            "generation_batch_size": generation_batch,
            "num_generations": size,
            "prompts_per_generation": generation_batch // size,
            "completions_per_step": int(args.per_device_train_batch_size)
            * int(args.world_size)
            * int(args.gradient_accumulation_steps),
            "num_iterations": int(trainer.num_iterations),
            "train_rows": _rows(trainer.train_dataset),
            "eval_rows": _rows(trainer.eval_dataset),
        },
        "max_steps": max_steps,
        "plan_hash": _hash(run / "config.toml"),
        "process": {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot_id": boot_id(),
            "started": process_start(os.getpid()) or 0.0,
        },
    }
    if step:
        row["resumed_from"] = step
    return row


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {"python": sys.version.split()[0]}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", "")
        if not version:
            with contextlib.suppress(metadata.PackageNotFoundError):
                version = metadata.version(name)
        if version:
            found[name] = str(version)
    return found


def _settings(args: Any) -> dict[str, Any]:
    """Every training argument that has a value, without secrets."""
    if not is_dataclass(args):
        return {}
    values = {item.name: getattr(args, item.name, None) for item in fields(args)}
    named = {name: value for name, value in values.items() if value is not None and not name.startswith("_")}
    return {name: strict(value) for name, value in scrubbed(named).items()}


def weights_of(trainer: Any) -> list[float]:
    """The weights as they were given; the trainer itself holds them rounded to float32."""
    given, held = trainer.args.reward_weights, [float(weight) for weight in trainer.reward_weights]
    return [float(weight) for weight in given] if given is not None and len(given) == len(held) else held


def _rows(dataset: Any) -> int | None:
    """Rows of a data set, or of all of them; None for a stream."""
    if dataset is None:
        return 0
    try:
        return sum(map(len, dataset.values())) if isinstance(dataset, Mapping) else len(dataset)
    except TypeError:
        return None


def _hash(path: Path) -> str:
    """SHA-256 of a file; empty without one."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
