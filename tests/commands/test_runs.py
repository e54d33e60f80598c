"""`grpo-tui runs`: every run and what became of it."""

import json
import shutil
from pathlib import Path

from grpo_tui.__main__ import main

RUNS = Path(__file__).parents[1] / "runs"


def test_runs_are_listed_with_their_end(tmp_path, capsys):
    for name in ("h01_base", "f29_crash_exc"):
        shutil.copytree(RUNS / name, tmp_path / "runs" / name)
    assert main(["runs", str(tmp_path)]) == 0
    first, change, second = capsys.readouterr().out.splitlines()
    assert first.split()[:5] == ["f29_crash_exc", "failed", "step", "45", "of"]
    assert "specs.py:56: The reward f raised ValueError" in first
    assert change.strip().startswith("→ Correct the line: if trainer_state.global_step >= n")
    assert second.split()[:2] == ["h01_base", "finished"]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["name"], run["state"], run["step"], run["max_steps"]) for run in listed] == [
        ("f29_crash_exc", "failed", 45, 80),
        ("h01_base", "finished", 240, 240),
    ]
    assert listed[0]["alive"] is False
    assert listed[0]["checkpoints"] == []
    assert [len(run["findings"]) for run in listed] == [1, 0]


def test_a_project_without_runs_says_so(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 0
    assert "No training has begun" in capsys.readouterr().out
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": []}
