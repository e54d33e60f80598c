"""What is wrong with the rows: every kind of fault with its count, its rows and what may be done about it."""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from grpo_tui.dataset.prompts import PREFIX, RESERVED, functions
from grpo_tui.dataset.rows import Row, UnreadableError, never
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
            "no answer", ("leave_out", "keep", "stop"), "A reward has nothing to compare the completion with."
        ),
        "unparsable": Kind(
            "the rule finds no answer",
            ("leave_out", "keep", "stop"),
            "Another rule may find it; kept, the reward gets None.",
        ),
        "duplicate": Kind(
            "same prompt again", ("keep", "stop"), "It is practised more often than the others, which may be meant."
        ),
        "over_long": Kind(
            "longer than the limit",
            ("leave_out",),
            "TRL cuts no prompt: a long one costs memory on one step, or stops vLLM.",
        ),
        "reserved_name": Kind(
            "column name that the trainer uses", ("keep",), f"The column is kept and called {PREFIX}… in training."
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


@dataclass(frozen=True)
class Fault:
    """One kind of fault that these rows have."""

    kind: str
    count: int
    rows: tuple[int, ...]
    """Numbers of the first such rows, from 0, at most NAMED_ROWS."""

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
    """Rows that become a prompt. Over-long ones are among them: their number is known in training only."""

    faults: tuple[Fault, ...]
    complete: bool = True
    """False: it was cancelled on the way."""


@dataclass
class _Tally:
    """Counts of the pass, by kind."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, kind: str, row: int) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named = self.rows.setdefault(kind, [])
        if len(named) < NAMED_ROWS:
            named.append(row)


def find_faults(
    rows: Iterable[Row],
    answer: DatasetAnswer,
    prompt_lengths: Mapping[int, int] | None = None,
    *,
    needed: int = 0,
    progress: Callable[[int], None] | None = None,
    cancelled: Callable[[], bool] = never,
) -> tuple[Fault, ...] | Problem:
    """The faults of `scan`."""
    found = scan(rows, answer, prompt_lengths, needed=needed, progress=progress, cancelled=cancelled)
    return found if isinstance(found, Problem) else found.faults


def scan(
    rows: Iterable[Row],
    answer: DatasetAnswer,
    prompt_lengths: Mapping[int, int] | None = None,
    *,
    needed: int = 0,
    progress: Callable[[int], None] | None = None,
    cancelled: Callable[[], bool] = never,
) -> Scan | Problem:
    """Look at each of `rows`, as they stand in the source; eight bytes a row are kept, to tell repeated prompts.

    `prompt_lengths`: row number to length in tokens, of all rows or of a sample. `needed`: prompts that one generation
    takes (`generation_batch_size / num_generations`), 0 if not known. `progress` gets the number of rows done.
    """
    made = functions(answer)
    prepare, as_text, extract = made["prepare"], made.get("as_text"), made.get("extract")
    tally = _Tally()
    kinds: dict[str, _Tally] = {"text": _Tally(), "messages": _Tally()}
    marks = array("Q")
    reserved: dict[str, None] = {}
    number = usable = 0
    complete = True
    try:
        for number, row in enumerate(rows, 1):
            at = number - 1
            value = row.get(answer.prompt)
            kind = prompt_kind(value)
            if kind in kinds:
                kinds[kind].add(kind, at)
                marks.append(_mark(value))
            else:
                tally.add(kind, at)
                marks.append(0)
            if as_text is not None:
                text = as_text(row.get(answer.answer)) or ""
                if not text.strip():
                    tally.add("missing_answer", at)
                elif extract is not None and extract(text) is None:
                    tally.add("unparsable", at)
            reserved.update(dict.fromkeys(name for name in row if name in _taken(answer)))
            usable += prepare(row) is not None
            if number % 1000 == 0:
                if progress is not None:
                    progress(number)
                if cancelled():
                    complete = False
                    break
    except UnreadableError as error:
        return error.problem
    _add_repeated(tally, marks)
    texts: dict[str, str] = {}
    plain, chat = (kinds[kind].counts.get(kind, 0) for kind in ("text", "messages"))
    if plain and chat:
        fewer = "text" if plain < chat else "messages"
        tally.counts["mixed_kind"], tally.rows["mixed_kind"] = min(plain, chat), kinds[fewer].rows[fewer]
        texts["mixed_kind"] = f"{plain} plain, {chat} conversational."
    if reserved:
        tally.counts["reserved_name"] = len(reserved)
        texts["reserved_name"] = f"Columns: {one_line(', '.join(reserved), 120)}."
    if prompt_lengths and answer.max_prompt_tokens:
        for at, length in sorted(prompt_lengths.items()):
            if length > answer.max_prompt_tokens:
                tally.add("over_long", at)
        over = tally.counts.get("over_long", 0)
        texts["over_long"] = (
            f"{over} of {len(prompt_lengths)} measured prompts exceed {answer.max_prompt_tokens} tokens."
        )
    if complete and needed and usable < needed:
        tally.counts["too_few_rows"] = usable
        texts["too_few_rows"] = f"Usable prompts: {usable}; one generation needs {needed}."
    elif complete and needed and usable % needed:
        tally.counts["unused_rest"] = usable % needed
        texts["unused_rest"] = f"Never used in an epoch: {usable % needed} of {usable} prompts."
    faults = tuple(_fault(kind, tally, texts.get(kind, ""), number, answer) for kind in KINDS if kind in tally.counts)
    return Scan(number, usable, faults, complete)


def prompt_kind(value: Any) -> str:
    """`text`, `messages`, or the kind of fault that a prompt's value is."""
    if value is None or value != value:  # NaN
        return "null"
    if isinstance(value, str):
        return "text" if value.strip() else "empty"
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        return "not_text"
    asked = [message for message in value if message.get("role") != "assistant"]
    return "messages" if asked and str(asked[-1].get("content") or "").strip() else "empty"


def _fault(kind: str, tally: _Tally, text: str, total: int, answer: DatasetAnswer) -> Fault:
    known = KINDS[kind]
    count = tally.counts[kind]
    choice = answer.faults.get(kind, known.choices[0])
    if kind == "mixed_kind" and answer.convert_plain:
        choice = "convert"
    if choice not in known.choices:
        choice = known.choices[0]
    text = text or f"{count} of {total} rows: {known.title}."
    return Fault(kind, count, tuple(tally.rows.get(kind, ())), choice, known.choices, f"{text} {known.text}")


def _taken(answer: DatasetAnswer) -> frozenset[str]:
    own = {"prompt"} if answer.prompt != "prompt" else set()
    return frozenset(RESERVED) | own | ({"answer"} if answer.answer not in ("", "answer") else set())


def _mark(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) or 1


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
