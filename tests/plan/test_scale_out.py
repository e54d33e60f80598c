"""The files of a larger training: read by the tools they are for, and the scripts really run, with stand-ins for
vLLM and Slurm."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.plan import scale_out
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.scale_out import ACCELERATE, SBATCH, SERVE, optional_files
from grpo_tui.plan.script import render_train
from grpo_tui.plan.sharding import STRATEGIES
from grpo_tui.run.folder import create
from grpo_tui.run.launch import command, read_config
from tests.plan.plans import LOAD, PREPARE, draft, facts, planned
from tests.plan.test_script import SHORT, write_project
from tests.plan.test_script import environment as offline
from tests.plan.test_spread import on

BASH = "/bin/bash"


def files_of(schema: Schema, gpus: int, **overrides: Any) -> dict[str, str]:
    return optional_files(on("Qwen2.5-1.5B", schema, gpus, **overrides), draft(**overrides))


def test_only_what_the_plan_needs_is_written(schema: Schema) -> None:
    assert files_of(schema, 1) == {}
    assert set(files_of(schema, 2)) == {ACCELERATE}
    assert set(files_of(schema, 2, launch__vllm="server")) == {SERVE}, "one GPU is left to train"
    assert set(files_of(schema, 4, launch__vllm="server")) == {ACCELERATE, SERVE}
    assert set(files_of(schema, 1, launch__slurm=True)) == {SBATCH}
    assert set(files_of(schema, 8, launch__nodes=2, launch__vllm="server")) == {ACCELERATE, SBATCH}
    cpu = planned(draft(launch__processes=2), facts("SmolLM2-135M", schema))
    assert optional_files(cpu, draft()) == {}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, schema: Schema) -> dict[str, dict[str, Any]]:
    """Each strategy's accelerate.yaml, as accelerate's own loader reads it."""
    folder = tmp_path_factory.mktemp("accelerate")
    for name in STRATEGIES:
        (folder / f"{name}.yaml").write_text(files_of(schema, 4, launch__strategy=name)[ACCELERATE])
    code = (
        "import json, sys, pathlib\n"
        "from accelerate.commands.config.config_args import load_config_from_file\n"
        "paths = pathlib.Path(sys.argv[1]).glob('*.yaml')\n"
        "print(json.dumps({p.stem: load_config_from_file(str(p)).to_dict() for p in paths}, default=str))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("ddp", "MULTI_GPU"),
        ("fsdp2", "FSDP"),
        ("zero1", "DEEPSPEED"),
        ("zero2", "DEEPSPEED"),
        ("zero3", "DEEPSPEED"),
    ],
)
def test_accelerate_reads_every_strategy(settings: dict[str, dict[str, Any]], strategy: str, kind: str) -> None:
    read = settings[strategy]
    assert (read["distributed_type"], read["num_processes"], read["mixed_precision"]) == (kind, 4, "bf16")
    assert read["num_machines"] == 1
    if strategy == "fsdp2":
        assert read["fsdp_config"]["fsdp_version"] == 2
        assert read["fsdp_config"]["fsdp_activation_checkpointing"] is False
    if strategy.startswith("zero"):
        assert read["deepspeed_config"]["zero_stage"] == int(strategy[-1])
        assert "gradient_accumulation_steps" not in read["deepspeed_config"], "config.toml alone says it"


def test_every_line_of_the_files_that_is_not_plain_has_its_reason(schema: Schema) -> None:
    for name in STRATEGIES:
        text = files_of(schema, 4, launch__strategy=name)[ACCELERATE]
        assert text.startswith("# How the training processes work together")
        assert max(map(len, text.splitlines())) <= 120


# ------------------------------------------------------------------------------------------------------- shell


@pytest.mark.parametrize(
    ("gpus", "overrides"),
    [
        (4, {"launch__vllm": "server", "launch__vllm_gpus": 2}),
        (1, {"launch__slurm": True}),
        (8, {"launch__nodes": 4}),
        (8, {"launch__nodes": 4, "launch__vllm": "server", "launch__strategy": "zero3"}),
    ],
)
def test_the_shell_reads_its_scripts(schema: Schema, gpus: int, overrides: dict[str, Any]) -> None:
    for name, text in files_of(schema, gpus, **overrides).items():
        if name != ACCELERATE:
            done = subprocess.run([BASH, "-n"], input=text, capture_output=True, text=True, timeout=30)
            assert (done.returncode, done.stderr) == (0, ""), name
            assert max(map(len, text.splitlines())) <= 120


def test_an_old_trl_is_served_by_its_own_server(schema: Schema) -> None:
    plan = on("Qwen2.5-1.5B", schema, 2, launch__vllm="server")
    old = replace(plan, versions={**plan.versions, "trl": "1.9.2"})
    assert "trl vllm-serve --model" in scale_out.render_serve(old)
    new = scale_out.render_serve(plan)
    assert "vllm serve" in new
    assert "--weight-transfer-config" in new


@pytest.mark.parametrize("name", ["a b'c", 'x"$(touch hacked)"', "`touch hacked`", "ünï/model"])
def test_an_odd_name_of_a_model_runs_nothing(schema: Schema, tmp_path: Path, name: str) -> None:
    answers = draft(launch__vllm="server")
    answers = replace(answers, model=replace(answers.model, name=name))
    plan = planned(answers, replace(facts("Qwen2.5-1.5B", schema, 80, gpus=2), packages=frozenset({"vllm"})))
    line = next(line for line in scale_out.render_serve(plan).splitlines() if line.startswith("MODEL="))
    done = subprocess.run(
        [BASH, "-c", f'{line}\nprintf %s "$MODEL"'], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == name
    assert not (tmp_path / "hacked").exists()


VLLM = """#!{python}
# Stands for vLLM: answers on its port, and notes with which GPUs and words it was started.
import http.server, json, os, pathlib, sys, threading, time
pathlib.Path("served.json").write_text(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], sys.argv[1:]]))
if os.environ.get("VLLM_FAILS"):
    sys.exit("No available memory for the cache blocks")
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer)
if os.environ.get("VLLM_DIES"):
    threading.Timer(2, lambda: os._exit(9)).start()
