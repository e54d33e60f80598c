"""What a training stands on, as far as memory goes: one configuration on one kind of device, with and without vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_tui.plan.memory import GIB, Memory, predict
from grpo_tui.plan.overhead import PUBLISHED_OVERHEAD, Overhead
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.shape import ModelShape
from grpo_tui.plan.situation import Facts

ASLEEP_BYTES = GIB
"""What a sleeping vLLM engine keeps (context, graphs): not measured, an assumption."""

SHARE = 0.3
"""TRL's default of vllm_gpu_memory_utilization since 0.18."""


@dataclass(frozen=True, kw_only=True)
class Footing:
    """A configuration, and the device it is to fit."""

    shape: ModelShape
    method: str
    """`lora`, `qlora` or `full`."""

    settings: Mapping[str, Any]
    """Fields of `GRPOConfig`."""

    prompt_tokens: int
    """The longest prompt."""

    usual_prompt_tokens: int = 0
    """A length that most prompts stay under (the 95th percentile); 0: not measured."""

    world: int = 1
    strategy: str = "ddp"
    """How the processes divide the training, one of `sharding.STRATEGIES`."""

    rank: int = 16
    dtype: str = "bfloat16"
    available_bytes: int = 0
    """Free on the smallest device; 0: not known."""

    total_bytes: int = 0
    """Of that device: vLLM's share is a share of it. 0: as much as is free."""

    cpu: bool = False
    trl: str = ""
    """The version of TRL; empty: the newest."""

    overhead: Overhead = PUBLISHED_OVERHEAD
    """What the device holds beside tensors."""

    packages: frozenset[str] = field(default_factory=frozenset)
    """Optional packages that are installed."""

    @property
    def memory(self) -> Memory:
        """The prediction for the training alone."""
        return predict(
            self.shape,
            self.method,
            self.settings,
            self.world,
            prompt_tokens=self.prompt_tokens,
            rank=self.rank,
            dtype=self.dtype,
            cpu=self.cpu,
            strategy=self.strategy,
            trl=self.trl,
            overhead=self.overhead,
        )

    @property
    def colocated(self) -> bool:
        """vLLM generates on the training's own GPU."""
        return bool(self.settings.get("use_vllm")) and self.settings.get("vllm_mode", "colocate") == "colocate"

    @property
    def share(self) -> float:
        """The share of the device that vLLM takes."""
        return float(self.settings.get("vllm_gpu_memory_utilization") or SHARE)

    @property
    def phases(self) -> dict[str, int]:
        """Peak bytes by phase, with what vLLM holds, and without the part of the cache that is kept in main memory."""
        return self._phases()

    @property
    def reserved(self) -> dict[str, int]:
        """The same without CUDA's own part: what torch reserves."""
        return self._phases("CUDA and workspaces", "Python and torch")

    @property
    def allocated(self) -> dict[str, int]:
        """The same without what torch reserves and does not use."""
        return self._phases("CUDA and workspaces", "Python and torch", "allocator")

    def _phases(self, *left_out: str) -> dict[str, int]:
        parts = {
            phase: {part.name: part.bytes for part in parts if part.name not in left_out}
            for phase, parts in self.memory.parts_by_phase.items()
        }
        generate = parts["generate"]
        if self.settings.get("use_vllm"):  # transformers generates nothing then
            for name in ("key-value cache", "sampling", "prompts", "allocator"):
                generate.pop(name, None)
        elif str(self.settings.get("cache_implementation") or "").startswith("offloaded"):
            # transformers keeps one layer on the GPU and fetches the next one meanwhile (OffloadedCache).
            cache = generate.get("key-value cache", 0)
            generate["key-value cache"] = min(cache, 2 * cache // self.shape.layers)
        phases = {phase: sum(sizes.values()) for phase, sizes in parts.items()}
        if self.colocated:
            held = int(self.share * (self.total_bytes or self.available_bytes))
            asleep = ASLEEP_BYTES if self.settings.get("vllm_enable_sleep_mode") else held
            phases = {name: size + (held if name == "generate" else asleep) for name, size in phases.items()}
        return phases

    @property
    def peak_bytes(self) -> int:
        return max(self.phases.values())

    @property
    def fits(self) -> bool | None:
        """Whether the peak and a margin for varying lengths fit; None: how much is free is not known."""
        if not self.available_bytes:
            return None
        memory = self.memory
        margin = memory.needed(self.available_bytes) - memory.peak_bytes
        return self.peak_bytes + margin <= self.available_bytes

    def having(self, changes: Mapping[str, Any]) -> "Footing":
        """With `changes` by dotted key of `config.toml`, or `method`; a value of None takes the key out."""
        settings = dict(self.settings)
        other: dict[str, Any] = {}
        for key, value in changes.items():
            section, _, name = key.partition(".")
            if section == "grpo" and value is None:
                settings.pop(name, None)
            elif section == "grpo":
                settings[name] = value
            elif key in _FIELDS:
                other[_FIELDS[key]] = value
        return replace(self, settings=settings, **other)


_FIELDS: Mapping[str, str] = {
    "method": "method",
    "model.dtype": "dtype",
    "lora.r": "rank",
    "data.max_prompt_tokens": "prompt_tokens",
}


def footing_of(plan: Plan, shape: ModelShape, **known: Any) -> Footing:
    """What `plan` stands on; `known` are further fields: `prompt_tokens`, `total_bytes`, `packages`, ...

    A plan read back from `config.toml` knows no versions: `trl` is to be among `known` then.
    """
    rank = plan.value("lora.r", 16)
    values = {
        "prompt_tokens": plan.value("data.max_prompt_tokens") or 512,
        "available_bytes": plan.available_bytes,
        "rank": rank if isinstance(rank, int) else 16,
        "dtype": str(plan.value("model.dtype", "float32")),
        "world": plan.world_size,
        "strategy": str(plan.value("launch.strategy") or "ddp"),
        "cpu": plan.cpu,
        "trl": plan.versions.get("trl", ""),
        **known,
    }
    return Footing(shape=shape, method=plan.method, settings=plan.section("grpo"), **values)


def planned_footing(plan: Plan, facts: Facts) -> Footing:
    """What a plan stands on that was made from `facts`."""
    sizes = [card.total_bytes for card in facts.cards if card.total_bytes]
    limit = plan.value("data.max_prompt_tokens") or 0
    longest = min(filter(None, (facts.longest_prompt, limit)), default=0)
    known: dict[str, Any] = {"prompt_tokens": longest} if longest else {}
    known |= {"packages": facts.packages, "overhead": facts.overhead}
    return footing_of(plan, facts.model.shape, total_bytes=min(sizes, default=0), **known)
