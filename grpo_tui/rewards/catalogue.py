"""A first catalogue of reward functions: readable code with its parameters on top, each paying for one aspect in 0 … 1.

The code is written into the user's `rewards.py`, which needs nothing of ours. Chat and plain completions are taken
alike.
"""

import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template as Text
from types import MappingProxyType
from typing import Any

from grpo_tui.draft import DatasetAnswer, RewardItem

TEXT_OF = '''
def text_of(completion):
    """The text of a completion: plain text as it is, of chat messages the last one's."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    if isinstance(content, list):  # parts: text, images
        content = "".join(part.get("text") or "" for part in content)
    return content or ""
'''

ANSWER_IN = r'''
REASONING_ENDS = ("</think>", "</reasoning>")
REASONING_STARTS = ("<think>", "<reasoning>")
ANSWER_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
MARKED = re.compile(r"(?:answer is|answer:|####)[ \t]*(\S[^\n]*)", re.IGNORECASE)


def answer_in(text):
    """The one final answer of a completion, or None.

    Reasoning is cut off first. Then: the only <answer>…</answer>, the only \\boxed{…}, what follows the only
    "answer is", "answer:" or "####", or else the whole text. Two answers are none.
    """
    for end in REASONING_ENDS:
        text = text.rpartition(end)[2]
    if any(start in text for start in REASONING_STARTS):
        return None  # reasoning that never ended
    for pattern, sign in ((ANSWER_TAG, "<answer>"), (BOXED, "\\boxed")):
        if sign in text:
            found = pattern.search(text) if text.count(sign) == 1 else None
            return found[1].strip() if found else None
    marked = MARKED.findall(text)
    return (marked or [text])[0].strip() if len(marked) < 2 else None
'''

NUMBER_IN = r'''
WHOLE = r"(?:\d{1,3}(?:[,'_]\d{3})+|\d+)"
NUMBER = re.compile(rf"[-+]?(?:{WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,3}})?(?:\s*/\s*\d+)?%?")


def number_in(text):
    """The only number in the text as (value, is it a percentage), or None: none, several, or no finite one.

    Reads 1,234 · 1e3 · −5 (any minus sign) · 3/4 · 12.5 % · digits of any script. Words around it do not matter.
    """
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").replace(" %", "%")
    found = NUMBER.findall(text)
    if len(found) != 1:
        return None
    top, _, below = re.sub("[,'_%]", "", found[0]).partition("/")
    if below and not float(below):
        return None
    value = float(top) / float(below or 1)
    return (value, found[0].endswith("%")) if math.isfinite(value) else None
'''

EXACT = '''
# $name: the final answer equals the right one, but for case, spaces and punctuation around it. 0 or 1.


def ${name}_form(text):
    """The text in the form in which answers are compared."""
    text = " ".join(unicodedata.normalize("NFKC", str(text)).casefold().split())
    return text.lstrip("\\"'`*([ ").rstrip("\\"'`*)] .,;:!?")


def $name(completions, $answer, **kwargs):
    """1 if the final answer is the right one, else 0; None where there is no right answer."""
    given = [${name}_form(answer_in(text_of(completion)) or "") for completion in completions]
    wanted = [${name}_form("" if right is None else right) for right in $answer]
    return [float(a == b) if b else None for a, b in zip(given, wanted)]
'''

NUMERIC = '''
# $name: the one number in the final answer is the right one. 0 or 1.
${NAME}_ABSOLUTE = $absolute  # allowed difference as a number ...
${NAME}_RELATIVE = $relative  # ... or as a share of the right value, whichever is larger


def $name(completions, $answer, **kwargs):
    """1 if the final answer holds exactly one number and it is right; None where the right answer is no number."""
    return [${name}_of(text_of(completion), right) for completion, right in zip(completions, $answer)]


def ${name}_of(text, right):
    wanted = number_in(str(right))
    if wanted is None:
        return None
    given = number_in(answer_in(text) or "")
    if given is None:
        return 0.0
    # 50% equals 0.5 only when the right answer is a percentage; otherwise the sign is a unit like any other.
    value = given[0] * 100 if wanted[1] and not given[1] and abs(given[0]) <= 1 else given[0]
    return 1.0 if abs(value - wanted[0]) <= max(${NAME}_ABSOLUTE, ${NAME}_RELATIVE * abs(wanted[0])) else 0.0
'''

