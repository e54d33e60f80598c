"""Completions made to be paid wrongly: what a policy would find out, tried before it can."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward
from grpo_tui.rewards.bench import TIMEOUT, ScoreRequest, ScoreTable, score
from grpo_tui.rewards.layouts import THOUGHT, Layout, layouts
from grpo_tui.rewards.source import read_text

JUNK_LENGTH = 2000
"""Characters of junk: enough to make a careless regular expression hang (RW-08)."""

JUNK = "lorem ipsum dolor sit amet, qui minim labore adipisicing minim sint cillum sint consectetur cupidatat. "
NONSENSE = "Purple Tuesday hums; seven umbrellas agree with the soup because the ceiling is loud."
REPEATS = 20

LOW = 0.125
"""What must not be paid may earn at most this share of what the right answer earns in the right form."""

FORMAT = 0.5
"""A wrong answer in the right form may earn at most this share."""

HIGH = 0.9
FULL = 0.99

CANDIDATES = 12
"""Answers of other rows that are listed at most."""

WRONG = "zzz no answer zzz"
EXPECTED = ("high", "low", "format_only", "less")
VERDICTS = ("sound", "paid wrongly", "unpaid although right", "not scored")


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """What is probed: functions of a file, on rows as the training gets them."""

    path: Path
    names: tuple[str, ...]
    weights: tuple[float, ...] = ()
    rows: tuple[Mapping[str, Any], ...]
    """Prepared rows, each with `prompt`; the first few are attacked, the others give other answers."""

    attacked: int = 3
    answer_column: str = "answer"
    system: str = ""
    """The system prompt: it says which form is asked for; empty: the prompt of the first row says it."""

    tokenizer: str = ""
    timeout: float = TIMEOUT


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One made completion."""

    kind: str
    completion: str
    row: int
    """Place among the rows, from 0."""

    expected: str
    """`high`: right, and to be paid. `low`: to earn nearly nothing. `format_only`: to earn for its form alone. `less`:
    right, but not in the form asked for, so that it must earn less than in full.
    """

    why: str
    has_answer: bool = False
    """The right answer stands in it."""


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A probe with what it earned."""

    probe: Probe
    rewards: tuple[Reward, ...]
    earned: Reward
    """The weighted sum."""

    share: float | None
    """Of what the right answer in the right form earns; counted from the lowest that anything earned, at most 0."""

    verdict: str
    paid_by: tuple[str, ...] = ()
    """Functions that pay for it, when it is paid wrongly."""


@dataclass(frozen=True, kw_only=True)
class ProbeTable:
    """All probes, and what they say together."""

    names: tuple[str, ...]
    probes: tuple[Probed, ...]
    layout: str
    """The form in which the right answer is paid best."""

    best: float
    """What the right answer earns in that form."""

    format_only_share: float
    """What a policy could earn without any right answer, as a share of `best`."""

    sentence: str
    table: ScoreTable
    """The same completions as the bench sees them: problems, time, notes."""


@dataclass(frozen=True)
class _Row:
    """What the probes of one row are made from."""

    number: int
    question: str
    answer: str
    wrong: str
    candidates: tuple[str, ...]
    layout: Layout
    asks_form: bool

    @property
    def sound(self) -> str:
        return self.layout.filled(self.answer)


def _block(row: _Row, content: str) -> str:
    return f"<{row.layout.answer_tag}>{content}</{row.layout.answer_tag}>"


def _junk() -> str:
    return (JUNK * (JUNK_LENGTH // len(JUNK) + 1))[:JUNK_LENGTH]


def _swapped(row: _Row) -> str:
    """Every closing tag where the opening one belongs."""
    return re.sub(r"<(/?)(\w+)>", lambda found: f"<{'' if found[1] else '/'}{found[2]}>", row.sound)


def _answer_first(row: _Row) -> str:
    rest = [tag for tag in row.layout.tags if tag != row.layout.answer_tag]
    return _block(row, row.answer) + "".join(f"<{tag}>{THOUGHT}</{tag}>" for tag in rest)


@dataclass(frozen=True)
class _Kind:
    """A way to attack a reward."""

    expected: str
    why: str
    make: Callable[[_Row], str]
    tags: int = 0
    """It needs a form with at least so many tags."""

    has_answer: bool = False


KINDS: Mapping[str, _Kind] = {
    "right": _Kind("high", "The right answer in the form asked for.", lambda row: row.sound, has_answer=True),
    "wrong": _Kind("format_only", "A wrong answer in the form asked for.", lambda row: row.layout.filled(row.wrong)),
    "no answer": _Kind(
        "format_only", "The form asked for, with words that are no answer.", lambda row: row.layout.filled(WRONG)
    ),
    "empty": _Kind("low", "Nothing at all.", lambda row: ""),
    "whitespace": _Kind("low", "Blanks and line ends.", lambda row: " \n\t\n "),
    "tags only": _Kind("low", "Tags without content.", lambda row: row.layout.filled("", ""), tags=1),
    "swapped tags": _Kind("less", "Each closing tag before its opening one.", _swapped, tags=1, has_answer=True),
    "answer first": _Kind("less", "The tags in another order.", _answer_first, tags=2, has_answer=True),
    "repeated tags": _Kind(
        "less", "The answer's tags many times.", lambda row: row.sound + _block(row, row.answer) * REPEATS,
        tags=1, has_answer=True,
    ),
    "several answers": _Kind(
        "low", "Several answers in tags, the right one last.",
        lambda row: "".join(_block(row, each) for each in (*row.candidates, row.answer)), tags=1, has_answer=True,
    ),
    "unclosed tag": _Kind(
        "low", "An opening tag and 2,000 characters without its end.",
        lambda row: f"<{row.layout.tags[0]}>" + "a" * JUNK_LENGTH, tags=1,
    ),
    "prompt echoed": _Kind("low", "The question given back.", lambda row: row.question),
    "prompt as answer": _Kind(
        "low", "The question where the answer belongs.", lambda row: row.layout.filled(row.question)
    ),
    "candidates listed": _Kind(
        "low", "Every answer there may be, in the place of one.",
        lambda row: row.layout.filled(", ".join((*row.candidates, row.answer))), has_answer=True,
    ),
    "answer after nonsense": _Kind(
        "less", "Nonsense, and the right answer pasted behind it.", lambda row: f"{NONSENSE} {row.answer}",
        has_answer=True,
    ),
    "junk": _Kind("low", "2,000 characters of junk.", lambda row: _junk()),
    "junk behind": _Kind(
        "less", "The right completion and 2,000 characters of junk.", lambda row: f"{row.sound}\n{_junk()}",
        has_answer=True,
    ),
    "nested fences": _Kind(
        "less", "The right completion inside code fences inside code fences.",
        lambda row: f"```\n```text\n{row.sound}\n```\n```", has_answer=True,
    ),
}  # fmt: skip
"""The attacks by name."""

_FORM_TOO = frozenset({"prompt as answer", "candidates listed"})
"""Where a form is asked for they have it, so that they may earn what a wrong answer in that form may."""


def probe(
    worker: Worker, request: ProbeRequest, on_progress: Callable[[str], None] | None = None
) -> ProbeTable | Problem:
    """Attack the functions and say which attacks are paid. `on_progress` gets the name of the function at work."""
    if not request.rows:
        return Problem("rows", "There is no row to make probes from.", "Choose a source with usable rows.")
    code = read_text(request.path)
    if isinstance(code, Problem):
        return code
    row = request.rows[0]
    tried = layouts(request.system or _whole(row["prompt"]), code)
    texts = [layout.filled(_text(row, request.answer_column) or "An answer.") for layout in tried]
    first = _scored(worker, request, texts, [0] * len(texts), None)
    if isinstance(first, Problem):
        return first
    earned = [-math.inf if value is None else value for value in first.weighted]
    best = max(range(len(tried)), key=lambda index: earned[index])  # the first of equals: the form asked for
    bare = next(value for layout, value in zip(tried, earned, strict=True) if layout.name == "bare answer")
    made = make_probes(request, tried[best], asks_form=earned[best] > bare)
    table = _scored(worker, request, [each.completion for each in made], [each.row for each in made], on_progress)
    return table if isinstance(table, Problem) else judge(made, table, tried[best])


def make_probes(request: ProbeRequest, layout: Layout, asks_form: bool = True) -> tuple[Probe, ...]:
    """The probes of the first rows. `asks_form`: the rewards pay the right answer more in `layout` than alone."""
    answers = list(dict.fromkeys(filter(None, (_text(row, request.answer_column) for row in request.rows))))
    probes = []
    for number, prepared in enumerate(request.rows[: request.attacked]):
        answer = _text(prepared, request.answer_column)
        others = tuple(each for each in answers if each != answer)[:CANDIDATES]
        row = _Row(
            number, question_of(prepared["prompt"]), answer or "An answer.", _wrong(answer, others), others, layout,
            asks_form,
        )  # fmt: skip
        for name, kind in KINDS.items():
            if len(layout.tags) < kind.tags or (kind.has_answer and not answer):
                continue
            if name == "candidates listed" and not others:
                continue
            if kind.expected == "less" and not asks_form:
                continue
            probes.append(_probe(name, kind, row))
        probes += [
            Probe(
                kind="other spelling", completion=layout.filled(spelling), row=number, expected="high",
                why="The right answer, written otherwise.", has_answer=True,
            )
            for spelling in spellings(answer)
        ]  # fmt: skip
    return tuple(probes)


def _probe(name: str, kind: _Kind, row: _Row) -> Probe:
    expected = "format_only" if name in _FORM_TOO and row.asks_form else kind.expected
    return Probe(
        kind=name, completion=kind.make(row), row=row.number, expected=expected, why=kind.why,
        has_answer=kind.has_answer,
    )  # fmt: skip


def judge(probes: Sequence[Probe], table: ScoreTable, layout: Layout) -> ProbeTable:
    """What the rewards of the probes mean."""
    given = [value for value in table.weighted if value is not None and math.isfinite(value)]
    floor = min([0.0, *given])
    right = [
        value
        for each, value in zip(probes, table.weighted, strict=True)
        if each.kind == "right" and value is not None and math.isfinite(value)
    ]
    best = max(right, default=max(given, default=0.0))
    probed = []
    for each, rewards, earned in zip(probes, table.rewards, table.weighted, strict=True):
        share = _share(earned, floor, best)
        verdict = _verdict(each, share)
        paid_by: tuple[str, ...] = ()
        if verdict == "paid wrongly":
            paid_by = _payers(table, rewards, max(LOW * (best - floor), 1e-9))
        probed.append(Probed(probe=each, rewards=rewards, earned=earned, share=share, verdict=verdict, paid_by=paid_by))
    alone = _format_only(probed)
    return ProbeTable(
        names=table.names, probes=tuple(probed), layout=layout.name, best=best, format_only_share=alone,
        sentence=_sentence(probed, layout, best, alone), table=table,
    )  # fmt: skip


def _share(earned: Reward, floor: float, best: float) -> float | None:
    if earned is None or not math.isfinite(earned):
        return None
    if best - floor < 1e-9:  # not even the right answer earns anything
        return 0.0 if earned - floor < 1e-9 else 1.0
    return (earned - floor) / (best - floor)


def _verdict(each: Probe, share: float | None) -> str:
    if share is None:
        return "not scored"
    if each.expected == "high":
        return "sound" if share >= HIGH else "unpaid although right"
    most = {"low": LOW, "format_only": FORMAT, "less": FULL}[each.expected]
    return "sound" if share <= most else "paid wrongly"


def _payers(table: ScoreTable, rewards: Sequence[Reward], least: float) -> tuple[str, ...]:
    """Functions whose weighted reward is worth naming."""
    terms = zip(table.names, table.weights, rewards, strict=True)
    return tuple(name for name, weight, value in terms if value is not None and weight * value >= least)


def _format_only(probed: Sequence[Probed]) -> float:
    """Mean over rows of the most that a probe without the right answer earns."""
    rows: dict[int, float] = {}
    for each in probed:
        if each.share is not None and not each.probe.has_answer:
            rows[each.probe.row] = max(rows.get(each.probe.row, 0.0), each.share)
    return sum(rows.values()) / len(rows) if rows else 0.0


def _sentence(probed: Sequence[Probed], layout: Layout, best: float, alone: float) -> str:
    said = [
        f"Without any right answer a policy could earn {alone:.0%} of {best:.4g}, which the right one earns"
        f" ({layout.name})."
    ]
    wrongly = list(dict.fromkeys(each.probe.kind for each in probed if each.verdict == "paid wrongly"))
    payers = list(dict.fromkeys(name for each in probed for name in each.paid_by))
    if wrongly:
        said.append(f"Paid wrongly: {', '.join(wrongly)}" + (f" (by {', '.join(payers)})." if payers else "."))
    unpaid = list(dict.fromkeys(each.probe.completion for each in probed if each.verdict == "unpaid although right"))
    if any(each.probe.kind == "right" and each.verdict != "sound" for each in probed):
        said.append("The right answer itself is not always paid in full.")
    elif unpaid:
        said.append(f"{len(unpaid)} other spellings of right answers are not paid.")
    if not wrongly and not unpaid:
        said.append("All probes are paid as they should be.")
    return " ".join(said)


def _whole(prompt: Any) -> str:
    """All that a prompt says."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(str(message.get("content") or "") for message in prompt)


