"""The whole monitor in a terminal of its own: load, bytes, and the answer to a key. Run by hand: pytest -m bench -s."""

import json
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.bench]

RUN = Path(__file__).parents[1] / "runs" / "h01_base"
PROGRAM = """
import sys
from pathlib import Path
from grpo_tui.screens.watch import WatchApp
WatchApp(Path(sys.argv[1]), "dark").run()
"""


class Feed(threading.Thread):
    """Writes rows into a run, so many a second."""

    def __init__(self, run: Path, rate: float) -> None:
        super().__init__(daemon=True)
        self.run_folder, self.rate, self.halt = run, rate, threading.Event()
        rows = [json.loads(line) for line in (RUN / "events.jsonl").read_text().splitlines()]
        self.logs = [row["logs"] for row in rows if row["kind"] == "log" and "loss" in row["logs"]]
        begin = rows[0] | {"t": time.time(), "max_steps": 500}
        with (run / "events.jsonl").open("w") as file:
            file.write(json.dumps(begin) + "\n")
        self.step = 0
        for _ in range(200):
            self.write()

    def write(self) -> None:
        self.step += 1
        row = {
            "v": 1,
            "t": time.time(),
            "kind": "log",
            "step": self.step,
            "logs": self.logs[min(self.step, len(self.logs) - 1)],
        }
        with (self.run_folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        with (self.run_folder / "train.log").open("a") as file:
            file.write(f"step {self.step}  reward {row['logs']['reward']:.3f}\n")  # type: ignore[index]

    def run(self) -> None:
        while not self.halt.wait(1 / self.rate):
            self.write()


@contextmanager
def terminal(run: Path, size: tuple[int, int]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The monitor in a pseudo-terminal of `size`."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(run)], stdin=theirs, stdout=theirs, stderr=theirs,
                               env=environ, start_new_session=True)  # fmt: skip
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.send_signal(signal.SIGTERM)
        drain(ours, 1.0)
        process.wait(10)
        os.close(ours)


def drain(terminal: int, seconds: float) -> int:
    """Bytes that came within `seconds`."""
    end, count = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                count += len(os.read(terminal, 1 << 16))
            except OSError:
                break
    return count


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUN, tmp_path / "runs" / "live"))


@pytest.mark.parametrize("size", [(120, 36), (80, 23)])
def test_one_event_a_second(run: Path, size: tuple[int, int]) -> None:
    feed = Feed(run, 1.0)
    with terminal(run, size) as (process, screen):
        feed.start()
        first = drain(screen, 6.0)
        watched = psutil.Process(process.pid)
        before, begun = watched.cpu_times(), time.monotonic()
        count = drain(screen, 30.0)
        after, seconds = watched.cpu_times(), time.monotonic() - begun
        feed.halt.set()
    load = (after.user + after.system - before.user - before.system) / seconds
    print(f"\nmonitor {size[0]}×{size[1]} at 1 event/s: {100 * load:.2f} % of a core, {count / seconds:.0f} bytes/s "
          f"(goal 2 %, 2500 bytes/s); first picture and start {first:,} bytes")  # fmt: skip
    assert load <= 0.02
    assert count / seconds <= 2500


def test_a_run_that_is_over_costs_nothing(run: Path) -> None:
    with terminal(run, (120, 36)) as (process, screen):
        drain(screen, 6.0)
        watched = psutil.Process(process.pid)
        before, begun = watched.cpu_times(), time.monotonic()
        count = drain(screen, 20.0)
        after, seconds = watched.cpu_times(), time.monotonic() - begun
    load = (after.user + after.system - before.user - before.system) / seconds
    print(f"\nmonitor 120×36, run over: {100 * load:.2f} % of a core, {count / seconds:.0f} bytes/s "
          f"(goal 0.5 %, 0 bytes/s)")  # fmt: skip
    assert load <= 0.005
    assert count == 0


def test_a_key_is_answered_at_once(run: Path) -> None:
    feed, waits = Feed(run, 10.0), []
    with terminal(run, (120, 36)) as (_, screen):
        feed.start()
        drain(screen, 6.0)
        for number in range(80):
            drain(screen, 0.05 + 0.013 * (number % 7))
            while select.select([screen], [], [], 0)[0]:
                os.read(screen, 1 << 16)
            begun = time.perf_counter()
            os.write(screen, b"\x1b[D" if number % 2 else b"\x1b[C")
            select.select([screen], [], [], 1.0)
            os.read(screen, 1 << 16)
            waits.append(1000 * (time.perf_counter() - begun))
        feed.halt.set()
    waits.sort()
    print(f"\nkey to paint under 10 events/s: median {statistics.median(waits):.1f} ms, p95 {waits[75]:.1f} ms, "
          f"greatest {waits[-1]:.1f} ms (goal: p95 30 ms)")  # fmt: skip
    assert waits[75] <= 30
