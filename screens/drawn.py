"""Widgets drawn as rows of text: plain rows, form fields, and a table with a cursor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.widget import Widget

from .line import columns, fit
from .widgets.lines import Lines
from .widgets.panel import head

GLYPHS = {"ok": "✓", "warn": "!", "fail": "✗", "now": "●", "next": "○", "": " "}
"""State to its sign; a word stands beside it wherever it is shown."""

Draw = Callable[[int], Sequence[Text]]


class Drawn(Lines):
    """Lines as many as there are to draw: as high as its content."""

    DEFAULT_CSS = """
    Drawn { height: auto; width: 1fr; }
    """

    def rows(self, width: int) -> Sequence[Text]:
        """The rows for this width."""
        raise NotImplementedError

    def paint(self, width: int, height: int) -> Sequence[Text]:
        return self.rows(width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width)) if width else 0

    def redraw(self) -> None:
        """Draw again, perhaps with another number of rows."""
        if self.is_attached and self.size.width and len(self.rows(self.size.width)) != self.size.height:
            self._painted_at = None
            self.refresh(layout=True)
        else:
            self.repaint()

    def on_resize(self, event: Resize) -> None:
        self.redraw()


class Block(Drawn):
    """Rows made by a function, to be exchanged at any time."""

    def __init__(self, draw: Draw | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draw: Draw = draw or (lambda width: ())

    def rows(self, width: int) -> Sequence[Text]:
        return self._draw(width)

    def show(self, draw: Draw) -> None:
        """Draw with another function from now on."""
        self._draw = draw
        self.redraw()


FAR = 1_000_000
"""More rows than any panel has."""


class Cursor(Drawn, can_focus=True):
    """Rows with a cursor. The row under it stays in sight."""

    head_rows = 1
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home,g", f"leap({-FAR})", "first row", show=False),
        Binding("end,G", f"leap({FAR})", "last row", show=False),
        Binding("pageup", "leap(-10)", "ten rows up", show=False),
        Binding("pagedown", "leap(10)", "ten rows down", show=False),
    ]

    def __init__(self, title: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.title = title
        self.reading: Text | str | None = None
        self.cursor = 0

    def count(self) -> int:
        raise NotImplementedError

    def action_move(self, by: int) -> None:
        """Move the cursor; beyond the last row the focus goes on to the next panel."""
        to = self.cursor + by
        if 0 <= to < self.count():
            self.cursor = to
            self.repaint()
            self.keep_in_sight()
            self.moved()
        elif to < 0:
            self.screen.focus_previous()
        else:
            self.screen.focus_next()

    def action_leap(self, by: int) -> None:
        """Move far: to the first or last row, or by a screenful; never out of the panel."""
        to = max(0, min(self.cursor + by, self.count() - 1))
        if to != self.cursor:
            self.action_move(to - self.cursor)
        else:  # nowhere to go in here: what stands above or below comes into sight
            for parent in self.ancestors:
                if isinstance(parent, Widget) and parent.is_scrollable and parent.allow_vertical_scroll:
                    parent.scroll_relative(y=(1 if by > 0 else -1) * max(1, parent.size.height - 2), animate=False)
                    return

    def moved(self) -> None:
        """The cursor stands on another row."""

    def on_focus(self) -> None:
        self.call_after_refresh(self.keep_in_sight)

    def title_row(self, width: int) -> Text:
        """The rule with title and reading."""
        reading = self.palette.text((self.reading, "muted")) if isinstance(self.reading, str) else self.reading
        return head(self.palette, width, self.title, reading=reading, focused=self.has_focus)

    def keep_in_sight(self) -> None:
        for parent in self.ancestors:
            if isinstance(parent, Widget) and parent.is_scrollable and parent.allow_vertical_scroll:
                row = self.virtual_region.y + self.head_rows + self.cursor
                top = 0 if self.cursor == 0 else row
                height = row - top + 1 if self.cursor == 0 else 1
                parent.scroll_to_region(Region(0, top, 1, max(1, height)), animate=False, force=True)
                return


@dataclass(frozen=True)
class Choice:
    """One thing to choose: its value, how it is called, and a remark."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One row of a form."""

    key: str
    label: str
    value: str
    """As it is shown."""

    note: str = ""
    state: str = ""
    """`ok`, `warn`, `fail`, or empty."""

    choices: tuple[Choice, ...] = ()
    """What can be chosen; empty: text is typed."""

    current: str | None = None
    """The value as it is edited, where it differs from what is shown; None: it does not."""

    long: bool = False
    """Text of several lines."""

    hint: str = ""
    """What to type, shown in the dialog."""

    check: Callable[[str], str] | None = None
    """What is wrong with a typed text; empty: nothing."""


