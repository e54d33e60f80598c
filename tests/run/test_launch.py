"""From a yes to a training: command, refusals, and the real thing from start to resume."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui.draft import Approval
from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.problem import Problem
from grpo_tui.progress.events import EVENTS_FILE
from grpo_tui.progress.fold import follow
from grpo_tui.run import control, folder, launch, prediction
from grpo_tui.run.life import life
from grpo_tui.run.record import read

TINY = Path(__file__).with_name("tiny_train.py")


def gpu(uuid, **values):
    return replace(GPU(index=0, uuid=uuid, name="Card", bus_id="", total_bytes=1, free_bytes=1, used_bytes=0), **values)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "config.toml").write_text("[grpo]\nuse_cpu = true\n[launch]\nprocesses = 1\nthreads = 1\n")
    (tmp_path / "rewards.py").write_text("")
    (tmp_path / "train.py").write_text("import time\ntime.sleep(60)\n")
    yield tmp_path
    for run in folder.runs(tmp_path):
        if run.life.alive:
            os.kill(run.life.pid, signal.SIGKILL)


def yes(source):
    return Approval(what="run", at="2026-08-30T12:00:00+00:00", sha256=launch.approval_hash(source))


def until(what, seconds=60.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_one_process_is_started_plainly_and_sees_only_its_gpu(tmp_path):
    made = launch.command(tmp_path, tmp_path / "runs/a", {}, [gpu("GPU-7")])
    assert made.argv == (sys.executable, str(tmp_path / "runs/a/train.py"))
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert made.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert made.environment["PYTHONSAFEPATH"] == "1"
    assert made.environment["GRPO_TUI_RUN"] == str(tmp_path / "runs/a")
    assert "OMP_NUM_THREADS" not in made.environment
    assert made.directory == tmp_path


def test_a_training_on_the_cpu_sees_no_gpu_and_uses_the_threads_it_is_given(tmp_path):
    made = launch.command(tmp_path, tmp_path, {"launch": {"threads": 1}}, [])
    assert made.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert made.environment["OMP_NUM_THREADS"] == "1"


def test_several_processes_go_through_accelerate_and_get_time_for_a_checkpoint(tmp_path):
    config = {"launch": {"processes": 2}}
    made = launch.command(tmp_path, tmp_path, config, [gpu("GPU-7"), gpu("GPU-8")], resume=True)
    words = " ".join(made.argv)
    assert "-m accelerate.commands.launch --multi_gpu" in words
    assert "--num_processes 2 --main_process_port 0" in words
    assert words.endswith("train.py --resume")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "GPU-7,GPU-8"
    assert int(made.environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]) > 30
    assert "SIGHUP" not in made.environment["TORCHELASTIC_SIGNALS_TO_HANDLE"]
    (tmp_path / "accelerate.yaml").write_text("distributed_type: FSDP\n")
    assert f"--config_file {tmp_path}/accelerate.yaml" in str(
        launch.command(tmp_path, tmp_path, config, [gpu("GPU-7")])
    )


def test_several_processes_on_the_cpu_go_through_torchrun(tmp_path):
    made = launch.command(tmp_path, tmp_path, {"launch": {"processes": 2}}, [])
    assert made.argv[1:6] == ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def test_on_the_cpu_a_file_for_gpus_is_left_aside(tmp_path):
    (tmp_path / "accelerate.yaml").write_text("distributed_type: FSDP\n")
    made = launch.command(tmp_path, tmp_path, {"launch": {"processes": 2}}, [])
    assert made.argv[2] == "torch.distributed.run"


def test_a_vllm_server_is_started_around_the_training(tmp_path):
    (tmp_path / "serve_vllm.sh").write_text("")
    (tmp_path / "accelerate.yaml").write_text("distributed_type: MULTI_GPU\n")
    config = {"launch": {"processes": 2, "vllm": "server"}}
    made = launch.command(tmp_path, tmp_path, config, [gpu("GPU-7"), gpu("GPU-8")])
    assert made.argv[:3] == ("bash", str(tmp_path / "serve_vllm.sh"), sys.executable)
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "GPU-7,GPU-8"
    assert made.environment["PATH"].startswith(str(Path(sys.executable).parent))
    without = launch.command(tmp_path, tmp_path, {"launch": {"processes": 2}}, [gpu("GPU-7"), gpu("GPU-8")])
    assert without.argv[0] == sys.executable


def test_what_is_planned_for_several_machines_is_left_to_slurm(project):
    with (project / "config.toml").open("a") as config:
        config.write("nodes = 2\n")
    refused = launch.prepare(project, approved=yes(project))
    assert isinstance(refused, Problem)
    assert "sbatch train.sbatch" in refused.remedy
    assert not (project / "runs").exists()


@pytest.mark.parametrize(
    ("line", "missing"), [('strategy = "fsdp2"', "accelerate.yaml"), ('vllm = "server"', "serve_vllm.sh")]
)
def test_what_is_planned_with_a_file_is_not_started_without_it(project, line, missing):
    with (project / "config.toml").open("a") as config:
        config.write(line + "\n")
    refused = launch.prepare(project, approved=yes(project))
    assert isinstance(refused, Problem)
    assert missing in refused.what
    (project / missing).write_text("")
    job = launch.prepare(project, approved=yes(project))
    assert not isinstance(job, Problem), job
    assert (job.run / missing).is_file()


def test_what_it_is_said_to_need_is_kept_in_the_run_folder_before_it_starts(project):
    job = launch.prepare(project, approved=yes(project), predicted={"train": 5, "peak": 6})
    assert prediction.read(job.run) == {"train": 5, "peak": 6}
    assert not (launch.prepare(project, approved=yes(project)).run / prediction.PREDICTION_FILE).exists()


def test_the_command_shown_can_be_typed(tmp_path):
    shown = str(launch.command(tmp_path / "a b", tmp_path / "a b", {}, []))
    assert f"'{tmp_path}/a b/train.py'" in shown
    assert "CUDA_VISIBLE_DEVICES=''" in shown


def test_gpus_are_those_the_configuration_names():
    machine = Machine(gpus=(gpu("GPU-1", visible=True, cuda_index=0), gpu("GPU-2", visible=True, cuda_index=1)))
    assert launch.choose_gpus({"launch": {"gpus": ["GPU-2"]}}, machine)[0].uuid == "GPU-2"
    assert [card.uuid for card in launch.choose_gpus({"launch": {"processes": 2}}, machine)] == ["GPU-1", "GPU-2"]
    assert launch.choose_gpus({"grpo": {"use_cpu": True}, "launch": {"gpus": ["GPU-2"]}}, machine) == ()
    missing = launch.choose_gpus({"launch": {"gpus": ["GPU-9"]}}, machine)
    assert isinstance(missing, Problem)
    assert "GPU-9" in missing.what


def test_a_yes_does_not_cover_files_that_changed_since(project):
    given = yes(project)
    (project / "rewards.py").write_text("def correct(**kwargs): return [1.0]\n")
    refused = launch.start(project, approved=given)
    assert isinstance(refused, Problem)
    assert "not those of the yes" in refused.what
    assert not (project / "runs").exists()


def test_the_hash_tells_names_and_contents_apart(tmp_path):
    (tmp_path / "config.toml").write_text("ab")
    first = launch.approval_hash(tmp_path)
    (tmp_path / "rewards.py").write_text("")
    second = launch.approval_hash(tmp_path)
    (tmp_path / "config.toml").write_text("a")
    (tmp_path / "rewards.py").write_text("b")
    assert len({first, second, launch.approval_hash(tmp_path)}) == 3


def test_a_yes_covers_the_rewards_whatever_their_file_is_called(project):
    (project / "my").mkdir()
    (project / "my" / "fancy.py").write_text("")
    with (project / "config.toml").open("a") as config:
        config.write('rewards_file = "my/fancy.py"\n')
    given = yes(project)
    (project / "rewards.py").write_text("# not the one that runs\n")
    assert launch.approval_hash(project) == given.sha256
    (project / "my" / "fancy.py").write_text("def correct(**kwargs): return [1.0]\n")
    refused = launch.prepare(project, approved=given)
    assert isinstance(refused, Problem)
    job = launch.prepare(project, approved=yes(project))
    assert not isinstance(job, Problem), job
    assert (job.run / "my" / "fancy.py").read_text().startswith("def correct")


def test_started_means_that_the_training_is_really_there(project):
    started = launch.start(project, approved=yes(project), name="first")
    assert not isinstance(started, Problem), started
    record = read(started.run)
    assert (record.supervisor_pid, record.training_pid) == (started.pid, started.training_pid)
    assert record.approved == launch.approval_hash(started.run)
    assert life(started.run).state == "starting"
    again = launch.start(project, approved=yes(started.run), resume=started.run)
    assert isinstance(again, Problem)
    assert "still starting" in again.what


def test_a_supervisor_that_does_not_come_up_is_told_with_its_last_words(project, monkeypatch):
    monkeypatch.setattr(launch, "arguments", lambda job: [sys.executable, "-c", "raise SystemExit('out of inodes')"])
    refused = launch.start(project, approved=yes(project))
    assert isinstance(refused, Problem)
    assert "out of inodes" in refused.what


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(project):
    run = folder.create(project, "old")
    refused = launch.start(project, approved=yes(run), resume=run)
    assert isinstance(refused, Problem)
    assert "no complete checkpoint" in refused.what


def test_a_broken_configuration_is_named_before_anything_starts(project):
    (project / "config.toml").write_text("[grpo\n")
    refused = launch.start(project, approved=yes(project))
    assert isinstance(refused, Problem)
    assert refused.where.endswith("config.toml")


@pytest.mark.parametrize(
    ("made", "report_to", "what"),
    [
        ("wandb/", "wandb", "missing"),  # only logs in it, and the package is not installed
        ("datasets.py", "none", "never gives this one"),
        ("tty.py", "none", "never gives this one"),
        ("trl/", "none", "never gives this one"),
    ],
)
def test_names_that_hide_or_are_hidden_by_a_library_are_told(project, made, report_to, what, monkeypatch):
    monkeypatch.setattr(launch, "_installed", lambda name: name != "wandb")
    path = project / made.rstrip("/")
    path.mkdir() if made.endswith("/") else path.write_text("")
    (project / "helpers.py").write_text("")
    [found] = launch.collisions(project, {"grpo": {"report_to": report_to}})
    assert (found.where, what in found.what) == (str(path), True)


def test_helpers_beside_the_rewards_are_looked_at_too_and_the_rewards_may_have_any_name(project):
    (project / "my").mkdir()
    for name in ("trl.py", "tty.py"):
        (project / "my" / name).write_text("")
    [found] = launch.collisions(project, {"launch": {"rewards_file": "my/trl.py"}})
    assert found.where == str(project / "my" / "tty.py")
    assert "my/trl.py" in found.remedy


def test_what_is_installed_is_found_without_importing_it():
    assert launch._installed("trl")
    assert not launch._installed("no_such_package")
    assert not launch._installed("wandb/..")


def test_a_file_of_the_project_hides_no_library(project):
    (project / "tty.py").write_text("raise SystemExit('the wrong module')\n")
    (project / "json.py").write_text("raise SystemExit('the wrong module')\n")
    (project / "train.py").write_text("import json, tty, sys\nprint('imports are right', json.dumps(1))\n")
    started = launch.start(project, approved=yes(project))
    assert not isinstance(started, Problem), started
    until(lambda: read(started.run).ended)
    assert "imports are right" in (started.run / "train.log").read_text()


TRAIN = f"""
import importlib.util, os, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("tiny_train", {str(TINY)!r})
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)
run = Path(os.environ["GRPO_TUI_RUN"])
newest = max(run.glob("checkpoint-*"), default=None, key=lambda path: int(path.name[11:]))
tiny.train(run, max_steps=STEPS, slow=0.1, resume=str(newest) if "--resume" in sys.argv else None)
"""


def test_a_real_training_is_stopped_resumed_and_finished_and_then_left_alone(project):
    (project / "train.py").write_text(TRAIN.replace("STEPS", "12"))
    started = launch.start(project, approved=yes(project))
    assert not isinstance(started, Problem), started
    run = started.run
    until(lambda: follow(run / EVENTS_FILE).progress.step >= 2)
    assert life(run).state == "running"
    control.request(run, "stop", "anna@desk")
    until(lambda: read(run).ended)
    stopped = life(run)
    assert (stopped.state, stopped.exit_code) == ("stopped", 0)
    assert [found.step for found in folder.checkpoints(run)] == [stopped.step]
    assert stopped.step < 12

    again = launch.start(project, approved=yes(run), resume=run)
    assert not isinstance(again, Problem), again
    until(lambda: read(run).ended)
    progress = follow(run / EVENTS_FILE).progress
    assert (life(run).state, progress.attempts, progress.resumed_from) == ("finished", 2, stopped.step)
    assert progress.series["reward"].steps.tolist() == list(range(1, 13))

    # A checkpoint at the last step: nothing is left.
    last = run / "checkpoint-12"
    (run / f"checkpoint-{stopped.step}").rename(last)
    state = json.loads((last / "trainer_state.json").read_text()) | {"global_step": 12}
    (last / "trainer_state.json").write_text(json.dumps(state))
    finished = launch.start(project, approved=yes(run), resume=run)
    assert isinstance(finished, Problem)
    assert "nothing left to train" in finished.what
