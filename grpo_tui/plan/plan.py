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

    @property
    def sha256(self) -> str:
        """Hash of the values alone; comments and reasons do not count."""
        text = json.dumps(self.as_config(), sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
