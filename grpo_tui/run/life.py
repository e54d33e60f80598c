"""What became of a run: from its record, its processes and its events, never guessed.

Judged on the training machine itself by the process table, from any other by heartbeats that move: the clocks of two
machines are never compared.
"""

import signal as signals
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from grpo_tui.inert import one_line
from grpo_tui.lock import boot_id, is_running, place
from grpo_tui.progress.events import EVENTS_FILE, tail
from grpo_tui.progress.fold import End, Progress, advance
from grpo_tui.run import control
from grpo_tui.run.record import Record, read

LOST_SECONDS = 60.0
"""A heartbeat of another machine that has not moved this long while we looked: six beats."""

SILENT_SECONDS = 600.0
SILENT_STEPS = 5.0
"""Silence is the longer of ten minutes and five median steps: steps of minutes are normal."""

STATES = ("starting", "running", "stopping", "silent", "finished", "stopped", "failed", "killed", "lost", "unknown")
ALIVE = ("starting", "running", "stopping", "silent")

_SIGNALS = {
    signals.SIGHUP: "a terminal hang-up, not your code: start runs with grpo-tui, which lets them outlive the terminal",
    signals.SIGKILL: "perhaps the kernel's out-of-memory killer (look for 'oom' in dmesg), the scheduler, or a kill -9",
    signals.SIGTERM: "asked to end from outside, by the scheduler, a shutdown or a kill",
    signals.SIGINT: "interrupted from outside",
    signals.SIGSEGV: "a crash in native code: a driver or an extension that does not fit the installed torch",
    signals.SIGABRT: "native code gave up: look at the end of the log",
    signals.SIGBUS: "memory that vanished: often a full /dev/shm or a full disk",
}


@dataclass(frozen=True, kw_only=True)
class Life:
    """The state of a run at one look."""

    state: str
    """One of `STATES`."""

    words: str
    """The same as a sentence for people, with what is known about why."""

    pid: int = 0
    """The training process; 0: unknown."""

    host: str = ""
    exit_code: int | None = None
    signal: int | None = None
    since: float | None = None
    """Start of the newest attempt, Unix seconds of the training machine."""

    ended: float | None = None
    attempt: int = 1
    last_event_age: float | None = None
    """Seconds since the newest event, by the training machine's clock; None: no event, or not known."""

    step: int = 0
    max_steps: int | None = None
    supervised: bool = False
    """A supervisor looks after it, so its exit will be known."""

    log_start: int = 0
    """Where the output of the newest attempt begins in train.log, bytes."""

    beat: int = 0
    beat_seen: float = 0.0
    """The heartbeat, and when this viewer first saw it (monotonic seconds). For the next look."""

    @property
    def alive(self) -> bool:
        """Training goes on, as far as can be known."""
        return self.state in ALIVE


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Which of a run's processes run; None: cannot be known from this machine."""

    supervisor: bool | None
    training: bool | None


def life(
    run: Path,
    now: float | None = None,
    *,
    progress: Progress | None = None,
    before: Life | None = None,
    cause: str = "",
) -> Life:
    """What `run` is doing. `progress` saves reading its events again; `before` is the last look, for heartbeats.

    `cause` is why it failed, as a sentence, where somebody has read its log.
    """
    record = read(run)
    if progress is None:
        progress = advance(Progress(), tail(run / EVENTS_FILE))
    asked = any(request.action == "stop" for request in control.pending(run))
    return judge(
        record,
        processes(record or _from_begin(progress)),
        progress,
        now=time.time() if now is None else now,
        seen=time.monotonic(),
        asked=asked,
        before=before,
        cause=cause,
    )


def processes(record: Record | None) -> Processes:
    """Look up the processes of `record` on this machine."""
    if record is None or record.host != socket.gethostname() or record.place not in ("", place()):
        return Processes(supervisor=None, training=None)
    supervisor = is_running(record.supervisor_pid, record.supervisor_started, record.boot_id)
    training = is_running(record.training_pid, record.training_started, record.boot_id)
    return Processes(
        supervisor=bool(record.supervisor_pid) and supervisor, training=bool(record.training_pid) and training
    )


