"""What a run that ended well teaches about its GPU: how much was in use beside tensors.

The recorder measures what torch allocates and reserves (events.jsonl), the supervisor what the whole card has in use
(gpus.json), and the plan said how much was to come and go (prediction.json). The difference between the card and torch
is the context; that between reserved and allocated, as a share of what comes and goes, the allocator's.

Built against recorded events with memory figures that were put in: it has not seen a card yet.
"""

import functools
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_tui import regular
from grpo_tui.plan import overhead
from grpo_tui.plan.overhead import Measured
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE, Event, parts
from grpo_tui.run import prediction
from grpo_tui.run.folder import GPUS_FILE

GPUS_BYTES = 4 << 20

STEPS = 3
"""A run must have taken these before it is learnt from: the optimizer's states appear in the first."""

TELLING_BYTES = 1 << 29
"""Less than this coming and going tells nothing of the allocator: its blocks are coarser."""


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """What the newest attempt of a run wrote down."""

    began: float = 0.0
    begin: Mapping[str, Any] | None = None
    first: int = 0
    last: int = 0
    """The steps that were done before it and at its end."""

    allocated: int = 0
    reserved: int = 0


def lesson(run: Path) -> Measured | str:
    """What the newest attempt in the folder `run`, which ended well, tells; or why it tells nothing, as a sentence.

    Only a single process on a single card that nobody else used, without vLLM on it, can be told apart. Never raises
    for what the files hold.
    """
    attempt = _attempt(run)
    if attempt.begin is None:
        return "Its events have no beginning."
    devices = attempt.begin.get("devices")
    device = devices[0] if isinstance(devices, list) and len(devices) == 1 else None
    if not isinstance(device, Mapping) or not attempt.reserved:
        return "It did not train on one GPU alone."
    settings, versions = attempt.begin.get("settings"), attempt.begin.get("versions")
    if not isinstance(settings, Mapping) or not isinstance(versions, Mapping):
        return "Its events do not say what it trained with."
    if attempt.begin.get("world_size") != 1:
        return "Several processes trained, and each holds buffers for the others."
    if settings.get("use_vllm"):
        return "vLLM was there too."
    if attempt.last - attempt.first < STEPS:
        return f"It took fewer than {STEPS} steps."
    name, torch = device.get("name"), versions.get("torch")
    if not (isinstance(name, str) and name and isinstance(torch, str) and torch):
        return "Its events do not name the GPU and the version of torch."
    card = _card(run, str(device.get("uuid") or ""))
    if card is None:
        return "How much of the card was in use was not recorded."
    first, most, before, processes = card
    if before or processes > 1:
        return "Another process was on the card."
    if not processes:
        return "Who uses the card cannot be seen from here, so nothing says that it was the training alone."
    context = most - first - attempt.reserved
    moving = prediction.read(run).get(prediction.MOVING, 0)
    spare = attempt.reserved - attempt.allocated
    measured = Measured(
        gpu=name,
        torch=overhead.plain(torch),
        context_bytes=context,
        fragmentation=round(spare / moving, 4) if moving >= TELLING_BYTES and spare >= 0 else -1.0,
        run=str(run.resolve()),
        began=attempt.began,
    )
    return measured if measured.credible else f"{context / 2**30:.2f} GiB beside tensors is no credible overhead."


def learn(run: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Keep what `run` tells, and say so in a sentence; or say why nothing is learnt."""
    found = lesson(run)
    if isinstance(found, str):
        return f"No overhead is learnt from this run. {found}"
    problem = overhead.keep(found, environ)
    if isinstance(problem, Problem):
        return f"No overhead is learnt from this run. {problem}"
    return f"Overhead learnt: {found.context_bytes / 2**30:.2f} GiB beside what torch reserved on {found.gpu}."


def _attempt(run: Path) -> _Attempt:
    return functools.reduce(_after, itertools.chain.from_iterable(parts(run / EVENTS_FILE)), _Attempt())


def _after(attempt: _Attempt, event: Event) -> _Attempt:
    if event.kind == "begin":
        return _Attempt(began=event.t, begin=event.data, first=event.step)
    allocated, reserved = attempt.allocated, attempt.reserved
    rows = event.data.get("memory") if event.kind == "log" else None
    for peaks in rows.values() if isinstance(rows, Mapping) else ():
        if isinstance(peaks, Mapping):
            allocated = max(allocated, _whole(peaks.get("allocated")))
            reserved = max(reserved, _whole(peaks.get("reserved")))
    return replace(attempt, last=max(attempt.last, event.step), allocated=allocated, reserved=reserved)


def _card(run: Path, uuid: str) -> tuple[int, int, int, int] | None:
    """Of the card: bytes in use at first and at the most, and processes on it at first and at the most.

    None where that is not known.
    """
    try:
        content = json.loads(regular.read(run / GPUS_FILE, GPUS_BYTES))
        (row,) = (each for each in content["gpus"] if each["uuid"] == uuid or not uuid)
        span = row["span"]
        found = [span[name] for name in ("first_bytes", "most_bytes", "first_processes", "most_processes")]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if any(isinstance(each, bool) or not isinstance(each, int) for each in found):
        return None
    first, most, before, processes = found
    return first, most, before, processes


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
