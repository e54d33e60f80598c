"""A project written once by `grpo-tui init`, and workers that all commands of the tests share."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.__main__ import main
from grpo_tui.child import Worker
from grpo_tui.session import Session
from tests.plan.tiny import write_tiny_model

REWARDS = '''"""Rewards of the user."""


def correct(completions, answer, **kwargs):
    """1 for the right number."""
    return [float(a in c[-1]["content"]) for c, a in zip(completions, answer)]


def brief(completions, **kwargs):
    """The shorter the better."""
    return [-len(c[-1]["content"]) / 100 for c in completions]
'''

SMALL = ("grpo.max_steps=2", "grpo.max_completion_length=8", "grpo.num_generations=2")


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Worker]]:
    """Workers by name, each started once."""
    started: dict[str, Worker] = {}
    yield started
    for worker in started.values():
        worker.close()


@pytest.fixture
def shared(
    workers: dict[str, Worker], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A home of its own, and sessions that take the shared workers; gives a folder with a model, data and rewards."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def worker(self: Session, name: str) -> Worker:
        return workers.setdefault(name, Worker(name))

    monkeypatch.setattr(Session, "worker", worker)
    monkeypatch.setattr(Session, "close", lambda self: None)
    place = tmp_path_factory.mktemp("place")
    write_tiny_model(place / "model")
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n), "level": "easy"} for n in range(40)]
    (place / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "mine.py").write_text(REWARDS)
    return place


def init(place: Path, *more: str, project: str = "project") -> int:
    """`grpo-tui init` for the user's own model, data and rewards."""
    return main(
        [
            "init", str(place / project), "--model", str(place / "model"), "--data", str(place / "sums.jsonl"),
            "--rewards", str(place / "mine.py"), "--reward", "correct", "--reward", "brief=0.25", "--cpu",
            *(word for setting in SMALL for word in ("--set", setting)), *more,
        ]
    )  # fmt: skip


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object that a command printed, with nothing else on standard output."""
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    content = json.loads(printed)
    assert isinstance(content, dict)
    return content
