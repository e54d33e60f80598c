"""Reward functions that hang, hide and multiply: what is left of them, and how the others go on."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.rewards.bench import start_worker
from grpo_tui.rewards.calls import Batch, Caller
from tests.processes import gone

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks, and finds what hides")

STUBBORN = """
import os, subprocess, sys, time
with open(os.path.join(os.path.dirname(__file__), "loads"), "a") as file:
    file.write("loaded\\n")
seen = []
def stubborn(completions, **kwargs):
    seen.append(completions)
    while True:
        try: time.sleep(60)
        except BaseException: pass
def counts(completions, **kwargs):
    seen.append(completions)
    return [float(len(seen))] * len(completions)
"""

HIDING = (
    STUBBORN
    + """
DAEMON = '''
import os, sys, time
os.setsid()
if os.fork(): os._exit(0)
with open("daemon", "w") as file: file.write(str(os.getpid()))
time.sleep(30)
'''
def starts(completions, **kwargs):
    subprocess.run([sys.executable, "-c", DAEMON], check=True)
    while not os.path.exists("daemon") or not open("daemon").read(): time.sleep(0.01)
    return [1.0] * len(completions)
def starts_and_hangs(completions, **kwargs):
    starts(completions)
    stubborn(completions)
"""
)

BATCH = Batch(prompts=["?"] * 2, completions=["a", "b"], completion_ids=[None] * 2, columns={})


def caller_of(worker: Worker, folder: Path, code: str, names: str, timeout: float = 0.3) -> Caller:
    (folder / "rewards.py").write_text(code)
    caller = Caller(worker, folder / "rewards.py", tuple(names.split()), "", timeout)
    assert caller.load() is None
    return caller


def rewards(caller: Caller, name: str) -> list[float]:
    reply = caller.call(name, BATCH)
    assert not isinstance(reply, Problem)
    return list(reply["rewards"])


def loads(folder: Path) -> int:
    return len((folder / "loads").read_text().splitlines())


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with start_worker(tmp_path) as started:
        yield started


@linux
def test_after_a_hang_the_file_is_not_loaded_again_and_begins_as_it_was_loaded(worker: Worker, tmp_path: Path) -> None:
    caller = caller_of(worker, tmp_path, STUBBORN, "stubborn counts")
    pid = worker.pid
    assert rewards(caller, "counts") == [1.0, 1.0]
    assert rewards(caller, "counts") == [2.0, 2.0]  # in one process, as in training
    for _ in range(3):
        assert caller.call("stubborn", BATCH) == {"outcome": "hung"}
        assert rewards(caller, "counts") == [1.0, 1.0]
    assert loads(tmp_path) == 1
    assert worker.pid == pid


@pytest.mark.parametrize(
    "unsafe",
    [
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
        "import subprocess\nserver = subprocess.Popen(['sleep', '600'])\n",
    ],
    ids=["a thread", "a process"],
)
def test_a_file_that_starts_something_is_loaded_again_since_a_fork_would_lack_it(
    worker: Worker, tmp_path: Path, unsafe: str
) -> None:
    alive = "\ndef lives(completions, **k): return [float(server.poll() is None)] * 2\n" if "server" in unsafe else ""
    caller = caller_of(worker, tmp_path, unsafe + STUBBORN + alive, "stubborn counts" + " lives" * bool(alive))
    for time in range(1, 3):
        assert rewards(caller, "counts") == [1.0, 1.0]
        if alive:
            assert rewards(caller, "lives") == [1.0, 1.0]
        assert loads(tmp_path) == time
        assert caller.call("stubborn", BATCH) == {"outcome": "hung"}


def test_a_file_edited_after_a_hang_is_read_again(worker: Worker, tmp_path: Path) -> None:
    caller = caller_of(worker, tmp_path, STUBBORN, "stubborn counts")
    assert caller.call("stubborn", BATCH) == {"outcome": "hung"}
    caller = caller_of(worker, tmp_path, STUBBORN.replace("float(len(seen))", "7.0"), "stubborn counts")
    assert rewards(caller, "counts") == [7.0, 7.0]
    assert caller.call("stubborn", BATCH) == {"outcome": "hung"}
    assert rewards(caller, "counts") == [7.0, 7.0]


@linux
@pytest.mark.parametrize("name", ["starts", "starts_and_hangs"])
def test_a_process_that_hides_ends_with_the_reward_that_started_it(worker: Worker, tmp_path: Path, name: str) -> None:
    caller = caller_of(worker, tmp_path, HIDING, "starts starts_and_hangs counts", timeout=3.0)
    caller.call(name, BATCH)
    hidden = int((tmp_path / "daemon").read_text())
    if name == "starts":
        os.kill(hidden, 0)  # a server that a reward uses serves the next call too
        worker.close()
    assert gone(hidden)


PARENT = """
import sys
from pathlib import Path
from grpo_tui.rewards.bench import start_worker
from tests.rewards.test_isolation import BATCH, caller_of, HIDING
folder = Path(sys.argv[1])
worker = start_worker(folder)
caller = caller_of(worker, folder, HIDING, "starts starts_and_hangs counts", timeout=600.0)
caller.call("starts", BATCH)
print(worker.pid, flush=True)
caller.call("starts_and_hangs", BATCH)
"""


@linux
def test_nothing_is_left_when_the_terminal_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            worker = int(parent.stdout.readline())
            hidden = int((tmp_path / "daemon").read_text())
            below = descendants_of(worker)
        finally:
            parent.kill()
    assert hidden in below
    assert len(below) >= 3  # with the original and its copy
    assert [pid for pid in (worker, *below) if not gone(pid)] == []


def descendants_of(pid: int) -> set[int]:
    """As `ps` tells it, not as the tested code finds them."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = {int(child): int(parent) for child, parent in map(str.split, told.stdout.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


SPYING = """
import os
def spies(completions, **kwargs):
    pid, found = os.getppid(), 0.0
    while pid > 1 and b"pytest" not in open(f"/proc/{pid}/cmdline", "rb").read():
        found += b"hf_secret" in open(f"/proc/{pid}/environ", "rb").read()
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    return [found] * len(completions)
"""


@linux
def test_a_reward_finds_no_secret_in_the_environment_of_the_processes_above_it(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(SPYING)
    (tmp_path / "completions.jsonl").write_text('{"completion": "a"}\n{"completion": "b"}\n')
    command = [sys.executable, "-m", "grpo_tui", "score", "rewards.py", "--completions", "completions.jsonl"]
    command += ["--yes", "--json"]
    environment = {**os.environ, "HF_TOKEN": "hf_secret"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["rewards"] == [[0.0], [0.0]], done.stdout + done.stderr
