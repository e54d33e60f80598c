"""One scoring worker for the whole room: starting it costs, asking does not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.rewards.bench import ScoreRequest, ScoreTable, score, start_worker


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with start_worker(tmp_path_factory.mktemp("project")) as started:
        yield started


@pytest.fixture
def rewards_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a rewards.py and return its path."""

    def write(code: str) -> Path:
        path = tmp_path / "rewards.py"
        path.write_text(dedent(code), encoding="utf-8")
        return path

    return write


@pytest.fixture
def scored(worker: Worker, rewards_file: Callable[[str], Path]) -> Callable[..., ScoreTable]:
    """Score functions written on the spot; the request must be one that can be scored."""

    def run(code: str, names: str, completions: tuple[str, ...] = ("a 42", "b", "c c"), **more: object) -> ScoreTable:
        request = ScoreRequest(path=rewards_file(code), names=tuple(names.split()), completions=completions, **more)  # type: ignore[arg-type]  # the fields of ScoreRequest
        table = score(worker, request)
        assert not isinstance(table, Problem), str(table)
        return table

    return run
