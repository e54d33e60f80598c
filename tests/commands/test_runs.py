"""`grpo-tui runs`: every run and what became of it."""

import json
import shutil
from pathlib import Path

from grpo_tui.__main__ import main
from grpo_tui.run import prediction

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


def test_predicted_and_measured_memory_stand_side_by_side(tmp_path, capsys):
    """The figures are put in: no run of these was on a card."""
    run = tmp_path / "runs" / "on_card"
    shutil.copytree(RUNS / "made_nan", run)
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    for row in rows:
        if row["kind"] == "phase":
            row["memory"] = {"train": 20 << 30, "generate": 17 << 30}
        elif row["kind"] == "log":
            row["memory"] = {"cuda:0": {"allocated": 20 << 30, "reserved": 22 << 30}}
    (run / "events.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    prediction.write(run, {"generate": 15 << 30, "score": 16 << 30, "train": 21 << 30, "peak": 23 << 30, "moving": 1})
    shutil.copytree(RUNS / "h01_base", tmp_path / "runs" / "on_cpu")
    assert main(["runs", str(tmp_path)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "memory" in line]
    assert lines == ["memory, GiB measured of predicted: peak 22.0 of 23.0, generate 17.0 of 15.0, train 20.0 of 21.0"]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    found = {each["name"]: each["memory"] for each in json.loads(capsys.readouterr().out)["runs"]}
    assert found["on_card"]["peak"] == {"measured_bytes": 22 << 30, "predicted_bytes": 23 << 30}
    assert found["on_cpu"] == {}


def test_a_project_without_runs_says_so(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 0
    assert "No training has begun" in capsys.readouterr().out
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": []}
