"""How processes, batch size, accumulation and generations make up a batch, and which combinations TRL accepts.

The rules are those of `GRPOConfig.__post_init__` in TRL 1.16 (V1-V7 below) and of `RepeatSampler` in
trl/trainer/utils.py. `per_device_train_batch_size` counts completions, not prompts (since TRL 0.15, trl#2776).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import gcd, isqrt
from typing import Any

from grpo_tui.problem import Problem

DEFAULTS: Mapping[str, int] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
    "per_device_eval_batch_size": 8,
}
"""TRL 1.16's own values of the fields this arithmetic reads."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One legal combination. All counts are whole numbers above zero."""

    per_device: int
    """Completions per process and micro-step: `per_device_train_batch_size`."""

    world: int = 1
    """Training processes (server GPUs are not among them)."""

    accumulation: int = 1
    """Micro-steps per optimizer step: `gradient_accumulation_steps`."""

    generations: int = 8
    """Completions per prompt: `num_generations`."""

    steps_per_generation: int = 1
    """Micro-steps that one generation feeds; TRL's default is `accumulation` (V1)."""

    iterations: int = 1
    """Passes over each generation: `num_iterations`."""

    @property
    def generation_batch(self) -> int:
        """Completions generated at a time, over all processes."""
        return self.per_device * self.world * self.steps_per_generation

    @property
    def generated_per_device(self) -> int:
        """Completions that one process generates at a time: what its key-value cache holds."""
        return self.per_device * self.steps_per_generation

    @property
    def prompts_per_generation(self) -> int:
        return self.generation_batch // self.generations

    @property
    def completions_per_step(self) -> int:
        """Completions that one optimizer step learns from."""
        return self.per_device * self.world * self.accumulation

    @property
    def prompts_per_step(self) -> float:
        """Prompts that one optimizer step learns from."""
        return self.completions_per_step / self.generations

    @property
    def prompt_words(self) -> str:
        """Prompts of one optimizer step, as words."""
        return f"{self.prompts_per_step:g} prompt" + ("" if self.prompts_per_step == 1 else "s")

    @property
    def on_policy(self) -> bool:
        """Every completion is learnt from before the weights that wrote it have changed.

        So it is where optimizer steps end with generations: otherwise TRL corrects for older weights (`generate_every`
        in trl/trainer/grpo_trainer.py, 1.16).
        """
        return self.accumulation % (self.steps_per_generation * self.iterations) == 0

    def used_rows(self, rows: int) -> int:
        """Rows of one epoch that are used; the sampler drops an incomplete last chunk of prompts."""
        return rows // self.prompts_per_generation * self.prompts_per_generation

    def dropped_rows(self, rows: int) -> int:
        return rows - self.used_rows(rows)

    def steps_per_epoch(self, rows: int) -> int:
        """Optimizer steps of one pass over `rows` prompts; 0: training would end before its first step.

        A generation feeds `steps_per_generation * iterations` micro-steps, and the trainer rounds an incomplete
        accumulation at the end of an epoch up to a step (transformers 5.24, `Trainer.set_initial_training_values`).
        """
        micro = self.used_rows(rows) // self.prompts_per_generation * self.steps_per_generation * self.iterations
        return -(-micro // self.accumulation)

    def settings(self) -> dict[str, int]:
        """The fields of `GRPOConfig` that give this batch; `steps_per_generation` only where it is not the default."""
        values = {
            "per_device_train_batch_size": self.per_device,
            "gradient_accumulation_steps": self.accumulation,
            "num_generations": self.generations,
        }
        if self.steps_per_generation != self.accumulation:
            values["steps_per_generation"] = self.steps_per_generation
        return values

    def words(self) -> str:
        """The arithmetic in one line."""
        return (
            f"{self.world} × {self.per_device} × {self.accumulation} = {self.completions_per_step} completions per step"
            f" = {self.prompt_words} × {self.generations}, {'on' if self.on_policy else 'off'}-policy"
        )


MOST = 10**6
"""Completions, steps or generations beyond which a number is a slip of the pen."""


def _number(settings: Mapping[str, Any], key: str) -> int | Problem:
    value = settings.get(key)
    if value is None:
        value = DEFAULTS[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return Problem(f"grpo.{key}", f"{value!r} is not a whole number above zero.", "Write one, such as 1.")
    if value > MOST:
        return Problem(f"grpo.{key}", f"{value} is more than any training takes.", "Write one, such as 8.")
    return value


def _ways(choices: Iterable[str]) -> str:
    return " or ".join(choices)


def read(settings: Mapping[str, Any], world: int = 1) -> Batch | list[Problem]:
    """The batch that `settings` (fields of `GRPOConfig`) make on `world` processes, or every rule they break.

    Each problem's remedy names the nearest settings that are legal.
    """
    numbers: dict[str, int] = {}
    problems: list[Problem] = []
    for key in DEFAULTS:
        value = _number(settings, key)
        if isinstance(value, Problem):
            problems.append(value)
        else:
            numbers[key] = value
    given: dict[str, int] = {}
    for key in ("steps_per_generation", "generation_batch_size"):
        if settings.get(key) is None:
            continue
        value = settings[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(Problem(f"grpo.{key}", f"{value!r} is not a whole number above zero.", "Leave it out."))
        else:
            given[key] = value
    if problems:
        return problems
    per_device, accumulation = numbers["per_device_train_batch_size"], numbers["gradient_accumulation_steps"]
    generations = numbers["num_generations"]
    micro = per_device * world
    batch = Batch(
        per_device=per_device,
        world=world,
        accumulation=accumulation,
        generations=generations,
        steps_per_generation=given.get("steps_per_generation", accumulation),  # V1, V3
        iterations=numbers["num_iterations"],
    )
    if len(given) == 2:  # V4
        problems.append(
            Problem(
                "grpo.generation_batch_size",
                "generation_batch_size and steps_per_generation say the same thing twice, and TRL takes only one of"
                " them.",
                "Leave one of the two out.",
            )
        )
    elif "generation_batch_size" in given:
        size = given["generation_batch_size"]
        if size % micro:  # V2
            down, up = max(micro, size // micro * micro), (size // micro + 1) * micro
            problems.append(
                Problem(
                    "grpo.generation_batch_size",
                    f"{size} is no multiple of {per_device} completions × {world} processes = {micro}.",
                    f"Set it to {_ways(str(choice) for choice in dict.fromkeys((down, up)))}.",
                )
            )
            return problems
        batch = replace(batch, steps_per_generation=size // micro)
    if generations < 2:  # V6
        problems.append(
            Problem(
                "grpo.num_generations",
                "GRPO compares the completions of one prompt with one another, so it needs at least 2 of them.",
                "Set it to 8, or to 2 at the least.",
            )
        )
    elif batch.generation_batch % generations:  # V5
        choices = [describe(choice, batch) for choice in nearest(batch)]
        problems.append(
            Problem(
                "grpo.num_generations",
                f"{batch.generation_batch} completions are generated at a time ({per_device} per device × {world}"
                f" processes ×"
                f" {batch.steps_per_generation} steps), which is no multiple of num_generations = {generations}.",
                f"Set {_ways(choices)}.",
            )
        )
    problems += _evaluation(settings, numbers["per_device_eval_batch_size"], world, generations)
    return problems or batch


def _evaluation(settings: Mapping[str, Any], per_device: int, world: int, generations: int) -> list[Problem]:
    """V7: evaluation generates full groups too, and accumulation does not help it there."""
    if str(settings.get("eval_strategy") or "no") == "no":
        return []
    wanted = settings.get("num_generations_eval") or generations
    problems = []
    if not isinstance(wanted, int) or (per_device * world) % wanted:
        group = wanted if isinstance(wanted, int) and wanted > 0 else generations
        ways = [f"{key} = {number}" for key, number in evaluation_ways(per_device, world, group).items()]
        problems.append(
            Problem(
                "grpo.per_device_eval_batch_size",
                f"{per_device} per device × {world} processes is no multiple of the {wanted} completions per prompt"
                f" that"
                " evaluation generates (accumulation does not count here).",
                f"Set {_ways(ways)}.",
            )
        )
    if settings.get("load_best_model_at_end") and str(settings.get("eval_strategy")) == "steps":
        save, evaluate = (
            settings.get("save_steps", 500),
            settings.get("eval_steps") or settings.get("logging_steps", 10),
        )
        if isinstance(save, int) and isinstance(evaluate, int) and evaluate > 0 and save % evaluate:
            problems.append(
                Problem(
                    "grpo.save_steps",
                    f"load_best_model_at_end needs save_steps ({save}) to be a multiple of eval_steps ({evaluate}).",
                    f"Set save_steps = {max(1, save // evaluate) * evaluate} or {(save // evaluate + 1) * evaluate}.",
                )
            )
    return problems


def evaluation_ways(per_device: int, world: int, group: int) -> dict[str, int]:
    """What makes an evaluation of `group` completions a prompt legal: the next larger batch, or a smaller group."""
    size = next(size for size in range(per_device, per_device + group + 1) if size * world % group == 0)
    smaller = [number for number in range(2, group) if per_device * world % number == 0]
    return {
        "per_device_eval_batch_size": size,
        **({"num_generations_eval": smaller[-1]} if smaller else {}),
    }


def nearest(batch: Batch) -> list[Batch]:
    """Legal neighbours of an illegal `batch`, nearest first, at most two: none asks for more memory per micro-step.

    One keeps the generations and changes the accumulation, the other keeps the accumulation and changes the
    generations.
    """
    follows = batch.steps_per_generation == batch.accumulation
    group = max(2, batch.generations)

    def lengthened(group: int) -> Batch:
        """As many steps as whole groups need, the number nearest to that of now; of two as near, the smaller."""
        micro = batch.per_device * batch.world
        whole = group // gcd(group, micro)
        steps = nearest_multiple(batch.steps_per_generation, whole)
        accumulation = steps if follows else batch.accumulation
        return replace(batch, generations=group, steps_per_generation=steps, accumulation=accumulation)

    sizes = [number for number in divisors(batch.generation_batch) if 1 < number < 2 * group]
    if sizes:
        other = replace(batch, generations=min(sizes, key=lambda number: abs(number - group)))
    else:  # too few completions for any group: a smaller group and as many steps as it needs
        other = lengthened(max(2, group // 2))
    return list(dict.fromkeys((lengthened(group), other)))


def nearest_multiple(number: int, unit: int, *, larger: bool = False) -> int:
    """The multiple of `unit` above zero nearest to `number`; of two as near, the smaller unless `larger`."""
    below = number // unit * unit
    near = number - below < below + unit - number or (2 * (number - below) == unit and not larger)
    return below if below and near else below + unit


def divisors(number: int) -> list[int]:
    """What divides `number` without a rest, ascending."""
    small = [part for part in range(1, isqrt(number) + 1) if number % part == 0]
    return sorted({*small, *(number // part for part in small)})


def describe(choice: Batch, against: Batch) -> str:
    """What is set to come from `against` to `choice`, with the prompts per step it gives."""
    names = {
        "per_device": "per_device_train_batch_size",
        "accumulation": "gradient_accumulation_steps",
        "generations": "num_generations",
    }
    if choice.accumulation == against.accumulation:
        names["steps_per_generation"] = "steps_per_generation"
    changes = [
        f"{name} = {getattr(choice, attribute)}"
        for attribute, name in names.items()
        if getattr(choice, attribute) != getattr(against, attribute)
    ]
    return f"{' and '.join(changes)} ({choice.prompt_words} per step)"


def too_few_rows(batch: Batch, rows: int) -> Problem | None:
    """The zero-step trap: with fewer prompts than one generation takes, TRL trains 0 steps and reports success."""
    if rows >= batch.prompts_per_generation:
        return None
    return Problem(
        "data",
        f"One generation takes {batch.prompts_per_generation} prompts and there are {rows} usable rows: training"
        f" would end"
        " at once, with 0 steps and no error.",
        f"Use at least {batch.prompts_per_generation} rows, or lower gradient_accumulation_steps.",
    )
