"""A data set looked at row by row, as the training will take it: what is usable, how long it is, what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.child import Worker
    from grpo_tui.dataset.extraction import Extraction
    from grpo_tui.dataset.faults import Fault
    from grpo_tui.dataset.lengths import Lengths
    from grpo_tui.dataset.prepared import PreparedColumn
    from grpo_tui.dataset.sources import Source
    from grpo_tui.draft import Draft

SHOWN_ROWS = 50
"""Rows of the preview."""

SUGGEST_ROWS = 200
"""Rows that columns and rewards are proposed from."""


@dataclass(frozen=True, kw_only=True)
class RowView:
    """One row, as it is and as the model will see it."""

    number: int
    """From 0."""

    raw: Mapping[str, Any]
    prepared: Mapping[str, Any] | None
    """As the training sees it; None: it is left out."""

    tokens: int | None = None
    """Of the prompt; None: not counted."""

    trouble: str = ""
    """Why it is left out; empty: it is used."""

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Role and text of each message; a plain prompt has one without role."""
        prompt = self.prepared["prompt"] if self.prepared else ""
        if isinstance(prompt, str):
            return (("", prompt),)
        return tuple((str(message.get("role", "")), str(message.get("content", ""))) for message in prompt)

    @property
    def prompt(self) -> str:
        """The last message."""
        return self.messages[-1][1] if self.messages else ""

    @property
    def answer(self) -> str:
        """The right answer; empty: there is none."""
        value = self.prepared.get("answer") if self.prepared else None
        return "" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data set as the training will take it."""

    source: Source
    complete: bool
    """Every row was looked at; False: only the first ones, and the counts are still to come."""

    head: tuple[RowView, ...]
    usable: int
    held_out: int
    """Prompts kept apart from training."""

    extraction: Extraction | None
    """What the chosen rule takes out of the first rows; None: no column is chosen for the answer."""

    columns: tuple[PreparedColumn, ...]
    """The columns as the training has them."""

    choices: tuple[str, ...]
    """Columns that can be chosen, nested ones by their dotted names."""

    faults: tuple[Fault, ...]
    limit: int
    """Longer prompts are left out; 0: none is."""

    lengths: Lengths | None
    advice: str
    """How the lengths stand to those of other runs; empty: they were not counted."""

    code: str
    """Source of `prepare`."""

    load_call: str
    """The expression that loads the rows."""

    load_code: str
    """Source of what that calls beside the library; empty: nothing."""

    reasons: Mapping[str, str]
    """Field of the answer to why it was proposed."""

    @property
    def stop(self) -> Problem | None:
        """The first fault that the training must not start with."""
        fault = next((fault for fault in self.faults if fault.blocking), None)
        if fault is None:
            return None
        others = [f"--choose {fault.kind}={choice}" for choice in fault.choices if choice != fault.choice]
        remedy = f"Choose on the dataset step of the wizard, or with {' or '.join(others)}."
        return Problem("data", fault.text, remedy if others else "Correct the rows.")

    @property
    def rows_words(self) -> str:
        """The number of rows, for people."""
        rows = self.source.rows
        return "unknown" if rows is None else f"{rows:,}" if self.source.rows_exact else f"~{rows:,}"

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt that was counted and is kept; 0: none was."""
        counted = self.lengths.by_row.values() if self.lengths else ()
        return max((tokens for tokens in counted if not self.limit or tokens <= self.limit), default=0)


def glance(project: Path, draft: Draft, source: Source) -> Data | Problem:
    """The first rows and what they say, in the time it takes to read them; nothing is counted yet."""
    from grpo_tui.dataset.extraction import extraction
    from grpo_tui.dataset.mapping import choices, mapping_problems, propose
    from grpo_tui.dataset.prepared import prepared_columns
    from grpo_tui.dataset.prompts import prepare_code, prepare_function
    from grpo_tui.dataset.rows import BrokenRow, UnreadableError
    from grpo_tui.dataset.sources import load_call, load_code

    answer = draft.dataset
    if problems := mapping_problems(answer, source.columns):
        return problems[0]
    try:
        first = source.head(SUGGEST_ROWS)
    except UnreadableError as error:
        return error.problem
    proposed, yielded = propose(source.columns, first, answer), extraction(first, answer)
    prepare = prepare_function(answer)
    views = []
    for number, row in enumerate(first[:SHOWN_ROWS]):
        made = prepare(row)
        trouble = str(row.problem) if isinstance(row, BrokenRow) else "" if made else "This row is left out."
        views.append(RowView(number=number, raw=row, prepared=made, trouble=trouble))
    loading = load_call(source, project, answer)
    return Data(
        source=source,
        complete=False,
        head=tuple(views),
        usable=0,
        held_out=0,
        extraction=None if isinstance(yielded, Problem) else yielded,
        columns=prepared_columns(first, answer),
        choices=tuple(choices(source.columns, first)),
        faults=(),
        limit=answer.prompt_limit,
        lengths=None,
        advice="",
        code=prepare_code(answer),
        load_call=loading,
        load_code=load_code(loading),
        reasons={
            name: why
            for name, why in proposed.reasons.items()
            if getattr(proposed.answer, name) == getattr(answer, name)
        },
    )


CANCELLED = Problem("data", "The look at them was cancelled.", "Look again when you want to.")


def survey(
    project: Path,
    worker: Callable[[str], Worker],
    draft: Draft,
    source: Source,
    say: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> Data | Problem:
    """Prepare every row once, count the prompts by the model's tokenizer, and look for faults.

    `worker` gives the worker of a name; `say` takes sentences about how far it is; `cancelled` is asked now and then.
    """
    from grpo_tui.dataset import faults, lengths
    from grpo_tui.dataset.rows import BrokenRow

    answer, data = draft.dataset, glance(project, draft, source)
    if isinstance(data, Problem):
        return data
    measured: Lengths | Problem | None = None
    if draft.model.name:
        say("Counting tokens with the model's own tokenizer…")
        measured = lengths.measure(
            worker("tokenize"),
            lengths.model_place(draft.model.name, project),
            source,
            answer,
            revision=draft.model.revision,
            progress=lambda done, of: say(f"Counting tokens: {done:,} of {of:,} prompts…"),
            cancelled=cancelled,
        )
    if cancelled():
        return CANCELLED
    if isinstance(measured, Problem):
        return measured
    by_row = measured.by_row if measured else {}
    say("Looking at every row…")
    scan = faults.scan(
        source.iterate(),
        answer,
        by_row,
        progress=lambda done: say(f"Looking at every row: {done:,}…"),
        cancelled=cancelled,
    )
    if isinstance(scan, Problem):
        return scan
    if not scan.complete:
        return CANCELLED

    def counted(view: RowView) -> RowView:
        over = bool(answer.prompt_limit) and by_row.get(view.number, 0) > answer.prompt_limit
        reasons = [fault.text for fault in scan.faults if view.number in fault.rows and fault.choice == "leave_out"]
        trouble = view.trouble if isinstance(view.raw, BrokenRow) else (reasons or ["This row is left out."])[0]
        trouble = trouble if view.prepared is None or over else ""
        return replace(view, tokens=by_row.get(view.number), trouble=trouble)

    over_long = next((each.count for each in scan.faults if each.kind == "over_long" and each.choice != "keep"), 0)
    return replace(
        data,
        source=replace(source, rows=scan.rows, rows_exact=True),
        complete=True,
        head=tuple(map(counted, data.head)),
        usable=scan.usable - over_long,
        held_out=scan.held_out,
        faults=scan.faults,
        lengths=measured,
        advice=lengths.advice(measured) if measured else "",
    )
