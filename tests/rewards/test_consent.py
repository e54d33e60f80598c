"""When scoring needs the user's yes."""

from dataclasses import replace

import pytest

from grpo_tui.draft import Draft
from grpo_tui.rewards.consent import approval_needed, approve_score, score_fingerprint

CODE = b"def f(completions, **kwargs): ..."


@pytest.mark.parametrize(
    ("our_code", "own_data", "asked"),
    [(True, False, False), (True, True, True), (False, False, True), (False, True, True)],
)
def test_a_yes_is_needed_for_foreign_code_and_for_the_users_own_data(
    our_code: bool, own_data: bool, asked: bool
) -> None:
    needed = approval_needed(Draft(), CODE, "data-1", our_code=our_code, own_data=own_data)
    assert (needed is not None) is asked


def test_a_yes_holds_until_the_code_or_the_data_changes() -> None:
    needed = approval_needed(Draft(), CODE, "data-1", our_code=False, own_data=True)
    assert needed == score_fingerprint(CODE, "data-1")
    draft = replace(Draft(), approvals=(approve_score(needed, "2030-01-01T00:00:00Z", "rewards.py on rows.jsonl"),))
    assert approval_needed(draft, CODE, "data-1", our_code=False, own_data=True) is None
    assert approval_needed(draft, CODE + b" ", "data-1", our_code=False, own_data=True) is not None
    assert approval_needed(draft, CODE, "data-2", our_code=False, own_data=True) is not None


def test_a_yes_to_something_else_is_no_yes_to_scoring() -> None:
    needed = approval_needed(Draft(), CODE, "data-1", our_code=False, own_data=True)
    assert needed
    other = replace(approve_score(needed, "2030-01-01T00:00:00Z", ""), what="run")
    assert approval_needed(replace(Draft(), approvals=(other,)), CODE, "data-1", our_code=False, own_data=True)