def judge(
    record: Record | None,
    running: Processes,
    progress: Progress,
    *,
    now: float,
    seen: float,
    asked: bool = False,
    before: Life | None = None,
    cause: str = "",
) -> Life:
    """The truth table behind `life`, without looking anywhere.

    `now` is Unix seconds, `seen` monotonic seconds of this viewer, `asked` whether a request to stop waits.
    """
    known = record or _from_begin(progress)
    began = known.started if known else 0.0
    # Events of an earlier attempt say nothing about this one. Both clocks are the training machine's.
    fresh = progress.last_t is not None and progress.last_t >= began
    end = progress.end if progress.end and progress.end.t >= began else None
    here = running.training is not None
    beat, beat_seen = (known.beat if known else 0), seen
    if before and before.beat == beat:
        beat_seen = before.beat_seen
    clock = now if here or known is None else known.beat_at
    age = None if progress.last_t is None or not clock else clock - progress.last_t
    age = None if age is None or age < -60 else max(0.0, age)  # an event of the future: another machine's clock

    def told(state: str, words: str) -> Life:
        return Life(
            state=state,
            words=words,
            pid=known.training_pid if known else 0,
            host=known.host if known else "",
            exit_code=known.exit_code if known else None,
            signal=known.signal if known else None,
            since=began or progress.attempt_started,
            ended=(known.ended if known and known.ended else None) or (end.t if end else None),
            attempt=record.attempt if record else max(1, progress.attempts),
            last_event_age=age,
            step=progress.step,
            max_steps=progress.max_steps,
            supervised=running.supervisor is not False and record is not None,
            log_start=known.log_start if known else 0,
            beat=beat,
            beat_seen=beat_seen,
        )

    if known and known.ended:
        return told(*_recorded_end(known, end, progress, cause))
    if end and (record is None or not running.training):
        return told(*_own_end(end, progress, cause))
    if known is None or (not record and running.training is None):
        if not progress.last_t:
            return told("unknown", "No training has begun in this folder.")
        if age is not None and age < silence(progress) and not end:
            return told("running", "Events arrive; which process writes them is not known.")
        return told(
            "unknown", "It never reported its end: its process was killed, or runs where it cannot be seen from here."
        )
    if running.training is False and running.supervisor is False:
        if known.boot_id and known.boot_id != boot_id():
            return told("killed", "The machine was restarted while it ran.")
        if not known.training_pid:
            return told("failed", "The supervisor ended before training was started: look at supervisor.log.")
        return told(
            "killed", "Its process is gone without a word: killed from outside, or the machine's memory ran out."
        )
    if running.training is False and known.training_pid:
        return told("stopping", "The process has ended; its supervisor is writing down how.")
    if not here and beat_seen + LOST_SECONDS < seen:
        still = f"The heartbeat from {known.host} has not moved for {seen - beat_seen:.0f} s"
        return told("lost", f"{still}: its machine or the file system is gone.")
    if end:
        return told("stopping", "Training is over; its process is finishing, perhaps saving the model.")
    return told(*_alive(known, running, progress, age, asked=asked, fresh=fresh))


def silence(progress: Progress) -> float:
    """Seconds without an event after which a run is called silent."""
    return max(SILENT_SECONDS, SILENT_STEPS * (progress.seconds_per_step or 0.0))


def signal_words(number: int) -> str:
    """The name of signal `number` and what it usually means."""
    try:
        name = signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = _SIGNALS.get(signals.Signals(number))
    return f"{name}: {meaning}" if meaning else name


def _alive(
    known: Record, running: Processes, progress: Progress, age: float | None, *, asked: bool, fresh: bool
) -> tuple[str, str]:
    alone = " Its supervisor is gone, so its exit code will not be known." if running.supervisor is False else ""
    if known.supervisor_pid == 0:
        alone = ""
    if asked or known.stop_asked or any(c.action == "stop" and c.t >= known.started for c in progress.controls):
        quiet = f" It wrote nothing for {age / 60:.0f} min; it may hang." if age and age > silence(progress) else ""
        return "stopping", f"It ends after the current step, with a checkpoint.{quiet}{alone}"
    if not fresh:
        return "starting", f"Libraries and model are being loaded; no step has begun.{alone}"
    if age is not None and age > silence(progress):
        return "silent", f"The process runs, but wrote nothing for {age / 60:.0f} min; it may hang.{alone}"
    return "running", f"Training.{alone}"


def _recorded_end(record: Record, end: End | None, progress: Progress, cause: str) -> tuple[str, str]:
    if record.error:
        return "failed", f"It could not be started: {one_line(record.error, 300)}"
    if record.signal:
        return "killed", f"Ended by {signal_words(record.signal)}.{_goes_on(progress)}"
    if record.exit_code == 0:
        if end:
            return _own_end(end, progress, cause)
        return (
            ("stopped", "It ended after it was asked to.")
            if record.stop_asked
            else ("finished", "It ended without error.")
        )
    code = f"exit code {record.exit_code}"
    if record.exit_code and record.exit_code > 128:
        code += f" ({signal_words(record.exit_code - 128)})"
    if cause:
        return "failed", f"{cause} {code[0].upper()}{code[1:]}.{_goes_on(progress)}"
    if end and end.error:
        return "failed", f"{one_line(end.error, 300)} ({code}).{_goes_on(progress)}"
    return "failed", f"Ended with {code}; its last words are at the end of train.log.{_goes_on(progress)}"


def _goes_on(progress: Progress) -> str:
    """From where it can be resumed; empty where no checkpoint was written."""
    return f" `grpo-tui run --resume` goes on from step {progress.saves[-1].step}." if progress.saves else ""


def _own_end(end: End, progress: Progress, cause: str) -> tuple[str, str]:
    if end.reason == "completed":
        if progress.max_steps and end.step < progress.max_steps:
            return "finished", f"It ended without error after step {end.step} of {progress.max_steps}."
        return "finished", "All steps are done."
    if end.reason == "stopped":
        saved = any(save.step == end.step for save in progress.saves)
        return "stopped", f"Stopped on request after step {end.step}{', with a checkpoint' if saved else ''}."
    return "failed", cause or one_line(
        end.error, 300
    ) or f"It ended with {one_line(end.reason, 80) or 'no reason given'}."


def _from_begin(progress: Progress) -> Record | None:
    """A run without supervisor (`python train.py`) tells its process in its `begin` row; None: it does not."""
    process = progress.begin.get("process")
    if not isinstance(process, dict):
        return None
    try:
        return Record(
            host=str(process["host"]),
            boot_id=str(process["boot_id"]),
            training_pid=int(process["pid"]),
            training_started=float(process["started"]),
            started=progress.attempt_started or 0.0,
        )
    except (KeyError, TypeError, ValueError):
        return None
