"""A worker whose foreign code may hang, die and hide, and which answers again milliseconds later. Three processes:

    warden     speaks with the parent, keeps the time, ends the others; runs no foreign code and so is always at hand
    original   forked from the warden; does the requests that load foreign code, and stands still in between
    copy       forked from the original, with everything imported; does all other requests

A copy that is late is killed, with all that it started, and the next one forked. What made itself independent of it
(`setsid`, a double fork) is handed to the warden by Linux and ends with the copy; all of it ends when the parent closes
the worker, or is gone.

A process with threads, or with processes of its own, cannot be forked without harm, and none can be relied on for it on
other systems than Linux. Then the original itself does the requests, and after a hang another one loads it all anew.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from grpo_tui.child import Answers, Channel, Handler, answer, serve
from grpo_tui.processes import descendants, die_with_parent, end_descendants

Message = dict[str, Any]
Methods = Mapping[str, Handler]
Pipes = tuple[BinaryIO, BinaryIO]

AGAIN: Message = {"again": True}
"""A copy's answer to a request that loads, where something has to be loaded: only the original can keep it."""

KILL_AFTER = 0.05
"""Seconds past the time that a request gave itself, after which it is taken to ignore its own time-out."""

LOOK_SECONDS = 0.5
"""How often is looked whether the original lives, while it is waited for: what hides may hold its pipe open."""


def guard(
    pipes: tuple[BinaryIO, BinaryIO], methods: Methods, copied: Methods, *, loads: str, late: Message
) -> NoReturn:
    """Answer requests until the parent goes away: `serve` for foreign code. To be called while there is one thread.

    `pipes`: as `take_pipes` gives them. `loads`: the one of the `methods` that loads foreign code. `copied`: what a
    copy does otherwise; its `loads` answers AGAIN where something has to be loaded. A request gives itself a time
    by the progress {"seconds": s}; where it does not answer within that, `late` is its result.
    """
    warden = _Warden(pipes, methods, {**methods, **copied}, loads, late)
    signal.signal(signal.SIGTERM, lambda number, frame: warden.leave())
    die_with_parent(signal.SIGTERM)  # with time to end the others
    warden.serve()


