"""From the answers and the facts to a plan: a table of small rules, each value with its reason.

First the core is searched, what depends on memory: method, number type, batch, checkpointing. Then each rule of RULES
gives one value from what is known. A recipe's value goes before a rule's, and the user's before both; the core is
searched around them, and everything is checked again at the end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_tui.draft import Draft, RewardsAnswer
from grpo_tui.inert import one_line
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.dialect import (
    LIBRARY_DEFAULT,
    LIBRARY_SECTIONS,
    OLD_KEYS,
    Schema,
    bad_choice,
    renamed,
    spelled,
    spelling,
    unknown_key,
)
from grpo_tui.plan.memory import GIB, METHODS, Memory, predict
from grpo_tui.plan.model import ModelFacts
from grpo_tui.plan.plan import SECTIONS, Plan, Setting
from grpo_tui.problem import Problem

MEASURED, LIBRARY, PUBLISHED, RULE, USER, RECIPE = (
    "measured here",
    "library default",
    "published",
    "rule of thumb",
    "set by you",
    "recipe",
)

SMALL_PARAMETERS = 300_000_000
"""Below this, all weights are trained: an adapter would save little memory. Rule of thumb."""

TINY_PARAMETERS = 50_000_000
"""Below this, learning rates of large models barely move the weights. Rule of thumb, measured on a 0.1 M model."""

AMPERE = (8, 0)
"""Compute capability from which a GPU has bfloat16 (NVIDIA; transformers 5.24 asks torch the same)."""

PROMPTS_PER_STEP = 8
"""Prompts that one optimizer step should learn from; below 4 the gradient is very noisy. Rule of thumb."""

_PER_DEVICE = (32, 16, 8, 4, 2, 1)
_MEMORY_SHARE = 0.6
"""With `memory` preferred, the batch is the largest that stays under this share of the card."""

_UNIFIED_SHARE, _UNIFIED_BYTES = 0.1, 2 * GIB
"""What is left free of memory that GPU and CPU share: this share of all of it, and this much at the least.

The training's own process (0.6 GiB), the system and every other program take theirs from it, and where it runs out the
kernel ends a process instead of CUDA raising an error. Rule of thumb.
"""

DEFAULT_PROMPT_TOKENS = 512
"""Taken as the longest prompt where lengths were not measured."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One GPU, as plain numbers."""

    name: str = ""
    uuid: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    capability: tuple[int, int] | None = None
    unified: bool = False
    """It shares the machine's memory; total and free are those of the machine."""

    @property
    def reserve_bytes(self) -> int:
        """What the plan leaves to others, beside its own margin."""
        return max(int(_UNIFIED_SHARE * (self.total_bytes or 0)), _UNIFIED_BYTES) if self.unified else 0

    @property
    def budget_bytes(self) -> int | None:
        """What the plan may fill; None: not known."""
        return max(1, self.free_bytes - self.reserve_bytes) if self.free_bytes else None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A value that a recipe wants, and why."""

    value: Any
    why: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about this machine, this model and these data."""

    model: ModelFacts
    schema: Schema
    cards: tuple[Card, ...] = ()
    """The chosen GPUs; empty: training runs on the CPU."""

    ram_bytes: int = 0
    """Main memory that is available; 0: not known."""

    processors: int = 1
    rows: int | None = None
    """Usable rows; None: not counted yet."""

    longest_prompt: int = 0
    """Tokens of the longest prompt that is kept; 0: not measured."""

    packages: frozenset[str] = frozenset()
    """Optional packages that are installed: `bitsandbytes`, `vllm`, `flash_attn`, `wandb`, ..."""

    recipe: Mapping[str, Advice] = field(default_factory=dict)
    """Settings the recipe wants: fields of `GRPOConfig`."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the source's file beyond the answers, as keys of [data]: `format`."""


