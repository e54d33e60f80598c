"""A real GRPO training small enough for a test: about 10 ms a step on one CPU core, no network, no files but its run's.

python tiny_train.py RUN_FOLDER '{"max_steps": 4, ...}'        the second argument: keyword arguments of `train`
"""

# ruff: noqa: TID251 - this is a training process, and stands for train.py
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

from grpo_tui.run.recorder import RunRecorder

WORDS = ["<pad>", "<eos>", *"0123456789+=?"]


def model_and_tokenizer():
    """A random one-layer model over digits."""
    text = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="?"))
    text.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=text, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    set_seed(7)
    config = Qwen2Config(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen2ForCausalLM(config), tokenizer


def train(run, *, resume=None, fail_at=None, slow=0.0, recorded=True, during=None, **settings):
    """Train in the folder `run`; returns the trainer.

    `resume` is a checkpoint, `fail_at` the step at which the reward raises, `slow` the seconds each reward call takes,
    `during(step)` is called while the step's rewards are computed, `settings` go to GRPOConfig.
    """
    torch.set_num_threads(1)
    model, tokenizer = model_and_tokenizer()

    def correct(completions, answer, trainer_state, **kwargs):
        time.sleep(slow)
        if during:
            during(trainer_state.global_step)
        if fail_at is not None and trainer_state.global_step >= fail_at:
            raise ValueError("could not convert string to float: '1,234 apples'")
        return [float(right in text) for text, right in zip(completions, answer, strict=True)]

    def short(completions, **kwargs):
        return [float(len(text) < 4) for text in completions]

    if settings.get("beta"):  # the reference model is loaded from where the model came from
        model.save_pretrained(run / "start")
        model.config._name_or_path = str(run / "start")
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(5)]
    plain = {
        "output_dir": str(run), "use_cpu": True, "bf16": False, "report_to": "none", "seed": 3, "learning_rate": 1e-3,
        "per_device_train_batch_size": 32, "num_generations": 8, "max_completion_length": 4, "logging_steps": 1,
        "save_strategy": "no", "activation_checkpointing": False, "disable_tqdm": True, "log_completions": True,
        "num_completions_to_print": 0, "max_steps": 4, "reward_weights": [1.0, 0.3], "per_device_eval_batch_size": 8,
    }  # fmt: skip
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=[correct, short], args=GRPOConfig(**plain | settings),
        train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:4]),
    )  # fmt: skip
    if recorded:
        RunRecorder(run).attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


if __name__ == "__main__":
    train(Path(sys.argv[1]), **json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}"))
