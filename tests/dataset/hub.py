"""A hub of data sets of one's own: what `datasets` asks of it is answered on this machine."""

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLD = "89abcdef0123456789abcdef0123456789abcdef"


def _rows(count: int, word: str) -> bytes:
    return "".join(
        json.dumps({"question": f"{word} {n}?", "answer": f"#### {n}"}) + "\n" for n in range(count)
    ).encode()


_CARD = """---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train.jsonl
- config_name: hard
  data_files:
  - split: train
    path: hard/train.jsonl
  - split: test
    path: hard/test.jsonl
---
"""

DATA_SETS: Mapping[str, Mapping[str, bytes]] = {
    "team/plain": {"train.jsonl": _rows(700, "plain"), "test.jsonl": _rows(3, "test")},
    "team/configs": {
        "README.md": _CARD.encode(),
        "main/train.jsonl": _rows(5, "main"),
        "hard/train.jsonl": _rows(6, "hard"),
        "hard/test.jsonl": _rows(2, "hard test"),
    },
}
"""Files by data set."""


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves DATA_SETS; `team/gated` is gated, `team/former` is called `team/plain` now, and no other is known."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def answer(self, status: int, content: bytes | list[object] | dict[str, object] = b"", **headers: str) -> None:
        """Send one answer."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        named = {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **headers}
        for name, value in named.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer what is asked of a data set."""
        length = int(self.headers.get("Content-Length") or 0)
        given = self.rfile.read(length).decode()
        path = unquote(self.path.partition("?")[0])
        self.asked.append(f"{self.command} {self.path}")
        api = path.startswith("/api/datasets/")
        name, _, rest = _parted(path.removeprefix("/api").removeprefix("/datasets/"))
        if name == "team/gated":
            self.answer(403, {}, X_Error_Code="GatedRepo", X_Error_Message="Access to dataset team/gated is restricted")
        elif name == "team/former":
            self.answer(307, {}, Location=self.path.replace(name, "team/plain"))
        elif name not in DATA_SETS:
            self.answer(404, {}, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        else:
            files = DATA_SETS[name]
            if api and rest.startswith("tree/"):
                self.answer(200, [_entry(file, files) for file in files])
            elif api and rest.startswith("paths-info/"):
                asked = json.loads(given)["paths"] if given.startswith("{") else _form(given)
                self.answer(200, [_entry(file, files) for file in asked if file in files])
            elif api:
                self._told(name, files, rest)
            else:
                self._file(files, rest)

    def _told(self, name: str, files: Mapping[str, bytes], rest: str) -> None:
        if rest.removeprefix("revision/") not in ("", "main", COMMIT):
            self.answer(404, {}, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
            return
        siblings: list[object] = [{"rfilename": file} for file in files]
        self.answer(200, {"id": name, "sha": COMMIT, "siblings": siblings, "gated": False, "private": False})

    def _file(self, files: Mapping[str, bytes], rest: str) -> None:
        file = rest.split("/", 2)[2]
        if file not in files:
            self.answer(404, {}, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found")
            return
        content, status, headers = files[file], 200, {"ETag": f'"{file}"', "Accept-Ranges": "bytes"}
        if asked := self.headers.get("Range"):
            start, _, end = asked.removeprefix("bytes=").partition("-")
            last = min(int(end or len(content) - 1), len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{last}/{len(content)}"
            content, status = content[int(start) : last + 1], 206
        self.answer(status, content, **headers)

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def _parted(path: str) -> tuple[str, str, str]:
    owner, _, rest = path.partition("/")
    name, slash, rest = rest.partition("/")
    return f"{owner}/{name}", slash, rest


def _form(given: str) -> list[str]:
    from urllib.parse import parse_qs

    return parse_qs(given).get("paths", [])


def _entry(file: str, files: Mapping[str, bytes]) -> object:
    return {"type": "file", "oid": "0" * 40, "size": len(files[file]), "path": file}


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
