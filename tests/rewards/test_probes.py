"""Attacks on rewards: good ones withstand, and each known hole is found by the probe made for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.rewards.probes import Probed, ProbeRequest, ProbeTable, probe, spellings

SYSTEM = "Think inside <reasoning></reasoning>, then reply inside <answer></answer>."
RECIPE = Path(__file__).parents[2] / "recipes" / "word_problems" / "rewards.py"
ANSWERS = ("42", "7", "1250", "9", "-3")

FORM = """
import re
def text(c): return c if isinstance(c, str) else c[-1]["content"]
def format(completions, **kwargs):
    pattern = re.compile(r"<reasoning>.*</reasoning>\\s*<answer>.*</answer>", re.S)
    return [float(bool(pattern.search(text(c)))) for c in completions]
"""

CONTAINS = """
def text(c): return c if isinstance(c, str) else c[-1]["content"]
def correct(completions, answer, **kwargs):
    return [float(right in text(c)) for c, right in zip(completions, answer)]
"""


def rows(answers: tuple[object, ...] = ANSWERS, chat: bool = True) -> tuple[dict[str, object], ...]:
    made = []
    for number, answer in enumerate(answers):
        question = f"Question {number}?"
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        made.append({"prompt": messages if chat else question, "answer": answer})
    return tuple(made)


@pytest.fixture
def attacked(worker: Worker, rewards_file: Callable[[str], Path]) -> Callable[..., ProbeTable]:
    def run(code: str | Path, names: str, **more: object) -> ProbeTable:
        path = code if isinstance(code, Path) else rewards_file(code)
        request = ProbeRequest(
            **{"path": path, "names": tuple(names.split()), "rows": rows(), "system": SYSTEM, **more}
        )  # type: ignore[arg-type]  # the fields of ProbeRequest
        table = probe(worker, request)
        assert not isinstance(table, Problem), str(table)
        return table

    return run


Attacked = Callable[..., ProbeTable]


def of_kind(table: ProbeTable, kind: str) -> Probed:
    return next(each for each in table.probes if each.probe.kind == kind)


def test_the_rewards_of_the_built_in_task_withstand_every_attack(attacked: Attacked) -> None:
    table = attacked(RECIPE, "correct format brevity", weights=(1.0, 0.25, 0.125))
    assert {each.verdict for each in table.probes} == {"sound"}
    assert table.best == 1.375
    assert table.format_only_share == pytest.approx(0.375 / 1.375)
    assert table.layout == "tags in one line"
    assert "27% of 1.375" in table.sentence
    assert table.sentence.endswith("All probes are paid as they should be.")


def test_a_search_for_tags_pays_empty_ones_and_repeated_ones(attacked: Attacked) -> None:
    table = attacked(FORM + CONTAINS, "correct format", weights=(1.0, 0.25))
    empty = of_kind(table, "tags only")
    assert (empty.verdict, empty.paid_by) == ("paid wrongly", ("format",))
    assert of_kind(table, "repeated tags").verdict == "paid wrongly"
    assert of_kind(table, "junk behind").verdict == "paid wrongly"
    assert of_kind(table, "swapped tags").verdict == "sound"


def test_a_look_for_the_answer_anywhere_pays_a_list_of_candidates(attacked: Attacked) -> None:
    table = attacked(CONTAINS, "correct")
    listed = of_kind(table, "candidates listed")
    assert (listed.verdict, listed.paid_by) == ("paid wrongly", ("correct",))
    assert "candidates listed" in table.sentence
    assert "by correct" in table.sentence
    assert of_kind(table, "wrong").verdict == "sound"
    assert not [each for each in table.probes if each.probe.expected == "less"], "it asks for no form"


def test_form_without_a_look_at_the_answer_earns_everything(attacked: Attacked) -> None:
    table = attacked(FORM, "format")
    assert table.format_only_share == 1
    assert of_kind(table, "wrong").verdict == "paid wrongly"


def test_a_right_answer_in_other_spelling_or_not_paid_at_all_is_told(attacked: Attacked) -> None:
    exact = """
    import re
    def text(c): return c if isinstance(c, str) else c[-1]["content"]
    def exact(completions, answer, **kwargs):
        found = [re.search("<answer>(.*)</answer>", text(c), re.S) for c in completions]
        return [float(bool(f) and f[1] == a) for f, a in zip(found, answer)]
    """
    table = attacked(exact, "exact")
    assert {each.verdict for each in table.probes if each.probe.kind == "other spelling"} == {"unpaid although right"}
    assert "other spellings of right answers are not paid" in table.sentence
    never = attacked(exact, "exact", rows=rows((42, 7)))
    assert of_kind(never, "right").verdict == "unpaid although right"
    assert "The right answer itself is not always paid" in never.sentence


def test_an_expression_that_hangs_is_found_by_the_unclosed_tag(attacked: Attacked) -> None:
    hanging = """
    import re
    def text(c): return c if isinstance(c, str) else c[-1]["content"]
    def hangs(completions, **kwargs):
        return [float(bool(re.match(r"^<reasoning>(\\s*\\S+\\s*)+</reasoning><answer>", text(c)))) for c in completions]
    """
    table = attacked(hanging, "hangs", timeout=0.3, attacked=1)
    assert of_kind(table, "unclosed tag").verdict == "not scored"
    assert "did not return" in str(table.table.problems["hangs"][0])


def test_the_form_is_found_by_what_is_paid_when_nobody_names_it(attacked: Attacked) -> None:
    boxed = """
    import re
    def boxed(completions, answer, **kwargs):
        return [float(re.findall(r"\\\\boxed{(.*?)}", c) == [a]) for c, a in zip(completions, answer)]
    """
    table = attacked(boxed, "boxed", system="", rows=rows(chat=False))
    assert table.layout == "\\boxed{}"
    assert of_kind(table, "right").verdict == "sound"


def test_a_system_prompt_inside_the_rows_says_the_form_as_well(attacked: Attacked) -> None:
    code = """
    import re
    def strict(completions, answer, **kwargs):
        tags = "<{0}>(.*)</{0}>"
        found = [re.fullmatch(tags.format("reasoning") + tags.format("answer"), c[-1]["content"]) for c in completions]
        return [float(bool(f) and f[2] == a) for f, a in zip(found, answer)]
    """
    table = attacked(code, "strict", system="")
    assert table.layout == "tags in one line"
    assert table.best == 1


def test_punishment_below_zero_is_the_ground_from_which_shares_are_counted(attacked: Attacked) -> None:
    code = CONTAINS + "\ndef brief(completions, **kwargs): return [-float(len(text(c)) > 100) for c in completions]\n"
    table = attacked(code, "correct brief", weights=(1.0, 1.0))
    assert of_kind(table, "junk").share == 0
    assert of_kind(table, "empty").share == pytest.approx(0.5), "not to be punished is half of the way"
    assert of_kind(table, "empty").verdict == "paid wrongly"


def test_rows_without_an_answer_are_attacked_with_what_needs_none(attacked: Attacked) -> None:
    table = attacked(FORM, "format", rows=({"prompt": "Tell a story."}, {"prompt": "Sing."}))
    assert not any(each.probe.has_answer for each in table.probes)
    assert of_kind(table, "empty").verdict == "sound"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1250", {"1,250", "1250.0", " 1250 ", "\n1250\n"}),
        ("-3", {"-3.0", " -3 ", "\n-3\n"}),
        ("blue", {"BLUE", "Blue", " blue ", "\nblue\n"}),
        ("A", {" A ", "\nA\n"}),
        ("0.5", {" 0.5 ", "\n0.5\n"}),
        ("", set()),
    ],
)
def test_other_spellings_are_right_beyond_dispute(answer: str, expected: set[str]) -> None:
    assert set(spellings(answer)) == expected


def test_no_rows_and_no_file_are_problems(worker: Worker, tmp_path: Path) -> None:
    request = ProbeRequest(path=tmp_path / "none.py", names=("f",), rows=())
    assert isinstance(probe(worker, request), Problem)
    missing = probe(worker, ProbeRequest(path=tmp_path / "none.py", names=("f",), rows=rows()))
    assert isinstance(missing, Problem)
    assert "none.py" in missing.where
