"""What is installed and prepared on this machine, and what stands in the way. Nothing heavy is imported to find out.

Of tokens only the presence is read, never passed on: `Environment.tokens` names the place where one is kept.
"""

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from grpo_tui.hardware.machine import Machine, format_gib, supports_bf16, uneven_note
from grpo_tui.inert import one_line

PACKAGES = (
    "trl",
    "transformers",
    "torch",
    "datasets",
    "peft",
    "accelerate",
    "vllm",
    "bitsandbytes",
    "flash-attn",
    "kernels",
    "wandb",
    "trackio",
    "tensorboard",
    "huggingface_hub",
    "requests",
    "nvidia-ml-py",
    "pynvml",
)
"""Distributions whose version matters, needed or not."""

NEEDED = ("trl", "transformers", "torch", "datasets", "peft", "accelerate")

PYTHON_FLOOR = (3, 11)
TRL_FLOOR = (1, 0)
"""From here on one meaning per setting and metric, and no setting of GRPO was removed since (checked up to 1.16)."""

TRL_TESTED = (1, 16)
TRL_ADVISED = (1, 10)
"""Defaults of GRPO changed up to here."""

TRL_WITHOUT_REQUESTS = (1, 15)
"""Before it `trl.generation.vllm_client` imports requests unconditionally; huggingface_hub 2 no longer brings that."""

