"""The form in which a task wants its answers, found in its system prompt or its rewards."""

import pytest

from grpo_tui.rewards.layouts import find_tags, layouts

CODE = """
PATTERN = r"^<think>.*?</think>\\s*<answer>(?P<given>.*?)</answer>$"
"""


@pytest.mark.parametrize(
    ("texts", "tags"),
    [
        (("Use <reasoning></reasoning> and <answer></answer>.", CODE), ("reasoning", "answer")),
        (("Be brief.", CODE), ("think", "answer")),
        (("Write <b> for bold.", ""), ()),
        (("<answer></answer> then <why></why>, <answer></answer>", ""), ("answer", "why")),
    ],
)
def test_tags_are_those_that_are_opened_and_closed_in_the_first_text_with_any(
    texts: tuple[str, ...], tags: tuple[str, ...]
) -> None:
    assert find_tags(*texts) == tags


def test_tags_are_tried_in_one_line_line_by_line_and_with_lines_of_their_own() -> None:
    first, second, third, *_ = layouts("<reasoning></reasoning><answer></answer>", "")
    assert first.filled("4", "2+2") == "<reasoning>2+2</reasoning><answer>4</answer>"
    assert second.filled("4", "2+2") == "<reasoning>2+2</reasoning>\n<answer>4</answer>"
    assert third.filled("4", "2+2") == "<reasoning>\n2+2\n</reasoning>\n<answer>\n4\n</answer>\n"
    assert first.answer_tag == "answer"


def test_an_answer_that_comes_first_and_further_tags_are_filled_too() -> None:
    (first, *_) = layouts("<answer></answer><why></why><sure></sure>", "")
    assert first.filled("4", "2+2") == "<answer>4</answer><why>It follows.</why><sure>It follows.</sure>"


@pytest.mark.parametrize(
    ("system", "filled"),
    [
        ("Put it in \\boxed{}.", "2+2\n\\boxed{4}"),
        ("End with #### and the number.", "2+2\n#### 4"),
        ("Reply in JSON.", '{"reasoning": "2+2", "answer": "4"}'),
        ("", "2+2 The answer is 4."),
    ],
)
def test_other_forms_are_tried_first_where_the_system_prompt_names_them(system: str, filled: str) -> None:
    assert layouts(system, "")[0].filled("4", "2+2") == filled


def test_the_bare_answer_is_always_among_them() -> None:
    assert "4" in [layout.filled("4") for layout in layouts("Be brief.", "")]
