"""Whatever the driver answers, the machine is shown as it is, and what is unknown is said to be unknown."""

import os
import subprocess
import sys
from typing import Any

import pytest

from grpo_tui.hardware.machine import FOREIGN_PROCESS
from grpo_tui.hardware.nvml import Machine, Sampler, read_machine

GIB = 2**30
MEM_TOTAL, MEM_AVAILABLE = 127600748 * 1024, 118566368 * 1024


def read(library: Any, places: Any, **environ: str) -> Machine:
    return read_machine(environ, library, places.proc, places.dev)


def test_an_ordinary_card_is_read_whole(toy: Any, card: Any, places: Any) -> None:
    places.put(f"{os.getpid()}/comm", "python\n")
    library = toy([card(used=10 * GIB, utilisation=97, processes=[(os.getpid(), 9 * GIB)])])
    machine = read(library, places)
    (gpu,) = machine.gpus
    assert (machine.kind, machine.driver, machine.cuda_driver, machine.problem) == ("nvidia", "580.65.06", "13.0", None)
    assert (gpu.index, gpu.cuda_index, gpu.visible, gpu.bus_id) == (0, 0, True, "00000000:01:00.0")
    assert (gpu.total_bytes, gpu.used_bytes, gpu.free_bytes) == (80 * GIB, 10 * GIB, 70 * GIB)
    assert (gpu.capability, gpu.utilisation, gpu.temperature) == ((8, 0), 97, 35)
    assert (gpu.power_watts, gpu.power_limit_watts) == (61.0, 400.0)
    (process,) = gpu.processes
    assert (process.pid, process.name, process.used_bytes, process.elsewhere) == (os.getpid(), "python", 9 * GIB, False)
    assert process.user
    assert library.open_sessions == 0


def test_readings_that_fail_are_unknown_and_the_rest_stands(toy: Any, card: Any, places: Any) -> None:
    broken = card(
        total="Unknown", capability="NotSupported", utilisation="NotSupported", temperature="NotSupported",
        milliwatts=2**32 - 1, limit_milliwatts="NotSupported", processes="NoPermission", mig="NotSupported",
    )  # fmt: skip
    (gpu,) = read(toy([broken]), places).gpus
    assert gpu.name == "NVIDIA A100-SXM4-80GB"
    unknown = (
        gpu.total_bytes, gpu.free_bytes, gpu.used_bytes, gpu.capability, gpu.utilisation, gpu.temperature,
        gpu.power_watts, gpu.power_limit_watts,
    )  # fmt: skip
    assert set(unknown) == {None}
    assert gpu.utilisation_words == "unknown"
    assert "no permission" in gpu.notes[0]


# Unified memory.


@pytest.mark.parametrize("total", ["NotSupported", 0, 64 * GIB], ids=["refused", "zero", "misleading"])
def test_a_unified_machine_counts_available_main_memory(toy: Any, card: Any, places: Any, total: Any) -> None:
    spark = card(name="NVIDIA GB10", total=total, capability=(12, 1), milliwatts=11_200)
    (gpu,) = read(toy([spark]), places).gpus
    assert gpu.unified
    assert (gpu.total_bytes, gpu.free_bytes) == (MEM_TOTAL, MEM_AVAILABLE)
    assert gpu.used_bytes == MEM_TOTAL - MEM_AVAILABLE
    assert any("share" in note for note in gpu.notes)
    assert gpu.power_watts == 11.2


def test_a_memory_fault_of_a_discrete_card_is_no_unified_memory(toy: Any, card: Any, places: Any) -> None:
    (gpu,) = read(toy([card(name="NVIDIA GeForce RTX 4090", capability=(8, 9), total="NotSupported")]), places).gpus
    assert not gpu.unified
    assert (gpu.total_bytes, gpu.free_bytes) == (None, None)


def test_a_unified_machine_without_meminfo_has_unknown_memory(toy: Any, card: Any, places: Any) -> None:
    (places.proc / "meminfo").unlink()
    (gpu,) = read(toy([card(name="NVIDIA GB10", total="NotSupported")]), places).gpus
    assert gpu.unified
    assert gpu.total_bytes is None


