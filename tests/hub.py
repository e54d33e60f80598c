"""A Hugging Face hub of one's own: what the real library asks of it is answered on this machine."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from tests.plan.shapes import CONFIGS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": json.dumps(dict(CONFIGS["Qwen2.5-0.5B"])).encode(),
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


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """The hub, served; the environment that leads the library to it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "*",
    }
    server.shutdown()
    server.server_close()
