"""What a training leaves behind, and what it obeys. Every training here is a real one by the installed GRPOTrainer."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_tui.progress import completions
from grpo_tui.progress.events import EVENTS_FILE
from grpo_tui.run import control
from grpo_tui.run.folder import checkpoints
from grpo_tui.run.life import life
from grpo_tui.run.peaks import Peaks
from grpo_tui.run.recorder import RunRecorder

RECORDED = Path(__file__).parents[1] / "runs" / "h01_base"


def rows(run, kind=None):
    """The rows of a run; strict JSON, so that every reader can read them."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    lines = (run / EVENTS_FILE).read_text().splitlines()
    found = [json.loads(line, parse_constant=refuse) for line in lines]
    return [row for row in found if kind in (None, row["kind"])]


def test_a_row_holds_the_very_floats_that_the_trainer_logged(train, tmp_path):
    trainer = train(tmp_path)
    logged = [{key: value for key, value in row.items() if key != "step"} for row in trainer.state.log_history]
    assert [row["logs"] for row in rows(tmp_path, "log")] == logged
    assert [row["step"] for row in rows(tmp_path, "log")] == [1, 2, 3, 4, 4]
    assert rows(tmp_path)[-1] | {"t": 0} == {"v": 1, "t": 0, "kind": "end", "step": 4, "reason": "completed"}


def test_the_first_row_says_what_is_trained_with_what(train, tmp_path):
    (tmp_path / "config.toml").write_text("[grpo]\n")
    train(tmp_path, hub_token="hf_abcdefgh")
    begin, recorded = rows(tmp_path)[0], rows(RECORDED)[0]
    assert set(recorded) <= set(begin)
    assert set(recorded["batch"]) == set(begin["batch"])
    assert begin["reward_names"] == ["correct", "short"]
    assert begin["reward_weights"] == [1.0, 0.3]
    assert begin["batch"]["prompts_per_generation"] == 4
    assert begin["batch"]["completions_per_step"] == 32
    assert begin["batch"]["train_rows"] == 25
    assert begin["versions"]["trl"]
    assert begin["settings"]["beta"] == 0.0
    assert begin["max_steps"] == 4
    assert len(begin["plan_hash"]) == 64
    assert begin["process"]["pid"] == os.getpid()
    assert begin["hooks"] == {"train": True, "signals": True, "profiling": True, "rewards": True, "memory": False}


def test_tokens_never_reach_the_record(train, tmp_path):
    train(tmp_path, hub_token="hf_abcdefgh", max_steps=1)
    assert "hf_abcdefgh" not in (tmp_path / EVENTS_FILE).read_text()


def test_every_step_tells_how_long_each_phase_took(train, tmp_path, progress):
    train(tmp_path, slow=0.05)
    phases = progress(tmp_path).phases
    assert set(phases) == {"generate", "reward:correct", "reward:short", "train"}
    assert phases["generate"].steps.tolist() == [1, 2, 3, 4]
    assert phases["reward:correct"].values.min() > 0.04
    assert phases["reward:short"].values.max() < 0.04
    whole = sum(series.values for series in phases.values())
    assert (whole >= progress(tmp_path).series["step_time"].values * 0.9).all()


def test_evaluation_is_no_part_of_a_steps_phases(train, tmp_path, progress):
    train(tmp_path, slow=0.1, eval_strategy="steps", eval_steps=1, max_steps=2)
    assert progress(tmp_path).phases["reward:correct"].values.max() < 0.2


def test_groups_without_signal_are_counted_from_the_rewards(train, tmp_path, progress):
    train(tmp_path)
    folded = progress(tmp_path)
    kept = completions.flat_series(tmp_path, folded.reward_names, folded.weights, num_generations=8)
    assert kept.steps.tolist() == folded.flat.steps.tolist() == [1, 2, 3, 4]
    assert kept.values.tolist() == folded.flat.values.tolist()
    # With 8 rewards of 0.3 each, TRL takes the rounding of float32 for signal.
    assert folded.flat.values.max() > 0
    assert len(folded.spread) == 4


def test_groups_of_all_generations_between_two_rows_count(train, tmp_path, progress):
    train(tmp_path, logging_steps=2)
    assert [row["groups"]["count"] for row in rows(tmp_path, "log") if "groups" in row] == [8, 8]


