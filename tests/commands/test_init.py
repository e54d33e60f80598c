"""`grpo-tui init` writes a project that is ready to run, or says what is missing."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from grpo_tui import lock, state
from grpo_tui.__main__ import main
from grpo_tui.commands.init import card, toml_value
from grpo_tui.problem import Problem
from tests.commands.projects import answer, init, shared, workers

__all__ = ["shared", "workers"]  # fixtures


def test_a_project_of_ones_own_is_written_without_a_question(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(shared, "--system", "Be brief.", "--json") == 0
    told = answer(capsys)
    project = shared / "project"
    assert set(told["files"]) >= {"config.toml", "train.py"}
    config = tomllib.loads((project / "config.toml").read_text())
    assert config == told["config"]
    assert config["data"]["prompt"] == "question"  # found by its name
    assert config["data"]["answer"] == "answer"
    assert config["data"]["system"] == "Be brief."
    assert config["rewards"] == [{"name": "correct", "weight": 1.0}, {"name": "brief", "weight": 0.25}]
    assert (config["grpo"]["max_steps"], config["grpo"]["num_generations"]) == (2, 2)
    assert told["batch"]["generation_batch"] % 2 == 0
    assert told["peak_bytes"] == max(told["memory"].values())
    assert told["reasons"]["grpo.max_steps"]["source"] == "set by you"
    compile((project / "train.py").read_text(), "train.py", "exec")
    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    assert {"task", "settings", "review"} <= loaded.draft.done.keys()
    assert loaded.draft.score.skipped  # the user's rewards were not run on the user's data


def test_what_becomes_of_faulty_rows_and_which_are_kept_apart_is_said_by_flags(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--choose", "duplicate=leave_out", "--choose", "leaked=keep", "--eval-share", "0.1", "--seed", "7")
    assert init(shared, *flags, "--json", project="apart") == 0
    data = answer(capsys)["config"]["data"]
    assert data["faults"] == {"duplicate": "leave_out", "leaked": "keep"}
    assert (data["eval_share"], data["seed"]) == (0.1, 7)
    assert init(shared, "--choose", "duplicate=explode", "--json", project="other") == 2
    assert "cannot be chosen for duplicate" in answer(capsys)["problems"][0]["what"]


def test_a_fault_that_stops_names_its_flag_and_with_it_the_rows_left_out_are_said(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"question": f"What is {n} plus {n}?", "answer": str(2 * n)}) for n in range(40)]
    (shared / "broken.jsonl").write_text("\n".join([*rows, '{"question": "cut', *rows[:4]]))
    broken = ("--data", str(shared / "broken.jsonl"), "--max-prompt-tokens", "400")
    assert init(shared, *broken, project="broken") == 2
    assert "--choose broken_line=leave_out" in capsys.readouterr().err
    assert init(shared, *broken, "--choose", "broken_line=leave_out", project="broken") == 0
    assert "44 of 45 are used; left out: line that is no JSON object (1)" in capsys.readouterr().out


def test_a_second_time_only_what_is_said_anew_changes_and_edits_are_kept(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(shared) == 0
    project = shared / "project"
    config = project / "config.toml"
    config.write_text(config.read_text().replace("temperature = 1.0", "temperature = 0.8"))
    capsys.readouterr()
    assert main(["init", str(project), "--set", "grpo.beta=0.04", "--json"]) == 2
    assert "you edited it" in answer(capsys)["problems"][0]["what"]
    assert "temperature = 0.8" in config.read_text()


def test_a_recipe_is_a_project_in_one_command(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shared / "demo"), "--recipe", "word_problems", "--set", "grpo.max_steps=4"]) == 0
    said = capsys.readouterr().out
    assert "✓ review" in said
    assert "Next     grpo-tui check" in said
    config = tomllib.loads((shared / "demo" / "config.toml").read_text())
    assert config["grpo"]["max_steps"] == 4


def test_a_card_elsewhere_can_be_planned_for(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(shared, "--gpu", "16GiBx2", "--capability", "7.5", "--json", project="remote") == 0
    told = answer(capsys)
    assert (told["settings"]["fp16"], told["batch"]["processes"]) == (True, 2)
    assert any("typed by hand" in note for note in told["notes"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model", "team/never-fetched"], "not in the Hugging Face cache"),
        (["--model", "/no/such/model"], "no such folder"),
        (["--data", "/no/such.jsonl"], "no such file"),
        (["--prompt", "nothing"], "nothing"),
        (["--set", "grpo.num_generation=8"], "does not know this key"),
        (["--set", "grpo.num_generations=1"], "at least 2"),
        (["--set", "beta"], "is no setting"),
        (["--reward", "correct=much"], "is no number"),
        (["--gpu", "large"], "no size of a card"),
        (["--gpus", "17"], "has no GPU 17"),
        (["--material", "pairs", "--checkable", "no", "--goal", "taste"], "better than GRPO"),
        (["--recipe", "no_such_recipe"], "No recipe"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    shared: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    gpu = [] if {"--gpu", "--gpus"} & set(flags) else ["--cpu"]
    base = ["--model", str(shared / "model"), "--data", str(shared / "sums.jsonl"), *gpu]
    assert main(["init", str(shared / "new"), *base, *flags, "--json"]) == 2
    problem = answer(capsys)["problems"][0]
    assert words in problem["what"]
    assert problem["remedy"]
    assert not (shared / "new" / "train.py").exists()


def test_without_model_or_data_the_flag_to_use_is_named(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shared / "new"), "--json"]) == 2
    assert "--model" in answer(capsys)["problems"][0]["remedy"]
    assert main(["init", str(shared / "new"), "--model", str(shared / "model"), "--json"]) == 2
    assert "--data" in answer(capsys)["problems"][0]["remedy"]


def test_a_project_that_is_open_elsewhere_is_left_alone(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = shared / "busy"
    project.mkdir()
    held = lock.acquire(project)
    assert isinstance(held, lock.Lock)
    try:
        assert main(["init", str(project), "--recipe", "word_problems", "--json"]) == 2
    finally:
        held.release()
    assert "has this project open" in answer(capsys)["problems"][0]["what"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("24GiB", (24 * 2**30, 1)),
        ("24", (24 * 2**30, 1)),
        ("80GBx8", (80 * 10**9, 8)),
        ("40g x 2", (40 * 2**30, 2)),
        ("0.5GiB", None),
        ("24GiBx0", None),
        ("x2", None),
        ("1.2.3GiB", None),
    ],
)
def test_the_size_of_a_card_is_read(text: str, found: tuple[int, int] | None) -> None:
    result = card(text)
    assert isinstance(result, Problem) if found is None else result == found


def test_values_on_the_command_line_are_toml_and_else_text() -> None:
    values = [toml_value(text) for text in ("1e-5", "8", "true", '"8"', "dapo", '["a", "b"]', "")]
    assert values == [1e-5, 8, True, "8", "dapo", ["a", "b"], ""]


OLD = """
model_name_or_path: model
use_peft: true
lora_r: 4
dataset_name: sums.jsonl
warmup_ratio: 0.1
max_prompt_length: 100
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
num_generations: 8
max_completion_length: 8
max_steps: 2
report_to: wandb
reward_funcs: [correct, brief]
reward_weights: [1.0, 0.25]
"""


def take_over(place: Path, text: str, *more: str, name: str = "old.yaml") -> int:
    """`grpo-tui init --from` for a configuration that lies beside the user's model, data and rewards."""
    (place / name).write_text(text)
    rewards = ("--rewards", str(place / "mine.py"))
    return main(["init", str(place / "taken"), "--from", str(place / name), *rewards, "--cpu", *more])


