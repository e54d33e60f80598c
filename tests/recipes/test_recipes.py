"""The shipped recipes: each can be begun as it stands, pays for what it says, and names what is wrong with it."""

import importlib.util
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_tui import recipe
from grpo_tui.child import Worker
from grpo_tui.dataset.extraction import extraction
from grpo_tui.dataset.prompts import prepare_function
from grpo_tui.problem import Problem
from grpo_tui.recipe import Recipe
from grpo_tui.rewards.bench import ScoreRequest, ScoreTable, score
from grpo_tui.rewards.catalogue import TEMPLATES, render_rewards
from grpo_tui.rewards.probes import ProbeRequest, probe
from tests.recipes.hub_rows import ARC_DIGITS, ARC_LETTERS, GSM8K, GSM8K_THOUSANDS, MATH, MATH_FRACTION, MBPP

NAMES = tuple(folder.name for folder in recipe.folders())

HUB_ROWS = {"grade_school_maths": (GSM8K, GSM8K_THOUSANDS), "competition_maths": (MATH, MATH_FRACTION)}
"""Rows as the hub has them, the first of the split first."""


def shipped(name: str) -> Recipe:
    found = recipe.read(name)
    assert isinstance(found, Recipe), str(found)
    return found


def own(value: object) -> Mapping[str, Any]:
    assert isinstance(value, dict)
    return value


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A project begun with each recipe."""
    root = tmp_path_factory.mktemp("projects")
    for name in NAMES:
        assert not isinstance(written := recipe.materialise(shipped(name), root / name), Problem), str(written)
    return {name: root / name for name in NAMES}


@pytest.fixture(scope="session")
def prepared(projects: Mapping[str, Path]) -> Callable[[str], list[Mapping[str, Any]]]:
    """The rows of a recipe as a training gets them; of the hub's data, the ones written down here."""

    def rows(name: str) -> list[Mapping[str, Any]]:
        prepare, found = prepare_function(shipped(name).dataset), HUB_ROWS.get(name)
        if found is None:
            lines = (projects[name] / shipped(name).dataset.source).read_text(encoding="utf-8").splitlines()
            found = tuple(json.loads(line) for line in lines)
        made = [prepare(row) for row in found]
        assert None not in made
        return [row for row in made if row is not None]

    return rows


Prepared = Callable[[str], list[Mapping[str, Any]]]
Script = Callable[[str, str], ModuleType]