CHOICE = '''
# $name: the final answer is one letter and the right one: B, (B), B. or "Answer: B". 0 or 1.
${NAME}_LETTER = re.compile(r"[(\\[*]*([A-Za-z])[)\\]*.:]*")


def $name(completions, $answer, **kwargs):
    """1 if the final answer is the right letter and nothing else, else 0; None where the right answer is no letter."""
    given = [${name}_of(answer_in(text_of(completion)) or "") for completion in completions]
    wanted = [${name}_of(str(right)) for right in $answer]
    return [float(a == b) if b else None for a, b in zip(given, wanted)]


def ${name}_of(text):
    found = ${NAME}_LETTER.fullmatch(text.strip())
    return found[1].upper() if found else ""
'''

TAGS = '''
# $name: the completion is exactly these tags, each once, in this order, none empty, nothing around them. 0 or 1.
${NAME}_TAGS = $tags
${NAME}_BODIES = r"\\s*".join(f"<{tag}>(.+?)</{tag}>" for tag in ${NAME}_TAGS)
${NAME}_PATTERN = re.compile(rf"\\s*{${NAME}_BODIES}\\s*", re.DOTALL)


def $name(completions, **kwargs):
    """1 for the whole format, 0 for anything less: a part of it must not pay, or the model stops there."""
    return [${name}_of(text_of(completion)) for completion in completions]


def ${name}_of(text):
    # Counting first keeps the pattern from accepting repeated tags, and from searching long.
    if any(text.count(f"<{tag}>") != 1 or text.count(f"</{tag}>") != 1 for tag in ${NAME}_TAGS):
        return 0.0
    found = ${NAME}_PATTERN.fullmatch(text)
    return 1.0 if found and all(body.strip() for body in found.groups()) else 0.0
'''

LENGTH = '''
# $name: as long as wanted, in tokens. 1 within the band, falling to 0 over ${NAME}_FADE tokens on either side.
${NAME}_LOW, ${NAME}_HIGH = $low, $high
${NAME}_FADE = $fade


def $name(completions, completion_ids, **kwargs):
    """1 for a length within the band, less outside; 0 for padding and for a completion without an answer."""
    return [
        ${name}_of(ids) if $gate else 0.0
        for completion, ids in zip(completions, completion_ids)
    ]


def ${name}_of(ids):
    triples = list(zip(ids, ids[1:], ids[2:]))
    if len(set(triples)) < len(triples) / 2:
        return 0.0  # the same words over and over, to fill the band
    outside = max(${NAME}_LOW - len(ids), len(ids) - ${NAME}_HIGH, 0)
    return max(0.0, 1.0 - outside / ${NAME}_FADE)
'''

JSON = '''
# $name: the completion is one JSON object with exactly these keys, none empty (no keys: any filled object). 0 or 1.
${NAME}_KEYS = $keys
${NAME}_LONGEST = 100_000  # characters; longer text is not parsed


def $name(completions, **kwargs):
    """1 for one valid JSON object and nothing around it, else 0."""
    return [1.0 if ${name}_accepts(text_of(completion)) else 0.0 for completion in completions]


def ${name}_accepts(text):
    if len(text) > ${NAME}_LONGEST:
        return False
    try:
        value = json.loads(text, object_pairs_hook=${name}_pairs, parse_constant=${name}_refuse)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not value or (${NAME}_KEYS and set(value) != set(${NAME}_KEYS)):
        return False
    return not any(item is None or item == [] or item == {} or str(item).strip() == "" for item in value.values())


def ${name}_pairs(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def ${name}_refuse(constant):
    raise ValueError(f"{constant} is not JSON")
'''

SAME_JSON = '''
# $name: the final answer is JSON with the same content as the right one, whatever the order of its keys. 0 or 1.


def $name(completions, $answer, **kwargs):
    """1 for the same content, else 0; None where the right answer is not JSON."""
    given = [${name}_form(answer_in(text_of(completion)) or "") for completion in completions]
    wanted = [${name}_form(right if isinstance(right, str) else json.dumps(right)) for right in $answer]
    return [float(a == b) if b else None for a, b in zip(given, wanted)]


def ${name}_form(text):
    """The one spelling in which equal values are equal texts; empty for what is not JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return ""
'''

HELPERS = {"answer_in": ANSWER_IN, "number_in": NUMBER_IN, "text_of": TEXT_OF}
"""Functions that templates call, in the order in which they are written."""

MODULES = ("json", "math", "re", "unicodedata")


