"""From a yes to a running training: the exact command, the checks before it, and the start."""

import hashlib
import importlib.machinery
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_tui import regular
from grpo_tui.draft import Approval
from grpo_tui.hardware.machine import GPU, Machine, visible_environment
from grpo_tui.inert import inert
from grpo_tui.plan import files
from grpo_tui.problem import Problem
from grpo_tui.run import folder, prediction
from grpo_tui.run.life import life
from grpo_tui.run.supervisor import SUPERVISOR_LOG, Job, arguments

START_SECONDS = 60.0
"""How long a supervisor may take to come up: importing from a cold network file system takes a while."""

SHUTDOWN_SECONDS = 300
"""What a launcher of several processes gives them between SIGTERM and SIGKILL: a step and a checkpoint (default: 30).
"""

LOG_TAIL_LINES = 12

_IMPORTED = (
    "trl",
    "transformers",
    "torch",
    "datasets",
    "accelerate",
    "peft",
    "numpy",
    "pandas",
    "pyarrow",
    "tokenizers",
)
_IMPORTED_WHEN_ASKED = ("wandb", "mlflow", "trackio", "vllm", "bitsandbytes", "deepspeed", "flash_attn", "kernels")


@dataclass(frozen=True, kw_only=True)
class Command:
    """What will be executed."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Only what is added to the environment."""

    directory: Path
    gpus: tuple[str, ...]
    """UUIDs; none: the CPU."""

    def __str__(self) -> str:
        added = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*added, shlex.join(self.argv)])


@dataclass(frozen=True, kw_only=True)
class Started:
    """A training that has really begun."""

    run: Path
    pid: int
    """The supervisor's."""

    training_pid: int


