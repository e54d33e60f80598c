"""The dataset step on a user's own file: what is taken, what is kept apart, and any row of it."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.dataset import DatasetStep, read_examples, spelled_examples
from textual.pilot import Pilot
from textual.widgets import TextArea

from grpo_tui import state
from grpo_tui.dataset import faults
from grpo_tui.dataset.faults import Scan
from grpo_tui.dataset.rows import Row
from grpo_tui.draft import DatasetAnswer, Example
from tests.screens.conftest import own_model, ready, running, text_of, until


@pytest.fixture
def app(project: Path, make_app: Callable[..., GrpoApp]) -> GrpoApp:
    """The wizard at its dataset step, with 300 rows of which one answer has no marker."""
    project.mkdir()
    rows = [{"instruction": f"What is {n} plus {n}?", "output": f"It is {2 * n}. #### {2 * n}"} for n in range(300)]
    rows[6]["output"] = "It is hard to say."
    (project / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draft = own_model(project)
    draft = replace(draft, task=replace(draft.task, recipe=""), dataset=DatasetAnswer(), step="dataset")
    draft = replace(draft, dataset=replace(draft.dataset, source="rows.jsonl"))
    assert state.save(project, draft) is None
    return make_app()


async def at_dataset(pilot: Pilot[str]) -> DatasetStep:
    step = await ready(pilot)
    assert isinstance(step, DatasetStep)
    return step


async def answered(pilot: Pilot[str], step: DatasetStep, key: str, *keys: str) -> None:
    """Change the field `key` by typing, or open its dialog."""
    fields = step.query_one("#columns")
    names = [field.key for field in fields.fields]  # type: ignore[attr-defined]  # it is a Fields
    fields.focus()
    fields.cursor = names.index(key)  # type: ignore[attr-defined]  # as above
    await pilot.press("space")
    await pilot.pause()
    if keys:
        await pilot.press(*keys)
        await ready(pilot)


async def test_what_the_rule_takes_and_where_it_finds_nothing_can_be_read(app: GrpoApp) -> None:
    async with running(app, size=(120, 40)) as pilot:
        step = await at_dataset(pilot)
        assert step.draft.dataset.extract == "after_marker"
        await pilot.press("a")
        await pilot.pause()
        shown = text_of(app.screen)
        assert "in 1 the rule finds none" in " ".join(shown.split())
        assert "Nothing found in rows 7" in shown
        assert "#### 0" in shown


async def test_any_row_can_be_looked_at(app: GrpoApp) -> None:
    async with running(app, size=(120, 40)) as pilot:
        await at_dataset(pilot)
        await pilot.press("o")
        await pilot.press(*"299", "enter")
        await until(pilot, "the row", lambda: "298 plus 298" in text_of(app.screen))
        await pilot.press("escape")
        await ready(pilot)
        await pilot.press("o")
        await pilot.press(*"301", "enter")
        await until(pilot, "the refusal", lambda: any("no such row" in toast.message for toast in app._notifications))


async def test_prompts_kept_apart_are_no_longer_trained_on(app: GrpoApp, project: Path) -> None:
    async with running(app, size=(120, 40)) as pilot:
        step = await at_dataset(pilot)
        assert step.data is not None
        assert (step.data.usable, step.data.held_out) == (299, 0)
        await answered(pilot, step, "eval_share", *"10", "enter")
        assert step.data.usable + step.data.held_out == 299
        assert 15 <= step.data.held_out <= 50
        assert "is_held_out" in step.data.code
    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    assert loaded.draft.dataset.eval_share == 0.1


async def test_broken_lines_hold_up_the_step_until_they_are_left_out(app: GrpoApp, project: Path) -> None:
    path = project / "rows.jsonl"
    lines = path.read_text().splitlines()
    lines[1], lines[250] = lines[1][:20], "[1]"
    path.write_text("\n".join([*lines, lines[0][:30]]))
    async with running(app, size=(120, 60)) as pilot:
        step = await at_dataset(pilot)
        assert step.data is not None
        assert (step.data.source.rows, step.data.usable) == (301, 297)
        assert "rows.jsonl, line 2: The line is no valid JSON" in step.data.head[1].trouble
        fault = step.data.faults[0]
        assert (fault.kind, fault.count, fault.rows, fault.choice) == ("broken_line", 3, (1, 250, 300), "stop")
        shown = " ".join(text_of(app.screen).split())
        assert "broken line 3 2, 251, 301 stop" in shown
        missing = step.missing()
        assert missing is not None
        assert "Broken line: 3 rows" in missing.text
        assert "load_dataset(" in step.data.load_call
        step.query_one("#rows").focus()
        await pilot.press("down", "v")
        await until(pilot, "what is wrong", lambda: "Row 2 as it is" in text_of(app.screen))
        assert "Correct the file" in " ".join(text_of(app.screen).split())
        await pilot.press("escape")
        await ready(pilot)
        await pilot.press("o")
        await pilot.press(*"251", "enter")
        await until(
            pilot, "why", lambda: any("line 251: A row must be" in toast.message for toast in app._notifications)
        )
        await pilot.press("d", "space")
        await ready(pilot)
        await until(pilot, "the choice", lambda: step.data is not None and step.data.faults[0].choice == "leave_out")
        assert step.missing() is None
        assert "broken line 3 2, 251, 301 leave out" in " ".join(text_of(app.screen).split())
        assert step.data.usable == 297
        assert "without_broken_lines(" in step.data.load_call
    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    assert loaded.draft.dataset.faults == {"broken_line": "leave_out"}


async def test_worked_examples_stand_before_every_prompt(app: GrpoApp) -> None:
    async with running(app, size=(120, 40)) as pilot:
        step = await at_dataset(pilot)
        await answered(pilot, step, "examples")
        pilot.app.screen.query_one(TextArea).text = "What is 1 plus 1?\n---\n2"
        await pilot.press("ctrl+s")
        await until(pilot, "the example", lambda: len(step.draft.dataset.examples) == 1)
        await ready(pilot)
        assert step.data is not None
        roles = [role for role, _ in step.data.head[0].messages]
        assert roles[-3:] == ["user", "assistant", "user"]


def test_examples_are_written_as_they_are_read() -> None:
    examples = (Example(question="a\nb?", answer="c"), Example(question="d?", answer="e\nf"))
    assert read_examples(spelled_examples(examples)) == examples
    assert read_examples("") == ()
    assert read_examples("only a question") is None


async def test_the_first_rows_of_a_large_file_are_there_before_it_is_counted(
    app: GrpoApp, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen while the step was still looking is what stands there in the end."""
    monkeypatch.setattr("grpo_tui.screens.dataset.AT_ONCE", 100)
    seen: list[tuple[bool, int, str]] = []
    begun = DatasetStep._begin

    def begin(step: DatasetStep, *given: object) -> None:
        begun(step, *given)  # type: ignore[arg-type]  # passed on as they came
        assert step.data is not None
        seen.append((step.data.complete, len(step.data.head), step.data.rows_words))

    monkeypatch.setattr(DatasetStep, "_begin", begin)
    async with running(app, size=(120, 40)) as pilot:
        step = await at_dataset(pilot)
        assert seen[0] == (False, 50, "300")
        assert step.data is not None
        assert step.data.complete
        assert step.data.usable == 299


