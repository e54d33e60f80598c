"""`grpo-tui score`, as people and scripts call it."""

import json
from pathlib import Path

import pytest

from grpo_tui.__main__ import main
from grpo_tui.problem import Problem

REWARDS = """\
def correct(completions, answer, **kwargs):
    return [1.0 if right in text else 0.0 for text, right in zip(completions, answer)]


def brief(completions, **kwargs):
    return [1.0 / len(text) for text in completions]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "samples.jsonl").write_text('"it is 42"\n\n{"completion": "no"}\n')
    (tmp_path / "rows.jsonl").write_text('{"prompt": "6*7?", "answer": "42"}\n{"prompt": "?", "answer": "no"}\n')
    return tmp_path


def score(*arguments: str) -> int:
    return main(["score", "rewards.py", "--completions", "samples.jsonl", *arguments])


def test_json_has_the_table_and_nothing_else_is_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--data", "rows.jsonl", "--weights", "1,0.25", "--yes", "--json") == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert said.out.count("\n") == 1
    assert answer["names"] == ["correct", "brief"]
    assert answer["rewards"] == [[1.0, 0.125], [0.0, 0.5]]
    assert answer["weighted"] == [1.03125, 0.125]
    assert answer["advantages"][0] == -answer["advantages"][1] > 0
    assert answer["problems"] == {}
    assert answer["blocking"] == []
    assert set(answer["seconds_per_call"]) == {"correct", "brief"}


def test_people_get_a_table_with_what_is_wrong_below(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text(REWARDS + "\ndef broken(completions, **kwargs):\n    return {0: 1.0, 1: 0.0}\n")
    assert score("--data", "rows.jsonl", "--row", "2", "--yes") == 2
    out = capsys.readouterr().out
    header, first, second, *rest = out.splitlines()
    assert header.split() == ["#", "correct", "brief", "broken", "weighted", "advantage", "completion"]
    assert first.split()[:4] == ["1", "0", "0.125", "–"]
    assert second.split()[:4] == ["2", "1", "0.5", "–"]
    assert any("*keys* would become the rewards" in line for line in rest)


def test_columns_beside_a_completion_win_over_those_of_the_data(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"completion": "it is 5", "answer": "5"}, {"completion": "it is 42"}]
    (project / "samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert score("--data", "rows.jsonl", "--names", "correct", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rewards"] == [[1.0], [1.0]]


def test_chat_prompts_make_chat_completions(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text(
        "def f(completions, **kwargs): return [float(len(c[0]['content'])) for c in completions]"
    )
    (project / "rows.jsonl").write_text(json.dumps({"prompt": [{"role": "user", "content": "?"}]}))
    assert score("--data", "rows.jsonl", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rewards"] == [[8.0], [2.0]]


def test_infinite_rewards_are_text_in_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text("def f(completions, **kwargs): return [float('inf'), 0.0]")
    assert score("--yes", "--json") == 2
    answer = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert answer["rewards"] == [["inf"], [0.0]]


def test_terminal_escapes_in_completions_are_shown_inert(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "samples.jsonl").write_text(json.dumps("\x1b[2Jgone\x07") + '\n"b"\n')
    score("--names", "brief", "--yes")
    assert "\x1b" not in capsys.readouterr().out


def test_nothing_runs_without_a_yes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rewards.py").write_text("open('ran', 'w')\ndef f(completions, **kwargs): return [1.0, 0.0]")
    assert score("--json") == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "--yes" in problem["remedy"]
    assert not (project / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "samples", "where", "what"),
    [
        ((), "nonsense", "samples.jsonl:1", "not JSON"),
        ((), '"a"\n{"text": "b"}', "samples.jsonl:2", "no completion"),
        ((), '{"completion": "a", "prompt": "?"}\n"b"', "samples.jsonl", "Some lines have a prompt"),
        ((), "", "completions", "There are 0 completions"),
        ((), '"one"', "completions", "There are 1 completions"),
        (("--weights", "much"), '"a"\n"b"', "--weights", "not numbers"),
        (("--weights", "1,nan"), '"a"\n"b"', "--weights", "not all finite"),
        (("--weights", "inf"), '"a"\n"b"', "--weights", "not all finite"),
        (("--names", "corect"), '"a"\n"b"', "rewards.py", "no reward function `corect`"),
        (("--data", "rows.jsonl", "--row", "3"), '"a"\n"b"', "rows.jsonl", "no row 3"),
        (("--data", "rows.jsonl", "--row", "0"), '"a"\n"b"', "rows.jsonl", "no row 0"),
        (("--data", "rows.jsonl", "--answer", "gold"), '"a"\n"b"', "rows.jsonl", "no column `gold`"),
        (("--data", "missing.jsonl"), '"a"\n"b"', "missing.jsonl", ""),
    ],
)
def test_bad_input_is_met_with_a_sentence_that_names_the_place(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    samples: str,
    where: str,
    what: str,
) -> None:
    (project / "samples.jsonl").write_text(samples)
    assert score(*arguments, "--yes", "--json") == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["where"].endswith(where)
    assert what in problem["what"]


def test_a_rewards_file_that_is_not_python_is_named_with_its_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "rewards.py").write_text("\ndef f(:")
    assert score("--yes") == 2
    assert "rewards.py:2" in capsys.readouterr().err


RUN = str(Path(__file__).parents[1] / "runs" / "h01_base")


def test_other_weights_are_tried_on_what_a_run_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--run", RUN, "--step", "1", "--weights", "1,0,0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] == [1.0, 0.0, 0.0]
    assert found["before"]["weights"] == [1.0, 0.3, 0.1]
    assert len(found["advantages"]) == len(found["before"]["advantages"]) == len(found["rewards"]) == 64
    assert found["flat_share"] > found["before"]["flat_share"]
    assert found["moved"]
    assert "would have had another rank" in found["sentence"]


def test_several_steps_of_a_run_are_compared_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--run", RUN, "--step", "61", "--last", "5", "--weights", "0,1,0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["step"] for each in found["steps"]] == [1, 61]
    assert found["steps"][-1]["moved"] == len(found["moved"])
    assert main(["score", "--run", RUN, "--step", "61", "--last", "2", "--weights", "0,1,0"]) == 0
    assert capsys.readouterr().out.startswith("Step 1: ")


def test_without_a_change_everything_stands_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--run", RUN]) == 0
    out = capsys.readouterr().out
    assert "Step 240: 64 completions in groups of 8" in out
    assert "No completion of 64 would have stood otherwise" in out


def test_other_code_is_tried_on_what_a_run_kept(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are found by the prompts of the run."""
    from grpo_tui.progress.completions import read

    table = read(Path(RUN), 1)
    assert not isinstance(table, Problem)
    system = table.prompts[0].partition("\nuser: ")[0].removeprefix("system: ")
    rows = [{"question": question, "answer": "4"} for question in dict.fromkeys(table.questions)]
    (project / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (project / "rewards.py").write_text(
        "def correctness_reward(completions, answer, **kwargs):\n"
        "    return [float(f'<answer>{a}</answer>' in c[-1]['content']) for c, a in zip(completions, answer)]\n"
    )
    command = ["score", "rewards.py", "--run", RUN, "--step", "1", "--data", "asked.jsonl", "--yes", "--json"]
    assert main([*command, "--system", system]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["names"] == ["correctness_reward"]
    assert found["before"]["names"] == ["correctness_reward", "format_reward", "length_reward"]
    assert {row[0] for row in found["rewards"]} == {0.0, 1.0}
    assert main(command) == 2
    assert "64 of 64 completions" in json.loads(capsys.readouterr().out)["problems"][0]["what"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--run", RUN, "--weights", "1"), "1 weights for 3"),
        (("--run", RUN, "--step", "2"), "not kept"),
        (("rewards.py", "--run", RUN), "columns of the data"),
        (("--completions", "samples.jsonl"), "No reward functions"),
    ],
)
def test_what_a_run_cannot_be_asked_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], what: str
) -> None:
    assert main(["score", *arguments, "--yes", "--json"]) == 2
    assert what in json.loads(capsys.readouterr().out)["problems"][0]["what"]


def test_in_a_project_its_own_functions_and_weights_count(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = '[[rewards]]\nname = "brief"\nweight = 0.25\n\n[[rewards]]\nname = "correct"\nweight = 2.0\n'
    (project / "config.toml").write_text(config)
    assert score("--data", "rows.jsonl", "--yes", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["names"], answer["weights"]) == (["brief", "correct"], [0.25, 2.0])
    assert score("--data", "rows.jsonl", "--names", "correct", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["weights"] == [2.0]
    assert score("--data", "rows.jsonl", "--weights", "1,1", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["weights"] == [1.0, 1.0]
    (project / "config.toml").write_text(config + '[launch]\nrewards_file = "others.py"\n')
    assert score("--data", "rows.jsonl", "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["correct", "brief"], "they are of another file"