# Slices of a card.

SLICE = "MIG-11111111-2222-3333-4444-555555555555"


def sliced(card: Any, *uuids: str) -> Any:
    slices = [
        card(uuid=uuid, name="A100-SXM4-40GB MIG 1g.10gb", total=int(9.75 * GIB), used=GIB // 10,
             utilisation="NotSupported", ids=(number + 7, 0))
        for number, uuid in enumerate(uuids)
    ]  # fmt: skip
    return card(
        name="A100-SXM4-40GB", total=40 * GIB, mig=(1, 1), utilisation="NotSupported", processes="NoPermission",
        slices=slices,
    )  # fmt: skip


def test_a_slice_is_one_device_with_its_own_memory(toy: Any, card: Any, places: Any) -> None:
    machine = read(toy([sliced(card, SLICE)]), places, CUDA_VISIBLE_DEVICES=SLICE)
    (gpu,) = machine.gpus
    assert (gpu.uuid, gpu.mig, gpu.parent, gpu.visible) == (SLICE, True, "A100-SXM4-40GB", True)
    assert gpu.total_bytes == int(9.75 * GIB)
    assert gpu.utilisation is None
    assert gpu.utilisation_words == "n/a (MIG)"
    assert any("use_vllm" in note for note in gpu.notes)
    assert machine.visible == machine.gpus


def test_of_several_slices_a_program_sees_one(toy: Any, card: Any, places: Any) -> None:
    other = SLICE.replace("1", "6")
    machine = read(toy([sliced(card, SLICE, other)]), places, CUDA_VISIBLE_DEVICES=f"{other},{SLICE}")
    assert [gpu.uuid for gpu in machine.gpus] == [SLICE, other]
    assert [gpu.uuid for gpu in machine.visible] == [other]
    assert "one MIG slice" in machine.notes[0]


def test_a_card_set_to_slices_but_uncut_says_so(toy: Any, card: Any, places: Any) -> None:
    (gpu,) = read(toy([card(mig=(1, 1))]), places).gpus
    assert not gpu.mig
    assert "no slice" in gpu.notes[-1]


# Which card is which.


def desktop(toy: Any, card: Any) -> Any:
    """The slower card first on the bus."""
    return toy(
        [
            card(name="GTX 1650", uuid="GPU-1650", total=4 * GIB, capability=(7, 5), bus="00000000:01:00.0"),
            card(name="RTX 4090", uuid="GPU-4090", total=24 * GIB, capability=(8, 9), bus="00000000:41:00.0"),
        ]
    )


@pytest.mark.parametrize(
    ("environ", "first"),
    [
        ({}, "RTX 4090"),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "RTX 4090"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "GTX 1650"),
    ],
)
def test_a_number_means_what_cuda_means_by_it(
    toy: Any, card: Any, places: Any, environ: dict[str, str], first: str
) -> None:
    machine = read(desktop(toy, card), places, **environ)
    assert machine.visible[0].name == first
    assert [gpu.index for gpu in machine.gpus] == [0, 1]
    warned = [note for note in machine.notes if "depends on CUDA_DEVICE_ORDER" in note]
    assert bool(warned) == (first == "GTX 1650")
    if warned:
        assert "picks the slower card, GTX 1650" in warned[0]
        assert "PCI_BUS_ID" in warned[0]


# No NVML, or a broken one.


def test_a_mismatch_of_library_and_module_is_explained(toy: Any, places: Any) -> None:
    places.put("driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  460.56  Tue Feb 23\nGCC\n")
    places.put("modules", "nvidia 34017280 1 nvidia_modeset, Live 0x0\n")
    machine = read(toy(init_error="LibRmVersionMismatch"), places)
    assert machine.kind == "nvidia"
    assert machine.problem is not None
    assert "460.56" in machine.problem.what
    assert "not necessarily broken" in machine.problem.what
    assert "Reboot" in machine.problem.remedy
    assert "typing" in machine.problem.remedy


