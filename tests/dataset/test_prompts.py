"""The code that turns a row into a prompt."""

import ast
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_tui.dataset.faults import KINDS
from grpo_tui.dataset.mapping import RULES
from grpo_tui.dataset.prompts import (
    RESERVED,
    functions,
    leaks_function,
    prepare_code,
    prepare_function,
    split_code,
)
from grpo_tui.dataset.rows import Row
from grpo_tui.draft import DatasetAnswer, Example

USER = {"role": "user", "content": "2+2?"}


def prepared(row: Row, **answer: Any) -> Row | None:
    return prepare_function(DatasetAnswer(**answer))(row)


def held_out_function(answer: DatasetAnswer) -> Callable[[Row], bool]:
    return functions(answer).get("is_held_out", lambda row: False)


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
        "is_broken", "as_text", "value_of", "extract", "prompt_of", "prepare", "prepare_rows",
    }  # fmt: skip
    code.encode()  # it can be written to a file
    if rule in ("as_is", "json_path"):
        row = prepare_function(answer)({nasty: "x", nasty + "2": '{"k": 1}'})
        if rule == "as_is":
            assert (row and row["prompt"][0]["content"]) == (None if nasty == "\ud800" else nasty)


def test_the_code_is_what_runs_in_the_preview() -> None:
    answer = DatasetAnswer(prompt="q", answer="a", extract="tag", extract_argument="answer", system="S")
    namespace: dict[str, Any] = {}
    exec(prepare_code(answer), namespace)
    row = {"q": "x", "a": "<answer>1</answer>"}
    assert namespace["prepare"](row) == prepare_function(answer)(row)


SHOTS = (Example(question="1+1?", answer="2"), Example(question='"A"\nor B?', answer="A"))
SHOWN = [
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": '"A"\nor B?'},
    {"role": "assistant", "content": "A"},
]


def test_worked_examples_stand_as_turns_between_the_system_prompt_and_the_prompt() -> None:
    row = prepared({"q": "2+2?"}, prompt="q", system="Add.", examples=SHOTS)
    assert row is not None
    assert row["prompt"] == [{"role": "system", "content": "Add."}, *SHOWN, USER]
    row = prepared({"q": "2+2?"}, prompt="q", examples=SHOTS)
    assert row is not None
    assert row["prompt"] == [*SHOWN, USER]
    own = {"role": "system", "content": "the row's own"}
    row = prepared({"q": [own, USER]}, prompt="q", examples=SHOTS)
    assert row is not None
    assert row["prompt"] == [own, *SHOWN, USER]


def test_worked_examples_are_text_where_the_prompt_is_text() -> None:
    row = prepared({"q": "2+2?"}, prompt="q", system="Add.", examples=SHOTS, plain=True)
    assert row is not None
    assert row["prompt"] == 'Add.\n\n1+1?\n2\n\n"A"\nor B?\nA\n\n2+2?'


