"""Rewards that compare with an answer are not asked about rows that have none."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from grpo_tui.answered import may_be_missing, only_answered
from grpo_tui.rewards.loading import is_async

BATCH: dict[str, Any] = {
    "prompts": ["p", "q", "r", "s"],
    "completions": ["1", "2", "3", "4"],
    "answer": ["1", None, "3", None],
    "level": [1, 2, 3, 4],
}


def exact(completions: list[str], answer: list[str], level: list[int], **kwargs: Any) -> list[float]:
    assert len(completions) == len(answer) == len(level) == len(kwargs["prompts"])
    return [float(text == right.strip()) * each for text, right, each in zip(completions, answer, level, strict=True)]


async def awaited(completions: list[str], answer: list[str], level: list[int], **kwargs: Any) -> list[float]:
    return exact(completions, answer, level, **kwargs)


class Judge:
    async def __call__(self, completions: list[str], answer: list[str], level: list[int], **kwargs: Any) -> list[float]:
        return exact(completions, answer, level, **kwargs)


def generated(**given: Any) -> Any:
    return (value for value in exact(**given))


def called(function: Callable[..., Any], **changed: Any) -> Any:
    made = only_answered(function)(**{**BATCH, **changed})
    return asyncio.run(made) if is_async(function) else made


@pytest.mark.parametrize("function", [exact, awaited, Judge(), partial(exact, extra=1), partial(Judge(), extra=1)])
def test_rows_without_an_answer_get_none_and_the_others_what_the_function_gives(function: Callable[..., Any]) -> None:
    assert called(function) == [1.0, None, 3.0, None]
    assert is_async(only_answered(function)) is is_async(function)


def test_rows_that_all_have_an_answer_are_handed_over_as_they_came() -> None:
    seen: list[Any] = []

    def look(completions: list[str], answer: list[str], **kwargs: Any) -> Any:
        seen.append((completions, answer, kwargs))
        return (1.0 for _ in completions)

    whole = {**BATCH, "answer": ["1", "2", "3", "4"]}
    assert list(only_answered(look)(**whole)) == [1.0] * 4
    assert seen[0][0] is BATCH["completions"]
    assert list(called(look, answer=[None] * 4)) == [None] * 4
    assert len(seen) == 1, "with no row to ask about it is not called"


def test_what_a_reward_logs_for_each_completion_stays_beside_its_own() -> None:
    logged: dict[str, list[Any]] = {}

    def tells(completions: list[str], answer: list[str], log_extra: Callable[..., None], **kwargs: Any) -> list[float]:
        log_extra("read", completions)
        return [1.0] * len(completions)

    assert called(tells, log_extra=logged.__setitem__) == [1.0, None, 1.0, None]
    assert logged == {"read": ["1", None, "3", None]}


@pytest.mark.parametrize("wrong", [None, 1.0, {0: 1.0}, [1.0] * 3])
def test_what_is_no_list_of_rewards_is_left_to_the_trainer_to_refuse(wrong: Any) -> None:
    def returns(completions: list[str], answer: list[str], **kwargs: Any) -> Any:
        return wrong

    assert called(returns) == wrong


def test_a_reward_that_does_without_an_answer_is_itself() -> None:
    def judge(completions: list[str], answer: list[str] | None = None, **kwargs: Any) -> list[float]:
        return [1.0] * len(completions)

    for function in (generated, len, judge, partial(exact, answer=["1"] * 4)):
        assert only_answered(function) is function


def test_rows_lack_an_answer_by_choice_or_where_no_column_was_named() -> None:
    assert not may_be_missing("answer", {"missing_answer": "leave_out", "leaked": "keep"})
    assert may_be_missing("answer", {"missing_answer": "keep"})
    assert may_be_missing("answer", {"unparsable": "keep"})
    assert may_be_missing("", {})
