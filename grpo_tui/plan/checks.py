"""What is wrong with a plan before anything is loaded: the installed GRPOConfig asked, and what it would not notice.

TRL compares several values only inside the first training step, after the model was loaded and has generated; they are
compared here. What `GRPOConfig` raises on the planned machine is passed on in its own words.
"""

import importlib.metadata
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_tui.plan.batch import read, too_few_rows
from grpo_tui.plan.dialect import CHOICES, Caller, bad_choice
from grpo_tui.plan.footing import Footing
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.situation import AMPERE
from grpo_tui.plan.spread import launch_problems
from grpo_tui.plan.vllm_share import length_problems, share_problems
from grpo_tui.problem import Problem
from grpo_tui.secret import is_secret, scrubbed, shows_secret

PACKAGES: Mapping[str, str] = {
    "bitsandbytes": "bitsandbytes",
    "vllm": "vllm",
    "flash_attn": "flash-attn",
    "kernels": "kernels",
    "wandb": "wandb",
    "trackio": "trackio",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "comet_ml": "comet-ml",
    "swanlab": "swanlab",
    "deepspeed": "deepspeed",
}
"""Optional packages that a configuration may need: the name to import, and the name to install."""

_EIGHT_BIT = re.compile(r"8bit|bnb|paged|lion")