def test_a_group_is_flat_under_separate_normalisation_only_when_each_reward_is(train, tmp_path):
    train(tmp_path, multi_objective_aggregation="normalize_then_sum", reward_weights=[1.0, -1.0])
    table = completions.read(tmp_path, 1, num_generations=8)
    flat = [all(len({column[i] for i in group}) == 1 for column in table.rewards.values()) for group in table.groups]
    assert rows(tmp_path, "log")[0]["groups"]["flat_share"] == sum(flat) / len(flat)


def test_rows_without_generation_have_no_reward_and_no_groups(train, tmp_path, progress):
    train(tmp_path, num_iterations=2)
    folded = progress(tmp_path)
    assert folded.series["reward"].steps.tolist() == folded.flat.steps.tolist() == [1, 3]
    assert folded.series["grad_norm"].steps.tolist() == [1, 2, 3, 4]


def test_evaluations_are_rows_of_their_own(train, tmp_path, progress):
    train(tmp_path, eval_strategy="steps", eval_steps=2)
    folded = progress(tmp_path)
    assert folded.evals["eval_reward"].steps.tolist() == [2, 4]
    assert folded.series["reward"].steps.tolist() == [1, 2, 3, 4]
    assert "train_runtime" in folded.summary
    assert len(folded.spread) == 4  # evaluation is not among the groups


@pytest.mark.parametrize(("beta", "there"), [(0.0, False), (0.04, True)])
def test_kl_is_logged_only_when_beta_is_not_zero(train, tmp_path, progress, beta, there):
    train(tmp_path, beta=beta, max_steps=2)
    assert ("kl" in progress(tmp_path).series) is there
    assert progress(tmp_path).beta == beta


def test_steps_are_seen_although_rows_come_later(train, tmp_path, progress):
    seen = []
    train(tmp_path, max_steps=3, logging_steps=10, during=lambda step: seen.append(progress(tmp_path).step))
    assert seen == [0, 1, 2]
    folded = progress(tmp_path)
    assert folded.step == 3
    assert not folded.series  # nothing but the summary was logged, and that is no step
    assert "reward" in folded.summary


def test_a_stop_request_ends_the_step_with_a_checkpoint_although_nothing_is_to_be_saved(train, tmp_path, progress):
    train(tmp_path, max_steps=50, during=lambda step: step == 2 and control.request(tmp_path, "stop", "anna@desk"))
    folded = progress(tmp_path)
    assert (folded.end.reason, folded.end.step, folded.step) == ("stopped", 3, 3)
    assert [found.step for found in checkpoints(tmp_path)] == [3]
    assert [(c.action, c.by, c.step) for c in folded.controls] == [("stop", "anna@desk", 3)]
    assert control.pending(tmp_path) == []
    assert life(tmp_path, progress=folded).state == "stopped"


def test_save_now_writes_a_checkpoint_and_goes_on(train, tmp_path, progress):
    train(tmp_path, max_steps=5, during=lambda step: step == 1 and control.request(tmp_path, "save", "anna@desk"))
    folded = progress(tmp_path)
    assert [save.step for save in folded.saves] == [2] == [found.step for found in checkpoints(tmp_path)]
    assert (folded.end.reason, folded.step) == ("completed", 5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_after_the_step_and_a_second_one_breaks_nothing(train, tmp_path, progress, number):
    def twice(step):
        if step == 1:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)

    train(tmp_path, max_steps=50, during=twice)
    folded = progress(tmp_path)
    assert (folded.end.reason, folded.step) == ("stopped", 2)
    assert [found.step for found in checkpoints(tmp_path)] == [2]
    assert [(c.action, c.by) for c in folded.controls] == [("stop", signal.Signals(number).name)]


def test_a_resumed_training_goes_on_with_the_curve_as_if_it_had_never_stopped(train, tmp_path, progress):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, max_steps=6)
    train(parts, max_steps=6, during=lambda step: step == 2 and control.request(parts, "stop", "anna"))
    # Killed later than its checkpoint: what it wrote after step 3 is trained again.
    with (parts / EVENTS_FILE).open("a") as events:
        events.write(json.dumps({"v": 1, "t": time.time(), "kind": "log", "step": 4, "logs": {"reward": 99.0}}) + "\n")
    train(parts, max_steps=6, resume=str(parts / "checkpoint-3"))
    straight, resumed = progress(whole), progress(parts)
    assert (resumed.attempts, resumed.resumed_from, resumed.end.reason) == (2, 3, "completed")
    for key in ("reward", "num_tokens", "grad_norm", "entropy", "loss"):
        assert resumed.series[key].steps.tolist() == [1, 2, 3, 4, 5, 6], key
        assert resumed.series[key].values.tolist() == straight.series[key].values.tolist(), key
    assert resumed.flat.values.tolist() == straight.flat.values.tolist()


