"""Run folders, their checkpoints, and the list of them."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grpo_tui.problem import Problem
from grpo_tui.run import folder
from grpo_tui.run.record import Record, write

RUNS = Path(__file__).parents[1] / "runs"


@pytest.fixture
def project(tmp_path):
    for name in folder.FILES:
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def checkpoint(run, step, max_steps=10, weights="model.safetensors", content=b"w", state=None):
    path = run / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / weights).write_bytes(content)
    text = json.dumps({"global_step": step, "max_steps": max_steps}) if state is None else state
    (path / "trainer_state.json").write_text(text)


def test_a_run_keeps_copies_of_what_it_runs(project):
    run = folder.create(project)
    (project / "train.py").write_text("# changed\n")
    assert (run / "train.py").read_text() == "# train.py\n"
    assert run.is_absolute()


def test_two_runs_of_one_second_get_different_folders(project):
    now = datetime(2026, 8, 30, 14, 5, 9, tzinfo=UTC)
    assert [folder.create(project, now=now).name for _ in range(3)] == [
        "20260830-140509",
        "20260830-140509-2",
        "20260830-140509-3",
    ]


def test_files_that_are_missing_are_named(project):
    (project / "rewards.py").unlink()
    problem = folder.create(project)
    assert isinstance(problem, Problem)
    assert "rewards.py is missing" in problem.what
    assert not (project / "runs").exists()


def test_a_run_keeps_the_rewards_under_the_name_that_the_configuration_gives_them(project):
    (project / "config.toml").write_text('[launch]\nrewards_file = "my/fancy_rewards.py"\n')
    missing = folder.create(project)
    assert isinstance(missing, Problem)
    assert "my/fancy_rewards.py is missing" in missing.what
    (project / "my").mkdir()
    (project / "my" / "fancy_rewards.py").write_text("# fancy\n")
    run = folder.create(project)
    assert (run / "my" / "fancy_rewards.py").read_text() == "# fancy\n"
    assert not (run / "rewards.py").exists()
    assert folder.files(run) == folder.files(project) == ("config.toml", "my/fancy_rewards.py", "train.py")


@pytest.mark.parametrize("name", ["../rewards.py", "/etc/rewards.py"])
def test_rewards_outside_the_project_are_not_copied_from_there(project, name):
    (project / "config.toml").write_text(f'[launch]\nrewards_file = "{name}"\n')
    problem = folder.create(project)
    assert isinstance(problem, Problem)
    assert "outside the project" in problem.what


@pytest.mark.parametrize("text", ["[launch", "launch = 3", "[launch]\nrewards_file = 3", ""])
def test_where_the_configuration_names_no_rewards_file_it_is_rewards_py(project, text):
    (project / "config.toml").write_text(text)
    assert folder.files(project) == folder.FILES


@pytest.mark.parametrize("name", ["../out", "a/b", ".hidden", "..", "/abs"])
def test_a_name_leads_nowhere_else(project, name):
    assert isinstance(folder.create(project, name), Problem)


def test_only_complete_checkpoints_count(tmp_path):
    checkpoint(tmp_path, 100)
    checkpoint(tmp_path, 20, weights="adapter_model.safetensors")
    checkpoint(tmp_path, 30, state='{"global_step": 30, "max')  # killed while writing
    checkpoint(tmp_path, 40, content=b"")  # emptied by a power loss
    checkpoint(tmp_path, 50, state='{"global_step": 49}')
    checkpoint(tmp_path, 60, weights="tokenizer.json")
    (tmp_path / "checkpoint-70").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-80").write_text("a file")
    assert [found.step for found in folder.checkpoints(tmp_path)] == [20, 100]
    assert folder.checkpoints(tmp_path)[-1].max_steps == 10
    assert folder.checkpoints(tmp_path / "none") == []


def test_the_newest_run_is_the_one_that_began_last(project):
    assert folder.newest(project) is None
    for name, started in (("b", 10.0), ("a", 20.0)):
        run = folder.create(project, name)
        write(run, Record(started=started))
    assert folder.newest(project).name == "a"
    assert folder.newest(project / "runs" / "b").name == "b"


def test_runs_are_listed_newest_first_with_what_became_of_them(project):
    for name in ("h01_base", "f29_crash_exc"):
        shutil.copytree(RUNS / name, project / "runs" / name)
    (project / "runs" / "empty").mkdir()
    found = folder.runs(project)
    assert [(summary.name, summary.life.state) for summary in found] == [
        ("f29_crash_exc", "failed"),
        ("h01_base", "finished"),
        ("empty", "unknown"),
    ]
    assert folder.runs(project / "none") == []
