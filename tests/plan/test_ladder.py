"""What is given up when a plan does not fit: what stays the same, what each change frees, and in which order."""

from dataclasses import replace
from typing import Any

import pytest

from grpo_tui.draft import Draft
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.footing import Footing, footing_of
from grpo_tui.plan.ladder import Rung, climb, first_rung, ladder, take
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.vllm_share import share_of, share_problems
from tests.plan.plans import draft, facts, planned
from tests.plan.shapes import shape_of


def footing(gib: float, model: str = "Qwen2.5-7B", method: str = "lora", **settings: Any) -> Footing:
    """A training of 64 completions a step on one card."""
    known = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 8,
        "num_generations": 8,
        "max_completion_length": 1024,
        "bf16": True,
    }
    return Footing(
        shape=shape_of(model),
        method=method,
        settings=known | settings,
        prompt_tokens=512,
        available_bytes=int(gib * GIB),
        total_bytes=int(gib * GIB),
        packages=frozenset({"bitsandbytes"}),
    )


def batch_of(footing: Footing) -> Batch:
    found = arithmetic.read(footing.settings, footing.world)
    assert isinstance(found, Batch), found
    return found


CASES = [
    footing(16),
    footing(24, method="full"),
    footing(16, "Phi-3.5-mini", per_device_train_batch_size=16, gradient_accumulation_steps=4),
    footing(16, steps_per_generation=4),
    footing(16, generation_batch_size=32),
    footing(24, gradient_checkpointing=False),
    footing(24, method="full", beta=0.04, optim="adamw_torch_fused"),
    footing(24, use_vllm=True, vllm_gpu_memory_utilization=0.5),
    replace(footing(20, per_device_train_batch_size=6, num_generations=12), world=2),
]


@pytest.mark.parametrize("case", CASES)
def test_every_rung_keeps_the_completions_of_a_step_and_of_a_group_and_frees_what_it_says(case: Footing) -> None:
    rungs = ladder(case)
    assert rungs
    for rung in rungs:
        after = case.having(rung.changes)
        assert batch_of(after).completions_per_step == batch_of(case).completions_per_step
        assert batch_of(after).generations == batch_of(case).generations
        assert batch_of(after).generation_batch % batch_of(after).generations == 0
        assert rung.frees_bytes == case.peak_bytes - after.peak_bytes > 0
        assert rung.peak_bytes == after.peak_bytes
        assert rung.fits == after.fits


@pytest.mark.parametrize("case", CASES)
def test_what_is_climbed_fits_and_nothing_of_it_could_be_left_out(case: Footing) -> None:
    rungs = climb(case)
    if case.fits:
        assert rungs == ()
        return
    after = case
    for rung in rungs:
        after = after.having(rung.changes)
    assert not rungs or after.fits
    for left_out in rungs:
        without = case
        for rung in rungs:
            without = without if rung is left_out else without.having(rung.changes)
        assert not without.fits


def ids(rungs: tuple[Rung, ...]) -> list[str]:
    return [rung.id for rung in rungs]


def test_recomputing_comes_first_and_4_bit_after_smaller_portions() -> None:
    found = ids(ladder(footing(24, activation_checkpointing=False)))
    assert found[0] == "checkpointing"
    assert found.index("qlora") > 0
    portions = ids(ladder(footing(24), "train"))
    assert portions.index("micro_batch") < portions.index("qlora")


def test_the_mildest_degree_that_fits_is_taken() -> None:
    rung = next(rung for rung in ladder(footing(24, steps_per_generation=2)) if rung.id == "micro_batch")
    assert rung.fits
    assert rung.changes == {
        "grpo.per_device_train_batch_size": 4,
        "grpo.gradient_accumulation_steps": 16,
        "grpo.steps_per_generation": 4,
    }


def test_generation_and_training_are_answered_by_different_changes() -> None:
    case = footing(24, "Phi-3.5-mini")
    assert "micro_batch" not in ids(ladder(case, "generate"))
    assert {"steps_per_generation", "offloaded_cache"} <= set(ids(ladder(case, "generate")))
    assert "steps_per_generation" not in ids(ladder(case, "train"))


def test_what_must_be_installed_first_is_said() -> None:
    case = replace(footing(16), packages=frozenset())
    assert [rung.needs for rung in ladder(case) if rung.id == "qlora"] == ["bitsandbytes"]
    assert not any(rung.needs for rung in ladder(footing(16)))


def test_nothing_is_promised_where_nothing_helps() -> None:
    assert climb(footing(4, "Qwen2.5-32B")) == ()
    assert climb(replace(footing(24), available_bytes=0)) == ()
    tiny = footing(24, per_device_train_batch_size=1, gradient_accumulation_steps=8, max_completion_length=64)
    assert first_rung(tiny.having({"method": "qlora"}), "load", GIB) is None


