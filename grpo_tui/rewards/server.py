"""Completions from a server that speaks OpenAI's protocol: vLLM, llama.cpp, Ollama, a provider. Standard library only.

Chat prompts go to `/chat/completions`, plain text to `/completions`. A server that ignores `n` is asked again.
"""

import http.client
import json
import os
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_tui.inert import one_line, whole_characters
from grpo_tui.problem import Problem
from grpo_tui.rewards.sampling import Completion, Prompt, SampleRequest, Samples, Told, check_request

FIRST_WAIT = 0.5
"""Seconds before the second try; each further wait is twice as long."""

LONGEST_WAIT = 30.0
"""Seconds waited at most between two tries, whatever the server asks for."""

LOOK_SECONDS = 10.0
"""Time-out for the list of models."""

LARGEST = 64 << 20
"""Bytes of an answer: the completions of one prompt, or a list of models, are far shorter."""

LONGEST_NAME = 200
"""Characters of a model's name."""

MOST_MODELS = 1000
"""Names of models that are taken; a provider has some hundreds."""

_BLOCK = 1 << 16

_LOOKED_AT = 0.1
"""Seconds between two looks at whether the completions are still wanted."""

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Answers after which another try makes sense."""

_NO_SUCH_PLACE = frozenset({404, 405, 501})
"""Answers of a server that keeps no list of its models."""


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
    status: int = 0
    """What the server answered with; 0: nothing."""


_Answered = list[Completion] | BaseException


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
    """Have the server complete the prompts. Once it is `cancelled`, no answer is waited for."""
    key = environ.get(server.key_variable, "") if server.key_variable else ""
    problem = check_request(request) or _check(server, key)
    if problem:
        return problem
    call = _Call(server, key, cancelled, request=request)
    groups: dict[int, list[Completion]] = {}
    answers = _answers(call, len(request.prompts), max(1, server.at_once))
    try:
        while len(groups) < len(request.prompts):
            try:
                index, made = answers.get(timeout=_LOOKED_AT)
            except queue.Empty:
                if cancelled():
                    return call.cancelling()
                continue
            if isinstance(made, BaseException):
                raise made
            groups[index] = made
            if told:
                told(sum(map(len, groups.values())), len(request.prompts) * request.generations)
    except _RefusedError as refused:
        return refused.problem
    finally:
        call.given_up = True
    completions = tuple(each for index in range(len(request.prompts)) for each in groups[index])
    return Samples(
        prompts=request.prompts,
        completions=completions,
        generations=request.generations,
        origin=f"{server.model} at {urllib.parse.urlsplit(server.url).netloc}",
    )


def _answers(call: "_Call", prompts: int, at_once: int) -> "queue.SimpleQueue[tuple[int, _Answered]]":
    """What each of the prompts gets, by its number, in the order of the answers.

    Nobody waits for the threads: a server that does not answer must not keep the program from ending.
    """
    answers: queue.SimpleQueue[tuple[int, _Answered]] = queue.SimpleQueue()
    numbers = iter(range(prompts))
    turn = threading.Lock()

    def work() -> None:
        while not call.given_up:
            with turn:
                index = next(numbers, None)
            if index is None:
                return
            try:
                answers.put((index, call.group(index)))
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                answers.put((index, error))

    for _ in range(min(at_once, prompts)):
        threading.Thread(target=work, name="server-asker", daemon=True).start()
    return answers


def _check(server: Server, key: str) -> Problem | None:
    where = one_line(server.url, 200)
    try:
        parts = urllib.parse.urlsplit(server.url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and server.url.isprintable()
    except ValueError:  # brackets that are no address of IPv6
        good = False
    if not good or " " in server.url or not parts.path.isascii():
        return Problem(where, "This is no address of a server.", "Write it as http://localhost:8000/v1.")
    if parts.username or parts.password:
        return Problem(
            parts.hostname or "server", "The address holds a password.", "Put the key into an environment variable."
        )
    if server.key_variable and not key:
        return Problem(where, f"The variable {server.key_variable} is not set.", "Export it with the server's key.")
    if not (key.isascii() and key.isprintable()):
        what = f"What the variable {server.key_variable} holds cannot be sent: it has line breaks or letters of no key."
        return Problem(where, what, "Export it with the server's key alone.")
    return None


def models(server: Server, environ: Mapping[str, str] = os.environ) -> tuple[str, ...] | Problem:
    """The names of the models that the server has, as it tells them at `/models`; none where it tells no names."""
    key = environ.get(server.key_variable, "") if server.key_variable else ""
    problem = _check(server, key)
    if problem:
        return problem
    line = _Line(replace(server, tries=1, timeout=min(server.timeout, LOOK_SECONDS)), key)
    try:
        said = line.fetch("models")
    except _RefusedError as refused:
        return () if refused.status in _NO_SUCH_PLACE else refused.problem
    listed = said.get("data") if isinstance(said, dict) else None
    names = [each.get("id") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    good = [
        name for name in names if isinstance(name, str) and name and name.isprintable() and len(name) <= LONGEST_NAME
    ]
    return tuple(good[:MOST_MODELS])


@dataclass
class _Line:
    """A server that is talked to."""

    server: Server
    key: str
    cancelled: Callable[[], bool] = lambda: False
    given_up: bool = False

    @property
    def where(self) -> str:
        return f"server {one_line(urllib.parse.urlsplit(self.server.url).netloc, 100)}"

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
                    content = self.whole(answer)
                return json.loads(content)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in _BUSY or attempt == self.server.tries:
                        raise _RefusedError(self.refused(error), error.code) from None
                    wait = _asked_wait(error)
            except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
                if attempt == self.server.tries:
                    raise _RefusedError(self.unreachable(error)) from None
                wait = None
            except UnicodeError:  # a host that cannot be asked for: IDNA has no empty or very long labels
                what = "This is no address of a server."
                raise _RefusedError(Problem(self.where, what, "Write it as http://localhost:8000/v1.")) from None
            except (ValueError, RecursionError):
                raise _RefusedError(
                    Problem(self.where, "Its answer is not JSON.", "Check the address: it ends in /v1.")
                ) from None
            self.pause(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1) if wait is None else wait))
        raise AssertionError("a try either returns or raises")

    def whole(self, answer: http.client.HTTPResponse) -> bytes:
        """All of an answer. Raises _RefusedError for one without an end, and TimeoutError for one that trickles."""
        until = time.monotonic() + self.server.timeout
        content = bytearray()
        while block := answer.read1(_BLOCK):
            content += block
            if len(content) > LARGEST:
                what = f"Its answer is longer than {LARGEST >> 20} MiB."
                raise _RefusedError(Problem(self.where, what, "Check the address: it ends in /v1."))
            if self.given_up or self.cancelled():
                raise _RefusedError(self.cancelling())
            if time.monotonic() > until:
                raise TimeoutError
        if answer.length:  # read1 does not say that an answer was cut off
            raise http.client.IncompleteRead(b"", answer.length)
        return bytes(content)

    def cancelling(self) -> Problem:
        return Problem(self.where, "Sampling was cancelled.", "Start it again when you want to.")

    def pause(self, seconds: float) -> None:
        """Wait, unless the answer is wanted no longer."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.given_up and not self.cancelled():
            time.sleep(min(0.05, seconds))

    def refused(self, error: urllib.error.HTTPError) -> Problem:
        try:
            said = one_line(error.read(2000).decode("utf-8", "replace"), 300)
        except (OSError, http.client.HTTPException):  # it stops in the middle of its words
            said = ""
        elsewhere = one_line(error.headers.get("Location", ""), 200)
        if self.key:  # some servers repeat it
            said, elsewhere = said.replace(self.key, "…"), elsewhere.replace(self.key, "…")
        remedies = {
            401: "Name the environment variable that holds a valid key.",
            403: "Name the environment variable that holds a valid key.",
            404: f"Check the address, which ends in /v1, and whether it serves {self.server.model}.",
            429: "It takes no more requests for now: wait, or ask for fewer at once.",
        }
        if 300 <= error.code < 400:
            place = f", {elsewhere}" if elsewhere else ""
            what = f"It answers with status {error.code} and sends on to another place{place}, which is not asked."
            return Problem(self.where, what, "Give the address of the server itself.")
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
                raise _RefusedError(self.cancelling())
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
            Completion(text=whole_characters(text or ""), finished=ended.get(str(choice.get("finish_reason"))))
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
