"""A user's world for the wizard: an empty home, a machine that never changes, and projects."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.step import Step
from textual.pilot import Pilot

from grpo_tui import recipe
from grpo_tui.draft import Draft, HardwareAnswer
from grpo_tui.hardware.machine import GPU, GPUProcess, Machine
from grpo_tui.session import Session
from tests.kept_workers import keep_workers

GIB = 1024**3
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}

CPU_BOX = Machine(host="box", memory_total_bytes=16 * GIB, memory_available_bytes=12 * GIB)
GPU_BOX = Machine(
    host="gpu-box-1",
    kind="nvidia",
    driver="580.1",
    cuda_driver="13.0",
    memory_total_bytes=256 * GIB,
    memory_available_bytes=200 * GIB,
    gpus=(
        GPU(
            index=0, uuid="GPU-0", name="NVIDIA H100 80GB HBM3", total_bytes=80 * GIB, free_bytes=79 * GIB,
            used_bytes=GIB, cuda_index=0, capability=(9, 0),
        ),
        GPU(
            index=1, uuid="GPU-1", name="NVIDIA H100 80GB HBM3", total_bytes=80 * GIB, free_bytes=50 * GIB,
            used_bytes=30 * GIB, cuda_index=1, capability=(9, 0),
            processes=(GPUProcess(pid=4711, name="python", user="ada", used_bytes=29 * GIB),),
        ),
        GPU(
            index=2, uuid="GPU-2", name="NVIDIA A10", total_bytes=24 * GIB, free_bytes=23 * GIB, used_bytes=GIB,
            visible=False, capability=(8, 6),
        ),
    ),
)  # fmt: skip


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What reading the installed libraries once left behind, for every test."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def home(
    tmp_path_factory: pytest.TempPathFactory,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Path:
    """The developer's own home stays out of the tests."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("HF_TOKEN", "WANDB_API_KEY", "CUDA_VISIBLE_DEVICES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if request.path.name != "test_hub.py":  # there a worker belongs to its test's hub
        keep_workers(monkeypatch)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "demo"


@pytest.fixture
def make_app(project: Path) -> Iterator[Callable[..., GrpoApp]]:
    """The wizard on that folder, on a machine without GPU unless another one is given."""
    sessions = []

    def make(*, machine: Machine = CPU_BOX, **options: Any) -> GrpoApp:
        session = Session(project, machine=machine)
        sessions.append(session)
        return GrpoApp(project, session=session, environ=TERMINAL, **options)

    yield make
    for session in sessions:
        session.close()


def word_problems() -> Draft:
    """The answers of the shipped recipe."""
    found = recipe.read("word_problems")
    assert isinstance(found, recipe.Recipe)
    return recipe.draft_for(found)


def own_model(project: Path) -> Draft:
    """The same, with the model in the project, so that no path of this machine shows."""
    draft = word_problems()
    shutil.copytree(draft.model.name, project / "tiny-model", dirs_exist_ok=True)
    return replace(draft, model=replace(draft.model, name="tiny-model"), hardware=HardwareAnswer(cpu=True))


@asynccontextmanager
async def running(app: GrpoApp, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Pilot[str]]:
    """The app, its first step ready."""
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        yield pilot


async def until(pilot: Pilot[Any], what: str, holds: Callable[[], bool], seconds: float = 90) -> None:
    """Wait until something holds; it is a failure if it never does."""
    for _ in range(int(seconds / 0.05)):
        await pilot.pause()
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never: {what}; the screen is {pilot.app.screen}, {getattr(pilot.app.screen, 'failed', '')}")


async def ready(pilot: Pilot[Any]) -> Step:
    """The step on the screen, when it has looked at everything."""

    def settled() -> bool:
        return isinstance(pilot.app.screen, Step) and not pilot.app.screen.doing

    await until(pilot, "the step is ready", settled)
    screen = pilot.app.screen
    assert isinstance(screen, Step)
    return screen


async def onward(pilot: Pilot[Any], name: str) -> Step:
    """Press enter, and wait for the step of this name."""
    await pilot.press("enter")
    await until(pilot, f"step {name}", lambda: getattr(pilot.app.screen, "NAME", "") == name)
    return await ready(pilot)


def text_of(screen: Any) -> str:
    """Everything on the screen, as text."""
    rows = screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in rows)
