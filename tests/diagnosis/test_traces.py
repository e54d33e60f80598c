"""The last words of trainings: every text that is known, tracebacks as they are printed, and what nobody knows."""

import pytest

from grpo_tui.diagnosis.traces import ROWS, read_trace

TEXTS = [
    ("E01", "GRPOConfig.__init__() got an unexpected keyword argument 'warmup_ratio'", "warmup_steps"),
    ("E02", "GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'", "max_prompt_tokens"),
    ("E03", "GRPOConfig.__init__() got an unexpected keyword argument 'evaluation_strategy'", "eval_strategy"),
    ("E03", "TrainingArguments.__init__() got an unexpected keyword argument 'num_generation'", "grpo-tui check"),
    ("E04", "generation_batch_size (12) must be divisible by num_generations (8).", "num_generations = 8"),
    ("E05", "generation_batch_size (10) must be divisible by the global batch size (4).", "leave it out"),
    ("E06", "'generation_batch_size' and 'steps_per_generation' can not be both configured at the same time", "one of"),
    (
        "E07",
        "The global eval batch size (8 * 1) must be divisible by the number of generations used for evaluation (3).",
        "num_generations_eval",
    ),
    ("E08", "GRPO requires at least 2 generations per prompt", "Set it to 8"),
    ("E09", "auto_find_batch_size is not supported by GRPO", "halve"),
    ("E10", "'>' not supported between instances of 'NoneType' and 'int'", "-1"),
    ("E11", "KeyError: 'prompt'", "prepare()"),
    ("E12", "`train_dataset` must be a `Dataset` or `IterableDataset`, got DatasetDict", "split"),
    ("E13", "The train_dataset does not implement __len__ and max_steps has to be specified.", "max_steps"),
    ("E14", "correct() got multiple values for keyword argument 'completions'", "Rename"),
    ("E15", "correct() missing 1 required positional argument: 'solution'", "'solution'"),
    ("E16", "correct() got an unexpected keyword argument 'trainer_state'", "**kwargs"),
    ("E17", "string indices must be integers, not 'str'", "chat messages"),
    ("E18", "returned 1 rewards, but 8 were expected", "one number for each"),
    ("E19", "TypeError: 'NoneType' object is not iterable", "Return a list"),
    ("E20", "too many dimensions 'str'", "numbers"),
    ("E21", "Number of reward weights (2) must match number of reward functions (1)", "[[rewards]]"),
    ("E22", "No reward source provided", "[[rewards]]"),
    ("E23", "Cannot use chat template functions because tokenizer.chat_template is not set", "plain text"),
    ("E24", "index -1 is out of bounds for dimension 1 with size 0", "empty"),
    ("E25", "`temperature` (=0.0) has to be a strictly positive float", "1.0"),
    ("E26", "probability tensor contains either `inf`, `nan` or element < 0", "learning_rate"),
    (
        "E31",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "use_vllm",
    ),
    ("E31b", "CUDA out of memory occurred when warming up sampler with 256 dummy requests", "sleep"),
    (
        "E32",
        "Free memory on device (10.1/23.6 GiB) on startup is less than desired GPU memory utilization (0.9)",
        "Lower",
    ),
    ("E33", "vLLM is not available and `use_vllm` is set to True. Please install vLLM", "pip install trl[vllm]"),
    ("E34", "TRL currently supports vLLM versions from 0.22.0 to 0.31.0. You have 0.40.0", "0.22.0 to 0.31.0"),
    ("E35", "tensor_parallel_size (3) must divide world size (4) evenly.", "such as 1"),
    ("E36", "vLLM does not support in-flight 8-bit quantization.", "4 bit"),
    (
        "E37",
        "ConnectionError: The vLLM server can't be reached at http://node7:8000 after 240.0 seconds.",
        "node7:8000",
    ),
    ("E38", "The server does not expose its development endpoints. Start it with VLLM_SERVER_DEV_MODE=1", "DEV_MODE"),
    (
        "E39",
        "The vLLM server has no weight-transfer engine. Restart it with --weight-transfer-config",
        "--weight-transfer",
    ),
    (
        "E40",
        "The server runs with --logprobs-mode raw_logprobs, which biases the importance sampling",
        "processed_logprobs",
    ),
    ("E41", "Weight synchronization runs on vLLM's NCCL weight-transfer engine, which needs a CUDA device", "use_vllm"),
    ("E42", "Attempting to use the same CUDA device for multiple distinct roles/ranks within", "CUDA_VISIBLE_DEVICES"),
    ("E43", "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42)", "first process that failed"),
    (
        "E46",
        "You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",
        "device_map",
    ),
    ("E47", "GRPOTrainer does not support nn.DataParallel", "accelerate launch"),
    ("E48", "FlashAttention2 has been toggled on, but it cannot be used due to the following error", "sdpa"),
    ("E49", "flash_attn_2_cuda.so: undefined symbol: _ZN3c105Error", "uninstall"),
    ("E50", "`kernels` is either not installed or uses an incompatible version", "message names"),
    ("E51", "Invalid `dtype` passed to the config. Expected either 'auto' or a string, but got bf16.", "bfloat16"),
    ("E52", "You need to install bitsandbytes to use 8-bit optimizers", "pip install bitsandbytes"),
    ("E52", "importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes", "choose LoRA"),
    (
        "E53",
        "ValueError: adamw is not a valid OptimizerNames, please select one of ['adamw_torch', ...]",
        "adamw_torch_fused",
    ),
    ("E54", "Target modules {'query', 'value'} not found in the base model. Please check", "all-linear"),
    ("E55", "Applying a PEFT adapter to lm_head is not supported", "target_modules"),
    ("E56", "You passed a `PeftModel` instance together with a `peft_config` to the trainer.", "reload"),
    ("E57", "WandbCallback requires wandb to be installed. Run `pip install wandb`.", "pip install wandb"),
    (
        "E58",
        "You have set `args.eval_strategy` to IntervalStrategy.STEPS but you didn't pass an `eval_dataset`",
        '"no"',
    ),
    ("E59", "You set sync_ref_model=True while beta=0.0", "beta above 0"),
    ("E60", "Unknown loss type: drgrpo", "drgrpo"),
    ("E60", "Invalid value for scale_rewards: groups. Must be one of 'batch', 'group', or 'none'.", "groups"),
    ("E61", "liger-kernel >= 0.5.8 is not available", "use_liger_kernel"),
    ("E62", "Your setup doesn't support bf16/gpu.", "bf16 = false"),
    ("E62", "Bfloat16 is only supported on GPUs with compute capability of at least 8.0", "fp16 = true"),
    ("E63", "expected scalar type BFloat16 but found Float", "same type"),
    ("E64", "OSError: team/mdel is not a local folder and is not a valid model identifier", "team"),
    ("E64", "Access to model meta-llama/Llama-3.2-3B is restricted. You must have access to it", "hf auth login"),
    (
        "E65",
        "RuntimeError: The server socket has failed to listen: errno: 98 - Address already in use",
        "--main_process_port",
    ),
    ("E66", "The provided chat template does not support tool calling", "template"),
    ("T01", "12 usable prompts, and one generation takes 64: training would run 0 steps.", "more rows"),
    (
        "T02",
        "config.toml says prompt = 'other' in [data], and the code of prepare() and read_data() was",
        "WRITTEN_FOR",
    ),
    ("T03", "runs/a/rewards.py defines no function 'corect', which config.toml names as a reward.", "`corect`"),
    ("T04", "jinja2.exceptions.TemplateError: System role not supported", "System role not supported"),
    ("T05", "AttributeError: module 'wandb' has no attribute 'init'", "rename"),
    ("T05", "AttributeError: partially initialized module 'trl' has no attribute 'GRPOConfig'", "rename"),
    ("T06", "ModuleNotFoundError: No module named 'sympy'", "sympy"),
    ("T07", "OSError: [Errno 28] No space left on device: '/data/runs/a/checkpoint-50/optimizer.pt'", "Free some room"),
    ("T07", "SafetensorError: Error while serializing: I/O error: File too large (os error 27)", "quota"),
    (
        "T09",
        "ValueError: args.max_steps must be set to a positive value if dataloader does not have a length, was -1",
        "fewer prompts than one generation takes",
    ),
    (
        "T10",
        '  File "/env/trl/data_utils.py", line 159, in is_conversational\n    maybe_message = maybe_messages[0]\n'
        "                    ~~~~~~~~~~~~~~^^^\nIndexError: list index out of range",
        "list of no messages",
    ),
    ("T11", "ValueError: text input must be of type `str` (single example), `list[str]` (batch or", "a number"),
    ("T12", "TypeError: TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, Input", "one kind"),
    (
        "T13",
        "ValueError: The decoder prompt (length 9021) is longer than the maximum model length of 4096. Make sure that",
        "max_prompt_tokens",
    ),
    (
        "T13",
        "VLLMValidationError: This model's maximum context length is 576 tokens. However, your prompt has 9021",
        "max_prompt_tokens",
    ),
    ("T08", "PermissionError: [Errno 13] Permission denied: '/data/runs/a'", "permissions"),
]


