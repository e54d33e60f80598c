"""The catalogue: what each template must pay and must not, on the very code that is written into rewards.py."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.catalogue import TEMPLATES, Proposal, render_rewards
from grpo_tui.rewards.source import check_signatures, read_code
from tests.processes import gone
from tests.rewards.catalogued import functions, paid, proposal

COLUMNS = ("prompt", "answer", "options", "choices", "tests", "source")
SOURCE = "On Monday the ship left the harbour at dawn. It carried four hundred barrels of oil and a crew of nine."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age"],
}
PROSE = (
    "The train leaves at nine and arrives at noon. That is three hours, so at ninety miles an hour it has gone for "
    "two hundred and seventy miles. Half of them were in the hills, where it was slower than it would have been.\n"
)
FRENCH = (
    "Le train part à neuf heures et arrive à midi. Il a donc roulé pendant trois heures dans les collines, sans se "
    "presser. Chaque wagon portait quarante voyageurs avec leurs bagages. Personne ne semblait pressé de descendre.\n"
)
RUSSIAN = "Поезд отправляется в девять часов и прибывает в полдень. Значит, он шёл три часа через холмы, не спеша.\n"
ROWS: dict[str, dict[str, Any]] = {
    "choice with options": {"options": ["London", "Paris", "Rome"]},
    "choice with choices": {"choices": ["London", "Paris", "Rome"]},
    "choice with labelled choices": {"choices": {"label": ["A", "B"], "text": ["London", "Paris"]}},
    "citation": {"source": SOURCE},
}

SCORES: dict[str, tuple[Proposal, Any, list[str], list[str]]] = {
    "numeric": (
        proposal("numeric"),
        "1234",
        ["1,234", "1234", "1234.0", " 1.234e3 ", "The answer is 1234.", "\\boxed{1234}", "<answer>1,234</answer>",
         "<think>5 or 6?</think>1234 apples", "<reasoning>617*2=1234</reasoning><answer>1234</answer>", "$1,234",
         "१२३४", "１２３４", "2468/2", "So 600+634. #### 1234", "Answer: 1234", "**Answer:** 1234", "\\boxed{1{,}234}",
         "\\boxed{\\frac{2468}{2}}", "1.234 × 10³", "1.234 \\times 10^{3}", "1\u202f234 m²",
         "12340e-1", "<answer>\\boxed{1234}</answer>", "\\boxed{1234}, that is \\boxed{1234}"],
        ["", "1233", "1 2 3 1234", "1234 or 1235", "<think>1234</think>", "<think>1234", "nan", "inf", "1e999", "",
         "<reasoning>1234</reasoning><answer>many</answer>", "<answer>1234</answer><answer>1235</answer>",
         "\\boxed{1234} \\boxed{5}", "<answer>1234", "-1234", "1234/0", "12,34", "1234 1234", "e5", "1" * 5000,
         "0 " * 1000 + "1234", "answer: 5 answer: 1234", "\\boxed{1234" * 2, "\\boxed{1234} " * 10, "1234²", "1 234",
         "10^1234", "NaN 1234 inf 5",
         "<answer>1234</answer> or <answer>", "1234½", "1.234.0"],
    ),
    "fractions": (
        proposal("numeric"),
        "1/2",
        ["0.5", "½", "1/2", "\\frac{1}{2}", "50e-2", ".5"],
        ["1", "2", "1 2", "1/3"],
    ),
    "great whole numbers": (proposal("numeric"), 10**12, ["1,000,000,000,000", "1e12"], ["1000000000001"]),
    "a share": (proposal("numeric", relative=0.01), "200", ["199", "201.5"], ["197"]),
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
    "choice with options": (
        proposal("choice"),
        "B",
        ["B", "B) Paris", "(b) paris", "Paris.", "The answer is B. Paris"],
        ["London", "B) London", "A) Paris", "Paris, London", "A, B, C, D", "A good question", "A Paris"],
    ),
    "choice with choices": (proposal("choice"), "B", ["B", "B) Paris", "Paris."], ["London", "B) London", "A"]),
    "choice with labelled choices": (proposal("choice"), "B", ["B", "(b)"], ["text", "label", "A"]),
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
        proposal("json_object", keys=("name", "age")),
        None,
        ['{"name": "Ada", "age": 36}', '{ "age":36,\n "name":"Ada" }\n', '{"name": "Ada", "age": 0}'],
        ["", "{}", '{"name": "Ada", "age": 36} Done.', '{"name": "Ada", "age": 36}{"name": "Ada", "age": 36}',
         '{"name": "", "age": ""}', '{"name": " ", "age": 1}', '{"name": "Ada"}', '{"name": "Ada", "age": 36, "x": 1}',
         '{"name": "Ada", "name": "Bob", "age": 36}', '{"name": "Ada", "age": NaN}', '["name", "age"]', "{" * 100_000,
         "[" * 90_000, '```json\n{"name": "Ada", "age": 36}\n```', '{"name": null, "age": []}', "{'name': 'Ada'}"],
    ),
    "json without keys": (proposal("json_object"), None, ['{"a": [1]}'], ["{}", "[1]", "3", '"text"', '{"a": {}}']),
    "mathematics": (
        proposal("mathematics"),
        "4",
        ["\\boxed{4}", "4.0", "8/2", "\\frac{8}{2}", "The final answer is $4$", "\\boxed{\\frac{8}{2}}", "x = 4",
         "<think>\\boxed{5}</think>\\boxed{4}", "So \\boxed{4}. Thus \\boxed{4}", "<answer>4</answer>", "\\boxed{4}."],
        ["", "\\boxed{4", "\\boxed{4}\\boxed{5}", "<think>\\boxed{4}", "<think>\\boxed{4}</think>",
         "<think>\\boxed{4}</think>I am sure.", "\\boxed{\\{4,5\\}}",
         " ".join(f"\\boxed{{{each}}}" for each in range(10)),
         "\\boxed{4}" * 10, "1, 2, 3, 4", "4 or 5", "5 = 4", "1=2=3=4", "\\boxed{" * 3000, "1" * 60_000, "\\pm 4",
         "\\boxed{4}" + " " * 50_001, "four", "4 > 3"],
    ),
    "formulas": (proposal("mathematics"), "$x^2+2x+1$", ["\\boxed{(x+1)^2}", "x^2 + 1 + 2x"], ["x^2", "(x+2)^2", "x"]),
    "a set": (proposal("mathematics"), "\\{1,2\\}", ["\\boxed{\\{2, 1\\}}"], ["1", "\\{1,2,3\\}"]),
    "same json": (
        proposal("same_json"),
        '{"a": 1, "b": [true]}',
        ['{"b": [true], "a": 1}', '<answer>{"a":1,"b":[true]}</answer>'],
        ["", "{}", '{"a": 1, "b": [1]}', '{"a": 1}', "a 1 b true"],
    ),
    "same json of a struct": (proposal("same_json"), {"a": 1}, ['{"a": 1}'], ['{"a": 2}']),
    "tags that hold tags": (
        proposal("tags", tags=("think", ("answer", ("value", "unit"))), empty=("think",)),
        None,
        ["<think>\n</think>\n<answer><value>3</value> <unit>m</unit></answer>"],
        ["<think>a</think><answer>3</answer>", "<think>a</think><answer><unit>m</unit><value>3</value></answer>",
         "<think>a</think><answer>so <value>3</value><unit>m</unit></answer>",
         "<think>a</think><answer><value></value><unit>m</unit></answer>"],
    ),
    "tags with text around": (
        proposal("tags", tags=("answer",), around=True),
        None,
        ["So: <answer>3</answer> it is.", "<answer>3</answer>"],
        ["<answer></answer>", "<answer>3</answer><answer>3</answer>", "So 3."],
    ),
    "tags, step by step": (
        proposal("tags_gradual"),
        None,
        ["<reasoning>a</reasoning><answer>3</answer>", "\n<reasoning>\na\n</reasoning>\n<answer>\n3\n</answer>\n"],
        ["", "3", "<answer>3</answer><reasoning>a</reasoning>",
         "<reasoning>a</reasoning></reasoning><answer>3</answer>",
         "<reasoning>a</reasoning><answer>3</answer></answer>", "<reasoning>a</reasoning><answer>3</answer>" * 50],
    ),
    "json schema": (
        proposal("json_schema", schema=SCHEMA),
        None,
        ['{"name": "Ada", "age": 36}', '{ "age":36,\n "name":"Ada" }\n', '{"name": "Ada", "age": 36, "tags": ["a"]}'],
        ["", "{}", '{"name": "Ada", "age": 36} Done.', '{"name": "Ada", "age": 36}{"name": "Ada", "age": 36}',
         '{"name": "", "age": 36}', '{"name": "Ada", "age": 36, "x": 1}', '{"name": "Ada", "name": "Bo", "age": 36}',
         '{"name": "Ada", "age": "36"}', '{"name": "Ada", "age": NaN}', "[" * 90_000, "[" * 10_000_000,
         '{"name": "Ada", "age": 36, "tags": [{"a": 1}]}', '{"age": 36}', "null",
         '```json\n{"name": "Ada", "age": 36}\n```'],
    ),
    "pattern": (
        proposal("pattern", expression=r"[A-Z]{2}-\d{4}"),
        None,
        ["AB-1234"],
        ["", "AB-12345", "xAB-1234", "AB-1234\n", "no\nAB-1234", "AB-1234\nno", "AB-1234 " * 5000],
    ),
    "tag count": (
        proposal("tag_count"),
        None,
        ["<reasoning>a</reasoning><answer>3</answer>"],
        ["", "Step 1: Step 2: Step 3:", "<answer>" * 50 + "</answer>" * 50],
    ),
    "overlong": (
        proposal("overlong", largest=100, fade=20),
        None,
        ["word", "la " * 80, ""],
        ["la " * 100, "la " * 500],
    ),
    "TRL's overlong": (
        proposal("trl_overlong", largest=100, fade=20),
        None,
        ["word", "la " * 80, ""],
        ["la " * 100, "la " * 500],
    ),
    "repetition": (
        proposal("repetition"),
        None,
        [PROSE, "", "2 + 2 = 4. 4 + 3 = 7. 7 + 1 = 8. So the answer is 8."],
        ["la " * 500, "I am sure that it is so. " * 80, "the answer is 4\n" * 200],
    ),
    "TRL's repetition": (proposal("trl_repetition"), None, [PROSE, ""], ["la " * 500]),
    "English": (
        proposal("language"),
        None,
        [PROSE, "The answer is 4, because two and two are four.", "We have $x = 4$ and so it is `four`."],
        ["", "42", FRENCH, RUSSIAN, PROSE + FRENCH, PROSE + RUSSIAN, "```\n" + PROSE + "\n```", "the of and " * 50],
    ),
    "Russian": (
        proposal("language", scripts=("CYRILLIC",), words=""),
        None,
        [RUSSIAN, RUSSIAN + " $x = 4$"],
        ["", PROSE, PROSE + RUSSIAN, "Otvet chetyre, potomu chto dva i dva chetyre."],
    ),
    "keywords": (
        proposal("keywords", words=("because", "therefore")),
        None,
        ["It is four because two and two are four, and therefore the sum of them is not five at all."],
        ["", "because therefore", "because, therefore " * 50, "It is four.",
         "The becauseful thereforeness of all of this"],
    ),
    "style": (
        proposal("style"),
        None,
        ["", "It is 4.", PROSE],
        ["As an AI, I say: Certainly! Great question! I hope this helps.", "As an AI " * 20],
    ),
    "citation": (
        proposal("citation"),
        None,
        ['It says that "the ship left the harbour at dawn".', "So “the ship left  the harbour” it says.",
         '<think>"a made-up quotation"</think>Yes: "carried four hundred barrels"'],
        ["", "No quotation.", '"the ship sank in the harbour"', '"t" "h" "e"', f'"{SOURCE}"',
         '"the ship left the harbour" ' * 9,
         '"the ship left the harbour" and "it then sank in the night"', '"the"'],
    ),
    "TRL's accuracy": (
        proposal("trl_accuracy"),
        "72",
        ["\\boxed{72}", "The final answer is $72$"],
        ["", "The answer is 72", "\\boxed{71}"],
    ),
    "TRL's reasoning accuracy": (
        proposal("trl_reasoning_accuracy"),
        "72",
        ["<think>so</think>\\boxed{72}"],
        ["", "\\boxed{72}", "<think>\\boxed{72}</think>", "<think>\\boxed{72}"],
    ),
    "TRL's think format": (
        proposal("trl_think_format"),
        None,
        ["<think>a</think>4"],
        ["", "4", "a</think>4", "<think>a", "<think>a</think><think>b</think>"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCORES)
def test_a_template_pays_what_it_must_and_nothing_else(kind: str) -> None:
    choice, right, high, low = SCORES[kind]
    template, row = TEMPLATES[choice.template], ROWS.get(kind, {})
    enough = template.highest - 0.1 * (template.highest - template.lowest)
    little = template.lowest + 0.1 * (template.highest - template.lowest) if template.highest == 0 else 0.1
    rewards = {text[:80]: paid(choice, text, right, **row) for text in high}
    assert {text: reward for text, reward in rewards.items() if reward is None or reward < enough} == {}
    rewards = {text[:80]: paid(choice, text, right, **row) for text in low}
    assert {text: reward for text, reward in rewards.items() if reward is None or reward > little} == {}


ELSEWHERE = {"code_tests", "judge", "trl_cosine"}
"""Templates with a table of their own: they run code, ask a server, or pay for two things at once."""


def test_every_template_has_its_table() -> None:
    assert {choice.template for choice, *_ in SCORES.values()} | ELSEWHERE == set(TEMPLATES)


NASTY = ["", " \n\t", "\0", "🦆" * 100, "<answer>" * 5000, "\\boxed{" * 5000, "<", "answer is " * 5000, "9" * 100_000,
         "a" * 100_000, "1/" * 50_000, "</answer><answer>", "\ud800", "{}" * 50_000, '"' * 9999, "```\n" * 5000,
         "$" * 9999, "1,234" * 20_000, "<reasoning>" + "</answer>" * 5000]  # fmt: skip


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != "judge"])
def test_a_template_stays_in_its_range_and_never_raises(template: str) -> None:
    kind = TEMPLATES[template]
    row = {"options": ["a", None], "tests": "assert f(1) == 2", "source": "a"}
    for text in NASTY:
        reward = paid(proposal(template), text, "3", **row)
        assert reward is None or kind.lowest <= reward <= kind.highest, text[:50]


@pytest.mark.parametrize("template", [name for name in TEMPLATES if "answer" in TEMPLATES[name].columns])
def test_no_right_answer_of_whatever_kind_makes_a_template_raise(template: str) -> None:
    kind = TEMPLATES[template]
    if template == "judge":
        return
    for right in ("B", "3", 3, 2.5, None, "", {"a": 1}, "nan", "\\frac{", "x" * 10_000, [1]):
        for text in ("B", "3", "{}", "<think>"):
            reward = paid(proposal(template), text, right, options=None)
            assert reward is None or kind.lowest <= reward <= kind.highest


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != "judge"])
def test_completions_without_any_text_are_none_of_its_business(template: str) -> None:
    function = functions(proposal(template))["paid"]
    silent = [
        [],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "tool_calls": []}],
        [{"role": "tool"}],
    ]
    columns = {
        name: ["B" if template == "choice" else "1"] * 4
        for name in TEMPLATES[template].columns
        if name not in ("options", "choices")
    }
    columns["source"] = ["The source."] * 4
    rewards = function(completions=silent, completion_ids=[[]] * 4, prompts=["?"] * 4, **columns)
    assert all(reward <= 0 for reward in rewards)
    assert function(completions=[], completion_ids=[], prompts=[], **{name: [] for name in columns}) == []


@pytest.mark.parametrize(
    ("template", "right"),
    [("exact", None), ("exact", " "), ("numeric", "blue"), ("numeric", None), ("choice", "Paris"), ("same_json", "x"),
     ("same_json", None), ("mathematics", "blue"), ("mathematics", None), ("mathematics", ""), ("code_tests", None),
     ("citation", None), ("trl_accuracy", "blue"), ("trl_cosine", "blue")],
)  # fmt: skip
def test_a_row_whose_right_answer_is_of_another_kind_is_skipped_not_punished(template: str, right: Any) -> None:
    assert paid(proposal(template), "anything", right, tests=right, source=right) is None


def test_rw_13_the_phrasing_decides_what_trls_verifier_pays_and_ours_takes_all_of_them() -> None:
    phrasings = ["The answer is 72", "\\boxed{72}", "Answer: 72", '{"answer": 72}']
    assert [paid(proposal("trl_accuracy"), each, "$72$") for each in phrasings] == [0.0, 1.0, 0.0, 0.0]
    assert [paid(proposal("numeric"), each, "72") for each in phrasings] == [1.0] * 4
    assert [paid(proposal("mathematics"), each, "$72$") for each in phrasings] == [1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("right", ["blue", "A"])
def test_rw_13_rows_that_trls_verifier_cannot_read_are_skipped_and_the_catalogue_says_so(right: str) -> None:
    assert paid(proposal("trl_accuracy"), right, right) is None
    assert any("passed over" in caution for caution in TEMPLATES["trl_accuracy"].cautions)
    assert any("boxed" in caution for caution in TEMPLATES["trl_accuracy"].cautions)
    assert paid(proposal("choice" if right == "A" else "exact"), right, right) == 1.0


def test_a_number_as_right_answer_is_no_silent_none_with_trls_verifier() -> None:
    assert paid(proposal("trl_accuracy"), "\\boxed{72}", 72) == 1.0


def test_trls_cosine_pays_a_short_right_answer_most_and_a_long_wrong_one_never_more_than_a_right_one() -> None:
    choice = proposal("trl_cosine", largest=100)
    short, long = paid(choice, "\\boxed{4}", "4"), paid(choice, "so " * 90 + "\\boxed{4}", "4")
    wrong, long_wrong = paid(choice, "\\boxed{5}", "4"), paid(choice, "so " * 90 + "\\boxed{5}", "4")
    assert 1.0 >= (short or 0) > (long or 0) >= 0.5
    assert -0.5 >= (long_wrong or 0) > (wrong or 0) >= -1.0


ENDLESS = ["\\boxed{9^{9^{9^{9}}}}", "\\boxed{4}"]


def test_a_formula_that_takes_for_ever_costs_its_time_and_earns_nothing() -> None:
    assert functions(proposal("mathematics", seconds=1))["paid"](ENDLESS, ["4", "4"]) == [0.0, 1.0]


def test_rw_06_nor_does_it_hang_in_a_thread_where_no_alarm_rings() -> None:
    with ThreadPoolExecutor(2) as pool:
        paid = functions(proposal("mathematics", seconds=1))["paid"]
        asked = [pool.submit(paid, ENDLESS, ["4", "4"]), pool.submit(paid, ["\\boxed{72}"], ["$72$"])]
        assert [each.result() for each in asked] == [[0.0, 1.0], [1.0]]


DEAF = """
class LatexExtractionConfig:
    def __init__(self, boxed_match_priority): pass
