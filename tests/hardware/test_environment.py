"""What is installed and prepared, what stands in the way, and that no secret gets out."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.hardware import environment as environment_module
from grpo_tui.hardware.environment import (
    PACKAGES,
    Check,
    Environment,
    Room,
    checks,
    installed_versions,
    read_environment,
    release,
    versions_fingerprint,
)
from grpo_tui.hardware.machine import GPU, GPUProcess, Machine
from grpo_tui.problem import Problem

GIB = 2**30
VERSIONS = {
    "trl": "1.16.0",
    "transformers": "5.24.0",
    "torch": "2.13.0",
    "datasets": "5.2.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "huggingface_hub": "2.4.0",
    "nvidia-ml-py": "13.615.71",
}
SOUND = Environment(
    python="3.12.1",
    system="linux",
    architecture="x86_64",
    versions=VERSIONS,
    torch_backend="cuda 12.8",
    tokens={"Hugging Face": "HF_TOKEN"},
    rooms=(Room(what="project", path=Path("/p"), free_bytes=100 * GIB, writable=True),),
)
H200 = GPU(
    index=0, uuid="GPU-1", name="H200", total_bytes=141 * GIB, used_bytes=GIB, free_bytes=140 * GIB,
    capability=(9, 0), cuda_index=0,
)  # fmt: skip
MACHINE = Machine(gpus=(H200,), driver="580.65.06", cuda_driver="13.0", kind="nvidia")


def with_versions(**versions: str | None) -> Environment:
    """The sound environment with some packages at another version, or without them."""
    named = {**VERSIONS, **{name.replace("_", "-"): version for name, version in versions.items()}}
    return replace(SOUND, versions={name: version for name, version in named.items() if version is not None})


def about(found: list[Check], id_: str) -> Check:
    (check,) = [check for check in found if check.id == id_]
    return check


def level(id_: str, machine: Machine = MACHINE, environment: Environment = SOUND) -> str:
    return about(checks(machine, environment), id_).level


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def read(home: Path, root: Path | None = None, /, **environ: str) -> Environment:
    return read_environment(home, environ, home, root or home)


def test_a_sound_machine_has_only_good_news() -> None:
    found = checks(MACHINE, SOUND)
    assert {check.level for check in found} == {"ok"}
    assert {"system", "gpu", "torch-build", "trl", "disk-project", "session", "token-hub"} <= {
        each.id for each in found
    }


def test_every_check_that_is_not_fine_says_what_to_do() -> None:
    sick = replace(
        SOUND, python="3.10.1", versions={"trl": "0.9", "pynvml": "11"}, torch_backend="cpu", logout_kills=True,
        shared_memory_bytes=64 * 2**20,
        rooms=(Room(what="project", path=Path("/p"), free_bytes=5, writable=False),
               Room(what="model cache", path=Path("/c"), free_bytes=5, writable=True)),
    )  # fmt: skip
    crowded = replace(H200, used_bytes=140 * GIB, capability=(7, 5))
    machine = replace(MACHINE, gpus=(crowded, replace(crowded, uuid="GPU-2", total_bytes=None)))
    found = [check for check in checks(machine, sick) if check.level != "ok"]
    assert len({check.id for check in found}) >= 11
    assert [check for check in found if not check.remedy] == []


# The machine.


def test_windows_is_refused_and_macos_warned() -> None:
    assert level("system", environment=replace(SOUND, system="win32")) == "fail"
    assert level("system", environment=replace(SOUND, system="darwin")) == "warn"


def test_an_old_python_is_refused() -> None:
    assert level("system", environment=replace(SOUND, python="3.10.14")) == "fail"


def test_no_gpu_is_a_warning_and_a_broken_driver_a_failure() -> None:
    assert level("gpu", Machine()) == "warn"
    broken = Machine(kind="nvidia", problem=Problem("NVIDIA driver", "It is broken.", "Reboot."))
    check = about(checks(broken, SOUND), "gpu")
    assert (check.level, check.text, check.remedy) == ("fail", "It is broken.", "Reboot.")


def test_gpus_that_are_all_hidden_are_counted_and_explained() -> None:
    check = about(checks(replace(MACHINE, gpus=(replace(H200, visible=False),)), SOUND), "gpu")
    assert check.level == "warn"
    assert "CUDA_VISIBLE_DEVICES" in check.remedy


@pytest.mark.parametrize(
    ("capability", "warned"), [((7, 5), True), ((8, 0), False), (None, False)], ids=["T4", "A100", "unknown"]
)
def test_a_card_without_bf16_is_said_to_train_in_fp16(capability: Any, warned: bool) -> None:
    machine = replace(MACHINE, gpus=(replace(H200, capability=capability),))
    found = [check for check in checks(machine, SOUND) if check.id == "gpu-bf16"]
    assert bool(found) == warned
    for check in found:
        assert "7.5" in check.text
        assert "fp16" in check.remedy
        assert "grad_norm" in check.remedy


def test_a_card_in_use_names_who_uses_it_as_far_as_known() -> None:
    processes = (
        GPUProcess(pid=1, name="python", user="ann", used_bytes=20 * GIB),
        GPUProcess(pid=2, name="another process namespace", user="", used_bytes=30 * GIB, elsewhere=True),
    )
    check = about(checks(replace(MACHINE, gpus=(replace(H200, used_bytes=50 * GIB, processes=processes),)), SOUND),
                  "gpu-memory")  # fmt: skip
    assert check.level == "warn"
    assert "python of ann (20.0 GiB)" in check.text
    assert "another process namespace (30.0 GiB)" in check.text


def test_unlike_cards_are_warned_of_and_unknown_memory_too() -> None:
    small = replace(H200, uuid="GPU-2", name="GTX 1650", total_bytes=4 * GIB, used_bytes=0)
    assert "GTX 1650" in about(checks(replace(MACHINE, gpus=(H200, small)), SOUND), "gpu-sizes").text
    assert level("gpu-memory", replace(MACHINE, gpus=(replace(H200, total_bytes=None),))) == "warn"


def test_several_gpus_in_a_container_need_shared_memory() -> None:
    cramped = replace(SOUND, container="docker", shared_memory_bytes=64 * 2**20)
    two = replace(MACHINE, gpus=(H200, replace(H200, uuid="GPU-2", cuda_index=1)))
    assert "--shm-size" in about(checks(two, cramped), "shared-memory").remedy
    assert not [check for check in checks(MACHINE, cramped) if check.id == "shared-memory"]


# What is installed.


@pytest.mark.parametrize(
    ("backend", "expected"), [("cuda 12.8", "ok"), ("cuda 13.0", "ok"), ("cuda 14.0", "fail"), ("cpu", "fail")]
)
def test_torch_must_be_built_for_this_driver(backend: str, expected: str) -> None:
    assert level("torch-build", environment=replace(SOUND, torch_backend=backend)) == expected


def test_a_cpu_build_of_torch_is_fine_without_gpu() -> None:
    assert not [check for check in checks(Machine(), replace(SOUND, torch_backend="cpu")) if check.id == "torch-build"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.29.1", "fail"), ("1.0.0", "warn"), ("1.9.2", "warn"), ("1.10.0", "ok"), ("1.16.3", "ok"), ("1.17.0", "warn"),
     ("2.0.0.dev0", "warn")],
)  # fmt: skip
def test_trl_has_a_floor_and_a_newest_tried(version: str, expected: str) -> None:
    assert level("trl", environment=with_versions(trl=version, requests="2.32")) == expected


@pytest.mark.parametrize(
    ("trl", "requests", "missing"),
    [("1.14.0", None, True), ("1.14.0", "2.32", False), ("1.15.0", None, False), ("1.0.0", None, True)],
)
def test_older_trl_needs_requests(trl: str, requests: str | None, missing: bool) -> None:
    found = checks(MACHINE, with_versions(trl=trl, requests=requests))
    assert [check.remedy for check in found if check.id == "trl-requests"] == ["pip install requests"] * missing


@pytest.mark.parametrize(
    ("vllm", "trl", "expected"),
    [("0.22.0", "1.16.0", "ok"), ("0.31.2", "1.16.0", "ok"), ("0.32.0", "1.16.0", "warn"), ("0.21.9", "1.16.0", "warn"),
     ("0.10.1", "1.0.0", "warn"), ("0.17.1", "1.0.4", "ok")],
)  # fmt: skip
def test_vllm_must_lie_in_the_window_of_this_trl(vllm: str, trl: str, expected: str) -> None:
    assert level("vllm", environment=with_versions(vllm=vllm, trl=trl, requests="2")) == expected


def test_a_window_that_is_not_known_is_not_judged() -> None:
    assert not [check for check in checks(MACHINE, with_versions(vllm="0.5", trl="1.7.0")) if check.id == "vllm"]


def test_a_missing_library_is_a_failure() -> None:
    check = about(checks(MACHINE, with_versions(peft=None)), "packages")
    assert (check.level, check.remedy) == ("fail", "pip install peft")


def test_the_deprecated_reader_of_gpus_is_warned_of() -> None:
    assert "deprecated" in about(checks(MACHINE, with_versions(pynvml="13.0")), "nvml-package").text
    assert level("nvml-package", environment=with_versions(nvidia_ml_py=None)) == "warn"


def test_versions_are_read_without_importing_anything() -> None:
    found = installed_versions()
    assert {"trl", "torch", "transformers", "datasets", "peft", "accelerate"} <= set(found) <= set(PACKAGES)
    assert installed_versions(["no-such-distribution"]) == {}


def test_the_build_of_torch_is_read_from_its_version_file() -> None:
    script = "import torch; print(f'cuda {torch.version.cuda}' if torch.version.cuda else 'cpu')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert environment_module._torch_backend() == done.stdout.strip()


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.13.0+cpu", (2, 13, 0)), ("1.17.0.dev0", (1, 17, 0)), ("5", (5,)), ("main", ()), ("", ())]
)
def test_a_version_is_compared_by_the_numbers_it_begins_with(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers


def test_the_mark_of_the_versions_changes_with_any_of_them() -> None:
    marks = {
        versions_fingerprint(each)
        for each in (SOUND, with_versions(trl="1.15.0"), with_versions(vllm="0.30.0"), replace(SOUND, python="3.12.2"))
    }
    assert len(marks) == 4
    assert versions_fingerprint(SOUND) == versions_fingerprint(replace(SOUND, tokens={}))


# Tokens.

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


def test_without_any_token_there_is_none(home: Path) -> None:
    assert read(home).tokens == {}


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_a_hub_token_in_the_environment_is_found(home: Path, name: str) -> None:
    assert read(home, **{name: SECRET}).tokens == {"Hugging Face": name}


@pytest.mark.parametrize(
    ("place", "environ"),
    [
        (".cache/huggingface/token", {}),
        ("hf/token", {"HF_HOME": "hf"}),
        ("xdg/huggingface/token", {"XDG_CACHE_HOME": "xdg"}),
        ("mine", {"HF_TOKEN_PATH": "mine"}),
    ],
)
def test_a_hub_token_in_a_file_is_found_where_the_hub_looks(home: Path, place: str, environ: dict[str, str]) -> None:
    file = home / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SECRET)
    absolute = {name: str(home / value) for name, value in environ.items()}
    assert read(home, **absolute).tokens == {"Hugging Face": str(file)}
    file.write_text(" \n")
    assert read(home, **absolute).tokens == {}


@pytest.mark.parametrize(
    ("text", "environ", "found"),
    [
        ("machine api.wandb.ai\n  login user\n  password SECRET\n", {}, True),
        ("machine example.org login a password b\n", {}, False),
        (
            "machine wandb.firm.example login user password SECRET\n",
            {"WANDB_BASE_URL": "https://wandb.firm.example"},
            True,
        ),
    ],
)
def test_a_wandb_key_is_found_in_netrc(home: Path, text: str, environ: dict[str, str], found: bool) -> None:
    (home / ".netrc").write_text(text)
    assert ("Weights & Biases" in read(home, **environ).tokens) == found


def test_a_wandb_key_in_the_environment_is_found(home: Path) -> None:
    assert read(home, WANDB_API_KEY=SECRET).tokens == {"Weights & Biases": "WANDB_API_KEY"}


def test_the_value_of_no_token_leaves_the_reading(home: Path) -> None:
    (home / ".netrc").write_text(f"machine api.wandb.ai login user password {SECRET}\n")
    (home / "token").write_text(SECRET)
    for environ in ({"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET}, {"HF_TOKEN_PATH": str(home / "token")}):
        environment = read(home, **environ)
        assert len(environment.tokens) == 2
        assert SECRET not in repr(environment)
        assert SECRET not in repr(checks(MACHINE, environment))


# Disk, session, container.


def test_the_model_cache_is_looked_for_where_the_hub_keeps_it(home: Path) -> None:
    assert [room.path for room in read(home).rooms] == [home, home / ".cache/huggingface/hub"]
    assert read(home, HF_HUB_CACHE=str(home / "c")).rooms[1].path == home / "c"
    assert read(home, HF_HOME=str(home / "h")).rooms[1].path == home / "h/hub"
    assert (read(home).rooms[1].free_bytes or 0) > 0


@pytest.mark.parametrize(
    ("free", "writable", "expected"),
    [(100 * GIB, True, "ok"), (10, True, "warn"), (None, True, "ok"), (9, False, "fail")],
)
def test_a_full_disk_warns_and_a_locked_project_fails(free: int | None, writable: bool, expected: str) -> None:
    room = Room(what="project", path=Path("/p"), free_bytes=free, writable=writable)
    assert level("disk-project", environment=replace(SOUND, rooms=(room,))) == expected


LOGIND = "etc/systemd/logind.conf"
RUNTIME = "run/systemd/logind.conf.d/"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({LOGIND: "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({LOGIND: "[Login]\nKillUserProcesses=yes\n"}, True),
        ({LOGIND: "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=root ann\n"}, False),
        ({LOGIND: "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=bob\n"}, False),
        ({LOGIND: "KillUserProcesses=yes\n", "usr/lib/systemd/logind.conf.d/50.conf": "KillUserProcesses=no\n"}, False),
        ({"usr/lib/systemd/logind.conf": "KillUserProcesses=yes\n", LOGIND: "\n"}, False),
        ({LOGIND + ".d/90.conf": "KillUserProcesses = true\n", RUNTIME + "10.conf": "KillUserProcesses=0\n"}, True),
    ],
)  # fmt: skip
def test_whether_logging_out_kills_is_read_as_logind_reads_it(
    home: Path, tmp_path: Path, files: dict[str, str], expected: bool
) -> None:
    root = tmp_path / "root"
    (root / "run/systemd/system").mkdir(parents=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert read(home, root, USER="ann").logout_kills is expected


def test_without_systemd_it_cannot_be_told(home: Path, tmp_path: Path) -> None:
    assert read(home, tmp_path / "nowhere").logout_kills is None


def test_a_machine_that_kills_at_logout_warns_with_the_way_out() -> None:
    check = about(checks(MACHINE, replace(SOUND, logout_kills=True, multiplexer="tmux")), "session")
    assert check.level == "warn"
    assert "enable-linger" in check.remedy


@pytest.mark.parametrize(
    ("environ", "file", "expected"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ".dockerenv", "kubernetes"),
        ({}, ".dockerenv", "docker"),
        ({}, "run/.containerenv", "podman"),
        ({"SINGULARITY_CONTAINER": "/i.sif"}, "", "apptainer"),
        ({"container": "lxc"}, "", "lxc"),
        ({}, "", ""),
    ],
)
def test_a_container_is_recognised(
    home: Path, tmp_path: Path, environ: dict[str, str], file: str, expected: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    if file:
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).touch()
    assert read(home, root, **environ).container == expected


def test_slurm_tmux_and_offline_are_recognised(home: Path) -> None:
    environment = read(home, SLURM_JOB_ID="42", TMUX="/tmp/x", HF_HUB_OFFLINE="1")
    assert (environment.slurm_job, environment.multiplexer, environment.offline) == ("42", "tmux", True)
    found = checks(MACHINE, environment)
    assert "Slurm job 42" in about(found, "session").text
    assert about(found, "offline").level == "ok"
