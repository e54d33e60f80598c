"""Files that trouble users elsewhere, each with what is right for it. Read from disk, as a user brings them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.dataset.extraction import Extraction, extraction
from grpo_tui.dataset.faults import Scan, scan
from grpo_tui.dataset.lengths import Lengths, measure
from grpo_tui.dataset.mapping import propose
from grpo_tui.dataset.prepared import prepared_columns
from grpo_tui.dataset.prompts import prepare_code, prepare_function
from grpo_tui.dataset.rows import Row
from grpo_tui.dataset.sources import Source, load_call, load_code, open_source, repair
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem
from grpo_tui.rewards.bench import ScoreRequest, ScoreTable, score, start_worker
from grpo_tui.rewards.source import check_signature, read_code

Open = Callable[..., Source]
Write = Callable[..., Path]

BOM = b"\xef\xbb\xbf"
PROMPT = DatasetAnswer(prompt="prompt")


def scanned(source: Source, answer: DatasetAnswer, lengths: dict[int, int] | None = None, needed: int = 0) -> Scan:
    result = scan(source.iterate(), answer, lengths, needed=needed)
    assert isinstance(result, Scan), str(result)
    return result


def trained(library: Worker, source: Source, answer: DatasetAnswer, held_out: bool = False) -> list[Row]:
    """The rows that the trainer gets: the written code, run on what `datasets` loads by the written expression."""
    load = load_call(source, answer=answer)
    code = {"code": prepare_code(answer), "load_code": load_code(load)}
    request = {**code, "load": load, "held_out": held_out}
    made = library.call("train", request)
    assert isinstance(made, dict), str(made)
    assert made["kind"] == "Dataset"
    rows: list[Row] = made["rows"]
    return rows


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def problem_of(path: Path, **options: str) -> Problem:
    problem = open_source(str(path), options)
    assert isinstance(problem, Problem)
    return problem


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("bom.jsonl", b'{"prompt":"a","answer":"1"}\n{"prompt":"b","answer":"2"}\n',
         [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}]),
        ("bom.csv", b"prompt,answer\na,1\n", [{"prompt": "a", "answer": 1}]),
    ],
)  # fmt: skip
def test_a_byte_order_mark_is_no_part_of_the_first_column(
    library: Worker, write: Write, opened: Open, name: str, content: bytes, rows: list[Row]
) -> None:
    """DS-01: the columns are prompt and answer, a small note says what was removed, training reads the same."""
    source = opened(write(name, BOM + content))
    assert [column.name for column in source.columns] == ["prompt", "answer"]
    assert (source.rows, list(source.iterate())) == (len(rows), rows)
    assert source.notes == ("byte-order mark removed",)
    assert len(trained(library, source, PROMPT)) == len(rows)


def test_worked_answers_are_cut_to_what_stands_behind_the_marker(library: Worker, write: Write, opened: Open) -> None:
    """DS-02: the pattern is found in nine of ten rows, the answer is taken out, cleaned, and the column is kept."""
    steps = "48/2 = <<48/2=24>>24\n48+24 = <<48+24=72>>72\n#### "
    rows: list[Row] = [{"question": f"Natalia sold {n} clips.", "answer": f"{steps}{n}"} for n in range(72, 91)]
    rows.append({"question": "And how many dollars?", "answer": steps + "$1,234"})
    source = opened(write("gsm8k.jsonl", lines(*rows)))
    answer = propose(source.columns, source.head(100)).answer
    assert (answer.prompt, answer.extract, answer.extract_argument) == ("question", "after_marker", "####")
    made = trained(library, source, answer)
    assert [row["answer"] for row in made] == [*map(str, range(72, 91)), "1234"]
    assert [row["source_answer"] for row in made] == [row["answer"] for row in rows]
    tried = extraction(source.iterate(), answer)
    assert isinstance(tried, Extraction)
    assert (tried.found_count, tried.failed_count) == (20, 0)


def test_a_reward_that_needs_a_column_of_another_name_is_known_before_training() -> None:
    """DS-02: TRL passes columns by name, so that one which is not there would end the run at its first step."""
    answer = DatasetAnswer(prompt="question", answer="answer", extract="after_marker", extract_argument="####")
    columns = [column.name for column in prepared_columns([{"question": "q", "answer": "#### 7"}], answer)]
    functions = read_code("def accuracy(completions, solution, **kwargs):\n    return [0.0] * len(completions)\n")
    assert not isinstance(functions, Problem)
    problems = check_signature(functions[0], columns)
    assert len(problems) == 1
    assert "solution" in problems[0].what


def test_plain_and_conversational_prompts_are_counted_and_one_kind_must_be_chosen(
    library: Worker, write: Write, opened: Open
) -> None:
    """DS-03: four of each are told and nothing is trained until they are converted; every row is looked at."""
    pair: list[Row] = [{"prompt": "What is 2+2?"}, {"prompt": [{"role": "user", "content": "What is 3+3?"}]}]
    source = opened(write("mixed.jsonl", lines(*pair * 4)))
    mixed = next(fault for fault in scanned(source, PROMPT).faults if fault.kind == "mixed_kind")
    assert mixed.text.startswith("4 plain, 4 conversational.")
    assert (mixed.count, mixed.blocking, mixed.choices) == (4, True, ("stop", "convert"))
    convert = DatasetAnswer(prompt="prompt", faults={"mixed_kind": "convert"})
    assert not any(fault.blocking for fault in scanned(source, convert).faults)
    assert [row["prompt"] for row in trained(library, source, convert)] == [
        [{"role": "user", "content": "What is 2+2?"}], [{"role": "user", "content": "What is 3+3?"}],
    ] * 4  # fmt: skip


def test_ragged_rows_are_read_and_their_gaps_named(library: Worker, write: Write, opened: Open) -> None:
    """DS-04: one of three rows has no answer and one has a level; such a row is left out, kept with None, or stops."""
    rows: list[Row] = [{"prompt": "a", "answer": "1"}, {"prompt": "b"}, {"prompt": "c", "answer": "3", "level": 2}]
    source = opened(write("ragged.jsonl", lines(*rows)))
    assert {column.name: column.filled for column in source.columns} == {"prompt": 3, "answer": 2, "level": 1}
    asked = DatasetAnswer(prompt="prompt", answer="answer")
    missing = scanned(source, asked).faults[0]
    assert (missing.kind, missing.count, missing.rows) == ("missing_answer", 1, (1,))
    assert missing.choices == ("leave_out", "keep", "stop")
    assert [row["answer"] for row in trained(library, source, asked)] == ["1", "3"]
    keep = DatasetAnswer(prompt="prompt", answer="answer", faults={"missing_answer": "keep"})
    assert [row["answer"] for row in trained(library, source, keep)] == ["1", None, "3"]
    stop = DatasetAnswer(prompt="prompt", answer="answer", faults={"missing_answer": "stop"})
    assert scanned(source, stop).faults[0].blocking


def test_no_comparison_gets_the_none_of_a_row_that_was_kept_without_an_answer(
    library: Worker, write: Write, opened: Open
) -> None:
    """DS-04: the wrapper that train.py then holds gives None there; scoring uses the same one."""
    rows: list[Row] = [{"prompt": "a", "answer": "1"}, {"prompt": "b"}, {"prompt": "c", "answer": "3", "level": 2}]
    keep = DatasetAnswer(prompt="prompt", answer="answer", faults={"missing_answer": "keep"})
    made = trained(library, opened(write("ragged.jsonl", lines(*rows))), keep)
    rewards = write(
        "rewards.py",
        """
