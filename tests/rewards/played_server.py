"""A small server on this machine that speaks OpenAI's protocol and answers as a test wants it to."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


class Played:
    """A server whose answers are given by a function of the path and the request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.answer: Callable[[str, dict[str, Any]], Answer] = lambda path, body: (200, choices(path, body))
        self.headers: dict[str, str] = {}
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply({})

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, body: dict[str, Any]) -> None:
                played.asked.append((self.path, body, self.headers.get("Authorization", "")))
                status, content = played.answer(self.path, body)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in played.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                with contextlib.suppress(BrokenPipeError):  # the asker waits no longer
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


def choices(path: str, body: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    made = []
    for index in range(body["n"] if count is None else count):
        text = f"{body['seed']}.{index}"
        content = {"message": {"role": "assistant", "content": text}} if "chat" in path else {"text": text}
        made.append({**content, "finish_reason": "length" if index else "stop"})
    return {"choices": made}


@contextmanager
def playing() -> Iterator[Played]:
    """A server that answers until the end of the block."""
    played = Played()
    thread = threading.Thread(target=played.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield played
    finally:
        played.http.shutdown()
        thread.join()
        played.http.server_close()
