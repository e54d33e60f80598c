"""Out of memory: what was being done, how much was missing, and the change that answers it."""

import pytest

from grpo_tui.diagnosis.out_of_memory import OutOfMemory, next_rung, phase_of, read_out_of_memory
from grpo_tui.diagnosis.traces import read_trace
from grpo_tui.plan.footing import Footing
from grpo_tui.plan.memory import GIB
from tests.plan.shapes import shape_of

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 23.50 GiB of"
    " which 1.10 GiB is free. {others}Including non-PyTorch memory, this process has 20.90 GiB memory in use. Of the"
    " allocated memory 19.80 GiB is allocated by PyTorch, and {spare} is reserved by PyTorch but unallocated. If"
    " reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity;"
    " 20.00 GiB already allocated; 512.00 MiB free; 22.50 GiB reserved in total by PyTorch)"
)

TRL = "/env/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py"
GENERATE = [
    ("/env/lib/python3.11/site-packages/transformers/trainer.py", "training_step"),
    (TRL, "_prepare_inputs"),
    (TRL, "_generate_and_score_completions"),
]
STACKS = {
    "generate": [*GENERATE, (TRL, "_generate"), ("/env/site-packages/transformers/generation/utils.py", "generate")],
    "score": [*GENERATE, (TRL, "_get_per_token_logps_and_entropies")],
    "train": [(TRL, "compute_loss"), (TRL, "_compute_loss"), (TRL, "_get_per_token_logps_and_entropies")],
    "optimizer": [
        ("/env/site-packages/accelerate/optimizer.py", "step"),
        ("/env/site-packages/torch/optim/adamw.py", "step"),
    ],
    "vllm": [("/env/site-packages/vllm/v1/worker/gpu_worker.py", "determine_available_memory")],
    "load": [(TRL, "__init__"), ("/env/site-packages/trl/trainer/utils.py", "create_model_from_path")],
    "": [("/home/a/train.py", "main")],
}


def trace_text(phase: str, message: str) -> str:
    frames = "".join(f'  File "{file}", line 10, in {name}\n    call()\n' for file, name in STACKS[phase])
    return f"Traceback (most recent call last):\n{frames}{message}\n"


@pytest.mark.parametrize("phase", STACKS)
def test_the_stack_tells_what_was_being_done(phase: str) -> None:
    trace = read_trace(trace_text(phase, MESSAGE.format(others="", spare="310.00 MiB")))
    assert trace is not None
    assert trace.memory is not None
    assert (trace.id, trace.memory.phase) == ("oom", phase)


def test_the_backward_pass_is_training_though_only_torch_is_on_the_stack() -> None:
    assert phase_of('  File "/env/site-packages/torch/autograd/graph.py", line 1, in _engine_run_backward') == "train"


def test_the_figures_are_read() -> None:
    found = read_out_of_memory(trace_text("train", MESSAGE.format(others="", spare="310.00 MiB")))
    assert found is not None
    sizes = (found.asked, found.free, found.total, found.in_use, found.allocated, found.unallocated)
    assert sizes == (int(4.64 * GIB), int(1.1 * GIB), int(23.5 * GIB), int(20.9 * GIB), int(19.8 * GIB), 310 << 20)
    assert found.missing == int(4.64 * GIB) - int(1.1 * GIB)
    assert not found.fragmented
    assert "4.64 GiB more were asked for and 1.10 GiB of 23.50 GiB were free" in found.what()


def test_the_older_wording_is_read_too() -> None:
    found = read_out_of_memory(OLD)
    assert found is not None
    assert (found.asked, found.free, found.total) == (2 * GIB, GIB // 2, int(23.69 * GIB))
    assert found.unallocated == int(2.5 * GIB)
    assert found.fragmented


def test_pieces_that_are_too_small_and_other_processes_are_named() -> None:
    message = MESSAGE.format(others="Process 4711 has 2.00 GiB memory in use. Process 12 has 3.00 GiB memory in use. ",
                             spare="5.10 GiB")  # fmt: skip
    found = read_out_of_memory(trace_text("train", message))
    assert found is not None
    assert found.others == 5 * GIB
    assert found.fragmented
    assert "expandable_segments" in found.remedy()
    assert "end the other processes" in found.remedy().lower()


def test_the_advice_is_that_of_the_phase_and_of_the_version() -> None:
    assert "steps_per_generation" in OutOfMemory(phase="generate").remedy()
    assert "adamw_8bit" in OutOfMemory(phase="optimizer").remedy()
    assert "vllm_gpu_memory_utilization" in OutOfMemory(phase="vllm").remedy()
    assert "upgrade TRL" in OutOfMemory(phase="train").remedy("1.9.0")
    assert "upgrade TRL" not in OutOfMemory(phase="train").remedy("1.16.0")
    assert not any("liger" in OutOfMemory(phase=phase).remedy("1.16.0") for phase in STACKS)


def footing(method: str = "lora", **settings: object) -> Footing:
    return Footing(
        shape=shape_of("Qwen2.5-7B"),
        method=method,
        settings={
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 8,
            "num_generations": 8,
            "max_completion_length": 1024,
            "bf16": True,
            **settings,
        },
        prompt_tokens=512,
        available_bytes=24 * GIB,
        total_bytes=24 * GIB,
        packages=frozenset({"bitsandbytes"}),
    )


def test_a_run_out_of_memory_in_the_loss_is_answered_by_smaller_portions_of_the_same_batch() -> None:
    rung = next_rung(OutOfMemory(phase="train", asked=2 * GIB, free=GIB), footing())
    assert rung is not None
    assert rung.id == "micro_batch"
    size, accumulation = (
        rung.changes["grpo.per_device_train_batch_size"],
        rung.changes["grpo.gradient_accumulation_steps"],
    )
    assert size * accumulation == 64
    assert size < 8
    assert rung.frees_bytes >= GIB


def test_one_in_the_generation_is_not_answered_by_a_smaller_micro_batch() -> None:
    rung = next_rung(OutOfMemory(phase="generate", asked=2 * GIB, free=GIB), footing())
    assert rung is not None
    assert rung.id == "steps_per_generation"
    assert rung.changes["grpo.steps_per_generation"] < 8


def test_one_in_the_optimizer_of_a_full_training_is_answered_by_its_states() -> None:
    error = OutOfMemory(phase="optimizer", asked=12 * GIB, free=GIB)
    rung = next_rung(error, footing("full", per_device_train_batch_size=1, gradient_accumulation_steps=64))
    assert rung is not None
    assert rung.id == "optimizer"


def test_one_of_vllm_is_answered_by_its_share() -> None:
    rung = next_rung(OutOfMemory(phase="vllm"), footing("qlora", use_vllm=True, vllm_gpu_memory_utilization=0.9))
    assert rung is not None
    assert rung.id in ("vllm_sleep", "vllm_share")