def correct(completions, answer, **kwargs):
    return [float(text == right.strip()) for text, right in zip(completions, answer)]

def brief(completions, **kwargs):
    return [1.0 / len(text) for text in completions]
""",
    )
    request = ScoreRequest(
        path=rewards,
        names=("correct", "brief"),
        completions=("1", "22", "4"),
        columns={"answer": [row["answer"] for row in made]},
        answer_column="answer",
    )
    with start_worker(rewards.parent) as worker:
        table = score(worker, request)
    assert isinstance(table, ScoreTable), table
    assert table.rewards == ((1.0, 1.0), (None, 0.5), (0.0, 1.0))
    assert (table.problems, table.blocking) == ({}, ())


def test_a_broken_file_is_named_by_its_line(write: Write, opened: Open) -> None:
    """DS-05: a cut last line and an array without brackets are told apart, and each can be mended in a copy."""
    cut = write("cut.jsonl", '{"prompt":"a","answer":"1"}\n{"prompt":"b","ans')
    (fault,) = scanned(opened(cut), PROMPT).faults
    assert (fault.kind, fault.rows, fault.blocking) == ("broken_line", (1,), True)
    assert "cut.jsonl, line 2: The last line looks cut off" in fault.text
    commas = write("commas.jsonl", '{"prompt":"a"},\n{"prompt":"b"},\n')
    assert "looks like a JSON array without its brackets" in problem_of(commas).what
    for path, prompts in ((cut, ["a"]), (commas, ["a", "b"])):
        copy = repair(path)
        assert isinstance(copy, Path)
        assert [row["prompt"] for row in opened(copy).iterate()] == prompts


@pytest.mark.parametrize(
    "content", ['{"prompt":"a"}\n\n{"prompt":"b"}\n', '{\n "prompt":"a"\n}\n{\n "prompt":"b"\n}\n']
)
def test_what_the_library_accepts_is_accepted(library: Worker, write: Write, opened: Open, content: str) -> None:
    """DS-05: a blank line and objects over several lines are two rows here as there."""
    source = opened(write("odd.jsonl", content))
    assert [row["prompt"] for row in source.iterate()] == ["a", "b"]
    assert len(trained(library, source, PROMPT)) == 2


def test_a_semicolon_file_with_decimal_commas_is_read_as_its_author_meant_it(
    library: Worker, write: Write, opened: Open
) -> None:
    """DS-06: delimiter and decimal comma are found and reach the loader; read by commas it is named what is wrong."""
    path = write("excel.csv", "prompt;answer\nwhat is 1,5 + 2?;3,5\n")
    source = opened(path)
    assert list(source.iterate()) == [{"prompt": "what is 1,5 + 2?", "answer": 3.5}]
    assert source.options == {"delimiter": ";", "decimal": ","}
    assert "delimiter=';'" in load_call(source)
    assert trained(library, source, DatasetAnswer(prompt="prompt", answer="answer"))[0]["answer"] == "3.5"
    assert "The line has 3 fields, the header has 1." in problem_of(path, delimiter=",").what
    plain = opened(write("plain.csv", "prompt;answer\nx;y\n"), {"delimiter": ","})
    assert any("is that the delimiter?" in note for note in plain.notes)


def test_a_field_too_many_is_named_with_its_line(write: Write) -> None:
    """DS-06: line and numbers of fields, as the parser's own error says them."""
    problem = problem_of(write("wide.csv", "prompt,answer\na,1\nb,2,3\n"))
    assert problem.where.endswith("line 3")
    assert problem.what == "The line has 3 fields, the header has 2."


