"""What GPUs hold beside tensors: kept per kind of GPU and version of torch, and used as the median of the newest."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui.plan import overhead
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.memory import GIB, predict
from grpo_tui.plan.overhead import PUBLISHED_OVERHEAD, Measured, Overhead
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts, planned
from tests.plan.shapes import shape_of

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def run_of(number: int, gib: float, share: float = 0.05, gpu: str = A100, torch: str = "2.13.0") -> Measured:
    """What the run of that number measured."""
    return Measured(
        gpu=gpu, torch=torch, context_bytes=int(gib * GIB), fragmentation=share, run=f"/runs/{number}", began=number
    )


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without any configuration."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def kept(home: dict[str, str]) -> tuple[Measured, ...]:
    found = overhead.read(home)
    assert not isinstance(found, Problem), found
    return found


def test_what_runs_measured_is_kept_in_the_users_configuration_folder(home: dict[str, str], tmp_path: Path) -> None:
    assert kept(home) == ()
    runs = [run_of(1, 0.5), run_of(2, 0.6, -1.0)]
    assert [overhead.keep(run, home) for run in runs] == [None, None]
    assert kept(home) == tuple(runs)
    assert [path.name for path in (tmp_path / "config" / "grpo-tui").iterdir()] == ["overhead.toml"]
    assert overhead.overhead_file({"HOME": "/home/me"}) == Path("/home/me/.config/grpo-tui/overhead.toml")


def test_the_median_of_the_newest_runs_is_used_from_the_third_on(home: dict[str, str]) -> None:
    assert overhead.learnt([run_of(1, 0.5), run_of(2, 0.6)], A100, "2.13.0") == PUBLISHED_OVERHEAD
    three = [run_of(1, 0.5, 0.02), run_of(2, 2.9, 0.4), run_of(3, 0.6, 0.03)]
    assert overhead.learnt(three, A100, "2.13.0+cu130") == Overhead(
        context_bytes=int(0.6 * GIB), fragmentation=0.03, runs=3
    )
    newer = [*three, *(run_of(number, 1.0) for number in range(4, 4 + overhead.NEWEST))]
    assert overhead.learnt(newer, A100, "2.13.0").context_bytes == GIB
    assert overhead.learnt(newer, A100, "2.13.0").runs == overhead.NEWEST


def test_another_gpu_and_another_torch_teach_nothing_here() -> None:
    others = [run_of(number, 0.5, gpu=H100) for number in range(5)] + [
        run_of(number, 0.5, torch="2.12.1") for number in range(5)
    ]
    assert overhead.learnt(others, A100, "2.13.0") == PUBLISHED_OVERHEAD
    assert overhead.learnt(others, H100, "2.13.0").runs == 5


def test_where_too_few_tell_of_the_allocator_its_share_stays_the_published_one() -> None:
    quiet = [run_of(number, 0.5, -1.0) for number in range(4)] + [run_of(5, 0.5, 0.3)]
    found = overhead.learnt(quiet, A100, "2.13.0")
    assert (found.runs, found.fragmentation) == (5, PUBLISHED_OVERHEAD.fragmentation)


@pytest.mark.parametrize(("gib", "share", "used"), [(5.0, 0.9, (3.0, 0.5)), (0.03, 0.0, (0.1, 0.0))])
def test_what_is_learnt_stays_within_limits(gib: float, share: float, used: tuple[float, float]) -> None:
    found = overhead.learnt([run_of(number, gib, share) for number in range(3)], A100, "2.13.0")
    assert (found.context_bytes / GIB, found.fragmentation) == (pytest.approx(used[0], abs=0.01), used[1])


@pytest.mark.parametrize(("gib", "share"), [(-0.5, 0.1), (0.0, 0.1), (12.0, 0.1), (0.5, 4.0)])
def test_what_cannot_be_overhead_is_not_kept(home: dict[str, str], gib: float, share: float) -> None:
    problem = overhead.keep(run_of(1, gib, share), home)
    assert isinstance(problem, Problem)
    assert kept(home) == ()


def test_a_run_that_goes_on_counts_once(home: dict[str, str]) -> None:
    for gib in (0.5, 0.7):
        assert overhead.keep(run_of(1, gib), home) is None
    assert kept(home) == (run_of(1, 0.7),)


BROKEN = [
    b"\xff\xfe", b"run = 3", b"[[run]]\ngpu = 1", b"version = ", b'[[run]]\ngpu = "A"', b"run = [1, 2]",
    b"a = " + b"[" * 5000,
    b'[[run]]\ngpu = "A"\ntorch = "2"\ncontext_bytes = "1"\nrun = "r"\nbegan = 1.0',
    b'[[run]]\ngpu = "A"\ntorch = "2"\ncontext_bytes = 1\nfragmentation = nan\nrun = "r"\nbegan = 1.0',
    b'[[run]]\ngpu = "A"\ntorch = "2"\ncontext_bytes = inf\nrun = "r"\nbegan = 1.0',
    b"#" * (1 << 21), b"version = 9",
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_cannot_be_used_is_a_problem_with_a_way_out_and_stays_as_it_is(
    home: dict[str, str], content: bytes
) -> None:
    path = overhead.overhead_file(home)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = overhead.read(home)
    assert isinstance(found, Problem)
    assert "The published overhead is used." in found.what
    assert "doctor --forget" in found.remedy
    assert isinstance(overhead.keep(run_of(1, 0.5), home), Problem)
    assert path.read_bytes() == content
    assert overhead.forget(home) is True
    assert kept(home) == ()


def test_a_pipe_in_its_place_is_not_waited_for(home: dict[str, str]) -> None:
    import os

    path = overhead.overhead_file(home)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert isinstance(overhead.read(home), Problem)


def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where a folder should be")
    assert isinstance(overhead.keep(run_of(1, 0.5), {"XDG_CONFIG_HOME": str(tmp_path / "config")}), Problem)


def test_forgetting_leaves_nothing_and_says_whether_there_was_anything(home: dict[str, str]) -> None:
    assert overhead.forget(home) is False
    overhead.keep(run_of(1, 0.5), home)
    assert overhead.forget(home) is True
    assert kept(home) == ()


def test_of_cards_that_differ_the_larger_overhead_is_planned_with() -> None:
    runs = [run_of(number, 0.5) for number in range(3)] + [run_of(number, 1.5, gpu=H100) for number in range(3)]
    assert overhead.of_cards(runs, [A100, A100], "2.13.0").context_bytes == GIB // 2
    assert overhead.of_cards(runs, [A100, H100], "2.13.0").context_bytes == int(1.5 * GIB)
    assert overhead.of_cards(runs, [A100, "another"], "2.13.0") == PUBLISHED_OVERHEAD
    assert overhead.of_cards(runs, [], "2.13.0") == PUBLISHED_OVERHEAD


SETTINGS = {"per_device_train_batch_size": 8, "max_completion_length": 512, "bf16": True}
LEARNT = Overhead(context_bytes=GIB // 2, fragmentation=0.02, runs=3)


def test_the_prediction_moves_by_what_was_learnt_and_says_by_how_much() -> None:
    shape = shape_of("Qwen2.5-7B")
    plain, here = (
        predict(shape, "lora", SETTINGS, prompt_tokens=256, overhead=each) for each in (PUBLISHED_OVERHEAD, LEARNT)
    )
    moving = sum(part.bytes for part in plain.moving)
    saved = PUBLISHED_OVERHEAD.context_bytes - LEARNT.context_bytes + (0.108 - 0.02) * moving
    assert plain.peak_bytes - here.peak_bytes == pytest.approx(saved, abs=10)
    beside = [PUBLISHED_OVERHEAD.context_bytes + 0.108 * moving, LEARNT.context_bytes + 0.02 * moving]
    assert here.remarks == (
        f"Overhead learnt from 3 runs on this machine: {beside[1] / GIB:.1f} GiB instead of {beside[0] / GIB:.1f}.",
    )
    assert plain.remarks == ()


def test_on_the_cpu_nothing_of_it_counts() -> None:
    shape = shape_of("SmolLM2-135M")
    plain, here = (
        predict(shape, "full", SETTINGS, prompt_tokens=64, dtype="float32", cpu=True, overhead=each)
        for each in (PUBLISHED_OVERHEAD, LEARNT)
    )
    assert plain == here


def test_a_plan_fits_by_what_was_learnt_and_names_it(schema: Schema) -> None:
    known = facts("Qwen2.5-1.5B", schema, 12)
    much = replace(LEARNT, context_bytes=3 * GIB, fragmentation=0.5)
    plans = [planned(draft(), replace(known, overhead=each)) for each in (PUBLISHED_OVERHEAD, much)]
    assert plans[1].batch.per_device < plans[0].batch.per_device
    assert any(note.startswith("Overhead learnt from 3 runs") for note in plans[1].notes)
    assert not any("learnt" in note for note in plans[0].notes)
