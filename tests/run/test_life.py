"""What became of a run: every row of the truth table, and the real process table."""

import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui.lock import boot_id, process_start
from grpo_tui.progress.events import Event
from grpo_tui.progress.fold import Progress, advance
from grpo_tui.run import control
from grpo_tui.run.life import LOST_SECONDS, STATES, Processes, judge, life
from grpo_tui.run.record import Record, write

RUNS = Path(__file__).parents[1] / "runs"
BOTH, NONE, TRAINING, SUPERVISOR, ELSEWHERE = (
    Processes(supervisor=True, training=True),
    Processes(supervisor=False, training=False),
    Processes(supervisor=False, training=True),
    Processes(supervisor=True, training=False),
    Processes(supervisor=None, training=None),
)
RECORD = Record(host="node", boot_id=boot_id(), supervisor_pid=10, training_pid=11, started=1000.0, beat_at=2000.0)


def event(kind, t, step=0, **data):
    return Event(v=1, t=t, kind=kind, step=step, data=data)


def trained(until=2000.0, *more, max_steps=100):
    rows = [
        event("begin", 1005.0, max_steps=max_steps),
        event("log", until, 50, logs={"reward": 1.0, "step_time": 2.0}),
    ]
    return advance(Progress(), [*rows, *more])


def look(record, running, progress, now=2001.0, **options):
    return judge(record, running, progress, now=now, seen=500.0, **options)


@pytest.mark.parametrize(
    ("record", "running", "progress", "state", "words"),
    [
        (RECORD, BOTH, trained(), "running", "Training."),
        (RECORD, BOTH, Progress(), "starting", "loaded"),
        (RECORD, BOTH, trained(until=900.0), "starting", "loaded"),  # events of an earlier attempt
        (RECORD, TRAINING, trained(), "running", "supervisor is gone"),
        (RECORD, BOTH, trained(until=1100.0), "silent", "wrote nothing for 15 min"),
        (replace(RECORD, stop_asked=1990.0), BOTH, trained(), "stopping", "after the current step"),
        (replace(RECORD, stop_asked=1990.0), BOTH, trained(until=1100.0), "stopping", "may hang"),
        (RECORD, SUPERVISOR, trained(), "stopping", "writing down how"),
        (RECORD, BOTH, trained(2000.0, event("end", 2000.5, 100, reason="completed")), "stopping", "finishing"),
        (RECORD, NONE, trained(), "killed", "without a word"),
        (replace(RECORD, boot_id="another"), NONE, trained(), "killed", "restarted"),
        (replace(RECORD, training_pid=0), NONE, Progress(), "failed", "supervisor.log"),
        (RECORD, NONE, trained(2000.0, event("end", 2000.5, 100, reason="completed")), "finished", "All steps"),
        (replace(RECORD, ended=2002.0, exit_code=0), NONE,
         trained(2000.0, event("end", 2000.5, 100, reason="completed")), "finished", "All steps"),
        (replace(RECORD, ended=2002.0, exit_code=0), NONE,
         trained(2000.0, event("end", 2000.5, 50, reason="completed")), "finished", "after step 50 of 100"),
        (replace(RECORD, ended=2002.0, exit_code=0), NONE,
         trained(2000.0, event("save", 2000.0, 50), event("end", 2000.5, 50, reason="stopped")),
         "stopped", "after step 50, with a checkpoint"),
        (replace(RECORD, ended=2002.0, exit_code=0), NONE, trained(), "finished", "without error"),
        (replace(RECORD, ended=2002.0, exit_code=1), NONE,
         trained(2000.0, event("end", 2000.5, 50, reason="error", error="ValueError: x")), "failed", "x (exit"),
        (replace(RECORD, ended=2002.0, exit_code=1), NONE, Progress(), "failed", "exit code 1; its last words"),
        (replace(RECORD, ended=2002.0, exit_code=137), NONE, trained(), "failed", "SIGKILL"),
        (replace(RECORD, ended=2002.0, signal=9), NONE, trained(), "killed", "out-of-memory"),
        (replace(RECORD, ended=2002.0, signal=1), NONE, trained(), "killed", "hang-up, not your code"),
        (replace(RECORD, ended=2002.0, signal=11), NONE, trained(), "killed", "native code"),
        (replace(RECORD, ended=2002.0, signal=63), NONE, trained(), "killed", "signal 63"),
        (replace(RECORD, ended=2002.0, error="No such file"), NONE, Progress(), "failed", "could not be started"),
        (RECORD, ELSEWHERE, trained(), "running", "Training."),
        (RECORD, ELSEWHERE, trained(until=1100.0), "silent", "wrote nothing"),
        (None, ELSEWHERE, Progress(), "unknown", "No training has begun"),
        (None, ELSEWHERE, trained(), "running", "not known"),
        (None, ELSEWHERE, trained(until=1000.0), "unknown", "never reported its end"),
        (None, ELSEWHERE, trained(1500.0, event("end", 1500.0, 100, reason="completed")), "finished", "All steps"),
    ],
)  # fmt: skip
def test_every_row_of_the_truth_table(record, running, progress, state, words):
    found = look(record, running, progress)
    assert (found.state, words in found.words) == (state, True), found.words
    assert found.state in STATES


