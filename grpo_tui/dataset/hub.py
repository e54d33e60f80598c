"""Data sets of the hub, streamed by a worker: the `datasets` library is never imported here."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import cast

from grpo_tui.child import Worker
from grpo_tui.dataset.files import is_data_file
from grpo_tui.dataset.rows import Column, Row, UnreadableError, infer
from grpo_tui.dataset.source import Source
from grpo_tui.problem import Problem

_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$")  # huggingface_hub.utils.validate_repo_id


def is_hub_id(text: str) -> bool:
    """Could this be a data set of the hub? Asked only of what is no local path."""
    looks_local = text.startswith((".", "/", "~")) or is_data_file(Path(text)) or "\\" in text
    return not looks_local and "/" in text and _HUB_ID.match(text) is not None and ".." not in text and "--" not in text


@dataclass(frozen=True)
class HubRows:
    """Rows of a hub data set, streamed by a worker in pages."""

    request: Mapping[str, str]
    columns: tuple[Column, ...]
    first: tuple[Row, ...]
    more: bool = True
    """There may be rows behind the first ones."""

    PAGE = 500

    @property
    def looked_at(self) -> int:
        return len(self.first)

    def iterate(self, start: int = 0) -> Iterator[Row]:
        yield from self.first[start:]
        if not self.more:
            return
        at = max(start, len(self.first))
        with Worker("hub_rows") as worker:
            while True:
                page = worker.call("rows", {**self.request, "start": at, "count": self.PAGE})
                if isinstance(page, Problem):
                    raise UnreadableError(page)
                yield from page["rows"]
                at += len(page["rows"])
                if len(page["rows"]) < self.PAGE:
                    return

    def count(self, cancelled: Callable[[], bool]) -> int:
        return sum(1 for _ in takewhile(lambda row: not cancelled(), self.iterate()))


def open_hub(name: str, options: dict[str, str], split: str, worker: Worker | None) -> Source | Problem:
    """The data set `name` of the hub, its first rows fetched by `worker` or one of its own."""
    request = {"name": name, "split": split, **{key: options.get(key, "") for key in ("config", "revision")}}
    if worker is None:
        with Worker("hub_rows") as own:
            answer = own.call("open", request)
    else:
        answer = worker.call("open", request)
    if isinstance(answer, Problem):
        return answer
    request["split"] = answer["split"]
    used = {**options, **({"config": answer["config"]} if answer["config"] else {})}
    rows = tuple(cast(list[Row], answer["rows"]))
    columns = tuple(replace(column, type=answer["types"].get(column.name, column.type)) for column in infer(rows))
    reader = HubRows({**request, "config": answer["config"]}, columns, rows, bool(answer["more"]))
    notes = (f"from the hub, streamed: split {answer['split']}",)
    return Source(
        name, "hub", columns, len(rows), answer["count"], answer["count"] is not None, notes, used,
        answer["split"], tuple(answer["splits"]), (), reader=reader,
    )  # fmt: skip
