"""The dry run of real projects: a healthy one passes and leaves nothing; faults are named before a run."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w

import grpo_tui
from grpo_tui.__main__ import main
from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.progress.events import Event
from grpo_tui.run.trial import DryRun, dry_run, measure, measured, start_worker
from grpo_tui.run.trial_config import full_length
from tests.plan.tiny import write_tiny_model

MODEL = Path(grpo_tui.__file__).parents[1] / "recipes" / "word_problems" / "model"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of its own, with secrets in the environment, for what this module starts."""
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "HOME": str(place),
            "HF_HOME": str(place / "hf"),
            "XDG_CACHE_HOME": str(place / "cache"),
            "HF_TOKEN": "hf_secret",
            "WANDB_API_KEY": "secret",
        }.items():
            patch.setenv(name, value)
        yield place


@pytest.fixture(scope="module")
def healthy(home: Path) -> Path:
    """The project of the shipped recipe."""
    project = home / "healthy"
    assert main(["init", str(project), "--recipe", "word_problems", "--json"]) == 0
    return project


@pytest.fixture(scope="module")
def worker(healthy: Path) -> Iterator[Worker]:
    """One for all trials here: importing the libraries takes seconds."""
    with start_worker(healthy) as started:
        yield started


@pytest.fixture
def project(healthy: Path, tmp_path: Path) -> Path:
    """A copy to plant a fault in."""
    shutil.copytree(healthy, tmp_path / "project")
    return tmp_path / "project"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))


def tried(project: Path, worker: Worker, model: Path = MODEL) -> DryRun:
    found = dry_run(project, model, worker=worker)
    assert isinstance(found, DryRun), found
    assert not list((project / "runs").glob("*")) or (project / "runs").is_file()
    return found


def fault(project: Path, worker: Worker, model: Path = MODEL) -> Problem:
    """The one problem that a trial finds."""
    found = tried(project, worker, model)
    assert not found.ok
    (problem,) = found.problems
    return problem


def test_a_healthy_project_makes_two_steps_and_nothing_is_left_behind(project: Path, worker: Worker) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*")}
    said: list[str] = []
    found = dry_run(project, MODEL, worker=worker, say=said.append)
    assert isinstance(found, DryRun)
    assert found.problems == ()
    assert (found.ok, found.steps) == (True, 2)
    assert {"rewards/correct/mean", "rewards/format/mean", "grad_norm", "reward"} <= found.figures.keys()
    assert any("16 tokens" in phrase for phrase in found.uncovered)
    assert len(said) == 3
    assert {path: path.read_bytes() for path in project.rglob("*")} == before
    assert json.loads(json.dumps(found.as_json()))["steps"] == 2


REWARD = '''"""Rewards of the test."""


def correct(prompts, completions, answer, **kwargs):
    {body}


def format(completions, **kwargs):
    return [0.0 for _ in completions]


brevity = format
'''


def write_reward(project: Path, body: str) -> None:
    (project / "rewards.py").write_text(REWARD.format(body=body))


def test_a_reward_that_wants_a_column_the_rows_have_not(project: Path, worker: Worker) -> None:
    edit(project / "rewards.py", "answer", "solution")
    problem = fault(project, worker)
    assert problem.where == "rewards"
    assert "'solution'" in problem.what


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [1.0]", "1 rewards for 2 completions"),
        ("return None", "returned nothing"),
        ("return ['good' for _ in completions]", "returned text"),
    ],
)
def test_a_reward_that_returns_something_else_than_a_number_a_completion(
    project: Path, worker: Worker, body: str, words: str
) -> None:
    write_reward(project, body)
    assert words in fault(project, worker).what


def test_a_reward_that_raises_is_told_by_its_line(project: Path, worker: Worker) -> None:
    write_reward(project, "return [1 / 0 for _ in completions]")
    problem = fault(project, worker)
    assert problem.where == "rewards.py:5"
    assert "ZeroDivisionError" in problem.what


def test_rewards_that_judge_nothing(project: Path, worker: Worker) -> None:
    write_reward(project, "return [None for _ in completions]")
    edit(project / "rewards.py", "0.0 for", "None for")
    assert "every one returned None" in fault(project, worker).what


def test_a_helper_of_the_rewards_is_found_and_an_edited_one_is_read_again(project: Path, worker: Worker) -> None:
    write_reward(project, "import helpers_of_mine; return [helpers_of_mine.pay(c) for c in completions]")
    problem = fault(project, worker)
    assert "helpers_of_mine cannot be imported" in problem.what
    (project / "helpers_of_mine.py").write_text("def pay(completion):\n    return 0.5\n")
    assert tried(project, worker).figures["rewards/correct/mean"] == 0.5
    (project / "helpers_of_mine.py").write_text("def pay(completion):\n    return 0.25 * 1\n")
    assert tried(project, worker).figures["rewards/correct/mean"] == 0.25


