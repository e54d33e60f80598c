"""`grpo-tui data`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.__main__ import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: str) -> tuple[int, str]:
        code = main(["data", *words])
        return code, capsys.readouterr().out

    return ran


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    made: list[dict[str, Any]] = [{"question": f"{n}+{n}?", "answer": f"so\n#### {2 * n}"} for n in range(40)]
    made[3]["question"], made[5]["answer"] = "", None
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def test_a_script_learns_all_that_the_wizard_shows(run: Run, rows: Path) -> None:
    code, out = run(str(rows), "--json", "--system", "Add.", "--needed", "16")
    report = json.loads(out)
    assert code == 0
    assert report["rows"] == 40
    assert report["columns"] == [
        {"name": "question", "type": "string", "filled": 40}, {"name": "answer", "type": "string", "filled": 39},
    ]  # fmt: skip
    assert report["mapping"]["prompt"] == "question"
    assert (report["mapping"]["extract"], report["mapping"]["extract_argument"]) == ("after_marker", "####")
    faults = {fault["kind"]: fault for fault in report["faults"]}
    assert (faults["empty"]["rows"], faults["missing_answer"]["rows"]) == ([3], [5])
    assert faults["unused_rest"]["count"] == 38 % 16
    first = report["sample"][0]["prepared"]
    assert first["prompt"] == [{"role": "system", "content": "Add."}, {"role": "user", "content": "0+0?"}]
    assert first["answer"] == "0"
    namespace: dict[str, Any] = {}
    exec(report["code"], namespace)
    assert namespace["prepare"](report["sample"][0]["row"]) == first


def test_a_person_reads_counts_reasons_and_rows_from_one(run: Run, rows: Path) -> None:
    code, out = run(str(rows))
    assert code == 0
    assert "40 rows" in out
    assert "extract: after_marker ####" in out
    assert "39 of 39 answers have ####" in out
    assert "empty prompt: 1 (row 4): leave out" in out


def test_what_is_asked_for_counts_more_than_what_is_proposed(run: Run, rows: Path) -> None:
    code, out = run(str(rows), "--json", "--prompt", "answer", "--answer", "question", "--extract", r"regex:^(\d+)")
    mapping = json.loads(out)["mapping"]
    assert code == 0
    assert (mapping["prompt"], mapping["answer"], mapping["extract_argument"]) == ("answer", "question", r"^(\d+)")
    assert mapping["reasons"]["prompt"] == "set by you"


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["--prompt", "nope"], "prompt column"),
        (["--extract", "tag"], "answer extraction"),
        (["--extract", "regex:("], "answer extraction"),
        (["--tokenizer", "./no/model"], "model ./no/model"),
    ],
)
def test_what_cannot_be_done_is_a_problem_and_the_rest_is_told(
    run: Run, rows: Path, words: list[str], where: str
) -> None:
    code, out = run(str(rows), "--json", *words)
    report = json.loads(out)
    assert code == 2
    assert [problem["where"] for problem in report["problems"]] == [where]
    assert report["rows"] == 40


def test_terminal_codes_in_the_data_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "evil.jsonl"
    path.write_text(json.dumps({"prompt": "\x1b[2Jgone\x07", "\x1b]0;title\x07": "x"}) + "\n")
    code, out = run(str(path))
    assert code == 0
    assert "\x1b" not in out
    assert "\x07" not in out


def test_dates_and_numbers_that_are_none_are_strict_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text('{"prompt":"a","when":"2020-01-01","x":NaN}\n{"prompt":"b","when":"2021-01-01","x":1.5}\n')
    _, out = run(str(path), "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    row = json.loads(out, parse_constant=refuse)["sample"][0]["row"]
    assert row == {"prompt": "a", "when": "2020-01-01 00:00:00", "x": None}


def test_a_broken_file_can_be_copied_without_its_fault(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text('{"prompt":"a"}\n{"prompt":"b')
    code, out = run(str(path))
    assert (code, "line 2" in out) == (2, True)
    code, out = run(str(path), "--repair", "--json")
    assert code == 0
    code, out = run(json.loads(out)["repaired"], "--json")
    assert (code, json.loads(out)["rows"]) == (0, 1)


def test_tokens_are_counted_by_the_shipped_model(run: Run, rows: Path) -> None:
    model = Path(__file__).parents[2] / "recipes" / "word_problems" / "model"
    code, out = run(str(rows), "--json", "--tokenizer", str(model), "--max-tokens", "5")
    report = json.loads(out)
    assert code == 0
    assert report["tokens"]["measured"] == 38
    assert 5 < report["tokens"]["p50"] <= report["tokens"]["p99"] <= report["tokens"]["max"]
    assert {fault["kind"]: fault["count"] for fault in report["faults"]}["over_long"] == 38
    assert "0+0?" in report["rendered"]["text"]