def test_an_older_configuration_is_taken_over_with_a_line_for_each_change(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take_over(shared, OLD, "--set", "lora.r=2", "--json") == 0
    told = answer(capsys)
    config = told["config"]
    assert config["model"]["name"] == str((shared / "model").resolve())
    assert config["data"]["file"].endswith("sums.jsonl")
    assert (config["data"]["max_prompt_tokens"], config["data"]["prompt"]) == (100, "question")
    assert config["lora"]["r"] == 2, "what is said beside it goes before"
    assert config["rewards"] == [{"name": "correct", "weight": 1.0}, {"name": "brief", "weight": 0.25}]
    assert (config["grpo"]["warmup_steps"], config["grpo"]["gradient_accumulation_steps"]) == (0.1, 8)
    changed = {change["key"]: change for change in told["changes"]}
    assert changed["warmup_ratio"]["new_key"] == "grpo.warmup_steps"
    assert changed["report_to"]["new"] == "none"
    assert all(change["why"] for change in told["changes"])


LOADED = "import train; print(len(train.load_data()))"


def test_prompts_that_an_older_configuration_cut_are_left_out_whole(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DS-10: 2 of 100 prompts are far longer than the limit and the model's context; training takes the other 98."""
    config = json.loads((shared / "model" / "config.json").read_text())
    (shared / "model" / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    rows = [{"question": "x" * (9000 if n in (17, 61) else 80) + str(n), "answer": str(n)} for n in range(100)]
    (shared / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert take_over(shared, OLD.replace("max_prompt_length: 100", "max_prompt_length: 512")) == 0
    assert "max_prompt_length = 512 becomes data.max_prompt_tokens = 512." in capsys.readouterr().out
    told = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=shared / "taken", capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(shared / "taken")},
    )  # fmt: skip
    assert told.stdout.splitlines() == ["2 of 100 prompts are longer than 512 tokens and left out.", "98"], told.stderr


def test_a_script_is_taken_over_without_running_it(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        f"open({str(shared / 'ran')!r}, 'w')\n"
        "model = AutoModelForCausalLM.from_pretrained('model')\n"
        "args = GRPOConfig(num_generations=4, max_completion_length=8, max_steps=None)\n"
    )
    more = ("--data", str(shared / "sums.jsonl"), "--reward", "correct")
    assert take_over(shared, text, *more, name="old.py") == 0
    said = capsys.readouterr().out
    assert "· max_steps = None is left out." in said
    assert not (shared / "ran").exists()


def test_a_misspelt_key_stops_the_taking_over_and_nothing_is_written(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take_over(shared, OLD + "num_generation: 8\n", "--json") == 2
    told = answer(capsys)
    assert "Did you mean num_generations?" in told["problems"][0]["remedy"]
    assert told["changes"]
    assert not (shared / "taken" / "config.toml").exists()


def test_what_is_no_configuration_is_refused(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert take_over(shared, "- just\n- a list\n", "--json") == 2
    assert "no settings" in answer(capsys)["problems"][0]["what"]
