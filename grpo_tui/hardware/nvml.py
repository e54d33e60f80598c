"""Read a machine's GPUs through NVML, the library behind nvidia-smi.

Every single reading may fail (`NVMLError_NotSupported` on MIG slices and integrated GPUs, `NoPermission` in
containers, functions that an old driver lacks); then it is None and the rest stands. Nothing here raises for the state
of a machine.
"""

import contextlib
import ctypes
import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpo_tui.hardware.machine import FOREIGN_PROCESS, GPU, GPUProcess, Machine
from grpo_tui.hardware.visible import see
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

__all__ = ["GPU", "GPUProcess", "Machine", "Sample", "Sampler", "read_machine"]

PROC = Path("/proc")
DEV = Path("/dev")

_INTEGRATED_NAMES = ("GB10", "Orin", "Thor", "Xavier", "Tegra", "nvgpu")
_INTEGRATED_CAPABILITIES = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""GPUs without memory of their own: Jetson TX1 to Thor, and GB10 (developer.nvidia.com/cuda-gpus).

By name or capability, not by a memory reading that fails: that is a fault where it happens on a card with memory.
"""

_JETSONS: Mapping[str, tuple[int, int]] = {
    "Thor": (11, 0),
    "Orin": (8, 7),
    "Xavier": (7, 2),
    "TX2": (6, 2),
    "TX1": (5, 3),
    "Nano": (5, 3),  # after Orin: an Orin Nano is an Orin
}
"""Compute capability by the board's name, for the boards whose NVML is missing or a stub (before JetPack 6)."""

UNIFIED_NOTE = (
    "Unified memory: CPU and GPU share it, and other programs may take it too. The figures are the machine's."
)


def read_machine(
    environ: Mapping[str, str] = os.environ,
    library: Any = None,
    proc: Path = PROC,
    dev: Path = DEV,
) -> Machine:
    """The machine and its GPUs as they stand now, `visible` and `cuda_index` as for programs started in `environ`.

    `library` is a module like `pynvml` (of nvidia-ml-py), which is loaded if none is given; `proc` and `dev` are where
    the kernel shows processes and devices.
    """
    total, available = _memory_of_machine(proc)
    machine = Machine(
        host=socket.gethostname(), memory_total_bytes=total, memory_available_bytes=available, notes=_other_makers(dev)
    )
    with _session(library) as session:
        if isinstance(session, _Failure):
            return _without_nvml(machine, session, proc, dev)
        gpus = [gpu for _, gpu in _devices(session, proc, total, available)]
        driver = _text(session.ask("nvmlSystemGetDriverVersion"))
        cuda = session.ask("nvmlSystemGetCudaDriverVersion_v2") or session.ask("nvmlSystemGetCudaDriverVersion")
    seen = see(gpus, environ)
    return replace(
        machine,
        gpus=seen.gpus,
        driver=driver,
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        kind="jetson" if gpus and _jetson_board(proc) else "nvidia" if gpus else "cpu",
        notes=(*machine.notes, *seen.notes, *(() if gpus else ("The NVIDIA driver is there but shows no GPU.",))),
    )


@dataclass(frozen=True)
class Sample:
    """What moves while a device works. None: unknown."""

    uuid: str
    used_bytes: int | None
    total_bytes: int | None
    utilisation: int | None
    temperature: int | None
    power_watts: float | None
    processes: int | None = None
    """How many use it."""


