"""A picture of every step, at the smallest and at a comfortable size.

What would differ from one machine or day to the next (versions, paths, times) is replaced before the picture is taken.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.launch import LaunchStep
from grpo_tui.screens.review import ReviewStep
from grpo_tui.screens.score import ScoreStep
from grpo_tui.screens.step import Step
from textual.pilot import Pilot

from grpo_tui import state
from grpo_tui.draft import STEPS, Draft, HardwareAnswer, ScoreAnswer
from grpo_tui.hardware.environment import Check
from grpo_tui.problem import Problem
from grpo_tui.run.launch import Command
from grpo_tui.session import Session
from grpo_tui.walk import walk
from tests.screens.conftest import GIB, GPU_BOX, TERMINAL, own_model, ready, until

Snap = Callable[..., bool]
SIZES = {"small": (80, 23), "roomy": (120, 36)}

CHECKS = (
    Check(id="system", level="ok", text="linux on x86_64"),
    Check(id="busy", level="warn", text="GPU 1 is in use by ada.", remedy="Ask her, or take another one."),
    Check(id="torch", level="fail", text="torch was built without CUDA.", remedy="Install a build with CUDA."),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Session]:
    """A project that is complete but for the start; what was measured is kept for all pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("HF_HUB_OFFLINE", "1")
        project = tmp_path_factory.mktemp("pictures") / "demo"
        project.mkdir()
        session = Session(project, machine=GPU_BOX)
        assert isinstance(walk(session, own_model(project)), Draft)
        yield session
        session.close()


class Still(Session):
    """The same project, its workers' answers kept, its clock stopped."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.project, machine=GPU_BOX)
        self._kept = session._kept

    def checks(self) -> list[Check]:
        return list(CHECKS)


def without_chance(step: Step) -> None:
    """Replace what differs between machines and days."""
    step.news, step.read_only = "", False
    step.failed = tuple(replace(problem, where=Path(problem.where).name) for problem in step.failed)
    if isinstance(step, ScoreStep) and step.table is not None:
        times = dict.fromkeys(step.table.names, 0.0012)
        step.table = replace(step.table, seconds_per_call=MappingProxyType(times))
    if isinstance(step, ReviewStep) and step.outlook is not None:
        checks = tuple((level, words.split(" (trl")[0]) for level, words in step.outlook.checks)
        step.outlook = replace(step.outlook, checks=checks)
    if isinstance(step, LaunchStep) and step.departure is not None:
        command = Command(
            argv=("python", "runs/20260101-120000/train.py"),
            environment={"PYTHONSAFEPATH": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            directory=Path("/home/ada/demo"),
            gpus=(),
        )
        warnings = (Problem("demo/wandb", "The folder hides that wandb is missing.", "Install it."),)
        step.departure = replace(step.departure, command=command, sha256="0123456789abcdef" * 4, warnings=warnings)
    step.refresh_body()
    step.refresh_frame()


def settled(*keys: str) -> Callable[[Pilot[str]], Awaitable[None]]:
    """Wait for the step, press keys, and replace what differs."""

    async def run(pilot: Pilot[str]) -> None:
        step = await ready(pilot)
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await ready(pilot)
        without_chance(step)
        await pilot.pause()

    return run


def app_at(session: Session, step: str, **changes: object) -> GrpoApp:
    """The wizard at a step of the finished project."""
    loaded = state.load(session.project)
    assert isinstance(loaded, state.Loaded)
    done = {name: mark for name, mark in loaded.draft.done.items() if STEPS.index(name) < STEPS.index(step)}
    draft = replace(loaded.draft, step=step, done=done, **changes)  # type: ignore[arg-type]  # fields of Draft
    still = Still(session)
    app = GrpoApp(session.project, session=still, environ=TERMINAL)
    app.opened = _open(app, draft)  # type: ignore[method-assign]  # the draft of the picture, not that on the disk
    return app


def _open(app: GrpoApp, draft: Draft) -> Callable[..., None]:
    opened = app.opened

    def instead(holder: object, loaded: object, *rest: object) -> None:
        opened(holder, state.Loaded(draft=draft), True)  # type: ignore[arg-type]
        app.read_only = False

    return instead


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_looks_as_it_did(step: str, size: str, written: Session, snap_compare: Snap) -> None:
    assert snap_compare(app_at(written, step), terminal_size=SIZES[size], run_before=settled())


@pytest.mark.parametrize("size", SIZES)
def test_groups_of_completions_on_the_bench(size: str, written: Session, snap_compare: Snap) -> None:
    loaded = state.load(written.project)
    assert isinstance(loaded, state.Loaded)
    rows = written.prepared(loaded.draft)
    assert not isinstance(rows, Problem)
    lines = [
        {"prompt": row["prompt"], "completion": f"<answer>{row['answer'] if at % (2 + number % 3) else 0}</answer>"}
        for number, row in enumerate(rows[:20])
        for at in range(4)
    ]
    (written.project / "kept").mkdir(exist_ok=True)  # aside: files beside the project's own are offered as data
    (written.project / "kept" / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    app = app_at(written, "score", score=ScoreAnswer(completions="kept/mine.jsonl"))
    assert snap_compare(app, terminal_size=SIZES[size], run_before=settled("down", "down"))


def test_the_gpus_of_a_busy_machine(written: Session, snap_compare: Snap) -> None:
    app = app_at(written, "hardware", hardware=HardwareAnswer(gpus=("GPU-0",)))
    assert snap_compare(app, terminal_size=SIZES["small"], run_before=settled("tab"))


def test_a_step_that_failed(written: Session, snap_compare: Snap) -> None:
    loaded = state.load(written.project)
    assert isinstance(loaded, state.Loaded)
    app = app_at(written, "dataset", dataset=replace(loaded.draft.dataset, source="gone.jsonl"))
    assert snap_compare(app, terminal_size=SIZES["small"], run_before=settled())


def test_a_dialog_fits_the_smallest_terminal(written: Session, snap_compare: Snap) -> None:
    async def asked(pilot: Pilot[str]) -> None:
        await settled()(pilot)
        await pilot.press("enter")
        await pilot.pause()

    assert snap_compare(app_at(written, "launch"), terminal_size=SIZES["small"], run_before=asked)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("key", ["p", "b"])
def test_the_plans_and_the_batch(key: str, size: str, written: Session, snap_compare: Snap) -> None:
    async def asked(pilot: Pilot[str]) -> None:
        step = await ready(pilot)
        await pilot.press(key)
        await until(pilot, "a dialog", lambda: pilot.app.screen is not step)
        await until(pilot, "all is read", lambda: not step.doing)
        without_chance(step)
        await pilot.press("down", "right")
        await pilot.pause()

    loaded = state.load(written.project)
    assert isinstance(loaded, state.Loaded)
    card = HardwareAnswer(manual_name="RTX 4090", manual_bytes=24 * GIB, manual_count=2, manual_capability="8.9")
    app = app_at(written, "settings", hardware=card, dataset=replace(loaded.draft.dataset, eval_share=0.25))
    assert snap_compare(app, terminal_size=SIZES[size], run_before=asked)


def test_a_window_that_is_too_small(written: Session, snap_compare: Snap) -> None:
    assert snap_compare(app_at(written, "task"), terminal_size=(60, 12), run_before=settled())


@pytest.mark.parametrize("theme", ["light", "16", "none"])
def test_the_rewards_in_other_colours(theme: str, written: Session, snap_compare: Snap) -> None:
    app = app_at(written, "rewards")
    app.theme = f"grpo-{theme}"
    assert snap_compare(app, terminal_size=SIZES["small"], run_before=settled())
