"""The fit check: is GRPO the way to teach this, or SFT, DPO or KTO?

GRPO learns from rewards of its own samples: it needs answers that a program can score, some of them right already.
Sources: TRL's method overview (SFTTrainer, DPOTrainer, KTOTrainer, GRPOTrainer); the share of groups without signal is
p^G + (1 − p)^G for pass rate p and groups of G; format-only training losing accuracy: lesswrong.com hBjn9rqgjrktH9LL3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grpo_tui.draft import TaskAnswer

TOO_HARD = 0.05
TOO_EASY = 0.95
"""Pass rates of the untrained model beyond which two thirds of groups of 8 are all wrong or all right."""

FEW_ROWS = 100
"""Below about this many prompts a model tends to memorise (rule of thumb)."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One answer to a question: the value that the draft keeps, and the words for it."""

    value: str
    label: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of the fit check."""

    field: str
    """Field of `TaskAnswer` that holds the answer."""

    text: str
    why: str
    choices: tuple[Choice, ...]


QUESTIONS: tuple[Question, ...] = (
    Question(
        field="checkable",
        text="Can a program tell a good answer from a bad one?",
        why="GRPO learns only from scores of the model's own answers. A poor score is what it then learns to please.",
        choices=(
            Choice(value="yes", label="Yes", hint="compare with a right answer, run tests, validate a format"),
            Choice(value="partly", label="Partly", hint="some aspects, or through another model as judge"),
            Choice(value="no", label="No", hint="only people can tell"),
        ),
    ),
    Question(
        field="material",
        text="What data do you have?",
        why="Other methods learn from ready answers or judgements, and need fewer steps when you have them.",
        choices=(
            Choice(value="prompts", label="Questions", hint="perhaps with the right answer, no worked solutions"),
            Choice(value="demonstrations", label="Demonstrations", hint="good answers written out"),
            Choice(value="pairs", label="Pairs", hint="a better and a worse answer to the same prompt"),
            Choice(value="thumbs", label="Thumbs", hint="single answers marked good or bad"),
        ),
    ),
    Question(
        field="goal",
        text="What shall change?",
        why="Rewards strengthen what the model already does now and then. They bring in nothing that it never does.",
        choices=(
            Choice(value="skill", label="A skill", hint="get more answers right"),
            Choice(value="format", label="The format", hint="answer in a fixed form"),
            Choice(value="knowledge", label="Knowledge", hint="facts that it does not know"),
            Choice(value="taste", label="Taste", hint="tone, style, preference"),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which method fits, and why."""

    method: str
    """`GRPO`, `SFT`, `DPO`, `KTO`; empty: no verdict, the reasons say what is missing."""

    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When every named answer is one of the listed ones, this method."""

    when: Mapping[str, tuple[str, ...]]
    method: str
    reason: str


RULES: tuple[Rule, ...] = (
    Rule(
        when={"goal": ("knowledge",)},
        method="SFT",
        reason="A reward cannot teach facts that the model never says: show them (SFT), or look them up at run time.",
    ),
    Rule(
        when={"goal": ("format",), "material": ("demonstrations",)},
        method="SFT",
        reason="A format is learned fastest by imitation, and you have examples. Constrained decoding may do without "
        "training.",
    ),
    Rule(
        when={"goal": ("taste",), "material": ("pairs",)},
        method="DPO",
        reason="Pairs say directly what is preferred; a score would only approximate it.",
    ),
    Rule(
        when={"goal": ("taste",), "material": ("thumbs",)},
        method="KTO",
        reason="Single good and bad marks say directly what is liked; KTO learns from them without pairs.",
    ),
    Rule(
        when={"checkable": ("yes",)},
        method="GRPO",
        reason="A program can score the answers, so the model can practise on its own attempts.",
    ),
    Rule(
        when={"material": ("pairs",)},
        method="DPO",
        reason="Without a full check, the pairs are the clearest signal you have.",
    ),
    Rule(
        when={"material": ("thumbs",)},
        method="KTO",
        reason="Without a full check, the marks are the clearest signal you have, and KTO needs no pairs.",
    ),
    Rule(
        when={"material": ("demonstrations",)},
        method="SFT",
        reason="Without a full check, imitating good answers is safer than a score that can be gamed.",
    ),
    Rule(
        when={"checkable": ("partly",), "goal": ("skill", "format")},
        method="GRPO",
        reason="There is no other signal than the part that a program can score.",
    ),
    Rule(
        when={"goal": ("taste",)},
        method="DPO",
        reason="Taste needs judgements: let people choose the better of two answers, then train on the pairs.",
    ),
    Rule(
        when={},
        method="SFT",
        reason="Nothing can score an answer and there is nothing to learn from yet: write some good answers first.",
    ),
)
"""From the top, the first rule whose conditions hold decides. The last one always holds."""

WARNINGS: tuple[tuple[Mapping[str, tuple[str, ...]], str], ...] = (
    (
        {"checkable": ("partly",)},
        "What the score does not see will suffer: attack the rewards with bad answers on the Score step.",
    ),
    (
        {"goal": ("format",)},
        "Paid for format alone, a model lost its right answers (0.228 to 0.025 in a published trial): pay for those.",
    ),
    (
        {"material": ("demonstrations",)},
        "A short SFT on your demonstrations first gives GRPO more right answers to start from.",
    ),
    (
        {"goal": ("taste",)},
        "A score for taste is easily fooled: keep some prompts apart and let people judge them.",
    ),
)
"""What is said with a GRPO verdict when the conditions hold."""


def missing(task: TaskAnswer) -> tuple[Question, ...]:
    """The questions that are still open."""
    return tuple(question for question in QUESTIONS if not getattr(task, question.field))


def verdict(task: TaskAnswer, pass_rate: float | None = None, rows: int | None = None, *, gpus: bool = True) -> Verdict:
    """The method that fits the answers; no verdict while one is missing.

    `pass_rate`: share of right answers of the untrained model (None: not measured). `rows`: number of prompts.
    """
    still_open = missing(task)
    if still_open:
        return Verdict(method="", reasons=tuple(f"Not answered yet: {question.text}" for question in still_open))
    rule = next(rule for rule in RULES if _holds(rule.when, task))
    if rule.method != "GRPO":
        return Verdict(method=rule.method, reasons=(rule.reason,))
    warnings = tuple(text for when, text in WARNINGS if _holds(when, task)) + _circumstances(rows, gpus)
    if pass_rate is not None and not TOO_HARD <= pass_rate <= TOO_EASY:
        return _without_signal(pass_rate, warnings)
    measured = (
        () if pass_rate is None else (f"The untrained model gets {pass_rate:.0%} right: most groups will differ.",)
    )
    return Verdict(method="GRPO", reasons=(rule.reason, *measured), warnings=warnings)


def _holds(when: Mapping[str, tuple[str, ...]], task: TaskAnswer) -> bool:
    return all(getattr(task, name) in values for name, values in when.items())


def _without_signal(pass_rate: float, warnings: tuple[str, ...]) -> Verdict:
    """A checker is there, but nearly all groups of answers would be all wrong or all right."""
    if pass_rate < TOO_HARD:
        return Verdict(
            method="SFT",
            reasons=(
                f"The untrained model gets {pass_rate:.1%} right, so most groups have nothing to learn from.",
                "Warm up with SFT on right answers, take easier prompts or show examples in the prompt; then GRPO.",
            ),
            warnings=warnings,
        )
    return Verdict(
        method="",
        reasons=(
            f"The untrained model already gets {pass_rate:.1%} right, so most groups have nothing to learn from.",
            "Take harder prompts; no training method will gain much here.",
        ),
        warnings=warnings,
    )


def _circumstances(rows: int | None, gpus: bool) -> tuple[str, ...]:
    said = []
    if rows is not None and rows < FEW_ROWS:
        said.append(f"{rows} prompts are few: below about {FEW_ROWS} a model tends to memorise them.")
    if not gpus:
        said.append("No GPU: rewards can be tried and files written here, and only tiny models trained.")
    return tuple(said)


METHODS: Mapping[str, str] = MappingProxyType(
    {
        "GRPO": "trl.GRPOTrainer",
        "SFT": "trl.SFTTrainer",
        "DPO": "trl.DPOTrainer",
        "KTO": "trl.KTOTrainer",
    }
)
"""Method to the trainer that does it; only the first is set up here."""
