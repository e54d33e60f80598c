"""Other plans beside the one asked for: better at what they are named for, and made of as few answers as can be."""

from dataclasses import replace
from typing import Any

import pytest

from grpo_tui.plan.alternatives import Alternative, alternatives, asked_for
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.known import known_model
from grpo_tui.plan.situation import Advice, Facts
from grpo_tui.plan.tuning import tune
from tests.plan.plans import draft, facts, preferring

BITS = frozenset({"bitsandbytes"})


def about(name: str, schema: Schema, gib: int, **more: Any) -> Facts:
    """A model of the table, by its name, on one card with everything installed."""
    model = known_model(name)
    assert model is not None
    return replace(facts("Qwen2.5-7B", schema, gib, packages=BITS, **more), model=model)


def named(answers: Any, known: Facts) -> dict[str, Alternative]:
    return {other.name: other for other in alternatives(answers, known)}


CARELESS = {
    "per_device_train_batch_size": Advice(value=64, why="So."),
    "activation_checkpointing": Advice(value=False, why="So."),
    "generation_batch_size": Advice(value=64, why="So."),
}
WORLDS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Qwen2.5-7B", 24, {}),
    ("Qwen2.5-0.5B", 80, {}),
    ("Qwen2.5-0.5B", 0, {}),
    ("Qwen2.5-7B", 24, {"recipe": CARELESS}),
    ("Qwen2.5-7B", 80, {"gpus": 4}),
)


@pytest.mark.parametrize(("name", "gib", "more"), WORLDS)
def test_the_answers_of_a_plan_give_it_and_fit(name: str, gib: int, more: dict[str, Any], schema: Schema) -> None:
    known = about(name, schema, gib, **more)
    asks = (draft(), draft(grpo__beta=0.04, grpo__per_device_train_batch_size=1), preferring(draft(), "speed"))
    seen = 0
    for answers in asks:
        for other in alternatives(answers, known):
            model = known_model(other.model) if other.model else known.model
            assert model is not None
            again = tune(other.answers, replace(known, model=model))
            assert not isinstance(again, list), again
            assert again.sha256 == other.plan.sha256
            assert other.footing.fits is True
            assert other.answers.settings.overrides.get("grpo.beta") == answers.settings.overrides.get("grpo.beta")
            assert other.gains or other.name == "tuned"
            seen += 1
    assert seen >= 2


def test_without_a_recipe_nothing_is_set_by_hand(schema: Schema) -> None:
    found = named(draft(), about("Qwen2.5-7B", schema, 24))
    assert found.keys() == {"safest", "fastest", "largest"}
    assert [dict(other.answers.settings.overrides) for other in found.values()] == [{}, {}, {}]
    assert found["safest"].answers.model.method == "qlora"
    assert found["fastest"].answers.model.method == ""  # the tuning takes LoRA by itself
    assert found["fastest"].answers.settings.prefer == "speed"


def test_a_recipes_careless_values_give_way_in_the_answers(schema: Schema) -> None:
    known = about("Qwen2.5-7B", schema, 24, recipe=CARELESS)
    assert asked_for(draft(), known) is None
    found = named(draft(), known)
    safest = found["safest"]
    assert safest.gains == ("it fits",)
    assert safest.answers.settings.overrides["grpo.activation_checkpointing"] is True
    assert safest.plan.value("grpo.activation_checkpointing") is True
    assert safest.plan.batch.per_device < 64


def test_what_was_set_by_hand_can_be_given_back(schema: Schema) -> None:
    known = about("Qwen2.5-7B", schema, 80)
    answers = draft(grpo__per_device_train_batch_size=1, grpo__beta=0.04)
    tuned = named(answers, known)["tuned"]
    assert dict(tuned.answers.settings.overrides) == {"grpo.beta": 0.04}
    plain = tune(draft(grpo__beta=0.04), known)
    assert not isinstance(plain, list)
    assert tuned.plan.sha256 == plain.sha256
    assert "tuned" not in named(draft(grpo__beta=0.04), known)


def test_no_plan_is_called_safe_or_fast_that_is_not(schema: Schema) -> None:
    known = about("Qwen2.5-0.5B", schema, 80)
    tight = replace(draft(grpo__per_device_train_batch_size=1), model=replace(draft().model, method="qlora"))
    now = asked_for(tight, known)
    assert now is not None
    for other in alternatives(tight, known):
        assert other.name != "safest" or other.footing.peak_bytes < now.footing.peak_bytes
    loose = preferring(draft(), "speed")
    assert "fastest" not in named(loose, known)
    assert "fastest" in named(draft(), known)


def test_what_is_gained_and_paid_is_told_with_its_figures(schema: Schema) -> None:
    found = named(draft(), about("Qwen2.5-7B", schema, 24))
    assert any("GiB more room" in gain for gain in found["safest"].gains)
    assert any("rounded to 4 bit" in price for price in found["safest"].pays)
    assert any("GiB less room" in price for price in found["fastest"].pays)
    assert any("billion parameters, not 7.6" in gain for gain in found["largest"].gains)
    assert found["largest"].proposed_name("Qwen/Qwen2.5-7B-Instruct") == f"Qwen/{found['largest'].model}-Instruct"
    assert found["largest"].proposed_name("/models/mine") == found["largest"].model


def test_a_plan_that_does_not_stand_the_checks_is_left_out(schema: Schema) -> None:
    known = about("Qwen2.5-7B", schema, 24)
    found = alternatives(draft(), known, lambda plan, facts: plan.method != "qlora")
    assert found
    assert all(other.plan.method != "qlora" for other in found)
