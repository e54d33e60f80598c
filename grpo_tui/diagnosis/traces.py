"""The last words of a training that failed, read into what went wrong and what to do about it.

The texts are those of TRL 1.16, transformers 5.24, peft 0.21, torch 2 and vLLM; most were produced by provoking the
error, those of vLLM, NCCL and CUDA are taken from their sources and from public reports.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from grpo_tui.diagnosis.out_of_memory import PATTERN as OUT_OF_MEMORY
from grpo_tui.diagnosis.out_of_memory import OutOfMemory, read_out_of_memory
from grpo_tui.inert import one_line
from grpo_tui.plan.dialect import OLD_KEYS
from grpo_tui.problem import Problem

TAIL_CHARACTERS = 1 << 18
"""How much of the end of a log is looked at."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What a failed training's output says."""

    id: str
    """Of the row of ROWS; `oom` for memory; empty: no row knows it, and the exception speaks for itself."""

    where: str
    """The setting, file and line, or part it is about."""

    what: str
    remedy: str
    quoted: str
    """The words it was recognised by."""

    memory: OutOfMemory | None = None
    """For `oom`: the figures. `out_of_memory.next_rung` answers them."""

    @property
    def problem(self) -> Problem:
        return Problem(self.where, self.what, self.remedy)


@dataclass(frozen=True)
class Row:
    """One known text. `{name}` in the sentences is filled with the pattern's group of that name."""

    id: str
    pattern: str
    where: str
    """`@`: the innermost line of the user's own code on the stack."""

    what: str
    remedy: str
    warning: bool = False
    """It is printed and the training goes on: believed only where no error is found."""


_UNKNOWN_KEY = r"__init__\(\) got an unexpected keyword argument '(?P<key>{})'"

