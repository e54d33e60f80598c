"""A function from the catalogue comes into a file of the user's without touching what is there."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.catalogue import TEMPLATES, Proposal, render_rewards
from grpo_tui.rewards.merging import free_name, merged, names_in

RECIPES = Path(__file__).parents[2] / "recipes"

MINE = '''"""My rewards."""

import re

LIMIT = 3  # mine


def mine(completions, **kwargs):
    # Commented by hand.
    return [float(len(re.findall("a", str(c))) > LIMIT) for c in completions]
'''


def rendered(key: str, name: str) -> str:
    return render_rewards([Proposal(template=key, name=name, weight=1.0, why="")])


@pytest.mark.parametrize("key", TEMPLATES)
def test_every_template_can_be_added_and_mine_stays_word_by_word(key: str) -> None:
    both = merged(MINE, rendered(key, "added"))
    assert isinstance(both, str), both
    compile(both, "rewards.py", "exec")
    assert {"mine", "added", "LIMIT"} <= names_in(both)
    body = MINE[MINE.index("LIMIT") :].strip()
    assert body in both
    namespace: dict[str, object] = {"__name__": "rewards"}
    exec(compile(both, "rewards.py", "exec"), namespace)
    assert callable(namespace["added"])


def test_helpers_that_two_functions_share_are_there_once() -> None:
    one = rendered("tags", "form")
    both = merged(one, rendered("length", "brevity"))
    assert isinstance(both, str)
    assert both.count("def text_of(") == 1
    assert both.count("from typing import Any") == 1


def test_pairs_of_templates_come_together_or_say_what_stands_in_the_way() -> None:
    for one, other in itertools.combinations(TEMPLATES, 2):
        both = merged(rendered(one, "first"), rendered(other, "second"))
        assert isinstance(both, str | Problem)
        if isinstance(both, str):
            compile(both, "rewards.py", "exec")


def test_another_thing_of_the_same_name_is_not_overwritten() -> None:
    both = merged("def text_of(x):\n    return 1\n", rendered("tags", "form"))
    assert isinstance(both, str)
    namespace: dict[str, Any] = {}
    exec(both, namespace)
    assert namespace["text_of"]("mine") == 1
    assert namespace["form"](["<reasoning>a</reasoning><answer>b</answer>", "b"]) == [1.0, 0.0]


@pytest.mark.parametrize("recipe", sorted(path.parent.name for path in RECIPES.glob("*/rewards.py")))
def test_every_function_of_the_catalogue_can_be_added_to_every_recipe(recipe: str) -> None:
    code = (RECIPES / recipe / "rewards.py").read_text()
    for template in TEMPLATES:
        both = merged(code, rendered(template, "added_here"))
        assert isinstance(both, str), (template, both)
        compile(both, "rewards.py", "exec")


def test_a_name_in_an_f_string_cannot_be_told_apart() -> None:
    clash = merged("def two():\n    return 1\n", 'def two():\n    return 2\n\n\ndef three():\n    return f"{two()}"\n')
    assert isinstance(clash, str | Problem)
    if isinstance(clash, str):
        namespace: dict[str, Any] = {}
        exec(clash, namespace)
        assert (namespace["two"](), namespace["three"]()) == (1, "2")


def test_a_file_that_cannot_be_read_is_left_alone() -> None:
    assert isinstance(merged("def broken(:\n", rendered("tags", "form")), Problem)


def test_an_empty_file_takes_all_of_it() -> None:
    assert merged("", rendered("tags", "form")) != ""
    assert free_name("mine", MINE) == "mine_2"
    assert free_name("new", MINE) == "new"
