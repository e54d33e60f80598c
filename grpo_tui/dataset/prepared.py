"""The columns that training and rewards get, once the rows are prepared."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from grpo_tui.dataset.prompts import prepare_function
from grpo_tui.dataset.rows import Row, UnreadableError, never, type_of
from grpo_tui.dataset.source import Source
from grpo_tui.dataset.sources import sample
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem


@dataclass(frozen=True)
class PreparedColumn:
    """One column of the prepared rows, as a reward gets it by name."""

    name: str

    type: str
    """Arrow's name, as `grpo_tui.dataset.rows.Column` has it; `messages` for a list of chat messages."""

    example: Any
    """Its first value; None where all are."""

    filled: int
    """In how many of the rows it holds something else than null."""

    of: int
    """How many prepared rows were looked at."""

    @property
    def share(self) -> float:
        """Share of the rows in which it is filled, from 0 to 1."""
        return self.filled / self.of if self.of else 0.0

    def as_json(self) -> dict[str, Any]:
        """The column as `grpo-tui data --json` prints it."""
        return {"name": self.name, "type": self.type, "example": self.example, "filled": self.share}


def prepared_columns(rows: Iterable[Row], answer: DatasetAnswer) -> tuple[PreparedColumn, ...]:
    """The columns that `rows` of the source have once they are prepared; rows that are left out do not count."""
    prepare = prepare_function(answer)
    made = [prepared for row in rows if (prepared := prepare(row)) is not None]
    names = dict.fromkeys(name for row in made for name in row)
    columns = []
    for name in names:
        values = [value for row in made if (value := row.get(name)) is not None]
        kind = "messages" if name == "prompt" and not answer.plain else _type(values)
        columns.append(PreparedColumn(name, kind, values[0] if values else None, len(values), len(made)))
    return tuple(columns)


def first_usable(source: Source, answer: DatasetAnswer, count: int) -> list[tuple[int, Row]] | Problem:
    """The first `count` rows that training can take, prepared, with their numbers in the source."""
    try:
        return list(islice(usable(_beginning(source, count), answer), count))
    except UnreadableError as error:
        return error.problem


def drawn(
    source: Source, answer: DatasetAnswer, count: int, seed: int, cancelled: Callable[[], bool] = never
) -> list[tuple[int, Row]] | Problem:
    """As many drawn over the whole source; of the hub over its beginning only, since drawing reads all of it."""
    try:
        # Twice as many, for rows that are left out.
        rows = _beginning(source, count) if source.format == "hub" else sample(source, 2 * count, seed, cancelled)
    except UnreadableError as error:
        return error.problem
    if isinstance(rows, Problem):
        return rows
    found = list(usable(rows, answer))
    return found[:: max(1, len(found) // count)][:count]


def _beginning(source: Source, count: int) -> list[tuple[int, Row]]:
    return list(enumerate(source.iterate(max(1000, 2 * count))))


def usable(rows: Iterable[tuple[int, Row]], answer: DatasetAnswer) -> Iterator[tuple[int, Row]]:
    """Those of the numbered rows that become a prompt, prepared."""
    prepare = prepare_function(answer)
    return ((number, made) for number, row in rows if (made := prepare(row)) is not None)


def _type(values: list[Any]) -> str:
    """The type of a column; a text stays text even if all of them look like dates: it is not read from a file here."""
    return "string" if values and all(isinstance(value, str) for value in values) else type_of(values)
