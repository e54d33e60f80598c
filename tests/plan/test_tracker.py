"""A tracker's key goes through the tracker's own library into its own store. Here the library is a stand-in."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem

STAND_IN = """
import os, pathlib

def login(key, relogin):
    if not key.startswith("right"):
        raise RuntimeError(f"no such key: {key}")
    pathlib.Path(os.environ["HOME"], ".netrc").write_text(f"machine api.wandb.ai login user password {key}")
    return True
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "wandb.py").write_text(STAND_IN)
    environ = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "library")}
    with Worker("tracker", env=environ) as started:
        yield started


def test_a_key_goes_into_the_trackers_own_store(worker: Worker, tmp_path: Path) -> None:
    assert worker.call("log_in", {"tracker": "wandb", "key": " right-key \n"}) == {}
    assert (tmp_path / ".netrc").read_text().endswith("password right-key")


def test_a_wrong_key_is_told_and_not_repeated(worker: Worker, tmp_path: Path) -> None:
    problem = worker.call("log_in", {"tracker": "wandb", "key": "wrong-key"})
    assert isinstance(problem, Problem)
    assert "not accepted" in problem.what
    assert "wrong-key" not in str(problem)
    assert not (tmp_path / ".netrc").exists()


def test_a_tracker_that_is_not_installed_is_named(worker: Worker) -> None:
    problem = worker.call("log_in", {"tracker": "no_such_tracker", "key": "x"})
    assert isinstance(problem, Problem)
    assert "not installed" in problem.what
