"""Completions from a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, a provider. Standard library only.

Chat prompts go to `/chat/completions`, plain text to `/completions`. A server that ignores `n` is asked again.
"""

import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.rewards.sampling import Completion, Prompt, SampleRequest, Samples, Told, check_request

FIRST_WAIT = 0.5
"""Seconds before the second try; each further wait is twice as long."""

LONGEST_WAIT = 30.0
"""Seconds waited at most between two tries, whatever the server asks for."""

LOOK_SECONDS = 10.0
"""Time-out for the list of models."""

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Answers after which another try makes sense."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where to ask, and how patiently."""

    url: str
    """With the version, as `http://localhost:8000/v1`."""

    model: str
    key_variable: str = ""
    """Environment variable that holds the key; empty: none is sent. The key itself is kept nowhere."""

    timeout: float = 120.0
    """Seconds for one answer."""

    tries: int = 3
    at_once: int = 8
    """Prompts asked for at the same time."""


@dataclass
class _RefusedError(Exception):
    """Why a prompt got no completions."""

    problem: Problem


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another place."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def ask(
    server: Server,
    request: SampleRequest,
    told: Told | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    environ: Mapping[str, str] = os.environ,
) -> Samples | Problem:
    """Have the server complete the prompts. `cancelled` is looked at between answers."""
    key = environ.get(server.key_variable, "") if server.key_variable else ""
    problem = check_request(request) or _check(server, key)
    if problem:
        return problem
    call = _Call(server, key, cancelled, request=request)
    groups: dict[int, list[Completion]] = {}
    with ThreadPoolExecutor(max_workers=max(1, server.at_once)) as pool:
        asked = {pool.submit(call.group, index): index for index in range(len(request.prompts))}
        for done in as_completed(asked):
            try:
                groups[asked[done]] = done.result()
            except _RefusedError as refused:
                call.given_up = True
                pool.shutdown(wait=False, cancel_futures=True)
                return refused.problem
            if told:
                told(sum(map(len, groups.values())), len(request.prompts) * request.generations)
    made = tuple(each for index in range(len(request.prompts)) for each in groups[index])
    return Samples(
        prompts=request.prompts,
        completions=made,
        generations=request.generations,
        origin=f"{server.model} at {urllib.parse.urlsplit(server.url).netloc}",
    )


