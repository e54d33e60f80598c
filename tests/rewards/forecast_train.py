"""Train the built-in task for a few steps under several rewards and seeds, recorded as every run is.

    python -m tests.rewards.forecast_train FOLDER '{"steps": 5, "seeds": [1], "sets": {"all": {"correct": 1.0}}}'

Each run is the folder FOLDER/<set>-<seed>.
"""

# ruff: noqa: TID251 - this is a training process
import json
import sys
import tomllib
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from grpo_tui.rewards.loading import load_module
from grpo_tui.run.recorder import RunRecorder

RECIPE = Path(__file__).parents[2] / "recipes" / "word_problems"


def train(folder, steps, seed, weights):
    """One run with the recipe's settings; `weights` by function."""
    recipe = tomllib.loads((RECIPE / "recipe.toml").read_text(encoding="utf-8"))
    system = recipe["systems"][0]["text"].strip()
    rows = [
        {
            "prompt": [{"role": "system", "content": system}, {"role": "user", "content": row["question"]}],
            "answer": row["answer"],
        }
        for row in load_module(RECIPE / "rows.py").rows()
    ]
    rewards = load_module(RECIPE / "rewards.py")
    settings = {key: setting["value"] for key, setting in recipe["grpo"].items()} | {"max_steps": steps}
    trainer = GRPOTrainer(
        model=str(RECIPE / "model"),
        reward_funcs=[getattr(rewards, name) for name in weights],
        args=GRPOConfig(
            **settings, output_dir=str(folder), seed=seed, reward_weights=list(weights.values()), save_strategy="no",
            report_to="none", disable_tqdm=True, log_level="error",
        ),
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip
    RunRecorder(folder).attach(trainer)
    trainer.train()


def main():
    torch.set_num_threads(1)
    asked = json.loads(sys.argv[2])
    for name, weights in asked["sets"].items():
        for seed in asked["seeds"]:
            folder = Path(sys.argv[1]) / f"{name}-{seed}"
            folder.mkdir()
            train(folder, asked["steps"], seed, weights)


if __name__ == "__main__":
    main()
