"""Processes below a process: found wherever they hide, ended without being asked, and ended with their parent.

A process that makes itself independent (`setsid`, a double fork) leaves its group and its parent. Linux hands such an
orphan to the nearest ancestor that called `adopt_orphans`, so that it can still be found; other systems do not.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from grpo_tui.lock import process_start

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36

ROUNDS = 100
"""How often is looked for processes that still live: they may go on starting others while they are killed."""

ROUND_SECONDS = 0.001
"""Wait between two looks: a killed process takes a moment to be gone."""


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask Linux to send this process the signal `number` when the thread that started it ends (prctl(2))."""
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Ask Linux to make this process the parent of orphans among its descendants (prctl(2)). Not inherited by them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """The living processes below `pid`, parents first."""
    below: list[int] = []
    waiting = [pid]
    while waiting:
        found = [each for each in _children(waiting.pop(0)) if each not in below]
        below += found
        waiting += found
    return [each for each in below if process_start(each) is not None]


def _children(pid: int) -> Sequence[int]:
    """By the kernel's own list (proc(5), `/proc/PID/task/TID/children`), else by the process table."""
    if not Path("/proc/thread-self/children").exists():
        with contextlib.suppress(ImportError):
            import psutil  # type: ignore[import-untyped]  # has no types of its own

            with contextlib.suppress(psutil.Error):
                return [int(child.pid) for child in psutil.Process(pid).children()]
        return []
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process ends meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # or the thread alone
                found += map(int, (thread / "children").read_text().split())
    return found


def end_descendants(pid: int, spared: Collection[int] = ()) -> None:
    """Kill the processes below `pid` but the `spared`, without grace, and look again until none lives."""
    for _ in range(ROUNDS):
        living = [each for each in descendants(pid) if each not in spared]
        if not living:
            return
        for each in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        time.sleep(ROUND_SECONDS)


def end_with_descendants(pid: int) -> None:
    """Kill the leader `pid` of a group, its group and all below it, now.

    It is stopped first, so that it starts nothing while the others are killed, and is there to be given their orphans.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGSTOP)
    end_descendants(pid)
    end_group(pid)


def end_group(pid: int) -> None:
    """Kill the process group that `pid` leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; on macOS a group of zombies gives EPERM
        os.killpg(pid, signal.SIGKILL)
