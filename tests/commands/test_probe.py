"""`grpo-tui probe`, as people and scripts call it."""

import json
from pathlib import Path

import pytest

from grpo_tui.__main__ import main

REWARDS = """\
def correct(completions, answer, **kwargs):
    return [float(right in c[-1]["content"]) for c, right in zip(completions, answer)]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(REWARDS)
    rows = [{"question": f"Which is number {n}?", "solution": f"item{n}"} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def probe(*arguments: str) -> int:
    return main(["probe", "rewards.py", "--data", "rows.jsonl", "--answer", "solution", *arguments])


def test_json_has_the_probes_with_what_they_earned(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe("--rows", "2", "--yes", "--json") == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    answer = json.loads(said.out)
    listed = next(each for each in answer["probes"] if each["kind"] == "candidates listed")
    assert listed["verdict"] == "paid wrongly"
    assert listed["paid_by"] == ["correct"]
    assert listed["rewards"] == [1.0]
    assert {each["row"] for each in answer["probes"]} == {0, 1}
    assert {each["expected"] for each in answer["probes"]} <= {"high", "low", "format_only", "less"}
    assert answer["format_only_share"] == 0
    assert "candidates listed" in answer["sentence"]


def test_people_see_the_worst_first_and_the_sentence_last(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe("--yes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["probe", "expected", "earns", "verdict"]
    assert lines[1].startswith("candidates listed")
    assert lines[1].endswith("paid wrongly by correct")
    assert "item1, item2" in lines[2]
    assert lines[-1].startswith("Without any right answer")


def test_nothing_runs_without_a_yes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text("open('ran', 'w')\ndef f(completions, **kwargs): return [1.0, 0.0]")
    assert probe("--json") == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "--yes" in problem["remedy"]
    assert not (project / "ran").exists()


def test_functions_that_cannot_be_trained_with_end_with_two(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text("def f(completions, **kwargs): raise ValueError('no')")
    assert probe("--yes", "--json") == 2
    assert json.loads(capsys.readouterr().out)["blocking"] == ["f"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--rows", "0"), "No row would be attacked"),
        (("--extract", "tag:x"), "no usable row"),
        (("--extract", "sorcery"), "no rule 'sorcery'"),
        (("--prompt", "text"), "no column 'text'"),
        (("--weights", "1,1"), "2 weights for 1"),
    ],
)
def test_what_does_not_fit_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], what: str
) -> None:
    assert probe(*arguments, "--yes", "--json") == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert what in problem["what"]
