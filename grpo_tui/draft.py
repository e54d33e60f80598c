"""The answers so far, any of them missing; which steps are done, and what was approved.

Pure data and pure functions. `grpo_tui.state` keeps a draft in `grpo-tui.toml`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

STEPS = ("task", "hardware", "model", "dataset", "rewards", "score", "settings", "review", "launch")

RESTS_ON: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "task": (),
        "hardware": ("gpus",),
        "model": ("model",),
        "dataset": ("data", "model"),
        "rewards": ("rewards", "data"),
        "score": ("rewards", "data", "samples"),
        "settings": ("gpus", "model", "data", "rewards", "versions"),
        "review": ("gpus", "model", "data", "rewards", "versions", "settings"),
        "launch": (),
    }
)
"""Which facts a step's answer rests on. A fact is known by its fingerprint; when one changes, the step turns stale."""

FACT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "gpus": "GPUs",
        "model": "model",
        "data": "data",
        "rewards": "rewards",
        "samples": "samples",
        "versions": "versions",
        "settings": "settings",
    }
)
"""The one word the rail shows for a fact that changed."""


@dataclass(frozen=True, kw_only=True)
class TaskAnswer:
    """What shall be taught, and whether GRPO is the way to teach it."""

    recipe: str = ""
    """Name of a shipped recipe or the path of a recipe folder; empty for the user's own task."""

    checkable: str = ""
    """Can a program score an answer? `yes`, `partly`, `no`, or empty: not answered."""

    material: str = ""
    """What data exists: `prompts`, `demonstrations`, `pairs`, `thumbs`, or empty."""

    goal: str = ""
    """What shall change: `skill`, `format`, `knowledge`, `taste`, or empty."""

    verdict: str = ""
    """What the fit check said: `GRPO`, `SFT`, `DPO`, `KTO`, or empty."""

    overruled: bool = False
    """The user goes on with GRPO although the verdict was another."""


@dataclass(frozen=True, kw_only=True)
class HardwareAnswer:
    """Where the training shall run."""

    gpus: tuple[str, ...] = ()
    """UUIDs of the chosen GPUs, in the order training numbers them."""

    cpu: bool = False
    """Train on the CPU (small models, trials)."""

    manual_name: str = ""
    manual_bytes: int = 0
    """Memory of one card typed by hand, for planning on another machine; 0: the GPUs are those of this machine."""

    manual_count: int = 0

    manual_capability: str = ""
    """Compute capability of the typed card, as `8.0`; empty: unknown, treated as 8.0 or newer and said so."""


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """The model to train."""

    name: str = ""
    """Hub id or local folder."""

    revision: str = ""

    method: str = ""
    """`lora`, `qlora`, `full`, or empty: let the tuning choose."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A question and how it shall be answered, shown to the model before every prompt."""

    question: str
    answer: str