@dataclass(frozen=True, kw_only=True)
class Template:
    """One kind of reward function."""

    title: str
    pays: str
    """What it pays for, as a sentence."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Name to default value; `answer` is the column of the right answer."""

    code: str
    aspect: str = "correct"
    """`correct`, `format` or `style`."""


TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "exact": Template(
            title="Exact answer",
            pays="The final answer equals the right one, whatever its case, spaces and final punctuation.",
            parameters={"answer": "answer"},
            code=EXACT,
        ),
        "numeric": Template(
            title="Right number",
            pays="The one number in the final answer is the right one, in any usual spelling.",
            parameters={"answer": "answer", "absolute": 0.0, "relative": 1e-9},
            code=NUMERIC,
        ),
        "choice": Template(
            title="Right letter",
            pays="The final answer is the right letter of a multiple-choice question, and only that.",
            parameters={"answer": "answer"},
            code=CHOICE,
        ),
        "tags": Template(
            title="Tags, strict",
            pays="The completion consists of the given tags, each once, in order and filled.",
            parameters={"tags": ("reasoning", "answer")},
            code=TAGS,
            aspect="format",
        ),
        "length": Template(
            title="Length band",
            pays="The completion has a length within a band of tokens.",
            parameters={"low": 1, "high": 200, "fade": 100, "gated": True},
            code=LENGTH,
            aspect="style",
        ),
        "json": Template(
            title="JSON object",
            pays="The completion is one JSON object with the wanted keys, and nothing else.",
            parameters={"keys": ()},
            code=JSON,
            aspect="format",
        ),
        "same_json": Template(
            title="Same JSON",
            pays="The final answer is JSON with the content of the right one.",
            parameters={"answer": "answer"},
            code=SAME_JSON,
        ),
    }
)

WEIGHTS: Mapping[str, float] = MappingProxyType({"correct": 1.0, "format": 0.25, "style": 0.125})
"""Exact in binary; correctness outweighs all the rest together (rule of thumb: format at most a quarter of it)."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One reward function for the task, with the reason for it."""

    template: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Only what differs from the template's defaults."""

    weight: float
    why: str
    warnings: tuple[str, ...] = ()

    @property
    def item(self) -> RewardItem:
        """The same as the draft keeps it."""
        return RewardItem(name=self.name, weight=self.weight)


