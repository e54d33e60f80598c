"""Files that only a larger training needs: `accelerate.yaml`, `serve_vllm.sh` and `train.sbatch`.

They are written for accelerate 1.7 or newer, TRL's use of vLLM's own server (1.11) and Slurm, and are yours to change.
"""

import shlex
from collections.abc import Mapping

from grpo_tui.draft import Draft
from grpo_tui.plan.dialect import release
from grpo_tui.plan.plan import Plan

ACCELERATE, SERVE, SBATCH = "accelerate.yaml", "serve_vllm.sh", "train.sbatch"

NAMES = (ACCELERATE, SERVE, SBATCH)
"""Every file that may be written here."""


def optional_files(plan: Plan, draft: Draft) -> dict[str, str]:
    """The files that `plan` needs beside config.toml and train.py, name to text; most plans need none."""
    found = {}
    if not plan.cpu and plan.world_size > 1:
        found[ACCELERATE] = render_accelerate(plan)
    if served(plan) and nodes(plan) == 1:
        found[SERVE] = render_serve(plan)
    if nodes(plan) > 1 or plan.value("launch.slurm"):
        found[SBATCH] = render_sbatch(plan, draft)
    return found


def nodes(plan: Plan) -> int:
    """Training nodes."""
    return int(plan.value("launch.nodes", 1))


def served(plan: Plan) -> bool:
    """Does vLLM generate on GPUs of its own?"""
    return bool(plan.value("launch.vllm") == "server")


# -------------------------------------------------------------------------------------------------- accelerate.yaml

_STRATEGIES: Mapping[str, tuple[str, str]] = {
    "ddp": ("MULTI_GPU", "Every process has the whole model, and they average their gradients."),
    "fsdp2": (
        "FSDP",
        "The processes share out weights, gradients and optimizer states; each layer is gathered in turn.",
    ),
    "zero1": ("DEEPSPEED", "The processes share out optimizer states; each has all weights and gradients."),
    "zero2": ("DEEPSPEED", "The processes share out gradients and optimizer states; each has all weights."),
    "zero3": ("DEEPSPEED", "The processes share out weights, gradients and optimizer states."),
}

_STATES_SHARED = """\
deepspeed_config:
  deepspeed_multinode_launcher: standard
  # cpu instead of none keeps the optimizer's states in main memory: slower, and it frees 12 bytes a parameter.
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: false
"""

_SHARED: Mapping[str, str] = {
    "ddp": "gpu_ids: all\n",
    "fsdp2": """\
fsdp_config:
  fsdp_version: 2
  # The activations are recomputed by activation_checkpointing in config.toml; only one of the two may be on.
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  # true keeps the shares in main memory: the last way out where the GPUs are too small, and slow.
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  # Checkpoints are whole, so that they load without these processes.
  fsdp_state_dict_type: FULL_STATE_DICT
""",
    **{f"zero{stage}": _STATES_SHARED + f"  zero_stage: {stage}\n" for stage in (1, 2)},
    "zero3": """\
deepspeed_config:
  deepspeed_multinode_launcher: standard
  # cpu instead of none keeps states or weights in main memory: slower, and the last way out.
  offload_optimizer_device: none
  offload_param_device: none
  # Weights are shared out while they are loaded, and gathered when they are saved.
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
""",
}


def render_accelerate(plan: Plan) -> str:
    """`accelerate.yaml`: how several processes train one model."""
    strategy = str(plan.value("launch.strategy") or "ddp")
    kind, words = _STRATEGIES[strategy]
    precision = "bf16" if plan.value("grpo.bf16") else "fp16" if plan.value("grpo.fp16") else "no"
    return f"""\
# How the training processes work together: {strategy}.
# {words}
#
#     accelerate launch --config_file accelerate.yaml train.py
#
# Written by grpo-tui and yours to change. The batch and its accumulation stand in config.toml alone.
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
{_SHARED[strategy]}# As in config.toml, which decides.
mixed_precision: '{precision}'
# Training processes on all machines together, one for each GPU; config.toml plans the batch for this number.
num_processes: {plan.world_size}
num_machines: {nodes(plan)}
machine_rank: 0
main_training_function: main
rdzv_backend: static
same_network: true
use_cpu: false
"""


