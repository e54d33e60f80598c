"""One project folder, one writer; whoever comes second is told who holds it."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui import lock
from grpo_tui.lock import LOCK_FILE, Holder, Lock, acquire, current_holder
from grpo_tui.problem import Problem

HOLD = """
import sys, subprocess
from pathlib import Path
from grpo_tui.lock import Lock, acquire
held = acquire(Path(sys.argv[1]))
if "child" in sys.argv:
    subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=sys.stdin)
print(type(held).__name__, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_process(folder: Path, *extra: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of `folder` until it is ended."""
    argv = [sys.executable, "-c", HOLD, str(folder), *extra]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "Lock"
        yield process
        process.kill()


def held(folder: Path) -> Lock:
    got = acquire(folder)
    assert isinstance(got, Lock)
    return got


def write_down(folder: Path, holder: Holder) -> None:
    (folder / LOCK_FILE).write_text(json.dumps(asdict(holder)))


@pytest.fixture
def me(tmp_path: Path) -> Holder:
    """What this process writes into a lock."""
    with held(tmp_path) as mine:
        return mine.holder


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, as some network file systems are mounted."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.0)


def test_a_second_instance_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        holder = acquire(tmp_path)
        assert isinstance(holder, Holder)
        assert (holder.pid, holder.here, holder.alive) == (process.pid, True, True)
        assert holder.user in str(holder)
        assert str(process.pid) in str(holder)
        assert current_holder(tmp_path) == holder


def test_of_processes_that_start_together_one_gets_the_folder(tmp_path: Path) -> None:
    start_read, start_write = os.pipe()
    result_read, result_write = os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            os.close(start_write)
            os.read(start_read, 1)  # all wait until the pipe is closed
            os.write(result_write, b"L" if isinstance(acquire(tmp_path), Lock) else b"h")
            signal.pause()
        children.append(child)
    os.close(start_read)
    os.close(start_write)
    answers = b""
    while len(answers) < len(children):
        answers += os.read(result_read, 8)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(result_read)
    os.close(result_write)
    assert sorted(answers) == sorted(b"L" + b"h" * 7)


def test_a_killed_holder_leaves_a_stale_lock_that_is_taken(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = current_holder(tmp_path)
        assert left is not None
        assert left.alive is False
        held(tmp_path).release()


def test_a_program_started_by_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    with another_process(tmp_path, "child") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        held(tmp_path).release()


def test_a_lock_is_free_after_release_and_release_twice_is_harmless(tmp_path: Path) -> None:
    mine = held(tmp_path)
    assert isinstance(acquire(tmp_path), Holder)
    mine.release()
    assert current_holder(tmp_path) is None
    again = held(tmp_path)
    mine.release()
    assert isinstance(acquire(tmp_path), Holder)
    again.release()


def test_a_reused_process_number_is_not_the_holder(tmp_path: Path, me: Holder) -> None:
    write_down(tmp_path, replace(me, started=me.started - 100))
    assert isinstance(acquire(tmp_path), Lock)


def test_a_holder_from_before_the_reboot_is_gone(tmp_path: Path, me: Holder) -> None:
    write_down(tmp_path, replace(me, boot_id="an earlier boot"))
    assert isinstance(acquire(tmp_path), Lock)


@pytest.mark.parametrize("change", [{"host": "node7"}, {"place": "another machine or container with this host name"}])
def test_a_lock_of_another_host_needs_a_yes(tmp_path: Path, me: Holder, change: dict[str, Any]) -> None:
    write_down(tmp_path, replace(me, pid=1, **change))
    holder = acquire(tmp_path)
    assert isinstance(holder, Holder)
    assert (holder.here, holder.alive) == (False, None)
    assert isinstance(acquire(tmp_path, take_over=True), Lock)


def test_a_yes_does_not_break_the_lock_of_a_living_process(tmp_path: Path) -> None:
    with another_process(tmp_path):
        assert isinstance(acquire(tmp_path, take_over=True), Holder)


def test_the_name_of_a_successor_stays_when_the_old_holder_lets_go(tmp_path: Path, me: Holder) -> None:
    mine = held(tmp_path)
    write_down(tmp_path, replace(me, host="node7"))
    mine.release()
    holder = current_holder(tmp_path)
    assert holder is not None
    assert holder.host == "node7"


@pytest.mark.usefixtures("no_flock")
def test_without_flock_the_written_name_keeps_others_out(tmp_path: Path, me: Holder) -> None:
    mine = held(tmp_path)
    assert not mine.sure
    second = acquire(tmp_path)
    assert isinstance(second, Holder)
    assert second.alive is True
    mine.release()
    write_down(tmp_path, replace(me, started=me.started - 100))
    held(tmp_path).release()


@pytest.mark.usefixtures("no_flock")
def test_without_flock_the_later_of_two_claims_wins(
    tmp_path: Path, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(me, host="node7", pid=12)
    monkeypatch.setattr(time, "sleep", lambda seconds: write_down(tmp_path, other))
    assert acquire(tmp_path) == other


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"host": "a"}', '{"host": 1, "pid": "x"}', "\x00\xff", "[" * 4000]
)
def test_a_lock_file_that_says_nothing_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK_FILE).write_text(content)
    assert isinstance(acquire(tmp_path), Lock)


def test_terminal_sequences_in_a_lock_are_not_shown(tmp_path: Path, me: Holder) -> None:
    write_down(tmp_path, replace(me, host="node7", user="\x1b[2Jroot\nx"))
    holder = acquire(tmp_path)
    assert isinstance(holder, Holder)
    assert holder.user == "root x"


def test_a_folder_that_cannot_be_locked_is_a_problem(tmp_path: Path) -> None:
    assert isinstance(acquire(tmp_path / "missing"), Problem)
    (tmp_path / LOCK_FILE).mkdir()
    problem = acquire(tmp_path)
    assert isinstance(problem, Problem)
    assert str(tmp_path) in problem.where


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "precious")
    assert isinstance(acquire(tmp_path), Problem)
    assert (tmp_path / "precious").read_text() == "keep me"


def test_a_dead_process_that_nobody_has_reaped_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        started = lock.process_start(process.pid)
        assert started is not None
        assert lock.is_running(process.pid, started, lock.boot_id())
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table
        assert not lock.is_running(process.pid, started, lock.boot_id())
