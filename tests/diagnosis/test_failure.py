"""A failed run is told with what happened, where, and what to change."""

import json
import os
from pathlib import Path

from grpo_tui.diagnosis.failure import Failure, read_failure
from grpo_tui.plan.known import CONFIGS
from grpo_tui.plan.memory import GIB
from tests.diagnosis.test_out_of_memory import MESSAGE, trace_text

RUNS = Path(__file__).parents[1] / "runs"

CONFIG = """
[model]
name = "../model"
dtype = "bfloat16"
[lora]
r = 16
[grpo]
per_device_train_batch_size = 8
gradient_accumulation_steps = 8
num_generations = 8
max_completion_length = 1024
bf16 = true
"""


def out_of_memory(tmp_path: Path, *, config: str = CONFIG, spare: str = "310.00 MiB") -> Failure:
    """A run of a 7B model that ran out of memory in the loss, on a card of 23.5 GiB."""
    run = tmp_path / "project" / "runs" / "first"
    run.mkdir(parents=True)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(dict(CONFIGS["Qwen2.5-7B"])))
    if config:
        (run / "config.toml").write_text(config)
    (run / "train.log").write_text("step 3\n" + trace_text("train", MESSAGE.format(others="", spare=spare)))
    found = read_failure(run, run / "train.log", begin={"versions": {"trl": "1.16.0"}})
    assert found is not None
    return found


def test_a_run_out_of_memory_is_told_with_its_phase_how_much_it_lacked_and_the_next_change(tmp_path: Path) -> None:
    found = out_of_memory(tmp_path)
    assert "while the loss and its gradients were computed" in found.cause
    assert "3.54 GiB too few" in found.cause
    assert "no fragmentation" in found.cause
    assert found.remedy.startswith("Next: per_device_train_batch_size = ")
    told = found.finding(3).as_json()
    assert told["evidence"]["figures"]["short_bytes"] == int(4.64 * GIB) - int(1.1 * GIB)
    assert told["evidence"]["figures"]["phase"] == "train"
    changes = {each["key"]: (each["from"], each["to"]) for each in told["advice"]}
    assert changes["grpo.per_device_train_batch_size"][0] == 8
    size = changes["grpo.per_device_train_batch_size"][1]
    accumulation = changes["grpo.gradient_accumulation_steps"][1]
    assert size * accumulation == 64
    assert json.loads(json.dumps(told)) == told


def test_fragmentation_is_named_and_answered_first(tmp_path: Path) -> None:
    found = out_of_memory(tmp_path, spare="5.10 GiB")
    assert "(fragmentation)" in found.cause
    assert found.remedy.index("expandable_segments") < found.remedy.index("next: ")


def test_without_its_configuration_the_advice_is_that_of_the_phase(tmp_path: Path) -> None:
    found = out_of_memory(tmp_path, config="")
    assert found.rung is None
    assert "per_device_train_batch_size" in found.remedy


def test_values_by_hand_that_are_no_numbers_cost_only_the_next_change(tmp_path: Path) -> None:
    found = out_of_memory(tmp_path, config=CONFIG.replace("1024", '"many"'))
    assert found.remedy


def test_a_recorded_crash_of_a_reward_is_told_with_its_line() -> None:
    found = read_failure(RUNS / "f29_crash_exc", RUNS / "f29_crash_exc" / "train.log")
    assert found is not None
    assert (
        found.cause == "specs.py:56: The reward f raised ValueError: could not convert string to float: '1,234 apples'."
    )
    assert "trainer_state.global_step >= n" in found.remedy


def test_an_earlier_attempt_explains_nothing(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(trace_text("train", MESSAGE.format(others="", spare="1.00 MiB")))
    earlier = log.stat().st_size
    with log.open("a") as file:
        file.write("nothing is said\n")
    assert read_failure(tmp_path, log, start=earlier) is None
    assert read_failure(tmp_path, log, start=1 << 40) is not None  # it was replaced by a shorter one


def test_a_log_that_is_none_or_says_nothing_explains_nothing(tmp_path: Path) -> None:
    assert read_failure(tmp_path, tmp_path / "train.log") is None
    os.mkfifo(tmp_path / "train.log")
    assert read_failure(tmp_path, tmp_path / "train.log") is None


def test_a_file_name_with_terminal_sequences_is_shown_inert(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "/home/a\x1b[2Jb.py", line 3, in f\n    x\nValueError: y\n'
    )
    found = read_failure(tmp_path, log)
    assert found is not None
    assert "\x1b" not in found.cause
