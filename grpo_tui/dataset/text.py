"""Text files as they come: byte-order marks, encodings, and where reading them as UTF-8 fails."""

import codecs
from dataclasses import dataclass
from pathlib import Path

from grpo_tui.dataset.packed import is_packed, open_bytes
from grpo_tui.dataset.rows import HEAD_BYTES
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark starts with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
BYTEWISE = frozenset({"utf-8", "utf-8-sig", "cp1252", "latin-1"})
"""Encodings in which a newline is one byte that nothing else contains: such files are counted without decoding."""


@dataclass(frozen=True)
class Encoding:
    """How a file is decoded, and what there is to say about it."""

    name: str
    notes: tuple[str, ...] = ()


def encoding_of(path: Path, asked: str = "") -> Encoding | Problem:
    """The encoding of the file: the one `asked` for, or what its first and last bytes say.

    Raises OSError and UnreadableError.
    """
    with open_bytes(path) as file:
        head = file.read(HEAD_BYTES)
        size, tail = len(head), b""
        if not is_packed(path):  # of a compressed file the end is not looked at: it would have to be read as a whole
            size = file.seek(0, 2)
            file.seek(max(0, size - 65536))
            tail = file.read()
    if asked:
        try:
            "".encode(asked)  # refuses, too, what turns bytes into bytes, such as hex
        except (LookupError, ValueError, TypeError):
            return Problem(
                str(path),
                f"'{one_line(asked, 40)}' is no encoding of text that Python knows.",
                "Write it as utf-8 or cp1252.",
            )
        return Encoding(asked)
    for mark, name in _MARKS:
        if head.startswith(mark):
            note = (
                "byte-order mark removed" if name == "utf-8-sig" else f"read as {name.upper()}: it starts with its mark"
            )
            return Encoding(name, (note,))
    if (wide := _wide(head)) is not None:
        return Encoding(wide, (f"read as {wide.upper()}: every other byte is zero",))
    at = _first_bad_byte(head)
    if at is None and size > len(head):
        at = _first_bad_byte(tail.lstrip(bytes(range(0x80, 0xC0))))
        at = None if at is None else size - len(tail) + at
    if at is None:
        return Encoding("utf-8")
    guess = "latin-1" if any(byte in head for byte in b"\x81\x8d\x8f\x90\x9d") else "cp1252"
    return Encoding(guess, (f"not UTF-8 (it fails at byte {at}): read as {guess}, so look at the accents",))


def _wide(head: bytes) -> str | None:
    """UTF-16 without a mark, as PowerShell and some editors write it, told by its zero bytes."""
    sample = head[:4096]
    if len(sample) < 4 or b"\0" not in sample:
        return None
    half = len(sample) // 2
    if sample[1::2].count(0) > 0.4 * half and sample[0::2].count(0) == 0:
        return "utf-16-le"
    if sample[0::2].count(0) > 0.4 * half and sample[1::2].count(0) == 0:
        return "utf-16-be"
    return None


def _first_bad_byte(block: bytes) -> int | None:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(block)  # a character cut by the block's end is no fault
    except UnicodeDecodeError as error:
        return error.start
    return None


def undecodable(path: Path, error: UnicodeError, line: int) -> Problem:
    """The problem of a file that cannot be decoded from `line` on."""
    what = f"The text cannot be decoded there: {one_line(str(error), 100)}."
    if isinstance(error, UnicodeDecodeError):  # UTF-16 without its mark raises another one
        byte = error.object[error.start] if error.start < len(error.object) else 0
        what = f"The text is not {error.encoding.upper()} there: byte 0x{byte:02x} cannot be decoded."
    return Problem(
        f"{path}, about line {line}",
        what,
        "Choose another encoding, or make a UTF-8 copy beside it.",
    )