def test_a_mismatch_is_a_problem_even_without_a_sign_of_the_module(toy: Any, places: Any) -> None:
    assert read(toy(init_error="LibRmVersionMismatch"), places).problem is not None


@pytest.mark.parametrize(
    ("board", "capability"),
    [
        ("NVIDIA Jetson AGX Orin Developer Kit", (8, 7)),
        ("NVIDIA Jetson Orin Nano Developer Kit", (8, 7)),
        ("NVIDIA Orin NX Developer Kit", (8, 7)),
        ("NVIDIA Jetson Nano Developer Kit", (5, 3)),
        ("NVIDIA Jetson of tomorrow", None),
    ],
)
def test_a_jetson_without_nvml_is_a_unified_gpu(toy: Any, places: Any, board: str, capability: Any) -> None:
    places.put("device-tree/model", board + "\0")
    machine = read(toy(init_error="LibraryNotFound"), places)
    (gpu,) = machine.gpus
    assert (machine.kind, machine.problem) == ("jetson", None)
    assert (gpu.name, gpu.unified, gpu.capability) == (board, True, capability)
    assert (gpu.total_bytes, gpu.free_bytes) == (MEM_TOTAL, MEM_AVAILABLE)
    assert "use_vllm" in gpu.notes[-1]
    assert machine.visible == machine.gpus


def test_a_raspberry_is_no_jetson(toy: Any, places: Any) -> None:
    places.put("device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0")
    assert read(toy(init_error="LibraryNotFound"), places).kind == "cpu"


def test_a_machine_without_any_gpu_trains_on_the_cpu_and_nothing_is_wrong(toy: Any, places: Any) -> None:
    machine = read(toy(init_error="LibraryNotFound"), places)
    assert (machine.kind, machine.gpus, machine.problem) == ("cpu", (), None)
    assert machine.memory_total_bytes == MEM_TOTAL


def test_a_stub_library_prints_nothing_on_the_screen(toy: Any, places: Any, capfd: pytest.CaptureFixture[str]) -> None:
    library = toy(init_error="Unknown", banner=b"WARNING: You should always run with libnvidia-ml.so\n")
    machine = read(library, places)
    print("after")
    assert capfd.readouterr().out == "after\n"
    assert (machine.kind, machine.problem) == ("cpu", None)


