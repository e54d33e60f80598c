"""The settings: other plans beside the tuned one, and the sizes of the batch turned in one picture."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.batch import Dials, TurnBatch
from grpo_tui.screens.dialogs import Choose, Type
from grpo_tui.screens.plans import Beside, Compare
from grpo_tui.screens.settings import SettingsStep
from textual.pilot import Pilot

from grpo_tui import state
from grpo_tui.draft import Draft, HardwareAnswer, ModelAnswer
from grpo_tui.plan.known import CONFIGS
from grpo_tui.session import Session
from grpo_tui.walk import walk
from tests.screens.conftest import CPU_BOX, GIB, own_model, ready, running, text_of, until

CARD = HardwareAnswer(manual_name="RTX 4090", manual_bytes=24 * GIB, manual_count=1, manual_capability="8.9")


@pytest.fixture
def settings(project: Path) -> Callable[..., None]:
    """A project that is at the settings, with these answers."""

    def at(**answers: object) -> None:
        project.mkdir()
        session = Session(project, machine=CPU_BOX)
        found = walk(session, own_model(project))
        session.close()
        assert isinstance(found, Draft)
        changed = replace(found, step="settings", **answers)  # type: ignore[arg-type]  # fields of Draft
        assert state.save(project, changed) is None

    return at


async def opened(pilot: Pilot[str], key: str, kind: type) -> SettingsStep:
    """The settings, with the dialog that `key` opens."""
    step = await ready(pilot)
    assert isinstance(step, SettingsStep)
    await pilot.press(key)
    await until(pilot, f"a dialog {kind.__name__}", lambda: isinstance(pilot.app.screen, kind))
    await pilot.pause()
    return step


async def test_another_plan_is_taken_shown_with_its_reason_and_taken_back(
    settings: Callable[..., None], make_app: Callable[..., GrpoApp]
) -> None:
    settings(hardware=CARD)
    async with running(make_app(), size=(120, 36)) as pilot:
        step = await opened(pilot, "p", Compare)
        shown = text_of(pilot.app.screen)
        assert "typed by hand: RTX 4090" in shown
        assert "of 24.0" in shown
        assert "GiB more room" in shown
        before = step.draft
        old = step.plan
        assert old is not None
        await pilot.press("enter")
        await until(pilot, "the other plan", lambda: step.plan is not old and not step.doing)
        assert step.plan is not None
        assert step.plan.method == "qlora"
        assert step.draft.model.method == "qlora"
        assert "Taken: safest" in text_of(step)
        await pilot.press("u")
        await until(pilot, "the plan of before", lambda: not step.doing and step.plan == old)
        assert (step.draft.model, step.draft.settings) == (before.model, before.settings)
        assert "Taken" not in text_of(step)


async def test_leaving_takes_no_plan(settings: Callable[..., None], make_app: Callable[..., GrpoApp]) -> None:
    settings(hardware=CARD)
    async with running(make_app(), size=(80, 23)) as pilot:
        step = await opened(pilot, "p", Compare)
        before = step.draft
        await pilot.press("left")
        assert pilot.app.screen.query_one(Beside).here.name == "now"
        await pilot.press("right", "escape")
        await pilot.pause()
        assert pilot.app.screen is step
        await pilot.press("p")
        await until(pilot, "the plans", lambda: isinstance(pilot.app.screen, Compare))
        await pilot.press("left", "enter")  # the plan of now
        await pilot.pause()
        assert pilot.app.screen is step
        assert step.draft == before


async def test_on_the_cpu_it_is_said_what_cannot_be(
    settings: Callable[..., None], make_app: Callable[..., GrpoApp]
) -> None:
    settings()
    async with running(make_app(), size=(80, 23)) as pilot:
        step = await ready(pilot)
        await pilot.press("p")
        await until(pilot, "a dialog", lambda: pilot.app.screen is not step)
        await pilot.pause()
        assert "4 bit and vLLM do not run" in " ".join(text_of(pilot.app.screen).split())
        assert "qlora" not in text_of(pilot.app.screen)


async def test_a_larger_model_is_named_by_the_user_and_fetched_in_its_step(
    settings: Callable[..., None], project: Path, make_app: Callable[..., GrpoApp]
) -> None:
    settings(hardware=CARD, model=ModelAnswer(name="Qwen2.5-0.5B", method="lora"))
    model = project / "Qwen2.5-0.5B"
    (project / "tiny-model").rename(model)
    (model / "model.safetensors").unlink()
    (model / "config.json").write_text(json.dumps(dict(CONFIGS["Qwen2.5-0.5B"])))
    async with running(make_app(), size=(80, 23)) as pilot:
        step = await opened(pilot, "p", Compare)
        before = step.draft
        await pilot.press("end")
        larger = pilot.app.screen.query_one(Beside).here
        assert larger.name == "largest"
        assert "billion parameters" in text_of(pilot.app.screen)
        assert "enter take it" in text_of(pilot.app.screen)
        await pilot.press("enter")
        await until(pilot, "the line to type in", lambda: isinstance(pilot.app.screen, Type))
        await pilot.press("escape")
        await pilot.pause()
        assert step.draft == before
        await pilot.press("p")
        await until(pilot, "the plans", lambda: isinstance(pilot.app.screen, Compare))
        await pilot.press("end", "enter")
        await until(pilot, "the line to type in", lambda: isinstance(pilot.app.screen, Type))
        await pilot.press("home", *"Qwen/", "enter")
        await until(pilot, "the Model step", lambda: getattr(pilot.app.screen, "NAME", "") == "model")
        shown = await ready(pilot)
        assert shown.draft.model.name == f"Qwen/{larger.model}"
        assert shown.failed  # it is not on this machine, and can be fetched
        assert "fetch configuration" in text_of(shown)


# ------------------------------------------------------------------------------------------- the batch as one picture


def dials(pilot: Pilot[str]) -> Dials:
    return pilot.app.screen.query_one(Dials)


async def typed(pilot: Pilot[str], number: str) -> None:
    """Type a number over the one under the cursor."""
    await pilot.press("space")
    await until(pilot, "the line to type in", lambda: isinstance(pilot.app.screen, Type))
    await pilot.press(*number, "enter")
    await pilot.pause()


async def test_a_number_is_turned_the_picture_follows_and_enter_takes_it(
    settings: Callable[..., None], make_app: Callable[..., GrpoApp]
) -> None:
    settings(hardware=CARD)
    async with running(make_app(), size=(120, 36)) as pilot:
        step = await opened(pilot, "b", TurnBatch)
        before, old = step.draft, step.plan
        assert old is not None
        was = old.batch
        assert f"{was.completions_per_step} =" in text_of(pilot.app.screen)
        await pilot.press("down", "right")
        await pilot.pause()
        now = dials(pilot).sizes.batch
        assert now.accumulation > was.accumulation
        assert f"{now.completions_per_step} =" in text_of(pilot.app.screen)
        assert "peak" in text_of(pilot.app.screen)
        assert step.draft == before
        await pilot.press("enter")
        await until(pilot, "the new plan", lambda: step.plan is not old and not step.doing)
        assert step.plan is not None
        assert step.plan.batch == now
        assert step.draft.settings.overrides == {
            "grpo.gradient_accumulation_steps": now.accumulation,
            "grpo.steps_per_generation": now.steps_per_generation,  # the tuning would generate in two parts
        }
        await pilot.press("u")
        await until(pilot, "the plan of before", lambda: not step.doing and step.draft.settings == before.settings)


async def test_escape_leaves_all_as_it_was(settings: Callable[..., None], make_app: Callable[..., GrpoApp]) -> None:
    settings(hardware=CARD)
    async with running(make_app(), size=(80, 23)) as pilot:
        step = await opened(pilot, "b", TurnBatch)
        before = step.draft
        await pilot.press("right", "down", "right", "plus", "minus", "escape")
        await pilot.pause()
        assert pilot.app.screen is step
        assert step.draft == before


async def test_a_number_that_cannot_be_is_answered_with_two_that_can(
    settings: Callable[..., None], make_app: Callable[..., GrpoApp]
) -> None:
    settings(hardware=CARD)
    async with running(make_app(), size=(80, 23)) as pilot:
        await opened(pilot, "b", TurnBatch)
        before = dials(pilot).sizes
        while dials(pilot).key != "grpo.num_generations":
            await pilot.press("down")
        await typed(pilot, "7")
        assert isinstance(pilot.app.screen, Choose)
        assert "no multiple of num_generations = 7" in " ".join(text_of(pilot.app.screen).split()).replace("│ │ │ ", "")
        assert "as it is now" in text_of(pilot.app.screen)
        await pilot.press("escape")
        await pilot.pause()
        assert dials(pilot).sizes == before
        await typed(pilot, "7")
        await pilot.press("enter")
        await pilot.pause()
        assert dials(pilot).sizes.batch.generations == 7
        assert dials(pilot).sizes.problem() is None


async def test_a_batch_over_the_card_is_shown_and_not_taken(
    settings: Callable[..., None], make_app: Callable[..., GrpoApp]
) -> None:
    settings(hardware=replace(CARD, manual_bytes=2 * GIB))
    async with running(make_app(), size=(80, 23)) as pilot:
        step = await opened(pilot, "b", TurnBatch)
        before = step.draft
        await typed(pilot, "4096")
        if isinstance(pilot.app.screen, Choose):  # more prompts than there are rows: the most that there are
            await pilot.press("enter")
            await pilot.pause()
        assert isinstance(pilot.app.screen, TurnBatch)
        assert "needs" in text_of(pilot.app.screen)
        assert "2.0 GiB free" in text_of(pilot.app.screen)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, TurnBatch)
        assert "cannot be taken" in text_of(pilot.app.screen)
        await pilot.press("escape")
        await pilot.pause()
        assert step.draft == before


async def test_where_a_number_ends_it_is_said_why(
    settings: Callable[..., None], make_app: Callable[..., GrpoApp]
) -> None:
    settings()
    async with running(make_app(), size=(80, 23)) as pilot:
        await opened(pilot, "b", TurnBatch)
        while dials(pilot).key != "grpo.gradient_accumulation_steps":
            await pilot.press("down")
        before = dials(pilot).sizes
        assert before.batch.accumulation == 1
        await pilot.press("left")
        await pilot.pause()
        assert dials(pilot).sizes == before
        assert "Nothing smaller" in text_of(pilot.app.screen)
