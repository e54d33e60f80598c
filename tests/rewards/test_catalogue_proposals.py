"""Proposals: what fits the kind of answer, with its reason, and what is known to go wrong with it."""

import json
from typing import Any

import pytest

from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import is_binary_exact
from grpo_tui.rewards.catalogue import proposals, render_rewards
from grpo_tui.rewards.source import check_signatures, read_code
from tests.rewards.catalogued import functions

COLUMNS = ("prompt", "answer")


@pytest.mark.parametrize(
    ("system", "rights", "templates"),
    [
        ("", ["1,234", "-5", "3.5", "12 apples", 7], ["numeric", "tags", "length"]),
        ("", ["A", "(b)", "C"], ["choice", "tags", "length"]),
        ("", ["Paris", "42"], ["exact", "tags", "length"]),
        ("", ["\\frac{1}{2}", "3", "x^2+1"], ["mathematics", "tags", "length"]),
        ("", ["$2\\sqrt{3}$", "\\text{east}"], ["mathematics", "tags", "length"]),
        ("", ["New-York", "Rio"], ["exact", "tags", "length"]),
        ("", ["3 x 4 pieces", "as-is"], ["exact", "tags", "length"]),
        ("Reply in JSON.", ['{"a": 1}', '{"a": 2}'], ["same_json", "json_object", "length"]),
        ("", [{"a": 1}, {"a": 2}], ["same_json", "json_object", "length"]),
        ("", [], ["tags", "length", "repetition"]),
        ("Reply in JSON.", [], ["json_object", "length", "repetition"]),
    ],
)
def test_proposals_fit_the_kind_of_answer(system: str, rights: list[Any], templates: list[str]) -> None:
    rows = [{"prompt": "?", "answer": right} for right in rights]
    columns = COLUMNS if rights else ("prompt",)
    found = proposals(DatasetAnswer(system=system), columns, rows)
    assert [each.template for each in found] == templates
    assert 3 <= len(found) <= 5
    assert all(each.why for each in found)
    assert all(map(is_binary_exact, (each.weight for each in found)))
    assert sorted((each.weight for each in found), reverse=True) == [each.weight for each in found]
    read = read_code(render_rewards(found))
    assert not isinstance(read, Problem)
    assert check_signatures(read, columns) == []


def test_a_proposed_format_is_the_one_the_system_prompt_asks_for() -> None:
    answer = DatasetAnswer(system="Think in <think></think>, then reply in <answer></answer>.")
    correct, shape, _ = proposals(answer, COLUMNS, [{"answer": "4"}])
    assert shape.parameters == {"tags": ("think", "answer")}
    assert not any("does not ask" in warning for warning in shape.warnings)
    names = functions(correct, shape)
    assert names["format"](["<think>2+2</think><answer>4</answer>"]) == [1.0]
    assert names["correct"](["<think>2+2</think><answer>4</answer>"], ["4"]) == [1.0]


def test_format_is_warned_of_being_trained_alone_and_unasked() -> None:
    (shape,) = [each for each in proposals(DatasetAnswer(), COLUMNS, [{"answer": "x"}]) if each.name == "format"]
    assert any("Never alone" in warning for warning in shape.warnings)
    assert any("does not ask for these tags" in warning for warning in shape.warnings)


def test_the_keys_of_a_json_format_are_those_that_all_answers_share() -> None:
    def keys(*rights: object) -> object:
        rows = [{"answer": json.dumps(right)} for right in rights]
        return proposals(DatasetAnswer(), COLUMNS, rows)[1].parameters

    assert keys({"a": 1, "b": 2}, {"b": 1, "a": 2}) == {"keys": ("a", "b")}
    assert keys({"a": 1}, {"b": 1}) == {}


@pytest.mark.parametrize("tests", ["assert add(1, 2) == 3", ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]])
def test_code_is_proposed_to_be_tested_where_a_column_holds_tests(tests: Any) -> None:
    rows = [{"prompt": "Add.", "answer": "def add(a, b): return a + b", "test_list": tests}]
    found = proposals(DatasetAnswer(), ("prompt", "answer", "test_list"), rows)
    assert [each.template for each in found] == ["code_tests", "length", "repetition"]
    completion = "```python\ndef add(a, b):\n    return a + b\n```"
    assert functions(*found)["correct"]([completion], test_list=[tests]) == [1.0]
    assert any("container" in warning for warning in found[0].warnings)


def test_a_column_that_is_only_called_tests_makes_no_code_of_a_task() -> None:
    found = proposals(DatasetAnswer(), ("prompt", "answer", "tests"), [{"answer": "4", "tests": "blood pressure"}])
    assert found[0].template == "numeric"


def test_quotations_are_proposed_where_there_is_a_text_to_quote() -> None:
    found = proposals(DatasetAnswer(), ("prompt", "answer", "context"), [{"answer": "at dawn", "context": "It left."}])
    assert [each.template for each in found] == ["exact", "tags", "citation", "length"]
    assert found[2].parameters == {"source": "context"}


def test_what_goes_wrong_with_a_reward_is_said_with_it() -> None:
    (mathematics, *_) = proposals(DatasetAnswer(), COLUMNS, [{"answer": "\\frac{1}{2}"}])
    assert any("pip install math-verify" in warning for warning in mathematics.warnings)
    assert any("12·7" in warning for warning in mathematics.warnings)
    (choice, *_) = proposals(DatasetAnswer(), COLUMNS, [{"answer": "B"}])
    assert any("by chance" in warning for warning in choice.warnings)
    (shape, *_) = proposals(DatasetAnswer(), ("prompt",), [{"prompt": "?"}])
    assert any("nothing here pays for being right" in warning for warning in shape.warnings)
