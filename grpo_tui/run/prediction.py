"""`prediction.json`: the memory a run was said to need, kept in its folder to be set beside what it measures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_tui import atomic, regular
from grpo_tui.progress.fold import Progress

if TYPE_CHECKING:
    from grpo_tui.plan.footing import Footing

PREDICTION_FILE = "prediction.json"
PREDICTION_BYTES = 1 << 16

PEAK, MOVING = "peak", "moving"
"""Keys beside the phases: what torch reserves at the most, and what comes and goes at that moment."""

_PREDICTED_AS: Mapping[str, tuple[str, ...]] = {"generate": ("generate",), "train": ("score", "train")}
"""Phases as the recorder measures them to those of the prediction: it counts scoring as training."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One figure as predicted and as measured so far, bytes."""

    name: str
    """`peak` for what torch reserves, or the phase for what it allocates in it."""

    measured: int
    predicted: int


def predicted(footing: Footing) -> dict[str, int]:
    """What torch is said to allocate on one device by phase, and to reserve at its peak; bytes.

    CUDA's own part is in neither, since a training cannot measure it from inside. What comes and goes is named where
    the allocator's share of it can be learnt: not beside held logits, which are fragmented otherwise.
    """
    from grpo_tui.plan.logits import LOGITS  # the memory model, which a monitor that reads figures has no use for

    moving = footing.memory.moving
    known = {} if any(part.name == LOGITS for part in moving) else {MOVING: sum(part.bytes for part in moving)}
    return {**footing.allocated, PEAK: max(footing.reserved.values()), **known}


def write(run: Path, figures: Mapping[str, int]) -> None:
    """Keep `figures` in the folder of the run. Raises OSError."""
    atomic.write(run / PREDICTION_FILE, json.dumps({"v": 1, "bytes": dict(figures)}) + "\n")


def read(run: Path) -> dict[str, int]:
    """What is kept in the folder of the run; empty: nothing that can be read."""
    try:
        kept = json.loads(regular.read(run / PREDICTION_FILE, PREDICTION_BYTES))["bytes"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {str(name): size for name, size in kept if isinstance(size, int) and not isinstance(size, bool)}


def beside(progress: Progress, figures: Mapping[str, int]) -> tuple[Beside, ...]:
    """What was predicted and has been measured: the peak first, then the phases. Empty on the CPU."""
    reserved = [
        series.values.max() for name, series in progress.memory.items() if name.endswith("/reserved") and series
    ]
    measured = {PEAK: int(max(reserved, default=0)), **progress.phase_memory}
    said = {PEAK: figures.get(PEAK, 0)}
    said |= {name: max(figures.get(each, 0) for each in phases) for name, phases in _PREDICTED_AS.items()}
    return tuple(
        Beside(name=name, measured=measured[name], predicted=size)
        for name, size in said.items()
        if size > 0 and measured.get(name, 0) > 0
    )
