"""The settings: other plans beside the tuned one, and the sizes of the batch turned in one picture."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.plans import Beside, Compare
from grpo_tui.screens.settings import SettingsStep
from textual.pilot import Pilot

from grpo_tui import state
from grpo_tui.draft import Draft, HardwareAnswer
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
        await until(pilot, "the plan of before", lambda: not step.doing and step.plan.sha256 == old.sha256)
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
