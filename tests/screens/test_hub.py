"""The model step with a hub: what is fetched is named first, and a token goes where it belongs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.model import ModelStep

from grpo_tui import state
from grpo_tui.draft import DatasetAnswer, Draft, HardwareAnswer, ModelAnswer
from tests.hub import serving
from tests.screens.conftest import ready, running, text_of, until


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving() as environ:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield


def begun(project: Path, model: str) -> None:
    """A project that stands at its model step."""
    project.mkdir()
    draft = Draft(
        model=ModelAnswer(name=model),
        hardware=HardwareAnswer(cpu=True),
        dataset=DatasetAnswer(source="gone.jsonl", prompt="question"),
        step="model",
    )
    assert state.save(project, draft) is None


async def test_the_bytes_and_the_place_are_named_before_a_fetch(
    hub: None, project: Path, home: Path, make_app: Callable[..., GrpoApp]
) -> None:
    begun(project, "team/tiny")
    async with running(make_app()) as pilot:
        step = await ready(pilot)
        assert step.failed
        await pilot.press("d")
        await until(pilot, "the question", lambda: "Fetch from" in text_of(pilot.app.screen))
        shown = text_of(pilot.app.screen)
        assert "KiB" in shown
        assert "1000" not in shown
        assert "free" in shown
        assert not list(home.rglob("config.json"))
        await pilot.press("y")
        step = await ready(pilot)
        await until(pilot, "the facts", lambda: getattr(pilot.app.screen, "facts", None) is not None)
        assert isinstance(step, ModelStep)
        assert "494,032,768" in text_of(step)
        assert list(home.rglob("config.json"))
        assert not list(home.rglob("*.safetensors"))
        later = step.session.weights_to_fetch(step.draft)
        assert later is not None
        assert later.weight_bytes == 2 * 494_032_768
        assert str(later.place).startswith(str(home))


async def test_a_no_fetches_nothing(hub: None, project: Path, home: Path, make_app: Callable[..., GrpoApp]) -> None:
    begun(project, "team/tiny")
    async with running(make_app()) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(pilot, "the question", lambda: "Fetch from" in text_of(pilot.app.screen))
        await pilot.press("n")
        await ready(pilot)
        assert not list(home.rglob("config.json"))


async def test_a_gated_model_is_told_and_a_token_goes_to_the_hubs_own_store(
    hub: None, project: Path, home: Path, make_app: Callable[..., GrpoApp]
) -> None:
    begun(project, "team/gated")
    async with running(make_app()) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(pilot, "the refusal", lambda: "gated" in text_of(pilot.app.screen))
        await ready(pilot)
        await pilot.press("t")
        await until(pilot, "the question", lambda: "token" in text_of(pilot.app.screen))
        await pilot.press(*"hf_right", "enter")
        await until(pilot, "the token", lambda: bool(list(home.rglob("token"))))
        await ready(pilot)
        assert "hf_right" not in text_of(pilot.app.screen)
    kept = "".join(path.read_text(errors="replace") for path in project.rglob("*") if path.is_file())
    assert "hf_right" not in kept
