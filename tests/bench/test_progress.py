"""What reading and drawing a long run costs, each beside a plain yardstick measured in the same run."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui.progress.events import EVENTS_FILE, first_view, read_new
from grpo_tui.progress.fold import Progress, advance, follow
from grpo_tui.progress.reduce import reduce_columns
from grpo_tui.progress.series import Series
from grpo_tui.run.life import life

pytestmark = [pytest.mark.slow, pytest.mark.bench]

RUNS = Path(__file__).parents[1] / "runs"


def best(function, times=5):
    """The shortest of some runs, in seconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        spent.append(time.perf_counter() - began)
    return min(spent)


@pytest.fixture
def long_run(tmp_path):
    """50 MB of events: the rows of a recorded run, with rising steps."""
    lines = (RUNS / "h01_base" / EVENTS_FILE).read_text().splitlines()
    row = json.loads(lines[1])
    with (tmp_path / EVENTS_FILE).open("w") as file:
        file.write(lines[0] + "\n")
        step = 0
        while file.tell() < 50 << 20:
            step += 1
            row["step"] = step
            file.write(json.dumps(row) + "\n")
            file.write(json.dumps({"v": 1, "t": 1.0, "kind": "phase", "step": step, "seconds": {"train": 0.1}}) + "\n")
    return tmp_path


def test_a_long_run_is_seen_and_read(long_run, capsys):
    path = long_run / EVENTS_FILE
    raw = best(lambda: path.read_bytes().count(b"\n"))
    view = best(lambda: advance(Progress(), first_view(path)[0]))

    def whole():
        seen = follow(path)
        while not seen.complete:
            seen = follow(path, seen)
        return seen

    history = best(whole, times=2)
    progress = whole().progress
    row = next(event for event in read_new(path, budget=8192)[0] if event.kind == "log")
    now = [progress]
    one = best(lambda: now.append(advance(now[-1], [replace(row, step=now[-1].step + 1)])), times=50)
    look = best(lambda: life(long_run, progress=progress), times=50)
    rows = len(progress.series["reward"])
    size = path.stat().st_size >> 20
    with capsys.disabled():
        print(f"\n{size} MB, {rows} rows; reading the bytes and counting lines {raw * 1e3:.0f} ms")
        print(f"first view {view * 1e3:.0f} ms = {view / raw:.2f} x; history {history:.2f} s = {history / raw:.0f} x")
        print(f"one event more {one * 1e6:.0f} us; a look at its life {look * 1e6:.0f} us")


def test_a_hundred_thousand_points_become_a_chart(capsys):
    series = Series.of((step, float(step % 97)) for step in range(100_000))
    steps, values = series.steps, series.values
    raw = best(lambda: (values.min(), values.max(), values.mean()), times=50)
    few = best(lambda: reduce_columns(steps, values, 240, 99_999), times=50)
    with capsys.disabled():
        print(f"\n100,000 points to 240 columns: {few * 1e3:.2f} ms = {few / raw:.1f} x numpy's min, max and mean")
