"""The braille chart: the mean of each dot column as a line, the spread as a band or whisker, ends named directly.

Whatever the number of points, a chart is worth its dot columns: points are reduced to them, drawn in arrays, and only
rows that changed become strips again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from grpo_tui.screens.theme import Palette
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from grpo_tui.progress.reduce import Columns, bridge, reduce_columns, smooth

from .lines import strip_of
from .scale import Scale, horizon, steady, step_ticks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Drawn = list[tuple["Curve", "Columns", Floats, Floats | None]]
    """Per curve: what it is, its points by dot column, the line through them, and half the band's height."""
    Steps = NDArray[np.float64] | NDArray[np.int64]

BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell by dot row and dot column (Unicode, Braille Patterns)."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart. `x` ascends; a value that is not finite is a gap; a step without a value is not in it."""

    x: Sequence[float] | Steps
    y: Sequence[float] | Floats
    role: str = "s1"
    label: str = ""
    """Written at the line's end."""

    whisker: bool = False
    """Where a dot column holds more than one point, a faint whisker reaches up to the greatest."""

    spread: Sequence[float] | Floats | None = None
    """Half the height of the band around the line, at each `x`."""


@dataclass(frozen=True)
class Picture:
    """All that a chart shows. The curve that matters most comes last: it is drawn over the others."""

    curves: tuple[Curve, ...] = ()
    end: float | None = None
    """The planned last step; None: not known."""

    include: tuple[float, ...] = ()
    """Values the scale holds whatever the points are: 0 for what cannot be negative."""

    limit: float | None = None
    limit_role: str = "faint"
    cursor: float | None = None
    """The step under the cursor."""

    log: bool = False
    thick: bool = False
    """The main line is two dots high."""

    smoothing: int = 1
    """Points averaged into each, the one and those before it."""

    empty: str = ""
    """The sentence shown while there is no point."""


@dataclass
class _Frame:
    """Signs and styles of all cells, as arrays: what is compared from paint to paint."""

    signs: Any
    styles: Any
    table: list[Style] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def style(self, palette: Palette, spec: str) -> int:
        if spec not in self.index:
            self.index[spec] = len(self.table)
            self.table.append(palette.style(spec if " on_" in spec else f"{spec} on_bg"))
        return self.index[spec]

    def write(self, row: int, column: int, text: str, style: int) -> None:
        width = self.signs.shape[1]
        for offset, sign in enumerate(text):
            if 0 <= column + offset < width:
                self.signs[row, column + offset] = ord(sign)
                self.styles[row, column + offset] = style


def label_cells(width: int) -> int:
    """Cells left of the axis of a chart `width` cells wide."""
    return 5 if width >= 60 else 4


