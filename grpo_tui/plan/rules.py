"""The table of rules: how each value of the configuration is found, with its reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpo_tui.draft import Draft, RewardsAnswer
from grpo_tui.plan.situation import LIBRARY, MEMORY_SHARE, PUBLISHED, RECIPE, RULE, USER, Choice, Situation

TINY_PARAMETERS = 50_000_000
"""Below this, learning rates of large models barely move the weights. Rule of thumb, measured on a 0.1 M model."""

Decide = Callable[[Situation], Choice | None]


@dataclass(frozen=True)
class Rule:
    """How one value is found."""

    key: str
    what: str
    decide: Decide


def _always(value: Any, why: str, source: str) -> Decide:
    return lambda _: Choice(value, why, source)


def _answer(read: Callable[[Draft], Any], why: str = "You chose it.") -> Decide:
    def decide(situation: Situation) -> Choice | None:
        value = read(situation.draft)
        if not value:
            return None
        recipes = situation.facts.recipe_draft
        if recipes is not None and read(recipes) == value:
            return Choice(value, "It came with the recipe.", RECIPE)
        return Choice(value, why, USER)

    return decide


def _rate(s: Situation) -> Choice:
    if s.parameters < TINY_PARAMETERS:
        return Choice(5e-5, "A model this small barely moves at the rates of large ones.", RULE)
    if s.method == "full":
        return Choice(1e-6, "All weights are trained: TRL's default, and what published full runs use.", PUBLISHED)
    return Choice(1e-5, "An adapter takes ten times the rate of a full run (TRL's PEFT guide).", PUBLISHED)


def _bf16(s: Situation) -> Choice:
    if s.cpu:
        return Choice(False, "The CPU computes in float32; TRL would turn bf16 on by itself.", RULE)
    if s.bf16:
        unknown = " (its capability is not known, so Ampere or newer is assumed)" if s.capability is None else ""
        return Choice(True, f"The GPU has bfloat16 from compute capability 8.0 on{unknown}.", RULE)
    return Choice(False, "GPUs below compute capability 8.0 only emulate bfloat16, slowly.", RULE)


def _fp16(s: Situation) -> Choice:
    if s.cpu or s.bf16:
        return Choice(False, "bf16 or float32 is used, and only one of the two can be on.", RULE)
    return Choice(True, "The GPU has no bfloat16. float16 is less stable in GRPO: watch grad_norm.", RULE)


def _checkpointing(s: Situation) -> Choice:
    if s.checkpointing:
        return Choice(True, "It saves most of the activations' memory for about a fifth more time (TRL).", LIBRARY)
    return Choice(False, "The model is small and everything fits without: no recomputation.", RULE)


def _optimizer(s: Situation) -> Choice:
    if "8bit" in s.optim:
        return Choice(s.optim, "States in 8 bit take a quarter of the memory; all weights are trained.", RULE)
    return Choice(s.optim, "The default of transformers; its fused kernel needs no temporary memory.", LIBRARY)


def _per_device(s: Situation) -> Choice:
    if s.cpu:
        why = "Completions learnt from at a time; with accumulation they make up the batch."
    elif s.speed:
        why = "The largest power of two that fits the card with a margin."
    else:
        why = f"A power of two that leaves at least {1 - MEMORY_SHARE:.0%} of the card free, or 1."
    return Choice(s.batch.per_device, why, RULE)


def _accumulation(s: Situation) -> Choice:
    prompts = f"{s.batch.prompts_per_step:g} prompts"
    return Choice(
        s.batch.accumulation, f"Makes {s.batch.words()}: {prompts} a step keep the gradient's noise down.", RULE
    )


def _steps_per_generation(s: Situation) -> Choice | None:
    if s.batch.steps_per_generation == s.batch.accumulation or "grpo.generation_batch_size" in s.given:
        return None
    return Choice(
        s.batch.steps_per_generation,
        f"Only {s.batch.generated_per_device} completions a device are generated at a time, which keeps the cache"
        f" small.",
        RULE,
    )


def _generations(s: Situation) -> Choice:
    return Choice(
        s.batch.generations,
        "TRL's default, and that of several published runs; take 16 where the model is seldom right.",
        PUBLISHED,
    )


def _evaluated(value: Any, why: str) -> Decide:
    """A value that is set only where prompts are kept apart."""
    return lambda situation: Choice(value, why, RULE) if situation.draft.dataset.eval_share else None


def _eval_steps(s: Situation) -> Choice | None:
    if not s.draft.dataset.eval_share:
        return None
    steps = max(1, s.steps // 5) if s.steps else 100
    return Choice(steps, "Five times over the run, or every 100: each trial completes every prompt kept apart.", RULE)


def _eval_batch(s: Situation) -> Choice | None:
    if not s.draft.dataset.eval_share:
        return None
    return Choice(s.batch.generations, "Whole groups, as TRL wants them.", RULE)


def _save_steps(s: Situation) -> Choice:
    if s.steps:
        return Choice(
            max(1, min(100, s.steps // 4)), f"Four times over the run of {s.steps} steps, or every 100.", RULE
        )
    return Choice(50, "A crash costs 50 steps at most.", RULE)


def _warmup(s: Situation) -> Choice:
    return Choice(0.05, "The first 5 % of the steps, while the optimizer's averages settle.", RULE)


def _epochs(s: Situation) -> Choice | None:
    limit = s.wanted("grpo.max_steps", -1)
    if isinstance(limit, int) and limit > 0:
        return None
    return Choice(1.0, "Each prompt once; GRPO learns from fresh completions, not from repetition.", RULE)


def _use_cpu(s: Situation) -> Choice:
    if s.cpu:
        return Choice(True, "No GPU was chosen.", USER)
    return Choice(False, "Training runs on the GPU.", USER)


def _pin_memory(s: Situation) -> Choice | None:
    return Choice(False, "Only transfers to a GPU profit from it.", RULE) if s.cpu else None


def _dtype(s: Situation) -> Choice:
    reasons = {
        "bfloat16": "Half the memory of float32, which TRL would load by default."
        + (" Steps of 1e-6 are partly lost to rounding: float32 did not fit." if s.method == "full" else ""),
        "float16": "The GPU has no bfloat16.",
        "float32": "Small steps need its precision when all weights are trained." if s.cards else "The CPU's own type.",
    }
    return Choice(s.dtype, reasons[s.dtype], RULE)


def _four_bit(s: Situation) -> Choice | None:
    return Choice(True, s.method_why, RULE) if s.method == "qlora" else None


def _attention(s: Situation) -> Choice:
    return Choice("sdpa", "Built into torch, works everywhere; flash attention must be installed first.", RULE)


def _adapter(value: Any, why: str, source: str) -> Decide:
    return lambda s: None if s.method == "full" else Choice(value, why, source)


def _gpus(s: Situation) -> Choice | None:
    ids = [card.uuid for card in s.cards if card.uuid]
    return Choice(ids, "You chose them.", USER) if ids and not _elsewhere(s) else None


def _elsewhere(s: Situation) -> bool:
    """Slurm, not the user, says on which GPUs the training will run."""
    return bool(s.wanted("launch.slurm", False)) or s.wanted("launch.nodes", 1) > 1


def _server_gpus(s: Situation) -> Choice | None:
    ids = [card.uuid for card in s.server if card.uuid]
    return Choice(ids, "The last ones you chose.", RULE) if ids and not _elsewhere(s) else None


def _strategy(s: Situation) -> Choice | None:
    if s.cpu or s.world == 1:
        return None
    if s.strategy == "ddp":
        return Choice("ddp", "Everything fits on each GPU, and nothing is sent around but gradients.", RULE)
    return Choice(s.strategy, "It does not fit one GPU, so the GPUs share out weights, gradients and states.", RULE)


def _rewards_file(s: Situation) -> Choice | None:
    file = s.draft.rewards.file
    return None if file == RewardsAnswer().file else Choice(file, "You named it.", USER)


def _threads(s: Situation) -> Choice | None:
    if not s.cpu:
        return None
    if s.parameters < TINY_PARAMETERS:
        return Choice(1, "On a model this small several threads wait for each other more than they compute.", RULE)
    return Choice(max(1, s.facts.processors - 1), "All processors but one, which the terminal needs.", RULE)


def _maximum_prompt(s: Situation) -> Choice | None:
    limit = s.draft.dataset.prompt_limit
    return Choice(limit, "You chose it.", USER) if limit else None


def _vllm(s: Situation) -> Choice:
    if s.vllm != "off":
        return Choice(True, "You chose it: it generates many times faster and keeps its own copy of the weights.", USER)
    return Choice(False, "Completions are generated by transformers itself, which needs no second copy.", LIBRARY)


def _with_vllm(value: Callable[[Situation], Any], why: str, mode: str = "") -> Decide:
    """A value for when vLLM generates: in any mode, or in one."""

    def decide(s: Situation) -> Choice | None:
        return None if s.vllm == "off" or (mode and s.vllm != mode) else Choice(value(s), why, RULE)

    return decide


RULES: tuple[Rule, ...] = (
    Rule("model.name", "Hub id, or a folder.", _answer(lambda d: d.model.name)),
    Rule("model.revision", "Commit, tag or branch of the hub's repository.", _answer(lambda d: d.model.revision)),
    Rule("model.dtype", "Number type of the loaded weights.", _dtype),
    Rule("model.load_in_4bit", "Loads the weights in 4 bit (QLoRA).", _four_bit),
    Rule("model.attn_implementation", "Which attention code is used.", _attention),
    Rule("data.file", "File, folder or hub id of the rows.", _answer(lambda d: d.dataset.source)),
    Rule("data.split", "Which part of the source.", _answer(lambda d: d.dataset.split)),
    Rule("data.options", "How the file is read.", _answer(lambda d: dict(d.dataset.options), "Found in the file.")),
    Rule("data.prompt", "Column of the prompt.", _answer(lambda d: d.dataset.prompt)),
    Rule("data.answer", "Column of the right answer.", _answer(lambda d: d.dataset.answer)),
    Rule("data.system", "System prompt put before every prompt.", _answer(lambda d: d.dataset.system)),
    Rule("data.extract", "How the answer is taken out of its column.", _answer(lambda d: d.dataset.extract)),
    Rule("data.extract_argument", "What that rule needs.", _answer(lambda d: d.dataset.extract_argument)),
    Rule("data.plain", "Prompts stay plain text.", _answer(lambda d: d.dataset.plain)),
    Rule(
        "data.convert_plain",
        "Plain-text prompts become one user message.",
        _answer(lambda d: d.dataset.convert_plain),
    ),
    Rule("data.faults", "What becomes of faulty rows, by kind.", _answer(lambda d: dict(d.dataset.faults))),
    Rule(
        "data.examples",
        "Worked examples put behind the system prompt.",
        _answer(lambda d: [{"question": each.question, "answer": each.answer} for each in d.dataset.examples]),
    ),
    Rule("data.eval_share", "Share of the prompts kept apart from training.", _answer(lambda d: d.dataset.eval_share)),
    Rule("data.seed", "Which prompts those are.", _answer(lambda d: d.dataset.seed if d.dataset.eval_share else 0)),
    Rule("data.max_prompt_tokens", "Longer prompts are left out.", _maximum_prompt),
    Rule("lora.r", "Rank of the adapter.", _adapter(16, "Enough for RL, where little is stored per step.", PUBLISHED)),
    Rule("lora.lora_alpha", "Scale of the adapter.", _adapter(32, "Twice the rank, TRL's own default.", LIBRARY)),
    Rule("lora.lora_dropout", "Dropout inside it.", _adapter(0.0, "Sampling is noise enough.", RULE)),
    Rule(
        "lora.target_modules",
        "Which layers get an adapter.",
        _adapter("all-linear", "Every linear layer but the head, whatever their names.", PUBLISHED),
    ),
    Rule("grpo.per_device_train_batch_size", "Completions per process and micro-step.", _per_device),
    Rule("grpo.gradient_accumulation_steps", "Micro-steps per optimizer step.", _accumulation),
    Rule("grpo.num_generations", "Completions per prompt, compared with one another.", _generations),
    Rule("grpo.steps_per_generation", "Micro-steps that one generation feeds.", _steps_per_generation),
    Rule(
        "grpo.max_completion_length",
        "Tokens after which a completion is cut.",
        lambda s: Choice(s.completion, s.completion_why, RULE),
    ),
    Rule("grpo.eval_strategy", "When the prompts kept apart are tried.", _evaluated("steps", "Now and then.")),
    Rule("grpo.eval_steps", "Steps between two such trials.", _eval_steps),
    Rule("grpo.per_device_eval_batch_size", "Completions per process and trial step.", _eval_batch),
    Rule("grpo.learning_rate", "Size of a step.", _rate),
    Rule(
        "grpo.lr_scheduler_type",
        "How the learning rate changes over the run.",
        _always("constant_with_warmup", "Learning does not end because the rate has run down to 0.", RULE),
    ),
    Rule("grpo.warmup_steps", "Steps in which the rate rises; below 1, a share of all steps.", _warmup),
    Rule("grpo.num_train_epochs", "Passes over the prompts.", _epochs),
    Rule(
        "grpo.max_grad_norm",
        "Longer gradients are shortened to this.",
        _always(1.0, "It bounds one bad step.", LIBRARY),
    ),
    Rule("grpo.optim", "The optimizer.", _optimizer),
    Rule(
        "grpo.loss_type",
        "How tokens are averaged in the loss.",
        _always("dapo", "Long and short completions count per token, without a length bias (DAPO).", PUBLISHED),
    ),
    Rule(
        "grpo.scale_rewards",
        "What advantages are divided by.",
        _always("group", "The spread within each prompt's group, as in the GRPO paper.", LIBRARY),
    ),
    Rule(
        "grpo.beta",
        "Weight of the KL term against the first model.",
        _always(0.0, "Published runs since DAPO do without, and no second model is loaded.", PUBLISHED),
    ),
    Rule(
        "grpo.temperature",
        "How freely completions are sampled.",
        _always(1.0, "Groups need completions that differ; 1 samples the model as it is.", LIBRARY),
    ),
    Rule("grpo.use_cpu", "Trains on the CPU.", _use_cpu),
    Rule("grpo.bf16", "Computes in bfloat16.", _bf16),
    Rule("grpo.fp16", "Computes in float16.", _fp16),
    Rule("grpo.activation_checkpointing", "Recomputes activations instead of keeping them.", _checkpointing),
    Rule("grpo.use_vllm", "Generates with vLLM.", _vllm),
    Rule(
        "grpo.vllm_mode",
        "Where vLLM runs.",
        _with_vllm(lambda s: s.vllm, "On the training's own GPUs (colocate), or on others (server)."),
    ),
    Rule(
        "grpo.vllm_max_model_length",
        "Tokens of the longest sequence vLLM makes room for.",
        _with_vllm(lambda s: s.prompt + s.completion, "The longest prompt and a full completion; no more is held."),
    ),
    Rule(
        "grpo.vllm_server_host",
        "Where the server listens.",
        _with_vllm(lambda s: "127.0.0.1", "Its weights can be set by whoever reaches it: this machine only.", "server"),
    ),
    Rule(
        "grpo.vllm_server_timeout",
        "Seconds to wait for the server.",
        _with_vllm(lambda s: 1200.0, "Loading a large model and capturing its graphs takes minutes.", "server"),
    ),
    Rule("grpo.logging_steps", "Steps between two rows.", _always(1, "The monitor shows every step.", RULE)),
    Rule(
        "grpo.logging_nan_inf_filter",
        "Hides losses that are not finite.",
        _always(False, "A NaN must be seen.", RULE),
    ),
    Rule(
        "grpo.log_completions",
        "Keeps completions as files.",
        _always(True, "What is rewarded must be read, not only counted.", RULE),
    ),
    Rule(
        "grpo.num_completions_to_print",
        "Completions printed at each step.",
        _always(0, "They are in files; the log stays readable.", RULE),
    ),
    Rule("grpo.disable_tqdm", "No progress bar.", _always(True, "It would fill the log file.", RULE)),
    Rule(
        "grpo.report_to",
        "Trackers that get the figures.",
        _always("none", "Nothing leaves this machine unless you name one.", RULE),
    ),
    Rule("grpo.save_strategy", "When checkpoints are written.", _always("steps", "At regular steps.", LIBRARY)),
    Rule("grpo.save_steps", "Steps between two checkpoints.", _save_steps),
    Rule(
        "grpo.save_total_limit",
        "Checkpoints that are kept.",
        _always(3, "The newest three, to spare the disk.", RULE),
    ),
    Rule("grpo.dataloader_pin_memory", "Keeps batches in pinned memory.", _pin_memory),
    Rule("grpo.seed", "Start of all random numbers.", _always(42, "Any number; the same one repeats a run.", LIBRARY)),
    Rule(
        "launch.processes",
        "Training processes, one per GPU.",
        lambda s: Choice(s.world, "One per chosen GPU." if s.cards else "One on the CPU.", RULE),
    ),
    Rule("launch.nodes", "Machines that train together, under Slurm.", lambda s: None),
    Rule("launch.slurm", "Writes train.sbatch for one machine too.", lambda s: None),
    Rule("launch.strategy", "How the processes divide the training.", _strategy),
    Rule(
        "launch.vllm",
        "Where vLLM generates: colocate or server.",
        _with_vllm(lambda s: s.vllm, "As use_vllm and vllm_mode in [grpo] say."),
    ),
    Rule(
        "launch.vllm_gpus",
        "GPUs that the vLLM server has for itself.",
        lambda s: Choice(len(s.server), "Training has the others.", RULE) if s.server else None,
    ),
    Rule("launch.vllm_devices", "These GPUs, by UUID.", _server_gpus),
    Rule("launch.gpus", "GPUs by UUID, in the order training numbers them.", _gpus),
    Rule("launch.rewards_file", "File of the reward functions.", _rewards_file),
    Rule("launch.threads", "Threads of the CPU that torch uses.", _threads),
    Rule(
        "launch.notify_command",
        "Run when training ends.",
        _answer(lambda d: d.settings.notify_command),
    ),
)