# --------------------------------------------------------------------------------------------------- serve_vllm.sh


def _server(plan: Plan, gpus: int, host: str) -> str:
    """The command of the server, over several lines, in the names of the shell script."""
    if (1, 0) <= release(plan.versions.get("trl", "")) < (1, 11):  # until then TRL had a server of its own
        words = ['trl vllm-serve --model "$MODEL"']
    else:
        words = ['vllm serve "$MODEL"']
    words.append(f'--host {host} --port "$PORT"')
    if plan.value("model.revision"):
        words.append(f"--revision {shlex.quote(str(plan.value('model.revision')))}")
    words.append(f"--dtype {plan.value('model.dtype', 'bfloat16')} --tensor-parallel-size {gpus}")
    words.append("--gpu-memory-utilization 0.9")
    if plan.value("grpo.vllm_max_model_length"):
        words[-1] += f" --max-model-len {plan.value('grpo.vllm_max_model_length')}"
    if words[0].startswith("vllm"):
        words.append('--weight-transfer-config \'{"backend": "nccl"}\'')
        words.append('--logprobs-mode processed_logprobs --max-logprobs -1 "${SCALE_OUT[@]}"')
    return " \\\n    ".join(words)


_READY = """\
# Does the server answer?
answers() {
  python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$1" 2>/dev/null
}

# vLLM 0.30 and newer must be told to open the endpoints that training needs.
SCALE_OUT=()
if python -c 'import importlib.metadata as m, sys
sys.exit(tuple(map(int, m.version("vllm").split(".")[:2])) < (0, 30))' 2>/dev/null; then
  SCALE_OUT=(--enable-scale-out)
fi
"""


