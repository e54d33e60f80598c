"""Plans fit, are legal, and say why; what the user and a recipe set goes before the rules."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.draft import HardwareAnswer
from grpo_tui.plan.checks import check
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.known import _config
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.plan import SOURCES, Plan
from grpo_tui.plan.rules import RULES
from grpo_tui.plan.shape import ModelShape, read_shape
from grpo_tui.plan.situation import Advice
from grpo_tui.plan.tuning import tune
from grpo_tui.problem import Problem
from tests.plan.plans import draft, facts, planned, preferring
from tests.plan.shapes import CONFIGS

BITS = frozenset({"bitsandbytes"})


def problems(found: Plan | list[Problem]) -> list[Problem]:
    assert isinstance(found, list), found
    assert found
    return found


def test_every_value_says_what_it_does_why_and_where_the_reason_comes_from(schema: Schema) -> None:
    for known in (facts("Qwen2.5-7B", schema, 24, packages=BITS), facts("SmolLM2-135M", schema)):
        plan = planned(draft(), known)
        for setting in plan.settings:
            assert setting.what.endswith("."), setting
            assert setting.why.endswith("."), setting
            assert setting.source in SOURCES, setting
        assert {f"grpo.{key}" for key in plan.section("grpo")} <= {f"grpo.{key}" for key in schema.fields}
        assert len({setting.key for setting in plan.settings}) == len(plan.settings)


def test_a_sweep_of_models_and_cards_gives_plans_that_fit_and_construct_or_a_way_out(
    schema: Schema, introspect: Worker
) -> None:
    requests: list[dict[str, Any]] = []
    fitting = refused = 0
    sizes, counts = (12, 16, 24, 40, 80, 141), (1, 2, 3, 8)
    for name, gib, gpus, prefer in itertools.product(CONFIGS, sizes, counts, ("memory", "speed")):
        found = tune(preferring(draft(), prefer), facts(name, schema, gib, gpus=gpus, packages=BITS))
        if isinstance(found, list):
            refused += 1
            assert all("GiB" in problem.what and problem.remedy for problem in found), found
            continue
        fitting += 1
        assert found.memory is not None
        assert found.memory.fits(int(gib * GIB))
        assert found.batch.generation_batch % found.batch.generations == 0
        assert found.world_size == gpus
        assert check(found, rows=1000, installed=BITS) == []
        requests.append({"settings": found.section("grpo"), "world_size": gpus, "ampere": True})
    answer = introspect.call("construct", {"requests": requests[::4]})
    assert not isinstance(answer, Problem)
    assert [result for result in answer["results"] if "error" in result] == []
    assert fitting > 400
    assert refused > 20


def test_memory_and_speed_give_different_values_and_both_fit(schema: Schema) -> None:
    known = facts("Qwen2.5-7B", schema, 24)
    memory, speed = (planned(preferring(draft(), prefer), known) for prefer in ("memory", "speed"))
    assert memory.memory is not None
    assert speed.memory is not None
    assert memory.batch.per_device < speed.batch.per_device
    assert memory.memory.peak_bytes < speed.memory.peak_bytes <= 24 * GIB
    assert memory.batch.completions_per_step == speed.batch.completions_per_step  # the same learning


@pytest.mark.parametrize(
    ("model", "gib", "packages", "method"),
    [
        ("SmolLM2-135M", 24, BITS, "full"),
        ("Qwen2.5-7B", 24, BITS, "lora"),
        ("Qwen2.5-7B", 12, BITS, "qlora"),
        ("Qwen2.5-14B", 24, BITS, "qlora"),
    ],
)
def test_the_method_follows_from_the_memory(
    schema: Schema, model: str, gib: float, packages: frozenset[str], method: str
) -> None:
    plan = planned(draft(), facts(model, schema, gib, packages=packages))
    assert plan.method == method
    assert bool(plan.section("lora")) == (method != "full")
    assert plan.value("model.load_in_4bit", False) == (method == "qlora")


def test_the_learning_rate_follows_from_what_is_trained(schema: Schema) -> None:
    big, small = facts("Qwen2.5-1.5B", schema, 80), facts("SmolLM2-135M", schema, 80)
    full = replace(draft(), model=replace(draft().model, method="full"))
    rates = [planned(answers, known).value("grpo.learning_rate") for answers, known in ((draft(), big), (full, small))]
    assert rates == [1e-5, 1e-6]
    tiny = read_shape({**CONFIGS["SmolLM2-135M"], "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 600})
    assert isinstance(tiny, ModelShape)
    assert planned(draft(), facts(tiny, schema)).value("grpo.learning_rate") == 5e-5


@pytest.mark.parametrize(
    ("capability", "gib", "flags"),
    [((8, 0), 80, (True, False)), ((7, 5), 16, (False, True)), (None, 24, (True, False)), ((8, 0), 0, (False, False))],
)
def test_the_number_type_follows_from_the_card(
    schema: Schema, capability: tuple[int, int] | None, gib: float, flags: tuple[bool, bool]
) -> None:
    plan = planned(draft(), facts("Qwen2.5-0.5B", schema, gib, capability=capability))
    assert (plan.value("grpo.bf16"), plan.value("grpo.fp16")) == flags
    assert plan.value("model.dtype") == {(8, 0): "bfloat16", (7, 5): "float16"}.get(capability or (8, 0)) or not gib
    assert plan.value("grpo.use_cpu") == (not gib)


def test_on_the_cpu_nothing_of_a_gpu_is_left(schema: Schema) -> None:
    plan = planned(draft(), facts("SmolLM2-135M", schema))
    assert plan.cpu
    assert plan.value("model.dtype") == "float32"
    assert plan.value("grpo.dataloader_pin_memory") is False
    assert plan.value("launch.gpus") is None
    assert plan.memory is not None
    assert plan.memory.place == "RAM"
    assert plan.memory.estimate


def test_what_the_monitor_needs_is_always_set(schema: Schema) -> None:
    plan = planned(draft(), facts("Qwen2.5-7B", schema, 80))
    assert plan.value("grpo.logging_steps") == 1
    assert plan.value("grpo.logging_nan_inf_filter") is False
    assert plan.value("grpo.log_completions") is True
    assert plan.value("grpo.num_completions_to_print") == 0
    assert plan.value("grpo.report_to") == "none"
    assert plan.value("grpo.disable_tqdm") is True


def test_the_user_goes_before_the_recipe_and_the_recipe_before_the_rules(schema: Schema) -> None:
    recipe = {
        "learning_rate": Advice(value=1e-4, why="Measured on this model."),
        "temperature": Advice(value=0.9, why="It is a small model."),
        "max_steps": Advice(value=240, why="Enough."),
    }
    known = facts("Qwen2.5-7B", schema, 80, recipe=recipe)
    plan = planned(draft(grpo__temperature=0.7), known)
    settings = {setting.key: setting for setting in plan.settings}
    assert (settings["grpo.temperature"].value, settings["grpo.temperature"].source) == (0.7, "set by you")
    assert (settings["grpo.learning_rate"].value, settings["grpo.learning_rate"].source) == (1e-4, "recipe")
    assert settings["grpo.learning_rate"].why == "Measured on this model."
    assert plan.total_steps == 240
    assert plan.value("grpo.num_train_epochs") is None
    epochs = planned(draft(grpo__num_train_epochs=3.0), known)
    assert epochs.value("grpo.max_steps") is None
    assert epochs.total_steps > 240


def test_what_a_recipe_says_in_another_versions_words_is_translated_or_said_to_be_left_out(schema: Schema) -> None:
    recipe = {
        "gradient_checkpointing": Advice(value=False, why="It is small."),
        "wandb_log_unique_prompts": Advice(value=True, why="To read them."),
        "max_prompt_length": Advice(value=256, why="They are short."),
        "vllm_device": Advice(value="cuda:1", why="The other card."),
        "output_dir": Advice(value="out", why="There."),
        "tempature\x1b[31m": Advice(value=0.9, why="A slip."),
    }
    plan = planned(draft(), facts("Qwen2.5-7B", schema, 80, recipe=recipe))
    sources = {setting.key: (setting.value, setting.source) for setting in plan.settings}
    assert sources["grpo.activation_checkpointing"] == (False, "recipe")
    assert sources["grpo.log_unique_prompts"] == (True, "recipe")
    said = [note for note in plan.notes if note.startswith("The recipe's")]
    assert len(said) == len(recipe)
    assert any("wandb_log_unique_prompts is written as log_unique_prompts." in note for note in said)
    left_out = [note for note in said if "is left out" in note]
    assert [note.split()[2] for note in left_out[:3]] == ["max_prompt_length", "vllm_device", "output_dir"]
    assert "leaves long ones out" in left_out[0]
    assert all("\x1b" not in note for note in plan.notes)


def test_a_recipe_that_says_a_thing_in_old_and_new_words_means_the_new(schema: Schema) -> None:
    recipe = {
        "log_unique_prompts": Advice(value=False, why="New."),
        "wandb_log_unique_prompts": Advice(value=True, why="Old."),
    }
    plan = planned(draft(), facts("Qwen2.5-7B", schema, 80, recipe=recipe))
    assert plan.value("grpo.log_unique_prompts") is False


def test_a_value_that_is_set_is_planned_around(schema: Schema) -> None:
    plan = planned(draft(grpo__num_generations=6), facts("Qwen2.5-7B", schema, 80, gpus=4))
    assert plan.batch.generations == 6
    assert plan.batch.generation_batch % 6 == 0
    plan = planned(draft(grpo__per_device_train_batch_size=3), facts("Qwen2.5-7B", schema, 80))
    assert (plan.batch.per_device, plan.batch.generation_batch % 8) == (3, 0)
    plan = planned(draft(grpo__generation_batch_size=16), facts("Qwen2.5-7B", schema, 80))
    assert plan.batch.generation_batch == 16


def test_a_number_of_processes_that_is_set_counts_in_the_batch(schema: Schema) -> None:
    plan = planned(draft(launch__processes=2), facts("SmolLM2-135M", schema))
    assert (plan.world_size, plan.batch.world, plan.value("launch.processes")) == (2, 2, 2)
    plan = planned(draft(launch__processes=2), facts("Qwen2.5-7B", schema, 80, gpus=4))
    assert plan.world_size == 2
    assert len(plan.value("launch.gpus")) == 2
    (problem,) = problems(tune(draft(launch__processes=8), facts("Qwen2.5-7B", schema, 80, gpus=4)))
    assert "4 are chosen" in problem.what


def test_what_is_left_to_the_library_is_planned_with_its_default(schema: Schema) -> None:
    left = {
        f"grpo__{name}": "library default"
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "beta")
    }
    plan = planned(draft(**left, grpo__no_more="library default"), facts("Qwen2.5-0.5B", schema, 80))
    assert (plan.batch.per_device, plan.batch.accumulation, plan.batch.steps_per_generation) == (8, 1, 1)
    assert plan.value("grpo.steps_per_generation") is None
    assert plan.value("grpo.beta") == 0.0
    assert plan.value("grpo.no_more") is None  # the library has no such key any more
    one = planned(draft(grpo__num_generations=2, **left), facts("Qwen2.5-0.5B", schema, 80))
    assert one.memory is not None
    assert any("8 sequences" in part.what for part in one.memory.parts_by_phase["generate"])


def test_steps_in_place_of_epochs_say_the_length_alone(schema: Schema) -> None:
    answers = draft(grpo__num_train_epochs="library default", grpo__max_steps=100)
    plan = planned(answers, facts("Qwen2.5-7B", schema, 80))
    assert (plan.value("grpo.max_steps"), plan.value("grpo.num_train_epochs"), plan.total_steps) == (100, None, 100)


def test_a_number_without_a_rule_is_taken_with_the_librarys_own_words(schema: Schema) -> None:
    plan = planned(draft(grpo__weight_decay=0.1, lora__use_rslora=True), facts("Qwen2.5-7B", schema, 80))
    setting = plan.setting("grpo.weight_decay")
    assert setting is not None
    assert setting.value == 0.1
    assert "decay" in setting.what.lower()
    assert plan.section("lora")["use_rslora"] is True


@pytest.mark.parametrize(
    ("overrides", "where", "words"),
    [
        ({"grpo__num_generations": 1}, "grpo.num_generations", "2 at the least"),
        ({"grpo__num_generation": 8}, "grpo.num_generation", "Did you mean num_generations?"),
        ({"grpo__loss_type": "drgrpo"}, "grpo.loss_type", "Did you mean dr_grpo?"),
        ({"grpo__max_prompt_length": 512}, "grpo.max_prompt_length", "Leave it out"),
        ({"grpo__max_completion_length": 0}, "grpo.max_completion_length", "such as 512"),
        ({"grpo__max_completion_length": 40000}, "grpo.max_completion_length", "32568 or less"),
        ({"lora__rr": 1}, "lora.rr", "Leave it out"),
        ({"model__size": 1}, "model.size", "Leave it out"),
        ({"nonsense": 1}, "nonsense", "Leave it out"),
        ({"launch__processes": 0}, "launch.processes", "such as 1"),
        (
            {
                "grpo__per_device_train_batch_size": 4,
                "grpo__gradient_accumulation_steps": 1,
                "grpo__num_generations": 6,
            },
            "grpo.num_generations",
            "gradient_accumulation_steps = 3",
        ),
        ({"grpo__per_device_train_batch_size": "many"}, "grpo.per_device_train_batch_size", "such as 1"),
    ],
)
def test_a_wish_that_cannot_be_is_answered_with_what_can(
    schema: Schema, overrides: dict[str, Any], where: str, words: str
) -> None:
    found = problems(tune(draft(**overrides), facts("Qwen2.5-7B", schema, 80)))
    assert any(problem.where == where and words in problem.remedy for problem in found), found


def test_a_plan_too_large_for_the_card_is_refused_with_the_changes_that_make_it_fit(schema: Schema) -> None:
    """Each with what it frees, and none without which the others do."""
    (wide,) = problems(
        tune(draft(grpo__per_device_train_batch_size=256), facts("Qwen2.5-7B", schema, 24, packages=BITS))
    )
    assert re.search(r"per_device_train_batch_size = \d+, .*\(frees \d+\.\d GiB\)", wide.remedy)
    full = replace(draft(), model=replace(draft().model, method="full"))
    (weights,) = problems(tune(full, facts("Qwen2.5-7B", schema, 24)))
    assert re.fullmatch(r"This makes it fit: a LoRA adapter.* \(frees \d+\.\d GiB\)\.", weights.remedy)
    (packing,) = problems(tune(draft(), facts("Qwen2.5-14B", schema, 24)))
    assert "QLoRA (4 bit)" in packing.remedy
    assert "after pip install bitsandbytes" in packing.remedy
    (hopeless,) = problems(tune(draft(), facts("Qwen2.5-32B", schema, 12, packages=BITS)))
    assert "smaller model" in hopeless.remedy


def test_the_changes_that_a_refusal_names_make_the_plan_fit(schema: Schema) -> None:
    answers = draft(grpo__per_device_train_batch_size=256, grpo__max_completion_length=2048)
    (refused,) = problems(tune(answers, facts("Qwen2.5-7B", schema, 24, packages=BITS)))
    changes = {f"grpo.{key}": int(value) for key, value in re.findall(r"(\w+) = (\d+)", refused.remedy)}
    method = "qlora" if "QLoRA" in refused.remedy else answers.model.method
    settings = replace(answers.settings, overrides={**answers.settings.overrides, **changes})
    mended = replace(answers, settings=settings, model=replace(answers.model, method=method))
    assert planned(mended, facts("Qwen2.5-7B", schema, 24, packages=BITS)).memory


def test_a_card_typed_by_hand_is_planned_for_and_named_as_such(schema: Schema) -> None:
    typed = HardwareAnswer(manual_name="T4", manual_bytes=15 * GIB, manual_count=2, manual_capability="7.5")
    plan = planned(replace(draft(), hardware=typed), facts("Qwen2.5-1.5B", schema))
    assert (plan.world_size, plan.capability, plan.value("grpo.fp16")) == (2, (7, 5), True)
    assert plan.value("launch.gpus") is None
    assert any("typed by hand" in note for note in plan.notes)
    wrong = replace(draft(), hardware=replace(typed, manual_capability="new"))
    (problem,) = problems(tune(wrong, facts("Qwen2.5-1.5B", schema)))
    assert "8.0" in problem.remedy


def test_memory_that_gpu_and_cpu_share_is_planned_with_a_larger_reserve(schema: Schema) -> None:
    own = facts("Qwen2.5-7B", schema, 113, capability=(12, 1))
    spark = replace(own.cards[0], name="NVIDIA GB10", total_bytes=int(121.7 * GIB), unified=True)
    plan = planned(draft(), replace(own, cards=(spark,)))
    assert plan.memory is not None
    assert plan.available_bytes == spark.free_bytes - int(0.1 * spark.total_bytes)  # type: ignore[operator]
    assert plan.memory.fits(plan.available_bytes)
    (note,) = [note for note in plan.notes if "share" in note]
    assert "of 113.0 GiB free, 12.2 GiB are left to the system" in note
    assert planned(draft(), own).available_bytes == own.cards[0].free_bytes


def test_a_small_board_with_shared_memory_keeps_two_gibibytes_free(schema: Schema) -> None:
    known = facts("Qwen2.5-0.5B", schema, 5)
    board = replace(known.cards[0], name="Orin Nano", total_bytes=int(7.4 * GIB), unified=True)
    assert planned(draft(), replace(known, cards=(board,))).available_bytes == 3 * GIB
    assert planned(draft(), known).available_bytes == 5 * GIB
    (problem,) = problems(tune(draft(), replace(known, cards=(replace(board, free_bytes=GIB),))))
    assert "0.0 GiB free beyond the 2.0 GiB that are left to the system" in problem.what
    unknown = replace(board, free_bytes=None, total_bytes=None)
    assert planned(draft(), replace(known, cards=(unknown,))).available_bytes == 0


def test_few_rows_make_a_smaller_batch_rather_than_a_run_of_no_steps(schema: Schema) -> None:
    plan = planned(draft(), facts("Qwen2.5-7B", schema, 80, rows=3))
    assert plan.batch.prompts_per_generation <= 3
    assert plan.total_steps >= 1
    found = tune(draft(grpo__generation_batch_size=64), facts("Qwen2.5-7B", schema, 80, rows=3))
    assert any("0 steps" in problem.what for problem in problems(found))


def test_completions_get_what_the_context_leaves(schema: Schema) -> None:
    short = read_shape({**CONFIGS["Qwen2.5-0.5B"], "max_position_embeddings": 512})
    assert isinstance(short, ModelShape)
    plan = planned(draft(), facts(short, schema, 24, longest_prompt=400))
    assert plan.value("grpo.max_completion_length") == 112
    (problem,) = problems(tune(draft(), facts(short, schema, 24, longest_prompt=600)))
    assert problem.where == "data"


def test_weights_saved_in_four_bit_can_only_carry_an_adapter(schema: Schema) -> None:
    packed = read_shape({**CONFIGS["Qwen2.5-7B"], "quantization_config": {"quant_method": "awq"}})
    assert isinstance(packed, ModelShape)
    assert planned(draft(), facts(packed, schema, 80)).method == "lora"
    full = replace(draft(), model=replace(draft().model, method="full"))
    assert "awq" in problems(tune(full, facts(packed, schema, 80)))[0].what


def test_unknown_memory_is_said_rather_than_guessed(schema: Schema) -> None:
    known = facts("Qwen2.5-7B", schema, 24)
    unknown = replace(known, cards=(replace(known.cards[0], free_bytes=None, total_bytes=None),))
    plan = planned(draft(), unknown)
    assert plan.available_bytes == 0
    assert any("not known" in note for note in plan.notes)


def test_every_rule_has_a_key_of_its_own() -> None:
    assert len({rule.key for rule in RULES}) == len(RULES)


def test_vllm_on_a_slice_of_a_gpu_is_worth_a_word(schema: Schema) -> None:
    whole = facts("Qwen2.5-0.5B", schema, 40, packages=frozenset({"vllm"}))
    part = replace(whole, cards=tuple(replace(card, uuid="MIG-1") for card in whole.cards))
    with_vllm = draft(grpo__use_vllm=True)
    told = {
        (wish is with_vllm, cards is part): any("slice" in note for note in planned(wish, cards).notes)
        for wish in (with_vllm, draft())
        for cards in (whole, part)
    }
    assert [asked for asked, said in told.items() if said] == [(True, True)]


OLDER = {
    "TinyLlama-1.1B": _config("llama", 2048, 22, 32, 4, 5632, 32000, False),
    "Llama-2-7B": _config("llama", 4096, 32, 32, 32, 11008, 32000, False),
    "Llama-2-13B": _config("llama", 5120, 40, 40, 40, 13824, 32000, False),
}
"""Shapes that are in no table of the product."""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["", "full", "lora", "qlora"])
@pytest.mark.parametrize("gib", [12, 16, 24, 32, 40, 48, 80, 141])
def test_every_model_on_every_card_has_a_plan_that_constructs_and_fits_or_the_nearest_way_out(
    schema: Schema, introspect: Worker, gib: int, method: str
) -> None:
    """30 models, 8 cards, 4 choices of method, 1 to 8 GPUs: every plan for itself, and every refusal."""
    shapes = {name: read_shape(config) for name, config in {**CONFIGS, **OLDER}.items()}
    assert len(shapes) == 30
    requests: list[dict[str, Any]] = []
    names: list[str] = []
    for (name, shape), gpus in itertools.product(shapes.items(), range(1, 9)):
        assert isinstance(shape, ModelShape)
        answers = replace(draft(), model=replace(draft().model, method=method))
        known = facts(shape, schema, gib, gpus=gpus, packages=BITS)
        found = tune(answers, known)
        here = f"{name} on {gpus} × {gib} GiB, {method or 'any method'}"
        if isinstance(found, list):
            assert all("GiB" in problem.what and problem.remedy for problem in found), (here, found)
            continue
        assert found.memory is not None
        assert found.memory.fits(gib * GIB), here
        assert method in ("", found.method), here
        assert found.world_size == gpus, here
        assert check(found, rows=known.rows, installed=BITS) == [], here
        requests.append({"settings": found.section("grpo"), "world_size": gpus, "ampere": True})
        names.append(here)
    assert requests
    answer = introspect.call("construct", {"requests": requests})
    assert not isinstance(answer, Problem)
    results = zip(names, answer["results"], strict=True)
    assert [(here, result) for here, result in results if "error" in result] == []
