"""Start a worker process, talk to it, cancel it.

A worker is a module of `grpo_tui.workers`, run as `python -m grpo_tui.workers.<name>` in a session of its own. Parent
and child exchange JSON objects, one a line:

    parent -> child   {"id": 1, "method": "lengths", "params": {...}}
    child -> parent   {"ready": PID}
                      {"id": 1, "progress": {...}}                     any number
                      {"id": 1, "result": {...}}  or  {"id": 1, "problem": {...}}  or  {"id": 1, "error": {...}}

The child's side is two lines at the top of the module, before anything heavy is imported, and one at its end:

    from grpo_tui.child import open_channel, serve
    channel = open_channel()
    ...
    if __name__ == "__main__":
        serve({"lengths": lengths}, channel)

Handlers run in the child's main thread, one at a time. Bulk data goes by file, not through the pipe. Where each
request may hang in foreign code, `grpo_tui.warden` serves instead.
"""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem
from grpo_tui.processes import adopt_orphans, die_with_parent, end_group, end_with_descendants
from grpo_tui.secret import HIDDEN, blank_environment, is_secret, shows_secret

Progress = Callable[[dict[str, Any]], None]
Handler = Callable[[dict[str, Any], Progress], "dict[str, Any] | Problem"]

START_SECONDS = 300.0
"""A worker that has not said `ready` by then is given up: importing torch from a cold network disk takes minutes."""

TAIL_BYTES = 64 * 1024
"""How much of a worker's standard error is kept."""


SECRET_LENGTH = 8
"""Shorter values of secret names are words such as `none`, which also stand in harmless text."""


def scrubbed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without tokens, keys and passwords: what a worker gets that runs the user's code."""
    kept = {name: value for name, value in environ.items() if not is_secret(name) and not shows_secret(value)}
    kept["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"  # nor read the stored one by itself (huggingface_hub)
    return kept


class _Child:
    """One living worker process. It is never restarted: `Worker` makes a new one."""

    def __init__(self, argv: list[str], environ: dict[str, str], cwd: Path | None, address_space: int | None) -> None:
        self.messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None: the process is gone
        self.stopped = ""  # why we ended it: "cancelled", "timeout", "closed"; empty: it ended by itself
        self.ready = False
        self.failure: OSError | None = None
        self._tail = bytearray()
        self._secrets = [
            value.encode() for name, value in os.environ.items() if is_secret(name) and len(value) >= SECRET_LENGTH
        ]
        self._tail_lock = threading.Lock()
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        # PR_SET_PDEATHSIG kills a child when the *thread* that started it ends: this one lives as long as the child.
        self._keeper = threading.Thread(
            target=self._keep, args=(argv, environ, cwd, address_space), name="worker-keeper", daemon=True
        )
        self._keeper.start()
        self._started.wait()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if self._process else None

    def _keep(self, argv: list[str], environ: dict[str, str], cwd: Path | None, address_space: int | None) -> None:
        try:
            self._process = process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=cwd,
                start_new_session=True,  # own group for the kill, and no terminal that user code could write to
            )
        except OSError as error:
            self.failure = error
            self.messages.put(None)
            self._started.set()
            return
        if address_space is not None:
            _limit_address_space(process.pid, address_space)
        assert process.stdout is not None
        assert process.stderr is not None
        drains = [
            threading.Thread(target=self._read_messages, args=(process.stdout,), name="worker-messages", daemon=True),
            threading.Thread(target=self._read_tail, args=(process.stderr,), name="worker-stderr", daemon=True),
        ]
        for drain in drains:
            drain.start()
        self._started.set()
        process.wait()
        end_group(process.pid)  # what the worker itself started goes with it, and the pipes reach their end
        for drain in drains:
            drain.join(timeout=5)
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        self.messages.put(None)

    def _read_messages(self, stream: BinaryIO) -> None:
        with stream:
            for line in stream:
                message = _parse(self._masked(line))
                if message is None:  # printed before the channel was open: a .pth file, sitecustomize
                    self._remember(line)
                else:
                    self.messages.put(message)

    def _read_tail(self, stream: BinaryIO) -> None:
        with stream:
            while block := os.read(stream.fileno(), 65536):
                self._remember(block)

    def _masked(self, line: bytes) -> bytes:
        """`line` without the secrets of this process: user code can find them in the environment of its parent."""
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN.encode())
        return line

    def _remember(self, block: bytes) -> None:
        with self._tail_lock:
            self._tail += self._masked(block)
            del self._tail[:-TAIL_BYTES]

    def forget(self) -> None:
        """Drop what was printed so far, so that a death is explained by the words of its own call."""
        with self._tail_lock:
            self._tail.clear()

    def tail(self, lines: int) -> str:
        with self._tail_lock:
            text = bytes(self._tail).decode("utf-8", "replace")
        kept = [line.rstrip() for line in text.replace("\r", "\n").split("\n") if line.strip()]
        return inert("\n".join(kept[-lines:]), 2000)

    def send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # A broken pipe means that it died: its end is in the queue, with more to say than the pipe.
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def kill(self, why: str) -> None:
        self.stopped = self.stopped or why
        if self._process is not None and self._process.returncode is None:
            end_with_descendants(self._process.pid)

    def join(self) -> None:
        self._keeper.join(timeout=10)