@dataclass(frozen=True)
class Choice:
    """A value, with its reason."""

    value: Any
    why: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything a rule may look at."""

    draft: Draft
    facts: Facts
    given: Mapping[str, Choice]
    """Values that are set already, by the user or the recipe, by dotted key."""

    cards: tuple[Card, ...]
    method: str
    method_why: str
    dtype: str
    batch: Batch
    completion: int
    completion_why: str
    prompt: int
    checkpointing: bool
    optim: str
    memory: Memory
    available: int

    @property
    def cpu(self) -> bool:
        return not self.cards

    @property
    def world(self) -> int:
        """Training processes: one per card, or as many as were asked for on the CPU."""
        return len(self.cards) or int(self.wanted("launch.processes", 1))

    @property
    def capability(self) -> tuple[int, int] | None:
        """That of the oldest card; None where no card says it."""
        return min((card.capability for card in self.cards if card.capability), default=None)

    @property
    def bf16(self) -> bool:
        return bool(self.cards) and (self.capability or AMPERE) >= AMPERE

    @property
    def parameters(self) -> int:
        return self.facts.model.shape.parameters

    @property
    def speed(self) -> bool:
        return self.draft.settings.prefer == "speed"

    def wanted(self, key: str, default: Any) -> Any:
        """The given value of a dotted key, else `default`."""
        return self.given[key].value if key in self.given else default

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run; 0: not known."""
        limit = self.wanted("grpo.max_steps", -1)
        if isinstance(limit, int) and limit > 0:
            return limit
        if self.facts.rows is None:
            return 0
        epochs = self.wanted("grpo.num_train_epochs", 1.0)
        return int(float(epochs) * self.batch.steps_per_epoch(self.facts.rows))


_LEFT = "Library default: you left it to the library."
"""Why a value is there that the user gave back to the library, with LIBRARY_DEFAULT."""

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
        if situation.draft.task.recipe:
            return Choice(value, "It came with the recipe, or you chose it instead.", RECIPE)
        return Choice(value, why, USER)

    return decide


# --------------------------------------------------------------------------------------------------------- rules


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
        why = f"The largest power of two that leaves {1 - _MEMORY_SHARE:.0%} of the card free, or 1."
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
    return Choice(ids, "You chose them.", USER) if ids else None


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
    limit = s.draft.dataset.max_prompt_tokens
    return Choice(limit, "You chose it.", USER) if limit else None


def _vllm(s: Situation) -> Choice:
    return Choice(False, "Completions are generated by transformers itself, which needs no second copy.", LIBRARY)


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
    Rule("launch.gpus", "GPUs by UUID, in the order training numbers them.", _gpus),
    Rule("launch.rewards_file", "File of the reward functions.", _rewards_file),
    Rule("launch.threads", "Threads of the CPU that torch uses.", _threads),
    Rule(
        "launch.notify_command",
        "Run when training ends.",
        _answer(lambda d: d.settings.notify_command),
    ),
)


# ---------------------------------------------------------------------------------------------------------- core


def _advised(facts: Facts) -> tuple[dict[str, Choice], list[str]]:
    """What the recipe sets, by dotted key, and what is to be said of it: it was written for some other version."""
    given: dict[str, Choice] = {}
    notes = []
    for asked, advice in facts.recipe.items():
        key, value = renamed(asked, advice.value, facts.schema)
        wrong = unknown_key(key, facts.schema)
        if wrong is not None:
            notes.append(f"The recipe's {one_line(asked, 60)} is left out. {wrong.what}")
        elif key == asked or key not in facts.recipe:
            given[f"grpo.{key}"] = Choice(value, advice.why, RECIPE)
            if key != asked:
                reason = OLD_KEYS[asked].reason if asked in OLD_KEYS else "The installed version calls it so."
                notes.append(f"The recipe's {asked} is written as {key}. {reason}")
    return given, notes