ROWS: tuple[Row, ...] = (
    # What the configuration says
    Row("E01", _UNKNOWN_KEY.format("warmup_ratio"), "grpo.warmup_ratio",
        "This version of transformers has no warmup_ratio any more.",
        "Write warmup_steps with the same value: below 1 it is a share of all steps."),
    Row("E02", _UNKNOWN_KEY.format("max_prompt_length"), "grpo.max_prompt_length",
        "TRL has no max_prompt_length since 0.28.",
        "Take it out; max_prompt_tokens in [data] leaves long prompts out."),
    Row("E03", r"(?:Config|Arguments)\.__init__\(\) got an unexpected keyword argument '(?P<key>\w+)'", "grpo.{key}",
        "The installed version does not know the key {key}.",
        "{advice}"),
    Row("E04", r"generation_batch_size \((?P<size>\d+)\) must be divisible by num_generations \((?P<group>\d+)\)",
        "grpo.num_generations",
        "{size} completions are generated at a time, which is no multiple of num_generations = {group}.",
        "Change per_device_train_batch_size, gradient_accumulation_steps or num_generations: the settings step shows"
        " which values fit together."),
    Row("E07", r"The global eval batch size \((?P<batch>[\d* ]+)\) must be divisible by the number of generations"
        r"(?: used for evaluation)?(?: \((?P<group>\d+)\))?", "grpo.per_device_eval_batch_size",
        "The evaluation batch of {batch} completions holds no whole groups.",
        "Set num_generations_eval to a divisor of it, or make per_device_eval_batch_size a multiple of the group."),
    Row("E05", r"must be divisible by the global batch size", "grpo.generation_batch_size",
        "generation_batch_size is no multiple of per_device_train_batch_size × processes.",
        "Make it one, or leave it out: TRL then takes batch × accumulation."),
    Row("E06", r"'generation_batch_size' and 'steps_per_generation' can not be both configured",
        "grpo.generation_batch_size",
        "generation_batch_size and steps_per_generation say the same thing twice.", "Leave one of the two out."),
    Row("E08", r"GRPO requires at least 2 generations", "grpo.num_generations",
        "GRPO compares the completions of one prompt, so it needs at least 2 of them.", "Set it to 8."),
    Row("E09", r"auto_find_batch_size(?:=\w+)?\W* is not supported", "grpo.auto_find_batch_size",
        "GRPO cannot halve its batch by itself: groups would break.",
        "Take it out, and halve per_device_train_batch_size by hand while doubling gradient_accumulation_steps."),
    Row("E10", r"'>' not supported between instances of 'NoneType' and 'int'", "grpo.max_steps",
        "A number is missing where one is compared, most likely max_steps.",
        "Leave max_steps out, or set it to -1 for whole epochs."),
    Row("E21", r"[Nn]umber of reward weights \((?P<weights>\d+)\) must match (?:the )?number of reward functions"
        r" \((?P<functions>\d+)\)", "rewards",
        "There are {weights} weights for {functions} reward functions.",
        "Give each entry of [[rewards]] its name and its weight."),
    Row("E22", r"No reward source provided", "rewards", "No reward function is given.",
        "Name at least one under [[rewards]]."),
    Row("E25", r"temperature.{0,6}\(=(?P<value>[\d.]+)\) has to be a strictly positive float", "grpo.temperature",
        "At temperature {value} all completions of a prompt are the same.", "Set it to 1.0."),
    Row("E51", r"Invalid `?dtype`? passed to the config.* (?:but )?got (?P<value>\S+?)\.?$", "model.dtype",
        "{value} is no number type that TRL knows.", "Write \"bfloat16\", \"float16\" or \"float32\"."),
    Row("E53", r"(?P<value>\S+) is not a valid OptimizerNames", "grpo.optim",
        "There is no optimizer of the name {value}.", "Take \"adamw_torch_fused\", or another of the names it lists."),
    Row("E58", r"You have set `?args\.eval_strategy`? to (?P<value>\S+) but you didn't pass an `?eval_dataset",
        "grpo.eval_strategy", "Evaluation is on, and there are no rows to evaluate on.",
        "Set eval_strategy = \"no\", or pass an eval_dataset to the trainer in train.py."),
    Row("E59", r"sync_ref_model=True`?.{0,20}beta=0\.0", "grpo.sync_ref_model",
        "There is no reference model to keep in step: beta is 0.", "Set sync_ref_model = false, or beta above 0."),
    Row("E60", r"(?:Unknown loss type|Invalid value for (?P<key>scale_rewards)|Unknown importance sampling level"
        r"|Invalid multi_objective_aggregation|Invalid value for (?P<other>\w+)):? ?(?P<value>\S*)", "grpo",
        "A setting has a value that TRL does not know; it looks only at the first step: {quoted}",
        "Correct it in config.toml: `grpo-tui check` names the setting and its values."),
    Row("E62", r"Your setup doesn't support bf16|Bfloat16 is only supported on GPUs|[Bb]float16.{0,60}not supported",
        "grpo.bf16", "This device has no bfloat16.",
        "Set bf16 = false, and fp16 = true on a GPU (use_cpu = true where there is none)."),
    # The data
    Row("E11", r"KeyError: 'prompt'", "data", "The rows have no column `prompt`.",
        "Let prepare() in train.py return one, or name the column in the dataset step."),
    Row("E12", r"train_dataset`? must be a `?Dataset`? or `?IterableDataset`?, got (?P<kind>\w+)", "data",
        "The data are a {kind}, not one table of rows.", "Choose a split, such as \"train\"."),
    Row("E13", r"does not implement __len__.{0,80}max_steps has to be specified", "grpo.max_steps",
        "Streamed rows have no number, so the training does not know where to end.", "Set max_steps."),
    Row("T09", r"max_steps must be set to a positive value if dataloader does not have a length", "data",
        "There are fewer prompts than one generation takes, so that an epoch has no step.",
        "Use more rows, lower gradient_accumulation_steps or the batch, or raise num_generations; with streamed rows,"
        " which have no number, set max_steps."),
    Row("T10", r"in is_conversational\n(?:[^\n]*\n){1,3}?IndexError: list index out of range", "data",
        "A prompt is a list of no messages.", "Leave such prompts out: prepare() returns None for such a row."),
    Row("T11", r"text input must be of type `str`", "data",
        "A prompt is missing (null), a number, or something else that is no text.",
        "Leave such prompts out, or make text of them: prepare() returns None for a row left out."),
    Row("T12", r"TextEncodeInput must be Union", "data",
        "Some prompts are plain text and others chat messages, in one batch.",
        "Make all of one kind: the dataset step counts both and converts the plain ones."),
    Row("E14", r"got multiple values for keyword argument '(?P<column>prompts|completions|completion_ids|\w+)'", "data",
        "A column is named `{column}`, which TRL passes to the rewards itself.", "Rename the column in prepare()."),
    Row("E24", r"index -1 is out of bounds for dimension \d+ with size 0", "data", "A prompt is empty.",
        "Leave empty prompts out: prepare() returns None for such a row."),
    Row("T01", r"(?P<usable>\d+) usable prompts, and one generation takes (?P<needed>\d+)", "data",
        "There are {usable} usable prompts and one generation takes {needed}: training would run 0 steps.",
        "Use more rows, or lower gradient_accumulation_steps."),
    Row("T02", r"config\.toml says (?P<keys>.+?) in \[data\], and the code of", "train.py",
        "[data] was changed ({keys}), and the code of train.py was written for another value.",
        "Have train.py written anew by the review step, or change prepare() and WRITTEN_FOR in it."),
    Row("T03", r"defines no function '(?P<name>\w+)', which config\.toml names as a reward", "rewards",
        "There is no function `{name}` in the file of the rewards.", "Correct the name in config.toml, or define it."),
    # The model and its tokenizer
    Row("E23", r"[Cc]annot use chat template functions because tokenizer\.chat_template is not set", "model",
        "Prompts are chat messages and the tokenizer has no chat template.",
        "Choose an instruct model, or keep the prompts plain text (dataset step)."),
    Row("T04", r"jinja2\.exceptions\.(?P<kind>\w+): (?P<said>.+)", "model",
        "The chat template does not take these messages: {said}",
        "Many templates want no system message, or user and assistant in turn: change the system prompt or prepare()."),
    Row("E66", r"The provided chat template does not support tool calling", "model",
        "The chat template has no place for tools.", "Choose a model whose template has one."),
    Row("E46", r"can't train a model that has been loaded with `?device_map='auto'`? in any distributed", "train.py",
        "The model is spread over the GPUs by device_map, and several processes want it whole.",
        "Take device_map out of the model's arguments."),
    Row("E47", r"does not support `?(?:torch\.)?nn\.DataParallel", "launch",
        "One process sees several GPUs, and TRL does not spread one over them.",
        "Start with `accelerate launch`, or let the process see one GPU."),
    Row("E48", r"FlashAttention\d? ?(?:has been toggled on|.{0,30}cannot be used)", "model.attn_implementation",
        "Flash attention is asked for and not installed.", "Set attn_implementation = \"sdpa\"."),
    Row("E49", r"flash_attn.{0,200}undefined symbol", "flash_attn",
        "flash_attn was built for another version of torch.",
        "pip uninstall flash-attn, and set attn_implementation = \"sdpa\"."),
    Row("E50", r"`?kernels`? is either not installed or uses an incompatible version", "kernels",
        "The package kernels is missing, or of a version that does not fit.",
        "Install the version that the message names."),
    Row("E52", r"(?:need to install|requires the latest version of|requires|No package metadata was found for)"
        r" `?bitsandbytes|No module named 'bitsandbytes'", "bitsandbytes",
        "Loading in 4 bit or an 8-bit optimizer needs the package bitsandbytes.",
        "pip install bitsandbytes, or choose LoRA and optim = \"adamw_torch_fused\"."),
    Row("E54", r"Target modules (?P<names>\{.*?\}|\[.*?\]|\S+) not found in the base model", "lora.target_modules",
        "The model has no layers named {names}.", "Set target_modules = \"all-linear\"."),
    Row("E55", r"PEFT adapter to `?lm_head`? is not supported", "lora.target_modules",
        "TRL trains no adapter on the output head.", "Take lm_head out of target_modules."),
    Row("E56", r"You passed a `?PeftModel`? instance together with a `?peft_config", "train.py",
        "The model has an adapter already, and another one is asked for.",
        "Save and reload the model, or leave peft_config out."),
    Row("E61", r"liger-kernel >= \S+ is not available", "grpo.use_liger_kernel", "The package liger-kernel is missing.",
        "Take use_liger_kernel out: TRL computes the head in tiles by itself."),
    Row("E63", r"expected scalar type \S+ but found \S+|expected .{0,40}same dtype", "model.dtype",
        "Number types are mixed: {quoted}", "Set dtype and bf16 to the same type; with ZeRO-3 and LoRA upgrade TRL."),
    Row("E64", r"(?:is not a local folder|Repo id must be in the form|401 Client Error|Access to model .* is restricted"
        r"|GatedRepoError|couldn't connect to 'https://huggingface\.co')", "model",
        "The model or data cannot be found or fetched: {quoted}",
        "Check the name; for a gated or private one log in with: hf auth login"),
    # The rewards
    Row("E15", r"(?P<name>\w+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (?P<columns>'.+)",
        "rewards",
        "The reward {name} wants {columns}, and the rows have no such column.",
        "Rename the argument to a column of the data, or add the column (remove_unused_columns must be false)."),
    Row("E16", r"(?P<name>\w+)\(\) got an unexpected keyword argument '(?P<key>\w+)'", "rewards",
        "The reward {name} does not take {key}, which TRL passes to every reward.",
        "Add **kwargs to its arguments."),
    Row("E17", r"string indices must be integers, not 'str'", "@",
        "A reward reads chat messages, and the completions are plain text.",
        "Take the text itself, or make the prompts chat messages (dataset step)."),
    Row("E18", r"(?:`?(?P<name>\w+)`?\W* )?returned (?P<got>\d+) rewards, but (?P<wanted>\d+) were expected", "rewards",
        "A reward function returned {got} rewards for {wanted} completions.", "Return one number for each completion."),
    Row("E19", r"'NoneType' object is not iterable", "rewards", "A reward function returned nothing.",
        "Return a list with one number for each completion."),
    Row("E20", r"too many dimensions 'str'", "rewards", "A reward function returned text.", "Return numbers."),
    # The numbers
    Row("E26", r"probability tensor contains either `?inf`?, `?nan`? or element < 0", "grpo.learning_rate",
        "The model's weights are no numbers any more (NaN).",
        "Go on from an older checkpoint with a lower learning_rate; use bf16 rather than fp16."),
    # vLLM
    Row("E31", r"No available memory for the cache blocks", "grpo.vllm_gpu_memory_utilization",
        "vLLM's share of the GPU holds its copy of the weights and nothing beside it.",
        "Raise vllm_gpu_memory_utilization where the training leaves room, set vllm_max_model_length to prompt +"
        " completion, or set use_vllm = false."),
    Row("E31b", r"out of memory occurred when warming up sampler", "grpo.vllm_gpu_memory_utilization",
        "vLLM's share and the training do not fit the GPU together.",
        "Lower vllm_gpu_memory_utilization, set vllm_enable_sleep_mode = true, or set use_vllm = false."),
    Row("T13", r"prompt.{0,40}longer than the maximum model length(?: of (?P<most>\d+))?"
        r"|maximum context length is \d+ tokens", "grpo.vllm_max_model_length",
        "A prompt is longer than vLLM makes room for: {quoted}",
        "Leave long prompts out with max_prompt_tokens in [data], and set vllm_max_model_length to at least that plus"
        " max_completion_length."),
    Row("E32", r"Free memory on device.{0,200}is less than desired GPU memory utilization",
        "grpo.vllm_gpu_memory_utilization", "The GPU has less free memory than vLLM's share.",
        "Lower vllm_gpu_memory_utilization, or end what else holds the GPU."),
    Row("E33", r"vLLM is not available and `?use_vllm`? is set to True", "grpo.use_vllm", "vLLM is not installed.",
        "pip install trl[vllm], or set use_vllm = false."),
    Row("E35", r"tensor_parallel_size \((?P<size>\d+)\) must divide world size \(?(?P<world>\d+)?",
        "grpo.vllm_tensor_parallel_size", "{size} is no divisor of the number of training processes.",
        "Set vllm_tensor_parallel_size to one, such as 1."),
    Row("E36", r"vLLM does not support in-flight 8-bit quantization", "model", "vLLM takes no model loaded in 8 bit.",
        "Load it in 4 bit or not quantised."),
    Row("E37", r"vLLM server can't be reached at (?P<address>\S+)", "grpo.vllm_server_base_url",
        "No vLLM server answers at {address}.",
        "Start the server first and wait until it is ready; check host and port, or raise vllm_server_timeout."),
    Row("E38", r"does not expose its development endpoints", "vllm", "The vLLM server hides what TRL needs.",
        "Start it with VLLM_SERVER_DEV_MODE=1."),
    Row("E39", r"has no weight-transfer engine", "vllm", "The vLLM server cannot take new weights.",
        "Start it with --weight-transfer-config, as the message says."),
    Row("E41", r"NCCL weight-transfer engine, which needs a CUDA device", "grpo.use_vllm",
        "A vLLM server needs a training on GPUs.", "Set use_vllm = false on the CPU."),
    Row("E42", r"[Aa]ttempting to use the same CUDA device for multiple distinct roles", "grpo.vllm_mode",
        "The vLLM server and the training use the same GPU.", "Give each its own GPUs by CUDA_VISIBLE_DEVICES."),
    # Several processes
    Row("E43", r"Watchdog caught collective operation timeout|\bwait timeout\b.{0,80}NCCL|NCCL.{0,80}\bwait timeout\b",
        "launch", "One process waited in vain for the others.",
        "Look for the first process that failed; NCCL_DEBUG=INFO and NCCL_SOCKET_IFNAME help with the network."),
    Row("E65", r"[Aa]ddress already in use", "launch", "A port is taken by another process.",
        "End the other run, or choose ports: --main_process_port, vllm_server_port, vllm_group_port."),
    # What is installed
    Row("E57", r"(?P<name>\w+)Callback requires (?P<package>\w+)", "grpo.report_to",
        "Reporting to {package} needs the package {package}.",
        "pip install {package}, or set report_to = \"none\"."),
    Row("T05", r"partially initialized module '[\w.]+'|module '\w+' has no attribute '\w+'", "project",
        "A module is not the one that was meant: {quoted}",
        "A file or folder of the project may have the name of a library: rename it."),
    Row("T06", r"No module named '(?P<name>[\w.]+)'", "@", "The module {name} cannot be imported.",
        "pip install it, or put the file into the project."),
    # The disk
    Row("T07", r"No space left on device|[Dd]isk quota exceeded|File too large|PytorchStreamWriter failed writing",
        "disk", "A file cannot be written: {quoted}",
        "Free some room or raise the quota where `runs` lies; save_total_limit and save_only_model make it less."),
    Row("T08", r"PermissionError: .{0,40}'(?P<path>[^']+)'|Read-only file system: '(?P<other>[^']+)'", "disk",
        "A file cannot be written: {quoted}", "Check the permissions of the folder, or choose another one."),
    # What is only a warning
    Row("E34", r"TRL currently supports vLLM versions from (?P<low>\S+) to (?P<high>[\d.]+\d)", "vllm",
        "The installed vLLM is none that TRL was made for ({low} to {high}).", "Install one of those.", warning=True),
    Row("E40", r"raw_logprobs`?,? which biases the importance sampling", "vllm",
        "The vLLM server reports log-probabilities that bias the loss.",
        "Start it with --logprobs-mode processed_logprobs.", warning=True),
)  # fmt: skip
"""Every known text. Where several match, the one that stands first in the output is the cause."""

