"""A function from the catalogue comes into a file of the user's without touching what is there."""

import itertools

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.catalogue import TEMPLATES, Proposal, render_rewards
from grpo_tui.rewards.merging import free_name, merged, names_in

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
    clash = merged("def text_of(x):\n    return 1\n", rendered("tags", "form"))
    assert isinstance(clash, Problem)
    assert "text_of" in clash.what


def test_a_file_that_cannot_be_read_is_left_alone() -> None:
    assert isinstance(merged("def broken(:\n", rendered("tags", "form")), Problem)


def test_an_empty_file_takes_all_of_it() -> None:
    assert merged("", rendered("tags", "form")) != ""
    assert free_name("mine", MINE) == "mine_2"
    assert free_name("new", MINE) == "new"