class _Lines:
    """Messages from a descriptor, as they come."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.messages: deque[Message] = deque()
        self.ended = False
        self._rest = bytearray()

    def read(self) -> None:
        """Take what is there. Lines that are no message are what a killed process could not finish."""
        try:
            block = os.read(self.descriptor, 1 << 20)
        except ConnectionResetError:
            block = b""
        self.ended = not block
        first, *others = block.split(b"\n")
        self._rest += first
        for other in others:
            with contextlib.suppress(ValueError):
                self.messages.append(json.loads(self._rest))
            self._rest = bytearray(other)


class _Warden:
    def __init__(self, pipes: Pipes, methods: Methods, copied: Methods, loads: str, late: Message) -> None:
        self._pipes = pipes
        self._requests = _Lines(pipes[0].fileno())
        self._answers = Answers(pipes[1])
        self._methods, self._copied, self._loads, self._late = methods, copied, loads, late
        self._socket: socket.socket | None = None  # to the original, and to its copy while there is one
        self._replies = _Lines(-1)
        self._original = 0  # process ids; 0: there is none
        self._copy = 0  # the original's, where it serves itself
        self._status: int | None = None  # how the original ended
        self._loaded: Message | None = None  # the request that loaded what the original has

    def serve(self) -> NoReturn:
        self._answers.send({"ready": os.getpid()})
        while True:
            while not self._requests.messages:
                self._look(None)
            request = self._requests.messages.popleft()
            self._notice_ends()
            for message in self._load(request) if request["method"] == self._loads else self._do(request):
                self._answers.send(message)

    def leave(self) -> NoReturn:
        """End, and nothing is left."""
        end_descendants(os.getpid())
        os._exit(0)

    def _leave_like(self, status: int) -> NoReturn:
        """End as foreign code made its process end: the parent then tells how, with its last words."""
        end_descendants(os.getpid())
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):  # SIGKILL cannot be set
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)

    def _load(self, request: Message) -> Iterator[Message]:
        if self._copy:
            reply = self._ask(request)
            if reply.get("result") != AGAIN:
                yield reply
                return
            self._end_copy()
        if not self._original:
            self._start_original()
        reply = self._ask(request)
        self._loaded = request if "result" in reply else None
        yield reply

    def _do(self, request: Message) -> Iterator[Message]:
        self._start_copy()
        self._tell(request)
        deadline = None
        while (message := self._hear(deadline)) is not None:
            if message.get("id") != request["id"]:
                continue
            yield message
            if "progress" not in message:
                return
            if "seconds" in message["progress"]:
                deadline = time.monotonic() + message["progress"]["seconds"] + KILL_AFTER
        self._end_copy()
        yield {"id": request["id"], "result": self._late}
        self._start_copy()  # while the parent thinks about it

    def _ask(self, request: Message) -> Message:
        """The last word on a request, however long it takes: the parent watches over that."""
        self._tell(request)
        while (reply := self._hear()) is None or reply.get("id") != request["id"] or "progress" in reply:
            pass
        return reply

    def _tell(self, message: Message) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError):  # it has ended, which the next look shows
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self, deadline: float | None = None) -> Message | None:
        """The next message; None: the deadline is over. Where the others end by themselves, so does the warden."""
        while not self._replies.messages:
            left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return None
            self._look(left)
            self._reap()
            if self._status is not None:
                self._look(0)  # its last words
                if not self._replies.messages:
                    self._leave_like(self._status)
        message = self._replies.messages.popleft()
        if "ended" in message:
            self._leave_like(message["ended"])
        return message

    def _look(self, seconds: float | None) -> None:
        """Read what comes, from whichever side; wait that long for it."""
        sides = [side for side in (self._requests, self._replies) if side.descriptor >= 0 and not side.ended]
        if self._replies.ended and seconds:
            seconds = min(seconds, KILL_AFTER / 10)  # it is about to end
        ready, _, _ = select.select([side.descriptor for side in sides], [], [], seconds)
        for side in sides:
            if side.descriptor in ready:
                side.read()
        if self._requests.ended:
            self.leave()

    def _notice_ends(self) -> None:
        """What ended while nothing was asked is simply made anew."""
        self._look(0)
        self._reap()
        if self._status is not None:
            self._copy = self._original
        elif not any("ended" in message for message in self._replies.messages):
            return
        self._replies.messages.clear()
        end_descendants(os.getpid(), {self._original})
        if self._copy == self._original:
            self._forget_original()
        self._copy = 0

    def _reap(self) -> None:
        """Take note of children that ended: the original, and orphans that were handed over."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._original:
                    self._status = ended[1]

    def _start_original(self) -> None:
        self._socket, theirs = socket.socketpair()
        parent = os.getpid()
        self._original = os.fork()
        if not self._original:
            for end in (*self._pipes, self._socket):
                end.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with theirs:
                _be_original(theirs, parent, self._methods, self._copied)
        theirs.close()
        self._status = None
        self._replies = _Lines(self._socket.fileno())

    def _forget_original(self) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self._replies = _Lines(-1)
        self._original = 0
        self._status = None

    def _start_copy(self) -> None:
        if not self._original:
            self._start_original()
            if self._loaded:
                self._loaded = self._loaded if "result" in self._ask(self._loaded) else None
        if not self._copy:
            self._tell({"fork": self._can_be_forked()})
            message = self._hear()
            assert message is not None
            self._copy = message["ready"]

    def _can_be_forked(self) -> bool:
        if sys.platform != "linux":
            return False
        try:
            threads = len(list(Path(f"/proc/{self._original}/task").iterdir()))
        except OSError:  # it has just ended
            return False
        return threads == 1 and descendants(os.getpid()) == [self._original]

    def _end_copy(self) -> None:
        if self._copy == self._original:
            end_descendants(os.getpid())
            os.waitpid(self._original, 0)
            self._forget_original()
        else:
            end_descendants(os.getpid(), {self._original})
            self._await_end_of_copy()
        self._copy = 0
        self._reap()

    def _await_end_of_copy(self) -> None:
        """The original says so, after whatever the copy had still sent."""
        while not any("ended" in message for message in self._replies.messages):
            self._replies.messages.clear()
            self._look(LOOK_SECONDS)
            self._reap()
            if self._status is not None:
                self._leave_like(self._status)
        self._replies.messages.clear()


def _be_original(theirs: socket.socket, parent: int, methods: Methods, copied: Methods) -> NoReturn:
    _end_with(parent)
    requests, stream = theirs.makefile("rb"), theirs.makefile("wb")
    answers = Answers(stream)
    for line in requests:
        request = json.loads(line)
        if "fork" not in request:
            answer(methods, request, answers)
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        original = os.getpid()
        copy = os.fork() if request["fork"] else 0
        if not copy:
            if request["fork"]:
                _end_with(original)
            serve(copied if request["fork"] else methods, Channel(requests, stream))
        _, status = os.waitpid(copy, 0)
        stream.write(b"\n")  # ends a line that the copy had begun
        answers.send({"ended": status})
    os._exit(0)


def _end_with(parent: int) -> None:
    die_with_parent()
    if os.getppid() != parent:  # it has ended before we could ask for that
        os._exit(0)