def test_what_c_code_prints_into_its_buffer_does_not_come_later() -> None:
    """The banner of a real stub goes through C's buffered output, which is written when the process ends."""
    script = (
        "import ctypes, pynvml\n"
        "from grpo_tui.hardware import nvml\n"
        "class Stub:\n"
        "    NVMLError = pynvml.NVMLError\n"
        "    def nvmlInit(self):\n"
        "        ctypes.CDLL(None).printf(b'BANNER\\n')\n"
        "        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)\n"
        "nvml.read_machine(library=Stub())\n"
        "print('{}')\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # it unbuffers C too
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "{}\n"


def test_a_closed_standard_output_is_no_reason_to_fail(toy: Any, places: Any) -> None:
    kept = os.dup(1)
    os.close(1)
    try:
        machine = read(toy(init_error="LibraryNotFound"), places)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert machine.kind == "cpu"


@pytest.mark.parametrize(
    ("failure", "sign", "words"),
    [
        ("DriverNotLoaded", "nvidiactl", "not loaded"),
        ("NoPermission", "nvidiactl", "may not talk"),
        ("LibraryNotFound", "nvidiactl", "not found"),
        ("Unknown", "nvidiactl", "does not start"),
    ],
)
def test_a_driver_that_does_not_answer_is_a_problem_with_a_way_on(
    toy: Any, places: Any, failure: str, sign: str, words: str
) -> None:
    (places.dev / sign).touch()
    problem = read(toy(init_error=failure), places).problem
    assert problem is not None
    assert words in problem.what
    assert "typing" in problem.remedy


def test_no_failure_leads_to_the_advice_to_install_a_driver(toy: Any, places: Any) -> None:
    for failure in ("LibraryNotFound", "Unknown", "DriverNotLoaded"):
        for board in ("", "NVIDIA Jetson AGX Orin\0"):
            places.put("device-tree/model", board)
            machine = read(toy(init_error=failure), places)
            said = " ".join(
                [*machine.notes, *(note for gpu in machine.gpus for note in gpu.notes), str(machine.problem)]
            )
            assert "nstall" not in said


def test_without_the_python_package_a_driver_is_a_problem(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read(None, places).problem is None
    (places.dev / "nvidiactl").touch()
    problem = read(None, places).problem
    assert problem is not None
    assert "nvidia-ml-py" in problem.remedy


def test_a_card_that_fell_off_the_bus_does_not_hide_the_others(toy: Any, card: Any, places: Any) -> None:
    machine = read(toy([card(lost=True), card()]), places)
    assert [gpu.name for gpu in machine.gpus] == ["unreadable GPU", "NVIDIA A100-SXM4-80GB"]
    assert "NVMLError_GpuIsLost" in machine.gpus[0].notes[0]
    assert "NVMLError_GpuIsLost" not in str(machine.gpus[1])


def test_an_amd_card_is_hinted_at(toy: Any, places: Any) -> None:
    (places.dev / "kfd").touch()
    assert "AMD" in read(toy(init_error="LibraryNotFound"), places).notes[0]


# Containers.


def test_a_process_of_the_host_is_shown_as_foreign(toy: Any, card: Any, places: Any) -> None:
    places.put("88/comm", "train\n")
    library = toy([card(used=31 * GIB, processes=[(1204417, 30 * GIB), (88, None)])])
    foreign, own = read(library, places).gpus[0].processes
    assert (foreign.name, foreign.user, foreign.used_bytes) == (FOREIGN_PROCESS, "", 30 * GIB)
    assert foreign.elsewhere
    assert (own.name, own.used_bytes, own.elsewhere) == ("train", None, False)


def test_a_process_name_cannot_draw_on_the_terminal(toy: Any, card: Any, places: Any) -> None:
    places.put("88/comm", "\x1b[2Jevil\n")
    (process,) = read(toy([card(processes=[(88, 1)])]), places).gpus[0].processes
    assert process.name == "evil"


# Sampling.


def test_a_sampler_reads_what_moves_and_closes_the_library(toy: Any, card: Any, places: Any) -> None:
    first, second = card(uuid="GPU-1"), card(uuid="GPU-2")
    library = toy([first, second])
    with Sampler(["GPU-2"], library, places.proc) as sampler:
        (before,) = sampler.sample()
        second.used, second.utilisation, second.temperature, second.milliwatts = 5 * GIB, 88, "Unknown", 250_000
        (after,) = sampler.sample()
    assert (before.uuid, before.used_bytes, before.utilisation) == ("GPU-2", 0, 0)
    assert (after.used_bytes, after.total_bytes, after.utilisation) == (5 * GIB, 80 * GIB, 88)
    assert (after.temperature, after.power_watts) == (None, 250.0)
    assert library.open_sessions == 0


def test_a_sampler_follows_main_memory_on_a_unified_machine(toy: Any, card: Any, places: Any) -> None:
    library = toy([card(name="NVIDIA GB10", total="NotSupported")])
    with Sampler((), library, places.proc) as sampler:
        places.put("meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n")
        (sample,) = sampler.sample()
    assert (sample.used_bytes, sample.total_bytes) == (600 * 1024, 1000 * 1024)


def test_a_sampler_without_nvml_has_nothing_to_say(toy: Any, places: Any) -> None:
    with Sampler((), toy(init_error="LibraryNotFound"), places.proc) as sampler:
        assert sampler.sample() == ()


def test_reading_this_machine_imports_nothing_heavy() -> None:
    script = (
        "import sys; from grpo_tui.hardware.nvml import read_machine; "
        "from grpo_tui.hardware.environment import read_environment, checks; from pathlib import Path; "
        "checks(read_machine(), read_environment(Path('.'))); "
        "print({'torch', 'trl', 'transformers', 'numpy', 'pyarrow', 'textual'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
