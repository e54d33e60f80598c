"""Workers: what comes back from them, whatever the code inside does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.child import Worker, scrubbed_environment
from grpo_tui.problem import Problem
from tests.processes import gone, until

# A worker of the user's world: it prints, floods, crashes, hangs and starts processes of its own.
UNRULY = """
print("printed before the channel is open")
from grpo_tui.child import open_channel, serve
channel = open_channel()
import os, re, subprocess, sys, threading, time
from grpo_tui.problem import Problem

def echo(params, progress):
    print('{"id": 1, "result": "forged"}')
    os.system("echo from C")
    sys.stdout.write("no newline")
    return params

def count(params, progress):
    for n in range(params["n"]):
        progress({"done": n})
    return {}

def flood(params, progress):
    for _ in range(3000):
        os.write(2, b"x" * 999 + b"\\n")
    return {"flooded": True}

def refuse(params, progress):
    return Problem("row 3", "It is empty.", "Fill it.")

def fail(params, progress):
    raise ValueError("\\x1b[31mred\\x1b[0m") from KeyError("cause")

def leave(params, progress):
    sys.exit("I leave")

def unsayable(params, progress):
    return {"object": object()}

def die(params, progress):
    print("\\x1b[2Jlast words", file=sys.stderr)
    os._exit(7)

def killed(params, progress):
    os.kill(os.getpid(), 9)

def hang(params, progress):
    started = subprocess.Popen(["sleep", "600"])
    progress({"pid": os.getpid(), "started": started.pid})
    time.sleep(600)

def hide(params, progress):
    if not os.fork():  # as a daemon does it: a session of its own, and no parent
        os.setsid()
        if os.fork():
            os._exit(0)
        for descriptor in range(3, 50):
            try: os.close(descriptor)
            except OSError: pass
        open(params["note"], "w").write(str(os.getpid()))
        time.sleep(60)
    os.wait()
    while not os.path.exists(params["note"]) or not open(params["note"]).read(): time.sleep(0.01)
    progress({"hidden": int(open(params["note"]).read())})
    time.sleep(600)

def hold_the_gil(params, progress):
    progress({"pid": os.getpid()})
    re.match("(a+)+$", "a" * 60 + "b")

def environment(params, progress):
    return dict(os.environ)

def allocate(params, progress):
    return {"size": len(bytearray(params["bytes"]))}

def read_input(params, progress):
    return {"read": sys.stdin.read()}

