"""The process that looks after one training: `python -m grpo_tui.run.supervisor RUN [options] -- COMMAND`.

It starts the training in a session of its own, so neither closing the terminal nor losing the connection reaches it,
keeps `run.toml` (nobody else writes that file), samples the GPUs into `gpus.json` and turns signals into a request to
stop.
"""

import argparse
import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from grpo_tui import atomic, lock
from grpo_tui.hardware.machine import GPU
from grpo_tui.hardware.nvml import Sample, Sampler, read_machine
from grpo_tui.problem import Problem
from grpo_tui.run import control
from grpo_tui.run.folder import GPUS_FILE, LOG_FILE
from grpo_tui.run.record import Record, read, write

BEAT_SECONDS = 10.0
SAMPLE_SECONDS = 5.0
SUPERVISOR_LOG = "supervisor.log"

GRACE_SECONDS = 600.0
"""How long a signalled training may take to end its step and write its checkpoint before it is sent SIGTERM."""

TERM_SECONDS = 60.0
"""And how long after SIGTERM before SIGKILL."""

SAMPLES_KEPT = 120
"""Readings of each GPU in `gpus.json`: ten minutes, for a small curve."""

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run and how to look after it."""

    run: Path
    argv: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the supervisor."""

    gpus: tuple[str, ...] = ()
    """UUIDs to sample."""

    approved: str = ""
    resumed: bool = False
    take_over: bool = False
    """The user's yes to succeed a supervisor of another host, of which nobody can tell whether it lives."""

    notify: str = ""
    """Shell command to run at the end."""

    grace: float = GRACE_SECONDS


def supervise(job: Job, ready: Callable[[int | Problem], None] = lambda told: None) -> int:
    """Run `job` to its end; the training's exit code, 128 + signal when a signal ended it, or 2 when it never began.

    `ready` is told the training's process id once it runs and `run.toml` says so, or why it does not.
    """
    held = lock.acquire(job.run, take_over=job.take_over)
    if not isinstance(held, lock.Lock):
        told = held if isinstance(held, Problem) else _held(job.run, held)
        ready(told)
        return 2
    with held, _Signals() as signals, contextlib.ExitStack() as stack:
        for request in control.pending(job.run):
            control.done(request)  # asked of an earlier attempt that did not live to obey
        keeper = _Keeper(job, stack)
        process = keeper.start()
        if isinstance(process, Problem):
            ready(process)
            return 2
        ready(process.pid)
        ask = _Ask(job, process)
        while process.poll() is None:
            keeper.tend(ask.at)
            ask.tend(signals.count)
            signals.wait(min(keeper.due, ask.due) - time.monotonic())
        _end_group(process.pid)
        return keeper.finish(process.returncode, ask.at)