class Sampler:
    """Repeated cheap readings of some devices: NVML stays open and nothing that stands still is asked again."""

    def __init__(self, uuids: Sequence[str] = (), library: Any = None, proc: Path = PROC) -> None:
        """Watch the devices named, or all of them; without NVML there is none, and samples are empty."""
        self._proc = proc
        self._exit = contextlib.ExitStack()
        self._watched: list[tuple[Any, GPU]] = []
        session = self._exit.enter_context(_session(library))
        if isinstance(session, _Session):
            self._session = session
            devices = _devices(session, proc, *_memory_of_machine(proc))
            self._watched = [
                (handle, gpu) for handle, gpu in devices if handle is not None and (not uuids or gpu.uuid in uuids)
            ]

    def sample(self) -> tuple[Sample, ...]:
        """One reading of every device watched."""
        return tuple(self._sample(handle, gpu) for handle, gpu in self._watched)

    def _sample(self, handle: Any, gpu: GPU) -> Sample:
        if gpu.unified:
            total, available = _memory_of_machine(self._proc)
            used = total - available if total is not None and available is not None else None
        else:
            total, _, used = _memory(self._session, handle)
        return Sample(
            gpu.uuid, used, total, _utilisation(self._session, handle), _temperature(self._session, handle),
            _watts(self._session, "nvmlDeviceGetPowerUsage", handle), _users(self._session, handle),
        )  # fmt: skip

    def close(self) -> None:
        """Leave NVML."""
        self._watched = []
        self._exit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class _Session:
    """An open NVML."""

    library: Any

    def ask(self, function: str, *arguments: Any) -> Any:
        """What `function` answers; None where the library, the driver or the device does not."""
        try:
            return getattr(self.library, function)(*arguments)
        except (self.library.NVMLError, AttributeError, TypeError, ValueError):
            return None

    def refusal(self, function: str, *arguments: Any) -> str:
        """The class name of the error that `function` answers with; empty where it answers."""
        try:
            getattr(self.library, function)(*arguments)
        except self.library.NVMLError as error:
            return type(error).__name__
        except (AttributeError, TypeError, ValueError):
            return "FunctionNotFound"
        return ""


@dataclass(frozen=True)
class _Failure:
    """An NVML that does not open."""

    kind: str
    """Class name of the error, as `NVMLError_LibraryNotFound`; `ImportError` where the Python package is missing."""

    words: str


@contextlib.contextmanager
def _session(library: Any) -> Iterator[_Session | _Failure]:
    session = _open(library)
    try:
        yield session
    finally:
        if isinstance(session, _Session):
            session.ask("nvmlShutdown")


def _open(library: Any) -> _Session | _Failure:
    if library is None:
        try:
            library = importlib.import_module("pynvml")
        except ImportError as error:
            return _Failure("ImportError", str(error))
    try:
        with _quiet_output():
            library.nvmlInit()
    except (library.NVMLError, OSError, AttributeError) as error:  # a stub may lack the function itself
        return _Failure(type(error).__name__, str(error))
    return _Session(library)


@contextlib.contextmanager
def _quiet_output() -> Iterator[None]:
    """Keep what a C library prints on file descriptor 1 off the screen: the link-time stub of NVML prints a banner."""
    try:
        kept = os.dup(1)
    except OSError:  # no standard output to be spoilt
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # C buffers what does not go to a terminal, and would print it later
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _devices(session: _Session, proc: Path, total: int | None, available: int | None) -> Iterator[tuple[Any, GPU]]:
    """Every device with its handle: cards in PCI order, in place of a card that is cut up its slices."""
    for index in range(session.ask("nvmlDeviceGetCount") or 0):
        card_handle = session.ask("nvmlDeviceGetHandleByIndex", index)
        if card_handle is None:
            reason = session.refusal("nvmlDeviceGetHandleByIndex", index)
            note = f"The driver does not open this card ({reason}); it may have fallen off the bus or be withheld."
            yield None, GPU(index=index, uuid=f"unreadable:{index}", name="unreadable GPU", notes=(note,))
            continue
        card = _card(session, card_handle, index, proc)
        if _integrated(card):
            used = total - available if total is not None and available is not None else None
            notes = (*card.notes, UNIFIED_NOTE)
            card = replace(card, unified=True, total_bytes=total, free_bytes=available, used_bytes=used, notes=notes)
        mode = session.ask("nvmlDeviceGetMigMode", card_handle)
        if not mode or mode[0] != 1:
            yield card_handle, card
            continue
        slices = list(_slices(session, card_handle, card, proc))
        if not slices:
            yield (
                card_handle,
                replace(card, notes=(*card.notes, "MIG is on, but no slice has been made: unusable as is.")),
            )
        yield from slices


