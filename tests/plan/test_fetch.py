"""Configuration and tokenizer are fetched from a hub by the real library: here from one on this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.plan.model import ModelFacts, read_model
from grpo_tui.problem import Problem
from tests.hub import COMMIT, FILES, Hub, serving


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def worker(home: Path) -> Iterator[Worker]:
    """A worker whose hub is this process."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    with serving() as hub:
        environ = {**kept, "HOME": str(home), "HF_HOME": str(home / "hf"), **hub}
        with Worker("model", env=environ) as started:
            yield started


def test_a_model_of_the_hub_can_be_planned_for_without_its_weights(worker: Worker, home: Path) -> None:
    said: list[str] = []
    found = worker.call("fetch", {"name": "team/tiny", "revision": ""}, on_progress=lambda p: said.append(p["text"]))
    assert not isinstance(found, Problem), found
    facts = read_model("team/tiny", environ={"HF_HOME": str(home / "hf")})
    assert isinstance(facts, ModelFacts), facts
    assert facts.commit == COMMIT
    assert facts.shape.parameters == 494_032_768
    assert facts.chat_template
    assert facts.weight_bytes == 0
    assert not any("safetensors" in path or "onnx" in path for path in Hub.asked)
    assert any("config.json" in line for line in said)


def test_its_size_is_told_before_anything_large_is_fetched(worker: Worker) -> None:
    found = worker.call("look", {"name": "team/tiny"})
    assert isinstance(found, dict)
    assert found["weight_bytes"] == 1000
    assert found["files_bytes"] == sum(len(FILES[name]) for name in FILES if name.startswith(("config", "token")))


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("team/gated", "gated", "hf auth login"),
        ("team/nobody", "no model of this name", "hf auth login"),
        ("team/broken", "status 400", "local folder"),
        ("not a name", "no name of a model", "owner/name"),
    ],
)
def test_what_the_hub_refuses_is_told_with_a_way_out(worker: Worker, name: str, what: str, remedy: str) -> None:
    problem = worker.call("fetch", {"name": name})
    assert isinstance(problem, Problem)
    assert what in problem.what
    assert remedy in problem.remedy


def test_a_token_goes_into_the_hubs_own_store_and_a_wrong_one_is_not_repeated(worker: Worker, home: Path) -> None:
    wrong = worker.call("log_in", {"token": "hf_wrong"})
    assert isinstance(wrong, Problem)
    assert "hf_wrong" not in str(wrong)
    assert not (home / "hf" / "token").exists()
    assert worker.call("log_in", {"token": "hf_right"}) == {"user": "ada"}
    assert (home / "hf" / "token").read_text() == "hf_right"


def test_a_hub_that_cannot_be_reached_is_told_as_such(tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HF_HOME": str(tmp_path),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "NO_PROXY": "*",
    }
    with Worker("model", env=environ) as worker:
        problem = worker.call("look", {"name": "team/tiny"})
    assert isinstance(problem, Problem)
    assert "cannot be reached" in problem.what
