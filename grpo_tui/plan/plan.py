"""A complete configuration: every value with what it does, why it has this value, and where the reason comes from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_tui.draft import RewardItem
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.memory import Memory

SOURCES = ("measured here", "library default", "published", "rule of thumb", "set by you", "recipe")
"""Where the reason for a value comes from."""

SECTIONS = ("model", "data", "lora", "grpo", "launch")
"""The tables of `config.toml`, in its order; `[[rewards]]` stands between `lora` and `grpo`."""


@dataclass(frozen=True)
class Setting:
    """One value of the configuration."""

    key: str
    """Dotted key of `config.toml`: `grpo.learning_rate`."""

    value: Any
    what: str
    """What it does, as one sentence."""

    why: str
    """Why it has this value, as one sentence."""

    source: str
    """One of SOURCES."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be trained, and how."""

    settings: tuple[Setting, ...]
    rewards: tuple[RewardItem, ...]
    method: str
    """`lora`, `qlora` or `full`."""

    world_size: int
    """Training processes."""

    cpu: bool
    batch: Batch
    memory: Memory | None = None
    available_bytes: int = 0
    """Free memory of the smallest device the plan is for; 0: not known."""

    total_steps: int = 0
    """Optimizer steps of the whole run; 0: not known before the data are counted."""

    capability: tuple[int, int] | None = None
    """Compute capability of the oldest GPU of the plan."""

    notes: tuple[str, ...] = ()
    """What the plan wants said beside its values: estimates, dropped rows, capped lengths."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries the keys were made for."""

    def section(self, name: str) -> dict[str, Any]:
        """The values of one table of `config.toml`, without the section's name."""
        prefix = name + "."
        return {s.key.removeprefix(prefix): s.value for s in self.settings if s.key.startswith(prefix)}

    def setting(self, key: str) -> Setting | None:
        return next((setting for setting in self.settings if setting.key == key), None)

    def value(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key, or `default` where the plan does not set it."""
        setting = self.setting(key)
        return default if setting is None else setting.value

    def as_config(self) -> dict[str, Any]:
        """The content of `config.toml`: what `tomllib` reads from the rendered file."""
        config: dict[str, Any] = {}
        for name in SECTIONS:
            if name == "grpo":
                config["rewards"] = [{"name": item.name, "weight": item.weight} for item in self.rewards]
            values = self.section(name)
            if values:
                config[name] = values
        return config

    def as_json(self) -> dict[str, Any]:
        """The plan as commands print it with `--json`; bytes are whole numbers."""
        batch, memory = self.batch, self.memory
        return {
            "method": self.method,
            "settings": self.section("grpo"),
            "lora": self.section("lora"),
            "config": self.as_config(),
            "batch": {
                "per_device": batch.per_device,
                "processes": batch.world,
                "accumulation": batch.accumulation,
                "steps_per_generation": batch.steps_per_generation,
                "generations": batch.generations,
                "generation_batch": batch.generation_batch,
                "prompts_per_generation": batch.prompts_per_generation,
                "completions_per_step": batch.completions_per_step,
                "prompts_per_step": batch.prompts_per_step,
                "on_policy": batch.on_policy,
            },
            "steps": self.total_steps,
            "memory": memory.phases if memory else {},
            "peak_bytes": memory.peak_bytes if memory else None,
            "interval_bytes": list(memory.interval) if memory else None,
            "dominant": memory.dominant if memory else None,
            "estimate": memory.estimate if memory else None,
            "gpu_bytes": None if self.cpu else self.available_bytes or None,
            "reasons": {s.key: {"why": s.why, "source": s.source} for s in self.settings},
            "notes": list(self.notes),
            "versions": dict(self.versions),
            "sha256": self.sha256,
        }

    @property
    def sha256(self) -> str:
        """Hash of the values alone; comments and reasons do not count."""
        text = json.dumps(self.as_config(), sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
