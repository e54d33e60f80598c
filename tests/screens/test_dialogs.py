"""What is typed into a dialog: it replaces what stood there, and nothing wrong is taken or lost."""

from grpo_tui.screens.dialogs import Choose, Dialog, Type, number, positive, whole_or_nothing
from grpo_tui.screens.drawn import Choice
from grpo_tui.screens.theme import ThemedApp
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from tests.screens.conftest import TERMINAL, text_of


class Asking(ThemedApp[str]):
    """An app that is nothing but one dialog."""

    def __init__(self, dialog: Dialog[str], environ: dict[str, str] = TERMINAL) -> None:
        super().__init__(environ=environ)
        self.dialog = dialog
        self.answers: list[str | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.dialog, self.answers.append)


async def typed(pilot: Pilot[str], text: str) -> None:
    await pilot.pause()
    await pilot.press(*text, "enter")
    await pilot.pause()


async def test_typing_replaces_the_value_that_stands_there() -> None:
    app = Asking(Type("Weight", "1", check=number))
    async with app.run_test(size=(80, 23)) as pilot:
        await typed(pilot, "2")
    assert app.answers == ["2"]


async def test_an_arrow_keeps_the_value_to_be_edited() -> None:
    app = Asking(Type("Model", "owner/name"))
    async with app.run_test(size=(80, 23)) as pilot:
        await pilot.pause()
        await pilot.press("end")
        await typed(pilot, "2")
    assert app.answers == ["owner/name2"]


async def test_a_wrong_text_is_told_and_stays_to_be_corrected() -> None:
    app = Asking(Type("Weight", "1", check=number))
    async with app.run_test(size=(80, 23)) as pilot:
        await typed(pilot, "ten")
        assert app.answers == []
        assert "ten is not a number." in text_of(app.screen)
        assert app.screen.query_one(Input).value == "ten"
        await pilot.press("backspace", "backspace", "backspace")
        assert "not a number" not in text_of(app.screen)
        await typed(pilot, "10")
    assert app.answers == ["10"]


async def test_a_text_longer_than_the_field_stays_in_sight() -> None:
    app = Asking(Type("Source"))
    async with app.run_test(size=(80, 23)) as pilot:
        await pilot.pause()
        app.screen.query_one(Input).value = "/a/very/long/path" * 8
        await pilot.pause()
        assert "/a/very/long/path" in text_of(app.screen)


async def test_without_colour_the_choice_under_the_cursor_can_be_told() -> None:
    app = Asking(Choose("Source", [Choice("a", "alpha"), Choice("b", "beta")]), {"NO_COLOR": "1", **TERMINAL})
    async with app.run_test(size=(80, 23)) as pilot:
        await pilot.press("down")
        await pilot.pause()
        segments = [segment for strip in app.screen._compositor.render_strips() for segment in strip]
    marked = {segment.text.strip(): bool(segment.style and segment.style.underline) for segment in segments}
    assert (marked["alpha"], marked["beta"]) == (False, True)


def test_numbers_are_told_from_what_is_none() -> None:
    assert [bool(number(text)) for text in ("1", "0,5", "-2e3", "nan", "inf", "", "one")] == [False] * 3 + [True] * 4
    assert [bool(positive(text)) for text in ("1", "0", "-1", "nan")] == [False, True, True, True]
    assert [bool(whole_or_nothing(text)) for text in ("", "12", "0", "1.5", "x")] == [False, False, True, True, True]


async def test_keys_typed_ahead_take_one_choice_and_no_more() -> None:
    app = Asking(Choose("Source", [Choice("a", "alpha"), Choice("b", "beta")]))
    async with app.run_test(size=(80, 23)) as pilot:
        await pilot.pause()
        choices = app.screen.query_one(OptionList)
        for _ in range(3):
            choices.action_select()
        await pilot.pause()
    assert app.answers == ["a"]
