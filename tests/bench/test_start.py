"""From starting the program to its first screen, beside a bare Textual app. Run by hand: pytest -m bench -s."""

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
import time
from fcntl import ioctl
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.bench]

RUN = Path(__file__).parents[1] / "runs" / "h01_base"
TIMES = 9
GOAL = 1.6
"""First paint, as a multiple of what a Textual app with one line of text needs."""

BARE = """
from textual.app import App
from textual.widgets import Static


class Bare(App):
    def compose(self):
        yield Static("one line of text")


Bare().run()
"""


def first_paint(words: list[str], shown: str, folder: Path, compiled: Path) -> float:
    """Seconds from starting `python words…` in a terminal of 80×23 until it has written `shown`.

    Its modules are kept compiled in `compiled`, as they are where the program was installed and started before.
    """
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 23, 80, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8",
               "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(compiled)}  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
                               env=environ, start_new_session=True)  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        while shown.encode() not in written:
            assert select.select([ours], [], [], 20)[0], f"{shown!r} was not shown"
            written += os.read(ours, 1 << 16)
        return time.perf_counter() - begun
    finally:
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:  # what it says on leaving is read, or it would wait for a reader
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    os.read(ours, 1 << 16)
                except OSError:
                    process.wait(10)
        os.close(ours)


def test_the_first_screen_comes_soon_after_textual_itself(tmp_path: Path) -> None:
    run = shutil.copytree(RUN, tmp_path / "runs" / "finished")
    (bare := tmp_path / "bare.py").write_text(BARE)

    starts = {
        "bare": ([str(bare)], "one line of text"),
        "wizard": (["-m", "grpo_tui"], "Task"),
        "watch": (["-m", "grpo_tui", "watch", str(run)], "Reward"),
    }
    spent: dict[str, list[float]] = {name: [] for name in starts}
    for number in range(-1, TIMES):  # one after the other in turn, so that a busy moment meets all three
        (fresh := tmp_path / f"project-{number}").mkdir()
        for name, (words, shown) in starts.items():
            seconds = first_paint(words, shown, fresh, tmp_path / "compiled")
            if number >= 0:  # the first round only compiles
                spent[name].append(seconds)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    ratios = {
        name: statistics.median(seconds / bare for seconds, bare in zip(times, spent["bare"], strict=True))
        for name, times in spent.items()
    }
    figures = ", ".join(f"{name} {1000 * medians[name]:.0f} ms = {ratios[name]:.2f} ×" for name in starts)
    print(f"\nfirst paint 80×23: {figures} (goal {GOAL} ×)")
    assert ratios["wizard"] <= GOAL
    assert ratios["watch"] <= GOAL