async def test_several_columns_are_joined_into_the_prompt(app: GrpoApp, project: Path) -> None:
    rows = [{"question": f"{n}+1?", "choices": [str(n), str(n + 1)], "answer": 1, "hint": "count"} for n in range(20)]
    (project / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with running(app, size=(120, 40)) as pilot:
        step = await at_dataset(pilot)
        assert step.draft.dataset.prompt == "{question}\n\n{choices:letters}"
        assert step.data is not None
        assert (step.data.head[0].prompt, step.data.head[0].answer) == ("0+1?\n\nA. 0\nB. 1", "B")
        await answered(pilot, step, "prompt")
        await pilot.press("end", "enter")
        await until(pilot, "the text", lambda: bool(app.screen.query(TextArea)))
        app.screen.query_one(TextArea).text = "{question} ({hint})\n{choices:letters}\n"
        await pilot.press("ctrl+s")
        await ready(pilot)
        assert step.data.head[3].prompt == "3+1? (count)\nA. 3\nB. 4"
        await answered(pilot, step, "prompt")
        await pilot.press("end", "enter")
        await until(pilot, "the text", lambda: bool(app.screen.query(TextArea)))
        app.screen.query_one(TextArea).text = "{question} {nowhere}"
        await pilot.press("ctrl+s")
        await until(pilot, "the fault", lambda: bool(step.failed))
        assert "no column 'nowhere'" in str(step.failed[0])
        assert "Prompt" in text_of(step), "the field is still there to be corrected"


@pytest.mark.parametrize("keys", [("x",), ("1",), ("r",), ("q",)])
async def test_a_long_look_ends_when_nobody_waits_for_it(
    app: GrpoApp, project: Path, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that reads on would hold up the next look, and the end of the program."""
    (project / "rows.jsonl").write_text('{"question": "How many?", "answer": "4"}\n' * 30_000)
    pressed = threading.Event()
    scans: list[Scan] = []
    scan = faults.scan

    def held(rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, of which the last ones come when the key was pressed."""
        for number, row in enumerate(rows):
            if number == 20_000:
                pressed.wait(60)
            yield row

    def noted(rows: Iterable[Row], *arguments: Any, **options: Any) -> Any:
        scans.append(scan(held(rows), *arguments, **options))
        return scans[-1]

    monkeypatch.setattr(faults, "scan", noted)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, "the look at the rows", lambda: "at every row: " in getattr(app.screen, "doing", ""))
        await pilot.press(*keys)
        pressed.set()
        await until(pilot, "the end of the look", lambda: bool(scans))
        assert not scans[0].complete
