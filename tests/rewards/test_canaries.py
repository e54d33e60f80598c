"""Functions that only watch: which are proposed, and that they show what paid rewards do not."""

import pytest

from grpo_tui.draft import DatasetAnswer
from grpo_tui.rewards.canaries import canaries
from grpo_tui.rewards.catalogue import render_rewards
from grpo_tui.rewards.source import check_signatures, read_code
from tests.rewards.catalogued import functions

ENGLISH = "How many apples does Tom have when he had {} of them and bought two more at the shop?"
COLUMNS = ("prompt", "answer")


def rows(question: str, *rights: str) -> list[dict[str, object]]:
    return [
        {"prompt": [{"role": "user", "content": question.format(n)}], "answer": right} for n, right in enumerate(rights)
    ]


@pytest.mark.parametrize(
    ("question", "rights", "names"),
    [
        (ENGLISH, ("2", "3"), ["word_for_word", "no_repetition", "one_language"]),
        (ENGLISH, ("Paris", "Rome"), ["no_repetition", "one_language"]),
        ("Сколько яблок у Тома, если было {}?", ("2", "3"), ["word_for_word", "no_repetition", "one_language"]),
        ("{} + 2 =", ("2", "3"), ["word_for_word", "no_repetition"]),
        ("Combien de pommes Tom a-t-il achetées, s'il en avait {}?", ("2", "3"), ["word_for_word", "no_repetition"]),
        (ENGLISH, (), ["one_language"]),
    ],
)  # fmt: skip
def test_those_that_tell_something_on_these_data_are_proposed(
    question: str, rights: tuple[str, ...], names: list[str]
) -> None:
    data = rows(question, *rights) or [{"prompt": question}] * 3
    columns = COLUMNS if rights else ("prompt",)
    found = canaries(DatasetAnswer(), columns, data)
    assert [each.name for each in found] == names
    assert {each.weight for each in found} == {0.0}
    assert all(each.why for each in found)
    read = read_code(render_rewards(found))
    assert isinstance(read, tuple | list)
    assert check_signatures(read, columns) == []


def test_what_stands_in_the_file_already_is_not_proposed_again() -> None:
    found = canaries(DatasetAnswer(), COLUMNS, rows(ENGLISH, "2"), {"word_for_word", "one_language"})
    assert [each.name for each in found] == ["no_repetition"]


def test_an_answer_dressed_up_for_the_paid_reader_is_seen_by_the_one_that_watches() -> None:
    data = rows(ENGLISH, "2", "3")
    from grpo_tui.rewards.catalogue import proposals

    paid = proposals(DatasetAnswer(), COLUMNS, data)[0]
    watching = canaries(DatasetAnswer(), COLUMNS, data)[0]
    both = functions(paid, watching)
    dressed = ["<answer>about 2, I would say with all due care</answer>"]
    assert both["correct"](dressed, ["2"]) == [1.0]
    assert both["word_for_word"](dressed, ["2"]) == [0.0]
    assert both["word_for_word"](["<answer>2</answer>"], ["2"]) == [1.0]
