"""What the tests of this room share: one introspecting worker, for importing TRL takes seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.plan.dialect import Schema, load_schema
from grpo_tui.problem import Problem


@pytest.fixture(scope="session")
def introspect() -> Iterator[Worker]:
    """A worker that knows the installed TRL."""
    with Worker("introspect") as worker:
        yield worker


@pytest.fixture(scope="session")
def schema(introspect: Worker, tmp_path_factory: pytest.TempPathFactory) -> Schema:
    """What the installed libraries accept, read by the worker."""
    cache: Path = tmp_path_factory.mktemp("cache")
    found = load_schema(introspect, {"XDG_CACHE_HOME": str(cache)})
    assert not isinstance(found, Problem), found
    return found