_COMPILED = tuple((row, re.compile(row.pattern, re.MULTILINE)) for row in ROWS)

_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):", re.MULTILINE)
_JOINED = re.compile(r"(?:During handling of the above exception|The above exception was the direct cause)[^\n]*\s*\Z")
_JOINED_CHARACTERS = 300
_CAUSED = "The above exception was the direct cause"
_FRAME = re.compile(
    r'^.*?File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>[^\n]+)\n(?:\s+(?P<text>[^\n]*))?', re.M
)
_LAST_LINE = re.compile(r"^(?:\[rank\d+\]: ?)?(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<said>.*))?$", re.MULTILINE)
_LIBRARIES = re.compile(r"site-packages|dist-packages|/lib/python3|^<|/grpo_tui/")
_OUTER = ("ChildFailedError", "SignalException", "ProcessRaisedException")
"""Exceptions of launchers, which only say that a process failed."""


def read_trace(text: str, *, trl: str = "") -> Trace | None:
    """What the output of a training says went wrong; None: nothing is found in it.

    `text` is a traceback, or the end of a log with one or several in it; `trl` the version that ran, if known.
    """
    text = text[-TAIL_CHARACTERS:].replace("\r\n", "\n")
    chains = list(_chains(text))
    for chain in reversed(chains):
        found = _known(chain, trl)
        if found is not None:
            return found
    found = _known(text, trl) or next((warned for _, warned in _matches(text, warnings=True)), None)
    if found is not None:
        return found
    spoken = [told for chain in reversed(chains) if (told := _unknown(chain))]
    return next((told for told in spoken if not told.quoted.startswith(_OUTER)), spoken[0] if spoken else None)