def _card(session: _Session, handle: Any, index: int, proc: Path) -> GPU:
    total, free, used = _memory(session, handle)
    capability = session.ask("nvmlDeviceGetCudaComputeCapability", handle)
    cores = session.ask("nvmlDeviceGetNumGpuCores", handle)
    clock = session.ask("nvmlDeviceGetMaxClockInfo", handle, getattr(session.library, "NVML_CLOCK_SM", 1))
    pci = session.ask("nvmlDeviceGetPciInfo", handle)
    processes, notes = _processes(session, handle, proc)
    return GPU(
        index=index,
        uuid=_text(session.ask("nvmlDeviceGetUUID", handle)) or f"unreadable:{index}",
        name=_text(session.ask("nvmlDeviceGetName", handle)) or "unknown GPU",
        bus_id=_text(getattr(pci, "busId", "")),
        total_bytes=total,
        free_bytes=free,
        used_bytes=used,
        capability=(capability[0], capability[1]) if capability else None,
        speed=float(cores * clock) if cores and clock else None,
        utilisation=_utilisation(session, handle),
        temperature=_temperature(session, handle),
        power_watts=_watts(session, "nvmlDeviceGetPowerUsage", handle),
        power_limit_watts=_watts(session, "nvmlDeviceGetEnforcedPowerLimit", handle),
        processes=processes,
        notes=notes,
    )


def _slices(session: _Session, card_handle: Any, card: GPU, proc: Path) -> Iterator[tuple[Any, GPU]]:
    for place in range(session.ask("nvmlDeviceGetMaxMigDeviceCount", card_handle) or 0):
        handle = session.ask("nvmlDeviceGetMigDeviceHandleByIndex", card_handle, place)
        if handle is None:  # the places are more than the slices made
            continue
        total, free, used = _memory(session, handle)
        processes, notes = _processes(session, handle, proc)
        ids = [
            session.ask(function, handle)
            for function in ("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId")
        ]
        yield (
            handle,
            replace(
                card,
                index=None,
                uuid=_text(session.ask("nvmlDeviceGetUUID", handle)) or f"unreadable:{card.index}/{place}",
                name=_text(session.ask("nvmlDeviceGetName", handle)) or f"{card.name} MIG slice {place}",
                total_bytes=total,
                free_bytes=free,
                used_bytes=used,
                mig=True,
                parent=card.name,
                parent_uuid=card.uuid,
                instance=(ids[0], ids[1]) if None not in ids else None,
                utilisation=None,
                processes=processes,
                notes=(*notes, MIG_NOTE),
            ),
        )


MIG_NOTE = (
    "A training process uses one slice only, so one slice is one device; vLLM releases are reported to stop at the "
    "name of a slice (vllm#41848): leave use_vllm off here."
)


def _integrated(card: GPU) -> bool:
    named = any(word in card.name for word in _INTEGRATED_NAMES)
    return named or card.capability in _INTEGRATED_CAPABILITIES


def _memory(session: _Session, handle: Any) -> tuple[int | None, int | None, int | None]:
    """Total, free and used bytes. The second form of the call tells the driver's reserve from what programs use."""
    version = getattr(session.library, "nvmlMemory_v2", None)
    info = session.ask("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
    if info is None:
        info = session.ask("nvmlDeviceGetMemoryInfo", handle)
    if info is None or not info.total:  # a success with 0 bytes is no answer
        return None, None, None
    return int(info.total), int(info.free), int(info.used)


def _utilisation(session: _Session, handle: Any) -> int | None:
    rates = session.ask("nvmlDeviceGetUtilizationRates", handle)
    return None if rates is None else int(rates.gpu)


def _temperature(session: _Session, handle: Any) -> int | None:
    sensor = getattr(session.library, "NVML_TEMPERATURE_GPU", 0)
    for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):  # the old one leaves with CUDA 14
        value = session.ask(function, handle, sensor)
        if value is not None:
            return int(value)
    return None


