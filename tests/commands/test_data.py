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


HOSTILE: dict[str, tuple[bytes, int]] = {
    "digits.jsonl": (b'{"prompt":"a","answer":' + b"9" * 5000 + b"}\n", 0),
    "long.jsonl": (b'{"prompt":"a","answer":123456789012345678901234567890}\n', 0),
    "brackets.jsonl": (b"[" * 100_000 + b"\n", 2),
    "cell.jsonl": (b'{"prompt":"a","x":' + b"[" * 900 + b"]" * 900 + b"}\n", 2),
    "half.jsonl": (b'{"prompt":"\\ud800"}\n', 2),
    "quote.csv": (b'prompt,answer\na,"1\n' + b"b,2\n" * 100, 2),
    "wide.csv": (b",".join(b"c%d" % n for n in range(5000)) + b"\n" + b"x," * 4999 + b"x\n", 0),
    "\x1b[2Jevil\x07.jsonl": (b'{"prompt":"a"}\n', 0),
    "\udcff.jsonl": (b'{"prompt":"a"}\n', 0),
    "\x1b]0;title\x07.md": (b"# hello", 2),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_nobody_should_have_made_is_told_of_and_nothing_else_happens(
    run: Run, tmp_path: Path, name: str
) -> None:
    content, code = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert run(str(path))[0] == code
    code_of_json, out = run(str(path), "--json")
    assert code_of_json == code
    assert bool(json.loads(out).get("problems")) is (code == 2)
    for words in ((), ("--repair",)):
        _, out = run(str(path), *words)
        out.encode()
        assert "\x1b" not in out
        assert "\x07" not in out


def test_numbers_that_lose_digits_are_among_the_faults_with_their_rows(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt":"a","answer":1}\n{"prompt":"b","answer":123456789012345678901234567890}\n')
    code, out = run(str(path))
    assert code == 0
    assert "number of more than 15 digits: 1 (row 2): keep  (or leave out, stop: --choose lost_digits=…)" in out


@pytest.mark.parametrize("words", [("--delimiter", ",,"), ("--delimiter", "\\n"), ("--decimal", "x")])
def test_a_delimiter_that_is_none_is_a_problem(run: Run, tmp_path: Path, words: tuple[str, str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("prompt,answer\na,1\n")
    code, out = run(str(path), *words, "--json")
    assert (code, json.loads(out)["problems"][0]["where"]) == (2, words[0].removeprefix("--"))


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
    assert (code, "line 2: The last line looks cut off" in out) == (0, True)
    code, out = run(str(path), "--repair", "--json")
    assert code == 0
    code, out = run(json.loads(out)["repaired"], "--json")
    assert (code, json.loads(out)["rows"]) == (0, 1)


def test_broken_lines_are_a_fault_that_stops_until_they_are_left_out(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question":"a","answer":1}\n{"question":"b"\n\n{"question":"c","answer":3}\n[1]\n')
    code, out = run(str(path))
    assert code == 0
    for part in (
        "rows.jsonl: 4 rows, json", "question  string  in 2 of 4 rows", "Row 2 is broken",
        "rows.jsonl, line 2: The line is",
        "Answers found in 2 of the first 2 rows", "Usable: 2 of 4 rows",
        "line that is no JSON object: 2 (row 2, 4): stop  (or leave out: --choose broken_line=…)",
        f"load_dataset('json', data_files='{path}'",
    ):  # fmt: skip
        assert part in out
    assert "without_broken_lines" not in out
    code, out = run(str(path), "--json", "--choose", "broken_line=leave_out")
    report = json.loads(out)
    assert (code, report["rows"], report["usable"]) == (0, 4, 2)
    (fault,) = report["faults"]
    assert (fault["kind"], fault["rows"], fault["choice"]) == ("broken_line", [1, 3], "leave_out")
    assert report["sample"][1] == {"row": {}, "prepared": None, "broken": report["sample"][1]["broken"]}
    assert report["load"] == f"without_broken_lines(['{path}'])"
    assert "def without_broken_lines(files" in report["load_code"]
    code, out = run(str(path), "--json", "--choose", "broken_line=keep")
    assert (code, json.loads(out)["problems"][0]["remedy"]) == (2, "Choices: stop, leave_out.")


def test_tokens_are_counted_by_the_shipped_model(run: Run, rows: Path) -> None:
    model = Path(__file__).parents[2] / "recipes" / "word_problems" / "model"
    code, out = run(str(rows), "--json", "--tokenizer", str(model), "--max-tokens", "5")
    report = json.loads(out)
    assert code == 0
    assert report["tokens"]["measured"] == 38
    assert 5 < report["tokens"]["p50"] <= report["tokens"]["p99"] <= report["tokens"]["max"]
    assert {fault["kind"]: fault["count"] for fault in report["faults"]}["over_long"] == 38
    assert "0+0?" in report["rendered"]["text"]


MODEL = Path(__file__).parents[2] / "recipes" / "word_problems" / "model"


def test_prepared_columns_and_what_the_rule_yields_are_in_the_report(run: Run, rows: Path) -> None:
    _, out = run(str(rows), "--json")
    report = json.loads(out)
    assert [(column["name"], column["type"], column["filled"]) for column in report["prepared"]] == [
        ("prompt", "messages", 1.0), ("answer", "string", 1.0), ("question", "string", 1.0),
        ("source_answer", "string", 1.0),
    ]  # fmt: skip
    assert report["prepared"][1]["example"] == "0"
    tried = report["extraction"]
    assert (tried["looked_at"], tried["found"], tried["missing_count"], tried["failed"]) == (40, 39, 1, [])
    assert tried["yields"][1] == {"row": 1, "before": "so\n#### 2", "after": "2"}


def test_examples_choices_and_a_held_out_share_are_in_the_code(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n % 100}?"}) + "\n" for n in range(200)))
    code, out = run(str(path), "--json", "--example", "1+1?", "2", "--choose", "duplicate=leave_out",
                    "--eval-share", "0.25", "--seed", "3")  # fmt: skip
    report = json.loads(out)
    assert code == 0
    assert (report["held_out"]["share"], report["held_out"]["seed"]) == (0.25, 3)
    assert {fault["kind"]: fault["choice"] for fault in report["faults"]} == {"duplicate": "leave_out"}
    namespace: dict[str, Any] = {}
    exec(report["code"], namespace)
    source = [{"prompt": f"{n % 100}?"} for n in range(200)]
    train = list(namespace["prepare_rows"](source))
    apart = list(namespace["prepare_rows"](source, held_out=True))
    assert len(train) == report["usable"]
    assert len(train) + len(apart) == 100
    assert train[0]["prompt"][:2] == [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]


@pytest.mark.parametrize(
    ("words", "where", "remedy"),
    [
        (["--choose", "doubles=keep"], "--choose", "duplicate"),
        (["--choose", "duplicate=explode"], "--choose", "keep, leave_out, stop"),
        (["--eval-share", "1"], "held-out share", "below 1"),
    ],
)
def test_a_choice_that_there_is_not_is_answered_with_those_that_there_are(
    run: Run, rows: Path, words: list[str], where: str, remedy: str
) -> None:
    code, out = run(str(rows), "--json", *words)
    problem = json.loads(out)["problems"][0]
    assert (code, problem["where"]) == (2, where)
    assert remedy in problem["remedy"]


def test_a_person_sees_rows_as_they_are_and_as_the_model_sees_them(run: Run, rows: Path) -> None:
    code, out = run(str(rows), "--tokenizer", str(MODEL), "--system", "Add.")
    assert code == 0
    lines = out.splitlines()
    seen = lines.index(next(line for line in lines if line.startswith("Row 1 as the model sees it, ")))
    assert lines[seen + 1] == "  <|im_start|>system"
    assert "Row 1 as it is" in lines[:seen]
    for part in (
        "Answers found in 39 of the first 40 rows", "row 2: so #### 2 → 2", "Columns as rewards get them",
        "source_answer  string  100 % filled", "Tokens of 38 prompts: p50", "█", "below the usual 256 to 512",
        "(or stop: --choose empty=…)", "load_dataset('json'", "  def prepare(row):", "  def prepare_rows(rows",
    ):  # fmt: skip
        assert part in out


def test_an_answer_inside_a_struct_of_a_compressed_file_is_found(run: Run, tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "verl.jsonl.gz"
    row = {"prompt": [{"role": "user", "content": "2+2?"}], "reward_model": {"style": "rule", "ground_truth": "4"}}
    with gzip.open(path, "wt") as file:
        file.write(json.dumps(row) + "\n")
    code, out = run(str(path), "--json", "--answer", "reward_model.ground_truth")
    report = json.loads(out)
    assert code == 0
    assert report["sample"][0]["prepared"]["answer"] == "4"
    assert report["mapping"]["extract"] == "as_is"
