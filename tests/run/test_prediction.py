"""What a run was said to need, kept beside it and compared with what it measures."""

from pathlib import Path

import pytest

from grpo_tui.plan.footing import Footing
from grpo_tui.plan.memory import GIB
from grpo_tui.progress.events import EVENTS_FILE, Event, tail
from grpo_tui.progress.fold import Progress, advance
from grpo_tui.run import prediction
from grpo_tui.run.prediction import Beside, beside, predicted
from tests.plan.shapes import shape_of

RUNS = Path(__file__).parents[1] / "runs"

STANDS = Footing(
    shape=shape_of("Qwen2.5-1.5B"),
    method="lora",
    settings={"per_device_train_batch_size": 8, "max_completion_length": 512, "bf16": True},
    prompt_tokens=256,
    available_bytes=24 * GIB,
)


def test_cudas_own_part_and_what_torch_keeps_in_reserve_are_told_apart() -> None:
    """torch cannot measure the first, and measures the second as reserved and not as allocated."""
    memory, figures = STANDS.memory, predicted(STANDS)
    assert STANDS.phases == memory.phases
    parts = {part.name: part.bytes for part in memory.parts_by_phase["train"]}
    assert figures["train"] == memory.phases["train"] - parts["CUDA and workspaces"] - parts["allocator"]
    assert figures["peak"] == memory.peak_bytes - parts["CUDA and workspaces"]


def test_a_prediction_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    prediction.write(tmp_path, {"train": 5 * GIB, "peak": 6 * GIB})
    assert prediction.read(tmp_path) == {"train": 5 * GIB, "peak": 6 * GIB}


@pytest.mark.parametrize("content", [None, b"", b"[1]", b'{"bytes": 3}', b'{"bytes": {"peak": "much"}}', b"[" * 99999])
def test_none_and_a_broken_one_are_empty(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / prediction.PREDICTION_FILE).write_bytes(content)
    assert prediction.read(tmp_path) == {}


def measured(**phases: int) -> Progress:
    """A run on a GPU with these peaks allocated, and a tenth more reserved."""
    reserved = {"cuda:0": {"allocated": 1, "reserved": max(phases.values()) * 11 // 10}}
    rows = [("phase", {"seconds": {}, "memory": phases}), ("log", {"logs": {}, "memory": reserved})]
    return advance(Progress(), [Event(v=1, t=1.0, kind=kind, step=1, data=data) for kind, data in rows])


def test_scoring_is_measured_as_training_and_compared_as_such() -> None:
    found = beside(
        measured(generate=30, train=40, sync=7), {"load": 5, "generate": 33, "score": 44, "train": 42, "peak": 50}
    )
    assert found == (
        Beside(name="peak", measured=44, predicted=50),
        Beside(name="generate", measured=30, predicted=33),
        Beside(name="train", measured=40, predicted=44),
    )


def test_a_run_on_the_cpu_and_one_without_prediction_have_nothing_to_compare() -> None:
    on_cpu = advance(Progress(), tail(RUNS / "h01_base" / EVENTS_FILE))
    assert beside(on_cpu, {"train": 5, "peak": 6}) == ()
    assert beside(measured(train=40), {}) == ()
