"""`grpo-tui dry-run`: what a script gets of it, and that it asks before the user's code runs on the user's data."""

from pathlib import Path
from typing import Any

import pytest

from grpo_tui import state
from grpo_tui.__main__ import main
from tests.commands.projects import answer, init, shared, workers

__all__ = ["shared", "workers"]  # fixtures


@pytest.fixture
def project(shared: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project with the user's own rewards and data."""
    assert init(shared) == 0
    capsys.readouterr()
    return shared / "project"


def approvals(project: Path) -> list[str]:
    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    return [approval.what for approval in loaded.draft.approvals]


def test_without_a_yes_no_reward_runs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.py").write_text("raise SystemExit('it ran')\n")
    assert main(["dry-run", str(project), "--json"]) == 2
    told = answer(capsys)
    assert "your yes" in told["problems"][0]["what"]
    assert "--yes" in told["problems"][0]["remedy"]
    assert len(told["sha256"]) == 64
    assert "score" not in approvals(project)


def test_with_a_yes_two_steps_are_made_and_the_yes_is_kept(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dry-run", str(project), "--yes", "--json"]) == 0
    told: dict[str, Any] = answer(capsys)
    assert (told["ok"], told["steps"], told["problems"]) == (True, 2, [])
    assert told["uncovered"]
    assert "rewards/correct/mean" in told["figures"]
    assert approvals(project).count("score") == 1
    assert not (project / "runs").exists()
    # It is not asked again; an edited reward would be a new question.
    rewards = next(path for path in (project / "rewards.py", project / "mine.py") if path.is_file())
    rewards.write_text(rewards.read_text() + "\n# edited\n")
    assert main(["dry-run", str(project), "--json"]) == 2
    assert "your yes" in answer(capsys)["problems"][0]["what"]


def test_a_fault_is_told_to_people_with_what_was_not_covered(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = (project / "config.toml").read_text()
    (project / "config.toml").write_text(config.replace("num_generations = 2", "num_generations = 3"))
    assert main(["dry-run", str(project), "--yes"]) == 2
    printed = capsys.readouterr().out
    assert "✗ grpo.num_generations" in printed
    assert "→" in printed


def test_a_folder_without_a_project_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dry-run", str(tmp_path), "--yes", "--json"]) == 2
    assert answer(capsys)["problems"][0]["where"].endswith("config.toml")
