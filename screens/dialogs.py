"""Dialogs: a yes or no, a choice, a line, a text, something to read. All work by keyboard and fit 80×23."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Button, Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from grpo_tui.inert import inert, one_line
from grpo_tui.regular import expanded

from .drawn import Block, Choice, Draw
from .line import wrap
from .theme import Palette, palette_of

Answer = TypeVar("Answer")

Check = Callable[[str], str]
"""Takes a text that was typed; what is wrong with it as a sentence, empty where nothing is."""


def number(text: str) -> str:
    """A check: a finite number, with a point or a comma."""
    try:
        finite = math.isfinite(float(text.replace(",", ".")))
    except ValueError:
        finite = False
    return "" if finite else f"{one_line(text, 40) or 'Nothing'} is not a number."


def positive(text: str) -> str:
    """A check: a finite number above 0."""
    return number(text) or ("" if float(text.replace(",", ".")) > 0 else f"{one_line(text, 40)} is not above 0.")


def whole_or_nothing(text: str) -> str:
    """A check: a whole number from 1, or nothing."""
    return "" if not text or (text.isdecimal() and int(text) > 0) else f"{one_line(text, 40)} is not a whole number."


class Dialog(ModalScreen[Answer], Generic[Answer]):
    """A box with a title, what it is about, and a line of keys."""

    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (("esc", "close"),)
    """Key and verb, shown in the last line of the box."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.heading = title
        self._answered = False

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with `result`. Once: keys typed ahead over a slow line still come in while the dialog closes."""
        if self._answered:
            return AwaitComplete()
        self._answered = True
        return super().dismiss(result)

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(self.heading, id="heading", markup=False)
            yield from self.inside()
            yield Block(self.key_row, id="keys")

    def inside(self) -> ComposeResult:
        """What stands between title and keys."""
        raise NotImplementedError

    def key_row(self, width: int) -> Sequence[Text]:
        """The keys that work here."""
        parts = [part for key, verb in self.KEYS for part in ((key, "accent bold"), (f" {verb}   ", "muted"))]
        return [palette_of(self.app).text(*parts)]

    def action_close(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)


class Ask(Dialog[bool]):
    """A yes or no. Nothing but `y` is a yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
    ]

    def __init__(self, title: str, about: Draw, *, yes: str = "yes", no: str = "no") -> None:
        super().__init__(title)
        self.about = about
        self.words = (("y", yes), ("n", no))

    def inside(self) -> ComposeResult:
        with VerticalScroll(id="about"):
            yield Block(self.about)

    def key_row(self, width: int) -> Sequence[Text]:
        parts = [part for key, verb in self.words for part in ((key, "accent bold"), (f" {verb}   ", "muted"))]
        return [palette_of(self.app).text(*parts)]

    def action_answer(self, yes: bool) -> None:
        """The answer."""
        self.dismiss(yes)

    def action_scroll(self, by: int) -> None:
        """More of what it is about."""
        self.query_one("#about", VerticalScroll).scroll_relative(y=by, animate=False)


