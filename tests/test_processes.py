"""The processes below a process, while they come and go."""

import os
import subprocess
import sys
import threading

import pytest

from grpo_tui.processes import descendants


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_that_end_while_they_are_looked_up_are_no_error() -> None:
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            subprocess.run(["sh", "-c", "true & true & sleep 0.001"], check=True)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        seen = [len(descendants(os.getpid())) for _ in range(2000)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert max(seen) > 0