def _given(draft: Draft, facts: Facts) -> tuple[dict[str, Choice], list[str], list[Problem]]:
    """What recipe and user set, by dotted key; the user goes before the recipe. Then what is to be said of it."""
    given, notes = _advised(facts)
    problems: list[Problem] = []
    known_keys = {rule.key for rule in RULES}
    for dotted, value in draft.settings.overrides.items():
        section, _, key = dotted.partition(".")
        if section in LIBRARY_SECTIONS and value == LIBRARY_DEFAULT:
            declared = facts.schema.field(section, key)
            if declared is not None:
                given[f"{section}.{declared.name}"] = Choice(declared.default, _LEFT, USER)
                if declared.default is None:
                    notes.append(f"{dotted} is not set: library default, set by you.")
            continue
        if section == "grpo":
            key, value = spelled(key, value, facts.schema)
            wrong = unknown_key(key, facts.schema) or bad_choice(key, value, facts.schema)
            if wrong is not None:
                problems.append(wrong)
                continue
        elif section == "lora" and facts.schema.lora and key not in facts.schema.lora:
            problems.append(Problem(dotted, "peft.LoraConfig does not know this key.", "Leave it out."))
            continue
        elif section not in SECTIONS or (section in ("model", "launch") and dotted not in known_keys):
            problems.append(Problem(dotted, "The configuration has no such key.", "Leave it out."))
            continue
        given[f"{section}.{key}"] = Choice(value, "You set it.", USER)
    for one, other in (("grpo.max_steps", "grpo.num_train_epochs"), ("grpo.num_train_epochs", "grpo.max_steps")):
        # The length is said once: the user's way of saying it ends the recipe's, and what was left to the library.
        if one in given and other in given and _is_weak(given[other]) and not _is_weak(given[one]):
            del given[other]
    return given, notes, problems


def _is_weak(choice: Choice) -> bool:
    """Gives way to what the user set otherwise: a recipe's value, or one left to the library."""
    return choice.source == RECIPE or choice.why == _LEFT


def cards_of(draft: Draft, facts: Facts) -> tuple[Card, ...] | Problem:
    """The GPUs to plan for: typed by hand, or those of this machine."""
    hardware = draft.hardware
    if hardware.manual_bytes:
        capability = None
        if hardware.manual_capability:
            major, _, minor = hardware.manual_capability.partition(".")
            if not (major.isdigit() and (minor or "0").isdigit()):
                return Problem(
                    "hardware",
                    f"{hardware.manual_capability!r} is no compute capability.",
                    "Write it as 8.0, or leave it empty.",
                )
            capability = (int(major), int(minor or 0))
        card = Card(
            name=hardware.manual_name or "typed by hand",
            total_bytes=hardware.manual_bytes,
            free_bytes=hardware.manual_bytes,
            capability=capability,
        )
        return (card,) * max(1, hardware.manual_count)
    return () if hardware.cpu else facts.cards


def _with_processes(cards: tuple[Card, ...], given: Mapping[str, Choice]) -> tuple[Card, ...] | Problem:
    """Those of `cards` that are used when the number of processes was set by hand."""
    choice = given.get("launch.processes")
    if choice is None:
        return cards
    number = choice.value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        return Problem("launch.processes", f"{number!r} is no number of processes.", "Write one, such as 1.")
    if cards and number > len(cards):
        return Problem(
            "launch.processes", f"{number} processes need as many GPUs, and {len(cards)} are chosen.", "Choose more."
        )
    return cards[:number]


def _methods(draft: Draft, facts: Facts, gpu: bool, ampere: bool) -> list[tuple[str, str]] | Problem:
    """Methods to try in this order, each with its reason."""
    shape = facts.model.shape
    chosen = draft.model.method
    if chosen and chosen not in METHODS:
        return Problem("model", f"There is no method {chosen!r}.", f"Choose one of {', '.join(METHODS)}.")
    if shape.quantized:
        if chosen in ("full", "qlora"):
            return Problem(
                "model",
                f"The weights are saved quantised ({shape.quantized}), so {chosen} training cannot start from them.",
                "Choose LoRA, or the model's unquantised weights.",
            )
        return [("lora", "The saved weights are quantised: only an adapter can be trained on them.")]
    if chosen == "qlora":
        blocked = _no_four_bit(facts, gpu, ampere)
        if blocked:
            return Problem("model", blocked, "Choose LoRA, or mend that first.")
    if chosen:
        return [(chosen, "You chose it.")]
    methods = [("lora", "An adapter takes a fraction of the memory and learns as well in RL (TRL's PEFT guide).")]
    if not _no_four_bit(facts, gpu, ampere):
        methods.append(("qlora", "The model fits the card only in 4 bit."))
    if shape.parameters < SMALL_PARAMETERS:
        methods.insert(0, ("full", "The model is small: an adapter would save little."))
    return methods


