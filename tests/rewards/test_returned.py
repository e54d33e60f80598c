"""What reward functions return, judged as TRL would (RW-02, RW-04), and held against what torch really does."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from grpo_tui.rewards.returned import Reading, read_returned

TORCH = """
import json, math, sys
import numpy as np, torch
from decimal import Decimal
from fractions import Fraction
from grpo_tui.rewards.returned import read_returned
CASES = {
    "floats": lambda: [1.0, 0.0], "ints": lambda: [1, 0], "bools": lambda: [True, False], "tuple": lambda: (1.0, 0.0),
    "generator": lambda: (float(i) for i in (1, 0)), "tensor": lambda: torch.tensor([1.0, 0.0]),
    "0-d tensors": lambda: [torch.tensor(1.0), torch.tensor(0.0)],
    "grad": lambda: torch.tensor([1.0, 0.0], requires_grad=True),
    "1-element tensors": lambda: [torch.tensor([1.0]), torch.tensor([0.0])], "array": lambda: np.array([1.0, 0.0]),
    "np floats": lambda: [np.float64(1), np.float32(0)], "None and floats": lambda: [None, 1.0],
    "nan": lambda: [math.nan, 1.0], "half tensor": lambda: torch.tensor([1.0, 0.0], dtype=torch.bfloat16),
    "column": lambda: np.array([[1.0], [0.0]]), "nested": lambda: [[1.0], [0.0]], "strings": lambda: ["1.0", "0.0"],
    "text": lambda: "10", "too short": lambda: [1.0], "too long": lambda: [1.0] * 3, "nothing": lambda: None,
    "number": lambda: 1.0, "objects": lambda: [object(), object()], "dicts": lambda: [{}, {}],
    "0-d array": lambda: np.array(1.0), "0-d": lambda: torch.tensor(1.0), "matrix": lambda: torch.ones(2, 3),
    "complex": lambda: [1j, 0j],
}
out = {}
for name, make in CASES.items():
    total = torch.zeros(2, 1)
    try:
        values = [v if v is not None else torch.nan for v in make()]
        if len(values) != 2: raise ValueError
        total[:, 0] = torch.tensor(values, dtype=torch.float32)
        theirs = [None if math.isnan(v) else v for v in total[:, 0].tolist()]
    except Exception:
        theirs = "refused"
    ours = read_returned(make(), 2)
    out[name] = [theirs, "refused" if not ours.rewards else list(ours.rewards)]
json.dump(out, sys.stdout)
"""


def test_values_are_taken_and_refused_as_by_the_trainer() -> None:
    """Every kind goes through the trainer's own conversion and through ours, in one process with torch."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", TORCH], capture_output=True, text=True, check=True)
    verdicts = json.loads(done.stdout)
    assert {name: ours for name, (_, ours) in verdicts.items()} == {name: its for name, (its, _) in verdicts.items()}
    assert sum(its == "refused" for its, _ in verdicts.values()) == 14


def only_fault(reading: Reading) -> str:
    (fault,) = reading.faults
    assert fault.remedy
    return fault.what


async def coroutine() -> list[float]:
    return [1.0]


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ([1.0], "returned 1 rewards for 2 completions"),
        ([1.0] * 3, "returned 3 rewards for 2 completions"),
        (None, "a `return` is missing"),
        (1.0, "one value (1.0)"),
        ([None, None], "No completion was scored"),
        ({0: 1.0, 1: 0.0}, "*keys* would become the rewards"),
        ({1.0, 0.5}, "a set"),
        (["1.0", "0.0"], "text instead of a number: '1.0'"),
        ([[1.0], [0.0]], "nested values: [1.0]"),
        (np.array([[1.0], [0.0]]), "nested values"),
        ([float("inf"), 0.0], "infinite"),
        ([1e39, 0.0], "infinite"),  # in float32
        ([float("nan")] * 2, "No completion was scored"),
        ([{}, {}], "a dict for a completion"),
    ],
)
def test_a_return_that_cannot_be_trained_with_is_named(output: Any, what: str) -> None:
    reading = read_returned(output, 2)
    assert reading.blocking
    assert what in only_fault(reading)


def test_a_coroutine_that_nobody_awaits_is_named() -> None:
    output = coroutine()
    assert "nobody awaits" in only_fault(read_returned(output, 1))
    output.close()


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda: [True, False], "bools are converted"),
        (lambda: np.array([1.0, 0.0]), "A ndarray is read item by item."),
        (lambda: (float(each) for each in (1, 0)), "A generator is read item by item."),
        (lambda: [np.float64(1), np.float64(0)], "float64 values are converted"),
    ],
)
def test_odd_but_usable_returns_are_taken_and_remarked(make: Callable[[], Any], note: str) -> None:
    reading = read_returned(make(), 2)
    assert reading.rewards == (1.0, 0.0)
    assert not reading.faults
    assert any(note in said for said in reading.notes)


def test_none_for_some_completions_is_allowed_and_explained() -> None:
    reading = read_returned([None, 1.0, None], 3)
    assert reading.rewards == (None, 1.0, None)
    assert not reading.faults
    assert "None for 2 of 3" in reading.notes[0]


def test_nan_for_some_completions_is_a_fault_but_does_not_stop_training() -> None:
    reading = read_returned([float("nan"), 1.0], 2)
    assert reading.rewards == (None, 1.0)
    assert not reading.blocking
    assert "NaN for 1 of 2" in only_fault(reading)
