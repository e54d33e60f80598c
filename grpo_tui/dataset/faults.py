"""What is wrong with the rows: every kind of fault with its count, its rows and what may be done about it."""

import hashlib
import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grpo_tui.dataset.prompts import (
    PREFIX,
    RESERVED,
    ROLES,
    functions,
    leaks_function,
    left_out_function,
    loses_digits_function,
)
from grpo_tui.dataset.rows import BrokenRow, Row, UnreadableError, never
from grpo_tui.draft import DatasetAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

NAMED_ROWS = 20
"""So many rows of a fault are named."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    title: str
    choices: tuple[str, ...]
    """What may be done: `leave_out`, `keep`, `convert` or `stop`. The first one holds until another is chosen."""

    text: str
    """What it does to training, as a sentence."""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "broken_line": Kind(
            "line that is no JSON object",
            ("stop", "leave_out"),
            "The library that training reads with refuses the whole file for it. Left out, these lines alone are passed"
            " over.",
        ),
        "null": Kind(
            "no prompt",
            ("leave_out", "stop"),
            "The tokenizer refuses such a prompt and the run dies at its first step.",
        ),
        "empty": Kind(
            "empty prompt",
            ("leave_out", "stop"),
            "An empty prompt ends the run at its first step; one of spaces trains on rubbish.",
        ),
        "not_text": Kind(
            "prompt is neither text nor messages",
            ("leave_out", "stop"),
            "The tokenizer refuses such a prompt and the run dies at its first step.",
        ),
        "mixed_kind": Kind(
            "plain text and chat messages in one column",
            ("stop", "convert"),
            "TRL looks at the first prompt of each batch only, so that rewards see two kinds of completions or the run "
            "dies. Convert makes one user message of each plain text.",
        ),
        "missing_answer": Kind(
            "no answer",
            ("leave_out", "keep", "stop"),
            "A reward has nothing to compare the completion with. Kept, rewards that require `answer` are not asked"
            " about such a row and count as None, which TRL passes over; where all are None nothing is learnt.",
        ),
        "unparsable": Kind(
            "the rule finds no answer",
            ("leave_out", "keep", "stop"),
            "Another rule may find it. Kept, rewards that require `answer` are not asked about such a row.",
        ),
        "leaked": Kind(
            "the prompt gives the answer away",
            ("keep", "leave_out", "stop"),
            "A model that only copies is paid for it. Some tasks are like that, such as finding a word in a text.",
        ),
        "duplicate": Kind(
            "same prompt again",
            ("keep", "leave_out", "stop"),
            "It is practised more often than the others, which may be meant.",
        ),
        "mixed_type": Kind(
            "values of several types in one column",
            ("keep", "convert", "stop"),
            "A reward gets now one type, now another. Convert makes text of every column beside the prompt; the answer"
            " is text in any case.",
        ),
        "over_long": Kind(
            "longer than the limit",
            ("leave_out", "keep", "stop"),
            "TRL cuts no prompt: a long one costs memory on one step, or stops vLLM. Kept, the plan is made for the "
            "longest.",
        ),
        "broken_value": Kind(
            "half a character, or a number beyond 64 bits",
            ("leave_out", "stop"),
            "No table holds such a row, nor does the tokenizer take half a character: the run dies before its first "
            "step.",
        ),
        "lost_digits": Kind(
            "number of more than 15 digits",
            ("keep", "leave_out", "stop"),
            "The column is of floats, which hold 15 to 17 digits: those behind are others in training than they are in "
            "the file. Written in quotes, as text, they all stay.",
        ),
        "left_out": Kind(
            "left out by you",
            ("leave_out", "keep"),
            "A model was always right or always wrong there. Kept, they are practised like the others.",
        ),
        "reserved_name": Kind(
            "column name that the trainer uses",
            ("keep", "leave_out"),
            f"Kept, the column is called {PREFIX}… in training.",
        ),
        "too_few_rows": Kind(
            "fewer prompts than one generation needs",
            ("stop",),
            "Training would do no step. Lower the batch, or raise the number of generations per prompt.",
        ),
        "unused_rest": Kind(
            "prompts that no generation takes", ("keep",), "Incomplete generations are left out at the end of an epoch."
        ),
    }
)


def read_choices(words: Iterable[str]) -> dict[str, str] | Problem:
    """Choices such as `duplicate=leave_out`, by kind of fault."""
    chosen = {}
    for word in words:
        kind, _, choice = word.partition("=")
        if kind not in KINDS:
            return Problem("--choose", f"There is no fault '{one_line(kind, 40)}'.", f"Faults: {', '.join(KINDS)}.")
        if choice not in KINDS[kind].choices:
            return Problem(
                "--choose",
                f"'{one_line(choice, 40)}' cannot be chosen for {kind}.",
                f"Choices: {', '.join(KINDS[kind].choices)}.",
            )
        chosen[kind] = choice
    return chosen


@dataclass(frozen=True)
class Fault:
    """One kind of fault that these rows have."""

    kind: str
    count: int
    rows: tuple[int, ...]
    """Numbers of the first such rows, from 0, at most NAMED_ROWS. Of JSON lines these count all but the blank ones."""

    choice: str
    choices: tuple[str, ...]
    text: str
    """What is there and what it does, in sentences."""

    @property
    def blocking(self) -> bool:
        """Training must not start before something else is chosen or the data are changed."""
        return self.choice == "stop"

    def as_json(self) -> dict[str, Any]:
        """The fault as `grpo-tui data --json` prints it."""
        return {
            "kind": self.kind,
            "count": self.count,
            "rows": list(self.rows),
            "choice": self.choice,
            "choices": list(self.choices),
            "text": self.text,
        }


@dataclass(frozen=True)
class Scan:
    """What one pass over the rows found."""

    rows: int
    usable: int
    """Rows that become a prompt to train on. Over-long ones are among them: their number is known in training only."""

    faults: tuple[Fault, ...]
    complete: bool = True
    """False: it was cancelled on the way."""

    held_out: int = 0
    """Rows that would be usable and are kept apart from training."""


@dataclass
class _Tally:
    """Counts of the pass, by kind."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """What is to be said of a kind where it is more than the count."""

    def add(self, kind: str, row: int) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named = self.rows.setdefault(kind, [])
        if len(named) < NAMED_ROWS:
            named.append(row)

    def take(self, other: "_Tally", kind: str) -> None:
        """Take over what another tally has of this kind."""
        self.counts[kind], self.rows[kind] = other.counts[kind], other.rows[kind]


def scan(
    rows: Iterable[Row],
    answer: DatasetAnswer,
    prompt_lengths: Mapping[int, int] | None = None,
    *,
    needed: int = 0,
    progress: Callable[[int], None] | None = None,
    cancelled: Callable[[], bool] = never,
) -> Scan | Problem:
    """Look at each of `rows`, as they stand in the source; sixteen bytes a row are kept, to tell repeated prompts.

    `prompt_lengths`: row number to length in tokens, of all rows or of a sample. `needed`: prompts that one generation
    takes (`generation_batch_size / num_generations`), 0 if not known. `progress` gets the number of rows done.
    """
    look = _Look(answer)
    complete = True
    try:
        for at, row in enumerate(rows):
            look.at(at, row)
            if look.rows % 1000 == 0:
                if progress is not None:
                    progress(look.rows)
                if cancelled():
                    complete = False
                    break
    except UnreadableError as error:
        return error.problem
    look.sum_up(prompt_lengths or {})
    usable = look.usable()
    if complete and needed:
        look.compare(usable, needed)
    return Scan(look.rows, usable, look.faults(), complete, look.held_out)


class _Look:
    """The look at each row, and what is to be said of all of them."""

    def __init__(self, answer: DatasetAnswer) -> None:
        self.rows = self.held_out = 0
        self._answer = answer
        made = functions(answer)
        self._prepare, self._prompt_of, self._is_broken = made["prepare"], made["prompt_of"], made["is_broken"]
        self._is_held_out = made.get("is_held_out")
        self._as_text = made.get("as_text") if answer.answer else None
        self._extract = made.get("extract")
        self._value_of = made.get("value_of", dict.get)
        self._loses_digits, self._is_left_out = loses_digits_function(), left_out_function(answer)
        self._tally = _Tally()
        self._leaked, self._types = _Leaks(), _Types(answer.prompt)
        self._kinds = {"text": _Tally(), "messages": _Tally()}
        self._marks, self._trained_on = array("Q"), array("Q")
        self._taken = _taken(answer)
        self._reserved: dict[str, None] = {}
        self._chat_for_plain = 0
        self._broken: Problem | None = None

    def at(self, at: int, row: Row) -> None:
        """Look at row `at`."""
        self.rows = at + 1
        if isinstance(row, BrokenRow):
            self._look_at_broken(at, row.problem)
            return
        asked = self._look_at_prompt(at, row)
        if self._as_text is not None:
            self._look_at_answer(at, row, asked)
        if self._loses_digits(row):
            self._tally.add("lost_digits", at)
        self._types.look(at, row)
        self._reserved.update(dict.fromkeys(name for name in row if name in self._taken))
        self._look_at_use(at, row)

    def _look_at_broken(self, at: int, problem: Problem) -> None:
        self._tally.add("broken_line", at)
        self._marks.append(0)
        self._broken = self._broken or problem

    def _look_at_prompt(self, at: int, row: Row) -> Any:
        """What the row asks, None if nothing."""
        asked = self._prompt_of(row)
        if self._answer.joins:  # text, or nothing where none of its columns holds any
            kind = "empty" if asked is None else "text"
        else:
            kind = prompt_kind(self._value_of(row, self._answer.prompt))
        if kind == "messages" and self._answer.plain:
            kind = "not_text"
            self._chat_for_plain += 1
        self._kinds.get(kind, self._tally).add(kind, at)
        self._marks.append(0 if asked is None else _mark(asked))
        return asked

    def _look_at_answer(self, at: int, row: Row, asked: Any) -> None:
        assert self._as_text is not None
        text = self._as_text(self._value_of(row, self._answer.answer)) or ""
        found = text if self._extract is None else self._extract(text)
        if not text.strip():
            self._tally.add("missing_answer", at)
        elif found is None:
            self._tally.add("unparsable", at)
        elif asked is not None:
            self._leaked.look(at, asked, found)

    def _look_at_use(self, at: int, row: Row) -> None:
        """Is the row trained on, kept apart, or left out?"""
        if self._is_left_out(row):
            self._tally.add("left_out", at)
        if self._prepare(row) is None:
            if self._is_broken(row):
                self._tally.add("broken_value", at)
        elif self._is_held_out is not None and self._is_held_out(row):
            self.held_out += 1
        else:
            self._trained_on.append(self._marks[-1])

    def usable(self) -> int:
        """Rows that are trained on."""
        if self._answer.faults.get("duplicate") == "leave_out":
            return _different(self._trained_on)
        return len(self._trained_on)

    def sum_up(self, prompt_lengths: Mapping[int, int]) -> None:
        """Add the faults that only all rows together show."""
        _add_repeated(self._tally, self._marks)
        self._add_broken()
        self._add_leaked()
        self._add_mixed_types()
        self._add_mixed_kinds()
        self._add_reserved()
        self._add_over_long(prompt_lengths)

    def _add_broken(self) -> None:
        if self._broken is not None:
            count = self._tally.counts["broken_line"]
            where = f"{count} of {self.rows} rows, the first in {self._broken.where}"
            self._tally.texts["broken_line"] = one_line(f"{where}: {self._broken.what.rstrip('.')}.", 300)

    def _add_leaked(self) -> None:
        leaked = self._leaked
        if leaked.beyond_chance():
            self._tally.take(leaked.tally, "leaked")
            self._tally.texts["leaked"] = (
                f"{self._tally.counts['leaked']} of {leaked.looked_at} prompts hold their answer; by chance, as the"
                f" answer of the row before shows, it would be {leaked.by_chance}."
            )

    def _add_mixed_types(self) -> None:
        if self._types.tally.counts:
            self._tally.take(self._types.tally, "mixed_type")
            self._tally.texts["mixed_type"] = f"{one_line(self._types.words(), 300)}."

    def _add_mixed_kinds(self) -> None:
        tally = self._tally
        plain, chat = (self._kinds[kind].counts.get(kind, 0) for kind in ("text", "messages"))
        if plain and chat:
            fewer = "text" if plain < chat else "messages"
            tally.counts["mixed_kind"], tally.rows["mixed_kind"] = min(plain, chat), self._kinds[fewer].rows[fewer]
            tally.texts["mixed_kind"] = f"{plain} plain, {chat} conversational."
        if self._chat_for_plain:
            tally.texts["not_text"] = (
                f"{tally.counts['not_text']} of {self.rows} rows hold no plain text; in {self._chat_for_plain} of them"
                " there are chat messages, which only a model with a chat template takes."
            )

    def _add_reserved(self) -> None:
        if self._reserved:
            self._tally.counts["reserved_name"] = len(self._reserved)
            self._tally.texts["reserved_name"] = f"Columns: {one_line(', '.join(self._reserved), 120)}."

    def _add_over_long(self, lengths: Mapping[int, int]) -> None:
        limit = self._answer.max_prompt_tokens
        over = [at for at, length in sorted(lengths.items()) if length > limit] if limit else []
        for at in over:
            self._tally.add("over_long", at)
        if over:
            self._tally.texts["over_long"] = f"{len(over)} of {len(lengths)} measured prompts exceed {limit} tokens."

    def compare(self, usable: int, needed: int) -> None:
        """Add what is wrong with the number of prompts, of which one generation takes `needed`."""
        if usable < needed:
            self._tally.counts["too_few_rows"] = usable
            self._tally.texts["too_few_rows"] = f"Usable prompts: {usable}; one generation needs {needed}."
        elif rest := usable % needed:
            self._tally.counts["unused_rest"] = rest
            self._tally.texts["unused_rest"] = f"Never used in an epoch: {rest} of {usable} prompts."

    def faults(self) -> tuple[Fault, ...]:
        """The faults found so far, in the order of their kinds."""
        return tuple(_fault(kind, self._tally, self.rows, self._answer) for kind in KINDS if kind in self._tally.counts)


class _Leaks:
    """How often a prompt holds its own answer, and how often that of the row before, as chance would have it."""

    def __init__(self) -> None:
        self.tally = _Tally()
        self.looked_at = self.by_chance = 0
        self._leaks = leaks_function()
        self._before: str | None = None

    def look(self, row: int, prompt: Any, answer: str) -> None:
        self.looked_at += 1
        if self._leaks(prompt, answer):
            self.tally.add("leaked", row)
        self.by_chance += self._leaks(prompt, self._before)
        self._before = answer

    def beyond_chance(self) -> bool:
        """Do more prompts hold their own answer than chance, give or take two standard deviations, would have it?"""
        return self.tally.counts.get("leaked", 0) > self.by_chance + 2 * math.sqrt(self.by_chance)


class _Types:
    """Columns beside the prompt whose values are of several types; whole and other numbers are one."""

    def __init__(self, prompt: str) -> None:
        self.tally = _Tally()
        self._prompt = prompt
        self._seen: dict[str, dict[str, int]] = {}

    def look(self, row: int, values: Row) -> None:
        odd = False
        for name, value in values.items():
            if name == self._prompt or value is None:
                continue
            kind = "number" if type(value) in (int, float) else type(value).__name__
            seen = self._seen.setdefault(name, {})
            seen[kind] = seen.get(kind, 0) + 1
            odd = odd or kind != next(iter(seen))
        if odd:
            self.tally.add("mixed_type", row)

    def words(self) -> str:
        """Each such column with its types and how many values have them."""
        return "; ".join(
            f"{name}: {', '.join(f'{count} {_TYPE_NAMES.get(kind, kind)}' for kind, count in seen.items())}"
            for name, seen in self._seen.items()
            if len(seen) > 1
        )


_TYPE_NAMES: Mapping[str, str] = {"str": "text", "dict": "objects", "list": "lists", "bool": "true or false"}


def prompt_kind(value: Any) -> str:
    """`text`, `messages`, or the kind of fault that a prompt's value is."""
    if value is None or value != value:  # NaN
        return "null"
    if isinstance(value, str):
        return "text" if value.strip() else "empty"
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        return "not_text"
    asked = [message for message in value if _said(message)[0] != "assistant"]
    return "messages" if asked and str(_said(asked[-1])[1] or "").strip() else "empty"


