"""What the tuning looks at: the facts of machine, model and data, and the situation in which a value is chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_tui.draft import Draft
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.memory import GIB, Memory
from grpo_tui.plan.model import ModelFacts
from grpo_tui.plan.overhead import PUBLISHED_OVERHEAD, Overhead

MEASURED, LIBRARY, PUBLISHED, RULE, USER, RECIPE = (
    "measured here",
    "library default",
    "published",
    "rule of thumb",
    "set by you",
    "recipe",
)

AMPERE = (8, 0)
"""Compute capability from which a GPU has bfloat16 (NVIDIA; transformers 5.24 asks torch the same)."""

MEMORY_SHARE = 0.6
"""With `memory` preferred, the batch is the largest that stays under this share of the card."""

_UNIFIED_SHARE, _UNIFIED_BYTES = 0.1, 2 * GIB
"""What is left free of memory that GPU and CPU share: this share of all of it, and this much at the least.

The training's own process (0.6 GiB), the system and every other program take theirs from it, and where it runs out the
kernel ends a process instead of CUDA raising an error. Rule of thumb.
"""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One GPU, as plain numbers."""

    name: str = ""
    uuid: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    capability: tuple[int, int] | None = None
    unified: bool = False
    """It shares the machine's memory; total and free are those of the machine."""

    @property
    def reserve_bytes(self) -> int:
        """What the plan leaves to others, beside its own margin."""
        return max(int(_UNIFIED_SHARE * (self.total_bytes or 0)), _UNIFIED_BYTES) if self.unified else 0

    @property
    def budget_bytes(self) -> int | None:
        """What the plan may fill; None: not known."""
        return max(1, self.free_bytes - self.reserve_bytes) if self.free_bytes else None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A value that a recipe wants, and why."""

    value: Any
    why: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about this machine, this model and these data."""

    model: ModelFacts
    schema: Schema
    cards: tuple[Card, ...] = ()
    """The chosen GPUs; empty: training runs on the CPU."""

    ram_bytes: int = 0
    """Main memory that is available; 0: not known."""

    processors: int = 1
    rows: int | None = None
    """Usable rows; None: not counted yet."""

    longest_prompt: int = 0
    """Tokens of the longest prompt that is kept; 0: not measured."""

    packages: frozenset[str] = frozenset()
    """Optional packages that are installed: `bitsandbytes`, `vllm`, `flash_attn`, `wandb`, ..."""

    recipe: Mapping[str, Advice] = field(default_factory=dict)
    """Settings the recipe wants: fields of `GRPOConfig`."""

    recipe_draft: Draft | None = None
    """The answers that the recipe gives; None: there is no recipe."""

    overhead: Overhead = PUBLISHED_OVERHEAD
    """What the cards hold beside tensors."""

    notes: tuple[str, ...] = ()
    """What is to be said of the machine beside the plan's values."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the source's file beyond the answers, as keys of [data]: `format`."""


@dataclass(frozen=True)
class Choice:
    """A value, with its reason."""

    value: Any
    why: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything a rule may look at."""

    draft: Draft
    facts: Facts
    given: Mapping[str, Choice]
    """Values that are set already, by the user or the recipe, by dotted key."""

    cards: tuple[Card, ...]
    method: str
    method_why: str
    dtype: str
    batch: Batch
    completion: int
    completion_why: str
    prompt: int
    checkpointing: bool
    optim: str
    memory: Memory
    available: int
    world: int = 1
    """Training processes, on all nodes together."""

    strategy: str = "ddp"
    """How they divide the training, one of `sharding.STRATEGIES`."""

    vllm: str = "off"
    """Where vLLM generates, one of `spread.VLLM`."""

    server: tuple[Card, ...] = ()
    """GPUs of a vLLM server on this node."""

    @property
    def cpu(self) -> bool:
        return not self.cards

    @property
    def capability(self) -> tuple[int, int] | None:
        """That of the oldest card; None where no card says it."""
        return min((card.capability for card in self.cards if card.capability), default=None)

    @property
    def bf16(self) -> bool:
        return bool(self.cards) and (self.capability or AMPERE) >= AMPERE

    @property
    def parameters(self) -> int:
        return self.facts.model.shape.parameters

    @property
    def speed(self) -> bool:
        return self.draft.settings.prefer == "speed"

    def wanted(self, key: str, default: Any) -> Any:
        """The given value of a dotted key, else `default`."""
        return self.given[key].value if key in self.given else default

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run; 0: not known."""
        limit = self.wanted("grpo.max_steps", -1)
        if isinstance(limit, int) and limit > 0:
            return limit
        if self.facts.rows is None:
            return 0
        epochs = self.wanted("grpo.num_train_epochs", 1.0)
        return int(float(epochs) * self.batch.steps_per_epoch(self.facts.rows))
