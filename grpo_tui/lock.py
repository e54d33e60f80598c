"""One lock per project folder, and a name for whoever holds it.

The lock is `flock` on `.grpo-tui.lock`, which ends with its process whatever happens; the file's content says who that
is. Where the file system has no `flock`, or one that does not reach other hosts, the content alone must do: a holder
that is known to be gone is succeeded, one that cannot be judged from here is not.
"""

import contextlib
import errno
import getpass
import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

LOCK_FILE = ".grpo-tui.lock"

_NO_FLOCK = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
_SETTLE_SECONDS = 0.05
"""Without `flock`: how long a claim must stand before it is believed. Of two claims closer than this the later wins."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Whoever holds a lock, as written down when it was taken."""

    host: str
    pid: int
    started: float
    """Start of the process as `process_start` gives it, which tells it from a later process with the same number."""

    boot_id: str
    user: str
    since: str
    """When the lock was taken: ISO 8601, UTC."""

    place: str = ""
    """Machine id and process namespace: two containers or cloned machines may bear one host name."""

    here: bool = False
    """On this machine, so that `alive` can be known."""

    alive: bool | None = None
    """Whether the process still runs; None: it cannot be known from here."""

    def __str__(self) -> str:
        who = f"{self.user or 'someone'} on {self.host or 'an unknown host'}"
        process = f"process {self.pid}" if self.pid else "unknown process"
        return f"{who} ({process}{', since ' + self.since if self.since else ''})"


@dataclass
class Lock:
    """A lock that this process holds until `release`, or until it ends."""

    path: Path
    holder: Holder
    sure: bool
    """False: the file system has no locks, so that only well-behaved instances of this program keep out."""

    _descriptor: int = field(repr=False, default=-1)

    def release(self) -> None:
        """Give the lock back. A second call does nothing."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            # Someone who was told to take over owns the file now: their name stays.
            if _read(descriptor) == self.holder:
                os.ftruncate(descriptor, 0)
        except OSError:
            pass  # the folder is gone, or the disk: there is nothing left to give back
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(folder: Path, *, take_over: bool = False) -> Lock | Holder | Problem:
    """Take the lock of `folder`, or say who holds it, or why nobody can.

    `take_over` is the user's yes to succeed a holder that cannot be judged from here (another host), or to go on
    without a guard where the file system has none. It never breaks a lock that a living process really holds.
    """
    path = folder / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        return _read_only(path) or _cannot(path, error)
    try:
        sure = _flock(descriptor)
        holder = _read(descriptor)
        judged = judge(holder) if holder else None
        if sure is None:  # held: by whoever is written there, or by one who has not written yet
            os.close(descriptor)
            return judged or Holder(host=socket.gethostname(), pid=0, started=0.0, boot_id="", user="", since="")
        if judged and judged.alive is not False and not (take_over and judged.alive is None):
            os.close(descriptor)
            return judged
        me = _me()
        _write(descriptor, me)
        if not sure:
            time.sleep(_SETTLE_SECONDS)
            now = _read(descriptor)
            if now is not None and now != me:
                os.close(descriptor)
                return judge(now)
        return Lock(path=path, holder=me, sure=sure, _descriptor=descriptor)
    except OSError as error:
        os.close(descriptor)
        return _cannot(path, error)


def current_holder(folder: Path) -> Holder | None:
    """Who is written down as holding the lock of `folder`, judged; None: nobody."""
    return _read_only(folder / LOCK_FILE)


def judge(holder: Holder) -> Holder:
    """`holder` with `here` and `alive` as far as this machine can tell."""
    here = holder.host == socket.gethostname() and holder.place in ("", place())
    alive = is_running(holder.pid, holder.started, holder.boot_id) if here else None
    return replace(holder, here=here, alive=alive)


def is_running(pid: int, started: float, boot: str) -> bool:
    """Whether the process that had number `pid` since `started`, in the boot `boot`, still runs on this machine."""
    if boot and boot != boot_id():
        return False
    start = process_start(pid)
    # A clock tick is 10 ms; a reused number means a process that is younger by far more.
    return start is not None and abs(start - started) < 0.05


def process_start(pid: int) -> float | None:
    """When process `pid` began: seconds since boot on Linux, since 1970 elsewhere; None: there is no such process.

    Read from `/proc` where there is one, since a time since boot does not move when the clock is set.
    """
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()  # the name may hold anything
        except OSError:
            return None
        if fields[0] in (b"Z", b"X"):  # dead, not yet reaped by its parent
            return None
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    import psutil  # type: ignore[import-untyped]  # has no types of its own

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.Error, ValueError):
        return None


def boot_id() -> str:
    """A name of this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil

        return f"{psutil.boot_time():.0f}"


def place() -> str:
    """A name of this machine and, in a container, of the container: where process numbers mean the same."""
    marks = ["-", "-"]
    with contextlib.suppress(OSError):
        marks[0] = Path("/etc/machine-id").read_text().strip()
    with contextlib.suppress(OSError):
        marks[1] = str(Path("/proc/self/ns/pid").readlink())
    return " ".join(marks)


def _me() -> Holder:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in /etc/passwd
        user = str(os.getuid())
    return Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=process_start(os.getpid()) or 0.0,
        boot_id=boot_id(),
        user=user,
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        place=place(),
    )


def _flock(descriptor: int) -> bool | None:
    """True: locked. None: someone else has it. False: this file system has no locks."""
    import fcntl  # absent on Windows, where the program only says that it does not run there

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        if error.errno in _NO_FLOCK:
            return False
        raise
    return True


_WRITTEN = ("host", "pid", "started", "boot_id", "user", "since", "place")


def _write(descriptor: int, holder: Holder) -> None:
    content = json.dumps({name: value for name, value in asdict(holder).items() if name in _WRITTEN}).encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)
    os.fsync(descriptor)


def _read(descriptor: int) -> Holder | None:
    """The holder written in the lock file; None: nobody, or nothing that can be read as one."""
    try:
        data: Any = json.loads(os.pread(descriptor, 4096, 0))
        return Holder(
            host=one_line(str(data["host"]), 255),
            pid=int(data["pid"]),
            started=float(data["started"]),
            boot_id=str(data["boot_id"]),
            user=one_line(str(data["user"]), 255),
            since=one_line(str(data["since"]), 40),
            place=str(data.get("place", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _read_only(path: Path) -> Holder | None:
    """The holder of a lock file that may perhaps not be written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        holder = _read(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return judge(holder) if holder else None


def _cannot(path: Path, error: OSError) -> Problem:
    return Problem(
        where=str(path.parent),
        what=f"The folder cannot be locked: {error.strerror or error}.",
        remedy="Choose a folder that you may write to, or only watch.",
    )