def _check(server: Server, key: str) -> Problem | None:
    where = one_line(server.url, 200)
    parts = urllib.parse.urlsplit(server.url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return Problem(where, "This is no address of a server.", "Write it as http://localhost:8000/v1.")
    if parts.username or parts.password:
        return Problem(
            parts.hostname or "server", "The address holds a password.", "Put the key into an environment variable."
        )
    if server.key_variable and not key:
        return Problem(where, f"The variable {server.key_variable} is not set.", "Export it with the server's key.")
    return None


def models(server: Server, environ: Mapping[str, str] = os.environ) -> tuple[str, ...] | Problem:
    """The names of the models that the server has, as it tells them at `/models`."""
    key = environ.get(server.key_variable, "") if server.key_variable else ""
    problem = _check(server, key)
    if problem:
        return problem
    line = _Line(replace(server, tries=1, timeout=min(server.timeout, LOOK_SECONDS)), key)
    try:
        said = line.fetch("models")
    except _RefusedError as refused:
        return refused.problem
    listed = said.get("data") if isinstance(said, dict) else None
    names = [each.get("id") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    found = tuple(name for name in names if isinstance(name, str) and name)
    return found or Problem(line.where, "It names no model.", "Type the name that it serves.")


@dataclass
class _Line:
    """A server that is talked to."""

    server: Server
    key: str
    cancelled: Callable[[], bool] = lambda: False
    given_up: bool = False

    @property
    def where(self) -> str:
        return f"server {urllib.parse.urlsplit(self.server.url).netloc}"

    def fetch(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The server's answer as JSON, after as many tries as it takes. Raises _RefusedError."""
        request = urllib.request.Request(
            f"{self.server.url.rstrip('/')}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self.key}"} if self.key else {}),
        )
        for attempt in range(1, self.server.tries + 1):
            try:
                with _OPENER.open(request, timeout=self.server.timeout) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in _BUSY or attempt == self.server.tries:
                        raise _RefusedError(self.refused(error)) from None
                    wait = _asked_wait(error)
            except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
                if attempt == self.server.tries:
                    raise _RefusedError(self.unreachable(error)) from None
                wait = None
            except ValueError:
                raise _RefusedError(
                    Problem(self.where, "Its answer is not JSON.", "Check the address: it ends in /v1.")
                ) from None
            self.pause(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1) if wait is None else wait))
        raise AssertionError("a try either returns or raises")

    def pause(self, seconds: float) -> None:
        """Wait, unless the answer is wanted no longer."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.given_up and not self.cancelled():
            time.sleep(min(0.05, seconds))

    def refused(self, error: urllib.error.HTTPError) -> Problem:
        said = one_line(error.read(2000).decode("utf-8", "replace"), 300)
        if self.key:
            said = said.replace(self.key, "…")  # some servers repeat it
        remedies = {
            401: "Name the environment variable that holds a valid key.",
            403: "Name the environment variable that holds a valid key.",
            404: f"Check the address, which ends in /v1, and whether it serves {self.server.model}.",
            429: "It takes no more requests for now: wait, or ask for fewer at once.",
        }
        remedy = remedies.get(error.code, "Read what it says; `max_tokens` may be too large for the model.")
        return Problem(self.where, f"It answers with status {error.code}: {said or error.reason}.", remedy)

    def unreachable(self, error: Exception) -> Problem:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            return Problem(
                self.where,
                f"It did not answer within {self.server.timeout:g} s, in {self.server.tries} tries.",
                "Allow more time, shorter completions, or fewer at once.",
            )
        said = one_line(str(reason) or type(reason).__name__, 200)
        return Problem(self.where, f"It cannot be reached: {said}.", "Check that it runs, and its address.")


@dataclass
class _Call(_Line):
    """What all the requests for completions share."""

    request: SampleRequest = field(kw_only=True)

    def group(self, index: int) -> list[Completion]:
        """The completions of one prompt. Raises _RefusedError."""
        made: list[Completion] = []
        while len(made) < self.request.generations:
            if self.given_up or self.cancelled():
                raise _RefusedError(Problem(self.where, "Sampling was cancelled.", "Start it again when you want to."))
            seed = self.request.seed + index * self.request.generations + len(made)
            body = self.body(self.request.prompts[index], self.request.generations - len(made), seed)
            made += self.choices(self.fetch("completions" if "prompt" in body else "chat/completions", body))
        return made[: self.request.generations]

    def body(self, prompt: Prompt, count: int, seed: int) -> dict[str, Any]:
        """The request for `count` completions. What is at its default is left out: not every server knows it."""
        asked = self.request
        opening = {"prompt": prompt} if isinstance(prompt, str) else {"messages": list(prompt)}
        extra = {
            "top_p": asked.top_p if asked.top_p < 1 else None,
            "top_k": asked.top_k or None,
            "min_p": asked.min_p,
            "repetition_penalty": asked.repetition_penalty if asked.repetition_penalty != 1 else None,
            "chat_template_kwargs": dict(asked.chat_template_kwargs) or None,
        }
        return {
            "model": self.server.model, **opening, "n": count, "temperature": asked.temperature,
            "max_tokens": asked.max_completion_length, "seed": seed,
            **{name: value for name, value in extra.items() if value is not None},
        }  # fmt: skip

    def choices(self, answer: Any) -> list[Completion]:
        """The completions in an answer. Raises _RefusedError for an answer without any."""
        found = answer.get("choices") if isinstance(answer, dict) else None
        texts = [_text(choice) for choice in found] if isinstance(found, list) else []
        if not texts or any(text is None for text in texts):
            raise _RefusedError(
                Problem(self.where, "Its answer holds no completion.", "Is it a server of text completions?")
            )
        ended = {"stop": True, "length": False}
        return [
            Completion(text=text or "", finished=ended.get(str(choice.get("finish_reason"))))
            for text, choice in zip(texts, found or (), strict=True)
        ]


def _text(choice: Any) -> str | None:
    """What was written: the `text` of a plain completion, the content of a message (null: nothing)."""
    if not isinstance(choice, dict):
        return None
    if isinstance(choice.get("text"), str):
        return str(choice["text"])
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    return "" if content is None else content if isinstance(content, str) else None


def _asked_wait(error: urllib.error.HTTPError) -> float | None:
    """Seconds that the server asks to wait, as its header says; None: it does not."""
    try:
        return max(0.0, float(error.headers.get("Retry-After", "")))
    except ValueError:
        return None
