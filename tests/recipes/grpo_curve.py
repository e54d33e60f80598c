"""Train the word-problem model with the real `GRPOTrainer` and print the curves as one JSON object.

    python tests/recipes/grpo_curve.py --seed 1 --system "Reason, then answer." --steps 200

Settings, model, rows and rewards are those of the recipe; one thread, on the CPU. `seconds` is wall time since the
training began, at each step; `cpu_seconds` is the process's own time.
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"OMP_NUM_THREADS": "1"}

RECIPE = Path(__file__).parents[2] / "recipes" / "word_problems"


def load(path: Path) -> ModuleType:
    """The module at `path`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Train once as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--system", default=None, help="system prompt; the recipe's first by default, empty: none")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--model", default=str(RECIPE / "model"))
    parser.add_argument("--plain", action="store_true", help="prompts as plain text, without chat messages")
    arguments = parser.parse_args()

    import torch  # noqa: TID251  this is a training process
    from datasets import Dataset  # noqa: TID251  likewise
    from transformers import TrainerCallback  # noqa: TID251  likewise
    from transformers.trainer_callback import PrinterCallback  # noqa: TID251  likewise
    from trl import GRPOConfig, GRPOTrainer  # noqa: TID251  likewise

    torch.set_num_threads(1)
    recipe = tomllib.loads((RECIPE / "recipe.toml").read_text(encoding="utf-8"))
    system = recipe["systems"][0]["text"].strip() if arguments.system is None else arguments.system
    opening = [{"role": "system", "content": system}] if system else []
    rows = [
        {
            "prompt": row["question"] if arguments.plain else [*opening, {"role": "user", "content": row["question"]}],
            "answer": row["answer"],
        }
        for row in load(RECIPE / "rows.py").rows()
    ]
    rewards = load(RECIPE / "rewards.py")
    settings = {key: setting["value"] for key, setting in recipe["grpo"].items()}
    settings |= {"max_steps": arguments.steps} if arguments.steps else {}
    settings |= {"learning_rate": arguments.rate} if arguments.rate else {}
    curves: dict[str, list[float]] = {
        "correct": [],
        "format": [],
        "brevity": [],
        "reward": [],
        "entropy": [],
        "length": [],
    }
    seconds: list[float] = []

    class Recorder(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any
        ) -> None:
            if logs and "reward" in logs:
                for name in ("correct", "format", "brevity"):
                    curves[name].append(logs[f"rewards/{name}/mean"])
                curves["reward"].append(logs["reward"])
                curves["entropy"].append(logs["entropy"])
                curves["length"].append(logs["completions/mean_length"])
                seconds.append(round(time.monotonic() - started, 2))

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=arguments.model,
            reward_funcs=[getattr(rewards, item["name"]) for item in recipe["rewards"]["items"]],
            args=GRPOConfig(
                **settings,
                output_dir=folder,
                seed=arguments.seed,
                reward_weights=[item["weight"] for item in recipe["rewards"]["items"]],
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                log_level="error",
            ),
            train_dataset=Dataset.from_list(rows),
            callbacks=[Recorder()],
        )
        trainer.remove_callback(PrinterCallback)
        started, cpu = time.monotonic(), time.process_time()
        trainer.train()
    json.dump({**curves, "seconds": seconds, "cpu_seconds": round(time.process_time() - cpu, 1)}, sys.stdout)


if __name__ == "__main__":
    main()
