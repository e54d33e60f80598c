"""Train a few steps with and without shadow rewards, and print what TRL logged and the advantages as one JSON object.

    python -m tests.rewards.shadow_train FOLDER

A shadow reward has the weight 0: it shall be recorded and change nothing.
"""

# ruff: noqa: TID251 - this is a training process
import json
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.run.tiny_train import model_and_tokenizer


def correct(completions, answer, **kwargs):
    return [float(right in text) for text, right in zip(completions, answer, strict=True)]


def skips(completions, **kwargs):
    """Scores every second completion only."""
    return [float(len(text)) if index % 2 else None for index, text in enumerate(completions)]


def loud(completions, **kwargs):
    return [1000.0 * len(text) for text in completions]


def broken(completions, **kwargs):
    """NaN, None and infinity."""
    return [(float("nan"), None, float("inf"))[index % 3] for index in range(len(completions))]


def train(folder, functions, weights):
    """The logged rows, and the advantages step by step."""
    model, tokenizer = model_and_tokenizer()
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(5)]
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=functions,
        args=GRPOConfig(
            output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", seed=3, learning_rate=1e-3,
            per_device_train_batch_size=32, num_generations=8, max_completion_length=4, logging_steps=1, max_steps=3,
            save_strategy="no", activation_checkpointing=False, disable_tqdm=True, log_completions=True,
            num_completions_to_print=0, reward_weights=weights,
        ),
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip
    trainer.train()
    tables = [parquet.read_table(path).to_pydict() for path in sorted((folder / "completions").glob("*.parquet"))]
    return {
        "rows": [row for row in trainer.state.log_history if "reward" in row],
        "advantages": [table["advantage"] for table in tables],
        "completions": [table["completion"] for table in tables],
        "names": [name for name in tables[0] if name in ("correct", "skips", "loud", "broken")],
    }


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    json.dump(
        {
            "plain": train(folder / "plain", [correct], [1.0]),
            "shadowed": train(folder / "shadowed", [correct, loud, broken], [1.0, 0.0, 0.0]),
            "skipping": train(folder / "skipping", [skips], [1.0]),
            "skipping_shadowed": train(folder / "skipping_shadowed", [skips, loud], [1.0, 0.0]),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