def render_serve(plan: Plan) -> str:
    """`serve_vllm.sh`: a vLLM server on GPUs of its own, and the training beside it; both end together."""
    count = int(plan.value("launch.vllm_gpus", 1))
    named = plan.value("launch.vllm_devices")
    gpus = ",".join(map(str, named or range(plan.world_size, plan.world_size + count)))
    length = plan.value("grpo.vllm_server_timeout", 1200)
    return f"""\
#!/usr/bin/env bash
# Serves the model with vLLM on GPUs of its own, and runs the training beside it: when one ends, so does the other.
#
#     bash serve_vllm.sh                        only the server, until Ctrl-C
#     bash serve_vllm.sh python train.py        the server, and the training once the server answers
#
# `grpo-tui run` starts the training this way by itself. Whoever reaches the server can set its weights, so it listens
# on this machine only. Written by grpo-tui and yours to change.
set -euo pipefail

MODEL={shlex.quote(str(plan.value("model.name")))}
SERVER_GPUS={shlex.quote(gpus)}  # the training has others; config.toml says which
HOST=127.0.0.1
PORT={plan.value("grpo.vllm_server_port", 8000)}  # vllm_server_port in config.toml
WAIT_SECONDS={int(length)}  # loading a large model takes minutes
LOG="${{GRPO_TUI_RUN:-.}}/vllm.log"

say() {{ echo "serve_vllm.sh: $*" >&2; }}

{_READY}
# No GPU may serve and train: each of the two would run out of memory.
if [ $# -gt 0 ] && [ -z "${{CUDA_VISIBLE_DEVICES-}}" ]; then
  say "set CUDA_VISIBLE_DEVICES to the GPUs of the training, which must be others than $SERVER_GPUS."
  exit 2
fi
for gpu in ${{SERVER_GPUS//,/ }}; do
  case ",${{CUDA_VISIBLE_DEVICES-}}," in
    *",$gpu,"*) say "GPU $gpu is to serve and to train: give each of the two its own."; exit 2 ;;
  esac
done
if answers "http://$HOST:$PORT/health"; then
  say "something answers on port $PORT already: end it, or set another vllm_server_port in config.toml and PORT here."
  exit 2
fi

CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$SERVER_GPUS" VLLM_SERVER_DEV_MODE=1 \\
  {_server(plan, count, '"$HOST"')} >"$LOG" 2>&1 &
SERVER=$!
TRAINING=

finish() {{  # however this ends, the server ends with it
  trap - EXIT
  kill -TERM "$SERVER" 2>/dev/null || true
  for _ in $(seq 30); do
    kill -0 "$SERVER" 2>/dev/null || return 0
    sleep 1
  done
  kill -KILL "$SERVER" 2>/dev/null || true
}}
stop() {{  # the training is asked first, for it may want to write a checkpoint
  if [ -n "$TRAINING" ]; then kill -TERM "$TRAINING" 2>/dev/null || true; else exit 143; fi
}}
trap finish EXIT
trap stop TERM INT

say "waiting for vLLM on GPU $SERVER_GPUS; what it prints is in $LOG"
end=$((SECONDS + WAIT_SECONDS))
until answers "http://$HOST:$PORT/health"; do
  if ! kill -0 "$SERVER" 2>/dev/null || [ "$SECONDS" -ge "$end" ]; then
    say "vLLM does not answer. Its last words:"
    tail -n 20 "$LOG" >&2
    exit 1
  fi
  sleep 1
done
say "vLLM answers."

if [ $# -eq 0 ]; then
  wait "$SERVER"
  exit
fi
status=0
"$@" &
TRAINING=$!
while kill -0 "$TRAINING" 2>/dev/null; do
  wait -n "$TRAINING" "$SERVER" || true  # a signal ends this wait too, and the next round goes on waiting
  if ! kill -0 "$SERVER" 2>/dev/null && kill -0 "$TRAINING" 2>/dev/null; then
    say "vLLM ended during the training, which cannot go on. Its last words:"
    tail -n 20 "$LOG" >&2
    kill -TERM "$TRAINING" 2>/dev/null || true
    wait "$TRAINING" || true
    exit 1
  fi
done
wait "$TRAINING" || status=$?
exit "$status"
"""


# ---------------------------------------------------------------------------------------------------- train.sbatch


