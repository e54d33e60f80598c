"""Runs to look at: the recorded ones, and a live one that a test writes."""

import json
import os
import shutil
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from grpo_tui.screens.monitor.panel import MonitorPanel
from grpo_tui.screens.monitor.screen import MonitorScreen
from grpo_tui.screens.watch import WatchApp
from textual.pilot import Pilot

from grpo_tui import lock
from grpo_tui.run import record

RUNS = Path(__file__).parents[2] / "runs"
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a recorded run, as a run of a project."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(RUNS / name, tmp_path / "project" / "runs" / name))

    return copy


@dataclass
class LiveRun:
    """A run that is being trained by this very process."""

    run: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    def write(self, kind: str, step: int, **more: Any) -> None:
        """Append an event."""
        with (self.run / "events.jsonl").open("a") as file:
            file.write(json.dumps({"v": 1, "t": time.time(), "kind": kind, "step": step, **more}) + "\n")

    def begin(self, **settings: Any) -> None:
        """The first event."""
        self.write(
            "begin", 0, max_steps=100, world_size=1, reward_names=["correct", "form"], reward_weights=[1.0, 0.25],
            settings={"max_completion_length": 24, **settings}, batch={"num_generations": 4},
        )  # fmt: skip

    def step(self, number: int, **logs: Any) -> None:
        """A logged step; `logs` go over the usual figures."""
        figures = {
            "loss": 0.0123, "grad_norm": 0.5, "reward": number / 100, "reward_std": 0.2, "entropy": 0.4,
            "completions/mean_length": 11.0, "completions/clipped_ratio": 0.0, "step_time": 1.5,
            "rewards/correct/mean": number / 100, "rewards/form/mean": 1.0, "frac_reward_zero_std": 0.0,
        }  # fmt: skip
        self.write("log", number, logs={**figures, **logs}, groups={"flat_share": 0.25, "spread": [1, 0, 1, 1]})


@pytest.fixture
def live(tmp_path: Path) -> LiveRun:
    """A run without events whose training process is alive: this one."""
    run = tmp_path / "project" / "runs" / "live"
    run.mkdir(parents=True)
    (run / "train.log").write_text("loading\n")
    started = lock.process_start(os.getpid()) or 0.0
    record.write(run, record.Record(
        host=socket.gethostname(), boot_id=lock.boot_id(), supervisor_pid=os.getpid(), supervisor_started=started,
        training_pid=os.getpid(), training_started=started, started=time.time() - 5, beat=1, beat_at=time.time(),
    ))  # fmt: skip
    return LiveRun(run)


def watch(run: Path, theme: str = "dark", **more: Any) -> WatchApp:
    """The app in a known terminal."""
    return WatchApp(run, theme, environ=TERMINAL, **more)


def monitor(app: WatchApp) -> MonitorScreen:
    """The monitor of `app`, wherever it is in the stack."""
    return next(screen for screen in app.screen_stack if isinstance(screen, MonitorScreen))


async def look(pilot: Pilot[Any]) -> None:
    """Let the monitor look once, and paint."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    assert isinstance(pilot.app, WatchApp)
    monitor(pilot.app).look_once()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def shown(app: WatchApp) -> str:
    """All text on the screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def panel_text(app: WatchApp, number: int) -> str:
    """The text of one panel."""
    panel = monitor(app).query_one(f"#panel-{number}", MonitorPanel)
    return "\n".join(strip.text for strip in panel._strips)


def settled(*keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    """Look, then press keys: what a picture waits for."""

    async def run_before(pilot: Pilot[Any]) -> None:
        await look(pilot)
        for key in keys:
            await pilot.press(key)
            await pilot.app.workers.wait_for_complete()
        await pilot.pause()

    return run_before
