"""Leaving and coming back, two at once, a broken state, and a terminal that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp, step_class
from grpo_tui.screens.dialogs import Choose
from grpo_tui.screens.rail import Rail
from grpo_tui.screens.step import Step
from textual.binding import Binding
from textual.pilot import Pilot

from grpo_tui import lock, state
from grpo_tui.draft import STEPS, Draft, finish
from grpo_tui.run.folder import newest
from grpo_tui.run.life import life
from grpo_tui.session import Session, now
from grpo_tui.walk import walk
from tests.screens.conftest import CPU_BOX, GPU_BOX, onward, own_model, ready, running, text_of, until
from tests.test_main import Terminal

Make = Callable[..., GrpoApp]


async def test_it_comes_back_at_the_step_where_it_was_left(project: Path, make_app: Make) -> None:
    app = make_app(recipe="word_problems")
    async with running(app) as pilot:
        await onward(pilot, "hardware")
        await onward(pilot, "model")
        await pilot.press("q")
    assert app.return_code == 0
    assert app.return_value is not None
    assert "Done: Task, Hardware. Not done yet: Model," in app.return_value

    again = make_app()
    async with running(again) as pilot:
        step = await ready(pilot)
        assert step.NAME == "model"
        assert "Done: Task, Hardware." in text_of(again.screen)
        assert step.draft.task.recipe == "word_problems"


async def test_every_answer_is_on_the_disk_at_once(project: Path, make_app: Make) -> None:
    app = make_app()
    async with running(app) as pilot:
        await pilot.press("down", "right")  # the first question of the fit check

        def kept() -> bool:
            loaded = state.load(project)
            return isinstance(loaded, state.Loaded) and loaded.draft.task.checkable == "yes"

        await until(pilot, "the answer is kept", kept, seconds=10)


async def test_grpo_is_not_taken_against_the_advice_unless_the_user_says_so(project: Path, make_app: Make) -> None:
    app = make_app()
    async with running(app) as pilot:
        for _ in range(3):
            await pilot.press("down", "left")  # the last choice: no checker, thumbs, taste
        step = await ready(pilot)
        assert step.draft.task.verdict == "KTO"
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is step
        assert "KTO fits better" in text_of(app.screen)
        await pilot.press("down", "right")
        await onward(pilot, "hardware")
        assert app.draft.task.overruled


async def test_one_who_comes_second_may_look_but_keeps_nothing(project: Path, make_app: Make) -> None:
    project.mkdir()
    assert state.save(project, Draft(step="task")) is None
    before = (project / state.STATE_FILE).read_bytes()
    code = (
        "import sys, time; from pathlib import Path; from grpo_tui import lock; l = lock.acquire(Path(sys.argv[1])); "
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code + "print(1, flush=True); time.sleep(60)", str(project)], stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()
    try:
        app = make_app()
        async with app.run_test(size=(80, 23)) as pilot:
            await until(pilot, "the dialog", lambda: isinstance(app.screen, Choose))
            assert str(other.pid) in text_of(app.screen)
            await pilot.press("enter")
            await ready(pilot)
            assert "read only" in text_of(app.screen)
            await pilot.press("right")
            await ready(pilot)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert (project / state.STATE_FILE).read_bytes() == before


async def test_a_broken_state_is_shown_with_its_line_and_the_last_good_copy(project: Path, make_app: Make) -> None:
    project.mkdir()
    assert state.save(project, Draft(step="hardware")) is None
    assert state.save(project, Draft(step="model")) is None  # of the one before there is a copy now
    (project / state.STATE_FILE).write_text("version = 1\nstep = \n")
    app = make_app()
    async with app.run_test(size=(80, 23)) as pilot:
        await until(pilot, "the dialog", lambda: isinstance(app.screen, Choose))
        assert "line 2" in text_of(app.screen)
        assert (project / state.STATE_FILE).read_text() == "version = 1\nstep = \n"
        await pilot.press("enter")
        step = await ready(pilot)
        assert step.NAME == "hardware"


async def test_a_step_that_rests_on_something_changed_says_so(project: Path, make_app: Make) -> None:
    project.mkdir()
    draft = own_model(project)
    session = Session(project, machine=CPU_BOX)
    begun = session.begin(draft)
    assert isinstance(begun, Draft)
    for name in ("task", "hardware", "model", "dataset"):
        begun = finish(begun, name, now(), session.facts(begun))
    assert state.save(project, replace(begun, step="task")) is None
    with (project / "word_problems.jsonl").open("a") as data:
        data.write('{"question": "One more?", "answer": "1"}\n')
    app = make_app()
    async with running(app) as pilot:
        await until(pilot, "the rail knows", lambda: bool(app.screen.query_one(Rail).stale))
        assert app.screen.query_one(Rail).stale == {"dataset": ("data",)}
        assert "! Dataset" in text_of(app.screen)
        assert "data changed" in text_of(app.screen)


async def test_only_visible_gpus_can_be_taken(project: Path, make_app: Make) -> None:
    app = make_app(machine=GPU_BOX, recipe="word_problems")
    async with running(app, size=(120, 36)) as pilot:
        step = await onward(pilot, "hardware")
        assert step.draft.hardware.cpu  # what the recipe proposes
        await pilot.press("left")
        await ready(pilot)
        assert app.draft.hardware.gpus == ("GPU-0", "GPU-1")
        await pilot.press("tab", "down", "down", "space")
        await pilot.pause()
        assert app.draft.hardware.gpus == ("GPU-0", "GPU-1")
        await pilot.press("up", "space")
        await pilot.pause()
        assert app.draft.hardware.gpus == ("GPU-0",)
        assert "ada" in text_of(app.screen)


async def test_foreign_text_is_shown_as_it_is(project: Path, make_app: Make) -> None:
    project.mkdir()
    texts = ["[/INST] hi", "[bold", "[link=file:///x]y[/link]", "\x1b[31mred\x1b[0m \x07", "tensor([1, 2])"]
    rows = [json.dumps({"question": text, "answer": "[/x]"}) for text in texts]
    (project / "rows.jsonl").write_text("\n".join(rows))
    draft = own_model(project)
    dataset = replace(draft.dataset, source="rows.jsonl", prompt="", answer="")
    assert state.save(project, replace(draft, dataset=dataset, step="dataset")) is None
    app = make_app()
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await pilot.press("tab")
        shown = text_of(app.screen)
        for text in ("[/INST] hi", "[bold", "[link=file:///x]y[/link]", "red", "tensor([1, 2])"):
            assert text in shown
        assert "\x1b" not in shown
        await pilot.press("v")
        await pilot.pause()
        assert "[/INST] hi" in text_of(app.screen)


async def test_a_window_too_small_says_so_and_grows_again(make_app: Make) -> None:
    app = make_app()
    async with app.run_test(size=(80, 23)) as pilot:
        await ready(pilot)
        for size in ((1, 1), (20, 5), (79, 23), (80, 22)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "need 80×23" in text_of(app.screen)
        await pilot.resize_terminal(80, 23)
        await pilot.pause()
        assert "What shall the model learn?" in text_of(app.screen)


def test_training_outlives_a_killed_terminal(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(Path(project.name), machine=CPU_BOX)  # a folder is often named from where one stands
    project.mkdir()
    draft = own_model(project)
    draft = replace(draft, settings=replace(draft.settings, overrides={"grpo.max_steps": 20}))
    try:
        assert isinstance(walk(session, draft), Draft)
    finally:
        session.close()
    environ = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    terminal = Terminal("--project", project.name, environ=environ, cwd=tmp_path)
    terminal.wait_for(b"Nothing is missing here")
    os.write(terminal.descriptor, b"\r")
    terminal.wait_for(b"start it")
    os.write(terminal.descriptor, b"y")

    def training() -> bool:
        run = newest(project)
        log = run / "events.jsonl" if run else None
        return log is not None and log.exists() and b'"log"' in log.read_bytes()

    wait_until(training)
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait() == -signal.SIGKILL
    run = newest(project)
    assert run is not None
    wait_until(lambda: life(run).state == "finished")
    seen = subprocess.run(
        [sys.executable, "-m", "grpo_tui", "watch", "--json", str(project)], capture_output=True, text=True, check=True
    )
    found = json.loads(seen.stdout)
    assert (found["state"], found["step"], found["exit"]) == ("finished", 20, 0)
    approvals = state.load(project)
    assert isinstance(approvals, state.Loaded)


def wait_until(holds: Callable[[], bool], seconds: float = 240) -> None:
    """Wait for a process of its own."""
    for _ in range(int(seconds / 0.1)):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it never came to this")


def test_a_step_names_its_screen() -> None:
    from grpo_tui.screens.app import step_class

    from grpo_tui.draft import STEPS

    for name in STEPS:
        found = step_class(name)
        assert issubclass(found, Step)
        assert name == found.NAME


async def test_looking_only_writes_no_file_whatever_is_pressed(project: Path, make_app: Make) -> None:
    project.mkdir()
    draft = own_model(project)
    session = Session(project, machine=CPU_BOX)
    begun = session.begin(draft)
    assert isinstance(begun, Draft)
    for name in ("task", "hardware", "model", "dataset"):
        begun = finish(begun, name, now(), session.facts(begun))
    session.close()
    assert state.save(project, replace(begun, step="rewards")) is None
    (project / "rewards.py").unlink()
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, "the step", lambda: isinstance(app.screen, Step))
        app.open_project(read_only=True)
        await until(pilot, "looking only", lambda: app.read_only)
        await ready(pilot)
        await pilot.press("enter")
        await until(pilot, "the next step", lambda: getattr(app.screen, "NAME", "") == "score")
    after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() ^ before.keys()} <= {lock.LOCK_FILE}
    assert all(after[path] == content for path, content in before.items())
    assert "nothing was kept" in app.last_words()


async def test_a_value_of_a_wrong_type_is_refused_and_locks_nobody_out(project: Path, make_app: Make) -> None:
    project.mkdir()
    session = Session(project, machine=CPU_BOX)
    walked = walk(session, own_model(project))
    session.close()
    assert isinstance(walked, Draft)
    wish = replace(walked, settings=replace(walked.settings, overrides={"grpo.max_steps": "abc"}), step="settings")
    assert state.save(project, wish) is None
    app = make_app()
    async with running(app) as pilot:
        step = await ready(pilot)
        assert any("max_steps" in problem.where for problem in step.failed), step.failed
        await pilot.press("9")
        launch = await until_step(pilot, "launch")
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is launch
        assert "settings. Review writes them" in " ".join(text_of(app.screen).split())


async def test_a_weight_changed_after_the_review_cannot_be_forgotten(project: Path, make_app: Make) -> None:
    project.mkdir()
    session = Session(project, machine=CPU_BOX)
    walked = walk(session, own_model(project))
    session.close()
    assert isinstance(walked, Draft)
    first, *rest = walked.rewards.items
    heavier = replace(walked, rewards=replace(walked.rewards, items=(replace(first, weight=2.0), *rest)), step="launch")
    assert state.save(project, heavier) is None
    app = make_app()
    async with running(app) as pilot:
        await ready(pilot)
        assert "do not hold your present answers yet: rewards" in " ".join(text_of(app.screen).split())
        await pilot.press("enter", "y")
        await pilot.pause()
        assert not (project / "runs").exists()


async def until_step(pilot: Pilot[str], name: str) -> Step:
    await until(pilot, f"step {name}", lambda: getattr(pilot.app.screen, "NAME", "") == name)
    return await ready(pilot)


@pytest.mark.parametrize("name", STEPS)
def test_no_step_takes_a_key_of_the_frame_for_something_else(name: str) -> None:
    """x cancels wherever something is under way."""
    own = [each for binding in step_class(name).BINDINGS for each in Binding.make_bindings([binding])]
    actions: dict[str, set[str]] = {}
    for binding in own:
        actions.setdefault(binding.key, set()).add(binding.action)
    assert {key: found for key, found in actions.items() if len(found) > 1} == {}
