"""The score step: attacks, a pilot, and weights whose effect is seen at once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.score import ScoreStep
from textual.pilot import Pilot

from grpo_tui import state
from grpo_tui.draft import Draft, finish
from grpo_tui.session import Session, now
from grpo_tui.walk import walk
from tests.screens.conftest import CPU_BOX, own_model, ready, running, text_of, until


@pytest.fixture
def app(project: Path, make_app: Callable[..., GrpoApp]) -> GrpoApp:
    """The wizard at its score step, with the shipped recipe."""
    project.mkdir()
    session = Session(project, machine=CPU_BOX)
    begun = session.begin(own_model(project))
    assert isinstance(begun, Draft)
    for name in ("task", "hardware", "model", "dataset", "rewards"):
        begun = finish(begun, name, now(), session.facts(begun))
    session.close()
    assert state.save(project, replace(begun, step="score")) is None
    return make_app()


async def at_score(pilot: Pilot[str]) -> ScoreStep:
    step = await ready(pilot)
    assert isinstance(step, ScoreStep)
    return step


async def test_the_rewards_are_attacked_and_what_is_paid_is_named(app: GrpoApp) -> None:
    async with running(app, size=(120, 50)) as pilot:
        step = await at_score(pilot)
        await pilot.press("p")
        await until(pilot, "the attacks", lambda: step.probes is not None and not step.doing)
        assert step.probes is not None
        assert {each.verdict for each in step.probes.probes} >= {"sound"}
        assert "form alone earns" in text_of(step)
        step.query_one("#probes").focus()
        await pilot.press("space")
        await pilot.pause()
        assert "Expected:" in text_of(app.screen)


async def test_the_model_is_asked_only_after_a_yes_and_the_verdict_is_kept(app: GrpoApp, project: Path) -> None:
    async with running(app, size=(120, 50)) as pilot:
        step = await at_score(pilot)
        await pilot.press("t")
        await until(pilot, "the question", lambda: "Let the model try?" in text_of(app.screen))
        await pilot.press("n")
        await ready(pilot)
        assert step.pilot is None
        await pilot.press("t")
        await until(pilot, "the question", lambda: "Let the model try?" in text_of(app.screen))
        await pilot.press("y")
        await until(pilot, "the verdict", lambda: bool(step.draft.score.pilot.verdict) and not step.doing, seconds=120)
        assert step.draft.score.pilot.verdict == "will learn"
        first = step.pilot
        await pilot.press("t")  # the yes still holds, and the model can be asked again
        await until(pilot, "another verdict", lambda: step.pilot is not first and not step.doing, seconds=120)
        assert not step.failed
        assert "decides" in text_of(step)
        assert "Will learn" in text_of(step)
    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    kept = loaded.draft.score.pilot
    assert kept.verdict == "will learn"
    assert 0.05 < kept.pass_rate < 0.6
    assert [yes.what for yes in loaded.draft.approvals] == ["sample"]
    session = Session(project, machine=CPU_BOX)
    walked = walk(session, loaded.draft)
    session.close()
    assert isinstance(walked, Draft)
    assert walked.score.pilot == kept


async def test_other_weights_change_sums_and_advantages_at_once(app: GrpoApp) -> None:
    async with running(app, size=(120, 50)) as pilot:
        step = await at_score(pilot)
        assert step.table is not None
        before, rewards = step.table.weighted, step.table.rewards
        await pilot.press("w")
        await pilot.press(*"2 0", "enter")  # one is missing
        assert "3 numbers are needed" in text_of(app.screen)
        await pilot.press(*" 0", "enter")
        await until(pilot, "the new weights", lambda: step.draft.rewards.items[0].weight == 2.0)
        assert step.table.rewards == rewards
        assert step.table.weighted == tuple(2 * (row[0] or 0.0) for row in rewards)
        assert step.table.weighted != before
