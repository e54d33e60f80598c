"""Devices that NVML does not see and torch does, asked for in a child process since importing torch takes seconds."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.hardware.machine import GPU, Machine
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

ANSWER_SECONDS = 120.0
"""For the answer alone, not for torch's import; the first call of a ROCm build can take a minute."""


def worth_asking(machine: Machine, torch_backend: str, system: str = sys.platform) -> bool:
    """Whether torch may see what NVML did not.

    So it is where torch is built for other makers' devices, on a Jetson, on macOS, and where there is a GPU whose NVML
    fails (a container with the driver's `compute` but not its `utility` part).
    """
    if machine.kind == "jetson":
        return True
    backend = torch_backend.partition(" ")[0]
    broken = machine.problem is not None and backend == "cuda"
    return not machine.gpus and (backend in ("rocm", "xpu") or system == "darwin" or broken)


def ask_torch(machine: Machine, worker: Worker | None = None) -> Machine | Problem:
    """`machine` with the devices that torch sees, where NVML sees none."""
    if worker is not None:
        answer = worker.call("devices", {}, timeout=ANSWER_SECONDS)
    else:
        with Worker("devices", gpu=True) as own:
            answer = own.call("devices", {}, timeout=ANSWER_SECONDS)
    return answer if isinstance(answer, Problem) else with_torch(machine, answer)


def with_torch(machine: Machine, answer: Mapping[str, Any]) -> Machine:
    """`machine` completed by what the worker `devices` answered. Devices that NVML read stay as they are."""
    found = answer["devices"]
    if machine.kind == "jetson" and machine.gpus and found:
        capability = found[0]["capability"]
        first = replace(machine.gpus[0], capability=(capability[0], capability[1]) if capability else None)
        return replace(machine, gpus=(first, *machine.gpus[1:]))
    if machine.gpus or not found:
        return machine
    backend = answer["backend"]
    note = f"Read by torch {one_line(answer['torch'], 40)} ({backend}): processes, utilisation and power stay unknown."
    why = (f"{machine.problem.what} {machine.problem.remedy}",) if machine.problem else ()
    return replace(
        machine,
        kind="torch-only",
        gpus=tuple(_gpu(backend, number, device, note) for number, device in enumerate(found)),
        problem=None,
        notes=(*machine.notes, *why),
    )


def _gpu(backend: str, number: int, device: Mapping[str, Any], note: str) -> GPU:
    total, free, capability = device["total_bytes"], device["free_bytes"], device["capability"]
    on_mac = backend == "mps"
    return GPU(
        index=None,
        uuid=device["uuid"] or f"{backend}:{number}",
        name=one_line(device["name"], 80),
        cuda_index=None if on_mac else number,
        visible=not on_mac,
        total_bytes=total,
        free_bytes=free,
        used_bytes=total - free if total is not None and free is not None else None,
        unified=on_mac,
        capability=(capability[0], capability[1]) if capability else None,
        notes=(note, "On macOS training runs on the CPU.") if on_mac else (note,),
    )
