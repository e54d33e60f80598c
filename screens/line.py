"""Lines of styled text: built from (text, roles), cut and spread to a width. Nothing in them is read as markup."""

from collections.abc import Sequence

from textual.content import Content

Part = str | Content | tuple[str, str]


def line(*parts: Part) -> Content:
    """One line. A part is text, or text with roles as in `("47", "text bold on-select")`."""
    return Content.assemble(*(part if isinstance(part, (str, Content)) else (part[0], style(part[1])) for part in parts))


def style(roles: str) -> str:
    """Roles as a style: colours become theme variables, `on-x` a background, `bold` and `reverse` stay."""
    words = []
    for role in roles.split():
        if role in ("bold", "reverse", "underline", "dim"):
            words.append(role)
        elif role.startswith("on-"):
            words.append(f"on ${VARIABLES.get(role[3:], role[3:])}")
        else:
            words.append(f"${VARIABLES.get(role, role)}")
    return " ".join(words)


VARIABLES = {"text": "foreground", "muted": "muted", "surface": "surface"}
"""Role to theme variable, where the names differ."""


def fit(content: Content, width: int) -> Content:
    """Exactly `width` cells: cut with `…`, or padded."""
    return content.truncate(width, ellipsis=True, pad=True)


def spread(width: int, left: Content, right: Content) -> Content:
    """`left` and `right` at the two ends of `width` cells; the left one is cut if both do not fit."""
    room = width - right.cell_length
    return left.truncate(max(0, room), ellipsis=True, pad=True) + right if room > 0 else fit(left, width)


def wrap(text: str, width: int, roles: str = "text", indent: str = "") -> list[Content]:
    """`text` wrapped at words (long words at cells), each row after `indent`; newlines stay."""
    room = max(1, width - len(indent))
    rows = Content(text).wrap(room) if text else [Content("")]
    return [line(indent, (row.plain.rstrip(), roles)) for row in rows]


def columns(cells: Sequence[Content], widths: Sequence[int], gap: int = 2) -> Content:
    """Cells side by side, each fitted to its width, `gap` cells between."""
    return Content(" " * gap).join(fit(cell, width) for cell, width in zip(cells, widths, strict=True))