def parse(text, reading, extraction_mode, parsing_timeout): return [text]
def verify(wanted, found, timeout_seconds): return wanted == found or sum(range(10**15))
"""

HANGS = """
import sys
sys.path.append(sys.argv[1])
import rewards
print(rewards.paid(["6", "4"], ["4", "4"]), rewards.comparing[0].pid, flush=True)
if sys.argv[2:]:
    rewards.paid(["6"], ["4"])
"""


@pytest.fixture
def deaf(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """A program that scores with a math_verify that hangs in C code, where Python sees no signal."""
    (tmp_path / "math_verify.py").write_text(DEAF)

    def start(seconds: int, *more: str) -> subprocess.Popen[str]:
        choice = replace(proposal("mathematics", seconds=seconds), name="paid")
        (tmp_path / "rewards.py").write_text(render_rewards([choice]))
        command = [sys.executable, "-c", HANGS, str(tmp_path), *more]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    return start


def test_a_comparison_that_hangs_in_c_code_is_ended_too(deaf: Callable[..., subprocess.Popen[str]]) -> None:
    with deaf(1) as scoring:
        try:
            said, _ = scoring.communicate(timeout=60)
        finally:
            scoring.kill()
    assert said.startswith("[0.0, 1.0]")


def test_what_compares_ends_with_a_training_that_is_killed(deaf: Callable[..., subprocess.Popen[str]]) -> None:
    with deaf(2, "and once more") as scoring:
        assert scoring.stdout is not None
        comparing = int(scoring.stdout.readline().split()[-1])
        os.kill(comparing, 0)
        scoring.kill()
    assert gone(comparing)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for template, package, missing in (
        ("mathematics", "math-verify", "math_verify"),
        ("json_schema", "jsonschema", "jsonschema"),
    ):
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(ImportError, match=f"pip install {package}"):
            functions(proposal(template))["paid"](completions=["4"], answer=["4"])


def test_a_schema_is_paid_in_parts_only_if_that_is_wanted() -> None:
    choice = proposal("json_schema", schema=SCHEMA, gradual=True)
    texts = ["no JSON", "{}", '{"name": "", "age": ""}', '{"x": 1}', '{"name": "Ada"}', '{"name": "Ada", "age": "36"}',
             '{"name": "Ada", "age": 36, "x": 1}', '{"name": "Ada", "age": 36}']  # fmt: skip
    rewards = [paid(choice, text) for text in texts]
    assert rewards == pytest.approx([0.0, 0.0, 0.0, 0.2, 0.6, 0.8, 0.8, 1.0])


def test_a_schema_elsewhere_is_not_fetched() -> None:
    choice = proposal("json_schema", schema={"$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        functions(choice)["paid"](completions=['{"a": 1}'])


def test_each_step_of_the_ladder_of_tags_pays_more_than_the_one_before() -> None:
    choice = proposal("tags_gradual")
    right = "<reasoning>a</reasoning><answer>3</answer>"
    steps = ["", "<reasoning>a", "<reasoning>a</reasoning>", "<reasoning>a</reasoning><answer>3", f"So: {right}", right]
    rewards = [paid(choice, text) or 0.0 for text in steps]
    assert rewards == sorted(set(rewards))
    assert paid(choice, "<reasoning>a</answer>") == pytest.approx(0.2)
    assert (paid(choice, "<reasoning></reasoning><answer></answer>") or 0) <= 0.25


def test_length_falls_off_gently_outside_its_band() -> None:
    choice = proposal("length", low=4, high=8, fade=4, gated=False)
    rewards = [paid(choice, " ".join(map(str, range(length)))) for length in (2, 4, 8, 10, 12)]
    assert rewards == [0.5, 1.0, 1.0, 0.5, 0.0]


def every_template() -> str:
    return render_rewards([Proposal(template=key, name=f"my_{key}", weight=1.0, why="") for key in TEMPLATES])


def test_the_rendered_file_reads_well_and_needs_nothing_of_ours() -> None:
    text = every_template()
    assert "grpo_tui" not in text
    assert "noqa" not in text
    assert max(map(len, text.splitlines())) <= 120
    read = read_code(text)
    assert not isinstance(read, Problem)
    assert [each.name for each in read] == [f"my_{key}" for key in TEMPLATES]
    assert all(each.doc for each in read)
    assert check_signatures(read, COLUMNS) == []


def test_the_rendered_file_satisfies_a_linter(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(every_template())
    ruff = [
        str(Path(sys.executable).parent / "ruff"),
        "check",
        "--isolated",
        "--line-length=120",
        "--select=E,F,I,B,UP",
    ]
    done = subprocess.run([*ruff, tmp_path / "rewards.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_only_the_parts_that_are_called_are_written() -> None:
    text = render_rewards([proposal("tags")])
    assert "def text_of" in text
    assert "answer_in" not in text
    assert text.count("import ") == 1
    assert render_rewards([proposal("numeric")]).count("def answer_in") == 1


def test_two_functions_of_one_template_keep_apart() -> None:
    choices = [
        Proposal(template="tags", name=name, parameters={"tags": (name,)}, weight=1, why="") for name in ("a", "b")
    ]
    names = functions(*choices)
    assert (names["a"](["<a>1</a>"]), names["b"](["<a>1</a>"])) == ([1.0], [0.0])


def test_parameters_stand_in_the_file_where_they_can_be_changed() -> None:
    text = render_rewards([
        proposal("numeric", answer="solution", absolute=0.5),
        Proposal(template="tags", name="shape", parameters={"tags": ("think",)}, weight=0.25, why=""),
        Proposal(template="pattern", name="whole", parameters={"expression": r"\d+"}, weight=0.25, why=""),
    ])  # fmt: skip
    assert "def paid(completions: list[Any], solution: list[Any], **kwargs: Any)" in text
    assert "PAID_ABSOLUTE = 0.5  # allowed difference" in text
    assert 'SHAPE_TAGS = ("think",)' in text
    assert r'WHOLE_EXPRESSION = r"\d+"' in text


def test_a_long_schema_is_written_over_several_lines() -> None:
    text = render_rewards([proposal("json_schema", schema=SCHEMA)])
    assert '    "properties": {\n        "name": {"type": "string"},\n' in text
    assert functions(proposal("json_schema", schema=SCHEMA))["PAID_SCHEMA"] == SCHEMA


@pytest.mark.parametrize(
    "column", ["texts", "text", "right", "given", "wanted", "a", "completion", "value", "solution"]
)
@pytest.mark.parametrize("template", ["exact", "numeric", "choice", "same_json", "mathematics", "trl_accuracy"])
def test_a_column_may_be_called_as_it_likes(template: str, column: str) -> None:
    function = functions(proposal(template, answer=column))["paid"]
    right = {"choice": "B", "exact": "blue", "same_json": "[1]"}.get(template, "\\boxed{4}")
    assert function(completions=[right, "no"], **{column: [right, right]}) == [1.0, 0.0]


@pytest.mark.parametrize(
    "choices",
    [
        [proposal("tags"), proposal("json_object")],
        [proposal("tags", tag="x")],
        [proposal("exact", answer="my answer")],
        [proposal("exact", answer="zip")],
        [Proposal(template="exact", name="class", weight=1.0, why="")],
        [Proposal(template="exact", name="text_of", weight=1.0, why="")],
        [Proposal(template="numeric", name="number", weight=1.0, why=""),
         Proposal(template="exact", name="number_of", weight=1.0, why="")],
        [Proposal(template="numeric", name="text", weight=1.0, why="")],
        [Proposal(template="exact", name="import os; f", weight=1.0, why="")],
        [Proposal(template="same_json", name="json", weight=1.0, why="")],
    ],
)  # fmt: skip
def test_what_would_not_be_sound_code_is_refused(choices: list[Proposal]) -> None:
    with pytest.raises(ValueError, match=r"one name|unknown parameters"):
        render_rewards(choices)


def test_every_template_says_its_range_and_what_can_be_set() -> None:
    for template in TEMPLATES.values():
        assert template.lowest < template.highest
        assert template.aspect in ("correct", "format", "style")
        assert template.pays.endswith(".")
        assert set(template.notes) <= set(template.parameters)
