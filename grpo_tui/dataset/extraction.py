"""What a rule makes of real rows: the answers it yields, and the rows on which it fails."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grpo_tui.dataset.mapping import rule_problem
from grpo_tui.dataset.prompts import functions
from grpo_tui.dataset.rows import BrokenRow, Row, UnreadableError
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem

SHOWN = 20
"""So many answers are shown, and so many failing rows named."""


@dataclass(frozen=True)
class Yielded:
    """One answer, before and after the rule."""

    row: int
    """From 0."""

    before: str
    after: str


@dataclass(frozen=True)
class Extraction:
    """What a rule makes of the rows looked at."""

    yields: tuple[Yielded, ...]
    """Of the first rows on which it finds an answer."""

    failed: tuple[int, ...]
    """Numbers, from 0, of the first rows that hold a text in which the rule finds no answer."""

    failed_count: int
    missing_count: int
    """Rows that hold no text at all: no rule could find an answer there."""

    looked_at: int
    """Broken lines do not count."""

    @property
    def found_count(self) -> int:
        """Rows on which the rule finds an answer."""
        return self.looked_at - self.failed_count - self.missing_count

    def as_json(self) -> dict[str, Any]:
        """The extraction as `grpo-tui data --json` prints it."""
        return {
            "looked_at": self.looked_at,
            "found": self.found_count,
            "missing_count": self.missing_count,
            "failed_count": self.failed_count,
            "failed": list(self.failed),
            "yields": [{"row": one.row, "before": one.before, "after": one.after} for one in self.yields],
        }


def extraction(rows: Iterable[Row], answer: DatasetAnswer, shown: int = SHOWN) -> Extraction | Problem:
    """Try the rule of `answer` on `rows` of the source; a Problem where the rule cannot work or the file is broken."""
    if problem := rule_problem(answer):
        return problem
    if not answer.answer:
        return Problem("answer column", "No column is chosen for the answer.", "Choose one, or none is extracted.")
    made = functions(answer)
    as_text, extract, value_of = made["as_text"], made.get("extract"), made.get("value_of", dict.get)
    yields: list[Yielded] = []
    failed: list[int] = []
    failed_count = missing_count = looked_at = 0
    try:
        for at, row in enumerate(rows):
            if isinstance(row, BrokenRow):
                continue
            looked_at += 1
            text = as_text(value_of(row, answer.answer)) or ""
            found = None if not text.strip() else text if extract is None else extract(text)
            if found is not None:
                yields += [Yielded(at, text, found)] if len(yields) < shown else []
            elif not text.strip():
                missing_count += 1
            else:
                failed_count += 1
                failed += [at] if len(failed) < shown else []
    except UnreadableError as error:
        return error.problem
    return Extraction(tuple(yields), tuple(failed), failed_count, missing_count, looked_at)
