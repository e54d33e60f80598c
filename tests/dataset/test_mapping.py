"""Which columns are proposed, and why."""

from typing import Any

import pytest

from grpo_tui.dataset.mapping import RULES, choices, mapping_problems, propose, rule_problem
from grpo_tui.dataset.rows import Row, infer
from grpo_tui.draft import DatasetAnswer

GSM8K: list[Row] = [
    {"question": f"Natalia sold {n} clips ...", "answer": f"{n}/2 = <<{n}/2={n / 2}>>\n#### {n}"} for n in range(40)
]


def test_worked_answers_that_end_in_a_marker_are_recognised() -> None:
    proposal = propose(infer(GSM8K), GSM8K)
    answer = proposal.answer
    assert (answer.prompt, answer.answer) == ("question", "answer")
    assert (answer.extract, answer.extract_argument) == ("after_marker", "####")
    assert proposal.reasons["extract"] == "40 of 40 answers have ####"


def test_a_marker_in_too_few_rows_is_not_taken_for_a_rule() -> None:
    rows = [row if n % 5 else {**row, "answer": "no marker"} for n, row in enumerate(GSM8K)]
    assert propose(infer(rows), rows).answer.extract == "as_is"


@pytest.mark.parametrize(
    ("row", "prompt", "answer", "extract"),
    [
        ({"problem": "p", "solution": "so \\boxed{4}", "level": "Level 1"}, "problem", "solution", "boxed"),
        ({"prompt": "p", "answer": 4}, "prompt", "answer", "as_is"),
        ({"Question": "p", "Final_Answer": "4", "answer": "long"}, "Question", "Final_Answer", "as_is"),
        ({"messages": [{"role": "user", "content": "x"}], "target": "<answer>4</answer>"}, "messages", "target", "tag"),
        ({"instruction": "do", "input": "", "output": "done"}, "instruction", "output", "as_is"),
        ({"data_source": "x", "prompt": [{"role": "user", "content": "x"}], "reward_model": {"ground_truth": "4"}},
         "prompt", "reward_model", "json_path"),
        ({"id": 3, "stuff": "a long text in a column of no known name"}, "stuff", "", "as_is"),
        ({"n": 1}, "", "", "as_is"),
    ],
)  # fmt: skip
def test_columns_are_proposed_by_name_and_content(row: Row, prompt: str, answer: str, extract: str) -> None:
    proposal = propose(infer([row]), [row])
    assert (proposal.answer.prompt, proposal.answer.answer, proposal.answer.extract) == (prompt, answer, extract)
    assert ("prompt" in proposal.reasons) is bool(prompt)
    assert ("answer" in proposal.reasons) is bool(answer)


@pytest.mark.parametrize(
    ("row", "prompt", "answer", "extract"),
    [
        ({"conversations": [{"from": "human", "value": "x"}], "answer": "4"}, "conversations", "answer", "as_is"),
        ({"problem": "p", "extra_info": {"index": 3, "answer": "so\n#### 4"}}, "problem", "extra_info.answer",
         "after_marker"),
        ({"problem": "p", "meta": {"deep": {"target": "4"}, "solution": "5"}}, "problem", "meta.deep.target", "as_is"),
    ],
)  # fmt: skip
def test_an_answer_inside_a_struct_is_proposed_by_its_path(row: Row, prompt: str, answer: str, extract: str) -> None:
    proposal = propose(infer([row]), [row])
    assert (proposal.answer.prompt, proposal.answer.answer, proposal.answer.extract) == (prompt, answer, extract)
    assert mapping_problems(proposal.answer, infer([row])) == []


def test_names_to_choose_from_lead_into_structs() -> None:
    row = {"q": "x", "info": {"answer": 1, "more": {"level": 2}}, "tags": ["a"]}
    assert choices(infer([row]), [row]) == ("q", "info", "info.answer", "info.more", "info.more.level", "tags")
    problem = mapping_problems(DatasetAnswer(prompt="q.text"), infer([row]))[0]
    assert "There is no column 'q.text'." in problem.what


def test_a_chosen_column_is_kept_and_the_rule_found_for_it() -> None:
    rows = [{**row, "target": f"\\boxed{{{n}}}"} for n, row in enumerate(GSM8K)]
    proposal = propose(infer(rows), rows, DatasetAnswer(system="Be brief."), answer="target")
    assert (proposal.answer.answer, proposal.answer.extract, proposal.answer.system) == ("target", "boxed", "Be brief.")
    assert proposal.reasons["answer"] == "set by you"
    assert propose(infer(rows), rows, answer="").answer.answer == ""


@pytest.mark.parametrize(
    ("rule", "argument", "word"),
    [
        ("tag", "", "needs the tag's name"),
        ("tag", "<answer>", "without the brackets"),
        ("regex", "(", "no regular expression"),
        ("marker", "", "no rule 'marker'"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(rule: str, argument: str, word: str) -> None:
    problem = rule_problem(DatasetAnswer(extract=rule, extract_argument=argument))
    assert problem is not None
    assert word in problem.what


def test_columns_that_are_not_there_are_named_with_those_that_are() -> None:
    problems = mapping_problems(DatasetAnswer(prompt="prompt", answer="solution"), infer(GSM8K))
    assert [problem.where for problem in problems] == ["prompt column", "answer column"]
    assert all("question, answer" in problem.remedy for problem in problems)
    assert mapping_problems(propose(infer(GSM8K), GSM8K).answer, infer(GSM8K)) == []


def test_every_rule_says_what_it_needs() -> None:
    needs: dict[str, Any] = {name: bool(rule.needs) for name, rule in RULES.items()}
    assert needs == {
        "as_is": False, "after_marker": True, "tag": True, "boxed": False, "regex": True, "json_path": True,
        "letter": False,
    }  # fmt: skip


OPTIONS = ["3", "4", "5", "22"]


@pytest.mark.parametrize(
    ("row", "prompt", "extract"),
    [
        ({"question": "2+2?", "choices": OPTIONS, "answer": 1}, "{question}\n\n{choices:letters}", "letter"),
        ({"question": "2+2?", "choices": OPTIONS, "answer": "B"}, "{question}\n\n{choices:letters}", "as_is"),
        ({"question": "2+2?", "choices": {"text": OPTIONS, "label": list("ABCD")}, "answerKey": "B"},
         "{question}\n\n{choices}", "as_is"),
        ({"instruction": "Translate.", "input": "chat", "output": "cat"}, "{instruction}\n\n{input}", "as_is"),
        ({"question": "2+2?", "choices": 4, "answer": 1}, "question", "as_is"),
        ({"messages": [{"role": "user", "content": "x"}], "choices": OPTIONS, "answer": 1}, "messages", "as_is"),
    ],
)  # fmt: skip
def test_a_question_is_joined_with_what_belongs_to_it(row: Row, prompt: str, extract: str) -> None:
    proposal = propose(infer([row]), [row])
    assert (proposal.answer.prompt, proposal.answer.extract) == (prompt, extract)
    if proposal.answer.joins:
        assert "stand" in proposal.reasons["prompt"]
        assert mapping_problems(proposal.answer, infer([row])) == []
    by_hand = propose(infer([row]), [row], prompt=prompt.strip("{").partition("}")[0])
    assert not by_hand.answer.joins, "a column that was chosen is not exchanged"


def test_a_column_in_braces_that_is_not_there_is_named() -> None:
    row = {"question": "2+2?", "a": "4"}
    problems = mapping_problems(DatasetAnswer(prompt="{question} {gone} {too.far}"), infer([row]))
    assert [problem.what for problem in problems] == ["There is no column 'gone'.", "There is no column 'too.far'."]