def _no_four_bit(facts: Facts, gpu: bool, ampere: bool) -> str:
    """Why loading in 4 bit is not possible; empty: it is."""
    if not gpu:
        return "Loading in 4 bit (QLoRA) needs an NVIDIA GPU."
    if "bitsandbytes" not in facts.packages:
        return "Loading in 4 bit (QLoRA) needs the package bitsandbytes, which is not installed."
    if not ampere:
        # TRL 1.16 casts adapters of a 4-bit model to bfloat16, whose gradients float16's loss scaling cannot handle.
        return "QLoRA needs a GPU with bfloat16, compute capability 8.0 or newer."
    return ""


def _dtypes(method: str, gpu: bool, ampere: bool) -> tuple[str, ...]:
    if not gpu:
        return ("float32",)
    if method == "full":  # float32 first: bfloat16 alone rounds steps of 1e-6 away
        return ("float32", "bfloat16") if ampere else ("float32",)
    return ("bfloat16",) if ampere else ("float16",)


def _completion(facts: Facts, given: Mapping[str, Choice], prompt: int) -> tuple[int, str] | Problem:
    """Longest completion, and why."""
    wanted = given.get("grpo.max_completion_length")
    context = facts.model.shape.context
    if wanted is not None and wanted.value is not None:
        if isinstance(wanted.value, bool) or not isinstance(wanted.value, int) or wanted.value < 1:
            return Problem(
                "grpo.max_completion_length", f"{wanted.value!r} is no number of tokens.", "Write one, such as 512."
            )
        if context and prompt + wanted.value > context:
            return Problem(
                "grpo.max_completion_length",
                f"A prompt of {prompt} tokens and a completion of {wanted.value} do not fit the model's {context}.",
                f"Set it to {max(1, context - prompt)} or less, or leave long prompts out.",
            )
        return wanted.value, wanted.why
    if context and context - prompt < 512:
        if context <= prompt:
            return Problem(
                "data",
                f"The longest prompt has {prompt} tokens and the model reads {context}.",
                "Set a limit of prompt tokens in the dataset step, so that long ones are left out.",
            )
        return context - prompt, f"What the model's {context} tokens leave beside the longest prompt ({prompt})."
    return 512, "TRL's default. Raise it when many completions are cut off (clipped share)."