def test_an_end_of_an_earlier_attempt_says_nothing_about_this_one():
    ended = trained(900.0, event("end", 901.0, 50, reason="error", error="ValueError: old"))
    assert look(RECORD, BOTH, ended).state == "starting"
    assert look(replace(RECORD, ended=2002.0, exit_code=0), NONE, ended).state == "finished"


def test_silence_is_five_steps_when_steps_are_slow():
    slow = advance(trained(until=1100.0), [event("log", 1101.0, 51, logs={"step_time": 400.0})])
    assert look(RECORD, BOTH, slow, now=1101.0 + 1900).state == "running"
    assert look(RECORD, BOTH, slow, now=1101.0 + 2100).state == "silent"


def test_another_machine_is_lost_only_when_its_heartbeat_stands_still_before_our_eyes():
    # Its clock is a year behind ours: that says nothing.
    first = judge(RECORD, ELSEWHERE, trained(), now=2000.0 + 3e7, seen=500.0)
    assert first.state == "running"
    later = 500.0 + LOST_SECONDS + 1
    moved = judge(replace(RECORD, beat=1), ELSEWHERE, trained(), now=2000.0 + 3e7, seen=later, before=first)
    assert moved.state == "running"
    stood = judge(RECORD, ELSEWHERE, trained(), now=2000.0 + 3e7, seen=later, before=first)
    assert stood.state == "lost"
    assert not stood.alive
    again = judge(replace(RECORD, beat=1), ELSEWHERE, trained(), now=2000.0 + 3e7, seen=later + 9, before=stood)
    assert again.state == "running"


@pytest.mark.parametrize(
    ("run", "state"),
    [("h01_base", "finished"), ("f25_zero_step", "finished"), ("f29_crash_exc", "failed"), ("f31_sigkill", "unknown"),
     ("made_nan", "failed")],
)  # fmt: skip
def test_recorded_runs_are_judged_by_their_events_alone(run, state, tmp_path):
    shutil.copytree(RUNS / run, tmp_path / run)
    assert life(tmp_path / run).state == state
    if run == "f29_crash_exc":
        assert "1,234 apples" in life(tmp_path / run).words
    if run == "f25_zero_step":
        assert "step 0 of 40" in life(tmp_path / run).words


def test_a_real_process_is_looked_up_and_a_reused_number_is_not_taken_for_it(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        record = Record(
            host=socket.gethostname(), boot_id=boot_id(), training_pid=process.pid,
            training_started=process_start(process.pid), started=time.time(),
        )  # fmt: skip
        write(tmp_path, record)
        assert life(tmp_path).state == "starting"
        write(tmp_path, replace(record, training_started=record.training_started - 100))
        assert life(tmp_path).state == "killed"
        write(tmp_path, record)
        control.request(tmp_path, "stop")
        assert life(tmp_path).state == "stopping"
    finally:
        process.kill()
        process.wait()
    assert life(tmp_path).state == "killed"


def test_a_run_without_supervisor_is_known_by_the_process_in_its_first_row():
    process = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": 999_999_999, "started": 1.0}
    begun = advance(Progress(), [event("begin", time.time(), process=process)])
    assert judge(None, NONE, begun, now=time.time(), seen=1.0).state == "killed"
    assert judge(None, TRAINING, begun, now=time.time(), seen=1.0).state == "running"
    over = advance(begun, [event("end", time.time(), 3, reason="completed")])
    assert judge(None, TRAINING, over, now=time.time(), seen=1.0).state == "finished"


def test_an_error_message_with_terminal_sequences_is_shown_inert():
    ended = trained(2000.0, event("end", 2000.5, 50, reason="error", error="ValueError: \x1b[2Jgone\nsecond line"))
    words = look(replace(RECORD, ended=2002.0, exit_code=1), NONE, ended).words
    assert "\x1b" not in words
    assert "\n" not in words


def test_the_cause_that_its_log_tells_stands_for_its_last_words():
    died = replace(RECORD, ended=2002.0, exit_code=1)
    cause = "rewards.py:3: A reward function returned text."
    assert look(died, NONE, trained(), cause=cause).words == f"{cause} Exit code 1."
    crashed = trained(2000.0, event("end", 2000.5, 50, reason="error", error="ValueError: x"))
    assert look(died, NONE, crashed, cause=cause).words == f"{cause} Exit code 1."
    assert look(None, ELSEWHERE, crashed, cause=cause).words == cause
    saved = advance(crashed, [event("save", 2000.6, 40)])
    assert "goes on from step 40" in look(died, NONE, saved, cause=cause).words