class Worker:
    """A worker process that starts at the first call and again after it died.

    `name`: module of `grpo_tui.workers`. `env`: the environment to start from, by default this process's own; give
    `scrubbed_environment(os.environ)` where user code runs. `gpu`: may the worker see the GPUs? By default it sees
    none. `address_space_bytes`: limit of its address space (Linux). Calls from several threads take turns; `cancel` and
    `close` may come from any thread.
    """

    def __init__(
        self,
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        address_space_bytes: int | None = None,
        gpu: bool = False,
    ) -> None:
        self.name = name
        self._environ = _worker_environment(os.environ if env is None else env, gpu)
        self._cwd = cwd
        self._address_space_bytes = address_space_bytes
        self._turn = threading.Lock()  # one call at a time
        self._state = threading.Lock()  # guards _child and _closed
        self._child: _Child | None = None
        self._closed = False
        self._ids = itertools.count(1)

    @property
    def pid(self) -> int | None:
        """Process id of the living worker, or None."""
        with self._state:
            child = self._child
        return child.pid if child is not None and child.returncode is None else None

    def call(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any] | Problem:
        """What the worker's `method` returns for `params`. Blocks; `on_progress` is called in the caller's thread.

        `timeout` is in seconds and counts from when the worker is ready, so that its imports are not held against it.
        A worker that runs out of time is killed with all that it started, and so is one whose caller is interrupted.
        """
        request = next(self._ids)
        with self._turn:
            child = self._living_child()
            if isinstance(child, Problem):
                return child
            try:
                return self._converse(child, request, method, params, timeout, on_progress)
            except BaseException:  # Ctrl-C, or on_progress raised: the worker would go on with nobody listening
                child.kill("cancelled")
                raise

    def cancel(self) -> None:
        """Kill the worker and all that it started, now. A pending call returns a `Problem`, the next starts anew."""
        with self._state:
            child = self._child
        if child is not None:
            child.kill("cancelled")

    def close(self) -> None:
        """End the worker for good. Later calls return a `Problem`."""
        with self._state:
            self._closed = True
            child = self._child
        if child is not None:
            child.kill("closed")
            child.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _living_child(self) -> "_Child | Problem":
        with self._state:
            if self._closed:
                return Problem(self._where(), "The worker was closed.", "Open the step again.")
            child = self._child
            if child is not None and child.returncode is None and not child.stopped:
                return child
            argv = [sys.executable, "-m", f"grpo_tui.workers.{self.name}"]
            child = _Child(argv, self._environ, self._cwd, self._address_space_bytes)
            if child.failure is not None:
                return Problem(
                    self._where(),
                    f"The worker could not be started: {child.failure}.",
                    "Check that this Python can still be run and that the working folder exists.",
                )
            self._child = child
            return child

    def _converse(
        self,
        child: _Child,
        request: int,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        on_progress: Callable[[dict[str, Any]], None] | None,
    ) -> dict[str, Any] | Problem:
        if not child.ready:
            answer = self._receive(child, time.monotonic() + START_SECONDS)
            if answer is None:
                return self._ended(child, "started", START_SECONDS)
            child.ready = True
        child.forget()
        child.send({"id": request, "method": method, "params": params})
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self._receive(child, deadline)) is not None:
            if message.get("id") != request:
                continue
            if "progress" in message:
                if on_progress is not None:
                    on_progress(message["progress"])
            elif "problem" in message:
                return Problem(**message["problem"])
            elif "error" in message:
                return self._raised(method, message["error"])
            else:
                result: dict[str, Any] = message["result"]
                return result
        return self._ended(child, f"did '{method}'", timeout)

    def _receive(self, child: _Child, deadline: float | None) -> dict[str, Any] | None:
        """The next message; None when the worker is gone or was killed for being late."""
        try:
            return child.messages.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            child.kill("timeout")
            while child.messages.get() is not None:  # the keeper reports the end
                pass
            return None

    def _where(self) -> str:
        return f"worker {self.name}"

    def _ended(self, child: _Child, doing: str, timeout: float | None) -> Problem:
        if child.stopped == "timeout":
            return Problem(
                self._where(),
                f"It was stopped because it {doing} for longer than {timeout:g} s.",
                "Try again with less, or allow more time.",
            )
        if child.stopped:
            return Problem(self._where(), f"It was cancelled while it {doing}.", "Start it again when you want to.")
        code = child.returncode
        said = child.tail(6)
        what = f"It ended while it {doing}: {_exit_words(code)}."
        if said:
            what += f" It last said:\n{said}"
        return Problem(self._where(), what, _exit_remedy(code))

    def _raised(self, method: str, error: dict[str, Any]) -> Problem:
        text = one_line(str(error.get("text", "")), 600)
        what = f"'{method}' failed with {error.get('type', 'an error')}{': ' + text if text else ''}."
        at = one_line(str(error.get("at", "")), 200)
        return Problem(self._where(), what, f"It happened at {at}." if at else "See the lines it printed.")