def scored(worker: Worker, name: str, texts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> ScoreTable:
    """What the rewards of a recipe pay for completions, each on a row of its own."""
    found = shipped(name)
    table = score(
        worker,
        ScoreRequest(
            path=found.rewards_file,
            names=tuple(item.name for item in found.rewards),
            weights=tuple(item.weight for item in found.rewards),
            completions=tuple(texts),
            prompts=tuple(row["prompt"] for row in rows),
            columns={column: [row[column] for row in rows] for column in rows[0] if column != "prompt"},
            timeout=30.0,
        ),
    )
    assert not isinstance(table, Problem), str(table)
    assert not table.blocking, table.problems
    return table


# ----------------------------------------------------------------------------------------------------------- as a whole


def test_there_is_a_recipe_for_every_usual_task() -> None:
    wanted = "grade_school_maths competition_maths multiple_choice json_extraction code_with_tests format_only own_data"
    assert {*wanted.split(), "reasoning_tags", "word_problems"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_it_is_for_and_what_it_is_not(name: str) -> None:
    found = shipped(name)
    assert len(found.title) <= 40
    assert len(found.summary) <= 120
    assert found.summary.endswith(".")
    assert found.systems
    assert found.dataset.system == found.systems[0].text
    assert {sample.expect for sample in found.samples} == {"high", "low"}
    assert all(sample.note for sample in found.samples)
    assert "## Rewards" in found.description
    for item in found.rewards:
        assert f"| `{item.name}` | {item.weight:g} |" in found.description
    if name != "word_problems":
        assert "not run by us" in found.description
        for heading in ("What it does not show", "Known to go wrong", "Meant for"):
            assert f"\n## {heading}\n" in found.description
        assert str(found.model) in found.description
        assert found.dataset.source in found.description or found.script is not None


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_exact_in_binary_and_being_right_outweighs_the_rest(name: str) -> None:
    first, *others = shipped(name).rewards
    assert first.name == ("format" if name == "format_only" else "correct")
    assert all(item.weight.as_integer_ratio()[1] in (1, 2, 4, 8) for item in (first, *others))
    assert sum(item.weight for item in others) < first.weight


def written_rewards() -> ModuleType:
    path = Path(__file__).with_name("reward_files.py")
    spec = importlib.util.spec_from_file_location("reward_files", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [name for name in NAMES if name != "word_problems"])
def test_the_rewards_are_what_the_catalogue_writes_today_and_need_nothing_of_ours(name: str) -> None:
    choices = written_rewards().REWARDS[name]
    found = shipped(name)
    assert found.rewards_file.read_text(encoding="utf-8") == render_rewards(choices), (
        "run tests/recipes/reward_files.py"
    )
    assert [(each.name, each.weight) for each in choices] == [(item.name, item.weight) for item in found.rewards]
    assert "grpo_tui" not in found.rewards_file.read_text(encoding="utf-8")
    for needed in (TEMPLATES[each.template].needs for each in choices):
        assert f"pip install {needed}" in found.description if needed else True


def test_the_page_on_own_data_names_templates_and_recipes_that_there_are() -> None:
    lines = re.findall(
        r"^ +\| [^|`]+ \| ([^|]+) \| (?:\*(.+)\*|this one|none) \|$", shipped("own_data").description, re.M
    )
    titles = {template.title for template in TEMPLATES.values()}
    assert len(lines) == 7
    assert {template.partition(",")[0] for template, _ in lines} <= titles
    assert all(any(shipped(name).title.startswith(title) for name in NAMES) for _, title in lines)


# ------------------------------------------------------------------------------------------------------------- settings


def test_the_installed_trl_takes_the_settings_of_every_recipe(introspect: Worker) -> None:
    requests = []
    for name in NAMES:
        settings = {key: advice.value for key, advice in shipped(name).grpo.items()}
        completions = settings["num_generations"]
        settings = {"per_device_train_batch_size": completions, "use_cpu": True, "bf16": False, **settings}
        requests.append({"settings": settings, "world_size": 1, "ampere": False, "lora": {}})
    answer = introspect.call("construct", {"requests": requests})
    assert not isinstance(answer, Problem), str(answer)
    for name, result in zip(NAMES, answer["results"], strict=True):
        assert "error" not in result, (name, result)
        assert result["mistyped"] == {}, name


def test_penalties_near_the_largest_length_begin_before_it() -> None:
    maths = shipped("competition_maths")
    (largest,) = re.findall(r"^OVERLONG_LARGEST = (\d+)", maths.rewards_file.read_text(encoding="utf-8"), re.M)
    assert int(largest) == maths.grpo["max_completion_length"].value


# -------------------------------------------------------------------------------------------------------------- rewards


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_earn_what_the_recipe_says(name: str, worker: Worker, prepared: Prepared) -> None:
    found, rows = shipped(name), prepared(name)
    table = scored(worker, name, [each.text for each in found.samples], [rows[each.row] for each in found.samples])
    names = {item.name for item in found.rewards}
    penalties = {"overlong", "style"} & names
    most = sum(item.weight for item in found.rewards if item.name not in penalties)
    form = most - found.rewards[0].weight
    lowest_high = 0.9 * most
    for sample, earned in zip(found.samples, table.weighted, strict=True):
        assert earned is not None
        assert earned >= lowest_high if sample.expect == "high" else earned <= 0.1 * most + form, sample


@pytest.mark.parametrize("name", NAMES)
def test_what_the_probes_find_paid_wrongly_is_named_on_the_page(name: str, worker: Worker, prepared: Prepared) -> None:
    found = shipped(name)
    table = probe(
        worker,
        ProbeRequest(
            path=found.rewards_file,
            names=tuple(item.name for item in found.rewards),
            weights=tuple(item.weight for item in found.rewards),
            rows=tuple(prepared(name)[:8]),
            attacked=2,
            system=found.dataset.system,
            timeout=30.0,
        ),
    )
    assert not isinstance(table, Problem), str(table)
    paid_wrongly = {each.probe.kind for each in table.probes if each.verdict == "paid wrongly"}
    assert {kind for kind in paid_wrongly if f"`{kind}`" not in found.description} == set(), table.sentence
    assert not [each for each in table.probes if each.verdict == "not scored"]
    if name != "code_with_tests":  # its right answers are tests, which no probe can answer
        assert {each.verdict for each in table.probes if each.probe.kind == "right"} == {"sound"}


def test_paying_for_the_format_alone_pays_whoever_keeps_it(worker: Worker, prepared: Prepared) -> None:
    well_formed = "<reasoning>no</reasoning><answer>no</answer>"
    table = scored(worker, "format_only", ["10", well_formed], prepared("format_only")[:1] * 2)
    assert table.rewards == ((0.0, 1.0), (1.0, 0.0))
    assert table.weighted == (0.0, 1.0)


def test_the_figures_against_the_usual_code_are_measured(worker: Worker, prepared: Prepared) -> None:
    right = "<reasoning>So it is Thursday.</reasoning><answer>Thursday</answer>"
    junk = "junk " * 400
    completions = {
        "as asked": right,
        "tags the wrong way round": "</reasoning>So it is<reasoning></answer>Thursday is the day<answer>",
        "empty tags": "<reasoning></reasoning><answer></answer>",
        "as asked, then 2,000 characters of junk": right + junk,
        "the same, and one more `</answer>`": right + junk + "</answer>",
        "50 blocks": right * 50,
    }
    rows = prepared("reasoning_tags")[:1] * len(completions)
    table = scored(worker, "reasoning_tags", list(completions.values()), rows)
    for (title, text), (_, strict, steps, _) in zip(completions.items(), table.rewards, strict=True):
        usual, searched = quarter_for_each_tag(text), float(bool(USUAL.search(text)))
        assert strict is not None
        assert steps is not None
        figures = f"{usual:.2f} | {searched:g} | {strict:g} | {steps:g}".replace("-", "−")
        assert f"| {title} | {figures} |" in shipped("reasoning_tags").description


USUAL = re.compile(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", re.DOTALL)


def quarter_for_each_tag(text: str) -> float:
    """The usual incremental reward: 0.25 for each tag anywhere, 0.001 less for each character behind the last one."""
    found = sum(0.25 for tag in ("<reasoning>", "</reasoning>", "<answer>", "</answer>") if tag in text)
    behind = text.split("</answer>")[-1] if "</answer>" in text else ""
    return found - 0.001 * len(behind)


# ----------------------------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize("name", [name for name in NAMES if shipped(name).script is not None])
def test_made_data_are_the_same_each_time_and_ask_nothing_twice(
    name: str, projects: Mapping[str, Path], tmp_path: Path, prepared: Prepared
) -> None:
    source = shipped(name).dataset.source
    assert recipe.materialise(shipped(name), tmp_path) == ["rewards.py", source]
    assert (tmp_path / source).read_bytes() == (projects[name] / source).read_bytes()
    asked = [json.dumps(row["prompt"]) for row in prepared(name)]
    assert len(set(asked)) == len(asked) >= 100


def test_the_answers_of_hub_rows_are_taken_out_of_their_solutions(prepared: Prepared) -> None:
    assert [row["answer"] for row in prepared("grade_school_maths")] == ["72", "1200"]
    assert [row["answer"] for row in prepared("competition_maths")] == ["0", r"\frac{1}{2}"]
    for name, rows in HUB_ROWS.items():
        found = extraction(rows, shipped(name).dataset)
        assert not isinstance(found, Problem)
        assert found.found_count == 2
        system, user = prepared(name)[0]["prompt"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert user["content"] == rows[0][shipped(name).dataset.prompt]


def test_hub_data_with_several_configurations_are_asked_for_by_one() -> None:
    assert shipped("grade_school_maths").dataset.options == {"config": "main"}
    assert shipped("word_problems").dataset.options == {}


def test_a_file_has_no_configurations(tmp_path: Path) -> None:
    text = (recipe.shipped() / "own_data" / "recipe.toml").read_text(encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(text.replace("[data]", '[data]\nconfig = "main"'), encoding="utf-8")
    found = recipe.read(tmp_path)
    assert isinstance(found, Problem)
    assert found.where.endswith("data.config")


def test_rows_of_arc_become_questions_that_show_their_options(script: Script, worker: Worker) -> None:
    converted = script("multiple_choice", "from_arc.py").converted
    made = [converted(row) for row in (ARC_LETTERS, ARC_DIGITS)]
    assert [row["answer"] for row in made] == ["B", "C"]
    assert made[0]["question"].endswith("?\nA) carbon dioxide\nB) food\nC) protection\nD) water")
    prepare = prepare_function(shipped("multiple_choice").dataset)
    rows = [own(prepare(row)) for row in made]
    texts = [f"<reasoning>So.</reasoning><answer>{answer}</answer>" for answer in ("B) food", "how they formed")]
    assert scored(worker, "multiple_choice", texts, rows).weighted == (1.125, 1.125)


def test_a_row_of_mbpp_shows_one_test_and_hides_the_others(script: Script, worker: Worker) -> None:
    made = script("code_with_tests", "from_mbpp.py").converted(MBPP)
    assert "min_cost([[1, 2, 3], [4, 8, 2], [1, 5, 3]], 2, 2) == 8" in made["question"]
    assert made["tests"] == MBPP["test_list"][1:]  # type: ignore[index]
    row = own(prepare_function(shipped("code_with_tests").dataset)(made))
    by_heart = "def min_cost(cost, m, n):\n    return 8"
    texts = [f"```python\n{code.strip()}\n```" for code in (made["solution"], by_heart)]
    assert scored(worker, "code_with_tests", texts, [row, row]).weighted == (1.125, 0.125)


def test_every_kind_of_programming_task_has_a_solution_that_passes_its_tests(
    worker: Worker, prepared: Prepared
) -> None:
    kinds = {re.sub(r"\d+", "", str(row["solution"]).partition("(")[0]): row for row in prepared("code_with_tests")}
    assert len(kinds) == 12
    rows = list(kinds.values())
    texts = [f"```python\n{str(row['solution']).strip()}\n```" for row in rows]
    assert set(scored(worker, "code_with_tests", texts, rows).weighted) == {1.125}
    assert all(str(test) not in str(row["prompt"]) for row in rows for test in row["tests"])


def test_every_order_of_the_json_recipe_is_paid_when_read_rightly(worker: Worker, prepared: Prepared) -> None:
    rows = prepared("json_extraction")[:24]
    assert set(scored(worker, "json_extraction", [row["answer"] for row in rows], rows).weighted) == {1.25}
    for row in rows:
        message, order = row["prompt"][-1]["content"], json.loads(row["answer"])
        assert all(order[key] in message for key in ("name", "item", "city"))


def test_sums_come_out_as_their_answers_say(prepared: Prepared) -> None:
    for row in prepared("format_only"):
        a, b, c = map(int, re.findall(r"\d+", row["prompt"][-1]["content"]))
        assert int(row["answer"]) == a + b - c


def test_puzzles_have_one_solution_and_it_is_the_answer(prepared: Prepared) -> None:
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    for row in prepared("reasoning_tags"):
        question = row["prompt"][-1]["content"]
        if found := re.match(r"Today is (\w+)\. Which day of the week (is|was) it (?:in )?(\d+) days", question):
            step = int(found[3]) * (1 if found[2] == "is" else -1)
            assert row["answer"] == days[(days.index(found[1]) + step) % 7]
            continue
        pairs = [(a, b) for a, b in re.findall(r"(\w+) is taller than (\w+)", question)]
        pairs += [(b, a) for a, b in re.findall(r"(\w+) is shorter than (\w+)", question)]
        people = sorted({person for pair in pairs for person in pair})
        (order,) = (
            each for each in itertools.permutations(people) if all(each.index(a) < each.index(b) for a, b in pairs)
        )
        place = {"the tallest": 0, "the second tallest": 1, "the shortest": -1}[
            question[question.index("Who is ") + 7 : -1]
        ]
        assert row["answer"] == order[place]


def test_the_letter_is_that_of_the_one_right_option_and_no_letter_is_a_favourite(prepared: Prepared) -> None:
    rows = prepared("multiple_choice")
    letters = [row["answer"] for row in rows]
    assert all(0.18 <= letters.count(letter) / len(letters) <= 0.32 for letter in "ABCD")
    for row in rows:
        question, *shown = row["prompt"][-1]["content"].split("\n")
        assert shown == [f"{letter}) {text}" for letter, text in zip("ABCD", row["options"], strict=True)]
        assert len(set(row["options"])) == 4
        if found := re.search(r"divided by (\d+)", question):
            fitting = [
                letter for letter, text in zip("ABCD", row["options"], strict=True) if int(text) % int(found[1]) == 0
            ]
            assert fitting == [row["answer"]]
