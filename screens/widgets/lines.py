"""A widget that is a few lines of text, and repaints only the cells that changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from grpo_tui.screens.theme import Palette, palette_of
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

APART = 12
"""Unchanged cells between two changed ones that are worth a cursor movement and a colour of its own."""


class Lines(Widget):
    """Lines made by `paint`, kept as strips. `repaint` makes them anew and sends the cells that differ, no others.

    A full frame of a terminal is 15 KB over SSH; a step that moves one line by one dot is 100 bytes.
    """

    DEFAULT_CSS = """
    Lines { height: 1fr; width: 1fr; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._painted_at: tuple[int, int, str] | None = None

    @property
    def palette(self) -> Palette:
        """The colours in use."""
        return palette_of(self.app)

    def paint(self, width: int, height: int) -> Sequence[Text | Strip]:
        """The lines for `width` × `height` cells; missing ones are blank, longer ones are cut.

        Text lies on the widget's background; a strip brings its own.
        """
        raise NotImplementedError

    def repaint(self) -> None:
        """Paint again; what stayed the same is not sent to the terminal."""
        width, height = self.size
        if not self.is_attached or width <= 0 or height <= 0:
            return
        before = self._strips if self._painted_at == (width, height, self.palette.name) else []
        self._strips = self._paint(width, height)
        self._painted_at = (width, height, self.palette.name)
        if len(before) != len(self._strips):
            self.refresh()
            return
        regions = [
            Region(first, y, last - first, 1)
            for y, (old, new) in enumerate(zip(before, self._strips, strict=True))
            if old is not new
            for first, last in changed_cells(old, new)
        ]
        if regions:
            self.refresh(*regions)

    def _paint(self, width: int, height: int) -> list[Strip]:
        base = self.rich_style
        lines = list(self.paint(width, height))[:height]
        strips = [line if isinstance(line, Strip) else strip_of(line, base) for line in lines]
        strips += [Strip.blank(width, base)] * (height - len(strips))
        return [strip.adjust_cell_length(width, base) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Line `y` of what was last painted."""
        width, height = self.size
        if self._painted_at != (width, height, self.palette.name):
            self._strips = self._paint(width, height)
            self._painted_at = (width, height, self.palette.name)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, self.rich_style)

    def on_resize(self, event: Resize) -> None:
        """Another size: paint for it."""
        self.repaint()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Lit, or no longer lit. (A handler of Focus or Blur comes before Textual has changed `has_focus`.)"""
        super().watch_has_focus(_has_focus)
        self.repaint()


def strip_of(line: Text, base: Style) -> Strip:
    """`line` as a strip on `base`. (`Text.render` needs a console, for what is not used here.)"""
    plain = line.plain
    edges = sorted({0, len(plain), *(min(len(plain), at) for span in line.spans for at in (span.start, span.end))})
    segments: list[Segment] = []
    for start, end in pairwise(edges):
        style = base
        for span in line.spans:
            if span.start <= start and span.end >= end and isinstance(span.style, Style):
                style += span.style
        segments.append(Segment(plain[start:end], style))
    return Strip(segments)


def changed_cells(old: Strip, new: Strip) -> list[tuple[int, int]]:
    """First and one past the last cell of each stretch in which the two strips differ, from left to right.

    Stretches that lie closer than `APART` are one: to move there and to set the colour costs more than to go through.
    """
    if old == new:
        return []
    a, b = _cells(old), _cells(new)
    if len(a) != len(b):
        return [(0, max(len(a), len(b)))]
    stretches: list[tuple[int, int]] = []
    for cell, (one, other) in enumerate(zip(a, b, strict=True)):
        if one == other:
            continue
        if stretches and cell - stretches[-1][1] < APART:
            stretches[-1] = (stretches[-1][0], cell + 1)
        else:
            stretches.append((cell, cell + 1))
    return stretches


def _cells(strip: Strip) -> list[tuple[str, object]]:
    """Sign and style of every cell; a wide sign has both of its cells."""
    cells: list[tuple[str, object]] = []
    for segment in strip:
        if segment.text.isascii():
            cells += [(character, segment.style) for character in segment.text]
        else:
            for character in segment.text:
                cells += [(character, segment.style)] * Segment(character).cell_length
    return cells