@pytest.mark.parametrize(("known", "text", "word"), TEXTS, ids=[f"{known} {text[:30]}" for known, text, _ in TEXTS])
def test_a_known_text_is_told_with_its_remedy(known: str, text: str, word: str) -> None:
    trace = read_trace(text)
    assert trace is not None
    assert trace.id == known
    assert word in f"{trace.what} {trace.remedy}"
    assert trace.where
    assert "{" not in trace.what.replace(text, "") or known == "E54"


def test_every_row_has_a_text_here() -> None:
    assert {row.id for row in ROWS} == {known for known, _, _ in TEXTS}


STACK = """Traceback (most recent call last):
  File "/home/a/project/runs/one/train.py", line 241, in <module>
    main()
  File "/home/a/project/runs/one/train.py", line 229, in main
    trainer.train(resume_from_checkpoint=None)
  File "/env/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py", line 1630, in _calculate_rewards
    raise ValueError(f"returned {len(output)} rewards, but {len(prompts)} were expected")
{frames}{said}
"""


def stack(said: str, frames: str = "") -> str:
    return STACK.replace("{frames}", frames).replace("{said}", said)


def test_what_was_raised_is_told_and_not_what_the_source_beside_it_could_raise() -> None:
    trace = read_trace(stack("ValueError: correct returned 3 rewards, but 8 were expected"))
    assert trace is not None
    assert trace.what == "A reward function returned 3 rewards for 8 completions."


