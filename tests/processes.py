"""Waiting for processes to end."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def gone(pid: int) -> bool:
    """The process has ended; an orphan may wait for the init of its container to notice."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def until(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 20
    while not (done := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(done)
