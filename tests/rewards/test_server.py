"""Completions from a server with OpenAI's protocol, played by a small one on this machine."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards import server as server_module
from grpo_tui.rewards.sampling import SampleRequest, Samples
from grpo_tui.rewards.server import Server, ask, models
from tests.rewards.played_server import Answer, Played, choices, playing

CHAT = ({"role": "user", "content": "2+2?"},)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(server_module, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("no_proxy", "*")
    with playing() as server:
        yield server


def asked(played: Played, *, prompts: tuple[Any, ...] = (CHAT, CHAT), **more: Any) -> Samples | Problem:
    settings = {"key_variable": "", "timeout": 10.0, **more}
    environ = settings.pop("environ", {})
    request = SampleRequest(prompts=prompts, generations=3, seed=10, **settings.pop("request", {}))
    return ask(Server(url=played.url, model="m", **settings), request, environ=environ)


def test_chat_prompts_are_asked_in_groups_with_the_settings_of_the_training(played: Played) -> None:
    samples = asked(played)
    assert isinstance(samples, Samples)
    assert samples.texts == ("10.0", "10.1", "10.2", "13.0", "13.1", "13.2")
    assert [each.finished for each in samples.completions[:2]] == [True, False]
    path, body, key = min(played.asked, key=lambda each: int(each[1]["seed"]))
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "m", "messages": list(CHAT), "n": 3, "temperature": 1.0, "max_tokens": 256, "seed": 10,
    }  # fmt: skip
    assert key == ""


def test_plain_text_goes_to_plain_completions_with_what_differs_from_the_defaults(played: Played) -> None:
    samples = asked(played, prompts=("one",), request={"top_k": 20, "min_p": 0.1, "top_p": 0.9})
    assert isinstance(samples, Samples)
    ((path, body, _),) = played.asked
    assert path == "/v1/completions"
    assert (body["prompt"], body["top_k"], body["min_p"], body["top_p"]) == ("one", 20, 0.1, 0.9)


def test_a_server_that_gives_one_at_a_time_is_asked_again(played: Played) -> None:
    played.answer = lambda path, body: (200, choices(path, body, 1))
    samples = asked(played, prompts=(CHAT,))
    assert isinstance(samples, Samples)
    assert samples.texts == ("10.0", "11.0", "12.0")


def test_a_busy_server_is_tried_again_and_then_given_up(played: Played) -> None:
    fail = iter((429, 503))
    played.headers = {"Retry-After": "0"}
    played.answer = lambda path, body: (next(fail, 200), choices(path, body))
    assert isinstance(asked(played, prompts=(CHAT,)), Samples)
    played.answer = lambda path, body: (503, {"error": "loading"})
    problem = asked(played, prompts=(CHAT,))
    assert isinstance(problem, Problem)
    assert "status 503" in problem.what
    assert "loading" in problem.what


@pytest.mark.parametrize(
    ("answer", "what", "remedy"),
    [
        ((401, {"error": "bad key hush"}), "status 401", "valid key"),
        ((404, {"error": "no such model"}), "no such model", "serves m"),
        ((400, b"too\x1b[2Jlong"), "status 400", "max_tokens"),
        ((302, b""), "status 302", "server itself"),
        ((200, b"<html>"), "not JSON", "/v1"),
        ((200, {"choices": []}), "no completion", "text completions"),
        ((200, {"choices": [{"message": {"content": [1]}}]}), "no completion", "text completions"),
        ((200, [1]), "no completion", "text completions"),
    ],
)
def test_a_refusal_is_told_once_and_inert_and_without_the_key(
    played: Played, answer: Answer, what: str, remedy: str
) -> None:
    played.answer = lambda path, body: answer
    problem = asked(played, prompts=(CHAT,), key_variable="KEY", environ={"KEY": "hush"})
    assert isinstance(problem, Problem)
    assert what in problem.what
    assert remedy in problem.remedy
    assert "hush" not in str(problem)
    assert "\x1b" not in str(problem)
    assert [key for _, _, key in played.asked] == ["Bearer hush"]


def test_a_server_that_does_not_answer_is_given_up_after_its_tries(played: Played) -> None:
    release = threading.Event()

    def wait(path: str, body: dict[str, Any]) -> Answer:
        release.wait(10)
        return 200, b"{}"

    played.answer = wait
    problem = asked(played, prompts=(CHAT,), timeout=0.1, tries=2)
    release.set()
    assert isinstance(problem, Problem)
    assert "within 0.1 s, in 2 tries" in problem.what
    assert len(played.asked) == 2


def test_a_missing_server_and_a_missing_key_are_named() -> None:
    request = SampleRequest(prompts=(CHAT,), generations=1)
    nobody = ask(Server(url="http://127.0.0.1:9/v1", model="m", tries=1), request)
    assert isinstance(nobody, Problem)
    assert "cannot be reached" in nobody.what
    keyless = ask(Server(url="http://localhost/v1", model="m", key_variable="KEY"), request, environ={})
    assert isinstance(keyless, Problem)
    assert "KEY is not set" in keyless.what
    for address in ("localhost:8000", "ftp://x/v1", "http://me:secret@host/v1"):
        problem = ask(Server(url=address, model="m"), request)
        assert isinstance(problem, Problem)
        assert "secret" not in str(problem)


def test_asking_can_be_cancelled_between_answers(played: Played) -> None:
    request = SampleRequest(prompts=(CHAT,) * 20, generations=1)
    server = Server(url=played.url, model="m", at_once=1)
    problem = ask(server, request, cancelled=lambda: len(played.asked) >= 2, environ={})
    assert isinstance(problem, Problem)
    assert "cancelled" in problem.what
    assert len(played.asked) < 20


def test_a_server_tells_its_models(played: Played) -> None:
    played.answer = lambda path, body: (200, {"data": [{"id": "qwen"}, {"id": ""}, "odd", {"id": 3}]})
    assert models(Server(url=played.url, model="")) == ("qwen",)
    assert played.asked[0][0] == "/v1/models"


@pytest.mark.parametrize("answer", [(200, {"data": []}), (200, []), (404, {})])
def test_a_server_that_tells_no_models_leaves_the_name_to_be_typed(played: Played, answer: Answer) -> None:
    played.answer = lambda path, body: answer
    assert models(Server(url=played.url, model="")) == ()
    assert len(played.asked) == 1, "it is asked once, while somebody waits"


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"[" * 200_000), (401, {}), (500, {})])
def test_a_server_that_gives_no_list_of_models_is_said(played: Played, answer: Answer) -> None:
    played.answer = lambda path, body: answer
    assert isinstance(models(Server(url=played.url, model="")), Problem)
    assert len(played.asked) == 1, "it is asked once, while somebody waits"


def test_names_of_models_that_no_screen_can_show_are_no_names(played: Played) -> None:
    names = ["qwen", "a\nb", "m\x1b[31m", "\ud800", "m" * 10_000, *map(str, range(5000))]
    played.answer = lambda path, body: (200, {"data": [{"id": name} for name in names]})
    found = models(Server(url=played.url, model=""))
    assert isinstance(found, tuple)
    assert (found[:2], len(found)) == (("qwen", "0"), server_module.MOST_MODELS)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://a b/v1", "http://localhost/\xfc/v1", "http://a\x1b[31mb/v1", "http://.../v1", "http://"],
)
def test_what_is_no_address_is_called_so(url: str) -> None:
    problem = models(Server(url=url, model=""))
    assert isinstance(problem, Problem)
    assert "no address" in problem.what
    assert "\x1b" not in str(problem)


@pytest.mark.parametrize("key", ["hush\n", "h\xfcsh"])
def test_a_key_that_cannot_be_sent_is_named_by_its_variable_alone(played: Played, key: str) -> None:
    problem = models(Server(url=played.url, model="", key_variable="KEY"), environ={"KEY": key})
    assert isinstance(problem, Problem)
    assert "KEY" in problem.what
    assert key.strip() not in str(problem)
    assert played.asked == []


def test_an_answer_without_an_end_is_given_up(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LARGEST", 1 << 20)
    played.answer = lambda path, body: (200, b" " * (2 << 20))
    problem = asked(played, prompts=(CHAT,))
    assert isinstance(problem, Problem)
    assert "longer than 1 MiB" in problem.what
    assert len(played.asked) == 1


def test_half_a_character_in_an_answer_becomes_one_that_a_file_can_keep(played: Played) -> None:
    played.answer = lambda path, body: (200, {"choices": [{"text": "x\ud800"}]})
    samples = asked(played, prompts=("one",))
    assert isinstance(samples, Samples)
    assert samples.texts == ("x?",) * 3


def test_nobody_waits_for_a_server_that_hangs_once_it_is_cancelled(played: Played) -> None:
    release = threading.Event()

    def hang(path: str, body: dict[str, Any]) -> Answer:
        release.wait(60)
        return 200, b"{}"

    played.answer = hang
    request = SampleRequest(prompts=(CHAT,) * 3, generations=1)
    problem = ask(Server(url=played.url, model="m"), request, cancelled=lambda: bool(played.asked), environ={})
    assert not release.is_set()
    askers = [thread for thread in threading.enumerate() if thread.name == "server-asker"]
    release.set()
    assert isinstance(problem, Problem)
    assert "cancelled" in problem.what
    assert askers
    assert all(thread.daemon for thread in askers), "the program can end while they wait"