class _Keeper:
    """Keeps `run.toml` and `gpus.json`. A disk that is full or gone for a while does not end the training."""

    def __init__(self, job: Job, stack: contextlib.ExitStack) -> None:
        self._job = job
        earlier = read(job.run)
        me = os.getpid()
        self.record = Record(
            attempt=earlier.attempt + 1 if earlier else 1,
            host=socket.gethostname(),
            place=lock.place(),
            user=control.user_name(),
            boot_id=lock.boot_id(),
            supervisor_pid=me,
            supervisor_started=lock.process_start(me) or 0.0,
            command=job.argv,
            directory=str(job.directory),
            environment=job.environment,
            gpus=job.gpus,
            approved=job.approved,
            resumed=job.resumed,
            started=time.time(),
            log_start=_size(job.run / LOG_FILE),
            beat_at=time.time(),
        )
        self._sampler = stack.enter_context(Sampler(job.gpus)) if job.gpus else None
        self._cards = {card.uuid: card for card in read_machine().gpus} if job.gpus else {}
        self._samples: list[tuple[float, tuple[Sample, ...]]] = []
        self._spans: dict[str, dict[str, int | None]] = {}
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._next_sample = time.monotonic()

    @property
    def due(self) -> float:
        """When to tend next, monotonic seconds."""
        return min(self._next_beat, self._next_sample) if self._sampler else self._next_beat

    def start(self) -> "subprocess.Popen[bytes] | Problem":
        job = self._job
        try:
            write(job.run, self.record)
            with (job.run / LOG_FILE).open("ab") as log:
                process = subprocess.Popen(
                    job.argv,
                    cwd=job.directory,
                    env={**os.environ, **job.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self.record = replace(self.record, ended=time.time(), error=f"{error.strerror or error}: {error.filename}")
            self._write()
            return Problem(str(job.run), f"Training cannot be started: {error}.", "Check the command and the folder.")
        self.record = replace(
            self.record, training_pid=process.pid, training_started=lock.process_start(process.pid) or 0.0
        )
        self._write()
        return process

    def tend(self, stop_asked: float) -> None:
        now = time.monotonic()
        if now >= self._next_beat or stop_asked != self.record.stop_asked:
            self.record = replace(self.record, beat=self.record.beat + 1, beat_at=time.time(), stop_asked=stop_asked)
            self._write()
            self._next_beat = now + BEAT_SECONDS
        if self._sampler and now >= self._next_sample:
            self._sample(self._sampler)
            self._next_sample = time.monotonic() + SAMPLE_SECONDS

    def finish(self, returncode: int, stop_asked: float) -> int:
        ended_by = -returncode if returncode < 0 else None
        self.record = replace(
            self.record,
            ended=time.time(),
            exit_code=None if ended_by else returncode,
            signal=ended_by,
            stop_asked=stop_asked,
            beat=self.record.beat + 1,
            beat_at=time.time(),
        )
        self._write()
        if returncode == 0 and self._job.gpus:
            from grpo_tui.run.lesson import learn  # half of what a start would wait for

            print(learn(self._job.run), file=sys.stderr, flush=True)
        code = 128 + ended_by if ended_by else returncode
        if self._job.notify:
            _notify(self._job, code)
        return code

    def _write(self) -> None:
        try:
            write(self._job.run, self.record)
        except OSError as error:
            print(f"run.toml cannot be written: {error}", file=sys.stderr, flush=True)

    def _sample(self, sampler: Sampler) -> None:
        taken = sampler.sample()
        self._samples = [*self._samples, (time.time(), taken)][-SAMPLES_KEPT:]
        self._spans = {sample.uuid: span(self._spans.get(sample.uuid), sample) for sample in taken}
        try:
            atomic.write(self._job.run / GPUS_FILE, json.dumps(gpu_rows(self._samples, self._cards, self._spans)))
        except OSError as error:
            print(f"{GPUS_FILE} cannot be written: {error}", file=sys.stderr, flush=True)


def span(before: Mapping[str, int | None] | None, sample: Sample) -> dict[str, int | None]:
    """A card over the whole attempt: in use, and by how many processes, at the first reading and at the most.

    The first reading is taken when the training's process has just begun, and has nothing on the card yet. None: some
    reading failed.
    """
    now = {"bytes": sample.used_bytes, "processes": sample.processes}
    if before is None:
        return {f"{when}_{name}": value for name, value in now.items() for when in ("first", "most")}
    found = dict(before)
    for name, value in now.items():
        most = before[f"most_{name}"]
        found[f"most_{name}"] = None if most is None or value is None else max(most, value)
    return found


_NO_SPANS: Mapping[str, Mapping[str, int | None]] = {}


def gpu_rows(
    samples: Sequence[tuple[float, Sequence[Sample]]],
    cards: Mapping[str, GPU],
    spans: Mapping[str, Mapping[str, int | None]] = _NO_SPANS,
) -> dict[str, Any]:
    """What `gpus.json` holds: `t` of the newest reading, and by GPU its newest figures and `history` of some of them.

    `cards`, by UUID, know each GPU's `index` (its number in `nvidia-smi`; None for a MIG slice) and `name`; a GPU that
    is not among them has neither.
    `history` has lists of equal length: `t`, `used_bytes`, `utilisation`; None where a reading failed.
    `spans`, by UUID, become `span`.
    """
    newest_t, newest = samples[-1]
    rows = []
    for sample in newest:
        past = [(t, same) for t, taken in samples for same in taken if same.uuid == sample.uuid]
        card = cards.get(sample.uuid)
        rows.append(
            {
                "uuid": sample.uuid,
                **({"index": card.index, "name": card.name} if card else {}),
                "used_bytes": sample.used_bytes,
                "total_bytes": sample.total_bytes,
                "utilisation": sample.utilisation,
                "temperature": sample.temperature,
                "power_watts": sample.power_watts,
                **({"span": spans[sample.uuid]} if sample.uuid in spans else {}),
                "history": {
                    "t": [round(t, 3) for t, _ in past],
                    "used_bytes": [same.used_bytes for _, same in past],
                    "utilisation": [same.utilisation for _, same in past],
                },
            }
        )
    return {"v": 1, "t": newest_t, "gpus": rows}


class _Ask:
    """Ends the training when signals ask for it, ever less gently: a request, then SIGTERM, then SIGKILL.

    Each further signal takes the next step at once; without one, time does.
    """

    def __init__(self, job: Job, process: "subprocess.Popen[bytes]") -> None:
        self._job = job
        self._process = process
        self._done = 0
        self.at = 0.0
        self.due = float("inf")

    def tend(self, signals: int) -> None:
        while self._done < signals or time.monotonic() >= self.due:
            self._done += 1
            self._act(self._done)

    def _act(self, step: int) -> None:
        if step == 1:
            self.at = time.time()
            asked = control.request(self._job.run, "stop", f"signal to the supervisor, {control.user_name()}")
            self.due = time.monotonic() + self._job.grace
            if isinstance(asked, Problem):
                print(asked, file=sys.stderr, flush=True)
                self.due = time.monotonic()
        else:
            _signal_group(self._process.pid, signal.SIGTERM if step == 2 else signal.SIGKILL)
            self.due = time.monotonic() + (TERM_SECONDS if step == 2 else BEAT_SECONDS)


class _Signals:
    """Counts SIGTERM and SIGINT, ignores SIGHUP, and wakes from sleep for them and for the end of a child."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in _HANDLED}
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(self, *raised: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def wait(self, seconds: float) -> None:
        """Sleep, or less when a signal comes."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            with contextlib.suppress(BlockingIOError):
                self._reader.recv(4096)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += number != signal.SIGCHLD


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _signal_group(leader: int, number: int) -> bool:
    """Send `number` to every process of the group; False when there is none left."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_group(leader: int) -> None:
    """End what the training left behind (workers of a killed launcher would go on holding GPU memory)."""
    if _signal_group(leader, signal.SIGTERM):
        for _ in range(50):
            time.sleep(0.1)
            if not _signal_group(leader, 0):
                return
        _signal_group(leader, signal.SIGKILL)


def _notify(job: Job, code: int) -> None:
    """Start the user's command in a session of its own and leave it alone; its output goes to the supervisor's log."""
    try:
        subprocess.Popen(
            ["/bin/sh", "-c", job.notify],
            cwd=job.directory,
            env={**os.environ, "GRPO_TUI_RUN": str(job.run), "GRPO_TUI_EXIT": str(code)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        print(f"The command to run at the end cannot be started: {error}", file=sys.stderr, flush=True)


def _held(run: Path, holder: lock.Holder) -> Problem:
    if holder.alive is None:
        return Problem(
            str(run),
            f"{holder} had this run last, and nobody can tell from here whether it still has.",
            "If you know that it ended, add --take-over.",
        )
    return Problem(
        str(run), f"A training already runs in this folder, started by {holder}.", "Watch it, or stop it first."
    )


def arguments(job: Job) -> list[str]:
    """The command line that starts a supervisor for `job`."""
    options = ["--directory", str(job.directory), "--grace", f"{job.grace:g}", "--approved", job.approved]
    for name, value in job.environment.items():
        options += ["--add", f"{name}={value}"]
    for uuid in job.gpus:
        options += ["--gpu", uuid]
    if job.resumed:
        options.append("--resumed")
    if job.take_over:
        options.append("--take-over")
    if job.notify:
        options += ["--notify", job.notify]
    # -P: nothing in the project folder hides a module of ours or of the standard library.
    return [sys.executable, "-P", "-m", "grpo_tui.run.supervisor", str(job.run), *options, "--", *job.argv]


def _parse(words: Sequence[str]) -> tuple[Job, bool]:
    parser = argparse.ArgumentParser(prog="python -m grpo_tui.run.supervisor", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--directory", type=Path, default=Path.cwd())
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS)
    parser.add_argument("--approved", default="")
    parser.add_argument("--add", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--gpu", action="append", default=[], metavar="UUID")
    parser.add_argument("--resumed", action="store_true")
    parser.add_argument("--take-over", action="store_true")
    parser.add_argument("--notify", default="")
    parser.add_argument("--foreground", action="store_true", help="stay: for schedulers and containers")
    parser.add_argument("argv", nargs="+")
    given = parser.parse_args(words)
    job = Job(
        run=given.run.resolve(),
        argv=tuple(given.argv),
        directory=given.directory.resolve(),
        environment=dict(pair.split("=", 1) for pair in given.add),
        gpus=tuple(given.gpu),
        approved=given.approved,
        resumed=given.resumed,
        take_over=given.take_over,
        notify=given.notify,
        grace=given.grace,
    )
    return job, given.foreground


def main(words: Sequence[str] | None = None) -> int:
    """Detach unless told to stay, say on standard output how the start went (one JSON line), and supervise."""
    job, foreground = _parse(sys.argv[1:] if words is None else words)
    if foreground:
        return supervise(
            job, lambda told: print(told if isinstance(told, Problem) else shlex.join(job.argv), flush=True)
        )
    if os.fork():  # the session has no leader any more, so that no terminal can ever become its own
        os._exit(0)

    def ready(told: int | Problem) -> None:
        row = {"problem": told.as_json()} if isinstance(told, Problem) else {"pid": os.getpid(), "training_pid": told}
        with contextlib.suppress(OSError):
            print(json.dumps(row), flush=True)
        os.dup2(2, 1)  # whoever started us reads until here

    return supervise(job, ready)


if __name__ == "__main__":
    sys.exit(main())
