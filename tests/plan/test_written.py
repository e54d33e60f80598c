"""What is read from somebody's YAML or script, without executing it."""

from pathlib import Path

import pytest

from grpo_tui.plan.written import Written, read_file, read_python, read_yaml
from grpo_tui.problem import Problem

SCRIPT = """
import os, torch
from trl import GRPOConfig, GRPOTrainer

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
LENGTH = 256
STEPS = 10
STEPS = 20
SHARED = {"bf16": True, "logging_steps": 1}
os.remove("everything")

model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, device_map="auto")
tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
lora = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
data = load_dataset("openai/gsm8k", "main", split="train")


def train():
    args = GRPOConfig(
        output_dir="out", learning_rate=5e-6, max_prompt_length=LENGTH, max_steps=STEPS,
        gradient_accumulation_steps=int(os.environ["ACCUMULATION"]), **SHARED,
    )
    GRPOTrainer(model=model, args=args, reward_funcs=[correct, format_reward], train_dataset=data, peft_config=lora)
"""


def test_a_script_is_read_and_nothing_in_it_runs() -> None:
    found = read_python(SCRIPT)
    assert isinstance(found, Written), found
    assert found.training == {
        "output_dir": "out",
        "learning_rate": 5e-6,
        "max_prompt_length": 256,
        "bf16": True,
        "logging_steps": 1,
    }
    assert found.model == {
        "model_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct",
        "torch_dtype": "bfloat16",
        "device_map": "auto",
    }
    assert found.lora is not None
    assert found.lora["target_modules"] == ["q_proj", "v_proj"]
    assert found.data == {
        "dataset_name": "openai/gsm8k",
        "dataset_config": "main",
        "dataset_train_split": "train",
    }
    assert found.rewards == ("correct", "format_reward")


def test_a_value_that_is_computed_or_set_twice_is_named_with_its_source() -> None:
    found = read_python(SCRIPT)
    assert isinstance(found, Written), found
    assert dict(found.computed) == {
        "gradient_accumulation_steps": 'int(os.environ["ACCUMULATION"])',
        "max_steps": "STEPS",
    }


def test_an_unsloth_script_names_its_model_and_adapter() -> None:
    found = read_python(
        'model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Qwen3-4B", load_in_4bit=True)\n'
        'model = FastLanguageModel.get_peft_model(model, r=32, target_modules=["q_proj"], lora_alpha=64)\n'
        "GRPOConfig(use_vllm=True)\n"
    )
    assert isinstance(found, Written), found
    assert found.model == {"model_name": "unsloth/Qwen3-4B", "load_in_4bit": True}
    assert found.lora == {"r": 32, "target_modules": ["q_proj"], "lora_alpha": 64}


def test_rows_of_a_local_file_are_found_behind_the_reader() -> None:
    found = read_python('load_dataset("json", data_files="sums.jsonl", split="train")\nGRPOConfig(beta=0.1)\n')
    assert isinstance(found, Written), found
    assert found.data["dataset_name"] == "sums.jsonl"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("GRPOConfig(beta=", "not Python, line 1"),
        ("print('hello')", "no GRPOConfig"),
        ("GRPOConfig(beta=0.1)\nGRPOConfig(beta=0.2)", "2 configurations, in lines 1, 2"),
    ],
)
def test_a_script_that_says_nothing_certain_is_refused(text: str, what: str) -> None:
    found = read_python(text)
    assert isinstance(found, Problem)
    assert what in found.what


def test_keys_of_yaml_are_sorted_by_what_they_are_about() -> None:
    found = read_yaml(
        "model_name_or_path: a/b\nuse_peft: true\nlora_r: 8\nlora_target_modules: all-linear\ndtype: bfloat16\n"
        "dataset_name: c/d\nreward_funcs: [accuracy_reward, rewards.mine]\nlearning_rate: 1e-6\n"
    )
    assert isinstance(found, Written), found
    assert (found.model, found.lora) == (
        {"model_name_or_path": "a/b", "dtype": "bfloat16"},
        {"r": 8, "target_modules": "all-linear"},
    )
    assert (found.data, found.rewards) == ({"dataset_name": "c/d"}, ("accuracy_reward", "mine"))
    assert found.training == {"learning_rate": "1e-6"}


def test_an_adapter_that_is_described_but_not_used_is_none() -> None:
    found = read_yaml("lora_r: 8\nlearning_rate: 1.0e-6\n")
    assert isinstance(found, Written), found
    assert found.lora is None


@pytest.mark.parametrize(
    ("text", "what"), [("a: [1", "not valid YAML, line"), ("- a\n- b\n", "no settings"), ("", "no settings")]
)
def test_what_is_no_configuration_is_refused_with_the_place(text: str, what: str) -> None:
    found = read_yaml(text)
    assert isinstance(found, Problem)
    assert what in found.what


def test_a_file_that_cannot_be_read_is_a_problem_and_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.yaml").write_text("{}")
    for name in ("nothing.yaml", "binary.yaml", "empty.yaml"):
        assert isinstance(read_file(tmp_path / name), Problem), name