methods = (
    "echo count flood refuse fail leave unsayable die killed hang hide hold_the_gil environment allocate read_input"
)
serve({name: globals()[name] for name in methods.split()}, channel)
"""


@pytest.fixture(scope="module")
def unruly_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("unruly")
    (folder / "unruly.py").write_text(UNRULY)
    (folder / "sitecustomize.py").write_text(
        f"import grpo_tui.workers\ngrpo_tui.workers.__path__.append({str(folder)!r})\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def worker(unruly_environment: dict[str, str]) -> Iterator[Worker]:
    with Worker("unruly", env=unruly_environment) as started:
        yield started


def test_prints_of_user_code_do_not_reach_the_protocol(worker: Worker) -> None:
    assert worker.call("echo", {"text": "é\ud800\n", "number": 0.1}) == {"text": "é\ud800\n", "number": 0.1}


def test_a_request_of_many_megabytes_arrives_whole(worker: Worker) -> None:
    payload = {"text": "déjà vu " * 500_000}
    assert worker.call("echo", payload) == payload


def test_progress_arrives_in_order_and_before_the_answer(worker: Worker) -> None:
    seen: list[int] = []
    assert worker.call("count", {"n": 5}, on_progress=lambda said: seen.append(said["done"])) == {}
    assert seen == [0, 1, 2, 3, 4]


def test_a_flood_on_standard_error_blocks_nobody(worker: Worker) -> None:
    assert worker.call("flood", {}) == {"flooded": True}


def test_a_problem_of_the_worker_comes_back_as_it_is(worker: Worker) -> None:
    assert worker.call("refuse", {}) == Problem("row 3", "It is empty.", "Fill it.")


def test_an_exception_is_named_by_its_innermost_cause_and_the_worker_lives_on(worker: Worker) -> None:
    pid = worker.pid
    problem = worker.call("fail", {})
    assert isinstance(problem, Problem)
    assert "KeyError" in problem.what
    assert "cause" in problem.what
    assert worker.pid == pid


@pytest.mark.parametrize(
    ("method", "word"), [("leave", "I leave"), ("unsayable", "TypeError"), ("nothing", "KeyError")]
)
def test_what_cannot_be_answered_is_said_and_the_worker_lives_on(worker: Worker, method: str, word: str) -> None:
    pid = worker.pid
    problem = worker.call(method, {})
    assert isinstance(problem, Problem)
    assert word in problem.what
    assert worker.pid == pid


def test_a_crash_is_named_with_its_exit_code_and_last_words_made_safe(worker: Worker) -> None:
    problem = worker.call("die", {})
    assert isinstance(problem, Problem)
    assert problem.where == "worker unruly"
    assert "exit code 7" in problem.what
    assert problem.what.endswith("last words")
    assert "\x1b" not in problem.what
    assert worker.call("echo", {"again": 1}) == {"again": 1}


def test_a_kill_by_the_system_is_named_by_its_signal(worker: Worker) -> None:
    problem = worker.call("killed", {})
    assert isinstance(problem, Problem)
    assert "SIGKILL" in problem.what
    assert "memory" in problem.remedy


def test_a_time_out_ends_the_worker_and_all_that_it_started(worker: Worker) -> None:
    pids: list[dict[str, int]] = []
    problem = worker.call("hang", {}, timeout=0.3, on_progress=pids.append)
    assert isinstance(problem, Problem)
    assert "0.3 s" in problem.what
    assert gone(pids[0]["pid"])
    assert gone(pids[0]["started"])
    assert worker.call("echo", {"back": 1}) == {"back": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that leaves its parent cannot be found")
@pytest.mark.parametrize("end", ["time-out", "cancel", "close"])
def test_a_process_that_made_itself_independent_ends_with_the_worker(
    unruly_environment: dict[str, str], tmp_path: Path, end: str
) -> None:
    hidden: list[dict[str, int]] = []
    with Worker("unruly", env=unruly_environment) as hiding:

        def found(said: dict[str, int]) -> None:
            hidden.append(said)
            {"time-out": int, "cancel": hiding.cancel, "close": hiding.close}[end]()

        params = {"note": str(tmp_path / "note")}
        timeout = 2.0 if end == "time-out" else None
        assert isinstance(hiding.call("hide", params, timeout=timeout, on_progress=found), Problem)
        assert gone(hidden[0]["hidden"])


def test_code_that_never_lets_go_of_the_interpreter_is_timed_out_too(worker: Worker) -> None:
    problem = worker.call("hold_the_gil", {}, timeout=0.3)
    assert isinstance(problem, Problem)
    assert worker.call("echo", {"back": 1}) == {"back": 1}


def test_cancel_from_another_thread_ends_the_pending_call(worker: Worker) -> None:
    pids: list[dict[str, int]] = []
    answers: list[object] = []
    call = threading.Thread(target=lambda: answers.append(worker.call("hang", {}, on_progress=pids.append)))
    call.start()
    assert until(lambda: pids)
    worker.cancel()
    call.join(timeout=20)
    (problem,) = answers
    assert isinstance(problem, Problem)
    assert "cancelled" in problem.what
    assert gone(pids[0]["started"])


def test_calls_of_many_threads_each_get_their_own_answer(worker: Worker) -> None:
    answers: dict[int, object] = {}
    threads = [
        threading.Thread(target=lambda n=n: answers.__setitem__(n, worker.call("echo", {"n": n}))) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert answers == {n: {"n": n} for n in range(12)}


def test_a_caller_that_fails_in_its_progress_leaves_no_busy_worker(worker: Worker) -> None:
    def interrupted(said: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.call("hang", {}, on_progress=interrupted)
    assert worker.call("echo", {"n": 1}) == {"n": 1}


def test_standard_input_is_empty_for_user_code(worker: Worker) -> None:
    assert worker.call("read_input", {}) == {"read": ""}


def test_a_closed_worker_leaves_no_process_and_says_that_it_is_closed(unruly_environment: dict[str, str]) -> None:
    closed = Worker("unruly", env=unruly_environment)
    assert closed.call("echo", {}) == {}
    pid = closed.pid
    assert pid is not None
    closed.close()
    with pytest.raises(ChildProcessError):  # waited for: no zombie of ours
        os.waitpid(pid, os.WNOHANG)
    assert isinstance(closed.call("echo", {}), Problem)


def test_a_worker_that_does_not_exist_says_so() -> None:
    with Worker("no_such_worker") as missing:
        problem = missing.call("echo", {})
    assert isinstance(problem, Problem)
    assert "no_such_worker" in problem.what


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the limit of the address space")
def test_a_worker_with_a_memory_limit_fails_instead_of_filling_the_machine(unruly_environment: dict[str, str]) -> None:
    with Worker("unruly", env=unruly_environment, address_space_bytes=1 << 30) as limited:
        assert limited.call("allocate", {"bytes": 1000}) == {"size": 1000}
        problem = limited.call("allocate", {"bytes": 2 << 30})
    assert isinstance(problem, Problem)
    assert "MemoryError" in problem.what


PARENT = """
import os, sys
from grpo_tui.child import Worker
Worker("unruly").call(sys.argv[1], {}, on_progress=lambda said: print(said["pid"], flush=True))
"""


@pytest.mark.parametrize("method", ["hang", "hold_the_gil"])
def test_a_busy_worker_dies_with_a_terminal_that_is_killed(unruly_environment: dict[str, str], method: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, method], env=unruly_environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert gone(pid)


def test_a_worker_outlives_the_thread_that_started_it(worker: Worker) -> None:
    worker.cancel()
    starter = threading.Thread(target=lambda: worker.call("echo", {}))
    starter.start()
    starter.join()
    pid = worker.pid
    time.sleep(0.2)
    assert worker.call("echo", {"n": 2}) == {"n": 2}
    assert worker.pid == pid


def test_workers_see_no_gpu_unless_asked_and_nothing_of_the_folder_hides_a_library(
    unruly_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('shadowed')")
    seen: list[dict[str, Any]] = []
    for gpu in (False, True):
        env = {**unruly_environment, "CUDA_VISIBLE_DEVICES": "GPU-1"}
        with Worker("unruly", env=env, cwd=tmp_path, gpu=gpu) as started:
            environment = started.call("environment", {})
            assert isinstance(environment, dict)
            seen.append(environment)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in seen] == ["", "GPU-1"]
    assert seen[0]["HF_HUB_DISABLE_TELEMETRY"] == "1"


def test_secrets_are_left_out_of_the_environment_and_nothing_else() -> None:
    secrets = {
        "HF_TOKEN": "hf_x", "HUGGING_FACE_HUB_TOKEN": "x", "WANDB_API_KEY": "x", "OPENAI_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "x", "GITHUB_PAT": "x", "DB_PASSWORD": "x",
        "HTTPS_PROXY": "http://me:secret@proxy:3128", "SSH_AUTH_SOCK": "/tmp/agent",
    }  # fmt: skip
    kept = {"PATH": "/bin", "TOKENIZERS_PARALLELISM": "false", "HF_HOME": "/hf", "HF_HUB_OFFLINE": "1", "MONKEY": "x"}
    assert scrubbed_environment({**secrets, **kept}) == {**kept, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}


def test_a_secret_that_user_code_found_in_its_parent_is_not_repeated(
    unruly_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
    with Worker("unruly", env=unruly_environment) as started:
        assert started.call("echo", {"found": "hf_0123456789abcdef!"}) == {"found": "(not shown)!"}
