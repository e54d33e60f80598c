"""An out-of-memory error as torch or vLLM words it: what was being done, how much was asked for, what held the rest.

The wording is that of torch 2.x (c10/cuda/CUDACachingAllocator.cpp), newer and older; what was being done is told by
the functions on the stack, as TRL 1.16, transformers 5.24 and torch name them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_tui.plan.footing import Footing
from grpo_tui.plan.ladder import Rung, first_rung
from grpo_tui.plan.logits import head_of

PATTERN = re.compile(
    r"(?:CUDA|HIP|XPU|MPS backend) out of memory|(?:torch|cuda)\.OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"
)
"""Found in the text of every such error."""

_SIZE = r"(?P<{0}>[\d.]+) (?P<{0}_unit>bytes|[KMGT]i?B)"
_UNITS: Mapping[str, int] = {"bytes": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_FIGURES: Mapping[str, tuple[str, ...]] = {
    "asked": (r"Tried to allocate {}",),
    "total": (r"total capacity of {}", r"{} total capacity"),
    "free": (r"of which {} is free", r"; {} free"),
    "in_use": (r"this process has {} memory in use", r"free\. .{{0,40}}?{} memory in use"),
    "allocated": (r"{} is allocated by PyTorch", r"{} already allocated"),
    "unallocated": (r"{} is reserved by PyTorch but unallocated",),
    "reserved": (r"{} reserved in total by PyTorch",),
}
"""Figure to the ways it is worded, newest first."""

_OTHERS = re.compile(r"Process (\d+) has " + _SIZE.format("others") + " memory in use")

_FRAME = re.compile(r'File "(?P<file>[^"\n]*)", line \d+, in (?P<name>\S+)')

PHASES: tuple[tuple[str, frozenset[str], str], ...] = (
    ("vllm", frozenset(), r"(?:^|/)vllm/"),
    ("optimizer", frozenset({"optimizer_step"}), r"/torch/optim/|/bitsandbytes/optim/"),
    (
        "train",
        frozenset(
            {"_compute_loss", "compute_loss", "backward", "_backward", "_engine_run_backward", "clip_grad_norm_"}
        ),
        "",
    ),
    ("generate", frozenset({"generate", "generate_batch", "_sample", "_prefill"}), ""),
    ("score", frozenset({"_get_per_token_logps", "_get_per_token_logps_and_entropies"}), ""),
    (
        "load",
        frozenset(
            {"from_pretrained", "create_model_from_path", "_load_pretrained_model", "get_peft_model", "_init_group"}
        ),
        "",
    ),
)
"""What was being done, by function names on the stack or by the files they stand in; the first that is found counts.