def question_of(prompt: Any) -> str:
    """The text of a prompt, or of its last user message."""
    if isinstance(prompt, str):
        return prompt
    texts = [str(message.get("content") or "") for message in prompt if message.get("role") == "user"]
    return texts[-1] if texts else ""


def spellings(answer: str) -> tuple[str, ...]:
    """Other ways to write a right answer, each beyond dispute: thousands, a zero fraction, blanks, capitals."""
    found = [f" {answer} ", f"\n{answer}\n"]
    number = _number(answer)
    if number is not None:
        sign, digits = ("-" if answer.strip().startswith("-") else ""), answer.strip().lstrip("+-").replace(",", "")
        if digits.isdigit():
            found += [f"{sign}{int(digits):,}", f"{sign}{digits}.0"]
    elif len(answer) > 1 and answer.isascii():
        found += [answer.upper(), answer.capitalize()]
    return tuple(dict.fromkeys(each for each in found if answer and each != answer))


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _wrong(answer: str, others: Sequence[str]) -> str:
    """An answer of the same kind that is not right."""
    if answer.strip().lstrip("+-").isdigit():
        return str(int(answer) + 1)
    return others[0] if others else WRONG


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value)


def _scored(
    worker: Worker, request: ProbeRequest, texts: Sequence[str], numbers: Sequence[int],
    on_progress: Callable[[str], None] | None,
) -> ScoreTable | Problem:  # fmt: skip
    rows = [request.rows[number] for number in numbers]
    names = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    return score(
        worker,
        ScoreRequest(
            path=request.path, names=request.names, weights=request.weights, completions=tuple(texts),
            prompts=tuple(row["prompt"] for row in rows),
            columns={name: [row.get(name) for row in rows] for name in names},
            tokenizer=request.tokenizer, timeout=request.timeout,
        ),
        on_progress,
    )  # fmt: skip