def _worker_environment(environ: Mapping[str, str], gpu: bool) -> dict[str, str]:
    added = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",  # a worker may fork; transformers warns and can dead-lock otherwise
        "PYTHONSAFEPATH": "1",  # a random.py in the user's folder must hide nothing
    }
    if not gpu:
        added["CUDA_VISIBLE_DEVICES"] = ""
    return {**environ, **added}


def _limit_address_space(pid: int, limit: int) -> None:
    import resource

    prlimit = getattr(resource, "prlimit", None)  # Linux only; elsewhere RLIMIT_AS is not enforced either
    if prlimit is not None:
        with contextlib.suppress(OSError, ValueError):
            prlimit(pid, resource.RLIMIT_AS, (limit, limit))


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and ("id" in message or "ready" in message) else None


def _exit_words(code: int | None) -> str:
    if code is None:
        return "no exit code is known"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _exit_remedy(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "The system kills like this when memory runs out: free some, or give it less to do."
    if code is not None and code < 0:
        return "Native code crashed: check the versions of the libraries with `grpo-tui doctor`."
    return "Read its last lines; `grpo-tui doctor` checks the installed libraries."


class Answers:
    """The child's way to its parent: one message at a time, whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Raises TypeError or ValueError for what JSON cannot hold, before a byte is written."""
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._stream.write(line)
            self._stream.flush()


class Channel(Answers):
    """Both ways: requests come in by a thread of its own."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        super().__init__(answers)
        self.requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(requests,), name="requests", daemon=True).start()

    def _listen(self, stream: BinaryIO) -> None:
        for line in stream:
            self.requests.put(json.loads(line))
        # The parent is gone or has closed the pipe: end at once, however busy the main thread is, with all we started.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


_channel: Channel | None = None


def open_channel() -> Channel:
    """The protocol's channel. Call it in a worker module before anything else is imported.

    Standard output is duplicated for the protocol and then pointed at standard error, so that nothing which prints, be
    it Python or C, can break into it; standard input becomes empty. The process ends when its parent does.
    """
    global _channel
    if _channel is None:
        requests, answers = take_pipes()
        die_with_parent()  # a regular expression that holds the GIL stops our own watch
        _channel = Channel(requests, answers)
    return _channel


def take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Requests and answers, moved out of the way of whatever prints or reads; orphans of this process stay below it."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):  # seen at once, whatever the locale can write
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]  # TextIOWrapper
    adopt_orphans()
    blank_environment()
    return requests, answers


def serve(methods: Mapping[str, Handler], channel: Channel | None = None) -> None:
    """Answer requests until the parent goes away.

    A handler gets the parameters and a function that reports progress, and returns a JSON object or a `Problem`. What
    it raises is reported to the caller by type, text and place; the worker goes on.
    """
    channel = channel or open_channel()
    channel.send({"ready": os.getpid()})
    while True:
        answer(methods, channel.requests.get(), channel)


def answer(methods: Mapping[str, Handler], request: dict[str, Any], answers: Answers) -> None:
    """Do what one request asks and send what came of it, an exception too."""
    try:
        _answer(methods, request, answers)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever user code raises is an answer, not our end
        traceback.print_exc()
        answers.send({"id": request["id"], "error": _describe(error)})


def _answer(methods: Mapping[str, Handler], request: dict[str, Any], answers: Answers) -> None:
    def progress(value: dict[str, Any]) -> None:
        answers.send({"id": request["id"], "progress": value})

    reply = methods[request["method"]](request["params"], progress)
    if isinstance(reply, Problem):
        answers.send({"id": request["id"], "problem": reply.as_json()})
    else:
        answers.send({"id": request["id"], "result": reply})


def _describe(error: BaseException) -> dict[str, str]:
    innermost: BaseException = error
    while innermost.__cause__ is not None:  # wrappers such as datasets' say nothing of their own
        innermost = innermost.__cause__
    frames = traceback.extract_tb(innermost.__traceback__)
    at = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return {"type": type(innermost).__name__, "text": str(innermost), "at": at}
