"""The written train.py really trains: on the CPU, with a random model, by itself and beside the recorder."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from grpo_tui.dataset.prompts import prepare_code
from grpo_tui.dataset.sources import Source, load_call, load_code, open_source
from grpo_tui.draft import DatasetAnswer, Draft, RewardItem, RewardsAnswer
from grpo_tui.plan import files
from grpo_tui.plan.dialect import Schema
from grpo_tui.run.folder import create
from tests.plan.plans import LOAD, PREPARE, draft, facts, planned, tiny_plan
from tests.plan.tiny import write_tiny_model

REWARDS = '''"""Rewards of the test."""


def correct(completions, answer, **kwargs):
    return [float(a in c[-1]["content"]) for c, a in zip(completions, answer)]


def length(completions, **kwargs):
    return [-len(c[-1]["content"]) / 100 for c in completions]


brevity = length  # the name in config.toml is not the function's own
'''


def environment(home: Path, **added: str) -> dict[str, str]:
    """An environment without network, home folder or GPU."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    return {**kept, "HOME": str(home), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "CI": "1", **added}


def write_project(folder: Path, schema: Schema, answers: Draft, rewards: str = REWARDS) -> Path:
    """A project with data, rewards, config.toml and train.py."""
    model = write_tiny_model(folder / "model")
    # "level" mixes types, as side columns of real files do: it must not stop the training
    lines = [
        {"question": f"What is {n} + 1?", "answer": str(n + 1), "level": n if n % 2 else "hard"} for n in range(12)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / answers.rewards.file).parent.mkdir(exist_ok=True)
    (folder / answers.rewards.file).write_text(rewards)
    plan, answers = tiny_plan(model, schema, answers, rows=12)
    rendered = {"config.toml": files.render_config(plan), "train.py": files.render_train(plan, answers, PREPARE, LOAD)}
    found = files.changes(folder, answers, rendered)
    assert isinstance(found, list)
    written = files.write(folder, answers, found)
    assert isinstance(written, Draft), written
    assert set(written.files) == {"config.toml", "train.py"}
    return folder


SHORT = {
    "grpo__max_steps": 2,
    "grpo__per_device_train_batch_size": 4,
    "grpo__gradient_accumulation_steps": 1,
    "grpo__num_generations": 2,
    "grpo__max_completion_length": 4,
    "grpo__save_steps": 1,
    "data__max_prompt_tokens": 200,
}