def test_conversations_of_sharegpt_become_chat_messages() -> None:
    said = [{"from": "system", "value": "S"}, {"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]
    row = prepared({"conversations": said}, prompt="conversations")
    assert row is not None
    assert row["prompt"] == [{"role": "system", "content": "S"}, USER]
    assert prepared({"conversations": said[2:]}, prompt="conversations") is None


def test_an_answer_inside_a_struct_is_named_by_its_path() -> None:
    source = {"prompt": [USER], "reward_model": {"style": "rule", "ground_truth": 4}, "extra": {"steps": ["a", "b"]}}
    for name, answer in (("reward_model.ground_truth", "4"), ("extra.steps.-1", "b")):
        row = prepared(source, prompt="prompt", answer=name)
        assert row is not None
        assert (row["answer"], row["reward_model"]) == (answer, source["reward_model"])
    for name in ("reward_model.nothing", "extra.steps.7", "extra.steps.x", "prompt.0.content.x"):
        assert prepared(source, prompt="prompt", answer=name) is None
    assert prepared({"a.b": "2+2?", "a": {"b": "wrong"}}, prompt="a.b") == {
        "prompt": [USER], "a.b": "2+2?", "a": {"b": "wrong"},
    }  # fmt: skip


@pytest.mark.parametrize(("value", "text"), [(72, "72"), (7.5, "7.5"), (True, "True"), ([1], "[1]"), ("72", "72")])
def test_an_answer_is_text_for_rewards_and_keeps_its_type_beside_it(value: Any, text: str) -> None:
    row = prepared({"prompt": "x", "answer": value}, prompt="prompt", answer="answer")
    assert row is not None
    assert (row["answer"], row["source_answer"], type(row["source_answer"])) == (text, value, type(value))
    row = prepared({"prompt": "x", "label": value}, prompt="prompt", answer="label")
    assert row is not None
    assert (row["answer"], row["label"]) == (text, value)


STOPPED: list[tuple[str, Row, str]] = [
    ("null", {"q": None, "a": "1"}, "no prompt"),
    ("not_text", {"q": 3, "a": "1"}, "neither text nor messages"),
    ("empty", {"q": " ", "a": "1"}, "nothing to answer"),
    ("missing_answer", {"q": "x", "a": None}, "no answer to compare with"),
    ("unparsable", {"q": "x", "a": "none"}, "no answer is found in it"),
    ("leaked", {"q": "It is 12345, I say.", "a": "\\boxed{12345}"}, "its prompt gives the answer away"),
]


@pytest.mark.parametrize(("kind", "row", "why"), STOPPED)
@pytest.mark.parametrize("plain", [False, True])
def test_the_code_stops_at_a_fault_that_shall_stop_it_and_names_the_row(
    kind: str, row: Row, why: str, plain: bool
) -> None:
    answer = DatasetAnswer(prompt="q", answer="a", extract="boxed", faults={kind: "stop"}, plain=plain)
    namespace = executed(answer)
    sound = {"q": "y", "a": "\\boxed{1}"}
    with pytest.raises(SystemExit, match=f"Row 3 of the data: {why}"):
        list(namespace["prepare_rows"]([sound, sound, row, sound]))
    others = [other for other_kind, other, _ in STOPPED if other_kind != kind]
    assert len(list(namespace["prepare_rows"]([*others, sound]))) == (1 if kind == "leaked" else 2)
    assert prepare_function(answer)(row) is None  # the preview shows it as left out


def executed(answer: DatasetAnswer) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(prepare_code(answer), namespace)
    return namespace


def asked(rows: Any) -> list[str]:
    return [row["prompt"][-1]["content"] for row in rows]


def test_repeated_prompts_are_kept_left_out_or_stop() -> None:
    rows: list[Row] = [{"q": "a"}, {"q": "b"}, {"q": [{"role": "user", "content": "a"}]}, {"q": "c"}, {"q": "b"}]
    assert asked(executed(DatasetAnswer(prompt="q"))["prepare_rows"](rows)) == ["a", "b", "a", "c", "b"]
    once = executed(DatasetAnswer(prompt="q", faults={"duplicate": "leave_out"}))["prepare_rows"]
    assert asked(once(rows)) == ["a", "b", "c"]
    assert asked(once(rows)) == ["a", "b", "c"]
    stops = executed(DatasetAnswer(prompt="q", faults={"duplicate": "stop"}))["prepare_rows"]
    with pytest.raises(SystemExit, match="Row 3 of the data asks the same again"):
        list(stops(rows))


def test_columns_of_several_types_are_kept_made_text_or_stop() -> None:
    rows: list[Row] = [{"q": "a", "v": 1, "completion": "x"}, {"q": "b", "v": None}, {"q": "c", "v": ["x"]}]
    assert [row["v"] for row in executed(DatasetAnswer(prompt="q"))["prepare_rows"](rows)] == [1, None, ["x"]]
    convert = DatasetAnswer(prompt="q", faults={"mixed_type": "convert", "reserved_name": "leave_out"})
    made = list(executed(convert)["prepare_rows"](rows))
    assert [row["v"] for row in made] == ["1", None, '["x"]']
    assert made[0].keys() == {"prompt", "q", "v"}
    with pytest.raises(SystemExit, match="Row 3 of the data: values of several types in column 'v'"):
        list(executed(DatasetAnswer(prompt="q", faults={"mixed_type": "stop"}))["prepare_rows"](rows))


def test_plain_and_chat_prompts_together_stop_if_chosen() -> None:
    rows: list[Row] = [{"q": "a"}, {"q": [USER]}]
    with pytest.raises(SystemExit, match="Row 2 of the data: plain text and chat messages"):
        list(executed(DatasetAnswer(prompt="q", faults={"mixed_kind": "stop"}))["prepare_rows"](rows))
    convert = DatasetAnswer(prompt="q", faults={"mixed_kind": "convert"})
    assert asked(executed(convert)["prepare_rows"](rows)) == ["a", "2+2?"]


@pytest.mark.parametrize(
    ("prompt", "answer", "leaks"),
    [
        ("Ann has 12 apples and buys 31 more. How many?", "43", False),
        ("How many days have 1440 minutes?", "1", False),
        ("Is 1234 even? (The code is 1234.)", "1234", True),
        ("The price is 12345.50.", "12345", False),
        ("The price is 12345.", "12345", True),
        ("2 + 2 = ? Answer: 4", "4", True),
        ("2 + 2 = ? The answer is 4.", "4", True),
        ("Give 4 reasons. What is 2 + 2?", "4", False),
        ("Which is a city?\nA) Paris\nB) Rhine", "Paris", False),
        ("Which is a city? (A) Paris (B) Rhine", "Paris", False),
        ("Paris is a city. Which city was named?", "paris", True),
        ("Parisians live where?", "Paris", False),
        ("anything", None, False),
        ("anything", " ", False),
    ],
)
def test_a_prompt_that_holds_its_answer_is_told_from_chance(prompt: str, answer: str | None, leaks: bool) -> None:
    found = leaks_function()
    assert found(prompt, answer) is leaks
    assert found([{"role": "user", "content": prompt}], answer) is leaks
    code = DatasetAnswer(prompt="q", answer="a", faults={"leaked": "leave_out"})
    assert bool(answer and answer.strip()) is (leaks or prepare_function(code)({"q": prompt, "a": answer}) is not None)


QUESTIONS: list[Row] = [{"q": f"{n}?", "a": n} for n in range(2000)]


def test_prompts_are_kept_apart_by_share_and_seed() -> None:
    answer = DatasetAnswer(prompt="q", eval_share=0.1, seed=7)
    is_held_out, namespace = held_out_function(answer), executed(answer)
    held = [row["q"] for row in QUESTIONS if is_held_out(row)]
    assert len(held) == pytest.approx(200, abs=50)
    trained = asked(namespace["prepare_rows"](QUESTIONS))
    assert asked(namespace["prepare_rows"](QUESTIONS, held_out=True)) == held
    assert (set(trained) & set(held), len(trained) + len(held)) == (set(), 2000)
    other = held_out_function(DatasetAnswer(prompt="q", eval_share=0.1, seed=8))
    assert [row["q"] for row in QUESTIONS if other(row)] != held


def test_the_same_prompt_is_on_one_side_whatever_stands_around_it() -> None:
    bare = held_out_function(DatasetAnswer(prompt="q", eval_share=0.5))
    dressed = held_out_function(DatasetAnswer(prompt="q", answer="a", eval_share=0.5, system="S", examples=SHOTS))
    chat = [{"q": [{"role": "user", "content": row["q"]}, {"role": "assistant", "content": "so"}]} for row in QUESTIONS]
    shares = [[is_out(row) for row in rows] for is_out in (bare, dressed) for rows in (QUESTIONS, chat)]
    assert all(share == shares[0] for share in shares)
    assert 800 < sum(shares[0]) < 1200


def test_what_the_library_adds_to_messages_moves_no_prompt_to_the_other_side() -> None:
    """datasets gives all messages of a column the same keys in the same order."""
    is_out = held_out_function(DatasetAnswer(prompt="q", eval_share=0.5))
    for row in QUESTIONS[:50]:
        text = row["q"]
        forms = [
            [{"role": "user", "content": text}],
            [{"content": text, "role": "user", "name": None}],
            [{"from": None, "value": None, "content": text, "role": "user"}],
            [{"from": "human", "value": text, "role": None, "content": None}],
        ]
        assert len({is_out({"q": form}) for form in forms}) == 1
        assert is_out({"q": forms[0]}) == is_out(row)


def test_without_a_share_nothing_is_kept_apart() -> None:
    answer = DatasetAnswer(prompt="q")
    assert split_code(answer) == ""
    assert not any(map(held_out_function(answer), QUESTIONS))
    assert list(executed(answer)["prepare_rows"](QUESTIONS, held_out=True)) == []
    split = replace(answer, eval_share=0.2)
    assert split_code(split).strip() in prepare_code(split)


def test_every_combination_of_choices_is_code_that_runs() -> None:
    kinds = {name: kind.choices for name, kind in KINDS.items()}
    for seed in range(60):
        chance = random.Random(seed)
        answer = DatasetAnswer(
            prompt=chance.choice(["prompt", "q", "m.q"]), answer=chance.choice(["", "answer", "m.a"]),
            system=chance.choice(["", "S"]), examples=chance.choice([(), SHOTS]), plain=chance.random() < 0.3,
            extract=chance.choice(list(RULES)), extract_argument="answer", eval_share=chance.choice([0.0, 0.3]),
            faults={name: chance.choice(options) for name, options in kinds.items() if chance.random() < 0.5},
        )  # fmt: skip
        made = functions(answer)
        row = {"prompt": "x", "q": "y", "answer": "<answer>1</answer>", "m": {"q": "z", "a": {"answer": 1}}}
        ready = made["prepare"](row)
        assert ready is None or "prompt" in ready


MMLU = {"question": "2+2?", "choices": ["3", "4"], "answer": 1, "meta": {"level": 2}}


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("{question}", "2+2?"),
        ("Q: {question}\n{choices}", "Q: 2+2?\n3\n4"),
        ("{question}\n{choices:letters}", "2+2?\nA. 3\nB. 4"),
        ("{question} (level {meta.level})", "2+2? (level 2)"),
        ("{meta}", '{"level": 2}'),
        ("{question} {{gone}}", "2+2? {}"),
        ("{gone} {nor this}", None),
        ("{question} {gone}", "2+2?"),
        (r"{question} \1 \g<0> %s", r"2+2? \1 \g<0> %s"),
    ],
)
def test_several_columns_become_one_prompt(prompt: str, asked: str | None) -> None:
    row = prepared(MMLU, prompt=prompt, answer="answer", extract="letter")
    assert (row and row["prompt"]) == (asked and [{"role": "user", "content": asked}])
    if row:
        assert (row["answer"], row["source_answer"]) == ("B", 1)


@pytest.mark.parametrize(
    "choices",
    [{"text": ["3", "4"], "label": ["A", "B"]}, [{"label": "A", "text": "3"}, {"label": "B", "text": "4"}]],
)
def test_options_keep_labels_of_their_own(choices: Any) -> None:
    row = prepared({"q": "2+2?", "choices": choices}, prompt="{q}\n{choices:letters}", plain=True)
    assert row is not None
    assert row["prompt"] == "2+2?\nA. 3\nB. 4"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["label", "text", "x"]), x),
        max_leaves=8,
    )
)
def test_whatever_stands_in_a_joined_column_becomes_text_as_it_stands(value: Any) -> None:
    row = prepared(
        {"q": "{answer} and {q}", "value": value, "answer": "no"}, prompt="{q}|{value:letters}|{value}", plain=True
    )
    assert row is None or row["prompt"].startswith("{answer} and {q}|")
