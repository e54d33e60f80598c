"""`grpo-tui check` finds what would stop a run, without starting it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_tui import state
from grpo_tui.__main__ import main
from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.plan.memory import GIB
from grpo_tui.session import Session
from tests.commands.projects import answer, init, shared, workers

__all__ = ["shared", "workers"]  # fixtures


@pytest.fixture
def project(shared: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project that is ready to run."""
    assert init(shared) == 0
    capsys.readouterr()
    return shared / "project"


def change(project: Path, old: str, new: str, name: str = "config.toml") -> None:
    text = (project / name).read_text()
    assert old in text
    (project / name).write_text(text.replace(old, new))


def by_id(told: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["level"] for check in told["checks"]}


def test_a_sound_project_is_ready(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(project), "--json"]) == 0
    told = answer(capsys)
    assert told["problems"] == []
    assert by_id(told) == dict.fromkeys(("model", "data", "grpo", "memory", "steps", "rewards", "hardware"), "ok")
    assert main(["check", str(project)]) == 0
    assert "Ready to run." in capsys.readouterr().out


def test_an_expression_that_can_be_gamed_is_warned_of(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RW-10, before anything runs; it does not stop a training."""
    rewards = (project / "rewards.py").read_text()
    (project / "rewards.py").write_text(f"import re\nSHAPE = re.compile(r'^<a>.*?</a>$', re.DOTALL)\n{rewards}")
    assert main(["check", str(project), "--json"]) == 0
    [warned] = [check for check in answer(capsys)["checks"] if "<a> stands twice" in check["text"]]
    assert (warned["level"], warned["text"][:13]) == ("warn", "rewards.py:2:")


def test_nothing_is_changed_by_looking(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir() if path.is_file()}
    main(["check", str(project)])
    assert {path.name: path.read_bytes() for path in project.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("name", "old", "new", "where", "words"),
    [
        ("config.toml", "num_generations = 2", "num_generations = 7", "grpo.num_generations", "no multiple"),
        ("config.toml", 'loss_type = "dapo"', 'loss_type = "drgrpo"', "grpo.loss_type", "none of its values"),
        ("config.toml", "[grpo]", "[grpo]\nmax_prompt_length = 9", "grpo.max_prompt_length", "does not know this key"),
        ("config.toml", 'report_to = "none"', 'report_to = "comet_ml"', "grpo.report_to", "not installed"),
        ("config.toml", "bf16 = false", "bf16 = true\ntf32 = true", "grpo.tf32", "refuses it"),
        ("config.toml", 'name = "correct"', 'name = "wrong"', "rewards", "wrong"),
        ("config.toml", 'prompt = "question"', 'prompt = "level"', "train.py", "written for other data"),
        ("config.toml", "use_cpu = true", "use_cpu = false", "hardware", "0 GPUs are here"),
        ("config.toml", "max_completion_length = 8", "max_completion_length = 0", "grpo.max_completion_length", "0"),
        ("rewards.py", "def brief(completions, **kwargs)", "def brief(answers)", "rewards", "brief"),
        ("rewards.py", "import", "import", "", ""),
        ("train.py", "def main():", "def main(:", "train.py", "not Python"),
    ],
)
def test_what_would_stop_the_run_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, where: str, words: str
) -> None:
    if not where:
        (project / name).unlink()
        where, words = "rewards", "rewards.py"
    else:
        change(project, old, new, name)
    assert main(["check", str(project), "--json"]) == 2
    problems = answer(capsys)["problems"]
    assert any(problem["where"] == where and words in problem["what"] for problem in problems), problems
    assert all(problem["remedy"] for problem in problems)


def test_a_project_that_came_without_its_state_is_checked_by_its_configuration(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / state.STATE_FILE).unlink()
    assert main(["check", str(project), "--json"]) == 0
    assert by_id(answer(capsys))["data"] == "ok"


def test_data_that_are_gone_or_too_few_are_told(
    project: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (shared / "sums.jsonl").read_text().splitlines(keepends=True)
    (shared / "sums.jsonl").write_text("".join(rows[:3]))
    assert main(["check", str(project), "--json"]) == 2
    assert any("0 steps" in problem["what"] for problem in answer(capsys)["problems"])
    (shared / "sums.jsonl").unlink()
    assert main(["check", str(project), "--json"]) == 2
    assert by_id(answer(capsys))["data"] == "fail"


def test_broken_lines_stop_check_and_export_until_they_are_left_out(
    project: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (shared / "sums.jsonl").open("a") as file:
        file.write('{"question": "What\n[7]\n{"question": "What is 7 + 8?", "answer": "15"}\n{"cut')
    assert main(["check", str(project), "--json"]) == 2
    assert by_id(answer(capsys))["data.broken_line"] == "fail"
    out = project / "mine.yaml"
    for form in ("script", "yaml"):
        assert main(["export", str(project), "--format", form, "--json"]) == 2
        assert "3 of 44 rows, the first in" in answer(capsys)["problems"][0]["what"]
    change(project, "[data]", '[data]\nfaults = {broken_line = "leave_out"}')
    main(["check", str(project), "--json"])
    assert by_id(answer(capsys))["data.broken_line"] == "ok"
    assert main(["export", str(project), "--format", "yaml", "--output", str(out), "--json"]) == 0
    rows = [json.loads(line) for line in out.with_name("mine.prompts.jsonl").read_text().splitlines()]
    assert [row["answer"] for row in rows[38:]] == ["76", "78", "15"]
    assert main(["export", str(project)]) == 0
    assert loaded_by(project / "train_alone.py") == [row["prompt"] for row in rows]


def loaded_by(script: Path) -> list[Any]:
    """The prompts that a written script trains on, by its own code in a fresh Python."""
    code = (
        "import json, runpy\n"
        f"made = runpy.run_path({str(script)!r}, run_name='loaded')['load_data']()\n"
        "print(json.dumps([row['prompt'] for row in made]))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr[-3000:]
    prompts: list[Any] = json.loads(said.stdout.splitlines()[-1])
    return prompts


def test_a_model_that_is_gone_is_told(project: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(shared / "model")
    assert main(["check", str(project), "--json"]) == 2
    assert by_id(answer(capsys))["model"] == "fail"


def test_what_changed_since_and_what_was_edited_is_said(
    project: Path, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(project, "temperature = 1.0", "temperature = 0.9")
    with (shared / "sums.jsonl").open("a") as file:
        file.write('{"question": "What is 50 + 50?", "answer": "100", "level": "easy"}\n')
    assert main(["check", str(project), "--json"]) == 0
    told = answer(capsys)
    texts = [check["text"] for check in told["checks"]]
    assert "Edited by you since it was written: config.toml." in texts
    assert any("data" in text and text.startswith("Changed since the step") for text in texts)


@pytest.mark.parametrize(("content", "words"), [(None, "no config.toml"), ("[grpo", "not valid TOML")])
def test_a_folder_without_a_sound_configuration_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "config.toml").write_text(content)
    assert main(["check", str(tmp_path), "--json"]) == 2
    assert words in answer(capsys)["problems"][0]["what"]


@pytest.fixture
def card(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plans the project for a GPU with so many GiB free, of 16, instead of the CPU."""
    change(project, "use_cpu = true", "use_cpu = false")

    def plugged(free_gib: float, *, unified: bool = False) -> None:
        gpu = GPU(index=0, uuid="GPU-a", name="card", total_bytes=16 * GIB, free_bytes=int(free_gib * GIB),
                  capability=(9, 0), unified=unified)  # fmt: skip
        monkeypatch.setattr(Session, "machine", lambda self: Machine(gpus=(gpu,), kind="nvidia"))

    return plugged


def memory_check(project: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    main(["check", str(project), "--json"])
    (found,) = (check for check in answer(capsys)["checks"] if check["id"] == "memory")
    assert isinstance(found, dict)
    return found


def test_memory_that_gpu_and_system_share_is_not_counted_as_free_to_the_last(
    project: Path, card: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    card(3.0)
    assert memory_check(project, capsys)["level"] == "ok"
    card(3.0, unified=True)
    found = memory_check(project, capsys)
    assert found["level"] == "warn"
    assert "only 1.0 GiB are free" in found["text"]


def test_a_plan_that_does_not_fit_is_told_with_what_to_give_up_in_lines_of_80_columns(
    project: Path, card: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    change(project, "max_completion_length = 8", "max_completion_length = 40000")
    card(8.0)
    remedy = memory_check(project, capsys)["remedy"].splitlines()
    assert remedy[0] == "It fits with:"
    assert all("frees" in line for line in remedy[1:])
    main(["check", str(project)])
    printed = capsys.readouterr().out
    shown = printed[printed.index("  → It fits with:") :].splitlines()
    assert max(map(len, shown)) <= 80, shown


def test_a_reward_defined_twice_is_worth_a_word_and_no_refusal(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewards = project / "rewards.py"
    rewards.write_text(
        rewards.read_text() + "\n\ndef correct(completions, **kwargs):\n    return [0.0] * len(completions)\n"
    )
    assert main(["check", str(project), "--json"]) == 0
    told = answer(capsys)
    assert by_id(told)["rewards"] == "warn"
    assert any("2 times" in check["text"] for check in told["checks"])
