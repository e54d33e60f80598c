"""What torch can tell about the devices of this machine: for those that NVML does not see (ROCm, MPS, XPU, Jetson).

`devices`  {} -> {torch, backend, devices: [{uuid, name, total_bytes, free_bytes, capability}]}

`backend` is `cuda`, `rocm`, `xpu`, `mps` or `cpu`; sizes are bytes or null; `uuid` is CUDA's `GPU-...` or empty;
`capability` is [major, minor] or null.
"""

from grpo_tui.child import open_channel, serve

channel = open_channel()

from collections.abc import Callable  # noqa: E402  the channel is opened before anything can print
from typing import Any  # noqa: E402

import torch  # noqa: E402, TID251  this is a worker

Progress = Callable[[dict[str, Any]], None]


def devices(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The devices of the first backend that has any."""
    for backend, found in (("cuda", _cuda()), ("xpu", _xpu()), ("mps", _mps())):
        if found:
            is_rocm = backend == "cuda" and torch.version.hip is not None
            return {"torch": torch.__version__, "backend": "rocm" if is_rocm else backend, "devices": found}
    return {"torch": torch.__version__, "backend": "cpu", "devices": []}


def _cuda() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    return [_cuda_device(number) for number in range(torch.cuda.device_count())]


def _cuda_device(number: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(number)
    try:
        free = torch.cuda.mem_get_info(number)[0]
    except RuntimeError:  # the card is full, or lost: its name and size still count
        free = None
    if torch.version.hip:
        return _device(properties.name, properties.total_memory, free)
    uuid = str(getattr(properties, "uuid", ""))
    return {
        **_device(properties.name, properties.total_memory, free),
        "uuid": f"GPU-{uuid}" if uuid else "",
        "capability": [properties.major, properties.minor],
    }


def _xpu() -> list[dict[str, Any]]:
    if not (hasattr(torch, "xpu") and torch.xpu.is_available()):
        return []
    return [
        _device(torch.xpu.get_device_name(number), torch.xpu.get_device_properties(number).total_memory, None)
        for number in range(torch.xpu.device_count())
    ]


def _mps() -> list[dict[str, Any]]:
    if not torch.backends.mps.is_available():
        return []
    total = torch.mps.recommended_max_memory()
    return [_device("Apple GPU", total, total - torch.mps.driver_allocated_memory())]


def _device(name: str, total: int | None, free: int | None) -> dict[str, Any]:
    return {"uuid": "", "name": name, "total_bytes": total, "free_bytes": free, "capability": None}


if __name__ == "__main__":
    serve({"devices": devices}, channel)
