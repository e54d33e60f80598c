"""What a rule makes of real rows."""

from collections.abc import Iterator

import pytest

from grpo_tui.dataset.extraction import Extraction, Yielded, extraction
from grpo_tui.dataset.prepared import prepared_columns
from grpo_tui.dataset.rows import Row, UnreadableError
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem

GSM8K = DatasetAnswer(prompt="question", answer="answer", extract="after_marker", extract_argument="####")
ROWS: list[Row] = [
    {"question": "a", "answer": "so\n#### 1,234"},
    {"question": "b", "answer": "no marker"},
    {"question": "c", "answer": None},
    {"question": "d", "answer": " "},
    {"question": "e", "answer": "#### 5"},
]


def tried(answer: DatasetAnswer, shown: int = 20) -> Extraction:
    result = extraction(ROWS, answer, shown)
    assert isinstance(result, Extraction), str(result)
    return result


def test_a_rule_is_shown_on_real_rows_with_those_on_which_it_fails() -> None:
    result = tried(GSM8K)
    assert result.yields == (Yielded(0, "so\n#### 1,234", "1234"), Yielded(4, "#### 5", "5"))
    assert (result.failed, result.failed_count, result.missing_count) == ((1,), 1, 2)
    assert (result.found_count, result.looked_at) == (2, 5)


def test_only_the_first_rows_are_shown_and_all_are_counted() -> None:
    result = extraction(ROWS * 100, GSM8K, shown=3)
    assert isinstance(result, Extraction)
    assert ([one.row for one in result.yields], result.failed) == ([0, 4, 5], (1, 6, 11))
    assert (result.found_count, result.failed_count, result.missing_count) == (200, 100, 200)


def test_as_it_stands_no_row_with_a_text_fails() -> None:
    result = tried(DatasetAnswer(prompt="question", answer="answer"))
    assert (result.found_count, result.failed_count, result.missing_count) == (3, 0, 2)


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        (DatasetAnswer(prompt="question"), "answer column"),
        (DatasetAnswer(prompt="question", answer="answer", extract="regex", extract_argument="("), "answer extraction"),
    ],
)
def test_a_rule_that_cannot_work_is_a_problem(answer: DatasetAnswer, where: str) -> None:
    problem = extraction(ROWS, answer)
    assert isinstance(problem, Problem)
    assert problem.where == where


def test_a_file_that_breaks_on_the_way_is_a_problem() -> None:
    broken = Problem("rows.jsonl, line 3", "It is broken.", "Mend it.")

    def rows() -> Iterator[Row]:
        yield ROWS[0]
        raise UnreadableError(broken)

    assert extraction(rows(), GSM8K) == broken


def test_the_prepared_columns_are_summed_up_as_rewards_get_them() -> None:
    rows: list[Row] = [*ROWS, {"question": "f", "answer": "#### 6", "level": 3}]
    columns = {column.name: column for column in prepared_columns(rows, GSM8K)}
    assert list(columns) == ["prompt", "answer", "question", "source_answer", "level"]
    assert {name: column.type for name, column in columns.items()} == {
        "prompt": "messages", "answer": "string", "question": "string", "source_answer": "string", "level": "int64",
    }  # fmt: skip
    assert (columns["answer"].example, columns["answer"].share) == ("1234", 1.0)
    assert columns["level"].share == pytest.approx(1 / 3)
    assert columns["answer"].as_json() == {"name": "answer", "type": "string", "example": "1234", "filled": 1.0}


def test_no_row_left_means_no_column() -> None:
    assert prepared_columns([{"question": ""}], GSM8K) == ()