def test_the_rewards_see_neither_secrets_nor_a_gpu(project: Path, worker: Worker) -> None:
    body = (
        "import os; return [float('HF_TOKEN' not in os.environ and 'WANDB_API_KEY' not in os.environ"
        " and os.environ['CUDA_VISIBLE_DEVICES'] == '') for _ in completions]"
    )
    write_reward(project, body)
    assert os.environ["HF_TOKEN"]
    assert tried(project, worker).figures["rewards/correct/mean"] == 1.0


def test_a_model_without_a_chat_template(project: Path, worker: Worker, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "base")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    problem = fault(project, worker, model)
    assert problem.where == "model"
    assert "no chat template" in problem.what


def test_a_template_that_does_not_take_these_messages(project: Path, worker: Worker, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "strict")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
    settings["chat_template"] = refusing + settings["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "No system role" in fault(project, worker, model).what


def test_a_tokenizer_with_more_tokens_than_the_model_knows(project: Path, worker: Worker, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "small")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "vocab_size": 200, "eos_token_id": 1, "pad_token_id": 0}))
    assert "259 tokens and the model only 200" in fault(project, worker, model).what


def test_a_batch_without_whole_groups(project: Path, worker: Worker) -> None:
    edit(project / "config.toml", "num_generations = 8", "num_generations = 7")
    problem = fault(project, worker)
    assert problem.where == "grpo.num_generations"
    assert "64 completions" in problem.what


def test_more_prompts_at_a_time_than_there_are_rows(project: Path, worker: Worker) -> None:
    edit(project / "config.toml", "gradient_accumulation_steps = 1", "gradient_accumulation_steps = 1000")
    found = tried(project, worker)
    assert (found.steps, found.ok) == (2, False)
    assert "0 steps" in found.problems[0].what


def test_a_key_the_installed_version_does_not_have(project: Path, worker: Worker) -> None:
    edit(project / "config.toml", "num_generations = 8", "num_generations = 8\nmax_prompt_length = 99")
    assert fault(project, worker).where == "grpo.max_prompt_length"


def test_a_choice_that_trl_looks_at_only_in_the_first_step(project: Path, worker: Worker) -> None:
    edit(project / "config.toml", 'loss_type = "dapo"', 'loss_type = "drgrpo"')
    assert "drgrpo" in fault(project, worker).what


def test_a_column_that_the_prompts_are_not_in(project: Path, worker: Worker) -> None:
    edit(project / "train.py", '"prompt": ', '"text": ')
    found = tried(project, worker)
    assert not found.ok
    assert found.problems[0].where != "training"


def test_a_run_that_cannot_go_on_from_its_checkpoint(project: Path, worker: Worker) -> None:
    edit(project / "train.py", "    checkpoint = newest_checkpoint(run)", "    checkpoint = missing_function(run)")
    found = tried(project, worker)
    assert found.steps == 1
    assert "missing_function" in found.problems[0].what
    assert found.problems[0].where.startswith("train.py:")


def test_a_place_where_no_run_can_be_written(project: Path, worker: Worker) -> None:
    (project / "runs").write_text("a file\n")
    problem = fault(project, worker)
    assert problem.where == str(project / "runs")


