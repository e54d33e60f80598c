"""The code that turns a row into a prompt."""

import ast
from typing import Any

import pytest

from grpo_tui.dataset.mapping import RULES
from grpo_tui.dataset.prompts import RESERVED, prepare_code, prepare_function
from grpo_tui.dataset.rows import Row
from grpo_tui.draft import DatasetAnswer

USER = {"role": "user", "content": "2+2?"}


def prepared(row: Row, **answer: Any) -> Row | None:
    return prepare_function(DatasetAnswer(**answer))(row)


def extracted(value: Any, rule: str, argument: str = "") -> Any:
    row = prepared(
        {"q": "x", "a": value}, prompt="q", answer="a", extract=rule, extract_argument=argument,
        faults={"missing_answer": "keep", "unparsable": "keep"},
    )  # fmt: skip
    assert row is not None
    return row["answer"]


def test_a_plain_prompt_becomes_one_user_message_behind_the_system_prompt() -> None:
    row = prepared({"q": "2+2?", "a": 4, "level": 1}, prompt="q", answer="a", system='Say "so".\nAlways.')
    assert row == {
        "prompt": [{"role": "system", "content": 'Say "so".\nAlways.'}, USER], "answer": "4", "q": "2+2?", "a": 4,
        "level": 1,
    }  # fmt: skip


def test_chat_messages_are_taken_as_they_are_without_the_reply_at_their_end() -> None:
    messages = [USER, {"role": "assistant", "content": "4"}, {"role": "user", "content": "sure?"}]
    assert prepared({"prompt": messages}, prompt="prompt") == {"prompt": messages}
    assert prepared({"prompt": messages[:2]}, prompt="prompt") == {"prompt": [USER]}


def test_the_chosen_system_prompt_takes_the_place_of_the_rows_own() -> None:
    row = prepared({"prompt": [{"role": "system", "content": "old"}, USER]}, prompt="prompt", system="new")
    assert row == {"prompt": [{"role": "system", "content": "new"}, USER]}


def test_without_a_chat_template_prompts_stay_text() -> None:
    assert prepared({"prompt": "2+2="}, prompt="prompt", plain=True) == {"prompt": "2+2="}
    assert prepared({"prompt": "2+2="}, prompt="prompt", plain=True, system="Sums.") == {"prompt": "Sums.\n\n2+2="}


@pytest.mark.parametrize(
    "prompt",
    ["", " ", "\n", None, 3, float("nan"), [], [{"role": "user", "content": None}], [{"role": "user", "content": " "}],
     ["text"], {"role": "user"}, [{"role": "assistant", "content": "only a reply"}]],
)  # fmt: skip
def test_a_prompt_that_asks_nothing_is_left_out(prompt: Any) -> None:
    assert prepared({"prompt": prompt}, prompt="prompt") is None
    assert prepared({"prompt": prompt}, prompt="prompt", plain=True) is None
    assert prepared({}, prompt="prompt") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (72, "72"), (72.0, "72"), (3.5, "3.5"), (True, "True"), ("  kept \n", "  kept \n"), (["a", 1], '["a", 1]'),
        ({"x": "é"}, '{"x": "é"}'), (None, None), (" ", None), (float("nan"), None),
    ],
)  # fmt: skip
def test_an_answer_as_it_stands_becomes_text(value: Any, text: str | None) -> None:
    assert extracted(value, "as_is") == text


