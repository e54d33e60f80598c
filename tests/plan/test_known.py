"""Planning without the hub: models known by name, and other plans beside the one asked for."""

from dataclasses import replace

import pytest

from grpo_tui.draft import SettingsAnswer
from grpo_tui.plan.alternatives import alternatives
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.known import CONFIGS, known_model
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.shape import read_shape
from grpo_tui.plan.tuning import Facts, tune
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts

BITS = frozenset({"bitsandbytes"})


def about(name: str, schema: Schema, gib: int) -> Facts:
    """A model of the table, by its name, on one card with everything installed."""
    model = known_model(name)
    assert model is not None
    return replace(facts("Qwen2.5-7B", schema, gib, packages=BITS), model=model)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-7B", 7_615_616_512),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", 8_030_261_248),
        ("meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824),
        ("google/gemma-2-2b-it", 2_614_341_888),
        ("microsoft/Phi-3.5-mini-instruct", 3_821_079_552),
        ("mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552),
        ("allenai/OLMo-2-1124-7B-Instruct", 7_298_617_344),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ],
)
def test_a_variant_is_known_by_the_name_of_its_shape(name: str, parameters: int) -> None:
    known = known_model(name)
    assert known is not None
    assert known.shape.parameters == parameters
    assert any("nothing was read from the hub" in note for note in known.notes)


@pytest.mark.parametrize("name", ["", "gpt2", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "team/Qwen2.5-7B-medical", "qwen"])
def test_another_model_is_not_taken_for_a_known_one(name: str) -> None:
    assert known_model(name) is None


def test_every_row_of_the_table_describes_a_model() -> None:
    for name, config in CONFIGS.items():
        assert not isinstance(read_shape(config), Problem), name


def test_other_plans_fit_the_card_and_differ_from_the_one_asked_for(schema: Schema) -> None:
    known = about("Qwen2.5-7B", schema, 24)
    asked = tune(draft(), known)
    assert isinstance(asked, Plan)
    others = alternatives(draft(), known)
    assert [other.name for other in others] == ["safest", "fastest", "largest"]
    marks = {asked.sha256, *(other.plan.sha256 for other in others)}
    assert len(marks) == 4
    for other in others:
        assert other.plan.memory is not None
        assert other.plan.memory.fits(other.plan.available_bytes), other.name
    safest, fastest, largest = others
    assert safest.plan.memory is not None
    assert asked.memory is not None
    assert safest.plan.memory.peak_bytes < asked.memory.peak_bytes
    assert fastest.plan.batch.per_device * fastest.plan.batch.steps_per_generation >= asked.batch.steps_per_generation
    assert largest.model.startswith("Qwen2.5-")


def test_the_largest_model_is_of_the_same_series_and_the_next_one_does_not_fit(schema: Schema) -> None:
    known = about("Qwen2.5-0.5B", schema, 24)
    (largest,) = (other for other in alternatives(draft(), known) if other.name == "largest")
    sizes = {name: known_model(name) for name in CONFIGS if name.startswith("Qwen2.5-")}
    chosen = sizes[largest.model]
    assert chosen is not None
    for name, bigger in sizes.items():
        if bigger is not None and bigger.shape.parameters > chosen.shape.parameters:
            found = tune(draft(), about(name, schema, 24))
            assert isinstance(found, list), name


def test_a_card_too_small_for_the_model_still_has_a_plan_that_fits_if_there_is_one(schema: Schema) -> None:
    known = about("Qwen2.5-7B", schema, 16)
    wish = replace(draft(), settings=SettingsAnswer(overrides={"grpo.per_device_train_batch_size": 64}))
    assert isinstance(tune(wish, known), list)
    others = alternatives(wish, known)
    assert others
    assert all(other.plan.batch.per_device < 64 for other in others)