FULL_DISK = """

import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))  # as on a disk that is full
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_FSIZE is enforced on Linux")
def test_a_checkpoint_that_cannot_be_written(project: Path) -> None:
    with (project / "rewards.py").open("a") as file:
        file.write(FULL_DISK)
    with start_worker(project) as own:
        problem = fault(project, own)
    assert problem.where == "disk"
    assert "Free some room" in problem.remedy


def test_a_model_to_be_loaded_in_4_bit_without_the_package(project: Path, worker: Worker) -> None:
    edit(
        project / "train.py",
        "from transformers import AutoTokenizer",
        "from transformers import AutoTokenizer, BitsAndBytesConfig",
    )
    edit(
        project / "train.py",
        "    data = load_data()",
        "    four_bit = BitsAndBytesConfig(load_in_4bit=True)\n    data = load_data()",
    )
    done = subprocess.run([sys.executable, "-c", "import bitsandbytes"], capture_output=True, check=False)
    found = tried(project, worker)
    if done.returncode:
        assert found.problems[0].where == "bitsandbytes"
    else:
        assert found.ok


def test_files_that_are_not_written_yet_can_be_tried(project: Path, worker: Worker) -> None:
    texts = {name: (project / name).read_text() for name in ("config.toml", "train.py")}
    for name in texts:
        (project / name).unlink()
    assert isinstance(dry_run(project, MODEL, worker=worker), Problem)
    found = dry_run(project, MODEL, worker=worker, texts=texts)
    assert isinstance(found, DryRun)
    assert found.ok
    assert not (project / "train.py").exists()


def test_it_can_be_cancelled_and_leaves_nothing(project: Path) -> None:
    with start_worker(project) as own:
        found = dry_run(project, MODEL, worker=own, say=lambda text: own.cancel())
    assert isinstance(found, DryRun)
    assert not found.ok
    assert "cancelled" in found.problems[0].what
    assert not (project / "runs").exists()


def test_what_a_killed_trial_left_is_taken_away_later(project: Path, worker: Worker) -> None:
    (project / "runs" / "first").mkdir(parents=True)
    left = project / "runs" / ".dry-run-old"
    left.mkdir()
    (left / "config.toml").write_text("")
    os.utime(left, (time.time() - 99999,) * 2)
    found = dry_run(project, MODEL, worker=worker)
    assert isinstance(found, DryRun)
    assert [path.name for path in (project / "runs").iterdir()] == ["first"]


@pytest.mark.slow
def test_a_reward_that_hangs_is_named(project: Path) -> None:
    write_reward(project, "import time; time.sleep(10000)")
    with start_worker(project) as own:
        found = dry_run(project, MODEL, worker=own, time_limit=30)
    assert isinstance(found, DryRun)
    assert found.problems[0].where == "rewards"
    assert "calling the reward correct" in found.problems[0].what


@pytest.mark.slow
def test_an_adapter_is_trained_saved_and_gone_on_with(project: Path, worker: Worker, home: Path) -> None:
    other = project.parent / "adapter"
    assert main(["init", str(other), "--recipe", "word_problems", "--method", "lora", "--json"]) == 0
    found = tried(other, worker)
    assert found.problems == ()
    assert found.steps == 2


def test_measured_peaks_stand_beside_the_predicted_ones() -> None:
    events = [
        Event(v=1, t=1.0, kind="phase", step=1, data={"memory": {"generate": 100, "train": 300}}),
        Event(v=1, t=2.0, kind="phase", step=2, data={"memory": {"generate": 120, "train": 280}}),
        Event(v=1, t=3.0, kind="log", step=2, data={"memory": {"cuda:0": {"allocated": 999}}}),
    ]
    found = measured(events, {"generate": 100, "train": 400, "load": 50}, {})
    assert found.steps == 2
    assert found.peaks == {"generate": 120, "train": 300}
    assert found.ratios == {"generate": 1.2, "train": 0.75}


def test_without_a_gpu_nothing_is_measured_and_it_is_said(project: Path) -> None:
    with start_worker(project) as hidden:  # sees no GPU, as on a machine without
        found = measure(project, {"train": 1}, worker=hidden)
    assert isinstance(found, Problem)
    assert "no GPU" in found.what
    assert not (project / "runs").exists()


LONGEST = """
import sys
from pathlib import Path
import grpo_tui.workers.dry_run as dry_run
print("RESULT", dry_run.run_longest(Path(sys.argv[1]) / "train.py"), file=sys.stderr, flush=True)
"""


@pytest.mark.slow
def test_to_be_measured_the_real_model_is_run_on_the_longest_prompts_at_full_length(project: Path) -> None:
    """The path of the GPU, taken on the CPU by the real tiny model: only the memory is not there to be measured."""
    rows = [json.loads(line) for line in (project / "word_problems.jsonl").read_text().splitlines()]
    rows[17]["question"] = rows[17]["question"] + " And then?" * 5
    (project / "word_problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = full_length(tomllib.loads((project / "config.toml").read_text()))
    config["grpo"] |= {"per_device_train_batch_size": 8, "log_completions": True}
    folder = project / "runs" / "measuring"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    for name in ("train.py", "rewards.py"):
        shutil.copyfile(project / name, folder / name)
    script = subprocess.Popen(
        [sys.executable, "-c", LONGEST, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=project,
    )
    assert script.stderr is not None
    printed = ""
    for line in script.stderr:
        printed += line
        if line.startswith("RESULT"):
            break
    assert script.stdin is not None
    script.stdin.close()
    script.wait(30)
    script.stderr.close()
    assert script.stdout is not None
    script.stdout.close()
    assert "RESULT None" in printed, printed[-3000:]
    logs = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    last = [row["logs"] for row in logs if row["kind"] == "log" and "completions/mean_length" in row["logs"]][-1]
    assert last["completions/min_length"] == config["grpo"]["max_completion_length"]
    (begin,) = (row for row in logs if row["kind"] == "begin")
    assert begin["batch"]["train_rows"] == 16
    assert not list(folder.glob("checkpoint-*"))
