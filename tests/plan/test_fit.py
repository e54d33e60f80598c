"""The fit check: which method suits which task, and when it says nothing."""

import dataclasses
import itertools

import pytest

from grpo_tui.draft import TaskAnswer
from grpo_tui.plan.fit import METHODS, QUESTIONS, RULES, WARNINGS, missing, verdict

FIELDS = {question.field: [choice.value for choice in question.choices] for question in QUESTIONS}
EVERY_ANSWER = [TaskAnswer(**dict(zip(FIELDS, values, strict=True))) for values in itertools.product(*FIELDS.values())]


def task(checkable: str, material: str, goal: str) -> TaskAnswer:
    return TaskAnswer(checkable=checkable, material=material, goal=goal)


@pytest.mark.parametrize(
    ("answers", "method"),
    [
        (("yes", "prompts", "skill"), "GRPO"),
        (("yes", "demonstrations", "skill"), "GRPO"),
        (("yes", "pairs", "skill"), "GRPO"),
        (("yes", "prompts", "format"), "GRPO"),
        (("yes", "demonstrations", "format"), "SFT"),
        (("yes", "prompts", "knowledge"), "SFT"),
        (("no", "demonstrations", "skill"), "SFT"),
        (("no", "pairs", "taste"), "DPO"),
        (("yes", "pairs", "taste"), "DPO"),
        (("no", "thumbs", "taste"), "KTO"),
        (("no", "prompts", "taste"), "DPO"),
        (("no", "prompts", "skill"), "SFT"),
        (("partly", "prompts", "skill"), "GRPO"),
        (("partly", "thumbs", "skill"), "KTO"),
        (("partly", "prompts", "taste"), "DPO"),
    ],
)
def test_the_method_fits_the_answers(answers: tuple[str, str, str], method: str) -> None:
    found = verdict(task(*answers))
    assert found.method == method
    assert all(found.reasons)


def test_every_possible_answer_has_a_method_with_a_reason() -> None:
    for answer in EVERY_ANSWER:
        found = verdict(answer)
        assert found.method in METHODS, answer
        assert found.reasons


def test_grpo_is_never_recommended_when_no_program_can_check() -> None:
    assert {verdict(answer).method for answer in EVERY_ANSWER if answer.checkable == "no"} == {"SFT", "DPO", "KTO"}


def test_every_rule_and_every_warning_applies_to_some_answer() -> None:
    given = {reason for answer in EVERY_ANSWER for reason in verdict(answer).reasons}
    assert given == {rule.reason for rule in RULES}
    said = {warning for answer in EVERY_ANSWER for warning in verdict(answer).warnings}
    assert said == {text for _, text in WARNINGS}


def test_there_is_no_verdict_while_an_answer_is_missing_and_it_says_which() -> None:
    found = verdict(TaskAnswer(checkable="yes", goal="skill"))
    assert found.method == ""
    assert found.reasons == ("Not answered yet: What data do you have?",)
    assert len(missing(TaskAnswer())) == len(QUESTIONS)


def test_questions_and_rules_speak_of_the_fields_and_values_of_the_draft() -> None:
    known = {field.name for field in dataclasses.fields(TaskAnswer)}
    assert set(FIELDS) <= known
    for when in [*(rule.when for rule in RULES), *(when for when, _ in WARNINGS)]:
        assert all(set(values) <= set(FIELDS[field]) for field, values in when.items())


@pytest.mark.parametrize(
    ("pass_rate", "method", "reason"),
    [
        (0.0, "SFT", "easier prompts"),
        (0.04, "SFT", "easier prompts"),
        (0.05, "GRPO", "5% right"),
        (0.5, "GRPO", "50% right"),
        (0.95, "GRPO", "95% right"),
        (0.96, "", "harder prompts"),
        (1.0, "", "harder prompts"),
    ],
)
def test_a_measured_pass_rate_decides_whether_there_is_signal(pass_rate: float, method: str, reason: str) -> None:
    found = verdict(task("yes", "prompts", "skill"), pass_rate)
    assert found.method == method
    assert reason in " ".join(found.reasons)


def test_a_pass_rate_turns_no_other_verdict_into_grpo() -> None:
    assert verdict(task("no", "pairs", "taste"), 0.5).method == "DPO"


def test_few_rows_and_no_gpu_are_warned_of_without_changing_the_method() -> None:
    found = verdict(task("yes", "prompts", "skill"), rows=99, gpus=False)
    assert found.method == "GRPO"
    assert any("99 prompts are few" in warning for warning in found.warnings)
    assert any("No GPU" in warning for warning in found.warnings)
    assert verdict(task("yes", "prompts", "skill"), rows=100).warnings == ()


def test_format_only_training_is_warned_of() -> None:
    assert any("format alone" in warning for warning in verdict(task("yes", "prompts", "format")).warnings)