def _batches(given: Mapping[str, Choice], world: int, rows: int | None, speed: bool) -> Iterator[Batch]:
    """Legal batches around what is given, in the order in which they are wanted."""

    def number(key: str) -> int | None:
        choice = given.get(f"grpo.{key}")
        return choice.value if choice is not None and isinstance(choice.value, int) else None

    generations = number("num_generations") or 8
    fixed_device, fixed_accumulation = number("per_device_train_batch_size"), number("gradient_accumulation_steps")
    fixed_steps, fixed_size = number("steps_per_generation"), number("generation_batch_size")
    iterations = number("num_iterations") or 1
    target = PROMPTS_PER_STEP if rows is None else max(1, min(PROMPTS_PER_STEP, rows))
    for per_device in (fixed_device,) if fixed_device else _PER_DEVICE:
        micro = per_device * world
        if not fixed_device and micro > generations * target:
            continue
        if fixed_accumulation:
            accumulations: Iterable[int] = (fixed_accumulation,)
        else:
            least = -(-generations * target // micro)
            accumulations = (n for n in range(least, least + generations + 1) if micro * n % generations == 0)
        accumulation = next(iter(accumulations), None)
        if accumulation is None:
            continue
        if fixed_size:
            lengths = [fixed_size // micro] if fixed_size % micro == 0 else []
        elif "grpo.steps_per_generation" in given:  # unset, it is the accumulation
            lengths = [fixed_steps or accumulation]
        else:  # all at once is fastest; in parts that still hold whole groups, the cache is smaller
            parts = [n for n in range(1, accumulation + 1) if accumulation % n == 0 and micro * n % generations == 0]
            lengths = sorted(parts, reverse=speed)
        for steps in lengths:
            batch = Batch(
                per_device=per_device,
                world=world,
                accumulation=accumulation,
                generations=generations,
                steps_per_generation=steps,
                iterations=iterations,
            )
            if batch.generation_batch % generations == 0:
                yield batch


def _core_settings(given: Mapping[str, Choice], core: Situation) -> dict[str, Any]:
    """The fields of GRPOConfig that memory depends on."""
    settings: dict[str, Any] = {
        **core.batch.settings(),
        "max_completion_length": core.completion,
        "activation_checkpointing": core.checkpointing,
        "optim": core.optim,
        "bf16": core.bf16,
        "fp16": bool(core.cards) and not core.bf16,
    }
    names = ("beta", "optim", "bf16", "fp16", "activation_checkpointing", "gradient_checkpointing")
    settings |= {name: given[f"grpo.{name}"].value for name in names if f"grpo.{name}" in given}
    return settings


def _cores(base: Situation, methods: Iterable[tuple[str, str]]) -> Iterator[Situation]:
    """Situations in the order in which they are wanted, each with its memory."""
    given, facts = base.given, base.facts
    gpu, ampere = bool(base.cards), base.bf16
    rank = base.wanted("lora.r", 16)
    small = base.parameters < 1_000_000_000
    without = (False, True) if base.speed and small and gpu else (True,)
    for method, why in methods:
        for dtype in (base.given["model.dtype"].value,) if "model.dtype" in given else _dtypes(method, gpu, ampere):
            for checkpointing in without:
                for batch in _batches(given, base.world, facts.rows, base.speed):
                    eight_bit = method == "full" and not base.speed and gpu and "bitsandbytes" in facts.packages
                    core = replace(
                        base,
                        method=method,
                        method_why=why,
                        dtype=dtype,
                        batch=batch,
                        checkpointing=checkpointing,
                        optim="adamw_8bit" if eight_bit else "adamw_torch_fused",
                    )
                    memory = predict(
                        facts.model.shape,
                        method,
                        _core_settings(given, core),
                        core.world,
                        prompt_tokens=core.prompt,
                        rank=int(rank) if isinstance(rank, int) else 16,
                        dtype=dtype,
                        cpu=core.cpu,
                    )
                    yield replace(core, memory=memory)


def _pick(base: Situation, methods: list[tuple[str, str]]) -> Situation | None:
    """The first situation that fits; with memory preferred, of its method the first that leaves room."""
    if not base.available:
        return next(_cores(base, methods), None)
    for one in methods:
        fitting = [core for core in _cores(base, [one]) if core.memory.fits(base.available)]
        roomy = [core for core in fitting if core.memory.peak_bytes <= _MEMORY_SHARE * base.available]
        if fitting:
            smallest = min(fitting, key=lambda core: core.memory.peak_bytes)
            return fitting[0] if base.speed else (roomy[0] if roomy else smallest)
    return None


def _too_large(base: Situation, methods: list[tuple[str, str]]) -> Problem:
    """Nothing fits: how much is missing, and the nearest change that fits."""
    tried = list(_cores(base, methods))
    if not tried:
        return Problem("settings", "No batch can be made of the values that are set.", "Let some of them be chosen.")
    least = min(tried, key=lambda core: core.memory.peak_bytes)
    needed, there = least.memory.needed(base.available) / GIB, base.available / GIB
    device = "main memory" if base.cpu else f"{base.cards[0].name or 'the GPU'}"
    reserve = 0 if base.cpu else base.cards[0].reserve_bytes
    left = f" beyond the {reserve / GIB:.1f} GiB that are left to the system" if reserve else ""
    what = (
        f"The smallest that was tried ({least.method}, batch {least.batch.per_device}, {base.completion} tokens) needs"
        f" {needed:.1f} GiB and {device} has {there:.1f} GiB free{left}."
    )
    free = {key: choice for key, choice in base.given.items() if key not in _FREED}
    relaxed = replace(base, given=free)
    other = [(method, "") for method in ("lora", "qlora") if base.bf16 or method == "lora"]
    for words, situation, ways in (
        ("With the batch left to the tuning it fits", relaxed, methods),
        ("A LoRA adapter fits", relaxed, [("lora", "")]),
        ("QLoRA fits (pip install bitsandbytes)", relaxed, [one for one in other if one[0] == "qlora"]),
        *(
            (f"With max_completion_length = {length} it fits as {{method}}", replace(relaxed, completion=length), other)
            for length in (256, 128, 64)
            if length < base.completion
        ),
    ):
        found = next((core for core in _cores(situation, ways) if core.memory.fits(base.available)), None)
        if found is not None:
            return Problem("settings", what, words.format(method=found.method) + ".")
    cheapest = min(
        (core.memory.needed(base.available) for core in _cores(replace(relaxed, completion=64), other)), default=0
    )
    return Problem(
        "settings",
        what,
        f"Choose a smaller model, or a device with {cheapest / GIB:.0f} GiB free at the least.",
    )


_FREED = (
    "grpo.per_device_train_batch_size",
    "grpo.gradient_accumulation_steps",
    "grpo.steps_per_generation",
    "grpo.generation_batch_size",
    "grpo.beta",
    "model.dtype",
    "grpo.optim",
)


# ---------------------------------------------------------------------------------------------------------- tune


def tune(draft: Draft, facts: Facts) -> Plan | list[Problem]:
    """A complete plan from the answers and the facts, or everything that stands in its way."""
    given, notes, problems = _given(draft, facts)
    cards = cards_of(draft, facts)
    if not isinstance(cards, Problem):
        cards = _with_processes(cards, given)
    if isinstance(cards, Problem):
        return [*problems, cards]
    world = len(cards) or int(given["launch.processes"].value if "launch.processes" in given else 1)
    prompt = draft.dataset.max_prompt_tokens or facts.longest_prompt or DEFAULT_PROMPT_TOKENS
    if facts.longest_prompt:
        prompt = min(prompt, facts.longest_prompt)
    ampere = bool(cards) and (min((c.capability for c in cards if c.capability), default=AMPERE)) >= AMPERE
    methods = _methods(draft, facts, bool(cards), ampere)
    if isinstance(methods, Problem):
        problems.append(methods)
    completion = _completion(facts, given, prompt)
    if isinstance(completion, Problem):
        problems.append(completion)
    asked = {key.removeprefix("grpo."): choice.value for key, choice in given.items() if key.startswith("grpo.")}
    if problems or isinstance(methods, Problem) or isinstance(completion, Problem):
        return problems
    batches = list(_batches(given, world, facts.rows, draft.settings.prefer == "speed"))
    if not batches:
        found = arithmetic.read(asked, world)
        if isinstance(found, list):
            return found
        return [Problem("grpo.num_generations", "No batch holds whole groups of completions.", "Choose 8 of them.")]
    free = [card.budget_bytes for card in cards if card.budget_bytes] if cards else [facts.ram_bytes]
    base = Situation(
        draft=draft,
        facts=facts,
        given=given,
        cards=cards,
        method=methods[0][0],
        method_why=methods[0][1],
        dtype="float32",
        batch=batches[0],
        completion=completion[0],
        completion_why=completion[1],
        prompt=prompt,
        checkpointing=True,
        optim="adamw_torch_fused",
        memory=predict(facts.model.shape, "lora", {}, prompt_tokens=prompt),
        available=min(free, default=0),
    )
    situation = _pick(base, methods)
    if situation is None:
        return [_too_large(base, methods)]
    return _complete(situation, notes)


def _complete(situation: Situation, notes: Iterable[str]) -> Plan | list[Problem]:
    facts, draft = situation.facts, situation.draft
    settings = _settings(situation)
    grpo = {s.key.removeprefix("grpo."): s.value for s in settings if s.key.startswith("grpo.")}
    problems: list[Problem] = []
    for key, value in grpo.items():
        wrong = unknown_key(key, facts.schema) or bad_choice(key, value, facts.schema)
        if wrong is not None:
            problems.append(wrong)
    found = arithmetic.read(grpo, situation.world)
    if isinstance(found, list):
        return [*problems, *found]
    if facts.rows is not None:
        trap = arithmetic.too_few_rows(found, facts.rows)
        if trap is not None:
            problems.append(trap)
    if problems:
        return problems
    return Plan(
        settings=settings,
        rewards=draft.rewards.items,
        method=situation.method,
        world_size=situation.world,
        cpu=situation.cpu,
        batch=found,
        memory=situation.memory,
        available_bytes=situation.available,
        total_steps=situation.steps,
        capability=situation.capability,
        notes=(*_notes(situation, found), *notes),
        versions=facts.schema.versions,
    )


def _settings(situation: Situation) -> tuple[Setting, ...]:
    """Every value: the user's, else the recipe's, else the rule's; then what no rule knows."""
    schema = situation.facts.schema
    rest = dict(situation.given)
    settings = []
    for rule in RULES:
        section, _, name = rule.key.partition(".")
        key = f"grpo.{spelling(name, schema)}" if section == "grpo" else rule.key
        choice = rest.pop(key, None) or rest.pop(rule.key, None)
        if choice is None:
            choice = rule.decide(situation)
        if choice is None or choice.value is None:
            continue
        if section == "grpo":
            name, value = spelled(name, choice.value, schema)
            if name not in schema.fields:
                continue  # a default of ours that this version does not have; what the user sets was checked before
            choice = replace(choice, value=value)
            key = f"grpo.{name}"
        settings.append(Setting(key, choice.value, rule.what, choice.why, choice.source))
    for key, value in situation.facts.data.items():
        settings.append(Setting(f"data.{key}", value, "What the source is.", "Found there.", MEASURED))
    for key, choice in rest.items():
        if choice.value is not None:
            settings.append(Setting(key, choice.value, _help(key, schema), choice.why, choice.source))
    order = {section: number for number, section in enumerate(SECTIONS)}
    return tuple(sorted(settings, key=lambda setting: order[setting.key.partition(".")[0]]))


def _help(key: str, schema: Schema) -> str:
    """What a field does: the first sentence of the library's own help."""
    section, _, name = key.partition(".")
    declared = (schema.lora if section == "lora" else schema.fields).get(name)
    first = (declared.help if declared else "").split(". ")[0].strip().rstrip(".")
    return f"{first}." if first else "See the library's documentation."


def _notes(situation: Situation, batch: Batch) -> Iterator[str]:
    facts = situation.facts
    yield from facts.model.notes
    if facts.rows is not None and batch.dropped_rows(facts.rows):
        yield (
            f"{batch.dropped_rows(facts.rows)} of {facts.rows} rows are left over in each epoch: a generation takes"
            f" {batch.prompts_per_generation} prompts."
        )
    if batch.prompts_per_step < 4:
        yield f"A step learns from {batch.prompts_per_step:g} prompts only: expect a noisy gradient."
    if not batch.on_policy:
        yield "Completions are learnt from after the weights have changed (off-policy): watch the clip ratios."
    if not facts.longest_prompt:
        yield f"Prompt lengths were not measured: {situation.prompt} tokens are assumed for the memory."
    if not situation.available:
        yield "How much memory is free is not known, so nothing says whether this fits."
    if situation.cards and situation.capability is None:
        yield "The GPU's compute capability is not known: Ampere or newer (bfloat16) is assumed."
    shared = next((card for card in situation.cards if card.unified), None)
    if shared is not None and shared.free_bytes:
        yield (
            f"GPU and CPU share their memory: of {shared.free_bytes / GIB:.1f} GiB free,"
            f" {shared.reserve_bytes / GIB:.1f} GiB are left to the system and to other programs, which can still take"
            " more."
        )
    if situation.draft.hardware.manual_bytes:
        yield "Planned for a GPU typed by hand, not for this machine."
    if not facts.model.chat_template:
        yield "The tokenizer has no chat template: prompts must be plain text."
