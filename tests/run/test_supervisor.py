"""A training that outlives whoever started it, told by small programs that stand for one."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from grpo_tui import lock
from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.hardware.nvml import Sample
from grpo_tui.problem import Problem
from grpo_tui.run import control, supervisor
from grpo_tui.run.launch import Started, spawn
from grpo_tui.run.life import life
from grpo_tui.run.record import read
from grpo_tui.run.supervisor import Job, gpu_rows, supervise

DEADLINE = 30.0


def until(what, seconds=DEADLINE):
    """Wait until `what()` is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def job(run, code, **options):
    """A job that runs `code` in place of a training."""
    run.mkdir(exist_ok=True)
    return Job(run=run, argv=(sys.executable, "-c", textwrap.dedent(code)), directory=run.parent, **options)


def detached(made):
    """Start a supervisor that outlives this process; its process id."""
    started = spawn(made)
    assert isinstance(started, Started), started
    return started.pid


@pytest.fixture
def run(tmp_path):
    """A run folder; whatever still runs for it at the end is killed."""
    folder = tmp_path / "run"
    folder.mkdir()
    yield folder
    record = read(folder)
    if record and life(folder).alive:
        for pid in (record.training_pid, record.supervisor_pid):
            if pid > 1 and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)


SLEEPER = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "exit_code", "ended_by", "returned"),
    [("raise SystemExit(0)", 0, None, 0), ("raise SystemExit(3)", 3, None, 3),
     ("import os; os.kill(os.getpid(), 9)", None, 9, 137)],
)  # fmt: skip
def test_how_a_training_ended_is_written_down(run, code, exit_code, ended_by, returned):
    assert supervise(job(run, code)) == returned
    record = read(run)
    assert (record.exit_code, record.signal, record.ended > record.started) == (exit_code, ended_by, True)
    assert record.supervisor_pid == os.getpid()
    assert lock.current_holder(run) is None


def test_output_goes_to_the_log_and_input_is_empty(run):
    code = "import sys; print(repr(sys.stdin.read())); print('to stderr', file=sys.stderr); print(sys.argv)"
    supervise(job(run, code))
    log = (run / "train.log").read_text()
    assert "''" in log
    assert "to stderr" in log


def test_a_second_attempt_is_counted_and_appends_to_the_log(run):
    supervise(job(run, "print('first')"))
    supervise(job(run, "print('second')", resumed=True))
    assert (read(run).attempt, read(run).resumed) == (2, True)
    assert (run / "train.log").read_text().split() == ["first", "second"]
    assert read(run).log_start == len("first\n")


def test_a_command_that_does_not_exist_is_told(run):
    told = []
    missing = Job(run=run, argv=("/no/such/python",), directory=run)
    assert supervise(missing, told.append) == 2
    assert isinstance(told[0], Problem)
    assert life(run).state == "failed"
    assert "could not be started" in life(run).words


def test_only_one_training_runs_in_a_folder(run):
    pid = detached(job(run, SLEEPER))
    told = []
    assert supervise(job(run, "pass"), told.append) == 2
    assert "already runs" in told[0].what
    assert read(run).supervisor_pid == pid
    refused = spawn(job(run, "pass"))
    assert isinstance(refused, Problem)
    assert "already runs" in refused.what


def test_a_request_nobody_lived_to_obey_does_not_stop_the_next_attempt(run):
    control.request(run, "stop")
    supervise(job(run, "pass"))
    assert control.pending(run) == []


def test_the_heartbeat_moves_and_gives_the_training_away_when_its_supervisor_dies(run, monkeypatch):
    monkeypatch.setattr(supervisor, "BEAT_SECONDS", 0.05)
    supervise(job(run, "import time; time.sleep(0.5)"))
    assert read(run).beat >= 5
    pid = detached(job(run, SLEEPER))
    os.kill(pid, signal.SIGKILL)
    until(lambda: lock.process_start(pid) is None)
    left = life(run)
    assert left.alive
    assert "supervisor is gone" in left.words


OBEDIENT = """
import pathlib, sys, time
print('ready', flush=True)
control = pathlib.Path({folder!r}) / 'control'
while not list(control.glob('*.json')):
    time.sleep(0.02)
print('stopping', flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_supervisor_asks_the_training_to_stop(run, number):
    pid = detached(job(run, OBEDIENT.format(folder=str(run))))
    until(lambda: "ready" in (run / "train.log").read_text())
    os.kill(pid, number)
    until(lambda: read(run).ended)
    assert "stopping" in (run / "train.log").read_text()
    assert (read(run).exit_code, life(run).state) == (0, "stopped")


DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


@pytest.mark.parametrize(("code", "last"), [(SLEEPER, signal.SIGTERM), (DEAF, signal.SIGKILL)])
def test_a_training_that_does_not_stop_is_ended_ever_less_gently(run, monkeypatch, code, last):
    monkeypatch.setattr(supervisor, "TERM_SECONDS", 0.2)

    def ask():
        until(lambda: (run / "train.log").exists() and "ready" in (run / "train.log").read_text())
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask).start()
    assert supervise(job(run, code, grace=0.2)) == 128 + last
    assert read(run).signal == last
    assert read(run).stop_asked


def test_further_signals_do_not_wait_for_the_grace(run):
    pid = detached(job(run, DEAF, grace=600.0))
    until(lambda: "ready" in (run / "train.log").read_text())
    for _ in range(3):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)
    until(lambda: read(run).ended)
    assert read(run).signal == signal.SIGKILL


def test_nothing_of_the_training_is_left_behind(run):
    code = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
    print(child.pid, flush=True)
    """
    supervise(job(run, code))
    child = int((run / "train.log").read_text())
    until(lambda: lock.process_start(child) is None)


