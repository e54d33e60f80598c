"""What is wrong with the rows."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from grpo_tui.dataset.faults import KINDS, NAMED_ROWS, Fault, Scan, scan
from grpo_tui.dataset.prompts import functions
from grpo_tui.dataset.rows import BrokenRow, Row, UnreadableError
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem

ASKED = DatasetAnswer(prompt="prompt", answer="answer")
PROMPT = DatasetAnswer(prompt="prompt")


def found(rows: list[Row], answer: DatasetAnswer = PROMPT, **more: Any) -> dict[str, Fault]:
    result = scan(rows, answer, **more)
    assert isinstance(result, Scan)
    return {fault.kind: fault for fault in result.faults}


def test_sound_rows_have_no_fault() -> None:
    rows = [{"prompt": f"{n}?", "answer": n} for n in range(8)]
    assert scan(rows, ASKED, needed=4) == Scan(8, 8, ())


def test_each_kind_of_unusable_prompt_is_counted_with_its_rows() -> None:
    prompts: list[Any] = ["good", "", " ", None, 3, [], [{"role": "user", "content": None}]]
    faults = found([{"prompt": prompt} for prompt in prompts])
    assert {kind: fault.rows for kind, fault in faults.items()} == {
        "empty": (1, 2, 5, 6), "null": (3,), "not_text": (4,),
    }  # fmt: skip
    assert {fault.choice for fault in faults.values()} == {"leave_out"}
    result = scan([{"prompt": prompt} for prompt in prompts], PROMPT)
    assert isinstance(result, Scan)
    assert result.usable == 1


def test_plain_and_conversational_prompts_in_one_column_stop_until_one_kind_is_chosen() -> None:
    rows: list[Row] = [{"prompt": "What is 2+2?"}, {"prompt": [{"role": "user", "content": "What is 3+3?"}]}] * 4
    mixed = found(rows)["mixed_kind"]
    assert mixed.text.startswith("4 plain, 4 conversational.")
    assert mixed.blocking
    assert mixed.choices == ("stop", "convert")
    for answer in (
        DatasetAnswer(prompt="prompt", convert_plain=True),
        DatasetAnswer(prompt="prompt", faults={"mixed_kind": "convert"}),
    ):
        assert not found(rows, answer)["mixed_kind"].blocking


def test_chat_messages_are_no_prompts_for_a_model_without_a_chat_template() -> None:
    rows: list[Row] = [{"prompt": "2+2="}, {"prompt": [{"role": "user", "content": "3+3="}]}]
    faults = found(rows, DatasetAnswer(prompt="prompt", plain=True))
    assert (faults["not_text"].rows, faults["not_text"].choice) == ((1,), "leave_out")
    assert "in 1 of them there are chat messages" in faults["not_text"].text
    assert "mixed_kind" not in faults


def test_the_odd_one_out_is_found_behind_a_thousand_others() -> None:
    rows: list[Row] = [{"prompt": f"{n}?"} for n in range(1500)]
    rows[1234] = {"prompt": [{"role": "user", "content": "x"}]}
    assert found(rows)["mixed_kind"].rows == (1234,)


def test_rows_without_an_answer_are_named_and_may_be_kept() -> None:
    rows: list[Row] = [{"prompt": "a", "answer": "1"}, {"prompt": "b"}, {"prompt": "c", "answer": "3", "level": 2}]
    missing = found(rows, ASKED)["missing_answer"]
    assert (missing.count, missing.rows, missing.choice) == (1, (1,), "leave_out")
    keep = DatasetAnswer(prompt="prompt", answer="answer", faults={"missing_answer": "keep"})
    kept = scan(rows, keep)
    assert isinstance(kept, Scan)
    assert (kept.usable, kept.faults[0].choice) == (3, "keep")
    assert "missing_answer" not in found(rows, PROMPT)


def test_rows_in_which_the_rule_finds_nothing_are_told_from_rows_without_an_answer() -> None:
    rule = DatasetAnswer(prompt="prompt", answer="answer", extract="after_marker", extract_argument="####")
    faults = found([{"prompt": "a", "answer": "#### 1"}, {"prompt": "b", "answer": "1"}, {"prompt": "c"}], rule)
    assert faults["unparsable"].rows == (1,)
    assert faults["missing_answer"].rows == (2,)


def test_repeated_prompts_are_counted_from_the_second_on_and_kept() -> None:
    chat = [{"role": "user", "content": "x"}]
    rows: list[Row] = [{"prompt": one} for one in ("a", "b", "a", chat, "c", list(chat), "a", "", "")]
    again = found(rows)["duplicate"]
    assert (again.count, again.rows, again.choice) == (3, (2, 5, 6), "keep")


def test_column_names_of_the_trainer_are_reported_with_the_new_name() -> None:
    reserved = found([{"prompt": "a", "completions": 1}, {"prompt": "b", "trainer_state": 2}])["reserved_name"]
    assert reserved.count == 2
    assert "completions, trainer_state" in reserved.text
    assert "source_" in reserved.text
    assert "reserved_name" in found([{"q": "a", "prompt": "b"}], DatasetAnswer(prompt="q"))
    assert "reserved_name" not in found([{"prompt": "a", "answer": "b"}], ASKED)


def test_prompts_over_the_limit_are_counted_where_they_were_measured() -> None:
    limited = DatasetAnswer(prompt="prompt", max_prompt_tokens=512)
    rows: list[Row] = [{"prompt": f"{n}?"} for n in range(100)]
    lengths = {n: 9000 if n in (17, 61) else 80 for n in range(100)}
    over = found(rows, limited, prompt_lengths=lengths)["over_long"]
    assert (over.count, over.rows, over.choice) == (2, (17, 61), "leave_out")
    assert over.text.startswith("2 of 100 measured prompts exceed 512 tokens.")
    assert over.choices == ("leave_out", "keep", "stop")
    assert limited.prompt_limit == 512
    assert replace(limited, faults={"over_long": "keep"}).prompt_limit == 0
    stopping = replace(limited, faults={"over_long": "stop"})
    assert stopping.prompt_limit == 512
    assert found(rows, stopping, prompt_lengths=lengths)["over_long"].blocking


def test_fewer_prompts_than_one_generation_needs_stop() -> None:
    few = found([{"prompt": "a"}], needed=2)["too_few_rows"]
    assert few.blocking
    assert few.text.startswith("Usable prompts: 1; one generation needs 2.")
    rest = found([{"prompt": text} for text in "abc"], needed=2)
    assert "too_few_rows" not in rest
    assert not rest["unused_rest"].blocking
    assert rest["unused_rest"].text.startswith("Never used in an epoch: 1 of 3 prompts.")


def test_prompts_that_are_left_out_do_not_count_for_a_generation() -> None:
    assert "too_few_rows" in found([{"prompt": "a"}, {"prompt": ""}], needed=2)


def test_only_the_first_rows_of_a_fault_are_named() -> None:
    empty = found([{"prompt": ""}] * 100)["empty"]
    assert (empty.count, empty.rows) == (100, tuple(range(NAMED_ROWS)))


def test_a_pass_reports_how_far_it_is_and_can_be_cancelled() -> None:
    seen: list[int] = []
    result = scan(({"prompt": str(n)} for n in range(10_000)), PROMPT, needed=8, progress=seen.append,
                  cancelled=lambda: len(seen) == 3)  # fmt: skip
    assert isinstance(result, Scan)
    assert seen == [1000, 2000, 3000]
    assert (result.rows, result.complete, result.faults) == (3000, False, ())


def test_a_file_that_breaks_on_the_way_is_a_problem() -> None:
    broken = Problem("rows.jsonl, line 3", "It is broken.", "Mend it.")

    def rows() -> Iterator[Row]:
        yield {"prompt": "a"}
        raise UnreadableError(broken)

    assert scan(rows(), PROMPT) == broken


def test_broken_lines_stop_until_they_are_left_out_and_change_nothing_of_the_other_rows() -> None:
    broken = BrokenRow(Problem("rows.jsonl, line 7", "It is broken.", "Mend it."))
    others = BrokenRow(Problem("rows.jsonl, line 9", "It is broken too.", "Mend it."))
    rows: list[Row] = [{"prompt": "a", "answer": 1}, broken, {"prompt": "b"}, others, {"prompt": "a", "answer": "x"}]
    faults = found(rows, ASKED)
    lines = faults.pop("broken_line")
    assert (lines.count, lines.rows, lines.choice) == (2, (1, 3), "stop")
    assert lines.text.startswith("2 of 5 rows, the first in rows.jsonl, line 7: It is broken. The library")
    assert {kind: fault.rows for kind, fault in faults.items()} == {
        "missing_answer": (2,), "duplicate": (4,), "mixed_type": (4,),
    }  # fmt: skip
    left = replace(ASKED, faults={"broken_line": "leave_out"}, eval_share=0.5)
    result = scan(rows, left)
    assert isinstance(result, Scan)
    assert not result.faults[0].blocking
    assert (result.rows, result.usable + result.held_out) == (5, 2)
    made = functions(left)["prepare_rows"]
    assert len(list(made(rows))) == result.usable
    assert len(list(made(rows, held_out=True))) == result.held_out


def test_conversations_of_sharegpt_are_prompts_like_others() -> None:
    rows: list[Row] = [
        {"prompt": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]},
        {"prompt": [{"from": "gpt", "value": "only a reply"}]},
        {"prompt": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "another reply"}]},
    ]
    faults = found(rows)
    assert (faults["empty"].rows, faults["duplicate"].rows) == ((1,), (2,))


def test_an_answer_inside_a_struct_is_looked_at_there() -> None:
    nested = DatasetAnswer(prompt="prompt", answer="reward_model.ground_truth")
    rows: list[Row] = [{"prompt": "a", "reward_model": {"ground_truth": "1"}}, {"prompt": "b", "reward_model": {}}]
    assert found(rows, nested)["missing_answer"].rows == (1,)


def test_prompts_that_hold_their_answer_are_set_against_chance() -> None:
    rows: list[Row] = [{"prompt": f"What is {n} doubled?", "answer": 2 * n} for n in range(1000, 1100)]
    assert "leaked" not in found(rows, ASKED)
    for at in (3, 40, 41):
        rows[at] = {**rows[at], "prompt": f"{rows[at]['prompt']} (It is {rows[at]['answer']}.)"}
    leaked = found(rows, ASKED)["leaked"]
    assert (leaked.count, leaked.rows, leaked.choice) == (3, (3, 40, 41), "keep")
    assert leaked.text.startswith("3 of 100 prompts hold their answer; by chance,")
    left_out = scan(rows, replace(ASKED, faults={"leaked": "leave_out"}))
    assert isinstance(left_out, Scan)
    assert left_out.usable == 97


def test_an_answer_that_every_prompt_names_is_no_leak() -> None:
    rows: list[Row] = [{"prompt": f"True or false: {n} is even?", "answer": str(n % 2 == 0)} for n in range(100)]
    assert "leaked" not in found(rows, ASKED)


def test_columns_of_several_types_are_named_with_their_counts() -> None:
    rows: list[Row] = [{"prompt": str(n), "answer": n, "v": n / 2} for n in range(10)]
    rows[4]["answer"], rows[7]["answer"], rows[8]["v"] = "four", ["7"], 3
    mixed = found(rows, ASKED)["mixed_type"]
    assert (mixed.count, mixed.rows, mixed.choice) == (2, (4, 7), "keep")
    assert mixed.text.startswith("answer: 8 number, 1 text, 1 lists.")
    assert found(rows, replace(ASKED, faults={"mixed_type": "stop"}))["mixed_type"].blocking


def test_prompts_left_out_or_kept_apart_are_not_trained_on() -> None:
    rows: list[Row] = [{"prompt": str(n % 500)} for n in range(1000)]
    once = scan(rows, replace(PROMPT, faults={"duplicate": "leave_out"}), needed=7)
    assert isinstance(once, Scan)
    assert (once.usable, once.held_out) == (500, 0)
    assert {fault.kind: fault.count for fault in once.faults} == {"duplicate": 500, "unused_rest": 500 % 7}
    apart = scan(rows, replace(PROMPT, eval_share=0.2))
    assert isinstance(apart, Scan)
    assert apart.usable + apart.held_out == 1000
    assert apart.held_out == pytest.approx(200, abs=60)
    assert apart.held_out % 2 == 0  # each prompt is there twice, both on one side


def test_the_pass_and_the_code_agree_on_what_is_trained_on() -> None:
    prompts: list[Any] = ["a", "", None, 3, "a", [{"role": "user", "content": "a"}], "It is 12345.", "b"]
    rows: list[Row] = [
        {"prompt": prompt, "answer": answer} for prompt in prompts for answer in ("12345", None, "x", 7, "12345")
    ]
    kinds = ("missing_answer", "leaked", "duplicate")
    for choice in itertools.product(("keep", "leave_out"), repeat=3):
        for share in (0.0, 0.5):
            answer = replace(ASKED, faults=dict(zip(kinds, choice, strict=True)), eval_share=share)
            result = scan(rows, answer)
            assert isinstance(result, Scan)
            prepare_rows = functions(answer)["prepare_rows"]
            assert result.usable == len(list(prepare_rows(rows)))
            if "leave_out" not in answer.faults["duplicate"]:
                assert result.held_out == len(list(prepare_rows(rows, held_out=True)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_that_a_kind_does_not_offer_is_not_taken(kind: str) -> None:
    answer = DatasetAnswer(prompt="q", answer="a", extract="boxed", max_prompt_tokens=1, faults={kind: "explode"})
    rows: list[Row] = [
        {"q": "x", "a": "\\boxed{1}", "prompt": 1}, {"q": "x", "a": "1"}, {"q": "", "a": None}, {"q": None}, {"q": 1},
        {"q": [{"role": "user", "content": "x"}], "a": "\\boxed{1}"}, {"q": "y", "a": "\\boxed{1}"},
    ]  # fmt: skip
    for needed in (2, 5):
        for fault in found(rows, answer, prompt_lengths={0: 5}, needed=needed).values():
            assert fault.choice in fault.choices == KINDS[fault.kind].choices
            assert fault.count
