"""`grpo-tui stop` and `grpo-tui save`: a request, when there is someone to obey it."""

import json
import shutil
from pathlib import Path

import pytest

from grpo_tui.__main__ import main
from grpo_tui.run import control

RUNS = Path(__file__).parents[1] / "runs"


@pytest.fixture
def project(tmp_path):
    # Without an end: it may be running somewhere.
    shutil.copytree(RUNS / "f31_sigkill", tmp_path / "runs" / "open")
    return tmp_path


@pytest.mark.parametrize(("command", "words"), [("stop", "ends after its current step"), ("save", "and goes on")])
def test_the_newest_run_is_asked(project, capsys, command, words):
    assert main([command, str(project)]) == 0
    [asked] = control.pending(project / "runs" / "open")
    assert asked.action == command
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("command", ["stop", "save"])
def test_a_script_is_told_what_was_asked_of_which_run(project, capsys, command):
    assert main([command, str(project / "runs" / "open"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"run": str(project / "runs" / "open"), "asked": command, "state": "unknown", "step": 70}


@pytest.mark.parametrize("command", ["stop", "save"])
def test_a_run_that_has_ended_cannot_be_asked(tmp_path, capsys, command):
    shutil.copytree(RUNS / "h01_base", tmp_path / "run")
    assert main([command, str(tmp_path / "run"), "--json"]) == 2
    assert "not run any more" in json.loads(capsys.readouterr().out)["problems"][0]["what"]
    assert not (tmp_path / "run" / "control").exists()


@pytest.mark.parametrize("command", ["stop", "save"])
def test_a_place_without_runs_is_told(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 2
    assert "no run here" in capsys.readouterr().err
