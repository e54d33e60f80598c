"""`grpo-tui signal`, as people and scripts call it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.__main__ import main
from tests.plan.tiny import write_tiny_model
from tests.rewards.played_server import playing

RUNS = Path(__file__).parents[1] / "runs"
REWARDS = """\
def correct(completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(right in text) for text, right in zip(texts, answer)]


def brief(completions, completion_ids, **kwargs):
    return [1.0 / len(ids) for ids in completion_ids]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "rewards.py").write_text(REWARDS)
    return tmp_path


def lines(prompts: int, generations: int) -> str:
    """Groups of which every second completion is right, in every second group."""
    return "\n".join(
        json.dumps({"prompt": f"{n}?", "answer": "yes", "completion": "yes" if n % 2 and g % 2 else "no"})
        for n in range(prompts)
        for g in range(generations)
    )


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    content = json.loads(out)
    assert isinstance(content, dict)
    return content


def test_a_file_of_groups_is_scored_and_judged(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "samples.jsonl").write_text(lines(40, 4))
    command = ["signal", "rewards.py", "--completions", "samples.jsonl", "--names", "correct", "--yes", "--json"]
    assert main(command) == 0
    found = answer(capsys)
    assert (found["prompts"], found["generations"]) == (40, 4)
    assert found["pass_rate"]["estimate"] == 0.25
    assert set(found["zero_signal"]) == {"4", "8", "16", "32"}
    assert found["zero_signal"]["4"]["estimate"] == 0.5
    assert 0.3 < found["zero_signal"]["4"]["low"] < 0.5 < found["zero_signal"]["4"]["high"] < 0.7
    assert found["verdict"] == "will learn"
    assert found["always_wrong"] == list(range(0, 40, 2))
    assert found["deciding"] == {"correct": 1.0}


def test_people_get_the_sentence_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "samples.jsonl").write_text(lines(4, 4))
    assert main(["signal", "rewards.py", "--completions", "samples.jsonl", "--names", "correct", "--yes"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Too few: 4 prompts say too little")
    assert any(line.startswith("Always wrong: 2 prompts (group 1, 3)") for line in rest)


def test_a_run_is_judged_by_what_it_kept_and_no_code_runs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signal", "--run", str(RUNS / "h01_base"), "--step", "1", "--json"]) == 0
    found = answer(capsys)
    assert (found["prompts"], found["generations"], found["step"]) == (8, 8, 1)
    assert set(found["deciding"]) == {"correctness_reward", "format_reward", "length_reward"}
    assert found["silent"] == ["length_reward"]


def test_a_model_samples_and_its_completions_can_be_judged_again(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_model(project / "model")
    rows = [{"question": f"What is {n}?", "answer": "a"} for n in range(20)]
    (project / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ["signal", "rewards.py", "--weights", "1,0.25", "--yes", "--json"]
    made = ["--model", "model", "--data", "rows.jsonl", "--prompts", "8", "--generations", "4", "--device", "cpu"]
    assert main([*asked, *made, "--max-completion-length", "8", "--save", "kept.jsonl"]) == 0
    found = answer(capsys)
    assert (found["prompts"], found["generations"]) == (8, 4)
    assert found["origin"] == "model on cpu, float32"
    assert found["cut_share"] > 0.5
    kept = [json.loads(line) for line in (project / "kept.jsonl").read_text().splitlines()]
    assert {len(each["completion_ids"]) for each in kept if not each["finished"]} == {8}
    assert main([*asked, "--completions", "kept.jsonl"]) == 0
    again = answer(capsys)
    assert again["zero_signal"] == found["zero_signal"]
    assert again["deciding"] == found["deciding"]


def test_several_steps_of_a_run_are_one_sample(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signal", "--run", str(RUNS / "h01_base"), "--last", "3", "--json"]) == 0
    found = answer(capsys)
    assert (found["prompts"], found["steps"]) == (24, [121, 180, 240])


def test_a_server_samples_and_its_completions_are_judged(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    rows = [{"question": f"What is {n}?", "answer": ".1"} for n in range(9)]
    (project / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ["signal", "rewards.py", "--names", "correct", "--data", "rows.jsonl", "--prompts", "9", "--yes", "--json"]
    with playing() as server:
        source = ["--server", server.url, "--server-model", "m", "--generations", "2"]
        assert main([*asked, *source]) == 0
    found = answer(capsys)
    assert (found["prompts"], found["pass_rate"]["estimate"]) == (9, 0.5)
    assert found["origin"].startswith("m at 127.0.0.1")
    assert found["cut_share"] == 0.5


def test_nothing_runs_or_is_sampled_without_a_yes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text("open('ran', 'w')\ndef f(completions, **kwargs): return [1.0, 0.0]")
    (project / "samples.jsonl").write_text(lines(2, 2))
    for source in (["--completions", "samples.jsonl"], ["--server", "http://127.0.0.1:9/v1", "--data", "x.jsonl"]):
        assert main(["signal", "rewards.py", *source, "--json"]) == 2
        assert "--yes" in answer(capsys)["problems"][0]["remedy"]
    assert not (project / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--completions", "samples.jsonl"), "No reward functions"),
        (("rewards.py", "--completions", "loose.jsonl"), "do not stand together"),
        (("rewards.py", "--completions", "bare.jsonl"), "no prompts beside them"),
        (("rewards.py", "--model", "model"), "no prompts to complete"),
        (("rewards.py", "--run", "run"), "taken as they are"),
        (("--run", "nowhere"), "No completions were kept"),
    ],
)
def test_what_does_not_fit_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], what: str
) -> None:
    (project / "samples.jsonl").write_text(lines(2, 2))
    (project / "loose.jsonl").write_text('{"prompt": "a", "completion": "x"}\n{"prompt": "b", "completion": "x"}')
    (project / "bare.jsonl").write_text('"a"\n"b"')
    shutil.copytree(RUNS / "h01_base", project / "run")
    assert main(["signal", *arguments, "--yes", "--json"]) == 2
    assert what in answer(capsys)["problems"][0]["what"]