_NOT_AVAILABLE = 2**32 - 1
"""NVML_VALUE_NOT_AVAILABLE as an unsigned int."""


def _watts(session: _Session, function: str, handle: Any) -> float | None:
    milliwatts = session.ask(function, handle)
    return None if milliwatts in (None, _NOT_AVAILABLE) else milliwatts / 1000


def _users(session: _Session, handle: Any) -> int | None:
    """How many processes compute or draw on a device; None where it does not say."""
    listed = [
        session.ask(function, handle)
        for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
    ]
    if listed[0] is None:
        return None
    return len({entry.pid for entries in listed for entry in entries or ()})


def _processes(session: _Session, handle: Any, proc: Path) -> tuple[tuple[GPUProcess, ...], tuple[str, ...]]:
    used: dict[int, int | None] = {}
    for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for entry in session.ask(function, handle) or ():
            used[entry.pid] = max(used.get(entry.pid) or 0, entry.usedGpuMemory or 0) or None
    if not used and session.refusal("nvmlDeviceGetComputeRunningProcesses", handle) == "NVMLError_NoPermission":
        return (), ("Who uses this device cannot be seen from here (no permission).",)
    return tuple(_process(pid, size, proc) for pid, size in used.items()), ()


def _process(pid: int, used_bytes: int | None, proc: Path) -> GPUProcess:
    folder = proc / str(pid)
    try:
        name = one_line((folder / "comm").read_text(errors="replace").strip(), 40)
        owner = folder.stat().st_uid
    except OSError:
        return GPUProcess(pid=pid, name=FOREIGN_PROCESS, user="", used_bytes=used_bytes, elsewhere=True)
    return GPUProcess(pid=pid, name=name, user=_user(owner), used_bytes=used_bytes)