@pytest.mark.parametrize(
    ("rule", "argument", "value", "answer"),
    [
        ("after_marker", "####", "48/2 = <<48/2=24>>24\n48+24 = 72\n#### 72", "72"),
        ("after_marker", "####", "#### $1,234,567.50 \nthanks", "1234567.50"),
        ("after_marker", "####", "#### 1\n#### Paris, France", "Paris, France"),
        ("after_marker", "####", "no marker", None),
        ("after_marker", "####", "####  ", None),
        ("after_marker", "'\"\\", "x'\"\\ y", "y"),
        ("tag", "answer", "<answer>1</answer> no, <answer>\n2\n</answer>", "2"),
        ("tag", "answer", "<answer>1", None),
        ("boxed", "", "so \\boxed{\\frac{1}{2}}. Done {x}", "\\frac{1}{2}"),
        ("boxed", "", "\\boxed{1} and \\boxed{2}", "2"),
        ("boxed", "", "\\boxed{1", None),
        ("boxed", "", "none", None),
        ("regex", r"(\d+) apples", "5 pears, 7 apples", "7"),
        ("regex", r"\d+ apples", "7 apples", "7 apples"),
        ("regex", r"(\d+)?x", "x", None),
        ("regex", r"\d", "none", None),
        ("json_path", "a.0.b", {"a": [{"b": 7}]}, "7"),
        ("json_path", "a.0.b", '{"a": [{"b": "x"}]}', "x"),
        ("json_path", "a.5", {"a": [1]}, None),
        ("json_path", "a.b", "no JSON", None),
    ],
)
def test_the_answer_is_taken_out_by_the_rule(rule: str, argument: str, value: Any, answer: str | None) -> None:
    assert extracted(value, rule, argument) == answer


def test_what_is_extracted_stands_beside_the_original() -> None:
    answer = {"prompt": "question", "answer": "answer", "extract": "after_marker", "extract_argument": "####"}
    row = prepared({"question": "q", "answer": "so #### 1"}, **answer)
    assert row is not None
    assert (row["answer"], row["source_answer"], row["question"]) == ("1", "so #### 1", "q")


@pytest.mark.parametrize(
    ("faults", "kept"),
    [
        ({}, [False, False, True]),
        ({"missing_answer": "keep"}, [True, False, True]),
        ({"unparsable": "keep"}, [False, True, True]),
        ({"missing_answer": "keep", "unparsable": "keep"}, [True, True, True]),
    ],
)
def test_rows_without_an_answer_are_kept_only_if_chosen(faults: dict[str, str], kept: list[bool]) -> None:
    prepare = prepare_function(DatasetAnswer(prompt="q", answer="a", extract="boxed", faults=faults))
    assert [prepare({"q": "x", "a": value}) is not None for value in (None, "nothing", "\\boxed{1}")] == kept


def test_columns_that_the_trainer_uses_get_another_name() -> None:
    row = prepared({"q": "x", "completion": "c", "images": 1, "prompt": "other", "answer": "old", "a": "new"},
                   prompt="q", answer="a")  # fmt: skip
    assert row is not None
    assert row["prompt"] == [{"role": "user", "content": "x"}]
    assert (row["answer"], row["source_answer"], row["source_prompt"]) == ("new", "old", "other")
    assert not set(RESERVED) & row.keys()
    assert (row["source_completion"], row["source_images"]) == ("c", 1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "nasty", ["plain", '"', "'", '"""', "\\", "a\nb", "{}", "\x1b[2J", "é😀\u2028", "\ud800", "%s"]
)
def test_names_and_texts_of_any_kind_are_only_ever_data_in_the_code(rule: str, nasty: str) -> None:
    answer = DatasetAnswer(prompt=nasty, answer=nasty + "2", system=nasty, extract=rule, extract_argument=nasty)
    code = prepare_code(answer)
    assert "\x1b" not in code
    assert {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)} <= {
        "as_text", "extract", "prepare",
    }  # fmt: skip
    code.encode()  # it can be written to a file
    if rule in ("as_is", "json_path"):
        row = prepare_function(answer)({nasty: "x", nasty + "2": '{"k": 1}'})
        assert rule == "json_path" or (row is not None and row["prompt"][0]["content"] == nasty)


def test_the_code_is_what_runs_in_the_preview() -> None:
    answer = DatasetAnswer(prompt="q", answer="a", extract="tag", extract_argument="answer", system="S")
    namespace: dict[str, Any] = {}
    exec(prepare_code(answer), namespace)
    row = {"q": "x", "a": "<answer>1</answer>"}
    assert namespace["prepare"](row) == prepare_function(answer)(row)