def _chains(text: str) -> Iterator[str]:
    """The tracebacks of `text`, those that explain one another together, each with what follows it."""
    starts = [found.start() for found in _TRACEBACK.finditer(text)]
    kept = [
        start
        for number, start in enumerate(starts)
        if not number or not _JOINED.search(text[max(0, start - _JOINED_CHARACTERS) : start])
    ]
    for start, end in zip(kept, [*kept[1:], len(text)], strict=False):
        yield text[start:end]


def _known(text: str, trl: str) -> Trace | None:
    """The first known error in `text`."""
    first = min(_matches(text), key=lambda found: found[0], default=None)
    ended = OUT_OF_MEMORY.search(text)
    memory = read_out_of_memory(text) if ended else None
    if ended and memory is not None and (first is None or _line(text, ended.start())[0] < first[0]):
        return Trace(
            id="oom",
            where="memory",
            what=memory.what(),
            remedy=memory.remedy(trl),
            quoted=one_line(_line(text, ended.start())[1], 400),
            memory=memory,
        )
    return first[1] if first else None


def _matches(text: str, *, warnings: bool = False) -> Iterator[tuple[int, Trace]]:
    """One trace per row that matches, in the order of the rows, and where its line begins."""
    for row, pattern in _COMPILED:
        if row.warning is not warnings:
            continue
        found = next((each for each in pattern.finditer(text) if not _is_source(text, each)), None)
        if found is None:
            continue
        start, line = _line(text, found.start())
        quoted = one_line(line, 200)
        words = {name: one_line(value or "", 120) for name, value in found.groupdict().items()}
        words |= {"quoted": f"{quoted.rstrip('.')}.", "advice": _advice(words.get("key", ""))}
        own = _own_line(text[:start]) if row.where == "@" else ""
        yield (
            start,
            Trace(
                id=row.id,
                where=own or row.where.replace("@", "project").format(**words),
                what=row.what.format(**words),
                remedy=row.remedy.format(**words),
                quoted=one_line(line, 400),
            ),
        )