server.serve_forever()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def place(tmp_path: Path, schema: Schema) -> Path:
    """A folder with serve_vllm.sh, and a stand-in for vLLM on the path."""
    port = free_port()
    answers = {"launch__vllm": "server", "grpo__vllm_server_port": port}
    plan: Plan = on("Qwen2.5-1.5B", schema, 2, **answers)
    (tmp_path / SERVE).write_text(optional_files(plan, draft())[SERVE])
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "vllm").write_text(VLLM.format(python=sys.executable))
    (programs / "vllm").chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    return tmp_path


def environment(place: Path, **added: str) -> dict[str, str]:
    return {"PATH": f"{place / 'bin'}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "GPU-0", "HOME": str(place), **added}


def serve(place: Path, *command: str, **added: str) -> subprocess.CompletedProcess[str]:
    env = environment(place, **added)
    return subprocess.run([BASH, SERVE, *command], cwd=place, env=env, capture_output=True, text=True, timeout=60)


def answers_on(place: Path) -> bool:
    text = (place / SERVE).read_text()
    port = int(text.split("\nPORT=")[1].split()[0])
    with socket.socket() as tried:
        tried.settimeout(2)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_server_and_training_start_together_and_end_together(place: Path) -> None:
    done = serve(place, BASH, "-c", "echo trains on $CUDA_VISIBLE_DEVICES; exit 7")
    assert done.returncode == 7, done.stderr
    assert "trains on GPU-0" in done.stdout
    gpus, words = json.loads((place / "served.json").read_text())
    assert gpus == "GPU-1"
    assert words[:2] == ["serve", "team/model"]
    assert "127.0.0.1" in words
    assert words[words.index("--weight-transfer-config") + 1] == '{"backend": "nccl"}'
    assert not answers_on(place)


def test_a_gpu_that_is_to_serve_and_to_train_is_refused(place: Path) -> None:
    done = serve(place, "true", CUDA_VISIBLE_DEVICES="GPU-0,GPU-1")
    assert done.returncode == 2
    assert "GPU-1 is to serve and to train" in done.stderr
    assert not (place / "served.json").exists()
    assert serve(place, "true", CUDA_VISIBLE_DEVICES="").returncode == 2


def test_a_server_that_does_not_come_up_ends_it_with_its_last_words(place: Path) -> None:
    done = serve(place, "touch", "trained", VLLM_FAILS="1")
    assert done.returncode == 1
    assert "No available memory for the cache blocks" in done.stderr
    assert not (place / "trained").exists()


def test_a_server_that_dies_takes_the_training_with_it(place: Path) -> None:
    done = serve(place, "sleep", "50", VLLM_DIES="1")
    assert done.returncode == 1
    assert "vLLM ended during the training" in done.stderr


def test_a_signal_asks_the_training_first_and_its_status_is_kept(place: Path) -> None:
    training = "trap 'echo saved; exit 3' TERM; touch begun; while true; do sleep 0.1; done"
    process = subprocess.Popen(
        [BASH, SERVE, BASH, "-c", training], cwd=place, env=environment(place), stdout=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 40
    while not (place / "begun").exists():
        assert time.monotonic() < end, "the training did not begin"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=40)
    assert (process.returncode, out) == (3, "saved\n")
    assert not answers_on(place)


SRUN = """#!{python}
# Stands for Slurm: runs the command once for each task, as on that many nodes.
import os, subprocess, sys
words = sys.argv[1:]
options = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
command = words[sum(word.startswith("--") for word in words[: words.index("bash")]):]
nodes = options["nodelist"].split(",")
started = [
    subprocess.Popen(command, env={{**os.environ, "SLURM_PROCID": str(n), "NODE": node}})
    for n, node in enumerate(nodes)
]
sys.exit(max(abs(process.wait()) for process in started))
"""

RANKS = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["GRPO_TUI_RUN"])
rank = os.environ["RANK"]
server = os.environ.get("VLLM_SERVER_HOST", "")
words = [os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"], os.environ["NODE"], server, *sys.argv[1:]]
(folder / rank).write_text(" ".join(words))
"""


@pytest.mark.slow
@pytest.mark.parametrize("vllm", ["off", "server"])
def test_a_job_on_two_nodes_gives_every_process_its_rank(tmp_path: Path, schema: Schema, vllm: str) -> None:
    port = free_port()
    more = {"launch__vllm": vllm, "grpo__vllm_server_port": port} if vllm == "server" else {}
    plan = on("Qwen2.5-1.5B", schema, 2, launch__nodes=2, **more)
    for name, text in optional_files(plan, draft()).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(RANKS)
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {
        "srun": SRUN.format(python=sys.executable),
        "scontrol": "#!/bin/sh\nprintf 'localhost\\n127.0.0.1\\n127.0.0.1\\n'\n",
        "accelerate": f'#!/bin/sh\nexec {sys.executable} -m accelerate.commands.accelerate_cli "$@"\n',
        "vllm": VLLM.format(python=sys.executable),
    }
    for name, text in scripts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    env = {
        **environment(tmp_path), "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "a",
        "GRPO_TUI_RUN": str(tmp_path / "run"),
    }  # fmt: skip
    done = subprocess.run(
        [BASH, SBATCH, "--resume"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = {path.name: path.read_text().split() for path in (tmp_path / "run").iterdir() if path.name.isdigit()}
    assert sorted(ranks) == ["0", "1", "2", "3"]
    assert {words[0] for words in ranks.values()} == {"4"}
    assert {words[-1] for words in ranks.values()} == {"--resume"}
    assert len({words[2] for words in ranks.values()}) == 2
    if vllm == "server":
        assert ranks["0"][3] == "127.0.0.1"
        words = json.loads((tmp_path / "served.json").read_text())[1]
        assert words[:2] == ["serve", "team/model"]
        assert words[words.index("--weight-transfer-config") + 1] == '{"backend": "nccl"}'


@pytest.mark.slow
def test_two_processes_of_the_written_files_train_together_and_one_alone_is_refused(
    tmp_path: Path, schema: Schema
) -> None:
    answers = draft(**{**SHORT, "launch__processes": 2})
    answers = replace(answers, model=replace(answers.model, method="lora"))
    project = write_project(tmp_path / "project", schema, answers)
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=project, env=offline(tmp_path), capture_output=True, text=True, timeout=120
    )
    assert alone.returncode == 1
    assert "plans 2 process(es) and 1 run" in alone.stderr
    assert "`torchrun --standalone --nproc_per_node 2 train.py`" in alone.stderr
    run = create(project, "first")
    assert isinstance(run, Path), run
    config = read_config(run)
    assert isinstance(config, dict), config
    made = command(project, run, config, ())
    done = subprocess.run(
        made.argv,
        cwd=project,
        env={**offline(tmp_path), **made.environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Finished at step 2 of 2.") == 1
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert rows[0]["kind"] == "begin"
    assert rows[0]["world_size"] == 2
    assert (run / "final" / "adapter_config.json").is_file()


def test_the_script_reads_where_the_server_is_only_if_slurm_says_it(schema: Schema) -> None:
    here = on("Qwen2.5-1.5B", schema, 2, launch__vllm="server")
    there = on("Qwen2.5-1.5B", schema, 8, launch__vllm="server", launch__nodes=2)
    texts = [render_train(plan, draft(), PREPARE, LOAD) for plan in (here, there)]
    assert ["VLLM_SERVER_HOST" in text for text in texts] == [False, True]
    for text in texts:
        compile(text, "train.py", "exec")
    assert "accelerate launch --config_file accelerate.yaml --num_processes N train.py" in texts[1]


def test_deepspeed_takes_what_accelerate_makes_of_it(settings: dict[str, dict[str, Any]]) -> None:
    config = pytest.importorskip("deepspeed.runtime.zero.config")
    for name in ("zero1", "zero2", "zero3"):
        stage = settings[name]["deepspeed_config"]["zero_stage"]
        assert config.DeepSpeedZeroConfig(stage=stage).stage == stage