def render_sbatch(plan: Plan, draft: Draft) -> str:
    """`train.sbatch`: the training as a Slurm job, on one node or on several."""
    count = nodes(plan)
    gpus = max(1, plan.world_size // count)
    serving = served(plan)
    if count == 1 and serving:
        gpus += int(plan.value("launch.vllm_gpus", 1))
    asked = count + (1 if serving and count > 1 else 0)
    more = ", and one that serves the model with vLLM" if asked > count else ""
    head = f"""\
#!/bin/bash
# Trains under Slurm, on {count} node{"" if count == 1 else "s"}{more}:
#
#     sbatch train.sbatch                    from the project folder
#     sbatch train.sbatch --resume [RUN]     goes on from the newest checkpoint of a run
#
# Submitting it is the yes to train. Written by grpo-tui and yours to change.
#SBATCH --job-name=grpo
#SBATCH --nodes={asked}
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:{0 if plan.cpu else gpus}
#SBATCH --cpus-per-task={8 * gpus}
#SBATCH --output=slurm-%j.log
# What your cluster wants besides; remove one # of each line you need:
##SBATCH --time=24:00:00
##SBATCH --partition=PARTITION
##SBATCH --account=ACCOUNT
# Ten minutes before the time is over the training is asked to write a checkpoint and end:
#SBATCH --signal=B:TERM@600

set -euo pipefail
cd "${{SLURM_SUBMIT_DIR:-.}}"
# Your environment, if the job does not inherit it:
# source .venv/bin/activate
"""
    return head + (_one_node() if count == 1 else _several_nodes(plan, count, gpus))


def _one_node() -> str:
    return """
# The training stays in the foreground, for Slurm ends what outlives the job. `exec` lets the signal reach it.
exec python -m grpo_tui run . --yes --foreground "$@"
"""


def _several_nodes(plan: Plan, count: int, gpus: int) -> str:
    serving = served(plan)
    return f"""
mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
TRAIN=("${{NODES[@]:0:{count}}}")
TRAIN_LIST=$(IFS=,; echo "${{TRAIN[*]}}")
export HEAD="${{TRAIN[0]}}"
export HEAD_PORT=$((20000 + SLURM_JOB_ID % 20000))  # two jobs on a node do not meet
# Every process gets the same folder for the run.
export GRPO_TUI_RUN="${{GRPO_TUI_RUN:-$PWD/runs/$(date +%Y%m%d-%H%M%S)-$SLURM_JOB_ID}}"
export PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=300
mkdir -p "$GRPO_TUI_RUN"
STEPS=()
finish() {{ kill -TERM "${{STEPS[@]}}" 2>/dev/null || true; wait || true; }}
trap finish EXIT
trap 'kill -TERM "$TRAINING" 2>/dev/null || true' TERM
{_server_node(plan, count, gpus) if serving else ""}
# SLURM_PROCID must be read on each node, not here: hence the single quotes.
# shellcheck disable=SC2016
srun --nodes={count} --ntasks={count} --ntasks-per-node=1 --nodelist="$TRAIN_LIST" bash -c '
  exec accelerate launch --config_file accelerate.yaml \\
    --num_machines {count} --num_processes {plan.world_size} --machine_rank "$SLURM_PROCID" \\
    --main_process_ip "$HEAD" --main_process_port "$HEAD_PORT" \\
    train.py "$@"' train "$@" &
TRAINING=$!
STEPS+=("$TRAINING")
status=0
while kill -0 "$TRAINING" 2>/dev/null; do
  wait {'-n "$TRAINING" "$SERVER"' if serving else '"$TRAINING"'} || true
{_server_gone() if serving else ""}done
wait "$TRAINING" || status=$?
exit "$status"
"""


def _server_gone() -> str:
    return """\
  if ! kill -0 "$SERVER" 2>/dev/null && kill -0 "$TRAINING" 2>/dev/null; then
    echo "vLLM ended during the training, which cannot go on; see vllm.log in the run folder." >&2
    exit 1
  fi
"""


def _server_node(plan: Plan, count: int, gpus: int) -> str:
    """The lines that start a server on the last node, and wait for it."""
    command = _server(plan, gpus, "0.0.0.0").replace('"${SCALE_OUT[@]}"', "$SCALE_OUT_WORDS")
    inner = command.replace("'", "'\\''")
    return f"""
{_READY}
# The last node serves. Whoever reaches its port can set the weights: use this inside the cluster's network only.
export MODEL={shlex.quote(str(plan.value("model.name")))} PORT={plan.value("grpo.vllm_server_port", 8000)}
export SCALE_OUT_WORDS="${{SCALE_OUT[*]}}"
export VLLM_SERVER_HOST="${{NODES[{count}]}}"  # train.py reads it
srun --nodes=1 --ntasks=1 --nodelist="$VLLM_SERVER_HOST" bash -c '
  VLLM_SERVER_DEV_MODE=1 exec {inner}' >"$GRPO_TUI_RUN/vllm.log" 2>&1 &
SERVER=$!
STEPS+=("$SERVER")
until answers "http://$VLLM_SERVER_HOST:$PORT/health"; do
  if ! kill -0 "$SERVER" 2>/dev/null; then
    tail -n 20 "$GRPO_TUI_RUN/vllm.log" >&2
    exit 1
  fi
  sleep 5
done
"""


def start_command(plan: Plan, processes: str) -> str:
    """How train.py is started by hand as several processes; `processes` is their number, or what stands for it."""
    if plan.cpu:  # `accelerate launch --cpu` starts a single one
        return f"torchrun --standalone --nproc_per_node {processes} train.py"
    config = f"--config_file {ACCELERATE} " if plan.world_size > 1 else ""
    return f"accelerate launch {config}--num_processes {processes} train.py"
