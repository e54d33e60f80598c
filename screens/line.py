"""Lines of styled text, cut, spread and wrapped to a width. Nothing in them is read as markup."""

from collections.abc import Sequence

from rich.text import Text

from .theme import Palette


def fit(text: Text, width: int) -> Text:
    """Exactly `width` cells: cut with `…`, or padded."""
    fitted = text.copy()
    fitted.truncate(max(0, width), overflow="ellipsis", pad=True)
    return fitted


def spread(width: int, left: Text, right: Text) -> Text:
    """`left` and `right` at the two ends of `width` cells; the left one is cut if both do not fit."""
    room = width - right.cell_len
    return fit(left, room).append_text(right) if room > 0 else fit(left, width)


def wrap(palette: Palette, text: str, width: int, style: str = "text", indent: str | Text = "") -> list[Text]:
    """`text` wrapped at words (long words at cells) behind `indent`, which stands in the first row; newlines stay."""
    first = palette.text((indent, style)) if isinstance(indent, str) else indent
    room = max(1, width - first.cell_len)
    rows: list[Text] = []
    for paragraph in text.split("\n") or [""]:
        words: list[str] = []
        length = 0
        for word in paragraph.split(" "):
            pieces = _pieces(word, room)
            for piece in pieces:
                cells = Text(piece).cell_len
                if words and length + 1 + cells > room:
                    rows.append(palette.text((" ".join(words), style)))
                    words, length = [], 0
                length += cells + (1 if words else 0)
                words.append(piece)
        rows.append(palette.text((" ".join(words), style)))
    return [
        (first if at == 0 else palette.text((" " * first.cell_len, style))).copy().append_text(row)
        for at, row in enumerate(rows)
    ]


def _pieces(word: str, room: int) -> list[str]:
    """`word` in pieces of at most `room` cells."""
    if len(word) * 2 <= room or Text(word).cell_len <= room:
        return [word]
    pieces, piece, cells = [], "", 0
    for character in word:
        width = Text(character).cell_len
        if cells + width > room and piece:
            pieces.append(piece)
            piece, cells = "", 0
        piece, cells = piece + character, cells + width
    return [*pieces, piece]


def columns(cells: Sequence[Text], widths: Sequence[int], gap: int = 2) -> Text:
    """Cells side by side, each fitted to its width, `gap` cells between."""
    return Text(" " * gap, end="").join([fit(cell, width) for cell, width in zip(cells, widths, strict=True)])