@pytest.mark.parametrize(
    ("name", "content", "encoding", "place"),
    [
        ("excel.csv", "prompt,answer\ncafé,1\n".encode("cp1252"), "cp1252", "byte 17"),
        ("old.jsonl", '{"prompt":"café"}\n'.encode("latin-1"), "cp1252", "byte 14"),
        ("powershell.jsonl", '{"prompt":"café"}\n'.encode("utf-16"), "utf-16", "starts with its mark"),
    ],
)
def test_text_that_is_not_utf8_is_read_by_its_likely_encoding(
    library: Worker, write: Write, opened: Open, name: str, content: bytes, encoding: str, place: str
) -> None:
    """DS-07: which encoding, and where UTF-8 fails; decoded rows show a wrong guess; a copy is made beside it."""
    path = write(name, content)
    source = opened(path)
    assert source.options["encoding"] == encoding
    assert place in source.notes[0]
    assert source.head(3)[0]["prompt"] == "café"
    assert trained(library, source, PROMPT)[0]["prompt"] == [{"role": "user", "content": "café"}]
    copy = repair(path)
    assert isinstance(copy, Path)
    assert "café" in copy.read_text(encoding="utf-8")
    assert path.read_bytes() == content


def test_folders_are_told_apart_and_training_always_gets_one_data_set(
    library: Worker, write: Write, opened: Open, tmp_path: Path
) -> None:
    """DS-08: save_to_disk with and without splits, a folder of Parquet, and one that is neither."""
    import pyarrow
    import pyarrow.parquet

    rows = [{"prompt": "a"}, {"prompt": "b"}]
    library.call("save", {"folder": str(tmp_path / "A"), "splits": {"train": rows}})
    library.call("save", {"folder": str(tmp_path / "B"), "splits": {"train": rows, "test": rows[:1]}})
    (tmp_path / "C").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "C" / "part.parquet")
    for name, call in (("A", "load_from_disk('"), ("B", "load_from_disk('"), ("C", "load_dataset('parquet'")):
        source = opened(tmp_path / name)
        assert call in load_call(source)
        assert len(trained(library, source, PROMPT)) == 2
    assert (opened(tmp_path / "B").split, opened(tmp_path / "B").splits) == ("train", ("train", "test"))
    write("D/readme.txt", "nothing")
    assert "looked for dataset_dict.json, state.json" in problem_of(tmp_path / "D").what