def command(
    project: Path, run: Path, config: Mapping[str, Any], gpus: Sequence[GPU], *, resume: bool = False
) -> Command:
    """The command that trains `run`, a folder with frozen copies, on `gpus` (none: the CPU), from the folder `project`.

    `config` is the run's `config.toml`. Several processes go through `accelerate launch`, on
    the CPU through `torchrun`.
    """
    launch = config.get("launch", {})
    processes = int(launch.get("processes", 1))
    threads = int(launch.get("threads", 0)) or (0 if gpus else max(1, _cores() // processes))
    environment = {
        "GRPO_TUI_RUN": str(run),
        "PYTHONSAFEPATH": "1",  # reaches the children of a launcher too: no file of the project hides a library
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **visible_environment(gpus),
    }
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    script = [str(run / "train.py"), *(["--resume"] if resume else [])]
    if processes == 1:
        argv = [sys.executable, *script]
    else:
        environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(SHUTDOWN_SECONDS)
        environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGTERM,SIGINT,SIGQUIT"  # not SIGHUP: a hang-up ends nothing
        argv = [sys.executable, "-m", *_launcher(run, processes, on_gpus=bool(gpus)), *script]
    server = run / "serve_vllm.sh"
    if gpus and launch.get("vllm") == "server" and server.is_file():  # it ends with the training, and the other way
        argv = ["bash", str(server), *argv]
        environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return Command(
        argv=tuple(argv), environment=environment, directory=project.resolve(), gpus=tuple(gpu.uuid for gpu in gpus)
    )


def _launcher(run: Path, processes: int, *, on_gpus: bool) -> list[str]:
    """The module that starts several processes on this machine, with its options."""
    settings = run / "accelerate.yaml"
    if not on_gpus:
        # `accelerate launch --cpu` starts a single process whatever the number (accelerate 1.15, launch_command).
        return ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    plain = ["--multi_gpu", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    chosen = ["--config_file", str(settings)] if settings.is_file() else plain
    # Port 0: any free one, so that two runs on a machine do not meet. Precision is GRPOConfig's business.
    return ["accelerate.commands.launch", *chosen, "--num_processes", str(processes), "--main_process_port", "0"]


def choose_gpus(config: Mapping[str, Any], machine: Machine) -> tuple[GPU, ...] | Problem:
    """The devices of `machine` that `config` names in `[launch] gpus`; else the first ones CUDA shows; none for the
    CPU.
    """
    launch = config.get("launch", {})
    if config.get("grpo", {}).get("use_cpu"):
        return ()
    names = tuple(map(str, launch.get("gpus", ())))
    if not names:
        return machine.visible[: int(launch.get("processes", 1))]
    by_uuid = {gpu.uuid: gpu for gpu in machine.gpus}
    missing = [name for name in names if name not in by_uuid]
    if missing:
        what = f"This machine has no {' and no '.join(missing)}, which [launch] gpus names."
        return Problem("config.toml", what, "Choose among the GPUs that `grpo-tui doctor` lists.")
    return tuple(by_uuid[name] for name in names)


def approval_hash(source: Path) -> str:
    """SHA-256 over the names and contents of the files that run, in a project or in a run's frozen copies.

    A file that is missing counts as such, so the hash is of exactly what is there.
    """
    total = hashlib.sha256()
    for name in (*folder.files(source), *folder.OPTIONAL_FILES):
        path = source / name
        content = path.read_bytes() if path.is_file() else b""
        total.update(f"{name}:{len(content) if path.is_file() else 'none'}:".encode() + content)
    return total.hexdigest()


def read_config(run: Path) -> dict[str, Any] | Problem:
    """The `config.toml` in a project or run folder."""
    path = run / "config.toml"
    try:
        text = regular.read(path, files.CONFIG_BYTES).decode("utf-8")
    except OSError as error:
        return Problem(
            str(path), f"It cannot be read: {error.strerror}.", "Write it with the wizard or `grpo-tui init`."
        )
    except UnicodeDecodeError as error:
        return Problem(str(path), f"It is not UTF-8: {error}.", "Save it as UTF-8.")
    return files.read_config(text, str(path))


def still_running(run: folder.RunSummary) -> Problem:
    """That a training of this project goes on while another one is about to start."""
    return Problem(
        run.name,
        f"A training of this project goes on: {run.life.words}",
        "Watch or stop it; two at a time share memory and processor.",
    )


def written_as(project: Path, name: str, mark: str) -> bool:
    """Whether a file of the project still has the SHA-256 `mark`."""
    try:
        return hashlib.sha256((project / name).read_bytes()).hexdigest() == mark
    except OSError:
        return False


def collisions(project: Path, config: Mapping[str, Any]) -> list[Problem]:
    """Names in the project folder, or beside its rewards, that also name a module which training imports.

    These folders stand last on the path of the training, so they hide nothing; but a helper of such a name is not
    found, and a folder of a package that is not installed imports as an empty one (`module has no attribute ...`).
    """
    rewards = folder.rewards_file(config)
    loaded_by_path = {project / name for name in (*folder.FILES, rewards)}
    places = [place for place in dict.fromkeys((project, (project / rewards).parent)) if place.is_dir()]
    wanted = {str(name) for name in _listed(config.get("grpo", {}).get("report_to"))}
    found = []
    for path in sorted(path for place in places for path in place.iterdir()):
        name = path.stem if path.suffix == ".py" else path.name if path.is_dir() else ""
        if not name.isidentifier() or path in loaded_by_path:
            continue
        library = name in _IMPORTED or name in _IMPORTED_WHEN_ASKED
        if name in wanted and not _installed(name):
            what = f"The folder hides that the package {name} is missing: importing it gives an empty module."
            found.append(Problem(str(path), what, f"Install it (pip install {name}) or take it out of report_to."))
        elif name in sys.stdlib_module_names or (library and _installed(name)):
            what = f"It has the name of a module that training imports, so `import {name}` never gives this one."
            found.append(Problem(str(path), what, f"Rename it if {rewards} needs it."))
    return found


def start(
    project: Path,
    *,
    approved: Approval,
    gpus: Sequence[GPU] = (),
    resume: Path | None = None,
    name: str | None = None,
    notify: str = "",
    predicted: Mapping[str, int] | None = None,
    start_seconds: float = START_SECONDS,
) -> Started | Problem:
    """Start the training that was `approved`, or go on with the run `resume`; answers once it is really there.

    Refused when the files are no longer those of the yes, when a training already runs in the folder, and when there is
    nothing left to train. The run folder is new unless `resume` names one; there its own frozen copies count.
    `predicted`: the memory it is said to need, as `prediction.predicted` gives it; kept in the run folder.
    """
    job = prepare(project, approved=approved, gpus=gpus, resume=resume, name=name, notify=notify, predicted=predicted)
    return job if isinstance(job, Problem) else spawn(job, start_seconds)


def prepare(
    project: Path,
    *,
    approved: Approval,
    gpus: Sequence[GPU] = (),
    resume: Path | None = None,
    name: str | None = None,
    notify: str = "",
    predicted: Mapping[str, int] | None = None,
) -> Job | Problem:
    """All of `start` but starting: checks, run folder and command. For staying in the foreground."""
    source = resume or project
    if approval_hash(source) != approved.sha256:
        what = f"The files are not those of the yes given on {approved.at}."
        return Problem(str(source), what, "Look at what changed and give a new yes.")
    config = read_config(source)
    if isinstance(config, Problem):
        return config
    unfit = _unfit(source, config)
    if unfit is not None:
        return unfit
    run = _resumable(resume) if resume else folder.create(project, name)
    if isinstance(run, Problem):
        return run
    if approval_hash(run) != approved.sha256:
        return Problem(
            str(run), "A file changed while it was being copied.", "Look at what changed and give a new yes."
        )
    config = read_config(run)
    if isinstance(config, Problem):
        return config
    if predicted:
        try:
            prediction.write(run, predicted)
        except OSError as error:
            what = f"{prediction.PREDICTION_FILE} cannot be written: {error.strerror or error}."
            return Problem(str(run), what, "Free some room or choose another project folder.")
    made = command(project, run, config, gpus, resume=resume is not None)
    return Job(
        run=run,
        argv=made.argv,
        directory=made.directory,
        environment=made.environment,
        gpus=made.gpus,
        approved=approved.sha256,
        resumed=resume is not None,
        notify=notify,
    )


def _unfit(source: Path, config: Mapping[str, Any]) -> Problem | None:
    """Why this machine cannot start what `config`, the one in `source`, plans; None: it can."""
    planned = config.get("launch", {})
    if int(planned.get("nodes", 1)) > 1:
        what = "It is planned for several machines, which Slurm starts together."
        return Problem(str(source), what, "Submit it there: sbatch train.sbatch")
    needed = {
        "accelerate.yaml": planned.get("strategy", "ddp") != "ddp",  # without it every process has the whole model
        "serve_vllm.sh": planned.get("vllm") == "server",
    }
    missing = [name for name, is_needed in needed.items() if is_needed and not (source / name).is_file()]
    if missing:
        what = f"{missing[0]} is missing, and [launch] in config.toml plans with it."
        return Problem(str(source), what, "Have it written by the wizard's review or `grpo-tui init`.")
    return None


def log_tail(run: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of what a run, or else its supervisor, printed; made safe to show."""
    for name in (folder.LOG_FILE, SUPERVISOR_LOG):
        try:
            with (run / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
                text = file.read().decode("utf-8", "replace").strip()
        except OSError:
            continue
        if text:
            return inert("\n".join(text.splitlines()[-lines:]))
    return ""


def _resumable(run: Path) -> Path | Problem:
    """`run` resolved, when there is something to go on from and something left to do."""
    now = life(run)
    if now.alive:
        return Problem(str(run), f"It is still {now.state}: {now.words}", "Watch it, or stop it first.")
    found = folder.checkpoints(run)
    if not found:
        what = "It has no complete checkpoint to go on from."
        return Problem(
            str(run), what, "Start it anew; `save_strategy` and `save_steps` decide how often one is written."
        )
    newest = found[-1]
    if newest.max_steps and newest.step >= newest.max_steps:
        what = f"Its newest checkpoint is at step {newest.step} of {newest.max_steps}: there is nothing left to train."
        return Problem(str(run), what, "Start a new run for more steps.")
    return run.resolve()


def spawn(job: Job, seconds: float = START_SECONDS) -> Started | Problem:
    """Start a supervisor that outlives this process, and read from it how the start went."""
    try:
        with (job.run / SUPERVISOR_LOG).open("ab") as log:
            process = subprocess.Popen(
                arguments(job),
                cwd=job.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        return Problem(str(job.run), f"The supervisor cannot be started: {error}.", "Check the folder and the disk.")
    answer = _first_line(process, seconds)
    try:
        row = json.loads(answer)
        if "problem" in row:
            return Problem(**row["problem"])
        return Started(run=job.run, pid=int(row["pid"]), training_pid=int(row["training_pid"]))
    except (ValueError, KeyError, TypeError):
        what = f"The supervisor did not come up within {seconds:.0f} s.\n{log_tail(job.run)}".rstrip()
        return Problem(str(job.run), what, f"Look at {SUPERVISOR_LOG} in the run folder.")


def _first_line(process: "subprocess.Popen[bytes]", seconds: float) -> bytes:
    """What the supervisor says first. Its first process has left by then, and is waited for."""
    assert process.stdout is not None
    answer, deadline = b"", time.monotonic() + seconds
    with process.stdout as pipe:
        while not answer.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                # Its group: the supervisor that it forked must not start the training after all.
                os.killpg(process.pid, signal.SIGKILL)
                break
            part = os.read(pipe.fileno(), 65536)
            if not part:
                break
            answer += part
    process.wait()
    return answer


def _installed(name: str) -> bool:
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    spec = importlib.machinery.PathFinder.find_spec(name, places)
    return spec is not None and spec.loader is not None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