The loss computes log-probabilities too, so it stands before their scoring; generation and scoring are both called from
one function (`_generate_and_score_completions`), which therefore says nothing.
"""

_DOING: Mapping[str, str] = {
    "vllm": "vLLM was using the GPU",
    "optimizer": "the optimizer took its step",
    "train": "the loss and its gradients were computed",
    "generate": "completions were generated",
    "score": "the log-probabilities of the completions were computed",
    "load": "the model was loaded",
    "": "the training ran",
}

_ADVICE: Mapping[str, str] = {
    "vllm": "lower vllm_gpu_memory_utilization, or set vllm_enable_sleep_mode = true",
    "optimizer": 'train a LoRA adapter, or take an optimizer with 8-bit states (optim = "adamw_8bit")',
    "train": "halve per_device_train_batch_size and double gradient_accumulation_steps (the batch stays the same), turn"
    " activation_checkpointing on, or shorten max_completion_length",
    "generate": "lower steps_per_generation (fewer completions at a time) or max_completion_length; a smaller"
    " per_device_train_batch_size alone with more accumulation changes nothing here",
    "score": "halve per_device_train_batch_size and double gradient_accumulation_steps (the batch stays the same), or"
    " shorten max_completion_length",
    "load": "load the weights in bfloat16 or in 4 bit (QLoRA), set beta = 0 (no second model), or choose a smaller one",
    "": "halve per_device_train_batch_size and double gradient_accumulation_steps (the batch stays the same)",
}


@dataclass(frozen=True, kw_only=True)
class OutOfMemory:
    """What an out-of-memory error says. Bytes; 0: it does not say."""

    phase: str
    """`load`, `generate`, `score`, `train`, `optimizer` or `vllm`; empty: the stack does not tell."""

    asked: int = 0
    free: int = 0
    total: int = 0
    in_use: int = 0
    """By this process, CUDA's own part included."""

    allocated: int = 0
    unallocated: int = 0
    """Reserved by torch and not in use."""

    others: int = 0
    """By other processes on the same GPU."""

    @property
    def missing(self) -> int:
        """By how much it did not fit, at the least; what the next step would have asked for is not known."""
        return max(0, self.asked - self.free)

    @property
    def fragmented(self) -> bool:
        """What torch had reserved and did not use would have been enough, had it been in one piece."""
        return 0 < self.asked <= self.unallocated

    def what(self) -> str:
        """It in words."""
        said = [f"The GPU's memory ran out while {_DOING[self.phase]}"]
        if self.asked:
            said.append(
                f": {_size(self.asked)} more were asked for and {_size(self.free)} of {_size(self.total)} were free"
            )
            if self.missing:
                said.append(f", {_size(self.missing)} too few")
        said.append(".")
        if self.others:
            said.append(f" Other processes hold {_size(self.others)} of it.")
        if self.fragmented:
            said.append(f" {_size(self.unallocated)} were reserved in pieces that are too small (fragmentation).")
        elif self.unallocated:
            said.append(f" It is no fragmentation: only {_size(self.unallocated)} were reserved and unused.")
        return "".join(said)

    def remedy(self, trl: str = "", change: str = "") -> str:
        """What to do; `trl`: the version that ran, if known; `change`: of the configuration, else that of the phase."""
        ways = []
        if self.others >= max(1, self.missing):
            ways.append("end the other processes on this GPU, or take another one")
        if self.fragmented:
            ways.append(
                "start with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not together with vLLM's sleep mode)"
            )
        ways.append(change or _ADVICE[self.phase])
        if self.phase in ("train", "score") and head_of(trl):
            ways.append("or upgrade TRL: from 1.15 on this phase takes a fraction of the memory")
        text = "; ".join(ways)
        return f"{text[0].upper()}{text[1:]}."


def read_out_of_memory(text: str) -> OutOfMemory | None:
    """What the last out-of-memory error in `text` says; None: there is none. `text` begins with the error's stack."""
    found = list(PATTERN.finditer(text))
    if not found:
        return None
    start = text.rfind("\n", 0, found[-1].start()) + 1
    message = " ".join(text[start : start + 2000].split())
    figures = {name: _figure(name, message) for name in _FIGURES}
    unallocated = figures["unallocated"] or max(0, figures["reserved"] - figures["allocated"])
    others = sum(_bytes(each["others"], each["others_unit"]) for each in _OTHERS.finditer(message))
    return OutOfMemory(
        phase=phase_of(text[: found[-1].start()]),
        asked=figures["asked"],
        free=figures["free"],
        total=figures["total"],
        in_use=figures["in_use"],
        allocated=figures["allocated"],
        unallocated=unallocated,
        others=others,
    )


def phase_of(stack: str) -> str:
    """What was being done, by the functions on the stack; empty: they do not tell."""
    frames = [(each["file"].replace("\\", "/"), each["name"]) for each in _FRAME.finditer(stack)]
    for phase, names, files in PHASES:
        if any(name in names or (files and re.search(files, file)) for file, name in frames):
            return phase
    return ""


def next_rung(error: OutOfMemory, footing: Footing) -> Rung | None:
    """The first change of the configuration that frees, in that phase, what was missing; else the one that frees most.

    The model of the memory has no phase for the optimizer's step and none for vLLM: they count as training.
    """
    phases = {"optimizer": "train", "vllm": "train", "": "train"}
    only: Sequence[str] = ("vllm_share", "vllm_sleep", "no_vllm") if error.phase == "vllm" else ()
    return first_rung(footing, phases.get(error.phase, error.phase), error.missing, only=only)


def _figure(name: str, message: str) -> int:
    for way in _FIGURES[name]:
        found = re.search(way.format(_SIZE.format("figure")), message)
        if found:
            return _bytes(found["figure"], found["figure_unit"])
    return 0


def _bytes(number: str, unit: str) -> int:
    try:
        return int(float(number) * _UNITS.get(unit, _UNITS.get(unit[0], 1)))
    except ValueError:  # 1.2.3
        return 0


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
