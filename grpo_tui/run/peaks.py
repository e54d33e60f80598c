"""Peaks of GPU memory inside the training process, booked on what was going on."""

from collections.abc import Sequence
from typing import Any


class Peaks:
    """Peaks of CUDA memory between marks, kept by phase and by row.

    The peak counters of torch are reset at each mark, which is why nothing else may rely on them meanwhile
    (the Trainer does not: `skip_memory_metrics` is True by default).
    """

    def __init__(self, cuda: Any, devices: Sequence[int]) -> None:
        """`cuda` is `torch.cuda`, `devices` the numbers of the devices to look at."""
        self._cuda = cuda
        self._devices = tuple(devices)
        self._row: dict[str, dict[str, int]] = {}
        self._phases: dict[str, int] = {}

    def devices(self) -> list[dict[str, Any]]:
        """What the devices are, by torch's numbers."""
        found = []
        for index in self._devices:
            properties = self._cuda.get_device_properties(index)
            uuid = str(getattr(properties, "uuid", "") or "")
            found.append(
                {
                    "index": index,
                    "name": properties.name,
                    "uuid": uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
                    "total_bytes": properties.total_memory,
                }
            )
        return found

    def mark(self, phase: str) -> None:
        """Book the peaks since the last mark on `phase`."""
        for index in self._devices:
            statistics = self._cuda.memory_stats(index)
            allocated = int(statistics.get("allocated_bytes.all.peak", 0))
            reserved = int(statistics.get("reserved_bytes.all.peak", 0))
            if not reserved:
                continue  # a visible device that this process does not use
            peaks = self._row.setdefault(f"cuda:{index}", {"allocated": 0, "reserved": 0})
            peaks["allocated"] = max(peaks["allocated"], allocated)
            peaks["reserved"] = max(peaks["reserved"], reserved)
            self._phases[phase] = max(self._phases.get(phase, 0), allocated)
            self._cuda.reset_peak_memory_stats(index)

    def take_phases(self) -> dict[str, int]:
        """Peak bytes allocated by phase since the last call."""
        taken, self._phases = self._phases, {}
        return taken

    def take_row(self) -> dict[str, dict[str, int]]:
        """Peaks by device since the last call."""
        taken, self._row = self._row, {}
        return taken