def test_an_exception_keeps_its_type_and_is_written_down(train, tmp_path, progress):
    with pytest.raises(ValueError, match="1,234 apples"):
        train(tmp_path, fail_at=2)
    folded = progress(tmp_path)
    assert folded.end.reason == "error"
    assert folded.end.error == "ValueError: could not convert string to float: '1,234 apples'"
    assert folded.end.step == folded.step == 2


def test_a_final_save_that_fails_is_no_good_end(train, tmp_path, progress):
    train(tmp_path, max_steps=1)
    assert progress(tmp_path).end.reason == "completed"
    error = OSError(28, "No space left on device")
    sys.excepthook(type(error), error, None)
    assert progress(tmp_path).end.error == "OSError: [Errno 28] No space left on device"


def test_not_a_number_is_seen_at_its_step_before_the_crash_it_causes(train, tmp_path, progress):
    # Step 1 ruins the weights, step 2 trains on the completions at hand and shows it, step 3 cannot generate.
    settings = {"learning_rate": 1e30, "max_grad_norm": 1e30, "optim": "sgd", "max_steps": 8, "num_iterations": 2}
    with pytest.raises(RuntimeError, match="probability tensor"):
        train(tmp_path, **settings)
    folded = progress(tmp_path)
    assert "probability tensor" in folded.end.error
    assert (folded.first_nonfinite.step, folded.end.step) == (2, 2)
    assert "grad_norm" in folded.first_nonfinite.keys
    assert any(isinstance(value, str) for row in rows(tmp_path, "log") for value in row["logs"].values())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_end_the_training(train, tmp_path, capfd):
    (tmp_path / EVENTS_FILE).symlink_to("/dev/full")
    trainer = train(tmp_path)
    assert trainer.state.global_step == 4
    assert "No space left on device" in capfd.readouterr().err


def test_a_folder_that_cannot_be_written_does_not_end_the_training(train, tmp_path, capfd):
    (tmp_path / EVENTS_FILE).mkdir()
    assert train(tmp_path).state.global_step == 4
    assert "grpo-tui recorder: attach" in capfd.readouterr().err


def test_faults_of_the_recorder_are_written_down_once(train, tmp_path, progress, monkeypatch):
    def broken(run):
        raise PermissionError("control/ is not yours")

    monkeypatch.setattr(control, "pending", broken)
    train(tmp_path)
    assert progress(tmp_path).recorder_errors == ("PermissionError: control/ is not yours",)
    assert progress(tmp_path).end.reason == "completed"


def test_a_library_that_moved_its_insides_costs_only_their_figures(tmp_path, capfd):
    class Arguments:
        process_index, world_size = 0, 1

    class OtherTrainer:
        """Has none of what GRPOTrainer 1.16 has beside `args` and `train`."""

        args = Arguments()

        def train(self):
            return "trained"

    trainer = OtherTrainer()
    RunRecorder(tmp_path).attach(trainer)
    assert trainer.train() == "trained"
    told = [row["where"] for row in rows(tmp_path, "recorder_error")]
    assert {"memory", "callback"} <= set(told)


def test_recording_changes_nothing_in_the_training(train, tmp_path):
    recorded = train(tmp_path / "a").state.log_history
    plain = train(tmp_path / "b", recorded=False).state.log_history
    timed = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
    assert [{k: v for k, v in row.items() if k not in timed} for row in recorded] == [
        {k: v for k, v in row.items() if k not in timed} for row in plain
    ]


def test_the_libraries_are_left_as_they_were(train, tmp_path):
    from trl.extras.profiling import ProfilingContext  # noqa: TID251 - the training process is this one

    before = (ProfilingContext.__enter__, ProfilingContext._log_metrics)
    train(tmp_path, max_steps=1)
    assert (ProfilingContext.__enter__, ProfilingContext._log_metrics) == before


def test_a_half_line_of_a_killed_attempt_does_not_swallow_the_next_row(train, tmp_path, progress):
    (tmp_path / EVENTS_FILE).write_text('{"v": 1, "t": 5.0, "kind": "log", "st')
    train(tmp_path, max_steps=1)
    assert progress(tmp_path).begin["reward_names"] == ["correct", "short"]


def test_rows_are_not_printed_into_the_log(train, tmp_path, capfd):
    train(tmp_path)
    assert "completions/mean_length" not in capfd.readouterr().out


