"""What a run teaches about its GPU, from recorded events with memory figures put in: no card was at hand."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.hardware.nvml import Sample
from grpo_tui.plan import overhead
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE
from grpo_tui.run import prediction, supervisor
from grpo_tui.run.folder import GPUS_FILE
from grpo_tui.run.lesson import learn, lesson
from grpo_tui.run.supervisor import Job, span, supervise

GIB = 2**30
RECORDED = Path(__file__).parents[1] / "runs" / "h01_base" / EVENTS_FILE
CARD = {"index": 0, "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-a", "total_bytes": 80 * GIB}
SPAN = {"first_bytes": GIB // 2, "most_bytes": int(22.4 * GIB), "first_processes": 0, "most_processes": 1}


def events(steps: int = 12, **begin: Any) -> str:
    """The recorded run, as if it had trained on a card with 20 GiB allocated and 21 GiB reserved at its peak."""
    lines = []
    for line in RECORDED.read_text().splitlines():
        row = json.loads(line)
        if row["step"] > steps:
            break
        if row["kind"] == "begin":
            row |= {"devices": [CARD], **begin}
        elif row["kind"] == "log":
            peak = 20 if row["step"] == 7 else 18
            row["memory"] = {"cuda:0": {"allocated": peak * GIB, "reserved": (peak + 1) * GIB}}
        elif row["kind"] == "phase":
            row["memory"] = {"train": 20 * GIB, "generate": 17 * GIB}
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run on a card that nobody else used."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / EVENTS_FILE).write_text(events())
    write_gpus(folder)
    prediction.write(folder, {"train": 19 * GIB, "peak": 21 * GIB, "moving": 8 * GIB})
    return folder


def write_gpus(folder: Path, **changed: Any) -> None:
    row = {"uuid": "GPU-a", "span": {**SPAN, **changed}}
    (folder / GPUS_FILE).write_text(json.dumps({"v": 1, "t": 1.0, "gpus": [row]}))


def test_the_context_is_what_the_card_holds_beyond_torch_and_before_the_run(run: Path) -> None:
    found = lesson(run)
    assert not isinstance(found, str), found
    assert found.context_bytes / GIB == pytest.approx(22.4 - 0.5 - 21, abs=0.001)
    assert found.fragmentation == 1 / 8, "1 GiB reserved and unused, of 8 that come and go"
    assert (found.gpu, found.torch) == (CARD["name"], "2.13.0"), "without the build"


def test_the_allocator_is_not_judged_by_what_hardly_moves_or_was_not_predicted(run: Path) -> None:
    for figures in ({"peak": 21 * GIB}, {"peak": 21 * GIB, "moving": 1 << 20}):
        prediction.write(run, figures)
        found = lesson(run)
        assert not isinstance(found, str), found
        assert found.fragmentation == -1.0


def test_a_run_that_went_on_is_learnt_from_by_its_newest_attempt(run: Path) -> None:
    (run / EVENTS_FILE).write_text(events().replace(str(21 * GIB), str(60 * GIB)) + events())
    found = lesson(run)
    assert not isinstance(found, str), found
    assert found.context_bytes / GIB == pytest.approx(0.9, abs=0.001)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"devices": []}, "one GPU"),
        ({"devices": [CARD, CARD]}, "one GPU"),
        ({"devices": "GPU"}, "one GPU"),
        ({"world_size": 4}, "Several processes"),
        ({"settings": {"use_vllm": True}}, "vLLM"),
        ({"settings": None}, "what it trained with"),
        ({"versions": {}}, "version of torch"),
        ({"devices": [{**CARD, "name": 7}]}, "name the GPU"),
        ({"devices": [{**CARD, "uuid": "GPU-other"}]}, "was not recorded"),
    ],
)
def test_what_cannot_be_told_apart_is_not_learnt_from(run: Path, changed: dict[str, Any], why: str) -> None:
    (run / EVENTS_FILE).write_text(events(**changed))
    assert why in str(lesson(run))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"first_processes": 1}, "Another process"),
        ({"most_processes": 2}, "Another process"),
        ({"most_processes": 0}, "cannot be seen"),
        ({"most_processes": None}, "was not recorded"),
        ({"most_bytes": None}, "was not recorded"),
        ({"most_bytes": 21 * GIB}, "no credible overhead"),
        ({"most_bytes": 70 * GIB}, "no credible overhead"),
        ({"first_bytes": True}, "was not recorded"),
    ],
)
def test_a_card_that_was_shared_or_not_seen_teaches_nothing(run: Path, changed: dict[str, Any], why: str) -> None:
    write_gpus(run, **changed)
    assert why in str(lesson(run))


def test_a_run_of_two_steps_is_too_short(run: Path) -> None:
    (run / EVENTS_FILE).write_text(events(steps=2))
    assert "fewer than 3 steps" in str(lesson(run))


UNREADABLE = [None, b"", b"[]", b'{"gpus": 3}', b'{"gpus": [{}]}', b"[" * 9999, b"\xff"]


@pytest.mark.parametrize("content", UNREADABLE, ids=range(len(UNREADABLE)))
def test_readings_that_are_broken_teach_nothing(run: Path, content: bytes | None) -> None:
    (run / GPUS_FILE).unlink()
    if content is not None:
        (run / GPUS_FILE).write_bytes(content)
    assert "was not recorded" in str(lesson(run))


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"\0\0\0", b'{"v": 1, "t": 1, "kind": "log", "step": 1, "memory": 3}\n']
)
def test_events_that_are_broken_teach_nothing(run: Path, content: bytes) -> None:
    (run / EVENTS_FILE).write_bytes(content)
    assert isinstance(lesson(run), str)


def test_what_is_learnt_and_what_is_not_is_said_in_a_sentence(run: Path, tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert learn(run, home).startswith("Overhead learnt: 0.90 GiB beside what torch reserved on NVIDIA A100")
    write_gpus(run, most_processes=3)
    assert learn(run, home) == "No overhead is learnt from this run. Another process was on the card."
    kept = overhead.read(home)
    assert not isinstance(kept, Problem)
    assert len(kept) == 1


def test_a_card_is_spanned_from_its_first_reading_to_its_highest() -> None:
    def reading(used: int | None, processes: int | None) -> Sample:
        return Sample("GPU-a", used, 100, 50, 60, None, processes)

    before = None
    for used, processes in [(5, 0), (40, 1), (30, 1)]:
        before = span(before, reading(used, processes))
    assert before == {"first_bytes": 5, "most_bytes": 40, "first_processes": 0, "most_processes": 1}
    failed = span(before, reading(None, None))
    assert (failed["first_bytes"], failed["most_bytes"], failed["most_processes"]) == (5, None, None)
    assert span(failed, reading(30, 1))["most_bytes"] is None, "a reading that failed may have been the highest"


class Card:
    """A sampler of one card: free at first, then with the training on it."""

    def __init__(self, uuids: object) -> None:
        self.readings = 0

    def __enter__(self) -> "Card":
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def sample(self) -> tuple[Sample, ...]:
        self.readings += 1
        used = GIB // 2 if self.readings == 1 else int(22.4 * GIB)
        return (Sample("GPU-a", used, 80 * GIB, 99, 40, 200.0, min(1, self.readings - 1)),)


@pytest.mark.parametrize(
    ("ending", "entries"), [("", 1), ("raise SystemExit(1)", 0), ("import os; os.kill(os.getpid(), 9)", 0)]
)
def test_the_supervisor_learns_from_a_run_that_ended_well_and_from_no_other(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    ending: str, entries: int,
) -> None:  # fmt: skip
    """The training is stood in for by a program that writes the recorded events; out of memory ends with status 1."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(supervisor, "Sampler", Card)
    monkeypatch.setattr(supervisor, "read_machine", lambda: Machine(gpus=(GPU(index=0, uuid="GPU-a", name="A100"),)))
    monkeypatch.setattr(supervisor, "SAMPLE_SECONDS", 0.05)
    (run / GPUS_FILE).unlink()
    code = f"import time; time.sleep(0.4)\n{ending}"
    supervise(Job(run=run, argv=(sys.executable, "-c", code), directory=run.parent, gpus=("GPU-a",)))
    kept = overhead.read()
    assert not isinstance(kept, Problem)
    assert [round(each.context_bytes / GIB, 2) for each in kept] == [0.9] * entries
    assert ("Overhead learnt: 0.90 GiB" in capfd.readouterr().err) == bool(entries)
