"""What is exported stands alone: it really trains, without us."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_tui.draft import Draft
from grpo_tui.plan import files
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.export import Export, explained, prompt_lines, render_script, render_yaml
from grpo_tui.plan.plan import Plan
from grpo_tui.problem import Problem
from tests.plan.plans import LOAD, PREPARE, PREPARE_ROWS, draft, facts, planned
from tests.plan.test_script import REWARDS, SHORT, environment, write_project

PROJECT = {**SHORT, "grpo__learning_rate": 1e-05}

PLAIN = (
    '''def prepare(row):
    """One row as the model sees it."""
    return {"prompt": row["question"], "answer": row["answer"]}
'''
    + PREPARE_ROWS
)


def exported(plan: Plan, rewards: str = REWARDS, prepare: str = PREPARE) -> Export:
    found = render_script(plan, prepare=prepare, load=LOAD, rewards=rewards, rewards_file="rewards.py")
    assert isinstance(found, Export), found
    return found


def written(folder: Path, schema: Schema, answers: Draft) -> tuple[Path, Plan]:
    """A project, and the plan that its config.toml is."""
    project = write_project(folder, schema, answers)
    config = files.read_config((project / "config.toml").read_text())
    assert isinstance(config, dict), config
    plan = files.plan_of(config, rows=12)
    assert isinstance(plan, Plan), plan
    return project, plan


def run(argv: list[str], project: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=project, env=environment(home), capture_output=True, text=True, timeout=300)


def keywords(text: str, name: str) -> dict[str, Any]:
    """The literal keyword arguments of the one call of `name`."""
    [call] = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    ]
    found = {}
    for keyword in call.keywords:
        try:
            found[keyword.arg or ""] = ast.literal_eval(keyword.value)
        except ValueError:
            continue
    return found


def test_every_value_stands_in_the_script_under_its_reason(schema: Schema) -> None:
    plan = planned(draft(grpo__beta=0.04), facts("Qwen2.5-7B", schema, 80))
    text = exported(plan).text
    passed = keywords(text, "GRPOConfig")
    assert {key: passed[key] for key in plan.section("grpo")} == plan.section("grpo")
    assert {key: value for key, value in keywords(text, "LoraConfig").items() if key != "task_type"} == plan.section(
        "lora"
    )
    lines = text.splitlines()
    above = lines[lines.index("        beta=0.04,") - 1]
    assert above.strip().startswith("#")
    assert "[set by you]" in above
    assert "grpo_tui" not in text
    assert max(map(len, lines)) <= 120


def test_a_value_changed_on_the_disk_loses_the_reason_it_had(schema: Schema) -> None:
    tuned = planned(draft(), facts("Qwen2.5-7B", schema, 80))
    config = tuned.as_config()
    config["grpo"]["learning_rate"] = 3e-6
    on_disk = files.plan_of(config)
    assert isinstance(on_disk, Plan)
    told = explained(on_disk, tuned)
    rate, clip = told.setting("grpo.learning_rate"), told.setting("grpo.max_grad_norm")
    assert rate is not None
    assert clip is not None
    assert (rate.value, rate.source) == (3e-6, "set by you")
    assert clip.source == "library default"


def test_the_script_really_trains_where_there_is_no_grpo_tui(tmp_path: Path, schema: Schema) -> None:
    answers = draft(**PROJECT)
    answers = replace(answers, model=replace(answers.model, method="lora"))
    project, plan = written(tmp_path / "project", schema, answers)
    for name in ("config.toml", "rewards.py", "train.py"):
        (project / name).unlink()
    (project / "alone.py").write_text(exported(plan).text)
    (project / "grpo_tui.py").write_text("raise RuntimeError('it is not needed')\n")
    done = run([sys.executable, "alone.py"], project, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    state = json.loads((project / "outputs/grpo/checkpoint-2/trainer_state.json").read_text())
    assert {"rewards/correct/mean", "rewards/length/mean"} <= state["log_history"][0].keys()
    assert (project / "outputs/grpo/final/adapter_config.json").is_file()


def test_the_script_keeps_none_from_comparisons_and_yaml_says_that_it_cannot(tmp_path: Path, schema: Schema) -> None:
    """DS-04: `correct` would raise on the row without an answer."""
    answers = draft(**{**PROJECT, "grpo__max_steps": 3})
    answers = replace(
        answers,
        model=replace(answers.model, method="lora"),
        dataset=replace(answers.dataset, faults={"missing_answer": "keep"}),
    )
    project, plan = written(tmp_path / "project", schema, answers)
    rows = [{"question": f"{n}?", "answer": str(n) if n % 2 else None} for n in range(12)]
    (project / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (project / "alone.py").write_text(exported(plan).text)
    done = run([sys.executable, "alone.py"], project, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    state = json.loads((project / "outputs/grpo/checkpoint-3/trainer_state.json").read_text())
    assert {"rewards/correct/mean", "rewards/length/mean"} <= state["log_history"][0].keys()
    assert any("None" in note for note in render_yaml(plan, rewards_file="rewards.py").notes)


@pytest.mark.slow
def test_the_yaml_really_trains_with_trls_own_command(tmp_path: Path, schema: Schema) -> None:
    answers = draft(**PROJECT)
    answers = replace(answers, model=replace(answers.model, method="lora"))
    project, plan = written(tmp_path / "project", schema, answers)
    rows = [{"prompt": [{"role": "user", "content": f"{n}?"}], "answer": str(n), "level": n if n % 2 else "hard"}
            for n in range(12)]  # fmt: skip
    (project / "prompts.jsonl").write_text(prompt_lines(rows))
    (project / "grpo.yaml").write_text(render_yaml(plan, rewards_file="rewards.py").text)
    done = run([str(Path(sys.executable).parent / "trl"), "grpo", "--config", "grpo.yaml"], project, tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    state = json.loads((project / "outputs/grpo/checkpoint-2/trainer_state.json").read_text())
    assert state["global_step"] == 2
    assert (project / "outputs/grpo/adapter_config.json").is_file()


def test_yaml_reads_back_as_the_plan(schema: Schema) -> None:
    plan = planned(draft(), facts("Qwen2.5-7B", schema, 80))
    made = render_yaml(plan, rewards_file="my/rewards.py")
    read = yaml.safe_load(made.text)
    assert {key: read[key] for key in plan.section("grpo")} == plan.section("grpo")
    assert isinstance(read["learning_rate"], float), "1e-05 without a dot is text to YAML"
    assert read["reward_funcs"] == ["my.rewards.correct", "my.rewards.brevity"]
    assert (read["use_peft"], read["lora_r"], read["lora_target_modules"]) == (True, 16, ["all-linear"])
    assert any("prompts.jsonl" in note for note in made.notes)


def test_what_yaml_has_no_key_for_is_said(schema: Schema) -> None:
    plan = planned(draft(lora__bias="all"), facts("Qwen2.5-7B", schema, 80))
    made = render_yaml(plan, rewards_file="rewards.py")
    assert "lora.bias has no key there and is left out." in made.notes
    assert "bias" not in yaml.safe_load(made.text)


@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
def test_several_gpus_are_started_by_the_strategy(schema: Schema, strategy: str) -> None:
    known = facts("Qwen2.5-7B", schema, 80, gpus=4, packages=frozenset({"deepspeed"}))
    plan = planned(draft(launch__strategy=strategy), known)
    read = yaml.safe_load(render_yaml(plan, rewards_file="rewards.py").text)
    assert (read["num_processes"], read["accelerate_config"]) == (4, strategy)
    assert "accelerate launch --config_file accelerate.yaml" in exported(plan).text


def test_code_of_rewards_and_data_may_use_the_same_names(schema: Schema, tmp_path: Path) -> None:
    rewards = (
        '"""Mine."""\nfrom __future__ import annotations\n\nimport json\n\n\n'
        'def prepare(text):\n    return "mine"\n\n\n'
        "def correct(completions, **kwargs):\n    return [float(prepare(c) == 'mine') for c in completions]\n\n\n"
        "brevity = correct\n\nif __name__ == '__main__':\n    raise SystemExit('run as a program')\n"
    )
    plan = planned(draft(), facts("SmolLM2-135M", schema))
    text = exported(plan, rewards, PLAIN).text
    assert text.index("from __future__") < text.index("import json")
    assert "run as a program" not in text
    space: dict[str, Any] = {"__name__": "looked_at", "__file__": str(tmp_path / "alone.py")}
    kept = text.split("# The data.")[0]
    pure = "\n".join(line for line in kept.splitlines() if not line.startswith(("from ", "os.")) or "__future" in line)
    exec(compile(pure.replace("HERE = Path(__file__).resolve().parent", ""), "alone.py", "exec"), space)
    assert space["correct"](["a"]) == [1.0]


@pytest.mark.parametrize(
    ("rewards", "what"), [("def main(): ...\n", "needs the name main"), ("def broken(:\n", "cannot be taken over")]
)
def test_rewards_that_cannot_be_taken_over_are_named(schema: Schema, rewards: str, what: str) -> None:
    plan = planned(draft(), facts("SmolLM2-135M", schema))
    found = render_script(plan, prepare=PREPARE, load=LOAD, rewards=rewards, rewards_file="mine.py")
    assert isinstance(found, Problem)
    assert (found.where, what in found.what) == ("mine.py", True)


def test_a_column_that_mixes_types_becomes_text_and_the_others_stay() -> None:
    lines = prompt_lines([{"prompt": "a", "level": 1, "n": 1}, {"prompt": "b", "level": "hard", "n": 2.5}])
    assert [json.loads(line) for line in lines.splitlines()] == [
        {"prompt": "a", "level": "1", "n": 1},
        {"prompt": "b", "level": "hard", "n": 2.5},
    ]