PLACE = r"\{([^{}\n:]+)(:letters)?\}"
"""A column in a prompt that joins several, as a regular expression: `{question}`, or `{choices:letters}` for a list
whose items get letters.
"""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A prompt that the user left out because a model is always right or always wrong there."""

    row: int
    """Its number in the source, from 0, for people."""

    mark: str
    """The first 16 hexadecimal digits of the SHA-256 of what the row asks: see `mark_of` in the written code."""

    why: str


@dataclass(frozen=True, kw_only=True)
class DatasetAnswer:
    """The prompts to practise on, and how a row becomes one."""

    source: str = ""
    """Local file or folder, hub id, or empty. A recipe's own data is a file in the project."""

    split: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """How the file is read: `encoding`, `delimiter`; only what differs from the plain reading."""

    prompt: str = ""
    """Column of the prompt: text, or a list of chat messages. A dotted name leads into nested columns.

    Or a text with columns in braces, such as `{question}\\n{choices:letters}`, which is filled in from each row.
    """

    answer: str = ""
    """Column of the right answer, such as `reward_model.ground_truth`; empty: the rewards need none."""

    system: str = ""
    """System prompt put before every prompt; empty: none."""

    examples: tuple[Example, ...] = ()
    """Worked examples put behind the system prompt: one or a few shots."""

    extract: str = "as_is"
    """How the answer is taken out of its column: a rule name of `grpo_tui.dataset.mapping`."""

    extract_argument: str = ""
    """What the rule needs: the marker, tag or pattern."""

    max_prompt_tokens: int = 0
    """Longer prompts are left out; 0: none is."""

    faults: Mapping[str, str] = field(default_factory=dict)
    """Choice per kind of fault: `leave_out`, `keep`, `convert` or `stop`."""

    left_out: tuple[LeftOut, ...] = ()
    """Single prompts that are not practised."""

    convert_plain: bool = False
    """Wrap plain-text prompts into one user message, so that a mixed column becomes one kind."""

    plain: bool = False
    """Prompts stay plain text instead of chat messages: for a model without a chat template."""

    eval_share: float = 0.0
    """Share of the prompts that are kept apart from training, from 0 (none) to below 1."""

    seed: int = 42
    """Which prompts those are: another seed chooses others."""

    @property
    def joins(self) -> bool:
        """The prompt is made of columns in braces."""
        return re.search(PLACE, self.prompt) is not None

    @property
    def prompt_columns(self) -> tuple[str, ...]:
        """The columns that the prompt is made of."""
        joined = tuple(dict.fromkeys(found[1] for found in re.finditer(PLACE, self.prompt)))
        return joined or ((self.prompt,) if self.prompt else ())

    @property
    def prompt_limit(self) -> int:
        """Tokens beyond which a prompt is left out or stops the training; 0: none is too long."""
        return 0 if self.faults.get("over_long") == "keep" else self.max_prompt_tokens


