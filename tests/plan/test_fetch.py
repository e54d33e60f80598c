"""Configuration and tokenizer are fetched from a hub by the real library: here from one on this machine."""

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from grpo_tui.child import Worker
from grpo_tui.plan.model import ModelFacts, read_model
from grpo_tui.problem import Problem
from tests.plan.shapes import CONFIGS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": json.dumps(CONFIGS["Qwen2.5-0.5B"]).encode(),
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"eos_token": "<|im_end|>", "chat_template": "x"}',
    "model.safetensors": b"\0" * 1000,
    "onnx/config.json": b"{}",
}


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves one model, `team/tiny`; `team/gated` is gated, `team/broken` fails, and no other is known."""

    asked: ClassVar[list[str]] = []

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        if "team/gated" in path:
            self.answer(403, b"{}", X_Error_Code="GatedRepo")
        elif "team/broken" in path:
            self.answer(400, b"{}")
        elif path.startswith("/api/models/team/tiny"):
            siblings = [{"rfilename": name, "size": len(content)} for name, content in FILES.items()]
            told = {"id": "team/tiny", "sha": COMMIT, "siblings": siblings, "gated": False, "private": False}
            self.answer(200, json.dumps(told).encode(), Content_Type="application/json")
        elif path.startswith("/team/tiny/resolve/"):
            name = path.split("/", 5)[5]
            self.answer(200, FILES[name], ETag=f'"{hash(name):x}"', X_Repo_Commit=COMMIT)
        elif path == "/api/whoami-v2":
            known = self.headers.get("Authorization") == "Bearer hf_right"
            self.answer(200 if known else 401, b'{"name": "ada", "auth": {"accessToken": {"displayName": "x"}}}')
        else:
            self.answer(404, b"{}", X_Error_Code="RepoNotFound")

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def worker(home: Path) -> Iterator[Worker]:
    """A worker whose hub is this process."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    environ = {
        **kept,
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "*",
    }
    with Worker("model", env=environ) as started:
        yield started
    server.shutdown()
    server.server_close()


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
