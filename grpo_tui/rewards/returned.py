"""What a reward function returned, read as TRL's trainer would read it.

TRL 1.16 (`GRPOTrainer._calculate_rewards`): every item of the returned iterable, None made NaN, must number as many as
the completions and go through `torch.tensor(..., dtype=float32)`. Neither torch nor numpy is imported here: their
values are known by the module of their type.
"""

import inspect
import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.rewards.advantages import FLOAT32_MAX, Reward


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing wrong with a returned value."""

    what: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A returned value as rewards."""

    rewards: tuple[Reward, ...] = ()
    """One per completion, None where the function gave none; empty when it could not be read."""

    faults: tuple[Fault, ...] = ()
    blocking: bool = False
    """Training would stop, or learn nothing, from this."""

    notes: tuple[str, ...] = ()


def read_returned(output: Any, count: int) -> Reading:
    """The rewards in `output`, which was returned for `count` completions. A generator is consumed."""
    fault = _unusable(output)
    if fault:
        return Reading(faults=(fault,), blocking=True)
    items = list(output)
    fault = next(filter(None, map(_wrong_item, items)), None) or _wrong_length(items, count)
    if fault:
        return Reading(faults=(fault,), blocking=True)
    values = [None if item is None else float(item) for item in items]
    notes = [f"{kind} are converted to numbers." for kind in dict.fromkeys(map(_converted, items)) if kind]
    if not isinstance(output, list | tuple):
        notes.append(f"A {type(output).__name__} is read item by item.")
    return _judge(values, notes)


def _unusable(output: Any) -> Fault | None:
    """Why nothing can be read from it, by the kind of the whole."""
    if output is None:
        return Fault(what="It returned nothing: a `return` is missing.", remedy="Return a list with one number each.")
    if inspect.isawaitable(output):
        return Fault(
            what="It returned a coroutine that nobody awaits.", remedy="Define it with `async def`, or await inside."
        )
    if isinstance(output, Mapping):
        return Fault(
            what="It returned a dict: its *keys* would become the rewards, without any error.",
            remedy="Return a list: `list(result.values())`, in the order of the completions.",
        )
    if isinstance(output, Set):
        return Fault(what="It returned a set, which has no order and drops equal rewards.", remedy="Return a list.")
    if isinstance(output, str | bytes):
        return Fault(what=f"It returned text: {one_line(repr(output), 60)}.", remedy="Return a list of numbers.")
    if not isinstance(output, Iterable) or getattr(output, "ndim", 1) == 0:
        return Fault(
            what=f"It returned one value ({one_line(repr(output), 60)}) for all completions.",
            remedy="Return a list with one number per completion.",
        )
    return None


def _wrong_length(items: list[Any], count: int) -> Fault | None:
    if len(items) == count:
        return None
    return Fault(
        what=f"It returned {len(items)} rewards for {count} completions.",
        remedy="Return exactly one reward per completion.",
    )


def _wrong_item(item: Any) -> Fault | None:
    """Why torch would refuse this item among the others."""
    shown = one_line(repr(item), 60)
    if isinstance(item, str | bytes):
        return Fault(what=f"It returned text instead of a number: {shown}.", remedy="Convert each with float().")
    if isinstance(item, Mapping):
        return Fault(what=f"It returned a dict for a completion: {shown}.", remedy="Return its number alone.")
    if isinstance(item, list | tuple) or _is_array(item):
        return Fault(what=f"It returned nested values: {shown}.", remedy="Give a flat list: one number per completion.")
    if item is None or hasattr(item, "__float__"):
        return None
    return Fault(
        what=f"It returned a {type(item).__name__} instead of a number: {shown}.", remedy="Return floats or None."
    )


def _is_array(item: Any) -> bool:
    """An array that torch does not take for a number: any numpy one with a dimension, a tensor of several values."""
    if _library(item) == "torch":
        return bool(item.numel() != 1)
    return getattr(item, "ndim", 0) > 0


def _library(item: Any) -> str:
    return type(item).__module__.partition(".")[0]


def _converted(item: Any) -> str:
    """The kind of a value that is no plain number, in the plural; empty for plain ones."""
    if item is None or type(item) in (int, float):
        return ""
    return {"bool": "bools", "Tensor": "tensors"}.get(type(item).__name__, f"{type(item).__name__} values")


def _judge(values: list[Reward], notes: list[str]) -> Reading:
    rewards = [None if value is None or math.isnan(value) else value for value in values]
    faults = []
    infinite = [value for value in rewards if value is not None and abs(value) > FLOAT32_MAX]
    if all(value is None for value in rewards):
        faults.append(
            Fault(
                what="No completion was scored: every reward is None or NaN, and nothing would be learned.",
                remedy="Look at what the function needs: a right answer of type int is often not read as text.",
            )
        )
    if infinite:
        faults.append(
            Fault(
                what="It returned an infinite reward, which wipes out the advantages of its whole group.",
                remedy="Bound the reward, best to 0 … 1.",
            )
        )
    blocking = bool(faults)
    count = sum(value is not None and math.isnan(value) for value in values)
    if count and count < len(values):
        faults.append(
            Fault(
                what=f"It returned NaN for {count} of {len(values)} completions; training skips it there.",
                remedy="Return None where the function does not apply, and find the 0/0 where it does.",
            )
        )
    skipped = values.count(None)
    if skipped and not blocking:
        notes.append(
            f"None for {skipped} of {len(values)} completions: there it is skipped and the others count alone."
        )
    return Reading(rewards=tuple(rewards), faults=tuple(faults), blocking=blocking, notes=tuple(notes))
