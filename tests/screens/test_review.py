"""The review: files, check list, and a dry run that fails here instead of at the first step of the training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.review import ReviewStep
from textual.pilot import Pilot

from grpo_tui import state
from grpo_tui.draft import Draft
from grpo_tui.session import Session
from grpo_tui.walk import walk
from tests.screens.conftest import CPU_BOX, own_model, ready, running, text_of, until


@pytest.fixture
def walked(project: Path) -> Draft:
    """A project whose files are written."""
    project.mkdir()
    session = Session(project, machine=CPU_BOX)
    found = walk(session, own_model(project))
    session.close()
    assert isinstance(found, Draft)
    return found


async def tried(pilot: Pilot[str]) -> ReviewStep:
    """The review after its dry run."""
    step = await ready(pilot)
    assert isinstance(step, ReviewStep)
    await pilot.press("d")
    await pilot.pause()
    await until(
        pilot,
        "the dry run",
        lambda: step.tried is not None or "Run the reward" in text_of(pilot.app.screen),
        seconds=120,
    )
    if step.tried is None:
        await pilot.press("y")
        await until(pilot, "the dry run", lambda: step.tried is not None, seconds=120)
    await ready(pilot)
    return step


async def test_a_sound_project_makes_two_steps(walked: Draft, project: Path, make_app: Callable[..., GrpoApp]) -> None:
    assert state.save(project, replace(walked, step="review")) is None
    async with running(make_app(), size=(120, 40)) as pilot:
        step = await tried(pilot)
        assert step.tried is not None
        assert step.tried.ok, step.tried.problems
        assert "2 steps were made" in text_of(step)
        assert "Not covered" in text_of(step)
        await pilot.press("enter")
        await until(pilot, "the launch", lambda: getattr(pilot.app.screen, "NAME", "") == "launch")
        launch = await ready(pilot)
        assert "passed" in text_of(launch)
    assert not list(project.glob("runs/*"))


async def test_a_reward_that_returns_too_few_numbers_is_found_before_the_yes(
    walked: Draft, project: Path, make_app: Callable[..., GrpoApp]
) -> None:
    rewards = project / "rewards.py"
    rewards.write_text(
        rewards.read_text() + "\n\ndef format(completions, **kwargs):\n    return [1.0] * (len(completions) - 1)\n"
    )
    assert state.save(project, replace(walked, step="review")) is None
    async with running(make_app(), size=(120, 40)) as pilot:
        step = await tried(pilot)
        assert step.tried is not None
        assert not step.tried.ok
        assert step.draft.review.tried == "failed"
        assert "1 rewards for 2 completions" in " ".join(str(problem) for problem in step.tried.problems)