def test_a_group_of_rewards_that_are_not_finite_counts_as_without_signal(train, tmp_path):
    trainer = train(tmp_path, max_steps=1)
    recorder = RunRecorder(tmp_path)
    recorder._note_rewards(trainer, [[math.inf, 0.0]] * 8 + [[0.0, 1.0]] * 4 + [[1.0, 1.0]] * 4)
    assert [math.isnan(recorder._spreads[0]), recorder._spreads[1]] == [True, 1.0]


class Cuda:
    """Counts memory as torch.cuda does: a peak stands until it is reset, and then begins at what is held."""

    def __init__(self, devices):
        self.held = dict.fromkeys(range(devices), 0)
        self.peak = dict(self.held)

    def use(self, device, size):
        self.held[device] = size
        self.peak[device] = max(self.peak[device], size)

    def memory_stats(self, device):
        return {"allocated_bytes.all.peak": self.peak[device], "reserved_bytes.all.peak": 2 * self.peak[device]}

    def reset_peak_memory_stats(self, device):
        self.peak[device] = self.held[device]


def test_the_peak_of_each_phase_and_of_each_row_is_kept():
    cuda = Cuda(2)
    memory = Peaks(cuda, [0, 1])
    cuda.use(0, 10)
    memory.mark("train")
    cuda.use(0, 70)  # while generating
    cuda.use(0, 10)
    memory.mark("generate")
    cuda.use(0, 40)
    memory.mark("train")
    assert memory.take_phases() == {"train": 40, "generate": 70}
    cuda.use(0, 10)
    memory.mark("train")
    # A row may span several steps: it has the highest peak, a new row begins at what is held.
    assert memory.take_row() == {"cuda:0": {"allocated": 70, "reserved": 140}}
    memory.mark("train")
    assert memory.take_row() == {"cuda:0": {"allocated": 10, "reserved": 20}}
    assert memory.take_phases() == {"train": 40}


@pytest.mark.slow
def test_two_ranks_stop_after_the_same_step_with_one_checkpoint(tmp_path, progress):
    script = Path(__file__).with_name("tiny_train.py")
    options = json.dumps({"max_steps": 2000, "per_device_train_batch_size": 16, "slow": 0.05})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    process = subprocess.Popen([*command, str(script), str(tmp_path), options], env=environment)
    try:
        deadline = time.monotonic() + 120
        while progress(tmp_path).step < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        control.request(tmp_path, "stop", "anna")
        assert process.wait(60) == 0
    finally:
        process.kill()
    folded = progress(tmp_path)
    assert folded.world_size == 2
    assert folded.end.reason == "stopped"
    assert [found.step for found in checkpoints(tmp_path)] == [folded.step]
    told = [json.loads(line) for line in (tmp_path / "ranks" / "1.jsonl").read_text().splitlines()]
    assert told[-1]["kind"] == "end"
    assert told[-1]["step"] == folded.step


@pytest.mark.slow
def test_a_rank_that_fails_does_not_leave_the_others_hanging(tmp_path, progress):
    script = Path(__file__).with_name("tiny_train.py")
    code = (
        "import os, runpy, sys, json; sys.argv = sys.argv[1:]; options = json.loads(sys.argv[2]);"
        "options['fail_at'] = 3 if os.environ['RANK'] == '1' else None; sys.argv[2] = json.dumps(options);"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(code)
    run = tmp_path / "run"
    options = json.dumps({"max_steps": 2000, "per_device_train_batch_size": 16, "slow": 0.05})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "300"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    process = subprocess.Popen([*command, str(wrapper), str(script), str(run), options], env=environment)
    try:
        assert process.wait(120) != 0
    finally:
        process.kill()
    told = [json.loads(line) for line in (run / "ranks" / "1.jsonl").read_text().splitlines()]
    assert "1,234 apples" in told[-1]["error"]


@pytest.mark.slow
@pytest.mark.bench
def test_what_a_row_costs(train, tmp_path, capsys):
    """Prints the recorder's own time per log row, everything it does in a step included."""
    spent = []
    for name in ("on_log", "on_step_end", "on_step_begin", "_note_rewards", "_enter_phase"):
        original = getattr(RunRecorder, name)

        def timed(self, *args, original=original):
            began = time.perf_counter()
            original(self, *args)
            spent.append(time.perf_counter() - began)

        setattr(RunRecorder, name, timed)
    train(tmp_path, max_steps=100)
    with capsys.disabled():
        print(f"\nrecorder: {sum(spent) / 100 * 1e3:.3f} ms per log row")
