"""`grpo-tui run`: what is shown, what the yes starts, and what is refused."""

import io
import json
import os
import signal
import time

import pytest

from grpo_tui import lock, state
from grpo_tui.__main__ import main
from grpo_tui.run import folder, launch
from grpo_tui.run.record import read


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[grpo]\nuse_cpu = true\n[launch]\nthreads = 1\n")
    (tmp_path / "rewards.py").write_text("")
    (tmp_path / "train.py").write_text("import sys\nprint('trained', sys.argv[1:])\n")
    yield tmp_path
    for summary in folder.runs(tmp_path):
        if summary.life.alive:
            os.kill(summary.life.pid, signal.SIGKILL)


def ended(run):
    deadline = time.monotonic() + 30
    while not (read(run) and read(run).ended):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return read(run)


def test_without_a_yes_everything_is_shown_and_nothing_starts(project, capsys):
    assert main(["run", str(project)]) == 2
    printed = capsys.readouterr()
    assert f"{project}/runs/" in printed.out
    assert "trains on the CPU" in printed.out
    assert str(project / "rewards.py") in printed.out
    assert launch.approval_hash(project) in printed.out
    assert "without a yes" in printed.err
    assert not (project / "runs").exists()
    assert not (project / state.STATE_FILE).exists()


def test_a_script_is_told_the_same(project, capsys):
    (project / "tty.py").write_text("")
    assert main(["run", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert "--yes" in told["problems"][0]["remedy"]
    assert told["command"][-1].endswith("train.py")
    assert told["environment"]["PYTHONSAFEPATH"] == "1"
    assert told["notes"][0]["where"].endswith("tty.py")
    assert told["gpus"] == []


def test_a_yes_starts_what_was_shown_and_is_written_down(project, capsys):
    assert main(["run", "--yes", "--json", "--name", "first"]) == 0
    told = json.loads(capsys.readouterr().out)
    run = project / "runs" / "first"
    assert told["run"] == str(run)
    record = ended(run)
    assert (record.supervisor_pid, record.exit_code) == (told["pid"], 0)
    [approved] = state.load(project).draft.approvals
    assert (approved.what, approved.sha256) == ("run", launch.approval_hash(run))
    assert str(run / "train.py") in approved.detail
    assert "trained []" in (run / "train.log").read_text()


def test_the_answers_already_given_are_kept_beside_the_yes(project):
    loaded = state.load(project)
    state.save(project, loaded.draft)
    before = state.load(project).draft
    assert main(["run", "--yes", "--foreground"]) == 0
    after = state.load(project).draft
    assert (after.task, after.step, len(after.approvals)) == (before.task, before.step, len(before.approvals) + 1)


def test_a_project_that_is_open_elsewhere_still_starts_and_says_so(project, capsys):
    with lock.acquire(project):
        assert main(["run", "--yes", "--name", "a"]) == 0
    assert "stands in run.toml only" in capsys.readouterr().out
    assert ended(project / "runs" / "a").approved == launch.approval_hash(project)
    assert not (project / state.STATE_FILE).exists()


def test_in_the_foreground_it_stays_until_the_end(project, capsys):
    (project / "train.py").write_text("raise SystemExit(3)\n")
    assert main(["run", "--yes", "--foreground", "--json", "--notify", "echo $GRPO_TUI_EXIT > told"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["exit"] == 3
    deadline = time.monotonic() + 10
    while not (project / "told").exists() or not (project / "told").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (project / "told").read_text().strip() == "3"


def test_a_name_that_is_taken_is_refused(project, capsys):
    folder.create(project, "first")
    assert main(["run", "--yes", "--name", "first"]) == 2
    assert "run of this name" in capsys.readouterr().err


def test_a_missing_file_is_named(project, capsys):
    (project / "rewards.py").unlink()
    assert main(["run", "--yes"]) == 2
    assert "rewards.py is missing" in capsys.readouterr().err
    (project / "config.toml").unlink()
    assert main(["run", "--yes", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["problems"][0]["where"].endswith("config.toml")


def checkpoint(run, step, max_steps):
    (run / f"checkpoint-{step}").mkdir()
    (run / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"w")
    state_text = json.dumps({"global_step": step, "max_steps": max_steps})
    (run / f"checkpoint-{step}" / "trainer_state.json").write_text(state_text)


def test_a_resumed_run_goes_on_in_its_folder_with_its_own_copies(project, capsys):
    run = folder.create(project, "old")
    (project / "train.py").write_text("raise SystemExit('the changed one')\n")
    assert main(["run", "--yes", "--resume"]) == 2
    assert "no complete checkpoint" in capsys.readouterr().err
    checkpoint(run, 5, 10)
    assert main(["run", "--yes", "--resume", "old", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(run)
    assert ended(run).resumed
    assert "trained ['--resume']" in (run / "train.log").read_text()
    assert [path.name for path in (project / "runs").iterdir()] == ["old"]
    # The folder of a run stands for it.
    assert main(["run", str(run)]) == 2
    assert "--resume" in capsys.readouterr().out


def test_a_finished_run_is_not_trained_further(project, capsys):
    run = folder.create(project, "old")
    checkpoint(run, 10, 10)
    assert main(["run", "--yes", "--resume"]) == 2
    assert "nothing left to train" in capsys.readouterr().err
    assert read(run) is None


def test_there_may_be_nothing_to_resume(project, capsys):
    assert main(["run", "--yes", "--resume"]) == 2
    assert main(["run", "--yes", "--resume", "nope"]) == 2
    assert "no run 'nope'" in capsys.readouterr().err


def test_a_gpu_that_is_not_here_is_refused_before_anything_is_made(project, capsys):
    (project / "config.toml").write_text('[launch]\ngpus = ["GPU-00000000-0000-0000-0000-000000000000"]\n')
    assert main(["run", "--yes", "--json"]) == 2
    assert "GPU-00000000" in json.loads(capsys.readouterr().out)["problems"][0]["what"]
    assert not (project / "runs").exists()


def test_a_second_training_of_a_project_needs_another_word(project, capsys):
    (project / "train.py").write_text("import time\ntime.sleep(60)\n")
    assert main(["run", "--yes", "--json", "--name", "first"]) == 0
    capsys.readouterr()
    try:
        assert main(["run", "--yes", "--json"]) == 2
        [problem] = json.loads(capsys.readouterr().out)["problems"]
        assert problem["where"] == "first"
        assert "--beside" in problem["remedy"]
        assert main(["run", "--yes", "--json", "--beside", "--name", "second"]) == 0
        second = json.loads(capsys.readouterr().out)
    finally:
        for name in ("first", "second"):
            record = read(project / "runs" / name)
            if record is not None:
                os.killpg(record.training_pid, signal.SIGKILL)
                ended(project / "runs" / name)
    assert second["run"].endswith("second")


def test_the_project_may_be_named_before_or_behind_the_command(project, capsys, monkeypatch):
    monkeypatch.chdir(project.parent)
    assert main(["run", "--project", str(project), "--json"]) == 2
    behind = json.loads(capsys.readouterr().out)
    assert main(["--project", str(project), "run", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == behind
    assert behind["directory"] == str(project)


def test_in_a_batch_script_of_slurm_it_stays_by_itself(project, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["run", "--yes", "--json", "--name", "batch"]) == 0
    assert json.loads(capsys.readouterr().out)["exit"] == 0
    assert read(project / "runs" / "batch").ended