def _line(text: str, place: int) -> tuple[int, str]:
    """Where the line at `place` begins, and the line."""
    start = text.rfind("\n", 0, place) + 1
    return start, text[start:].partition("\n")[0]


def _is_source(text: str, found: re.Match[str]) -> bool:
    """It stands in a line of source that a traceback shows: what may be raised there, not what was."""
    start = _line(text, found.start())[0]
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : start]
    return text[start : start + 4] == "    " and re.match(r'.*File "[^"]+", line \d+', before) is not None


def _advice(key: str) -> str:
    """What to do with a key of another version."""
    old = OLD_KEYS.get(key)
    if old is None:
        return "Take it out of config.toml: `grpo-tui check` says what may be meant."
    return f"Write {old.new} instead. {old.reason}" if old.new else f"Take it out. {old.reason}"


def _own_line(stack: str) -> str:
    """File name and line of the innermost frame in code that is no library's; empty: there is none."""
    own = [each for each in _FRAME.finditer(stack) if not _LIBRARIES.search(each["file"])]
    return _place(own[-1]) if own else ""


def _place(frame: re.Match[str]) -> str:
    return f"{one_line(PurePath(frame['file']).name, 60)}:{frame['line']}"


def _reward_in(frames: Sequence[re.Match[str]]) -> str:
    """Name of the user's reward function in which it happened, as TRL (1.16) calls it; empty: in none."""
    calls = [number for number, each in enumerate(frames) if each["name"] in ("_calculate_rewards", "_invoke_async")]
    inside = [each for each in frames[calls[-1] + 1 :] if not _LIBRARIES.search(each["file"])] if calls else []
    # train.py may call it by a wrapper that gives it its name or passes over rows without an answer.
    own = [each for each in inside if PurePath(each["file"]).name != "train.py"] or inside
    return one_line(own[0]["name"], 60) if own else ""