VLLM_WINDOWS: Mapping[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = MappingProxyType(
    {
        (1, 0): ((0, 10, 2), (0, 17, 1)),
        (1, 5): ((0, 12), (0, 18)),
        (1, 9): ((0, 17), (0, 25, 1)),
        (1, 11): ((0, 19), (0, 27, 1)),
        (1, 13): ((0, 19, 1), (0, 28)),
        (1, 14): ((0, 20), (0, 30)),
        (1, 15): ((0, 21), (0, 31)),
        (1, 16): ((0, 22), (0, 31)),
    }
)
"""Oldest and newest vLLM by TRL release, from the `vllm` extra of each release's metadata."""

ROOM_NEEDED = {"project": 2**30, "model cache": 5 * 2**30}
"""Free bytes below which a warning is due: room for some adapter checkpoints, and for the weights of a 1.5B model
in bf16 beside what is there. What a plan really takes is said with the plan."""

SHARED_MEMORY_NEEDED = 2**30
"""/dev/shm in bytes that several GPUs need for NCCL. A container gets 64 MiB unless told (docker run --shm-size)."""

OTHERS_SHARE = 0.1
"""Share of a card's memory in use from which the use is worth a warning; a desktop or a driver holds less."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """A place on a disk."""

    what: str
    """`project` or `model cache`."""

    path: Path
    free_bytes: int | None
    writable: bool


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The software and the session that a training would run in."""

    python: str
    system: str
    """`linux`, `darwin` or `win32`, as `sys.platform`."""

    architecture: str
    versions: Mapping[str, str]
    """Installed distributions of `PACKAGES` to their version; absent: not installed."""

    torch_backend: str = ""
    """What torch was built for: `cuda 13.0`, `rocm 6.4`, `xpu ...`, `cpu`; empty: unknown."""

    tokens: Mapping[str, str]
    """`Hugging Face` and `Weights & Biases` to the place that keeps a token; absent: there is none."""

    rooms: tuple[Room, ...] = ()
    container: str = ""
    """`docker`, `podman`, `kubernetes`, `apptainer`, ...; empty: none seen."""

    slurm_job: str = ""
    wsl: bool = False
    multiplexer: str = ""
    """`tmux` or `screen` when running inside one."""

    logout_kills: bool | None = None
    """Logging out ends this user's processes (logind); None: no systemd, so that it cannot be told."""

    shared_memory_bytes: int | None = None
    """Size of /dev/shm."""

    offline: bool = False
    """The Hugging Face libraries are told not to use the network."""


@dataclass(frozen=True)
class Check:
    """One finding about the machine or the environment."""

    id: str
    level: str
    """`ok`, `warn` or `fail`."""

    text: str
    remedy: str = ""
    """The next step; empty where there is nothing to do."""


def read_environment(
    project: Path, environ: Mapping[str, str] = os.environ, home: Path | None = None, root: Path = Path("/")
) -> Environment:
    """The environment as it is now. `root` is where the system's files are, `home` where the user's."""
    home = Path.home() if home is None else home
    hub = _hub_folder(environ, home)
    cache = Path(environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or hub / "hub").expanduser()
    return Environment(
        python=platform.python_version(),
        system=sys.platform,
        architecture=platform.machine(),
        versions=installed_versions(),
        torch_backend=_torch_backend(),
        tokens=dict(_tokens(environ, home, hub)),
        rooms=(_room("project", project.absolute()), _room("model cache", cache)),
        container=_container(environ, root),
        slurm_job=environ.get("SLURM_JOB_ID", ""),
        wsl="microsoft" in _read(root / "proc/version").lower(),
        multiplexer="tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else "",
        logout_kills=_logout_kills(root, environ.get("USER", "")),
        shared_memory_bytes=_size_of(root / "dev/shm"),
        offline=_is_set(environ.get("HF_HUB_OFFLINE", "")),
    )


def installed_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of those of `packages` that are installed, from their metadata."""
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def versions_fingerprint(environment: Environment) -> str:
    """A name for the installed software that a configuration rests on."""
    named = ("python", environment.python), *((name, environment.versions.get(name, "")) for name in PACKAGES)
    return hashlib.sha256(repr(named).encode()).hexdigest()


def release(version: str) -> tuple[int, ...]:
    """The numbers a version begins with: (2, 13, 0) of `2.13.0+cpu`; empty where it begins with none."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


def _torch_backend() -> str:
    """From the text of `torch/version.py`: asking torch itself would import it, which takes seconds."""
    try:
        file = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        text = Path(str(file)).read_text()
    except (importlib.metadata.PackageNotFoundError, OSError, UnicodeDecodeError):
        return ""
    built = dict(re.findall(r"^(cuda|hip|rocm|xpu)\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE))
    for name, shown in (("cuda", "cuda"), ("rocm", "rocm"), ("hip", "rocm"), ("xpu", "xpu")):
        if name in built:
            return f"{shown} {built[name]}"
    return "cpu" if re.search(r"^cuda\b[^=\n]*=\s*None", text, re.MULTILINE) else ""


def _hub_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Where the Hugging Face libraries keep things (huggingface_hub.constants.HF_HOME)."""
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache").expanduser() / "huggingface"


def _tokens(environ: Mapping[str, str], home: Path, hub: Path) -> Iterator[tuple[str, str]]:
    """For each service that has a token the place it lies in, in the order its own library looks."""
    file = Path(environ.get("HF_TOKEN_PATH") or hub / "token").expanduser()
    variables = [name for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if environ.get(name, "").strip()]
    if variables:
        yield "Hugging Face", variables[0]
    elif _read(file).strip():
        yield "Hugging Face", str(file)
    if environ.get("WANDB_API_KEY", "").strip():
        yield "Weights & Biases", "WANDB_API_KEY"
        return
    host = urlsplit(environ.get("WANDB_BASE_URL", "")).hostname or "api.wandb.ai"
    netrc = [Path(environ["NETRC"]).expanduser()] if environ.get("NETRC") else [home / ".netrc", home / "_netrc"]
    for file in netrc:
        if re.search(rf"\bmachine\s+{re.escape(host)}\s", _read(file)):
            yield "Weights & Biases", str(file)
            return


def _room(what: str, path: Path) -> Room:
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        free = None
    return Room(what=what, path=path, free_bytes=free, writable=os.access(place, os.W_OK | os.X_OK))


def _container(environ: Mapping[str, str], root: Path) -> str:
    signs = (
        ("kubernetes", "KUBERNETES_SERVICE_HOST" in environ),
        ("apptainer", "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ),
        ("podman", (root / "run/.containerenv").exists()),
        ("docker", (root / ".dockerenv").exists()),
    )
    return next((name for name, seen in signs if seen), one_line(environ.get("container", ""), 20))


def _logout_kills(root: Path, user: str) -> bool | None:
    """`KillUserProcesses` of systemd-logind for this user (logind.conf(5); unset means no in most distributions).

    Drop-ins win over the main file, later names over earlier ones, whichever folder they lie in.
    """
    if not (root / "run/systemd/system").is_dir():
        return None
    folders = [root / place / "systemd" for place in ("usr/lib", "usr/local/lib", "run", "etc")]
    main = [folder / "logind.conf" for folder in folders if (folder / "logind.conf").is_file()][-1:]
    drop_ins = {file.name: file for folder in folders for file in (folder / "logind.conf.d").glob("*.conf")}
    settings = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    for file in (*main, *(drop_ins[name] for name in sorted(drop_ins))):
        settings.update(re.findall(r"^[ \t]*(Kill\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", _read(file), re.MULTILINE))
    if user in settings["KillExcludeUsers"].split():
        return False
    only = settings["KillOnlyUsers"].split()
    return _is_set(settings["KillUserProcesses"]) and (not only or user in only)


def _is_set(value: str) -> bool:
    return value.strip().lower() in ("1", "yes", "y", "true", "t", "on")


def _size_of(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(1 << 20)
    except (OSError, ValueError):
        return ""


def checks(machine: Machine, environment: Environment) -> list[Check]:
    """Everything worth knowing before a training, in the order of a walk from the machine to the tokens."""
    return [check for find in _CHECKS for check in find(machine, environment)]


def _system(machine: Machine, environment: Environment) -> Iterator[Check]:
    words = f"{environment.system} on {environment.architecture}, Python {environment.python}"
    if environment.system == "win32":
        yield Check("system", "fail", words, "grpo-tui does not run on Windows itself; use it inside WSL 2.")
    elif release(environment.python) < PYTHON_FLOOR:
        yield Check("system", "fail", words, "Use Python 3.11 or newer.")
    elif environment.system == "darwin":
        yield Check("system", "warn", words, "macOS plans, checks and trains on the CPU; train for real on Linux.")
    else:
        yield Check("system", "ok", words + (" (WSL)" if environment.wsl else ""))


def _gpus(machine: Machine, environment: Environment) -> Iterator[Check]:
    if machine.problem is not None:
        yield Check("gpu", "fail", machine.problem.what, machine.problem.remedy)
    elif not machine.gpus:
        remedy = "Enough for data, rewards, files and small trials. Type a card by hand to plan for one."
        yield Check("gpu", "warn", "No GPU: training runs on the CPU.", remedy)
    elif not machine.visible:
        remedy = "Unset CUDA_VISIBLE_DEVICES, or name the cards you may use."
        yield Check("gpu", "warn", f"{_count(len(machine.gpus), 'GPU')}, but programs started here see none.", remedy)
    else:
        hidden = len(machine.gpus) - len(machine.visible)
        seen = _count(len(machine.visible), "GPU")
        driver = f", driver {machine.driver}" if machine.driver else ""
        yield Check("gpu", "ok", seen + (f" visible, {hidden} hidden" if hidden else "") + driver)
    for note in machine.notes:
        if machine.gpus:  # without one the check above has said it
            yield Check("gpu-note", "warn", note, "")


def _torch_fits(machine: Machine, environment: Environment) -> Iterator[Check]:
    backend, _, version = environment.torch_backend.partition(" ")
    if not backend or not machine.visible or machine.kind not in ("nvidia", "jetson"):
        return
    if backend != "cuda":
        yield Check(
            "torch-build",
            "fail",
            f"torch {environment.versions.get('torch', '')} is built for {backend} and cannot use these GPUs.",
            "Install the CUDA build: https://pytorch.org/get-started/locally",
        )
    elif machine.cuda_driver and release(version)[:1] > release(machine.cuda_driver)[:1]:
        yield Check(
            "torch-build",
            "fail",
            f"torch is built for CUDA {version}, and the driver serves CUDA {machine.cuda_driver} at most.",
            f"Install a torch built for CUDA {machine.cuda_driver} or older, or a newer driver.",
        )
    else:
        yield Check("torch-build", "ok", f"torch is built for CUDA {version}")


def _each_gpu(machine: Machine, environment: Environment) -> Iterator[Check]:
    seen = machine.visible
    if note := uneven_note(seen):
        yield Check("gpu-sizes", "warn", note, "Choose cards of one kind.")
    for gpu in seen:
        where = gpu.name if len(seen) == 1 else f"{gpu.name} ({gpu.uuid})"
        if supports_bf16(gpu) is False and gpu.capability is not None:
            major, minor = gpu.capability
            text = f"{where} has compute capability {major}.{minor} and no bfloat16 in hardware."
            yield Check(
                "gpu-bf16", "warn", text, "Plans use fp16 there, which is less stable for GRPO: watch grad_norm."
            )
        if gpu.total_bytes and gpu.used_bytes is not None and not gpu.unified:
            if gpu.used_bytes > OTHERS_SHARE * gpu.total_bytes:
                who = ", ".join(
                    f"{process.name}{f' of {process.user}' if process.user else ''} ({format_gib(process.used_bytes)})"
                    for process in gpu.processes
                )
                text = f"{format_gib(gpu.used_bytes)} of {where} is in use{': ' + who if who else ''}."
                yield Check("gpu-memory", "warn", text, "Plan with what is free, or wait until it is.")
        elif gpu.total_bytes is None:
            text = f"The memory of {where} is unknown."
            yield Check("gpu-memory", "warn", text, "Look at nvidia-smi; type the card's memory by hand to plan.")
        for note in gpu.notes:
            yield Check("gpu-note", "warn", f"{where}: {note}", "")


def _packages(machine: Machine, environment: Environment) -> Iterator[Check]:
    for name in NEEDED:
        if name not in environment.versions:
            yield Check("packages", "fail", f"{name} is not installed.", f"pip install {name}")


def _trl(machine: Machine, environment: Environment) -> Iterator[Check]:
    version = environment.versions.get("trl", "")
    if not version:
        return
    number = release(version)[:2]
    words = f"TRL {version}"
    newest = ".".join(map(str, TRL_TESTED))
    if number < TRL_FLOOR:
        yield Check(
            "trl", "fail", f"{words} is older than 1.0, and its settings mean other things.", "pip install -U trl"
        )
    elif number > TRL_TESTED:
        text = f"{words} is newer than {newest}, the newest that was tried."
        yield Check("trl", "warn", text, "It should work; settings are checked against what is installed.")
    elif number < TRL_ADVISED:
        text = f"{words} works, but its defaults are older ones."
        yield Check("trl", "warn", text, "Better: pip install -U trl")
    else:
        yield Check("trl", "ok", words)
    if number < TRL_WITHOUT_REQUESTS and "requests" not in environment.versions:
        text = f"{words} needs the package requests, which is not installed."
        yield Check("trl-requests", "fail", text, "pip install requests")


def _vllm(machine: Machine, environment: Environment) -> Iterator[Check]:
    version = environment.versions.get("vllm", "")
    window = VLLM_WINDOWS.get(release(environment.versions.get("trl", ""))[:2])
    if not version or window is None:
        return
    low, high = window
    spelt = f"{'.'.join(map(str, low))} to {'.'.join(map(str, high))}"
    if low <= release(version) and release(version)[: len(high)] <= high:
        yield Check("vllm", "ok", f"vLLM {version} (this TRL takes {spelt})")
    else:
        text = f"vLLM {version} is outside what this TRL takes, {spelt}."
        yield Check("vllm", "warn", text, "Install one of those, or leave use_vllm off.")


def _nvml_package(machine: Machine, environment: Environment) -> Iterator[Check]:
    if "nvidia-ml-py" not in environment.versions:
        text = "nvidia-ml-py is not installed, so that no NVIDIA GPU can be read."
        yield Check("nvml-package", "warn", text, "pip install nvidia-ml-py")
    if "pynvml" in environment.versions:
        text = "The deprecated package pynvml is installed beside nvidia-ml-py and slows every start of Python."
        yield Check(
            "nvml-package", "warn", text, "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py"
        )


def _disks(machine: Machine, environment: Environment) -> Iterator[Check]:
    for room in environment.rooms:
        words = f"{room.what}: {format_gib(room.free_bytes)} free in {one_line(str(room.path), 200)}"
        id_ = f"disk-{room.what.replace(' ', '-')}"
        if not room.writable:
            level = "fail" if room.what == "project" else "warn"
            yield Check(
                id_, level, f"{words}, but you may not write there.", "Choose another folder, or ask for access."
            )
        elif room.free_bytes is not None and room.free_bytes < ROOM_NEEDED[room.what]:
            yield Check(id_, "warn", words, "Make room there, or choose a folder on another disk.")
        else:
            yield Check(id_, "ok", words)


def _session(machine: Machine, environment: Environment) -> Iterator[Check]:
    if environment.slurm_job:
        job = one_line(environment.slurm_job, 20)
        yield Check("session", "ok", f"Inside Slurm job {job}: a training runs in the foreground and ends with it.")
    elif environment.container:
        yield Check("session", "ok", f"Inside a container ({environment.container}): a training ends with it.")
    elif environment.logout_kills:
        yield Check(
            "session",
            "warn",
            "Logging out ends your processes here (KillUserProcesses of systemd-logind), tmux and training included.",
            "Once: loginctl enable-linger. Then start inside: systemd-run --user --scope tmux",
        )
    else:
        inside = f" (inside {environment.multiplexer})" if environment.multiplexer else ""
        yield Check("session", "ok", f"A training goes on when this terminal closes{inside}")
    small = environment.shared_memory_bytes is not None and environment.shared_memory_bytes < SHARED_MEMORY_NEEDED
    if small and len(machine.visible) > 1:
        text = f"/dev/shm has {format_gib(environment.shared_memory_bytes)}, too little for several GPUs."
        yield Check("shared-memory", "warn", text, "Start the container with --shm-size=8g or --ipc=host.")


def _keys(machine: Machine, environment: Environment) -> Iterator[Check]:
    for id_, service, need, command in (
        ("token-hub", "Hugging Face", "only gated models and private data need one", "hf auth login"),
        ("token-wandb", "Weights & Biases", "only logging there needs one", "wandb login"),
    ):
        if service in environment.tokens:
            place = one_line(environment.tokens[service], 200)
            yield Check(id_, "ok", f"{service} token: there, in {place} (its value is not read)")
        else:
            yield Check(id_, "ok", f"{service} token: none; {need}", f"When needed: {command}")
    if environment.offline:
        yield Check("offline", "ok", "HF_HUB_OFFLINE is set: models and data come from the cache or from folders")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_CHECKS: tuple[Callable[[Machine, Environment], Iterable[Check]], ...] = (
    _system,
    _gpus,
    _each_gpu,
    _torch_fits,
    _packages,
    _trl,
    _vllm,
    _nvml_package,
    _disks,
    _session,
    _keys,
)