MINE = '  File "/home/a/project/runs/one/rewards.py", line 12, in correct\n    return [1 / 0 for _ in completions]\n'


def test_an_unknown_error_is_placed_in_the_users_own_code() -> None:
    trace = read_trace(stack("ZeroDivisionError: division by zero", MINE))
    assert trace is not None
    assert (trace.id, trace.where) == ("", "rewards.py:12")
    assert trace.what == "The reward correct raised ZeroDivisionError: division by zero."
    assert trace.remedy.startswith("Correct the line: return [1 / 0 for _ in completions]; TRL catches no exception")


def test_an_error_in_the_users_code_outside_the_rewards_is_no_rewards() -> None:
    frame = '  File "/home/a/project/runs/one/rewards.py", line 3, in <module>\n    import tables\n'
    trace = read_trace(f"Traceback (most recent call last):\n{frame}ValueError: no tables\n")
    assert trace is not None
    assert (trace.where, trace.what) == ("rewards.py:3", "It ended with ValueError: no tables.")


WRAPPED = '  File "/home/a/project/runs/one/train.py", line 141, in reward\n    return spread(function(**asked))\n'


def test_a_reward_that_train_py_wraps_is_told_by_its_own_name() -> None:
    trace = read_trace(stack("ZeroDivisionError: division by zero", WRAPPED + MINE))
    assert trace is not None
    assert trace.what.startswith("The reward correct raised")


def test_a_prompt_of_no_messages_is_told_from_any_other_list_that_is_too_short() -> None:
    """DS-09: only the place of the error says that a list of messages was meant."""
    library = '  File "/env/lib/python3.11/site-packages/trl/data_utils.py", line 159, in {}\n    maybe = found[0]\n'
    empty, other = (
        read_trace(stack("IndexError: list index out of range", library.format(name)))
        for name in ("is_conversational", "something_else")
    )
    assert empty is not None
    assert other is not None
    assert (empty.id, other.id) == ("T10", "")


def test_a_script_that_leaves_with_a_sentence_is_quoted() -> None:
    trace = read_trace(stack("SystemExit: runs/one has no complete checkpoint to go on from."))
    assert trace is not None
    assert trace.what == "runs/one has no complete checkpoint to go on from."


def test_the_cause_is_told_and_not_what_it_led_to() -> None:
    inner = stack("ValueError: No available memory for the cache blocks. Try increasing it")
    joined = f"{inner}\nThe above exception was the direct cause of the following exception:\n\n"
    trace = read_trace(f"{joined}{stack('RuntimeError: Engine core initialization failed. See root cause above.')}")
    assert trace is not None
    assert trace.id == "E31"
    outer = read_trace(
        f"{stack('ImportError: cannot import name x', MINE)}\n"
        f"The above exception was the direct cause of the following exception:\n\n{stack('RuntimeError: Failed')}"
    )
    assert outer is not None
    assert "ImportError: cannot import name x" in outer.what


def test_of_a_failed_process_and_its_launcher_the_process_is_told() -> None:
    log = stack("ZeroDivisionError: division by zero", MINE).replace("Traceback", "[rank1]: Traceback")
    launcher = stack("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED")
    trace = read_trace(log + launcher)
    assert trace is not None
    assert "ZeroDivisionError" in trace.what


def test_of_two_attempts_in_one_log_the_newer_one_is_told() -> None:
    log = (
        stack("KeyError: 'prompt'")
        + "\n".join(["Finished", "", "again"])
        + stack("ValueError: too many dimensions 'str'")
    )
    trace = read_trace(log)
    assert trace is not None
    assert trace.id == "E20"


def test_a_warning_is_told_only_where_nothing_failed() -> None:
    warned = "TRL currently supports vLLM versions from 0.22.0 to 0.31.0. You have 0.40.0\n"
    trace = read_trace(warned + stack("KeyError: 'prompt'"))
    assert trace is not None
    assert trace.id == "E11"


@pytest.mark.parametrize("text", ["", "{'loss': 0.1}\n", "Traceback (most recent call last):\n", "error\n" * 99999])
def test_nothing_is_read_into_output_that_says_nothing(text: str) -> None:
    assert read_trace(text) is None


def test_what_comes_from_the_user_is_shown_inert() -> None:
    trace = read_trace(stack("ValueError: \x1b[31mred\x1b[0m {evil} \x07"))
    assert trace is not None
    assert trace.what == "It ended with ValueError: red {evil} ·."
    named = read_trace("correct() missing 1 required positional argument: '{0.__class__}'")
    assert named is not None
    assert "{0.__class__}" in named.what
