"""Regular expressions that hang or can be gamed are named before anything runs."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tui.problem import Problem
from grpo_tui.rewards.patterns import check_pattern, check_patterns
from tests.rewards.catalogued import functions, paid, proposal

BLOCKS = r"^<think>.*?</think>\s*<answer>.*?</answer>$"


def test_rw_10_the_pattern_that_takes_several_blocks_is_named_and_counting_offered() -> None:
    (problem,) = check_pattern(BLOCKS, re.DOTALL)
    assert "<think> or <answer> stands twice" in problem.what
    assert "exactly once" in problem.remedy


def test_rw_10_the_offered_reward_counts() -> None:
    choice = proposal("tags", tags=("think", "answer"))
    texts = {
        "<think>a</think><answer>3</answer>": 1.0,
        "<think>a</think><think>b</think><answer>3</answer>": 0.0,
        "<think>a</think><answer>1</answer><answer>3</answer>": 0.0,
        "<think>a</think><answer>3": 0.0,
        "I will use <answer> tags. <answer>3</answer>": 0.0,
    }
    assert {text: paid(choice, text) for text in texts} == texts
    matched = [re.match(BLOCKS, text, re.DOTALL) is not None for text in texts]
    assert matched == [True, True, True, False, False]


def test_rw_10_two_answers_are_none_for_the_reward_that_reads_them() -> None:
    function = functions(proposal("numeric"))["paid"]
    assert function(completions=["<think>a</think><answer>1</answer><answer>3</answer>"], answer=["3"]) == [0.0]


def test_rw_08_a_pattern_with_nested_repetition_is_named_with_its_line() -> None:
    code = (
        "import re\n\ndef fmt(completions, **k):\n    p = re.compile(r'^<think>(\\s*\\S+\\s*)+</think>$')\n    return p"
    )
    (problem,) = check_patterns(code)
    assert problem.where == "rewards.py:4"
    assert "for ever" in problem.what
    assert "DOTALL" in problem.remedy


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+$", r"(a*)*b", r"(.|\s)*x", r"(\w+\s?)+$", r"((ab*)*c*)*d", r"(?:x|(?:[^<]+)+)</a>", r"(.+,)+$",
     r"<a>(\s*\S+\s*)+</a>", r"(?=(a+)+$)a"],
)  # fmt: skip
def test_what_can_be_matched_in_two_ways_again_and_again_is_named(pattern: str) -> None:
    assert [problem for problem in check_pattern(pattern) if "for ever" in problem.what]


@pytest.mark.parametrize(
    "pattern",
    [r"\d+", r"(\d+,)+\d+", r"([a-z]+-)*[a-z]+", r"(?:\s*\d+;)+", r"<a>.*?</a>", r"(a|b)*c", r"[A-Z]{2}-\d{4}",
     r"(\d{1,3}){1,4}", r"(\d|\w)+y", r"(?:\"[^\"]*\")+", r"", r"(Step \d+: [^\n]*\n)+"],
)  # fmt: skip
def test_what_ends_in_time_is_left_alone(pattern: str) -> None:
    assert check_pattern(pattern) == []
    re.match(pattern, 'a1 ,-;<a>"' * 200 + "!")


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", r"(?P<1>a)", "a{2,1}", "\\"])
def test_what_is_no_expression_is_said_so(pattern: str) -> None:
    (problem,) = check_pattern(pattern)
    assert "is no regular expression" in problem.what


@pytest.mark.parametrize(
    "pattern",
    [r"^<think>(?:(?!<think>).)*?</think>$", r"<a>[^<]*</a>", r"^(?!.*<a>.*<a>)<a>.*?</a>$"],
)
def test_a_pattern_that_takes_each_tag_once_is_left_alone(pattern: str) -> None:
    assert [problem for problem in check_pattern(pattern) if "twice" in problem.what] == []


def test_expressions_are_found_wherever_the_file_gives_them_to_re() -> None:
    code = """
import re
SHAPE = r"^<a>.*?</a>$"
def f(completions, **kwargs):
    one = re.match(SHAPE, completions[0], re.DOTALL | re.IGNORECASE)
    two = re.findall("(", completions[0])
    three = text.split("(")
    four = re.sub(made, "", completions[0])
"""
    problems = check_patterns(code, "mine.py")
    assert [problem.where for problem in problems] == ["mine.py:5", "mine.py:6"]
    assert "twice" in problems[0].what


def test_a_file_that_is_no_python_is_somebody_elses_problem() -> None:
    assert check_patterns("def (") == []


def test_none_of_the_catalogues_own_expressions_is_at_fault() -> None:
    from grpo_tui.rewards.kinds import FOLDER

    faults = [problem for path in FOLDER.glob("*.py") for problem in check_patterns(path.read_text("utf-8"), path.name)]
    assert faults == []


@settings(max_examples=50, deadline=None)
@given(st.text("ab<>/()[]{}|*+?.\\^$-,1:=!PsdwSDWB", max_size=14))
def test_whatever_is_written_is_looked_at_and_nothing_raises(pattern: str) -> None:
    assert all(isinstance(problem, Problem) for problem in check_pattern(pattern))