def run(argv: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def test_a_launched_script_trains_an_adapter_in_its_run_folder_under_the_recorder(
    tmp_path: Path, schema: Schema
) -> None:
    answers = draft(**SHORT)
    answers = replace(answers, model=replace(answers.model, method="lora"))
    project = write_project(tmp_path / "project", schema, answers)
    (project / "datasets.py").write_text("raise RuntimeError('a file of the project hides a library')\n")
    folder = project / "runs" / "first"
    folder.mkdir(parents=True)
    for name in ("config.toml", "rewards.py", "train.py"):
        (folder / name).write_text((project / name).read_text())
    (project / "rewards.py").write_text("raise RuntimeError('not the frozen copy')\n")
    env = environment(tmp_path, GRPO_TUI_RUN=str(folder), PYTHONSAFEPATH="1")
    done = run([str(folder / "train.py")], project, env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Finished at step 2 of 2." in done.stdout
    assert "deprecated" not in done.stderr
    assert (folder / "final" / "adapter_config.json").is_file()
    state = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())
    row = state["log_history"][0]
    assert {"rewards/correct/mean", "rewards/brevity/mean", "grad_norm"} <= row.keys()
    kinds = [json.loads(line)["kind"] for line in (folder / "events.jsonl").read_text().splitlines()]
    assert kinds[0] == "begin"
    assert kinds.count("log") >= 2
    tried = run(["-c", TRIED, str(folder)], project, environment(tmp_path, PYTHONSAFEPATH="1"))
    assert "tried PeftModelForCausalLM" in tried.stdout, tried.stderr[-2000:]


PLAIN = """
import runpy, sys
sys.modules["grpo_tui"] = None                      # as where grpo-tui is not installed
sys.argv = ["train.py"]
runpy.run_path("train.py", run_name="__main__")
sys.argv = ["train.py", "--resume"]
runpy.run_path("train.py", run_name="__main__")
"""

TRIED = """
import sys
from pathlib import Path
from grpo_tui.plan.files import after_training
exec(after_training(Path(sys.argv[1])).replace("max_new_tokens=256", "max_new_tokens=3"))
print("tried", type(model).__name__)
"""


def test_without_grpo_tui_it_is_plain_trl_and_a_finished_run_is_not_trained_further(
    tmp_path: Path, schema: Schema
) -> None:
    project = write_project(tmp_path / "project", schema, draft(**SHORT))
    for name in ("trl.py", "json.py"):
        (project / name).write_text("raise RuntimeError('a file of the project hides a library')\n")
    done = run(["-c", PLAIN], project, environment(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = (project / "runs").iterdir()
    assert "Finished at step 2 of 2." in done.stdout
    assert "checkpoint-2 is finished at step 2: there is nothing left to train." in done.stdout
    assert {path.name for path in folder.glob("checkpoint-*")} == {"checkpoint-1", "checkpoint-2"}
    assert (folder / "final" / "model.safetensors").is_file()
    assert (folder / "config.toml").read_text() == (project / "config.toml").read_text()
    assert not (folder / "events.jsonl").exists()
    assert "transformers import AutoModelForCausalLM" in files.after_training(folder)


def test_prompts_that_are_too_long_stop_the_training_where_that_was_chosen(tmp_path: Path, schema: Schema) -> None:
    answers = draft(**{**SHORT, "data__max_prompt_tokens": 3})
    answers = replace(answers, dataset=replace(answers.dataset, faults={"over_long": "stop"}))
    project = write_project(tmp_path / "project", schema, answers)
    done = run(["train.py"], project, environment(tmp_path))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "prompts are longer than 3 tokens. Training was to stop there." in last


def test_prompts_that_are_too_long_are_kept_where_that_was_chosen(schema: Schema) -> None:
    answers = draft()
    limited = replace(answers, dataset=replace(answers.dataset, max_prompt_tokens=3))
    kept = replace(limited, dataset=replace(limited.dataset, faults={"over_long": "keep"}))
    known = facts("Qwen2.5-0.5B", schema, 24)
    assert planned(limited, known).value("data.max_prompt_tokens") == 3
    assert not planned(kept, known).value("data.max_prompt_tokens")


UNNAMED = '''"""Rewards that are no plain functions, in a file that has the name of a library."""
import dataclasses
from functools import partial
from json import dumps  # the library, not this file

from helpers import size


def scaled(completions, by, **kwargs):
    return [size(c) / by for c in completions]


@dataclasses.dataclass
class Constant:
    value: float

    async def __call__(self, completions, **kwargs):
        return [self.value] * len(completions)


tenth = partial(scaled, by=10)
hundredth = partial(partial(scaled), by=100)
short = lambda completions, **kwargs: [-size(c) for c in completions]
half, whole = Constant(0.5), Constant(len(dumps(1)))
'''


def test_rewards_in_a_folder_are_frozen_and_each_is_logged_under_its_own_name_whatever_kind_of_callable_it_is(
    tmp_path: Path, schema: Schema
) -> None:
    names = ("tenth", "hundredth", "short", "half", "whole", "tenth")
    rewards = RewardsAnswer(file="my/json.py", items=tuple(RewardItem(name=name) for name in names))
    answers = replace(draft(**{**SHORT, "grpo__max_steps": 1}), rewards=rewards)
    project = write_project(tmp_path / "project", schema, answers, UNNAMED)
    (project / "my" / "helpers.py").write_text("from sizes import size\n")
    (project / "sizes.py").write_text("def size(completion):\n    return len(completion[-1]['content'])\n")
    folder = create(project, "first")
    assert isinstance(folder, Path), folder
    (project / "my" / "json.py").write_text("raise RuntimeError('not the frozen copy')\n")
    done = run([str(folder / "train.py")], project, environment(tmp_path, GRPO_TUI_RUN=str(folder)))
    assert done.returncode == 0, done.stderr[-3000:]
    row = json.loads((folder / "checkpoint-1" / "trainer_state.json").read_text())["log_history"][0]
    means = {key.split("/")[1]: value for key, value in row.items() if key.startswith("rewards/") and "mean" in key}
    assert means.keys() == {"tenth", "hundredth", "short", "half", "whole", "tenth_2"}
    assert (means["half"], means["whole"]) == (0.5, 1.0)
    assert means["tenth"] == means["tenth_2"] == pytest.approx(10 * means["hundredth"])
    assert means["short"] == pytest.approx(-10 * means["tenth"])


def test_rows_kept_without_an_answer_count_for_the_rewards_that_need_none(tmp_path: Path, schema: Schema) -> None:
    """DS-04: None reaches no comparison, `correct` gives None there, and the other reward still counts."""
    answers = draft(**{**SHORT, "grpo__max_steps": 3, "grpo__log_completions": True})
    answers = replace(answers, dataset=replace(answers.dataset, faults={"missing_answer": "keep"}))
    project = write_project(tmp_path / "project", schema, answers)
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} if n % 2 else {"question": f"And {n}?"}
            for n in range(12)]  # fmt: skip
    (project / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(["train.py"], project, environment(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = (project / "runs").iterdir()
    table = pyarrow.concat_tables(map(pyarrow.parquet.read_table, sorted((folder / "completions").glob("*.parquet"))))
    paid: dict[bool, list[tuple[float | None, float | None]]] = {True: [], False: []}
    for row in table.to_pylist():
        paid["And" in str(row["prompt"])].append((row["correct"], row["brevity"]))
    assert paid[True]
    assert paid[False]
    assert all(correct is None and brevity is not None for correct, brevity in paid[True])
    assert None not in [correct for correct, _ in paid[False]]


BROKEN = '{"question": "Who?", "answer": "x"}\n{"question": "What\n\n[7]\n{"question": "", "answer": "y"}\n{"cut'
LOADED = """
import json, runpy
script = runpy.run_path("train.py", run_name="loaded")
print(json.dumps([row["prompt"][-1]["content"] for row in script["load_data"]()]))
"""


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_script_leaves_exactly_the_broken_lines_out_and_nothing_behind(
    tmp_path: Path, schema: Schema, ending: str
) -> None:
    project = write_project(tmp_path / "project", schema, draft(**SHORT))
    data = project / f"rows.jsonl{ending}"
    content = BROKEN.encode()
    data.write_bytes(gzip.compress(content) if ending else content)
    answer = DatasetAnswer(source=data.name, prompt="question", answer="answer", faults={"broken_line": "leave_out"})
    source = open_source(str(data))
    assert isinstance(source, Source)
    load = load_call(source, project, answer)
    assert load == f"without_broken_lines(['{data.name}'])"
    plan, answers = tiny_plan(project / "model", schema, draft(**SHORT), rows=12)
    train = project / "train.py"
    train.write_text(files.render_train(plan, answers, prepare_code(answer), load, load_code(load)))
    env = environment(tmp_path, HF_HOME=str(tmp_path / "hf"))
    done = run(["-c", LOADED], project, env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["Who?"]
    assert not [path for path in (tmp_path / "hf").rglob("*") if path.is_file()]
    stop = replace(answer, faults={"broken_line": "leave_out", "empty": "stop"})
    train.write_text(files.render_train(plan, answers, prepare_code(stop), load, load_code(load)))
    done = run(["-c", LOADED], project, env)
    assert "Row 4 of the data: nothing to answer" in done.stderr
    assert not [path for path in (tmp_path / "hf").rglob("*") if path.is_file()]


def test_the_text_is_python_short_and_names_no_key_of_its_own(schema: Schema) -> None:
    plan = planned(draft(), facts("Qwen2.5-7B", schema, 80))
    text = files.render_train(plan, draft(), PREPARE, LOAD)
    compile(text, "train.py", "exec")
    assert PREPARE in text
    assert LOAD in text
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("\n") < 260
    assert "LoraConfig" in text
    assert "only_answered" not in text
    assert "BitsAndBytesConfig" not in text


def test_loading_in_four_bit_is_written_only_where_the_plan_wants_it(schema: Schema) -> None:
    known = facts("Qwen2.5-14B", schema, 24, packages=frozenset({"bitsandbytes"}))
    plan = planned(draft(), known)
    text = files.render_train(plan, draft(), PREPARE, LOAD)
    compile(text, "train.py", "exec")
    assert plan.method == "qlora"
    assert "BitsAndBytesConfig(\n        load_in_4bit=True" in text


@pytest.mark.parametrize("name", ['re"wards.py', "re\\wards.py", "a$b.py", '"""x.py', "ünï.py"])
def test_odd_names_do_not_break_the_text(schema: Schema, name: str) -> None:
    answers = replace(draft(), rewards=RewardsAnswer(file=name, items=draft().rewards.items))
    answers = replace(answers, model=replace(answers.model, name='x"""\n$y'))
    plan = planned(answers, facts("Qwen2.5-7B", schema, 80))
    compile(files.render_train(plan, answers, PREPARE, "load_dataset('$x', 'y')"), "train.py", "exec")