@dataclass(frozen=True, kw_only=True)
class RewardItem:
    """One reward function by name, and how much it counts."""

    name: str
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RewardsAnswer:
    """What the model is paid for."""

    file: str = "rewards.py"
    items: tuple[RewardItem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the functions, in order."""
        return tuple(item.name for item in self.items)

    @property
    def weights(self) -> tuple[float, ...]:
        """One weight per function, in the same order."""
        return tuple(item.weight for item in self.items)


@dataclass(frozen=True, kw_only=True)
class PilotAnswer:
    """What groups that the model sampled before the training said of it."""

    verdict: str = ""
    """One of `grpo_tui.rewards.signal.VERDICTS`; empty: nothing was sampled."""

    why: str = ""
    pass_rate: float = -1.0
    """Share of the completions that the first reward pays; below 0: not known."""

    prompts: int = 0
    generations: int = 0
    rests_on: str = ""
    """Mark of model, data and rewards at that time."""

    sampled: str = ""
    """Mark of the model and the data that were sampled from, and of the file that keeps the completions: as long as
    they are the same, other rewards are judged on those completions.
    """


@dataclass(frozen=True, kw_only=True)
class ServerAnswer:
    """A server with OpenAI's protocol that completes prompts; what trains is the model all the same."""

    url: str = ""
    """With the version, as `http://localhost:8000/v1`."""

    model: str = ""
    key_variable: str = ""
    """Environment variable that holds the key; empty: none is sent. The key itself is kept nowhere."""


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer:
    """How the rewards were tried."""

    samples: tuple[str, ...] = ()
    """Sample completions written by hand; recipe samples are not repeated here."""

    row: int = 0
    """The row whose prompt and answer the samples are scored against, from 0."""

    completions: str = ""
    """Completions file or folder of a run whose completions stand on the bench; empty: the samples."""

    skipped: bool = False
    server: ServerAnswer = ServerAnswer()
    pilot: PilotAnswer = PilotAnswer()


@dataclass(frozen=True, kw_only=True)
class SettingsAnswer:
    """What the tuning shall aim at, and what the user set by hand."""

    prefer: str = "memory"
    """`memory` or `speed`."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Single values set by the user, by dotted key of `config.toml`: `grpo.learning_rate`, `lora.r`."""

    notify_command: str = ""
    """Optional shell command run when a run ends; it gets the run folder and the exit in its environment."""


@dataclass(frozen=True, kw_only=True)
class ReviewAnswer:
    """What was tried before the yes."""

    tried: str = ""
    """`passed` or `failed`: the dry run; empty: there was none."""

    rests_on: str = ""
    """Mark of everything the training rests on at that time."""

    predicted: Mapping[str, int] = field(default_factory=dict)
    """Memory that the written plan is said to need, bytes by phase and `peak`; a run keeps it to be held against."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A step that was finished: when, and on which facts its answer rests."""

    at: str
    """ISO 8601, UTC."""

    rests_on: Mapping[str, str] = field(default_factory=dict)
    """Fact name to fingerprint, at that time."""


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A yes of the user: to what, when, and for which content."""

    what: str
    """`run`, `score`, `sample`, `recipe` or `write`."""

    at: str
    sha256: str
    """Hash of the content the yes was given for."""

    detail: str = ""
    """The exact command or folder, for people."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Everything the user answered so far. A missing answer is its default."""

    task: TaskAnswer = TaskAnswer()
    hardware: HardwareAnswer = HardwareAnswer()
    model: ModelAnswer = ModelAnswer()
    dataset: DatasetAnswer = DatasetAnswer()
    rewards: RewardsAnswer = RewardsAnswer()
    score: ScoreAnswer = ScoreAnswer()
    settings: SettingsAnswer = SettingsAnswer()
    review: ReviewAnswer = ReviewAnswer()
    step: str = STEPS[0]
    """The step on the screen."""

    done: Mapping[str, Done] = field(default_factory=dict)
    approvals: tuple[Approval, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each project file as we last wrote it, by name. A file with another hash was edited by the user."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the state file that this version does not know, kept as they were."""


ALLOWED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("task", "checkable"): ("", "yes", "partly", "no"),
        ("task", "material"): ("", "prompts", "demonstrations", "pairs", "thumbs"),
        ("task", "goal"): ("", "skill", "format", "knowledge", "taste"),
        ("model", "method"): ("", "lora", "qlora", "full"),
        ("settings", "prefer"): ("memory", "speed"),
    }
)
"""Section and field to the values that it may have, the default first."""


def finish(draft: Draft, step: str, at: str, facts: Mapping[str, str]) -> Draft:
    """`draft` with `step` done, resting on those of `facts` that this step rests on."""
    rests_on = {name: facts[name] for name in RESTS_ON[step] if name in facts}
    return replace(draft, done={**draft.done, step: Done(at=at, rests_on=rests_on)})


def stale(draft: Draft, facts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Finished steps whose facts changed: step to the names of those facts, in the order of the steps."""
    changed = {
        step: tuple(name for name, mark in draft.done[step].rests_on.items() if name in facts and facts[name] != mark)
        for step in STEPS
        if step in draft.done
    }
    return {step: names for step, names in changed.items() if names}


LOOKED_AT = ("dataset", "rewards", "score")
"""Steps that look at the data; what is tuned and written from them comes behind."""


def carried(draft: Draft, before: Mapping[str, str], after: Mapping[str, str]) -> Draft:
    """`draft` with the finished steps of LOOKED_AT that rested on the facts `before` resting on those `after`.

    For a change of the data that was made and seen in one of them: nobody need look again. Settings and files that were
    made of the data before it are stale all the same.
    """
    done = {
        step: replace(each, rests_on={name: after.get(name, mark) for name, mark in each.rests_on.items()})
        if step in LOOKED_AT and all(before.get(name) == mark for name, mark in each.rests_on.items())
        else each
        for step, each in draft.done.items()
    }
    return replace(draft, done=done)
