"""Answers rest on facts; when a fact changes, the steps that rest on it are stale, and say which fact it was."""

from grpo_tui.draft import FACT_NAMES, RESTS_ON, STEPS, Draft, finish, stale

FACTS = {"gpus": "a", "model": "b", "data": "c", "rewards": "d", "samples": "e", "versions": "f", "settings": "g"}


def finished(*steps: str) -> Draft:
    draft = Draft()
    for step in steps:
        draft = finish(draft, step, "2026-01-01T00:00:00+00:00", FACTS)
    return draft


def test_nothing_is_stale_while_the_facts_hold() -> None:
    assert stale(finished(*STEPS), FACTS) == {}


def test_another_model_makes_stale_what_rests_on_it_in_the_order_of_the_steps() -> None:
    changed = stale(finished(*STEPS), {**FACTS, "model": "other"})
    assert list(changed) == ["model", "dataset", "settings", "review"]
    assert set(changed.values()) == {("model",)}


def test_a_stale_step_names_every_fact_that_changed() -> None:
    changed = stale(finished("settings"), {**FACTS, "gpus": "other", "versions": "other"})
    assert changed == {"settings": ("gpus", "versions")}


def test_a_step_that_is_not_done_cannot_be_stale() -> None:
    assert stale(finished("task"), {**FACTS, "gpus": "other"}) == {}


def test_a_fact_that_cannot_be_taken_now_makes_nothing_stale() -> None:
    assert stale(finished(*STEPS), {}) == {}


def test_doing_a_step_again_makes_it_fresh() -> None:
    new = {**FACTS, "gpus": "other"}
    draft = finish(finished("hardware"), "hardware", "2026-01-02T00:00:00+00:00", new)
    assert stale(draft, new) == {}
    assert draft.done["hardware"].at.startswith("2026-01-02")


def test_finishing_a_step_keeps_only_the_facts_it_rests_on() -> None:
    assert finished("hardware").done["hardware"].rests_on == {"gpus": "a"}


def test_every_step_says_what_it_rests_on_and_every_fact_has_a_word() -> None:
    assert set(RESTS_ON) == set(STEPS)
    assert {fact for facts in RESTS_ON.values() for fact in facts} == set(FACT_NAMES)