def test_the_command_for_the_end_knows_the_run_and_its_exit(run):
    notify = f'echo "$GRPO_TUI_RUN $GRPO_TUI_EXIT" > {run}/notified'
    supervise(job(run, "raise SystemExit(5)", notify=notify))
    until(lambda: (run / "notified").exists() and (run / "notified").read_text().strip())
    assert (run / "notified").read_text().split() == [str(run), "5"]


def test_a_disk_that_refuses_the_record_does_not_end_the_training(run, monkeypatch, capsys):
    monkeypatch.setattr(supervisor, "BEAT_SECONDS", 0.05)
    written = supervisor.write
    calls = []

    def full(folder, record):
        calls.append(record)
        if record.training_pid and not record.ended:
            raise OSError(28, "No space left on device")
        written(folder, record)

    monkeypatch.setattr(supervisor, "write", full)
    assert supervise(job(run, "import time; time.sleep(0.3); print('done')")) == 0
    assert len(calls) > 3
    assert "No space left" in capsys.readouterr().err
    assert read(run).exit_code == 0


TERMINAL = """
import json, pathlib, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it, as nohup does
from grpo_tui.run.launch import spawn
from grpo_tui.run.supervisor import Job
run = pathlib.Path(sys.argv[1])
started = spawn(Job(run=run, argv=(sys.executable, "-c", sys.argv[2]), directory=run))
print(json.dumps([started.pid, started.training_pid]), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("end", ["kill -9 of the terminal", "hang-up of everything"])
def test_training_goes_on_when_its_terminal_dies(run, end):
    code = "import time; time.sleep(1.0); print('trained to the end', flush=True)"
    terminal = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, str(run), code], stdout=subprocess.PIPE, start_new_session=True
    )
    pids = json.loads(terminal.stdout.readline())
    if end.startswith("kill"):
        os.killpg(terminal.pid, signal.SIGKILL)
    else:
        os.killpg(terminal.pid, signal.SIGHUP)
        for pid in pids:
            os.kill(pid, signal.SIGHUP)
    assert terminal.wait(DEADLINE) < 0
    until(lambda: read(run).ended)
    assert "trained to the end" in (run / "train.log").read_text()
    assert (read(run).exit_code, life(run).state) == (0, "finished")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_supervisor_has_no_terminal_and_no_parent_that_waits_for_it(run):
    started = spawn(job(run, SLEEPER))
    parent, _, session, terminal = _stat(started.pid)
    _, group, training_session, training_terminal = _stat(started.training_pid)
    assert (terminal, training_terminal) == (0, 0)
    assert parent != os.getpid()
    assert len({session, training_session, os.getsid(0)}) == 3
    assert session != started.pid  # no leader of a session, so it can never get a terminal
    assert group == started.training_pid


def _stat(pid):
    """Parent, group, session and terminal of a process."""
    return tuple(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:5]))


def test_gpu_readings_keep_a_short_past():
    def sample(uuid, used):
        return Sample(uuid, used, 100, 50, 60, None)

    samples = [(1.0, (sample("GPU-a", 10), sample("GPU-b", 1))), (6.0, (sample("GPU-a", 20),))]
    rows = gpu_rows(samples, {})
    assert rows["t"] == 6.0
    assert [gpu["uuid"] for gpu in rows["gpus"]] == ["GPU-a"]
    assert rows["gpus"][0]["used_bytes"] == 20
    assert rows["gpus"][0]["history"] == {"t": [1.0, 6.0], "used_bytes": [10, 20], "utilisation": [50, 50]}


def test_gpu_readings_name_the_card_by_the_number_and_name_of_nvidia_smi():
    reading = [(1.0, (Sample("GPU-a", 10, 100, 50, 60, None), Sample("GPU-gone", 1, 100, 50, 60, None)))]
    known, unknown = gpu_rows(reading, {"GPU-a": GPU(index=3, uuid="GPU-a", name="NVIDIA H100 80GB HBM3")})["gpus"]
    assert (known["index"], known["name"]) == (3, "NVIDIA H100 80GB HBM3")
    assert not {"index", "name"} & set(unknown)


def test_readings_are_taken_while_the_training_runs(run, monkeypatch):
    class Library:
        """A sampler of one card."""

        def __init__(self, uuids):
            self.uuids = uuids

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            return None

        def sample(self):
            return tuple(Sample(uuid, 7, 10, 99, 40, 200.0) for uuid in self.uuids)

    monkeypatch.setattr(supervisor, "Sampler", Library)
    monkeypatch.setattr(supervisor, "read_machine", lambda: Machine(gpus=(GPU(index=2, uuid="GPU-a", name="H100"),)))
    monkeypatch.setattr(supervisor, "SAMPLE_SECONDS", 0.05)
    supervise(job(run, "import time; time.sleep(0.4)", gpus=("GPU-a",)))
    read_back = json.loads((run / "gpus.json").read_text())
    assert read_back["gpus"][0]["power_watts"] == 200.0
    assert read_back["gpus"][0]["index"] == 2
    assert len(read_back["gpus"][0]["history"]["t"]) > 2
