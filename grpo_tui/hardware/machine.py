"""What a machine has to train on. A reading that could not be had is None, which means unknown, never 0."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_tui.problem import Problem

BF16_CAPABILITY = (8, 0)
"""First compute capability with bfloat16 in hardware (CUDA C++ Programming Guide, table of features per capability).

torch's own `is_bf16_supported()` counts emulation and says yes on older cards, where bf16 is slow and vLLM refuses it.
"""

FOREIGN_PROCESS = "another process namespace"
"""Name of a GPU process that our process table does not have: in containers NVML lists the host's numbers."""


@dataclass(frozen=True, kw_only=True)
class GPUProcess:
    """A process that uses a GPU. Its number comes from the driver: good for showing, not for judging who is alive."""

    pid: int
    name: str
    user: str
    used_bytes: int | None
    elsewhere: bool = False
    """Not in this process table, so that name and user cannot be known."""


@dataclass(frozen=True, kw_only=True)
class GPU:
    """One device that training can use: a card, or one slice of a card that is cut up (MIG)."""

    index: int | None
    """Number in NVML's (PCI) order, which is not CUDA's; None for a MIG slice and for what NVML does not see."""

    uuid: str
    """`GPU-...` or `MIG-...`; a device that NVML does not see has `<backend>:<number>`, as `rocm:0`."""

    name: str
    bus_id: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    visible: bool = True
    """CUDA programs started from here see it (`CUDA_VISIBLE_DEVICES`)."""

    cuda_index: int | None = None
    """Number that CUDA programs started from here give it; None: they do not see it."""

    unified: bool = False
    """It has no memory of its own but shares the machine's; then total and free are those of the machine."""

    mig: bool = False
    """A slice of a card; what NVML cannot measure for slices (utilisation) stays None."""

    parent: str = ""
    """Name of the card a MIG slice belongs to."""

    parent_uuid: str = ""
    instance: tuple[int, int] | None = None
    """GPU instance and compute instance of a MIG slice."""

    capability: tuple[int, int] | None = None
    """CUDA compute capability."""

    speed: float | None = None
    """CUDA cores × highest clock in MHz: a rough measure, only to order cards as CUDA does."""

    utilisation: int | None = None
    """Percent of the last sample period in which any kernel ran."""

    temperature: int | None = None
    """Degrees Celsius."""

    power_watts: float | None = None
    power_limit_watts: float | None = None
    processes: tuple[GPUProcess, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def utilisation_words(self) -> str:
        """Utilisation for people; a slice has none, which is not the same as an idle card."""
        if self.utilisation is not None:
            return f"{self.utilisation} %"
        return "n/a (MIG)" if self.mig else "unknown"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as it stands at one moment."""

    gpus: tuple[GPU, ...] = ()
    """All of them, also those that `CUDA_VISIBLE_DEVICES` hides."""

    driver: str = ""
    cuda_driver: str = ""
    """Highest CUDA version that the driver serves, as `13.0`."""

    problem: Problem | None = None
    """Why GPUs that seem to be there cannot be read."""

    kind: str = "cpu"
    """`nvidia`, `jetson`, `torch-only` (torch sees devices that NVML does not: ROCm, MPS, ...), or `cpu`."""

    notes: tuple[str, ...] = ()
    host: str = ""
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None

    @property
    def visible(self) -> tuple[GPU, ...]:
        """The GPUs that programs started from here see, in the order they number them."""
        seen = [gpu for gpu in self.gpus if gpu.visible]
        return tuple(sorted(seen, key=lambda gpu: gpu.cuda_index if gpu.cuda_index is not None else len(seen)))


def suggested(machine: Machine) -> tuple[GPU, ...]:
    """The devices to propose: what CUDA numbers first, and the visible ones that are its equals."""
    seen = machine.visible
    return tuple(gpu for gpu in seen if gpu.name == seen[0].name and not uneven_note((seen[0], gpu)))


def supports_bf16(gpu: GPU) -> bool | None:
    """Whether the card computes bfloat16 in hardware; None: its capability is unknown."""
    return None if gpu.capability is None else gpu.capability >= BF16_CAPABILITY


def smallest(gpus: Sequence[GPU]) -> GPU | None:
    """The card that sets the memory budget when all of `gpus` hold a copy of the model; None: no size is known."""
    known = [(gpu.total_bytes, place) for place, gpu in enumerate(gpus) if gpu.total_bytes is not None]
    return gpus[min(known)[1]] if known else None


def uneven_note(gpus: Sequence[GPU]) -> str:
    """A warning where cards of clearly different memory would work as equals; empty where they are alike."""
    sizes = [gpu.total_bytes for gpu in gpus if gpu.total_bytes is not None]
    least = smallest(gpus)
    # The same card shows up to some hundred MiB of difference, with the driver's reserve and ECC.
    if least is None or max(sizes) < 1.1 * min(sizes):
        return ""
    return (
        f"The cards differ in memory, and every one holds the same share: {least.name} with "
        f"{format_gib(least.total_bytes)} sets the budget for all."
    )


def fingerprint(machine: Machine, chosen: Sequence[str]) -> str:
    """A name for what the chosen devices are, which changes when a card is swapped, missing or cut up anew.

    Free memory, temperature and driver do not enter. With nothing chosen it is `cpu`.
    """
    if not chosen:
        return "cpu"
    by_uuid = {gpu.uuid: gpu for gpu in machine.gpus}
    marks = []
    for uuid in chosen:
        gpu = by_uuid.get(uuid)
        # A unified total moves by some MiB between boots, with what the kernel keeps.
        size = round(gpu.total_bytes / 2**30) if gpu and gpu.total_bytes else None
        marks.append((uuid, gpu.name, size, gpu.capability) if gpu else (uuid, "missing"))
    return hashlib.sha256(repr(marks).encode()).hexdigest()


def visible_environment(gpus: Sequence[GPU]) -> dict[str, str]:
    """The environment that shows a program exactly `gpus`, in this order; with none it sees no GPU.

    Cards are named by UUID, so that neither CUDA's order nor an inherited `CUDA_VISIBLE_DEVICES` can turn the choice
    into another one. CUDA shows a process one MIG slice at most, so only the first is named.
    """
    slices = [gpu for gpu in gpus if gpu.mig]
    gpus = slices[:1] or gpus
    if all(gpu.uuid.startswith(("GPU-", "MIG-")) for gpu in gpus):
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {}
        return {**order, "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}
    backend = gpus[0].uuid.partition(":")[0]
    name = _INDEX_VARIABLES.get(backend)
    return {name: ",".join(gpu.uuid.partition(":")[2] for gpu in gpus)} if name else {}


_INDEX_VARIABLES = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}


def format_size(count: int | None) -> str:
    """`count` bytes in the largest unit of which there is one, `unknown` for None."""
    if count is None:
        return "unknown"
    unit, size = next(((unit, size) for unit, size in _UNITS if count >= size), _UNITS[-1])
    return f"{count / size:.1f} {unit}"


_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def format_gib(count: int | None) -> str:
    """`count` bytes in GiB for people, `unknown` for None."""
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
