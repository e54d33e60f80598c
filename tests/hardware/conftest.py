"""A toy of NVML at the library's boundary, with the real error classes of nvidia-ml-py, and a toy of /proc and /dev."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

GIB = 2**30


def error(name: str) -> pynvml.NVMLError:
    """The library's own error, as `NotSupported` or `LibRmVersionMismatch`."""
    return pynvml.NVMLError(_CODES[name])


_CODES = {
    "NotSupported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "NoPermission": pynvml.NVML_ERROR_NO_PERMISSION,
    "LibraryNotFound": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    "LibRmVersionMismatch": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    "DriverNotLoaded": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    "GpuIsLost": pynvml.NVML_ERROR_GPU_IS_LOST,
    "NotFound": pynvml.NVML_ERROR_NOT_FOUND,
    "Unknown": pynvml.NVML_ERROR_UNKNOWN,
}


@dataclass(eq=False)
class Card:
    """A device of the toy. Any reading may be the name of the error it answers with."""

    name: str = "NVIDIA A100-SXM4-80GB"
    uuid: str = "GPU-aaaa0000-1111-2222-3333-444444444444"
    total: Any = 80 * GIB
    used: int = 0
    bus: str = "00000000:01:00.0"
    capability: Any = (8, 0)
    utilisation: Any = 0
    temperature: Any = 35
    milliwatts: Any = 61_000
    limit_milliwatts: Any = 400_000
    processes: Any = ()
    slices: Sequence["Card"] = ()
    mig: Any = (0, 0)
    cores_and_clock: Any = "NotSupported"
    lost: bool = False
    ids: tuple[int, int] = (1, 0)


@dataclass
class ToyNVML:
    """What `pynvml` gives of these cards. Functions it lacks are missing, as in older releases."""

    cards: Sequence[Card] = ()
    init_error: str = ""
    banner: bytes = b""
    driver: str = "580.65.06"
    cuda: Any = 13000
    open_sessions: int = field(default=0, init=False)

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    nvmlMemory_v2 = pynvml.nvmlMemory_v2  # noqa: N815  the library's name

    def nvmlInit(self) -> None:  # noqa: N802  the library's name
        if self.banner:
            os.write(1, self.banner)
        if self.init_error:
            raise error(self.init_error)
        self.open_sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802  the library's name
        self.open_sessions -= 1

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        function = _FUNCTIONS[name]

        def call(*arguments: Any) -> Any:
            if not self.open_sessions:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
            answer = function(self, *arguments)
            if isinstance(answer, str) and answer in _CODES:
                raise error(answer)
            return answer

        return call


def _handle(toy: ToyNVML, index: int) -> Any:
    return "GpuIsLost" if toy.cards[index].lost else toy.cards[index]


def _memory(toy: ToyNVML, card: Card, version: int | None = None) -> Any:
    if isinstance(card.total, str):
        return card.total
    if card.total == 0 and version is not None:
        return "NotSupported"
    return SimpleNamespace(total=card.total, used=card.used, free=card.total - card.used)


def _slice(toy: ToyNVML, card: Card, place: int) -> Any:
    return card.slices[place] if place < len(card.slices) else "NotFound"


def _rates(toy: ToyNVML, card: Card) -> Any:
    return card.utilisation if isinstance(card.utilisation, str) else SimpleNamespace(gpu=card.utilisation, memory=0)


def _processes(toy: ToyNVML, card: Card) -> Any:
    if isinstance(card.processes, str):
        return card.processes
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.processes]


def _core_or_clock(place: int) -> Callable[..., Any]:
    return lambda toy, card, *rest: card.cores_and_clock if isinstance(card.cores_and_clock, str) else (
        card.cores_and_clock[place]
    )  # fmt: skip


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nvmlSystemGetDriverVersion": lambda toy: toy.driver,
    "nvmlSystemGetCudaDriverVersion_v2": lambda toy: toy.cuda,
    "nvmlDeviceGetCount": lambda toy: len(toy.cards),
    "nvmlDeviceGetHandleByIndex": _handle,
    "nvmlDeviceGetName": lambda toy, card: card.name,
    "nvmlDeviceGetUUID": lambda toy, card: card.uuid,
    "nvmlDeviceGetPciInfo": lambda toy, card: SimpleNamespace(busId=card.bus),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability": lambda toy, card: card.capability,
    "nvmlDeviceGetUtilizationRates": _rates,
    "nvmlDeviceGetTemperature": lambda toy, card, sensor: card.temperature,
    "nvmlDeviceGetPowerUsage": lambda toy, card: card.milliwatts,
    "nvmlDeviceGetEnforcedPowerLimit": lambda toy, card: card.limit_milliwatts,
    "nvmlDeviceGetMigMode": lambda toy, card: card.mig,
    "nvmlDeviceGetMaxMigDeviceCount": lambda toy, card: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": _slice,
    "nvmlDeviceGetGpuInstanceId": lambda toy, card: card.ids[0],
    "nvmlDeviceGetComputeInstanceId": lambda toy, card: card.ids[1],
    "nvmlDeviceGetComputeRunningProcesses": _processes,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda toy, card: [],
    "nvmlDeviceGetNumGpuCores": _core_or_clock(0),
    "nvmlDeviceGetMaxClockInfo": _core_or_clock(1),
}


@dataclass(frozen=True)
class Places:
    """A toy of what the kernel shows."""

    proc: Path
    dev: Path

    def put(self, name: str, text: str) -> None:
        """Write a file of /proc."""
        file = self.proc / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A machine with 121.7 GiB, and no device."""
    toy = Places(tmp_path / "proc", tmp_path / "dev")
    toy.dev.mkdir()
    meminfo = "MemTotal: 127600748 kB\nMemFree: 1000 kB\nMemAvailable: 118566368 kB\nHugePages_Total: 0\n"
    toy.put("meminfo", meminfo)
    return toy


@pytest.fixture
def toy() -> type[ToyNVML]:
    """The toy library, to be filled with cards."""
    return ToyNVML


@pytest.fixture
def card() -> type[Card]:
    """One card of the toy; an A100 unless told."""
    return Card