def _unknown(chain: str) -> Trace | None:
    """What an exception that no row knows says of itself; where one was the cause of the next, the cause."""
    chain = chain.partition(_CAUSED)[0]
    frames = list(_FRAME.finditer(chain))
    after = chain[frames[-1].end() :] if frames else chain.partition("\n")[2]
    ended = next((each for each in _LAST_LINE.finditer(after) if not each["kind"].startswith("File")), None)
    if ended is None:
        return None
    kind, said = ended["kind"].rpartition(".")[2], one_line(ended["said"] or "", 400)
    own = [each for each in frames if not _LIBRARIES.search(each["file"])]
    place = own[-1] if own else frames[-1] if frames else None
    where = _place(place) if place else "training"
    reward = _reward_in(frames)
    raised = f"The reward {reward} raised" if reward else "It ended with"
    what = said if kind == "SystemExit" else f"{raised} {kind}{': ' if said else ''}{said}"
    line = one_line(place["text"] or "", 160) if place else ""
    remedy = f"Correct the line: {line}" if line and kind != "SystemExit" else "Correct it there, and try again."
    if reward:
        remedy += "; TRL catches no exception of a reward, so return None where none can be given."
    return Trace(
        id="",
        where=where,
        what=f"{what.rstrip('.')}.",
        remedy=remedy,
        quoted=one_line(f"{kind}: {said}", 400),
    )
