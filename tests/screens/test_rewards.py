"""The rewards step: a file of one's own, edited here or elsewhere."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.rewards import RewardsStep
from textual.pilot import Pilot
from textual.widgets import TextArea

from grpo_tui import state
from grpo_tui.draft import RewardItem, RewardsAnswer
from tests.screens.conftest import own_model, ready, running, text_of, until

CODE = "def pays(completions, **kwargs):\n    return [1.0 for _ in completions]\n"


@pytest.fixture
def app(project: Path, make_app: Callable[..., GrpoApp], monkeypatch: pytest.MonkeyPatch) -> GrpoApp:
    """The wizard at its rewards step, with a file of the user's; no editor is set."""
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    project.mkdir()
    (project / "rewards.py").write_text(CODE)
    rows = "".join(f'{{"question": "{n} + 1?", "answer": "{n + 1}"}}\n' for n in range(8))
    (project / "rows.jsonl").write_text(rows)
    draft = own_model(project)
    draft = replace(
        draft,
        task=replace(draft.task, recipe=""),
        dataset=replace(draft.dataset, source="rows.jsonl", options={}, split=""),
        rewards=RewardsAnswer(items=(RewardItem(name="pays"),)),
        step="rewards",
    )
    assert state.save(project, draft) is None
    return make_app()


async def edit(pilot: Pilot[str], text: str) -> None:
    """Open the file in the terminal and write another text into it."""
    await pilot.press("e")
    await until(pilot, "the text", lambda: bool(pilot.app.screen.query(TextArea)))
    pilot.app.screen.query_one(TextArea).text = text
    await pilot.pause()


async def test_the_file_is_edited_in_the_terminal(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        await edit(pilot, CODE.replace("1.0", "0.5") + "\n\ndef more(completions, **kwargs):\n    return [0.0]\n")
        await pilot.press("ctrl+s")
        await until(pilot, "the new function", lambda: "more" in text_of(pilot.app.screen))
        assert "0.5" in (project / "rewards.py").read_text()


async def test_an_edited_text_is_not_thrown_away_by_one_key(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        await edit(pilot, "x = 1\n")
        await pilot.press("escape")
        assert "throws the changes away" in text_of(pilot.app.screen)
        assert pilot.app.screen.query_one(TextArea).text == "x = 1\n"
        await pilot.press("escape")
        await ready(pilot)
        assert (project / "rewards.py").read_text() == CODE


async def test_a_file_saved_elsewhere_is_read_again(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        step = await ready(pilot)
        assert isinstance(step, RewardsStep)
        await until(pilot, "the first look at the file", lambda: step._saved is not None)
        (project / "rewards.py").write_text(CODE + "\n\ndef elsewhere(completions, **kwargs):\n    return [0.0]\n")
        await until(pilot, "the new function", lambda: "elsewhere" in text_of(pilot.app.screen))


async def test_what_would_stop_the_training_is_named_without_running_it(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        await edit(pilot, "def pays(completions, solution):\n    raise SystemExit('it was run')\n")
        await pilot.press("ctrl+s")
        await until(pilot, "the problem", lambda: "solution" in text_of(pilot.app.screen))
        assert await ready(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, RewardsStep)


async def test_a_function_of_the_catalogue_is_added_to_the_file(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        step = await ready(pilot)
        await pilot.press("a")
        await until(pilot, "the choices", lambda: "Which function?" in text_of(pilot.app.screen))
        await pilot.press("down", "enter")  # the right number
        await until(pilot, "the function", lambda: "correct" in [item.name for item in step.draft.rewards.items])
        await ready(pilot)
        assert "correct" in text_of(step)
    code = (project / "rewards.py").read_text()
    assert code.startswith(CODE.splitlines()[0]) or "def pays(" in code
    assert "def correct(" in code


async def test_a_described_format_becomes_a_function_with_tests_that_pass(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        step = await ready(pilot)
        await pilot.press("m")
        await until(pilot, "the text", lambda: bool(pilot.app.screen.query(TextArea)))
        pilot.app.screen.query_one(TextArea).text = "<plan>think</plan><reply>42</reply>"
        await pilot.press("ctrl+s")
        await until(pilot, "the choice", lambda: "gradual too?" in text_of(app.screen))
        await pilot.press("enter")
        await until(pilot, "the function", lambda: "format" in [item.name for item in step.draft.rewards.items])
        await ready(pilot)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_format.py"],
        cwd=project, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


async def test_a_format_that_is_none_is_told_and_nothing_is_written(app: GrpoApp, project: Path) -> None:
    async with running(app) as pilot:
        step = await ready(pilot)
        await pilot.press("m")
        await until(pilot, "the text", lambda: bool(pilot.app.screen.query(TextArea)))
        pilot.app.screen.query_one(TextArea).text = "reasoning, ("
        await pilot.press("ctrl+s")
        await until(pilot, "the refusal", lambda: bool(step.failed))
        assert "no list of tags" in step.failed[0].what
    assert (project / "rewards.py").read_text() == CODE


async def test_functions_watch_with_weight_nought_and_prompts_are_held_out_for_them(
    app: GrpoApp, project: Path
) -> None:
    async with running(app, size=(100, 40)) as pilot:
        step = await ready(pilot)
        await pilot.press("s")
        await until(pilot, "the proposals", lambda: "Which one shall watch?" in text_of(app.screen))
        await pilot.press("enter")
        await until(pilot, "the question", lambda: "Hold out some prompts?" in text_of(app.screen))
        await pilot.press("y")
        await until(pilot, "the functions", lambda: "only watches:" in text_of(app.screen) and not step.doing)
        assert {item.name: item.weight for item in step.draft.rewards.items} == {
            "pays": 1.0, "word_for_word": 0.0, "no_repetition": 0.0,
        }  # fmt: skip
        assert step.draft.dataset.eval_share == 0.05
        await pilot.press("s")
        await until(pilot, "no more", lambda: any("watch already" in each.message for each in app._notifications))
    assert "def word_for_word(" in (project / "rewards.py").read_text()


@pytest.mark.parametrize(
    ("keys", "weights"), [((), [0.25]), (("down",), [0.25, 0.0]), (("down", "down"), [0.25, 0.125])]
)
async def test_a_described_format_is_strict_and_gradual_where_that_is_wanted(
    app: GrpoApp, project: Path, keys: tuple[str, ...], weights: list[float]
) -> None:
    async with running(app, size=(100, 40)) as pilot:
        step = await ready(pilot)
        await pilot.press("m")
        await until(pilot, "the text", lambda: bool(app.screen.query(TextArea)))
        app.screen.query_one(TextArea).text = "reasoning, answer"
        await pilot.press("ctrl+s")
        await until(pilot, "the choice", lambda: "gradual too?" in text_of(app.screen))
        await pilot.press(*keys, "enter")
        await until(
            pilot, "the functions", lambda: len(step.draft.rewards.items) == 1 + len(weights) and not step.doing
        )
        assert [item.weight for item in step.draft.rewards.items[1:]] == weights
        names = [item.name for item in step.draft.rewards.items[1:]]
        assert names == ["format", "format_gradual"][: len(weights)]
    code = (project / "rewards.py").read_text()
    assert all(f"def {name}(" in code for name in names)
    assert (project / "test_format.py").exists()