class Choose(Dialog[str]):
    """One of several."""

    KEYS = (("↑/↓", "move"), ("enter", "take"), ("esc", "leave as it is"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False),
        Binding("space", "take", show=False),
        Binding("j", "cursor(1)", show=False),
        Binding("k", "cursor(-1)", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[Choice], current: str = "", about: str = "") -> None:
        super().__init__(title)
        self.choices = tuple(choices)
        self.current = current
        self.about = about

    def inside(self) -> ComposeResult:
        palette = palette_of(self.app)
        if self.about:
            yield Block(lambda width: wrap(palette, self.about, width, "muted"))
        widest = max((len(choice.label) for choice in self.choices), default=0)
        options = [
            Option(palette.text((choice.label.ljust(min(widest, 30)), "text"), ("  " + choice.note, "muted")))
            for choice in self.choices
        ]
        yield OptionList(*options, markup=False)

    def on_mount(self) -> None:
        values = [choice.value for choice in self.choices]
        self.query_one(OptionList).highlighted = values.index(self.current) if self.current in values else 0

    @on(OptionList.OptionSelected)
    def taken(self, event: OptionList.OptionSelected) -> None:
        """This one."""
        self.dismiss(self.choices[event.option_index].value)

    def action_take(self) -> None:
        """The one under the cursor."""
        self.query_one(OptionList).action_select()

    def action_cursor(self, by: int) -> None:
        """Move the cursor."""
        options = self.query_one(OptionList)
        if by > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()


class PathSuggester(Suggester):
    """Completes the path of a file or folder from what is on the disk."""

    def __init__(self, base: Path, *, folders_only: bool = False) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.base = base
        self.folders_only = folders_only

    async def get_suggestion(self, value: str) -> str | None:
        """The first path that begins like `value`. Looked for in a thread: a folder may be on a slow disk."""
        return await asyncio.to_thread(self._complete, value) if value else None

    def _complete(self, value: str) -> str | None:
        stem = value.rpartition("/")[2]
        folder = self.base / expanded(value[: len(value) - len(stem)])
        try:
            names = sorted(
                entry.name + ("/" if entry.is_dir() else "")
                for entry in folder.iterdir()
                if entry.name.startswith(stem)
                and (stem or not entry.name.startswith("."))
                and (entry.is_dir() or not self.folders_only)
            )
        except OSError:
            return None
        return value[: len(value) - len(stem)] + names[0] if names else None


class Type(Dialog[str]):
    """One line of text."""

    KEYS = (("enter", "take"), ("esc", "leave as it is"))
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", show=False)]

    def __init__(
        self,
        title: str,
        text: str = "",
        about: str = "",
        *,
        paths: Path | None = None,
        folders_only: bool = False,
        secret: bool = False,
        check: Check | None = None,
    ) -> None:
        """`paths`: complete paths below this folder. `check`: a text that it finds fault with is not taken."""
        super().__init__(title)
        self.text = text
        self.about = about
        self.paths = paths
        self.folders_only = folders_only
        self.secret = secret
        self.check = check
        self.wrong = ""

    def inside(self) -> ComposeResult:
        if self.about:
            yield Block(lambda width: wrap(palette_of(self.app), self.about, width, "muted"))
        suggester = None if self.paths is None else PathSuggester(self.paths, folders_only=self.folders_only)
        if suggester:
            yield Block(lambda width: wrap(palette_of(self.app), "→ completes a path.", width, "muted"))
        # All of it is selected, so that typing replaces it and an arrow key keeps it.
        yield Input(self.text, suggester=suggester, password=self.secret, select_on_focus=True)
        yield Block(self._wrong, id="wrong")

    def _wrong(self, width: int) -> Sequence[Text]:
        palette = palette_of(self.app)
        return wrap(palette, self.wrong, width, "text", palette.text(("✗ ", "fail bold"))) if self.wrong else []

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Changed)
    def changed(self) -> None:
        """What was wrong is being changed."""
        if self.wrong:
            self.wrong = ""
            self.query_one("#wrong", Block).redraw()

    @on(Input.Submitted)
    def submitted(self, event: Input.Submitted) -> None:
        """This text, unless it cannot be."""
        text = event.value.strip()
        self.wrong = self.check(text) if self.check else ""
        if self.wrong:
            self.query_one("#wrong", Block).redraw()
        else:
            self.dismiss(text)


class Write(Dialog[str]):
    """A text of several lines."""

    KEYS = (("tab", "to the buttons"), ("^s", "keep"), ("esc", "leave as it is"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False),
        Binding("ctrl+s", "keep", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str = "", about: str = "", *, code: bool = False) -> None:
        super().__init__(title)
        self.text = text
        self.about = about
        self.code = code
        self.warned = False

    def inside(self) -> ComposeResult:
        if self.about:
            yield Block(lambda width: wrap(palette_of(self.app), self.about, width, "muted"))
        yield TextArea(self.text, tab_behavior="focus", soft_wrap=not self.code, show_line_numbers=self.code)
        with Horizontal(id="buttons"):
            yield Button("Keep", id="keep")
            yield Button("Discard", id="discard")

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        """Keep it or not."""
        self.dismiss(self.query_one(TextArea).text if event.button.id == "keep" else None)

    def action_keep(self) -> None:
        """Keep it."""
        self.dismiss(self.query_one(TextArea).text)

    def key_row(self, width: int) -> Sequence[Text]:
        if not self.warned:
            return super().key_row(width)
        parts = (("esc again", "warn bold"), (" throws the changes away   ", "text"), ("^s", "accent bold"))
        return [palette_of(self.app).text(*parts, (" keeps them", "muted"))]

    def action_close(self) -> None:
        """Leave; a changed text only when asked twice."""
        if self.warned or self.query_one(TextArea).text == self.text:
            self.dismiss(None)
            return
        self.warned = True
        self.query_one("#keys", Block).redraw()

    @on(TextArea.Changed)
    def typed(self) -> None:
        """Writing on takes the question back."""
        if self.warned:
            self.warned = False
            self.query_one("#keys", Block).redraw()


NO_MARKS: Mapping[str, str] = MappingProxyType({})


def listing(
    palette: Palette, lines: Sequence[str], *, numbered: bool = False, marks: Mapping[str, str] = NO_MARKS
) -> Draw:
    """Code or a difference, long lines wrapped. `marks`: first character of a line to its role."""
    digits = len(str(len(lines))) if numbered else 0

    def draw(width: int) -> Sequence[Text]:
        rows: list[Text] = []
        for number, line in enumerate(lines, 1):
            lead = palette.text((f"{number:>{digits}}  ", "faint")) if numbered else ""
            rows += wrap(palette, inert(line).expandtabs(4), width, marks.get(line[:1], "text"), lead)
        return rows

    return draw


class Show(Dialog[None]):
    """Something to read."""

    KEYS = (("↑/↓", "scroll"), ("esc", "close"))
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,question_mark", "close", show=False)]

    def __init__(self, title: str, draw: Draw) -> None:
        super().__init__(title)
        self.draw = draw

    def inside(self) -> ComposeResult:
        with VerticalScroll(id="about", can_focus=True):
            yield Block(self.draw)

    def on_mount(self) -> None:
        self.query_one("#about").focus()