def _user(number: int) -> str:
    import pwd  # absent on Windows, where the program only says that it does not run there

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _memory_of_machine(proc: Path) -> tuple[int | None, int | None]:
    """Total and available bytes of main memory (`MemAvailable`: what programs can still get, caches counted in)."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return _memory_by_psutil() if sys.platform != "linux" else (None, None)
    values: dict[str, int] = {}
    for line in lines:
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            values[name] = int(number[0]) * 1024
    return values.get("MemTotal"), values.get("MemAvailable")


def _memory_by_psutil() -> tuple[int | None, int | None]:
    import psutil  # type: ignore[import-untyped,unused-ignore]  # has no types of its own

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def _text(value: Any) -> str:
    """A name from the driver; releases of the bindings before 11.5 give bytes."""
    return one_line(value.decode(errors="replace") if isinstance(value, bytes) else str(value or ""), 120)


def _other_makers(dev: Path) -> tuple[str, ...]:
    if (dev / "kfd").exists():
        return ("There seems to be an AMD GPU (/dev/kfd); torch can tell more about it than NVML.",)
    if sys.platform == "darwin":
        return ("On macOS grpo-tui plans, checks and trains on the CPU.",)
    return ()


_REMEDY_GO_ON = "You can go on meanwhile by typing the card's name and memory."


def _mismatch(failure: _Failure, proc: Path) -> Problem:
    loaded = _kernel_driver(proc)
    return Problem(
        where="NVIDIA driver",
        what="The NVML library and the loaded kernel module are of different releases"
        + (f" (the module is {loaded})" if loaded else "")
        + ", mostly after a driver upgrade. A training that is already running is not necessarily broken.",
        remedy=f"Reboot, or unload and load the nvidia module, when nothing runs any more. {_REMEDY_GO_ON}",
    )


def _not_loaded(failure: _Failure, proc: Path) -> Problem:
    return Problem(
        where="NVIDIA driver",
        what="The NVML library is installed, but the driver's kernel module is not loaded.",
        remedy=f"Load it (modprobe nvidia) or ask whoever runs the machine. {_REMEDY_GO_ON}",
    )


def _no_permission(failure: _Failure, proc: Path) -> Problem:
    return Problem(
        where="NVIDIA driver",
        what="This user may not talk to the NVIDIA driver.",
        remedy=f"Ask for access to /dev/nvidiactl and /dev/nvidia*, often by a group. {_REMEDY_GO_ON}",
    )


def _hidden_library(failure: _Failure, proc: Path) -> Problem:
    loaded = _kernel_driver(proc)
    return Problem(
        where="NVIDIA driver",
        what=f"A driver is loaded{f' ({loaded})' if loaded else ''}, but its library libnvidia-ml.so.1 is not found.",
        remedy="In a container start it with the driver's capability `utility`; else put the library's folder on the "
        f"loader's path. {_REMEDY_GO_ON}",
    )


def _no_package(failure: _Failure, proc: Path) -> Problem:
    return Problem(
        where="nvidia-ml-py",
        what="The Python package that reads NVIDIA GPUs is not installed.",
        remedy=f"Install it into this environment: pip install nvidia-ml-py. {_REMEDY_GO_ON}",
    )


def _other(failure: _Failure, proc: Path) -> Problem:
    return Problem(
        where="NVIDIA driver",
        what=f"NVML does not start: {one_line(failure.words, 120)} ({failure.kind}).",
        remedy=f"See whether nvidia-smi works and what `dmesg` says about NVRM. {_REMEDY_GO_ON}",
    )


_FAILURES: Mapping[str, Callable[[_Failure, Path], Problem]] = {
    "ImportError": _no_package,
    "NVMLError_LibRmVersionMismatch": _mismatch,
    "NVMLError_DriverNotLoaded": _not_loaded,
    "NVMLError_NoPermission": _no_permission,
    "NVMLError_LibraryNotFound": _hidden_library,
}


def _without_nvml(machine: Machine, failure: _Failure, proc: Path, dev: Path) -> Machine:
    """What can be said about a machine whose NVML does not open."""
    board = _jetson_board(proc)
    if board:
        return _jetson(machine, board)
    speaks_of_a_gpu = failure.kind in ("NVMLError_LibRmVersionMismatch", "NVMLError_NoPermission")
    if speaks_of_a_gpu or _driver_is_there(proc, dev):
        problem = _FAILURES.get(failure.kind, _other)(failure, proc)
        return replace(machine, kind="nvidia", problem=problem)
    # No device node and no module: whatever library there is, a stub or a left-over, there is no GPU behind it.
    return replace(machine, kind="cpu", notes=(*machine.notes, "No NVIDIA GPU is seen: training would run on the CPU."))


def _jetson(machine: Machine, board: str) -> Machine:
    total, available = machine.memory_total_bytes, machine.memory_available_bytes
    gpu = GPU(
        index=None,
        uuid="cuda:0",
        name=board,
        cuda_index=0,
        total_bytes=total,
        free_bytes=available,
        used_bytes=total - available if total is not None and available is not None else None,
        unified=True,
        capability=next((capability for word, capability in _JETSONS.items() if word in board), None),
        notes=(UNIFIED_NOTE, "This Jetson has no NVML: utilisation and power stay unknown. Leave use_vllm off."),
    )
    return replace(machine, kind="jetson", gpus=(gpu,))


def _jetson_board(proc: Path) -> str:
    """The board's name where it is a Jetson, as `NVIDIA Jetson AGX Orin Developer Kit`; else empty."""
    try:
        board = one_line((proc / "device-tree/model").read_text(errors="replace").strip("\0\n "), 80)
    except OSError:
        return ""
    return board if "Jetson" in board or ("NVIDIA" in board and any(word in board for word in _JETSONS)) else ""


def _driver_is_there(proc: Path, dev: Path) -> bool:
    try:
        module_loaded = any(line.startswith("nvidia ") for line in (proc / "modules").read_text().splitlines())
    except OSError:
        module_loaded = False
    return module_loaded or (proc / "driver/nvidia/version").exists() or (dev / "nvidiactl").exists()


def _kernel_driver(proc: Path) -> str:
    """Release of the loaded kernel module, from `/proc/driver/nvidia/version`; empty: not told."""
    try:
        words = (proc / "driver/nvidia/version").read_text(errors="replace").split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")
