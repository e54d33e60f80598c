"""The catalogue: what each template must pay and must not, on the very code that is written into rewards.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import is_binary_exact
from grpo_tui.rewards.catalogue import TEMPLATES, Proposal, proposals, render_rewards
from grpo_tui.rewards.source import check_signatures, read_code

COLUMNS = ("prompt", "answer")


def functions(*choices: Proposal) -> dict[str, Any]:
    """The rendered file, run."""
    names: dict[str, Any] = {}
    exec(compile(render_rewards(choices), "rewards.py", "exec"), names)
    return names


def proposal(template: str, **parameters: Any) -> Proposal:
    return Proposal(template=template, name="paid", parameters=parameters, weight=1.0, why="")


def paid(choice: Proposal, text: str, right: Any = None) -> float | None:
    """The reward of one completion, which chat and plain prompts must agree on."""
    function = functions(choice)["paid"]
    shapes = [text, [{"role": "assistant", "content": text}], [{"role": "assistant", "content": [{"text": text}]}]]
    ids = [text.split()] * len(shapes)
    rewards = function(
        prompts=[""] * 3, completions=shapes, completion_ids=ids, answer=[right] * 3, trainer_state=None, other=[1] * 3
    )
    assert len(set(rewards)) == 1, rewards
    reward: float | None = rewards[0]
    return reward


SCORES: dict[str, tuple[Proposal, Any, list[str], list[str]]] = {
    "numeric": (
        proposal("numeric"),
        "1234",
        ["1,234", "1234", "1234.0", " 1.234e3 ", "The answer is 1234.", "\\boxed{1234}", "<answer>1,234</answer>",
         "<think>5 or 6?</think>1234 apples", "<reasoning>617*2=1234</reasoning><answer>1234</answer>", "$1,234",
         "१२३४", "１２３４", "2468/2", "So 600+634. #### 1234", "Answer: 1234"],
        ["", "1233", "1 2 3 1234", "1234 or 1235", "<think>1234</think>", "<think>1234", "nan", "inf", "1e999", "",
         "<reasoning>1234</reasoning><answer>many</answer>", "<answer>1234</answer><answer>1235</answer>",
         "\\boxed{1234} \\boxed{5}", "<answer>1234", "-1234", "1234/0", "12,34", "1234 1234", "e5", "1" * 5000,
         "0 " * 1000 + "1234", "answer: 5 answer: 1234"],
    ),
    "negative": (proposal("numeric"), -5, ["−5", "-5", "The answer is -5"], ["5", "4-9", "0-5"]),
    "percentage": (proposal("numeric"), "50%", ["50%", "50 %", "0.5", "50"], ["5%", "0.005", "500%"]),
    "percent as unit": (proposal("numeric"), "50", ["50%", "50"], ["0.5", "0.5%"]),
    "tolerance": (proposal("numeric", absolute=0.1), "3.14159", ["3.2", "3.1416"], ["3.3", "3"]),
    "large integers": (proposal("numeric"), 1000000, ["1,000,000"], ["1000001"]),
    "exact": (
        proposal("exact"),
        "Blue whale",
        ["blue whale", " Blue  Whale. ", "BLUE WHALE!", "<answer>Blue whale</answer>", "The answer is blue whale.",
         "**Blue whale**", "<think>Not the shark.</think>Blue whale", "\uff22lue whale"],
        ["", "Blue whale, shark, dolphin", "blue whale or shark", "the blue", "Which is it? Options: blue whale, shark",
         "<think>Blue whale</think>", "<answer>Blue whale</answer><answer>shark</answer>", "not blue whale"],
    ),
    "exact sign": (proposal("exact"), "-5", ["-5", "-5."], ["5", "- 5 -5"]),
    "exact bracket": (proposal("exact"), "a", ["(a).", "'A'", "a"], ["b", "aa"]),
    "choice": (
        proposal("choice"),
        "B",
        ["B", "(B)", "B.", "b)", "Answer: B", "The answer is B.", "<answer>B</answer>", "**B**",
         "<think>A is wrong</think>B"],
        ["", "A, B, C, D", "A good question", "B or C", "A", "Paris", "<answer>B</answer><answer>C</answer>", "BB",
         "Be sure", "<think>B</think>"],
    ),
    "tags": (
        proposal("tags"),
        None,
        ["<reasoning>a</reasoning><answer>3</answer>", "<reasoning>\na\n</reasoning>\n\n<answer>\n3\n</answer>\n"],
        ["", "<answer>3</answer><reasoning>a</reasoning>", "<reasoning></reasoning><answer></answer>",
         "<reasoning> </reasoning><answer>3</answer>", "<reasoning>a</reasoning><answer>3</answer>" * 2,
         "Sure! <reasoning>a</reasoning><answer>3</answer>", "<reasoning>a</reasoning><answer>3</answer> Done.",
         "```\n<reasoning>a</reasoning><answer>3</answer>\n```", "<reasoning>a<answer>3</answer></reasoning>",
         "<reasoning>a</reasoning><answer>3", "<reasoning>a</reasoning>" * 50 + "<answer>3</answer>",
         "</reasoning>a<reasoning></answer>3<answer>", "<Reasoning>a</Reasoning><answer>3</answer>",
         "<reasoning>a</reasoning><answer>3</answer>" + "x" * 2000 + "</answer>",
         "x" * 2000 + "<reasoning></reasoning>"],
    ),
    "RW-10": (
        proposal("tags", tags=("think", "answer")),
        None,
        ["<think>a</think><answer>3</answer>"],
        ["<think>a</think><think>b</think><answer>3</answer>", "<think>a</think><answer>1</answer><answer>3</answer>",
         "<think>a</think><answer>3", "I will use <answer> tags. <answer>3</answer>"],
    ),
    "length": (
        proposal("length", low=20, high=40, fade=10),
        None,
        [" ".join(map(str, range(length))) for length in (20, 30, 40)],
        ["", "word", " ".join(map(str, range(100))), "la " * 30, "this is filler " * 10],
    ),
    "length only with an answer": (
        proposal("length"),
        None,
        ["<answer>3</answer>"],
        ["<think>on and on", "<answer>1</answer><answer>2</answer>"],
    ),
    "json": (
        proposal("json", keys=("name", "age")),
        None,
        ['{"name": "Ada", "age": 36}', '{ "age":36,\n "name":"Ada" }\n', '{"name": "Ada", "age": 0}'],
        ["", "{}", '{"name": "Ada", "age": 36} Done.', '{"name": "Ada", "age": 36}{"name": "Ada", "age": 36}',
         '{"name": "", "age": ""}', '{"name": " ", "age": 1}', '{"name": "Ada"}', '{"name": "Ada", "age": 36, "x": 1}',
         '{"name": "Ada", "name": "Bob", "age": 36}', '{"name": "Ada", "age": NaN}', '["name", "age"]', "{" * 100_000,
         "[" * 90_000, '```json\n{"name": "Ada", "age": 36}\n```', '{"name": null, "age": []}', "{'name': 'Ada'}"],
    ),
    "json without keys": (proposal("json"), None, ['{"a": [1]}'], ["{}", "[1]", "3", '"text"', '{"a": {}}']),
    "same json": (
        proposal("same_json"),
        '{"a": 1, "b": [true]}',
        ['{"b": [true], "a": 1}', '<answer>{"a":1,"b":[true]}</answer>'],
        ["", "{}", '{"a": 1, "b": [1]}', '{"a": 1}', "a 1 b true"],
    ),
    "same json of a struct": (proposal("same_json"), {"a": 1}, ['{"a": 1}'], ['{"a": 2}']),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCORES)
def test_a_template_pays_what_it_must_and_nothing_else(kind: str) -> None:
    choice, right, high, low = SCORES[kind]
    assert {text: paid(choice, text, right) for text in high} == dict.fromkeys(high, 1.0)
    assert {text[:60] for text in low if paid(choice, text, right) != 0.0} == set()


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_stays_in_its_range_and_never_raises(template: str) -> None:
    nasty = ["", " \n\t", "\0", "🦆" * 100, "<answer>" * 5000, "\\boxed{" * 5000, "<", "answer is " * 5000,
             "9" * 100_000,
             "a" * 100_000, "1/" * 50_000, "</answer><answer>", "\ud800", "{}" * 50_000]  # fmt: skip
    for text in nasty:
        for right in ("B", "3", 3, 2.5, None, "", {"a": 1}, "nan"):
            reward = paid(proposal(template), text, right)
            assert reward is None or 0.0 <= reward <= 1.0


@pytest.mark.parametrize(
    ("template", "right"),
    [("exact", None), ("exact", " "), ("numeric", "blue"), ("choice", "Paris"), ("same_json", "x")],
)
def test_a_row_whose_right_answer_is_of_another_kind_is_skipped_not_punished(template: str, right: Any) -> None:
    assert paid(proposal(template), "anything", right) is None


def test_an_empty_chat_completion_earns_nothing() -> None:
    names = functions(proposal("exact"))
    for shape in ([], [{"role": "assistant", "content": None}], [{"role": "assistant", "tool_calls": []}]):
        assert names["paid"]([shape], ["x"]) == [0.0]


def test_length_falls_off_gently_outside_its_band() -> None:
    choice = proposal("length", low=4, high=8, fade=4, gated=False)
    rewards = [paid(choice, " ".join(map(str, range(length)))) for length in (2, 4, 8, 10, 12)]
    assert rewards == [0.5, 1.0, 1.0, 0.5, 0.0]


def test_the_rendered_file_reads_well_and_needs_nothing_of_ours(tmp_path: Path) -> None:
    choices = [Proposal(template=key, name=f"my_{key}", weight=1.0, why="") for key in TEMPLATES]
    text = render_rewards(choices)
    assert "grpo_tui" not in text
    assert "$" not in text.replace('"$', "")
    assert max(map(len, text.splitlines())) <= 120
    read = read_code(text)
    assert not isinstance(read, Problem)
    assert [each.name for each in read] == [choice.name for choice in choices]
    assert all(each.doc for each in read)
    assert check_signatures(read, COLUMNS) == []


def test_only_the_helpers_that_are_called_are_written() -> None:
    text = render_rewards([proposal("tags")])
    assert "def text_of" in text
    assert "answer_in" not in text
    assert text.count("import ") == 1
    assert render_rewards([proposal("numeric")]).count("def answer_in") == 1


def test_parameters_stand_in_the_file_where_they_can_be_changed() -> None:
    text = render_rewards([proposal("numeric", answer="solution", absolute=0.5), Proposal(
        template="tags", name="shape", parameters={"tags": ("think",)}, weight=0.25, why="")])  # fmt: skip
    assert "def paid(completions, solution, **kwargs)" in text
    assert "PAID_ABSOLUTE = 0.5" in text
    assert 'SHAPE_TAGS = ("think",)' in text


@pytest.mark.parametrize(
    "choices",
    [
        [proposal("tags"), proposal("json")],
        [proposal("tags", tag="x")],
        [proposal("exact", answer="my answer")],
        [Proposal(template="exact", name="class", weight=1.0, why="")],
        [Proposal(template="exact", name="text_of", weight=1.0, why="")],
        [Proposal(template="exact", name="import os; f", weight=1.0, why="")],
    ],
)
def test_what_would_not_be_sound_code_is_refused(choices: list[Proposal]) -> None:
    with pytest.raises(ValueError, match=r"one name|unknown parameters"):
        render_rewards(choices)


@pytest.mark.parametrize(
    ("system", "rights", "templates"),
    [
        ("", ["1,234", "-5", "3.5", "12 apples", 7], ["numeric", "tags", "length"]),
        ("", ["A", "(b)", "C"], ["choice", "tags", "length"]),
        ("", ["Paris", "42"], ["exact", "tags", "length"]),
        ("Reply in JSON.", ['{"a": 1}', '{"a": 2}'], ["same_json", "json", "length"]),
        ("", [{"a": 1}, {"a": 2}], ["same_json", "json", "length"]),
        ("", [], ["tags", "length"]),
    ],
)
def test_proposals_fit_the_kind_of_answer(system: str, rights: list[Any], templates: list[str]) -> None:
    rows = [{"prompt": "?", "answer": right} for right in rights]
    columns = COLUMNS if rights else ("prompt",)
    found = proposals(DatasetAnswer(system=system), columns, rows)
    assert [each.template for each in found] == templates
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