def _said(message: Mapping[str, Any]) -> tuple[Any, Any]:
    """Who says what, in either way of writing it."""
    if message.get("from") is not None:
        return ROLES.get(str(message["from"]), message["from"]), message.get("value")
    return message.get("role"), message.get("content")


def _fault(kind: str, tally: _Tally, total: int, answer: DatasetAnswer) -> Fault:
    known = KINDS[kind]
    count = tally.counts[kind]
    choice = answer.faults.get(kind, known.choices[0])
    if kind == "mixed_kind" and answer.convert_plain:
        choice = "convert"
    if choice not in known.choices:
        choice = known.choices[0]
    text = tally.texts.get(kind) or f"{count} of {total} rows: {known.title}."
    return Fault(kind, count, tuple(tally.rows.get(kind, ())), choice, known.choices, f"{text} {known.text}")


def _taken(answer: DatasetAnswer) -> frozenset[str]:
    own = {"prompt"} if answer.prompt != "prompt" else set()
    return frozenset(RESERVED) | own | ({"answer"} if answer.answer not in ("", "answer") else set())


def _mark(value: Any) -> int:
    """What the written code's `mark_of` tells repeated prompts by, in eight bytes."""
    if isinstance(value, list):
        value = [[message.get("role"), message.get("content")] for message in value]
    digest = hashlib.blake2b(json.dumps(value, default=str).encode(), digest_size=8).digest()
    return int.from_bytes(digest) or 1


def _different(marks: "array[int]") -> int:
    """How many different marks there are."""
    import numpy

    return len(numpy.unique(numpy.frombuffer(marks, dtype=numpy.uint64))) if marks else 0


def _add_repeated(tally: _Tally, marks: "array[int]") -> None:
    """Count every row whose prompt an earlier row has."""
    import numpy

    values = numpy.frombuffer(marks, dtype=numpy.uint64) if marks else numpy.empty(0, numpy.uint64)
    order = numpy.argsort(values, kind="stable")
    ordered = values[order]
    again = numpy.flatnonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)) + 1
    if len(again):
        numbers = numpy.sort(order[again])
        tally.counts["duplicate"] = len(numbers)
        tally.rows["duplicate"] = [int(one) for one in numbers[:NAMED_ROWS]]
