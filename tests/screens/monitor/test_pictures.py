"""Pictures of the monitor's states. After an intended change: pytest tests/screens/monitor --snapshot-update."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpo_tui.screens.monitor import glance

from grpo_tui.run.life import Life
from tests.screens.monitor.conftest import LiveRun, settled, watch

SIZES = {"small": (80, 23), "large": (120, 36)}
Recorded = Callable[[str], Path]
Snap = Callable[..., bool]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("run", ["h04_beta_kl", "f29_crash_exc", "made_nan"])
def test_many_steps_failed_and_broken_figures(run: str, size: str, recorded: Recorded, snap_compare: Snap) -> None:
    assert snap_compare(watch(recorded(run)), terminal_size=SIZES[size], run_before=settled())


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose name, clock and processes are the same in every picture."""

    def life(run: Path, now: float | None = None, **more: Any) -> Life:
        progress = more["progress"]
        state = "running" if progress.latest else "starting"
        return Life(state=state, words="Libraries and model are being loaded; no step has begun.", pid=4242,
                    host="gpu-box-1", last_event_age=2.0 if progress.latest else None)  # fmt: skip

    monkeypatch.setattr(glance, "life", life)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.usefixtures("box")
def test_no_step_and_one_step(steps: int, size: str, live: LiveRun, snap_compare: Snap, monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.screens.monitor.conftest.time.time", lambda: 1_800_000_000.0)
    live.begin()
    for number in range(1, steps + 1):
        live.step(number)
    assert snap_compare(watch(live.run), terminal_size=SIZES[size], run_before=settled())


@pytest.mark.parametrize("theme", ["light", "16", "none"])
def test_other_themes(theme: str, recorded: Recorded, snap_compare: Snap) -> None:
    app = watch(recorded("h01_base"), theme=theme)
    assert snap_compare(app, terminal_size=SIZES["small"], run_before=settled("7", "down"))


@pytest.mark.parametrize("size", SIZES)
def test_the_value_table(size: str, recorded: Recorded, snap_compare: Snap) -> None:
    app = watch(recorded("h01_base"))
    assert snap_compare(app, terminal_size=SIZES[size], run_before=settled("v"))


def test_the_cursor_and_an_enlarged_panel(recorded: Recorded, snap_compare: Snap) -> None:
    app = watch(recorded("h01_base"))
    assert snap_compare(app, terminal_size=SIZES["large"], run_before=settled("2", "enter", *["left"] * 5))


def test_the_cursor_in_the_reward(recorded: Recorded, snap_compare: Snap) -> None:
    app = watch(recorded("h04_beta_kl"))
    assert snap_compare(app, terminal_size=SIZES["large"], run_before=settled(*["left"] * 9))


def test_one_completion_and_the_question_whether_to_read_on(recorded: Recorded, snap_compare: Snap) -> None:
    app = watch(recorded("h01_base"))
    assert snap_compare(app, terminal_size=SIZES["small"], run_before=settled("7", "down", "enter"))


def test_a_window_that_is_too_small(recorded: Recorded, snap_compare: Snap) -> None:
    assert snap_compare(watch(recorded("f25_zero_step")), terminal_size=(60, 12), run_before=settled())
