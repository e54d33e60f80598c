"""Where NVML sees nothing, torch is asked, and what it says is marked as its word."""

from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.hardware.torch_devices import ask_torch, with_torch, worth_asking
from grpo_tui.problem import Problem

GIB = 2**30
ROCM = {
    "torch": "2.13.0+rocm6.4",
    "backend": "rocm",
    "devices": [
        {
            "uuid": "",
            "name": "AMD Instinct MI300X",
            "total_bytes": 192 * GIB,
            "free_bytes": 190 * GIB,
            "capability": None,
        }
    ],
}
JETSON = Machine(kind="jetson", gpus=(GPU(index=None, uuid="cuda:0", name="Jetson", unified=True),))
BROKEN = Machine(kind="nvidia", problem=Problem("NVIDIA driver", "Its library is not found.", "Add utility."))


def answer(backend: str, **device: Any) -> dict[str, Any]:
    plain = {"uuid": "", "name": "a device", "total_bytes": None, "free_bytes": None, "capability": None}
    return {"torch": "2.13.0", "backend": backend, "devices": [{**plain, **device}]}


@pytest.mark.parametrize(
    ("machine", "backend", "system", "expected"),
    [
        (Machine(), "cpu", "linux", False),
        (Machine(), "cuda 13.0", "linux", False),
        (Machine(), "rocm 6.4", "linux", True),
        (Machine(), "xpu 2025", "linux", True),
        (Machine(), "cpu", "darwin", True),
        (BROKEN, "cuda 13.0", "linux", True),
        (BROKEN, "cpu", "linux", False),
        (JETSON, "cuda 12.6", "linux", True),
        (Machine(gpus=(GPU(index=0, uuid="GPU-1", name="H200"),)), "rocm 6.4", "linux", False),
    ],
)
def test_torch_is_asked_only_where_it_may_know_more(
    machine: Machine, backend: str, system: str, expected: bool
) -> None:
    assert worth_asking(machine, backend, system) is expected


def test_an_amd_card_is_taken_from_torch_and_said_to_be() -> None:
    machine = with_torch(Machine(notes=("There seems to be an AMD GPU.",)), ROCM)
    (gpu,) = machine.gpus
    assert machine.kind == "torch-only"
    assert (gpu.uuid, gpu.cuda_index, gpu.index) == ("rocm:0", 0, None)
    assert (gpu.total_bytes, gpu.free_bytes, gpu.used_bytes) == (192 * GIB, 190 * GIB, 2 * GIB)
    assert "Read by torch" in gpu.notes[0]
    assert (gpu.utilisation, gpu.capability) == (None, None)


def test_a_card_behind_a_missing_nvml_is_found_and_the_reason_stays_in_sight() -> None:
    machine = with_torch(BROKEN, answer("cuda", uuid="GPU-1", total_bytes=80 * GIB, capability=[8, 0]))
    assert (machine.gpus[0].uuid, machine.gpus[0].capability) == ("GPU-1", (8, 0))
    assert machine.gpus[0].used_bytes is None
    assert machine.problem is None
    assert "library is not found" in machine.notes[0]


def test_a_jetson_gets_its_capability() -> None:
    machine = with_torch(JETSON, answer("cuda", capability=[8, 7]))
    assert machine.gpus[0].capability == (8, 7)
    assert machine.gpus[0].unified


def test_on_macos_the_gpu_is_shown_and_not_used() -> None:
    (gpu,) = with_torch(Machine(), answer("mps", total_bytes=20 * GIB)).gpus
    assert not gpu.visible
    assert "CPU" in gpu.notes[-1]


def test_what_nvml_read_is_left_as_it_is() -> None:
    machine = Machine(kind="nvidia", gpus=(GPU(index=0, uuid="GPU-1", name="H200"),))
    assert with_torch(machine, ROCM) is machine
    assert with_torch(BROKEN, {"torch": "2.13.0", "backend": "cpu", "devices": []}) is BROKEN


def test_the_worker_answers_for_this_machine() -> None:
    with Worker("devices", gpu=True) as worker:
        machine = Machine()
        asked = ask_torch(machine, worker)
        assert isinstance(asked, Machine)
        raw = worker.call("devices", {})
        assert isinstance(raw, dict)
        assert len(asked.gpus) == len(raw["devices"])
        assert raw["backend"] in ("cpu", "cuda", "rocm", "xpu", "mps")
