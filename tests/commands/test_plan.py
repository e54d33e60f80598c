"""`grpo-tui plan`: settings and memory for a card that is somewhere else."""

from importlib import metadata
from pathlib import Path

import pytest

from grpo_tui.__main__ import main
from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.plan import overhead
from grpo_tui.session import Session
from tests.commands.projects import answer, shared, workers

__all__ = ["shared", "workers"]  # fixtures


@pytest.fixture(autouse=True)
def here(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared)
    return shared


def test_a_known_model_is_planned_for_a_card_without_the_hub(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "24GiB", "--json"]) == 0
    told = answer(capsys)
    assert told["peak_bytes"] < told["gpu_bytes"] == 24 * 2**30
    assert told["interval_bytes"][0] <= told["peak_bytes"] <= told["interval_bytes"][1]
    assert set(told["memory"]) == {"load", "generate", "score", "train"}
    assert told["batch"]["generation_batch"] % told["batch"]["generations"] == 0
    assert set(told["reasons"]["grpo.learning_rate"]) == {"why", "source"}
    assert {other["name"] for other in told["alternatives"]} == {"safest", "fastest", "largest"}
    assert all(other["peak_bytes"] < told["gpu_bytes"] for other in told["alternatives"])


def test_a_model_folder_is_read_from_its_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "model", "--gpu", "12GiBx2", "--rows", "40", "--prompt-tokens", "20"]) == 0
    said = capsys.readouterr().out
    assert "model on 12GiBx2" in said
    assert "Prompt lengths were not measured" not in said
    assert sorted(path.name for path in here.iterdir()) == sorted({"model", "sums.jsonl", "mine.py"})


def test_a_single_value_is_kept_and_named_as_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--set", "grpo.num_generations=16", "--set", "grpo.beta=0.04", "--prefer", "speed"]
    assert main(["plan", "--model", "Qwen/Qwen3-8B", "--gpu", "80GiBx8", *flags, "--json"]) == 0
    told = answer(capsys)
    assert told["settings"]["num_generations"] == 16
    assert told["reasons"]["grpo.beta"]["source"] == "set by you"
    assert told["batch"]["processes"] == 8


def test_the_memory_of_an_older_trl_is_planned_with_its_logits(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for version in ("1.9", "1.16.0"):
        flags = ["--method", "lora", "--set", "grpo.per_device_train_batch_size=4", "--trl", version]
        assert main(["plan", "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "80GiB", *flags, "--json"]) == 0
        told.append(answer(capsys))
    assert told[0]["memory"]["train"] > told[1]["memory"]["train"]
    assert any(note.startswith("TRL 1.9 holds the logits: + ") for note in told[0]["notes"])
    assert not any("holds the logits" in note for note in told[1]["notes"])
    assert told[0]["versions"]["trl"] == "1.9"


def test_a_plan_for_this_machine_rests_on_what_its_runs_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = 24 * 2**30
    gpu = GPU(
        index=0, uuid="GPU-a", name="NVIDIA RTX 4090", total_bytes=size, free_bytes=size, visible=True, cuda_index=0,
        capability=(8, 9),
    )  # fmt: skip
    monkeypatch.setattr(Session, "machine", lambda session: Machine(gpus=(gpu,), kind="nvidia"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    flags = ["plan", "--model", "Qwen/Qwen2.5-7B-Instruct", "--method", "lora"]
    fixed = ["--set", "grpo.per_device_train_batch_size=1"]
    told = []
    for runs in (0, 3):
        for number in range(runs):
            torch = overhead.plain(metadata.version("torch"))
            measured = overhead.Measured(
                gpu=gpu.name, torch=torch, context_bytes=2**29, fragmentation=0.02, run=f"/r/{number}", began=number
            )
            assert overhead.keep(measured) is None
        assert main([*flags, *fixed, "--here", "--json"]) == 0
        told.append(answer(capsys))
    assert told[1]["peak_bytes"] < told[0]["peak_bytes"]
    assert any(note.startswith("Overhead learnt from 3 runs on this machine: ") for note in told[1]["notes"])
    assert main([*flags, *fixed, "--gpu", "24GiB", "--json"]) == 0
    assert answer(capsys)["peak_bytes"] == told[0]["peak_bytes"], "a card elsewhere has the published overhead"
    overhead.overhead_file().write_text("broken = ")
    assert main([*flags, *fixed, "--here"]) == 0
    assert "The published overhead is used." in capsys.readouterr().out


def test_without_a_gpu_there_is_no_plan_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Session, "machine", lambda session: Machine())
    assert main(["plan", "--model", "Qwen/Qwen2.5-7B-Instruct", "--here", "--json"]) == 2
    assert "no GPU" in answer(capsys)["problems"][0]["what"]


ILLEGAL = ("--set", "grpo.num_generations=7", "--set", "grpo.generation_batch_size=8")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model", "Qwen/Qwen2.5-72B", "--gpu", "12GiB"], "GiB"),
        (["--model", "nobody/knows", "--gpu", "24GiB"], "nobody/knows"),
        (["--model", "Qwen/Qwen2.5-7B", "--gpu", "lots"], "no size of a card"),
        (["--model", "Qwen/Qwen2.5-7B", "--gpu", "24GiB", "--set", "beta"], "no setting"),
        (["--model", "Qwen/Qwen2.5-7B", "--gpu", "24GiB", "--trl", "newest"], "no version of TRL"),
        (["--model", "Qwen/Qwen2.5-7B", "--gpu", "24GiB", "--trl", "0.29.1"], "no version of TRL"),
        (["--model", "Qwen/Qwen2.5-7B", "--gpu", "24GiB", *ILLEGAL], "num_generations"),
    ],
)
def test_what_cannot_be_is_a_problem_with_a_way_out(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *flags, "--json"]) == 2
    problems = answer(capsys)["problems"]
    assert any(words in f"{problem['where']} {problem['what']}" for problem in problems), problems
    assert all(problem["remedy"] for problem in problems)