class Fields(Cursor):
    """A form: one row a field. Space changes the one under the cursor, left and right go through its choices."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "field above", show=False),
        Binding("down,j", "move(1)", "field below", show=False),
        Binding("space,e", "change", "change", key_display="space"),
        Binding("left", "cycle(-1)", "previous choice", show=False),
        Binding("right", "cycle(1)", "next choice", show=False),
    ]

    @dataclass
    class Changed(Message):
        """A field has a new value."""

        key: str
        value: str

    def __init__(self, title: str, *, label_width: int = 10, value_width: int = 26, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self.fields: tuple[Field, ...] = ()
        self.label_width = label_width
        self.value_width = value_width

    def show(self, fields: Sequence[Field], reading: Text | str | None = None) -> None:
        """Show these fields."""
        self.fields = tuple(fields)
        self.reading = reading
        self.cursor = max(0, min(self.cursor, len(self.fields) - 1))
        self.redraw()

    def count(self) -> int:
        return len(self.fields)

    def rows(self, width: int) -> Sequence[Text]:
        label = min(self.label_width, max(6, width - 24))
        box = min(self.value_width, max(8, width - label - 5))
        return [self.title_row(width), *(self._row(at, label, box, width) for at in range(len(self.fields)))]

    def _row(self, position: int, label: int, box: int, width: int) -> Text:
        field = self.fields[position]
        here = self.has_focus and position == self.cursor
        ground = "on_select" if here else "on_surface"
        text = self.palette.text
        shown = text((field.value or "–", f"{'text' if field.value else 'muted'} {ground}"))
        shown.pad_right(max(0, box - 3 - shown.cell_len))
        shown.stylize(self.palette.style(ground))
        glyph = GLYPHS[field.state].strip()
        return fit(
            text(
                ("▌" if here else " ", "accent"),
                fit(text((field.label, "text bold" if here else "text")), label),
                (" ", ground),
                fit(shown, box - 3),
                (f"{'▾' if field.choices else '…'} ", f"muted {ground}"),
                "  ",
                (f"{glyph} " if glyph else "", f"{field.state or 'muted'} bold"),
                (field.note, "text" if field.state in ("warn", "fail") else "muted"),
            ),
            width,
        )

    def action_change(self) -> None:
        from .dialogs import Choose, Type, Write

        if not self.fields:
            return
        field = self.fields[self.cursor]
        current = field.value if field.current is None else field.current

        def done(answer: str | None) -> None:
            if answer is not None:
                self.post_message(self.Changed(field.key, answer))

        if field.choices:
            self.app.push_screen(Choose(field.label, field.choices, current), done)
        elif field.long:
            self.app.push_screen(Write(field.label, current, field.hint), done)
        else:
            self.app.push_screen(Type(field.label, current, field.hint, check=field.check), done)

    def action_cycle(self, by: int) -> None:
        field = self.fields[self.cursor] if self.fields else None
        if field is None or not field.choices:
            return
        values = [choice.value for choice in field.choices if not choice.label.endswith("…")]  # those ask for more
        current = field.value if field.current is None else field.current
        at = values.index(current) + by if current in values else (0 if by > 0 else -1)
        self.post_message(self.Changed(field.key, values[at % len(values)]))


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    width: int = 0
    """Cells; 0: takes what is left."""

    least: int = 12
    """Without a width: cells it needs to say anything."""

    right: bool = False
    rank: int = 0
    """Too narrow: columns of the highest rank go first."""


class Rows(Cursor):
    """A table with a cursor. Space or the step's own keys act on the row under it."""

    head_rows = 2
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "row above", show=False),
        Binding("down,j", "move(1)", "row below", show=False),
        Binding("space", "pick", "change"),
    ]

    @dataclass
    class Moved(Message):
        """The cursor stands on another row."""

        rows: "Rows"
        index: int

    @dataclass
    class Picked(Message):
        """The user wants this row."""

        rows: "Rows"
        index: int

    def __init__(self, title: str, *columns_: Column, empty: str = "Nothing yet.", id: str | None = None) -> None:
        super().__init__(title, id=id)
        self.columns_ = columns_
        self.empty = empty
        self.cells: Sequence[Sequence[Text]] = ()
        self.most = 0
        """At most this many rows are in sight at once; 0: all."""

    def show(self, cells: Sequence[Sequence[Text]], reading: Text | str | None = None, empty: str = "") -> None:
        """Show these rows."""
        self.cells = cells
        self.reading = reading
        self.empty = empty or self.empty
        self.cursor = max(0, min(self.cursor, len(self.cells) - 1))
        self.redraw()

    def count(self) -> int:
        return len(self.cells)

    def widths(self, width: int) -> list[tuple[int, int]]:
        """Position and width of each column that fits, in order."""
        kept = list(enumerate(self.columns_))

        def needed() -> int:
            return sum((column.width or column.least) + 2 for _, column in kept)

        while len(kept) > 1 and needed() > width:
            kept.remove(max(kept, key=lambda item: item[1].rank))
        flexible = [item for item in kept if not item[1].width]
        left = width - sum(column.width for _, column in kept) - 2 * len(kept)
        share = max(1, left // len(flexible)) if flexible else 0
        return [(position, column.width or share) for position, column in kept]

    def window(self) -> range:
        """The rows in sight."""
        if not self.most or len(self.cells) <= self.most:
            return range(len(self.cells))
        first = max(0, min(self.cursor - self.most // 2, len(self.cells) - self.most))
        return range(first, first + self.most)

    def rows(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        rows = [self.title_row(width)]
        if not self.cells:
            return [*rows, text(" ", (self.empty, "muted"))]
        widths = self.widths(width)
        titles = [text((self.columns_[at].title, "muted")) for at, _ in widths]
        rows.append(text("  ", self.aligned(titles, widths)))
        for position in self.window():
            here = position == self.cursor
            mark = ("▌" if here and self.has_focus else " ", "accent")
            row = fit(text(mark, " ", self.aligned([self.cells[position][at] for at, _ in widths], widths)), width)
            if here:
                row.stylize(self.palette.style("on_select"))
            rows.append(row)
        return rows

    def aligned(self, cells: Sequence[Text], widths: Sequence[tuple[int, int]]) -> Text:
        """The cells in their columns, figures at the right."""
        placed = []
        for cell, (at, width) in zip(cells, widths, strict=True):
            placed.append(cell.copy())
            if self.columns_[at].right:
                placed[-1].pad_left(max(0, width - cell.cell_len))
        return columns(placed, [width for _, width in widths])

    def moved(self) -> None:
        self.redraw()
        self.post_message(self.Moved(self, self.cursor))

    def action_pick(self) -> None:
        if self.cells:
            self.post_message(self.Picked(self, self.cursor))