def test_prompts_that_ask_nothing_are_counted_by_kind_and_left_out(library: Worker, write: Write, opened: Open) -> None:
    """DS-09: empty, blank, null, a number, no message, a message without content: none reaches the trainer."""
    prompts: list[Any] = ["", " ", None, 3, [], [{"role": "user", "content": None}]]
    source = opened(write("empty.jsonl", lines(*({"prompt": prompt} for prompt in prompts), {"prompt": "sound"})))
    result = scanned(source, PROMPT)
    assert result.usable == 1
    assert {fault.kind: fault.rows for fault in result.faults if fault.kind in ("empty", "null", "not_text")} == {
        "empty": (0, 1, 4, 5), "null": (2,), "not_text": (3,),
    }  # fmt: skip
    assert [row["prompt"][-1]["content"] for row in trained(library, source, PROMPT)] == ["sound"]


def test_very_long_prompts_are_listed_and_left_out_by_their_tokens(
    tokenize: Worker, model: Path, write: Write, opened: Open
) -> None:
    """DS-10: 2 of 100 exceed the limit, counted after the chat template; none is cut, the system prompt stays."""
    rows = [{"prompt": "x" * (9000 if n in (17, 61) else 80)} for n in range(100)]
    limited = DatasetAnswer(prompt="prompt", system="Be brief.", max_prompt_tokens=4096 - 512)
    source = opened(write("long.jsonl", lines(*rows)))
    lengths = measure(tokenize, str(model), source, limited)
    assert isinstance(lengths, Lengths)
    template = len("Be brief.") + 2 + 2 + 1  # two messages between two marks each, and the mark of the reply
    assert (lengths.p50, lengths.longest) == (80 + template, 9000 + template)
    assert sum(one.count for one in lengths.histogram) == 100
    over = next(fault for fault in scanned(source, limited, dict(lengths.by_row)).faults if fault.kind == "over_long")
    assert (over.count, over.rows, over.choice) == (2, (17, 61), "leave_out")
    assert over.text.startswith("2 of 100 measured prompts exceed 3584 tokens.")
    first = prepare_function(limited)(rows[17])
    assert first is not None
    assert (first["prompt"][0]["content"], len(first["prompt"][1]["content"])) == ("Be brief.", 9000)


def test_fewer_prompts_than_a_generation_takes_are_said_in_prompts(write: Write, opened: Open) -> None:
    """DS-11: 8 completions in groups of 4 take 2 prompts; with one there is no step, with three one is never used."""
    needed = 8 // 4
    few = scanned(opened(write("one.jsonl", lines({"prompt": "a"}))), PROMPT, needed=needed).faults[0]
    assert (few.kind, few.blocking) == ("too_few_rows", True)
    assert few.text.startswith("Usable prompts: 1; one generation needs 2.")
    assert "Lower the batch, or raise the number of generations" in few.text
    rest = scanned(opened(write("three.jsonl", lines(*({"prompt": c} for c in "abc")))), PROMPT, needed=needed).faults[
        0
    ]
    assert (rest.kind, rest.count, rest.blocking) == ("unused_rest", 1, False)
    assert rest.text.startswith("Never used in an epoch: 1 of 3 prompts.")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_prompts_kept_apart_in_the_preview_are_those_that_training_keeps_apart(
    library: Worker, write: Write, opened: Open, ending: str
) -> None:
    """The library gives messages more keys than the file: the side does not depend on them."""
    import gzip

    rows: list[Row] = [
        {"conversations": [{"from": "human", "value": f"{n % 40}?"}, {"from": "gpt", "value": f"reply {n}"}],
         "extra": {"answer": str(n % 40), "index": n}}
        for n in range(80)
    ]  # fmt: skip
    rows[5]["conversations"] = [{"value": "5?", "from": "human", "weight": 1}]
    text = lines(*rows).encode()
    source = opened(write(f"chat.jsonl{ending}", gzip.compress(text) if ending else text))
    answer = DatasetAnswer(
        prompt="conversations", answer="extra.answer", eval_share=0.3, faults={"duplicate": "leave_out"}
    )
    apart = trained(library, source, answer, held_out=True)
    train = trained(library, source, answer)
    result = scanned(source, answer)
    assert len(train) == result.usable
    assert len(train) + len(apart) == 40
    asked = [{row["prompt"][-1]["content"] for row in side} for side in (train, apart)]
    assert not asked[0] & asked[1]
    assert all(row["prompt"][-1]["content"] == f"{row['answer']}?" for row in [*train, *apart])
