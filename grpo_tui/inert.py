"""Text from data, models, logs and files, made safe to print."""

import re

# ECMA-48 in seven bits: CSI, OSC/DCS/APC/PM/SOS strings that are ended, and two-byte escapes. A string without an end
# loses its introducer only, and C1 controls become a sign like every control: both also stand in text that was decoded
# wrongly, and the rest of that must be read.
_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]P_^X][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
)
# C0 and C1 controls but for tab and newline, the bidirectional overrides that reorder a line, and halves of surrogate
# pairs, which JSON can spell and no terminal can be sent.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def inert(text: str, limit: int | None = None) -> str:
    """`text` without terminal sequences, controls shown as `·`, cut to `limit` characters with `…`.

    Markup is not this function's business: screens show foreign text as `rich.text.Text` or with `markup=False`.
    """
    if limit is not None and len(text) > limit * 8 + 4096:
        text = text[: limit * 8 + 4096]  # a 200 MB line must not be scanned to show 80 cells of it
    text = text.replace("\r\n", "\n")
    text = _CONTROL.sub("·", _ESCAPE.sub("", text))
    if limit is not None and len(text) > limit:
        return text[: max(0, limit - 1)] + "…"
    return text


def one_line(text: str, limit: int) -> str:
    """`text` inert and on one line: newlines and tabs become a space, runs of spaces one."""
    return inert(" ".join(text[: limit * 8 + 4096].split()), limit)


def whole_characters(text: str) -> str:
    """`text` as UTF-8 can hold it: half a surrogate pair, which JSON can spell, becomes `?`."""
    return text.encode("utf-8", "replace").decode()