def proposals(answer: DatasetAnswer, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[Proposal, ...]:
    """Reward functions for a task, correctness first.

    `columns` and `rows` are those of the prepared data, as the training sees them: `prompt`, `answer` and the rest.
    """
    rights = [row["answer"] for row in rows if row.get("answer") is not None] if "answer" in columns else []
    found = [*_correctness(rights), *_format(answer.system, rights), _brevity(bool(rights))]
    return tuple(found)


def _correctness(rights: Sequence[Any]) -> list[Proposal]:
    """The function that compares with right answers of this kind; none without answers."""
    if not rights:
        return []
    template, why, warnings = next(
        (template, why, warnings) for template, fits, why, warnings in ANSWER_KINDS if all(map(fits, rights))
    )
    return [Proposal(template=template, name="correct", weight=WEIGHTS["correct"], why=why, warnings=warnings)]


def _is_letter(right: Any) -> bool:
    return bool(re.fullmatch(r"\(?[A-Ea-e]\)?\.?", str(right).strip()))


def _is_number(right: Any) -> bool:
    return bool(
        re.fullmatch(r"[-+\u2212$€£]?[\d.,'_]*\d[\d.,'_]*(?:[eE][-+]?\d+)?(?:/\d+)?\s*[%\w]{0,12}", str(right).strip())
    )


def _object(right: Any) -> Any:
    if not isinstance(right, str):
        return right
    try:
        return json.loads(right)
    except (ValueError, RecursionError):
        return None


def _is_json_object(right: Any) -> bool:
    return isinstance(_object(right), dict)


def _is_any(right: Any) -> bool:
    return True


ANSWER_KINDS: tuple[tuple[str, Callable[[Any], bool], str, tuple[str, ...]], ...] = (
    (
        "choice",
        _is_letter,
        "Every right answer seen is one letter.",
        ("Guessing earns a share of it: with four options a quarter of the answers are right by chance.",),
    ),
    ("numeric", _is_number, "Every right answer seen is one number.", ()),
    ("same_json", _is_json_object, "Every right answer seen is a JSON object.", ()),
    (
        "exact",
        _is_any,
        "The right answers are text, so the whole final answer is compared.",
        ("Another wording of the same answer earns nothing: keep right answers short, and ask for them so.",),
    ),
)
"""Template, the answers it fits, why, and what is known to go wrong. The first row that fits all answers counts."""

FORMAT_WARNING = (
    "Never alone: trained on the format only, a model learned the format and lost its answers "
    "(right answers fell from 0.228 to 0.025 in a published trial)."
)
NOT_ASKED = (
    "The system prompt does not ask for these tags yet: a model that never writes them cannot be rewarded for them."
)


def _format(system: str, rights: Sequence[Any]) -> list[Proposal]:
    """Tags that the system prompt names, or JSON if it asks for that."""
    tags = tuple(dict.fromkeys(re.findall(r"<([a-z][a-z0-9_]*)>", system)))
    weight = WEIGHTS["format"]
    if tags:
        why = f"The system prompt asks for {', '.join(f'<{tag}>' for tag in tags)}."
        return [Proposal(template="tags", name="format", parameters={"tags": tags}, weight=weight, why=why,
                         warnings=(FORMAT_WARNING,))]  # fmt: skip
    if "json" in system.lower() or (rights and all(map(_is_json_object, rights))):
        keys = _common_keys(rights)
        why = "The answers are JSON objects." if rights else "The system prompt asks for JSON."
        return [Proposal(template="json", name="format", parameters={"keys": keys} if keys else {}, weight=weight,
                         why=why, warnings=(FORMAT_WARNING,))]  # fmt: skip
    why = "An answer in its own tag is found with certainty, and reasoning has its place."
    return [Proposal(template="tags", name="format", weight=weight, why=why, warnings=(NOT_ASKED, FORMAT_WARNING))]


def _common_keys(rights: Sequence[Any]) -> tuple[str, ...]:
    """The keys, when all right answers are objects with the same ones."""
    kinds = {tuple(sorted(value)) if isinstance(value := _object(right), dict) else () for right in rights}
    return kinds.pop() if len(kinds) == 1 else ()


def _brevity(gated: bool) -> Proposal:
    return Proposal(
        template="length",
        name="brevity",
        parameters={} if gated else {"gated": False},
        weight=WEIGHTS["style"],
        why="Keeps completions from growing for no gain; small, so that it never outweighs a right answer.",
        warnings=("Set the band to lengths that good answers really have; a tight one costs correctness.",),
    )


def render_rewards(choices: Sequence[Proposal]) -> str:
    """A `rewards.py` with these functions: complete, readable, and free of anything of ours.

    Raises ValueError for two functions of one name, a name that Python cannot have, or an unknown parameter.
    """
    names = [choice.name for choice in choices]
    if len(set(names)) != len(names):
        raise ValueError(f"two functions have one name: {names}")
    code = [_render(choice) for choice in choices]
    helpers: dict[str, str] = {}
    while more := [
        name for name in HELPERS if name not in helpers and f"{name}(" in "".join([*code, *helpers.values()])
    ]:
        helpers[more[0]] = HELPERS[more[0]]
    body = [part.strip("\n") for part in [*code, *helpers.values()]]
    imports = [f"import {name}" for name in MODULES if any(f"{name}." in part for part in body)]
    head = '"""What the model is paid for: one function per aspect, one number from 0 to 1 per completion."""'
    top = "\n".join([head, "", *imports])
    return f"{top}\n\n" + "\n\n\n".join(body) + "\n"


def _render(choice: Proposal) -> str:
    template = TEMPLATES[choice.template]
    unknown = set(choice.parameters) - set(template.parameters)
    values = {**template.parameters, **choice.parameters}
    names = [choice.name, *([values["answer"]] if "answer" in values else [])]
    bad = [name for name in names if not name.isidentifier() or keyword.iskeyword(name) or name in HELPERS]
    if unknown or bad:
        raise ValueError(f"{choice.name}: unknown parameters {sorted(unknown)}, or impossible names {bad}")
    shown = {name: value if name == "answer" else _literal(value) for name, value in values.items()}
    gate = "answer_in(text_of(completion))" if values.get("gated") else "text_of(completion).strip()"
    return Text(template.code).substitute(shown, name=choice.name, NAME=choice.name.upper(), gate=gate)


def _literal(value: Any) -> str:
    """A parameter as Python code, with the quotes that formatters leave alone."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        inside = ", ".join(map(_literal, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value)