def packages(names: Iterable[str] = tuple(PACKAGES)) -> frozenset[str]:
    """Which optional packages are installed for this interpreter, by import name; nothing is imported.

    A folder without the package's metadata (an output folder called `wandb`) does not count.
    """
    found = set()
    for name in names:
        try:
            importlib.metadata.version(PACKAGES.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
    return frozenset(found)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A plan, and what its checks may look at."""

    plan: Plan
    grpo: Mapping[str, Any]
    rows: int | None
    installed: frozenset[str]
    experts: int | None
    """Experts of the model; None: not known."""


def _choices(subject: Subject) -> Iterator[Problem]:
    for key in CHOICES:
        if key in subject.grpo and (key != "vllm_mode" or subject.grpo.get("use_vllm")):
            wrong = bad_choice(key, subject.grpo[key])
            if wrong is not None:
                yield wrong


# TRL 1.16: bounds that nothing checks, or only the first step does. Field, allowed, what else it says.
_BOUNDS: Mapping[str, tuple[float, float, str]] = {
    "temperature": (1e-6, 10, "Sampling needs a temperature above 0; 1 samples the model as it is."),
    "top_p": (1e-6, 1, "It is a share of the probability: above 0 and at most 1."),
    "min_p": (0, 1, "It is a share of the probability: from 0 to 1."),
    "learning_rate": (0, 1, "It must be a positive number far below 1."),
    "beta": (0, 10, "The KL term cannot be negative."),
    "epsilon": (0, 1, "The clip range is a share: from 0 to 1."),
    "max_completion_length": (1, 10_000_000, "It is a number of tokens."),
    "logging_steps": (1e-9, 1_000_000_000, "It must be above 0."),
    "vllm_gpu_memory_utilization": (0.01, 1, "It is a share of the GPU: above 0 and at most 1."),
    "top_entropy_quantile": (0, 1, "It is a share: from 0 to 1."),
}


def _numbers(subject: Subject) -> Iterator[Problem]:
    for key, (low, high, words) in _BOUNDS.items():
        value = subject.grpo.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            yield Problem(f"grpo.{key}", f"{value!r} cannot be right. {words}", "Correct it, or let it be chosen.")
    delta, epsilon = subject.grpo.get("delta"), subject.grpo.get("epsilon", 0.2)
    if isinstance(delta, int | float) and isinstance(epsilon, int | float) and delta <= 1 + epsilon:
        yield Problem(
            "grpo.delta", f"The upper clip {delta} must be above 1 + epsilon = {1 + epsilon}.", "Raise or drop it."
        )


def _combinations(subject: Subject) -> Iterator[Problem]:
    grpo, plan = subject.grpo, subject.plan
    beta = grpo.get("beta") or 0
    if grpo.get("sync_ref_model") and not beta:
        yield Problem("grpo.sync_ref_model", "There is no reference model while beta is 0.", "Drop it, or raise beta.")
    if grpo.get("sync_ref_model") and plan.method != "full":
        yield Problem(
            "grpo.sync_ref_model", "TRL cannot do this with an adapter.", "Drop it, or train all weights (full)."
        )
    if grpo.get("router_aux_loss_coef") and subject.experts == 0:
        yield Problem("grpo.router_aux_loss_coef", "The model has no experts to balance.", "Leave it out.")
    if grpo.get("fp16") and grpo.get("bf16"):
        yield Problem("grpo.fp16", "fp16 and bf16 cannot both be on.", "Turn one of the two off.")
    if grpo.get("bf16") and plan.capability and plan.capability < AMPERE:
        yield Problem(
            "grpo.bf16",
            f"The GPU has compute capability {plan.capability[0]}.{plan.capability[1]}; bfloat16 begins with 8.0.",
            "Set bf16 = false and fp16 = true; float16 is less stable in GRPO, so watch grad_norm.",
        )
    if grpo.get("use_vllm") and plan.cpu:
        yield Problem("grpo.use_vllm", "vLLM needs a GPU.", "Turn it off.")
    if str(grpo.get("eval_strategy") or "no") != "no" and not plan.value("data.eval_share"):
        yield Problem(
            "grpo.eval_strategy",
            "There is no data set to evaluate on: no prompt is kept apart from training.",
            'Set eval_strategy = "no", or keep a share apart (data.eval_share, the Dataset step).',
        )
    share = plan.value("data.eval_share", 0.0)
    if not 0 <= share < 1:
        yield Problem("data.eval_share", f"{share} is no share to keep apart.", "Write one such as 0.1.")
    if plan.value("model.load_in_4bit") and plan.method != "qlora":
        yield Problem(
            "model.load_in_4bit", "Weights in 4 bit can only carry an adapter.", "Choose the method qlora, or drop it."
        )
    if plan.value("lora.target_modules") is not None and "lm_head" in str(plan.value("lora.target_modules")):
        yield Problem("lora.target_modules", "TRL refuses an adapter on lm_head (1.15 on).", "Leave lm_head out.")
    if grpo.get("remove_unused_columns"):
        yield Problem(
            "grpo.remove_unused_columns", "It would take the answers away from the rewards.", "Set it to false."
        )


def _launch(subject: Subject) -> Iterator[Problem]:
    yield from launch_problems(subject.plan, subject.installed)


def _rewards(subject: Subject) -> Iterator[Problem]:
    items = subject.plan.rewards
    if not items:
        yield Problem("rewards", "No reward is chosen: TRL has nothing to learn from.", "Choose at least one.")
    file = Path(str(subject.plan.value("launch.rewards_file") or ""))
    if file.is_absolute() or ".." in file.parts:
        yield Problem(
            "launch.rewards_file",
            f"{file} is outside the project, and a run keeps its own copy.",
            "Copy it into the project and name it by its path there.",
        )
    names = [item.name for item in items]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem("rewards", f"{name} stands there twice, and TRL would add both up in one column.", "Drop one.")
    if items and all(item.weight == 0 for item in items):
        yield Problem("rewards", "Every weight is 0, so every completion is worth the same.", "Give one a weight.")


def _batch(subject: Subject) -> Iterator[Problem]:
    found = read(subject.grpo, subject.plan.world_size)
    if isinstance(found, list):
        yield from found
    elif subject.rows is not None:
        trap = too_few_rows(found, subject.rows)
        if trap is not None:
            yield trap


_ALIASES: Mapping[str, str] = {"comet": "comet_ml", "none": "", "all": ""}


def _packages(subject: Subject) -> Iterator[Problem]:
    def missing(where: str, name: str, why: str) -> Iterator[Problem]:
        if name in PACKAGES and name not in subject.installed:
            yield Problem(
                where,
                f"{why} the package {PACKAGES[name]}, which is not installed.",
                f"Install it with {sys.executable} -m pip install {PACKAGES[name]}, or choose another value.",
            )

    wanted = subject.grpo.get("report_to") or []
    for tracker in [wanted] if isinstance(wanted, str) else wanted:
        yield from missing("grpo.report_to", _ALIASES.get(str(tracker), str(tracker)), f"{tracker} needs")
    optim = str(subject.grpo.get("optim") or "")
    if _EIGHT_BIT.search(optim) and not optim.startswith("adamw_torch"):
        yield from missing("grpo.optim", "bitsandbytes", f"{optim} needs")
    if subject.plan.value("model.load_in_4bit"):
        yield from missing("model.load_in_4bit", "bitsandbytes", "Loading in 4 bit needs")
    if subject.grpo.get("use_vllm"):
        yield from missing("grpo.use_vllm", "vllm", "Generating with vLLM needs")
    attention = str(subject.plan.value("model.attn_implementation") or "")
    if attention.startswith("flash_attention"):
        yield from missing("model.attn_implementation", "flash_attn", f"{attention} needs")
        if subject.plan.cpu or (subject.plan.capability and subject.plan.capability < AMPERE):
            yield Problem("model.attn_implementation", "Flash attention needs an Ampere GPU.", 'Set it to "sdpa".')
    elif "/" in attention:
        yield from missing("model.attn_implementation", "kernels", f"{attention} needs")


def _secrets(subject: Subject) -> Iterator[Problem]:
    for setting in subject.plan.settings:
        name = setting.key.rpartition(".")[2]
        nested = isinstance(setting.value, Mapping) and scrubbed(setting.value) != setting.value
        if is_secret(name) or nested or (isinstance(setting.value, str) and shows_secret(setting.value)):
            what = "It holds a secret, which would be read by everyone who can read the project."
            yield Problem(setting.key, what, "Take it out, and log in with `hf auth login` or `wandb login`.")


CHECKS = (_secrets, _choices, _numbers, _combinations, _launch, _rewards, _batch, _packages)


# ------------------------------------------------------------------------------------------- the library's own words

# What a construction raises, and what to do about it. The exception's text is always shown.
_REMEDIES: tuple[tuple[str, str, str], ...] = (
    (r"unexpected keyword argument '(\w+)'", "{0}", "Leave the key out: this version does not know it."),
    (r"must be divisible by num_generations", "num_generations", "Change accumulation or num_generations."),
    (r"global eval batch size", "per_device_eval_batch_size", "Make it a multiple of num_generations."),
    (r"global batch size", "generation_batch_size", "Make it a multiple of batch size times processes."),
    (r"at least 2 generations", "num_generations", "Set num_generations to 2 or more."),
    (r"can not be both configured", "generation_batch_size", "Leave one of the two out."),
    (r"support bf16/gpu|bf16", "bf16", "Set bf16 to false, or use_cpu to true."),
    (r"tf32", "tf32", "Leave tf32 out: it needs an Ampere GPU."),
    (r"is not a valid (\w+)", "", "Choose one of the values in the message."),
    (r"You need to install|is not installed|not available", "", "Install the package, or choose another value."),
)


def explain(kind: str, text: str, section: str = "grpo") -> Problem:
    """The exception of a construction as a problem, with its own text."""
    words = " ".join(text.split())
    for pattern, key, remedy in _REMEDIES:
        found = re.search(pattern, words)
        if found:
            name = key.format(*found.groups()) if "{" in key else key
            return Problem(f"{section}.{name}" if name else section, f"The library refuses it: {words}", remedy)
    return Problem(section, f"The library refuses it ({kind}): {words}", "Change or leave out the value it names.")


def constructed(plan: Plan, worker: Caller) -> list[Problem]:
    """Construct the installed `GRPOConfig` and `LoraConfig` as on the planned machine; what they raise.

    The world size, and whether the GPU knows bfloat16 and TF32, are answered as planned: nothing is started for it.
    """
    request = {
        "settings": _as_json(plan.section("grpo")),
        "lora": _as_json(plan.section("lora")) if plan.method != "full" else {},
        "world_size": plan.world_size,
        "ampere": not plan.cpu and (plan.capability or AMPERE) >= AMPERE,
    }
    answer = worker.call("construct", {"requests": [request]})
    if isinstance(answer, Problem):
        return [answer]
    (result,) = answer["results"]
    if "error" in result:
        return [explain(result["error"], result["text"], "lora" if result.get("lora") else "grpo")]
    mistyped = [
        Problem(
            f"grpo.{name}",
            f"{plan.value(f'grpo.{name}')!r} is not of the type that GRPOConfig wants here: {kind}.",
            "Correct it, or leave it to the tuning.",
        )
        for name, kind in result["mistyped"].items()
    ]
    if mistyped:
        return mistyped
    if result["generation_batch_size"] != plan.batch.generation_batch:
        return [
            Problem(
                "grpo.generation_batch_size",
                f"TRL makes it {result['generation_batch_size']} and the plan {plan.batch.generation_batch}: this"
                " version counts its batch in another way.",
                "Tell us the version, please; set generation_batch_size by hand until then.",
            )
        ]
    return []


def _as_json(values: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(values, default=str))


def check(
    plan: Plan,
    worker: Caller | None = None,
    *,
    rows: int | None = None,
    experts: int | None = None,
    installed: Collection[str] | None = None,
    footing: Footing | None = None,
) -> list[Problem]:
    """Everything that is known to be wrong with `plan`; an empty list is no proof, but nothing is left unasked.

    `worker` (`introspect`) constructs the installed configuration; without one that part is left out. vLLM's room
    is looked at where the `footing` of the plan is given, and nothing else is wrong.
    """
    subject = Subject(
        plan=plan,
        grpo=plan.section("grpo"),
        rows=rows,
        installed=packages() if installed is None else frozenset(installed),
        experts=experts,
    )
    problems = [problem for one in CHECKS for problem in one(subject)]
    if worker is not None:
        named = {problem.where for problem in problems}
        problems += [problem for problem in constructed(plan, worker) if problem.where not in named]
    if footing is not None and not problems:
        problems = [*length_problems(footing), *share_problems(footing)]
    return problems
