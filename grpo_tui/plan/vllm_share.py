"""vLLM's room: which share of the training's own GPU leaves enough for both, and what is wrong with a given one."""

from dataclasses import dataclass

from grpo_tui.plan.footing import Footing
from grpo_tui.plan.memory import GIB
from grpo_tui.problem import Problem

ENGINE_BYTES = int(1.5 * GIB)
"""What an engine takes beside weights and cache: profile run, workspaces, graphs. Seen: 1.5 to 2 GiB."""

_ROUND_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Share:
    """The values of vllm_gpu_memory_utilization between which both live, as shares of the whole device."""

    least: float
    """Below it there is no room for the engine's own weights and one full sequence."""

    most: float
    """Above it the training has too little left."""

    weights_bytes: int
    """Of the engine's own copy."""

    sequence_bytes: int
    """Of one full sequence in its cache."""

    @property
    def exists(self) -> bool:
        return self.least <= self.most


def share_of(footing: Footing) -> Share:
    """The shares that work for `footing`, which must say how much memory the device has."""
    shape = footing.shape
    total = max(1, footing.total_bytes or footing.available_bytes)
    weights = shape.nf4_bytes if footing.method == "qlora" else 2 * shape.parameters
    sequence = shape.kv_bytes(1, model_length(footing), 2)
    alone = footing.having({"grpo.use_vllm": False})
    phases = alone.phases
    margin = alone.memory.needed(footing.available_bytes) - alone.memory.peak_bytes
    if footing.settings.get("vllm_enable_sleep_mode"):  # it wakes up only to generate
        awake = footing.having({"grpo.vllm_gpu_memory_utilization": 1e-9}).phases["generate"]
    else:
        awake = max(phases["train"], phases["score"])
    return Share(
        least=(weights + ENGINE_BYTES + sequence) / total,
        most=max(0.0, (footing.available_bytes - awake - margin) / total),
        weights_bytes=weights,
        sequence_bytes=sequence,
    )


def model_length(footing: Footing) -> int:
    """Tokens of the longest sequence that vLLM is to hold: vllm_max_model_length, else prompt and completion."""
    given = footing.settings.get("vllm_max_model_length")
    completion = int(footing.settings.get("max_completion_length") or 512)
    return int(given) if given else -(-(footing.prompt_tokens + completion) // _ROUND_TOKENS) * _ROUND_TOKENS


def length_problems(footing: Footing) -> list[Problem]:
    """A vllm_max_model_length that the longest prompt and a full completion exceed: vLLM ends the run there."""
    given = footing.settings.get("vllm_max_model_length")
    completion = int(footing.settings.get("max_completion_length") or 512)
    needed = footing.prompt_tokens + completion
    if not footing.settings.get("use_vllm") or not given or int(given) >= needed:
        return []
    return [
        Problem(
            "grpo.vllm_max_model_length",
            f"vLLM would make room for {given} tokens, and a prompt of {footing.prompt_tokens} with a completion of"
            f" {completion} is longer.",
            f"Set it to {needed} or more, or leave out longer prompts (Longest, in the dataset step).",
        )
    ]


def share_problems(footing: Footing) -> list[Problem]:
    """What is wrong with vLLM's share of the device; empty without vLLM, or where the memory is not known."""
    if not footing.colocated or not footing.available_bytes:
        return []
    share, total = share_of(footing), (footing.total_bytes or footing.available_bytes) / GIB
    where, problems = "grpo.vllm_gpu_memory_utilization", []
    copy = f"its own copy of the weights takes {share.weights_bytes / GIB:.1f} GiB"
    taken = f"vLLM's share of {footing.share:g} is {footing.share * total:.1f} of {total:.1f} GiB"
    if share.exists:
        remedy = f"Set it between {share.least + 0.005:.2f} and {share.most:.2f}."
    elif not footing.settings.get("vllm_enable_sleep_mode"):
        remedy = (
            "No share leaves room for both: set vllm_enable_sleep_mode = true, then try a LoRA adapter, then"
            " use_vllm = false."
        )
    else:
        remedy = "No share leaves room for both: try a LoRA adapter, or set use_vllm = false."
    if footing.share < share.least:
        problems.append(Problem(where, f"{taken}, and {copy}.", remedy))
    elif footing.share > share.most:
        problems.append(Problem(where, f"{taken}, which leaves too little for the training; {copy}.", remedy))
    context = footing.shape.context
    if not footing.settings.get("vllm_max_model_length") and context > 2 * model_length(footing):
        problems.append(
            Problem(
                "grpo.vllm_max_model_length",
                f"It is not set, so vLLM makes room for sequences of {context:,} tokens, the model's own limit.",
                f"Set it to {model_length(footing)}: the longest prompt and completion, rounded up.",
            )
        )
    return problems
