"""Completions for the bench that nobody typed: those of a file, of a run, or of a model's last try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.draft import Draft
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.session import Session
from grpo_tui.survey import CANCELLED

if TYPE_CHECKING:
    from grpo_tui.dataset.source import Source
    from grpo_tui.rewards.groups import Groups
    from grpo_tui.rewards.stored import Stored

MOST = 4096
"""Completions that the bench takes at once: 32 prompts of 128, or 512 of 8."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Completions with the rows of the data that they answer."""

    groups: Groups
    paid: Stored | None = None
    """What a run paid for them; None: they are of no run."""


def gathered(session: Session, draft: Draft) -> Gathered | Problem:
    """The completions that the draft names, by the path of a completions file or of a run's folder."""
    path = session.project / expanded(draft.score.completions)
    found = _of_run(session, draft, path) if path.is_dir() else _of_file(session, draft, path)
    return found if isinstance(found, Problem) else _first(found)


def _of_run(session: Session, draft: Draft, path: Path) -> Gathered | Problem:
    """The completions of the last step that a run kept."""
    from grpo_tui.progress.kept import kept
    from grpo_tui.rewards.groups import Groups

    stored = kept(path)
    if isinstance(stored, Problem):
        return stored
    origin = f"step {stored.step} of {one_line(path.name, 60)}"
    found = _answered(session, draft, stored.prompts, origin)
    if isinstance(found, Problem):
        return found
    groups = Groups(
        rows=tuple({**row, "completion": text} for (_, row), text in zip(found, stored.completions, strict=True)),
        size=stored.group_size,
        origin=origin,
        numbers=tuple(number for number, _ in found[:: stored.group_size]),
    )
    return Gathered(groups=groups, paid=stored)


def _of_file(session: Session, draft: Draft, path: Path) -> Gathered | Problem:
    """Those of a file: with the columns of its lines, or of the rows that ask the same, or of the chosen row."""
    from grpo_tui.progress.completions import as_text
    from grpo_tui.rewards.groups import read

    groups = read(path)
    if isinstance(groups, Problem):
        return groups
    first = groups.rows[0]
    if "prompt" not in first:
        found = session.row(draft, draft.score.row)
        if isinstance(found, Problem):
            return found
        if found.prepared is None:
            return Problem(f"row {found.number + 1}", found.trouble, "Choose another row: press o.")
        rows = tuple({**found.prepared, **line} for line in groups.rows)
        return Gathered(groups=replace(groups, rows=rows, numbers=(found.number,)))
    if set(first) > {"prompt", "completion"}:
        return Gathered(groups=groups)
    asked = _answered(session, draft, tuple(as_text(line["prompt"]) for line in groups.rows), groups.origin)
    if isinstance(asked, Problem):
        return asked
    rows = tuple({**row, **line} for (_, row), line in zip(asked, groups.rows, strict=True))
    return Gathered(groups=replace(groups, rows=rows, numbers=tuple(number for number, _ in asked[:: groups.size])))


def _answered(
    session: Session, draft: Draft, prompts: tuple[str, ...], where: str
) -> tuple[tuple[int, Row], ...] | Problem:
    """The numbered row that each prompt comes from, looked for over the whole data set."""
    from grpo_tui.dataset.prepared import usable
    from grpo_tui.dataset.rows import UnreadableError
    from grpo_tui.progress.kept import rows_of

    source = session.mapped_source(draft)
    if isinstance(source, Problem):
        return source
    try:
        return rows_of(prompts, usable(_numbered(source, session.watch()), draft.dataset), where)
    except UnreadableError as error:
        return error.problem


def _numbered(source: Source, cancelled: Callable[[], bool]) -> Iterator[tuple[int, dict[str, Any]]]:
    """All rows with their numbers, until `cancelled` says so. Raises UnreadableError."""
    from grpo_tui.dataset.rows import UnreadableError

    for number, row in enumerate(source.iterate()):
        if number % 1000 == 0 and cancelled():
            raise UnreadableError(CANCELLED)
        yield number, row


def _first(found: Gathered) -> Gathered:
    """As many whole groups as the bench takes at once, or as much of the first one."""
    groups = found.groups
    count = len(groups.rows)
    if count <= MOST:
        return found
    size = min(groups.size, MOST)
    kept = MOST // size * size
    cut = replace(
        groups,
        rows=groups.rows[:kept],
        size=size,
        ids=groups.ids[:kept],
        finished=groups.finished[:kept],
        numbers=groups.numbers[: kept // size],
        origin=f"{groups.origin}, the first {kept:,} of {count:,}",
    )
    paid = found.paid
    return Gathered(
        groups=cut,
        paid=paid
        and replace(
            paid,
            rewards=paid.rewards[:kept],
            group_size=size,
            prompts=paid.prompts[:kept],
            completions=paid.completions[:kept],
        ),
    )
