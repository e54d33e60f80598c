"""The score step: attacks, a pilot, and weights whose effect is seen at once."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.bench import matrix_columns
from grpo_tui.screens.drawn import Rows
from grpo_tui.screens.score import ScoreStep
from textual.pilot import Pilot

from grpo_tui import pilot as pilots
from grpo_tui import state
from grpo_tui.draft import Draft, finish
from grpo_tui.problem import Problem
from grpo_tui.session import Session, now
from grpo_tui.walk import walk
from tests.rewards.played_server import Answer, Played, choices, playing
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


def test_where_not_all_functions_have_room_those_that_only_watch_give_way() -> None:
    weights = {"correct": 1.0, "watches": 0.0, "format": 0.25, "also": 0.0}
    rows = Rows("Completions", *matrix_columns(list(weights), list(weights.values()), gathered=True))
    titles = {width: [rows.columns_[at].title for at, _ in rows.widths(width)] for width in (120, 64, 50)}
    assert titles[120] == ["row", "completion", *weights, "sum", "advantage"]
    assert titles[64] == ["row", "completion", "correct", "format", "sum", "advantage"]
    assert titles[50] == ["completion", "correct", "sum", "advantage"]


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


async def ask_the_model(pilot: Pilot[str], app: GrpoApp) -> None:
    """Press t and take the usual number of prompts."""
    await pilot.press("t")
    await until(pilot, "how many", lambda: "How many prompts?" in text_of(app.screen))
    await pilot.press("enter")


async def test_the_model_is_asked_only_after_a_yes_and_the_verdict_is_kept(app: GrpoApp, project: Path) -> None:
    async with running(app, size=(120, 60)) as pilot:
        step = await at_score(pilot)
        await ask_the_model(pilot, app)
        await until(pilot, "the question", lambda: "Let the model try?" in text_of(app.screen))
        await pilot.press("n")
        await ready(pilot)
        assert step.reading is None
        await ask_the_model(pilot, app)
        await until(pilot, "the question", lambda: "Let the model try?" in text_of(app.screen))
        await pilot.press("y")
        await until(pilot, "the verdict", lambda: bool(step.draft.score.pilot.verdict) and not step.doing, seconds=120)
        assert step.draft.score.pilot.verdict == "will learn"
        first = step.reading
        assert first is not None
        await ask_the_model(pilot, app)  # the yes still holds, and the model can be asked again
        await until(pilot, "another verdict", lambda: step.reading is not first and not step.doing, seconds=120)
        assert not step.failed
        shown = text_of(step)
        assert "decides" in shown
        assert "Will learn" in shown
        assert "256 in groups of 8" in shown, "the completions themselves stand on the bench"
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


def write_groups(project: Path, app: GrpoApp, *, groups: int = 24) -> None:
    """Completions of the first rows: always right for two, never for two, now and then for the others."""
    answered = state.load(project)
    assert isinstance(answered, state.Loaded)
    rows = app.session.prepared(answered.draft)
    assert not isinstance(rows, Problem)
    texts = []
    for number, row in enumerate(rows[:groups]):
        for at in range(4):
            good = number < 2 or (number > 3 and at % 2)
            text = f"<reasoning>1</reasoning><answer>{row['answer']}</answer>" if good else "I do not know."
            texts.append({"prompt": row["prompt"], "completion": text})
    (project / "mine.jsonl").write_text("".join(json.dumps(each) + "\n" for each in texts))


async def take_file(pilot: Pilot[str], step: ScoreStep) -> None:
    await pilot.press("c")
    await pilot.pause()
    await pilot.press(*["down"] * 1, "enter")  # a file…
    await pilot.pause()
    await pilot.press(*"mine.jsonl", "enter")
    await until(pilot, "the file on the bench", lambda: step.reading is not None and not step.doing)


async def test_completions_of_a_file_stand_on_the_bench_and_say_what_there_is_to_learn(
    app: GrpoApp, project: Path
) -> None:
    write_groups(project, app)
    async with running(app, size=(120, 60)) as pilot:
        step = await at_score(pilot)
        await take_file(pilot, step)
        shown = text_of(step)
        assert "96 in groups of 4 · mine.jsonl" in shown
        assert "24 prompts × 4" in shown
        assert "always right  2 prompts: rows 1, 2" in shown
        assert "always wrong  2 prompts: rows 3, 4" in shown
        assert not step.draft.score.pilot.verdict, "nobody knows which model wrote them"
        await pilot.press("space")
        await pilot.pause()
        assert "<answer>" in text_of(app.screen)
        await pilot.press("escape", "n")
        await pilot.pause()
        assert app.screen is step, "they cannot be edited"
        await pilot.press("c", "home", "enter")
        await until(pilot, "the samples", lambda: step.trial is not None and not step.trial.gathered and not step.doing)
        assert "right answer" in text_of(step)


async def test_prompts_that_teach_nothing_are_left_out_and_taken_back(app: GrpoApp, project: Path) -> None:
    write_groups(project, app)
    async with running(app, size=(120, 60)) as pilot:
        step = await at_score(pilot)
        await pilot.press("l")
        await pilot.pause()
        assert app.screen is step
        await take_file(pilot, step)
        await pilot.press("l")
        await pilot.pause()
        assert "always right (2)" in text_of(app.screen)
        assert "both (4)" in text_of(app.screen)
        await pilot.press("down", "down", "enter")
        await until(pilot, "four less", lambda: len(step.draft.dataset.left_out) == 4 and not step.doing)
        assert [each.row for each in step.draft.dataset.left_out] == [0, 1, 2, 3]
        await until(pilot, "the rail", lambda: not step.stale)
        await pilot.press("l")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, "all again", lambda: not step.draft.dataset.left_out and not step.doing)
    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    assert loaded.draft.score.completions == "mine.jsonl"


async def test_what_other_weights_change_is_said_in_ranks(app: GrpoApp, project: Path) -> None:
    async with running(app, size=(120, 60)) as pilot:
        step = await at_score(pilot)
        assert "Against the rewards before" not in text_of(step)
        await pilot.press("w")
        await pilot.press(*"0 1 0", "enter")
        await until(pilot, "the change", lambda: "Against the rewards before" in text_of(step) and not step.doing)
        assert "would have had another rank" in " ".join(text_of(step).split())


async def test_a_server_completes_the_prompts_after_a_yes_that_names_it(
    app: GrpoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with playing() as server:
        server.answer = lambda path, body: (
            200,
            {"data": [{"id": "small"}, {"id": "big"}]} if path.endswith("models") else choices(path, body),
        )
        async with running(app, size=(120, 60)) as pilot:
            step = await at_score(pilot)
            await pilot.press("c", "end", "enter")
            await pilot.pause()
            await pilot.press(*server.url, "enter")
            await pilot.pause()
            await pilot.press(*"NOT_SET_HERE", "enter")
            assert "No such variable is set here" in text_of(app.screen)
            await pilot.press(*["backspace"] * 12, "enter")
            await until(pilot, "its models", lambda: "Which of its models?" in text_of(app.screen))
            await pilot.press("down", "enter")
            await until(pilot, "how many", lambda: "How many prompts?" in text_of(app.screen))
            await pilot.press("enter")
            await until(pilot, "the question", lambda: "Let the model try?" in text_of(app.screen))
            assert f"The prompts are sent to {server.url}" in " ".join(text_of(app.screen).replace("│", " ").split())
            await pilot.press("y")
            await until(pilot, "the groups", lambda: step.reading is not None and not step.doing)
            assert "256 in groups of 8" in text_of(step)
            assert step.draft.score.server.model == "big"
            assert step.draft.score.pilot.verdict == "reward silent"
            assert "before something changed" not in text_of(step)
            shorter = replace(step.draft.dataset, max_prompt_tokens=4000)
            step.answer(replace(step.draft, dataset=shorter), look=True)
            await until(pilot, "other data", lambda: "before something changed" in text_of(step) and not step.doing)
        assert {body["model"] for path, body, _ in server.asked if path.endswith("completions")} == {"big"}


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Played, threading.Event]]:
    """A server that names no models, and completes nothing before the event."""
    monkeypatch.setenv("no_proxy", "*")
    release = threading.Event()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if path.endswith("models"):
            return 200, {"data": []}
        release.wait(120)
        return 200, choices(path, body)

    with playing() as server:
        server.answer = answer
        try:
            yield server, release
        finally:
            release.set()


def askers() -> list[threading.Thread]:
    """Who waits for a server."""
    return [thread for thread in threading.enumerate() if thread.name == "server-asker"]


async def ask_the_server(pilot: Pilot[str], app: GrpoApp, server: Played) -> None:
    """Let it complete some prompts, and wait until it is asked."""
    await pilot.press("c", "end", "enter")
    await pilot.pause()
    await pilot.press(*server.url, "enter")
    await pilot.pause()
    await pilot.press("enter")
    await until(pilot, "the name", lambda: "type the name" in " ".join(text_of(app.screen).split()))
    await pilot.press(*"tiny", "enter")
    await until(pilot, "how many", lambda: "How many prompts?" in text_of(app.screen))
    await pilot.press("enter")
    await until(pilot, "the question", lambda: "Let the model try?" in text_of(app.screen))
    await pilot.press("y")
    await until(pilot, "it is asked", lambda: any(path.endswith("completions") for path, _, _ in server.asked))


async def test_what_is_answered_while_a_server_completes_is_kept(app: GrpoApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(monkeypatch) as (server, release):
        async with running(app, size=(120, 60)) as pilot:
            step = await at_score(pilot)
            await ask_the_server(pilot, app, server)
            await pilot.press("w")
            await pilot.press(*["backspace"] * 20, *"1 0.5 0.25", "enter")
            await until(pilot, "the sums", lambda: step.draft.rewards.weights == (1.0, 0.5, 0.25))
            release.set()
            await until(pilot, "the groups", lambda: step.reading is not None and not step.doing)
            assert step.draft.score.server.model == "tiny"
            assert step.draft.rewards.weights == (1.0, 0.5, 0.25)
            assert "256 in groups of 8" in text_of(step)


async def test_a_server_is_asked_no_longer_when_another_step_is_shown(
    app: GrpoApp, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_up(monkeypatch) as (server, release):
        async with running(app, size=(120, 60)) as pilot:
            await at_score(pilot)
            await ask_the_server(pilot, app, server)
            await pilot.press("escape")
            await until(pilot, "the step before", lambda: getattr(app.screen, "NAME", "") == "rewards")
            await ready(pilot)
            release.set()
            await until(pilot, "nobody asks", lambda: not askers())
            assert not (project / "pilot.jsonl").exists()
            assert app.draft.score.completions == ""


async def test_a_key_typed_ahead_does_not_take_a_question_away(app: GrpoApp, monkeypatch: pytest.MonkeyPatch) -> None:
    pressed, usual = threading.Event(), pilots.prompt_counts

    def slow(*arguments: Any) -> Any:
        pressed.wait(60)
        return usual(*arguments)

    monkeypatch.setattr(pilots, "prompt_counts", slow)
    async with running(app, size=(120, 60)) as pilot:
        step = await at_score(pilot)
        await pilot.press("t", "enter")
        pressed.set()
        await until(pilot, "how many", lambda: "How many prompts?" in text_of(app.screen))
        await until(pilot, "the look is over", lambda: not step.doing)
        await pilot.pause()
        assert "How many prompts?" in text_of(app.screen)
        assert app.draft.step == "score"


async def test_a_verdict_that_nothing_is_learned_is_the_last_word(app: GrpoApp, project: Path) -> None:
    write_groups(project, app)
    lines = [json.loads(line) for line in (project / "mine.jsonl").read_text().splitlines()]
    silent = "".join(json.dumps({**line, "completion": "I do not know."}) + "\n" for line in lines)
    (project / "mine.jsonl").write_text(silent)
    async with running(app, size=(120, 60)) as pilot:
        step = await at_score(pilot)
        await take_file(pilot, step)
        assert "Nothing would be learned as it is: reward silent." in text_of(step)
        assert "Changed since this step" not in text_of(step)
