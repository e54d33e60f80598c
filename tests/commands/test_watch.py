"""`grpo-tui watch` without a terminal: the panel's figures, once."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_tui.__main__ import main

RUNS = Path(__file__).parents[1] / "runs"


def snapshot(run, capsys):
    assert main(["watch", str(run), "--json"]) == 0

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_a_finished_run_is_told_with_its_last_row_as_it_was_logged(capsys):
    told = snapshot(RUNS / "h01_base", capsys)
    lines = (RUNS / "h01_base" / "events.jsonl").read_text().splitlines()
    newest = next(row for row in map(json.loads, reversed(lines)) if "loss" in row.get("logs", {}))
    assert told["latest"] == newest["logs"]
    assert (told["alive"], told["state"], told["step"], told["max_steps"]) == (False, "finished", 240, 240)
    assert told["elapsed"] > 60
    assert told["findings"] == []
    assert told["exit"] is None


def test_a_crash_is_told_and_is_no_failure_of_the_watching(capsys):
    told = snapshot(RUNS / "f29_crash_exc", capsys)
    assert told["state"] == "failed"
    assert told["error"] == "ValueError: could not convert string to float: '1,234 apples'"
    assert told["words"].startswith("specs.py:56: ")
    (finding,) = told["findings"]
    assert {"id", "level", "title", "evidence", "advice", "confidence"} <= set(finding)
    assert set(finding["evidence"]) >= {"figures", "rows", "completions"}
    assert finding["evidence"]["quoted"] == told["error"]
    assert (finding["level"], finding["evidence"]["figures"]["step"]) == ("fail", 45)


def test_people_are_told_what_happened_where_and_what_to_change(capsys):
    assert main(["watch", str(RUNS / "f29_crash_exc")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("failed: specs.py:56: The reward f raised ValueError: could not convert string to float")
    assert lines[2].startswith("  → Correct the line: if trainer_state.global_step >= n")


def test_figures_that_are_no_numbers_are_named_in_strict_json(capsys):
    told = snapshot(RUNS / "made_nan", capsys)
    assert told["latest"]["grad_norm"] == "NaN"
    assert told["latest"]["reward"] == "Infinity"
    assert told["nonfinite"] == {"rows": 2, "first_step": 8}
    assert told["groups_without_signal"] == 0.25


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir() if path.is_dir()))
def test_every_run_can_be_told(run, capsys):
    assert snapshot(RUNS / run, capsys)["run"] == str(RUNS / run)


def test_a_project_stands_for_its_newest_run(tmp_path, capsys):
    shutil.copytree(RUNS / "h01_base", tmp_path / "runs" / "only")
    assert snapshot(tmp_path, capsys)["run"] == str(tmp_path / "runs" / "only")


def test_without_a_terminal_people_get_lines(capsys):
    assert main(["watch", str(RUNS / "h01_base")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "finished: All steps are done."
    assert lines[2] == "step 240 of 240"
    assert any(line.startswith("reward ") for line in lines)


def test_a_place_without_a_run_is_told(tmp_path, capsys):
    assert main(["watch", str(tmp_path), "--json"]) == 2
    assert "no run here" in json.loads(capsys.readouterr().out)["problems"][0]["what"]


def test_a_snapshot_needs_neither_numpy_nor_the_training_libraries():
    code = (
        "import sys; from grpo_tui.__main__ import main; main(['watch', sys.argv[1], '--json']);"
        "heavy = {'numpy', 'pyarrow', 'torch', 'trl', 'transformers', 'textual'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(RUNS / "h01_base")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