def test_long_prompts_are_left_out_only_where_it_is_known_that_most_are_shorter() -> None:
    assert "prompts" not in ids(ladder(footing(16)))
    known = replace(footing(16), usual_prompt_tokens=200)
    (rung,) = (rung for rung in ladder(known) if rung.id == "prompts")
    assert rung.changes == {"data.max_prompt_tokens": 200}


def test_a_plan_too_large_for_its_card_is_made_to_fit_by_what_was_climbed(schema: Schema) -> None:
    """What the ladder changes in the answers, the tuning carries out."""
    answers = draft(grpo__per_device_train_batch_size=16, grpo__gradient_accumulation_steps=4,
                    grpo__max_completion_length=1024)  # fmt: skip
    known = facts("Qwen2.5-7B", schema, 80)
    plan = planned(answers, known)
    smaller = replace(footing_of(plan, known.model.shape, prompt_tokens=200), available_bytes=22 * GIB)
    rungs = climb(smaller)
    assert rungs
    for rung in rungs:
        answers = take(answers, rung)
    after = planned(answers, facts("Qwen2.5-7B", schema, 22, packages=frozenset({"bitsandbytes"})))
    assert after.batch.completions_per_step == plan.batch.completions_per_step
    assert after.memory is not None
    assert after.memory.fits(22 * GIB)


def test_a_change_becomes_an_answer() -> None:
    rung = Rung(
        id="x", title="", frees_bytes=1, peak_bytes=1, fits=True, why="",
        changes={"method": "qlora", "data.max_prompt_tokens": 99, "grpo.beta": 0.0, "grpo.generation_batch_size": None},
    )  # fmt: skip
    before = draft(grpo__generation_batch_size=8)
    after = take(before, rung)
    assert isinstance(after, Draft)
    assert (after.model.method, after.dataset.max_prompt_tokens) == ("qlora", 99)
    assert after.settings.overrides == {"grpo.beta": 0.0}
    kept = replace(before, dataset=replace(before.dataset, faults={"over_long": "keep", "empty": "stop"}))
    assert take(kept, rung).dataset.prompt_limit == 99


def shared(share: float, **settings: Any) -> Footing:
    """vLLM beside a full training of 1.5 B parameters on a card of 24 GiB (trl#2688, vllm#5274)."""
    case = footing(24, "Qwen2.5-1.5B", "full", per_device_train_batch_size=2, gradient_accumulation_steps=32,
                   use_vllm=True, vllm_gpu_memory_utilization=share, **settings)  # fmt: skip
    return replace(case, prompt_tokens=400)


def test_a_share_that_starves_the_training_and_one_that_starves_vllm_are_kept_apart() -> None:
    (large,) = [each for each in share_problems(shared(0.9)) if "utilization" in each.where]
    (small,) = [each for each in share_problems(shared(0.08)) if "utilization" in each.where]
    assert "too little for the training" in large.what
    assert "its own copy of the weights takes 2.9 GiB" in small.what
    share = share_of(shared(0.3))
    assert 0.12 < share.least < 0.3 < share.most < 0.5
    assert not [each for each in share_problems(shared(0.3)) if "utilization" in each.where]


def test_an_unlimited_sequence_length_of_vllm_is_set_to_what_is_needed() -> None:
    (problem,) = share_problems(shared(0.3))
    assert problem.where == "grpo.vllm_max_model_length"
    assert "Set it to 1536" in problem.remedy
    assert not share_problems(shared(0.3, vllm_max_model_length=1536))


def test_where_no_share_leaves_room_for_both_raising_it_is_not_advised() -> None:
    """A 7B model in bf16 on 24 GiB with 0.1 (trl#2688): its copy of 15 GiB does not fit beside the training."""
    case = footing(24, use_vllm=True, vllm_gpu_memory_utilization=0.1, vllm_max_model_length=2048)
    (problem,) = share_problems(case)
    assert "2.4 of 24.0 GiB" in problem.what
    assert "14.2 GiB" in problem.what
    assert problem.remedy.index("vllm_enable_sleep_mode") < problem.remedy.index("LoRA")
    assert problem.remedy.index("LoRA") < problem.remedy.index("use_vllm = false")


def test_sleep_is_offered_before_giving_vllm_up() -> None:
    found = ids(ladder(shared(0.9)))
    assert found.index("vllm_sleep") < found.index("lora") < found.index("no_vllm")


def test_several_gpus_that_hold_the_weights_together_need_less_each_and_take_none_in_4_bit() -> None:
    """FSDP2 divides what each process has, and cannot scatter weights in 4 bit."""
    alone = replace(footing(24, method="full"), world=4)
    together = replace(alone, strategy="fsdp2")
    assert together.peak_bytes < alone.peak_bytes / 2
    assert "qlora" in ids(ladder(alone))
    assert "qlora" not in ids(ladder(together))