class Chart:
    """Draws pictures of one place on the screen, and remembers its scale and its rows from one to the next."""

    def __init__(self) -> None:
        self._scale: Scale | None = None
        self._size = (0, 0)
        self._margin = 0
        """Cells kept free at the right for the names of lines that have come near the edge."""

        self._frame: _Frame | None = None
        self._kept: list[Strip] = []

    def draw(self, picture: Picture, palette: Palette, width: int, height: int) -> list[Strip]:
        """`picture` in `width` × `height` cells, the last row for the steps. A row that stays is the same strip."""
        if height < 2 or width < 12:
            return []
        self.picture, self.palette = picture, palette
        if not any(len(curve.x) for curve in picture.curves):
            ground = palette.style("text on_bg")
            return [strip_of(line, ground) for line in self._nothing(width, height)]
        return self._plot(width, height)

    def _nothing(self, width: int, height: int) -> list[Text]:
        """An empty grid with a sentence in the middle. No numpy: this is what is painted first."""
        palette, gutter, plot = self.palette, label_cells(width), height - 1
        marks = {0, plot // 2, plot - 1} if plot >= 5 else {0, plot - 1}
        words = wrap(self.picture.empty, max(8, width - gutter - 3))[:plot]
        top = max(0, (plot - 1) // 2 - (len(words) - 1) // 2)
        lines = []
        for row in range(plot):
            axis, fill = ("┤", "┈") if row in marks else ("│", " ")
            line = palette.text((" " * gutter + axis + fill * (width - gutter - 1), "border"))
            if top <= row < top + len(words):
                said = words[row - top]
                left = gutter + 1 + max(0, (width - gutter - 1 - len(said)) // 2)
                line = palette.text(line[: left - 1], (f" {said} ", "muted"), line[left + len(said) + 1 :])
            lines.append(line)
        return lines

    def _plot(self, width: int, height: int) -> list[Strip]:
        import numpy as np

        picture, palette = self.picture, self.palette
        rows, gutter = height - 1, label_cells(width)
        cells = width - gutter - 1
        if self._size != (width, height):
            self._scale, self._size, self._margin = None, (width, height), 0
        last = max(float(curve.x[-1]) for curve in picture.curves if len(curve.x))
        end = horizon(last, picture.end)
        labels = max((len(curve.label) for curve in picture.curves), default=0)
        if not self._margin and labels and last / end * (cells - 1) + labels + 3 > cells:
            self._margin = min(labels + 3, cells // 2)  # once the ends come near the edge, their names get a margin
        room = cells - self._margin
        columns = 2 * room

        drawn: Drawn = []
        for curve in picture.curves:
            if not len(curve.x):
                continue
            x, y = np.asarray(curve.x), np.asarray(curve.y, np.float64)
            y = smooth(y, picture.smoothing)
            if picture.log:
                with np.errstate(invalid="ignore", divide="ignore"):
                    y = np.where(y > 0, np.log10(y), np.nan)
            reduced = reduce_columns(x, y, columns, end)
            half = None
            if curve.spread is not None and not picture.log:
                spread = np.asarray(curve.spread, np.float64)
                half = bridge(reduce_columns(x, smooth(spread, picture.smoothing), columns, end))
            drawn.append((curve, reduced, bridge(reduced), half))
        self._rescale(drawn, rows, last)
        scale = self._scale
        if scale is None:
            return [strip_of(line, palette.style("text on_bg")) for line in self._nothing(width, height)]

        frame = _Frame(np.full((height, width), 32, np.uint32), np.zeros((height, width), np.int16))
        if self._frame is not None and self._frame.signs.shape == (height, width):
            frame.table, frame.index = self._frame.table, self._frame.index
        if frame.index.get(palette.name) is None:  # another theme: other styles, and every row anew
            frame.table, frame.index = [], {}
            self._frame = None
            frame.style(palette, "text")
            frame.index[palette.name] = -1

        plot = slice(gutter + 1, width)
        signs, styles = frame.signs[:rows, plot], frame.styles[:rows, plot]
        row_of = {tick: self._row(tick, rows) for tick in scale.ticks}
        self._axis(frame, rows, gutter, row_of)
        signs[sorted(set(row_of.values()))] = ord("┈")
        styles[sorted(set(row_of.values()))] = frame.style(palette, "border")
        banded = self._band(frame, signs, styles, drawn, rows, room)
        self._limit(frame, signs, styles, rows)
        self._whiskers(frame, signs, styles, drawn, rows, banded)
        self._lines(frame, signs, styles, drawn, rows, banded)
        if picture.cursor is not None:
            at = round(picture.cursor / end * (columns - 1)) // 2
            if 0 <= at < cells:
                self._tint(frame, signs, styles, at)
        self._steps(frame, height - 1, gutter, room, end)
        return self._strips_of(frame)

    def _rescale(self, drawn: Drawn, rows: int, last: float) -> None:
        import numpy as np

        lows, highs = [], []
        for curve, reduced, line, half in drawn:
            values = [line] if half is None else [line, line - half, line + half]
            if curve.whisker:
                values.append(reduced.greatest)
            for value in values:
                if np.isfinite(value).any():
                    lows.append(float(np.nanmin(value)))
                    highs.append(float(np.nanmax(value)))
        if lows:
            wanted = () if self.picture.log else self.picture.include
            low, high = min(*lows, *wanted, lows[0]), max(*highs, *wanted, highs[0])
            self._scale = steady(self._scale, low, high, rows, log=self.picture.log, step=last)
        elif self._scale is None or self._scale.log != self.picture.log:
            self._scale = None

    def _row(self, value: float, rows: int) -> int:
        assert self._scale is not None
        part = (self._scale.high - value) / (self._scale.high - self._scale.low)
        return min(rows - 1, max(0, int(part * rows)))

    def _heights(self, values: Floats, dots: int) -> Floats:
        """Dot rows of `values` from the top, in fractions; NaN stays."""
        import numpy as np

        assert self._scale is not None
        part = (self._scale.high - values) / (self._scale.high - self._scale.low)
        heights: Floats = np.clip(part, 0.0, 1.0) * dots
        return heights

    def _axis(self, frame: _Frame, rows: int, gutter: int, row_of: dict[float, int]) -> None:
        assert self._scale is not None
        border, muted = frame.style(self.palette, "border"), frame.style(self.palette, "muted")
        frame.signs[:rows, gutter] = ord("│")
        frame.styles[:rows, gutter] = border
        for tick, row in row_of.items():
            label = self._scale.label(tick)[:gutter].rjust(gutter)
            frame.write(row, 0, label, muted)
            frame.signs[row, gutter] = ord("┤")

    def _band(self, frame: _Frame, signs: Any, styles: Any, drawn: Drawn,
              rows: int, room: int) -> Any:  # fmt: skip
        """Fill the spread around the main line; where tints may not be used its edges are dotted. Returns the cells."""
        import numpy as np

        banded = np.zeros(signs.shape, bool)
        for _curve, _, line, half in drawn:
            if half is None:
                continue
            if not self.palette.tints:
                for edge in (line + half, line - half):
                    dots = np.zeros((4 * rows, 2 * room), bool)
                    height = self._heights(edge, 4 * rows)
                    at = np.flatnonzero(np.isfinite(height))[::2]
                    dots[np.minimum(4 * rows - 1, height[at].astype(int)), at] = True
                    self._stamp(signs, styles, dots, frame.style(self.palette, "faint"))
                continue
            pairs_top = self._pair(self._heights(line + half, 8 * rows), room)
            pairs_low = self._pair(self._heights(line - half, 8 * rows), room)
            top, low = np.rint(pairs_top), np.rint(pairs_low)
            above = np.arange(rows)[:, None] * 8
            with np.errstate(invalid="ignore"):
                full = (top <= above) & (low >= above + 8)
                upper = (above < top) & (top < above + 8) & (low >= above + 8)
                lower = (top <= above) & (above < low) & (low < above + 8)
            area = (slice(None), slice(0, room))
            signs[area][full] = 32
            styles[area][full] = frame.style(self.palette, "text on_band")
            blocks = np.nan_to_num(0x2580 + above + 8 - top).astype(np.uint32)
            signs[area][upper] = np.broadcast_to(blocks, upper.shape)[upper]
            styles[area][upper] = frame.style(self.palette, "band on_bg")
            blocks = np.nan_to_num(0x2580 + above + 8 - low).astype(np.uint32)
            signs[area][lower] = np.broadcast_to(blocks, lower.shape)[lower]
            styles[area][lower] = frame.style(self.palette, "bg on_band")
            mostly = full.copy()
            with np.errstate(invalid="ignore"):
                mostly |= upper & (np.broadcast_to(top - above, upper.shape) <= 4)
                mostly |= lower & (np.broadcast_to(low - above, lower.shape) >= 4)
            banded[area] |= mostly
        return banded

    def _pair(self, heights: Floats, room: int) -> Floats:
        """Two dot columns to one cell: their mean, or the one that is known."""
        import numpy as np

        pairs = heights[: 2 * room].reshape(room, 2)
        known = np.isfinite(pairs)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Floats = np.where(known, pairs, 0.0).sum(1) / known.sum(1)
        return mean

    def _stamp(self, signs: Any, styles: Any, dots: Any, style: int, banded: Any = None, on_band: int = 0) -> None:
        """Put `dots` (dot rows × dot columns) into the cells. A cell has one colour: the last stamp has it all."""
        import numpy as np

        rows, columns = dots.shape[0] // 4, dots.shape[1] // 2
        weights = np.array(DOTS, np.uint32)
        codes = (dots.reshape(rows, 4, columns, 2).swapaxes(1, 2) * weights).sum((2, 3), dtype=np.uint32)
        area = (slice(0, rows), slice(0, columns))
        some = codes > 0
        same = some & (signs[area] >= BRAILLE) & (signs[area] < BRAILLE + 256)
        same &= (styles[area] == style) | (styles[area] == on_band) if banded is not None else styles[area] == style
        codes = np.where(same, codes | (signs[area] - BRAILLE), codes)
        signs[area][some] = BRAILLE + codes[some]
        styles[area][some] = style
        if banded is not None:
            styles[area][some & banded[area]] = on_band

    def _limit(self, frame: _Frame, signs: Any, styles: Any, rows: int) -> None:
        """A limit as every other dot at its true height, where it lies within the scale."""
        import numpy as np

        limit, scale = self.picture.limit, self._scale
        if limit is None or scale is None:
            return
        value = float(np.log10(limit)) if scale.log and limit > 0 else limit
        if not scale.low <= value <= scale.high:
            return
        dots = np.zeros((4 * rows, 2 * signs.shape[1]), bool)
        dots[min(4 * rows - 1, int(self._heights(np.array([value]), 4 * rows)[0])), ::2] = True
        self._stamp(signs, styles, dots, frame.style(self.palette, self.picture.limit_role))

    def _whiskers(self, frame: _Frame, signs: Any, styles: Any,
                  drawn: Drawn, rows: int, banded: Any) -> None:  # fmt: skip
        import numpy as np

        for curve, reduced, line, _ in drawn:
            if not curve.whisker:
                continue
            top, low = self._heights(reduced.greatest, 4 * rows), self._heights(line, 4 * rows)
            y = np.arange(4 * rows)[:, None]
            with np.errstate(invalid="ignore"):
                dots = (y >= np.floor(top)) & (y < np.floor(low)) & (reduced.count > 1)
            style = frame.style(self.palette, "faint")
            self._stamp(signs, styles, dots, style, banded, frame.style(self.palette, "faint on_band"))

    def _lines(self, frame: _Frame, signs: Any, styles: Any, drawn: Drawn,
               rows: int, banded: Any) -> None:  # fmt: skip
        """Each line, the dot columns joined by upright strokes; then a mark of 2 × 3 dots and the name at its end."""
        import numpy as np

        height = 4 * rows
        y = np.arange(height)[:, None]
        taken: set[int] = set()
        named: list[tuple[int, int, Curve]] = []
        for number, (curve, _, line, _) in enumerate(drawn):
            main = number == len(drawn) - 1
            at = np.minimum(height - 1, np.floor(self._heights(line, height)))
            known = np.flatnonzero(np.isfinite(at))
            if not len(known):
                continue
            before = np.concatenate(([np.nan], at[:-1]))
            before = np.where(np.isfinite(before), before, at)
            up, down = at < before, at > before
            first = np.where(down, np.minimum(before + 1, at), at)
            final = np.where(up, np.maximum(before - 1, at), at)
            with np.errstate(invalid="ignore"):
                dots = (y >= first) & (y <= final + (1 if main and self.picture.thick else 0))
            last = int(known[-1])
            middle = int(min(height - 2, max(1, at[last])))
            mark = last // 2 + 1
            if mark < signs.shape[1]:
                wide = np.zeros((height, 2 * signs.shape[1]), bool)
                wide[:, : dots.shape[1]] = dots
                wide[middle - 1 : middle + 2, 2 * mark : 2 * mark + 2] = True
                dots = wide
            style = frame.style(self.palette, curve.role)
            self._stamp(signs, styles, dots, style, banded, frame.style(self.palette, f"{curve.role} on_band"))
            if curve.label:
                named.append((middle // 4, mark, curve))
        for row, mark, curve in reversed(named):  # the main line's name is where it belongs, the others give way
            free = [other for distance in range(rows) for other in (row - distance, row + distance)
                    if 0 <= other < rows and other not in taken]  # fmt: skip
            if not free:
                break
            taken.add(free[0])
            label = curve.label[: max(0, signs.shape[1] - mark - 2)]
            start = frame.signs.shape[1] - signs.shape[1] + mark + 1
            frame.write(free[0], start, f" {label}", frame.style(self.palette, f"{curve.role} bold"))

    def _tint(self, frame: _Frame, signs: Any, styles: Any, column: int) -> None:
        """Tint a column of cells: the cursor."""
        names = {index: name for name, index in frame.index.items()}
        for row in range(len(signs)):
            role = names[int(styles[row, column])].split(" on_")[0]
            if 0x2581 <= signs[row, column] <= 0x2588:  # the edge of a band
                signs[row, column], role = 32, "text"
            styles[row, column] = frame.style(self.palette, f"{role} on_select")

    def _steps(self, frame: _Frame, row: int, gutter: int, room: int, end: float) -> None:
        muted = frame.style(self.palette, "muted")
        free = 0
        for tick in step_ticks(end, room):
            text = f"{tick:d}"
            centre = gutter + 1 + round(tick / end * (room - 1))
            start = centre if tick == 0 else centre - len(text) // 2 if tick < end else centre - len(text) + 1
            if start >= free:
                frame.write(row, start, text, muted)
                free = start + len(text) + 1

    def _strips_of(self, frame: _Frame) -> list[Strip]:
        """Rows as strips; a row like the one before is the same strip."""
        import numpy as np

        kept = self._frame
        height = frame.signs.shape[0]
        if kept is not None and kept.signs.shape == frame.signs.shape and kept.table is frame.table:
            alike = ((kept.signs == frame.signs) & (kept.styles == frame.styles)).all(1)
        else:
            alike = np.zeros(height, bool)
        strips = [self._kept[row] if alike[row] else _strip(frame, row) for row in range(height)]
        self._frame, self._kept = frame, strips
        return strips


def _strip(frame: _Frame, row: int) -> Strip:
    import numpy as np

    text = frame.signs[row].astype("<u4").tobytes().decode("utf-32-le")
    styles = frame.styles[row]
    starts = [0, *(np.flatnonzero(np.diff(styles)) + 1).tolist(), len(text)]
    segments = [Segment(text[a:b], frame.table[int(styles[a])]) for a, b in pairwise(starts)]
    return Strip(segments, len(text))
