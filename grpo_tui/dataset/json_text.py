"""JSON values from text, read as the library that training reads with takes them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from grpo_tui.dataset.rows import DEEPEST, LongNumberError, Rounded, UnreadableError, depth, has_half_character
from grpo_tui.dataset.text import undecodable
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

REPAIR = "Ask for a repaired copy beside it, or correct the file."

_SPACE = re.compile(r"\s*")
_INT64 = range(-(2**63), 2**63)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a character beyond 16 bits, whole or not
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # both halves of a character
    r"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def decoder(highest: int = 0) -> json.JSONDecoder:
    """Decodes as Arrow does, to which a whole number beyond 64 bits is a float.

    `highest`: numbers from there on raise LongNumberError instead, as the readers of other layouts refuse them.
    """

    def whole(digits: str) -> int | float:
        # More than 20 signs are beyond 64 bits. `int` refuses thousands of them, to `float` they are infinite.
        number = int(digits) if len(digits) <= 20 else None
        if number is not None and number in _INT64:
            return number
        if highest and (number is None or not -(2**63) <= number < highest):
            raise LongNumberError
        return Rounded(digits)

    return json.JSONDecoder(parse_int=whole)


_DECODER = decoder()


def decode(text: str) -> Any:
    """The value of one line. Raises ValueError, and RecursionError where it is nested far too deep."""
    return _DECODER.decode(text)


def parses(text: str) -> bool:
    """Is the text one JSON value? One that is nested too deep is: what is wrong with it is said when it is read."""
    try:
        decode(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def whole_characters(text: str) -> str:
    """JSON text with the sign for a broken character in place of each half of one."""
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["half"] else found[0], text)


def too_deep(where: str) -> Problem:
    """The problem of a value that no table holds for its depth."""
    return Problem(
        where,
        f"The row is nested more than {DEEPEST} deep: the library that training reads with refuses the file.",
        "Take the row out, or write what is inside it as text.",
    )


def too_long(where: str) -> Problem:
    """The problem of a whole number that the library refuses."""
    return Problem(
        where,
        "A whole number has more than 64 bits: the library that training reads with refuses the file for it.",
        "Write the number in quotes, as text.",
    )


def half_character(where: str) -> Problem:
    """The problem of a text that cannot be written as UTF-8."""
    return Problem(
        where,
        "A text holds half a character (a lone surrogate, such as \\ud800): the library that training reads with"
        " refuses the file, or drops it silently.",
        "Ask for a repaired copy beside it, in which � stands there, or correct the file.",
    )


def refusal(value: Any, text: str, start: int = 0, end: int | None = None) -> Callable[[str], Problem] | None:
    """What makes the problem of a row that is sound JSON, read from this part of `text`, and yet cannot be loaded."""
    nested = text.count("[", start, end) + text.count("{", start, end)
    if nested > DEEPEST and depth(value) > DEEPEST + 1:  # the row itself is one
        return too_deep
    if _HALF.search(text, start, len(text) if end is None else end) and has_half_character(value):
        return half_character
    return None


class Stream:
    """JSON values from a text file, one after the other, in memory for one value."""

    LARGEST = 256 << 20

    def __init__(self, file: TextIO, path: Path, highest: int = 0) -> None:
        self.path = path
        self._file = file
        self._text = ""
        self._at = self._start = 0
        self._lines = 1  # line number of the first character of _text
        self._ended = False
        self._decoder = decoder(highest)

    def line(self) -> int:
        """Number of the line that is read next, from 1."""
        return self._lines + self._text.count("\n", 0, self._at)

    def ahead(self) -> str:
        """The next characters."""
        return self._text[self._at : self._at + 80]

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, character: str) -> None:
        """Pass over this character. Raises UnreadableError where another one stands."""
        found = self.peek()
        if found != character:
            raise UnreadableError(self._broken(f"'{character}' was expected"))
        self._at += 1

    def value(self) -> Any:
        """The next value. Raises UnreadableError."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                unfinished = error.pos > len(self._text) - 64 or error.msg.startswith("Unterminated")
                if unfinished and len(self._text) < self.LARGEST and self._more():
                    continue
                self._at = min(error.pos, len(self._text))
                raise UnreadableError(self._broken(error.msg)) from error
            except LongNumberError as error:
                raise UnreadableError(too_long(self._here())) from error
            except RecursionError as error:
                raise UnreadableError(too_deep(self._here())) from error
            if end == len(self._text) and self._more():  # a number may go on
                continue
            self._start, self._at = self._at, end
            return value

    def row(self) -> Any:
        """The next value, if it can be loaded for training. Raises UnreadableError."""
        value = self.value()
        if refused := refusal(value, self._text, self._start, self._at):
            self._at = self._start
            raise UnreadableError(refused(self._here()))
        return value

    def _here(self) -> str:
        return f"{self.path}, line {self.line()}"

    def _more(self) -> bool:
        if self._ended:
            return False
        self._lines = self.line()
        kept = self._text[self._at :]
        try:
            block = self._file.read(max(65536, len(kept)))
        except UnicodeError as error:
            raise UnreadableError(undecodable(self.path, error, self._lines)) from error
        self._ended = not block
        self._text, self._at = kept + block, 0
        return not self._ended

    def _broken(self, message: str) -> Problem:
        if self._at >= len(self._text.rstrip()) or message.startswith("Unterminated"):
            return Problem(self._here(), "The file looks cut off: its last value has no end.", REPAIR)
        near = one_line(self._text[self._at : self._at + 40], 40)
        return Problem(self._here(), f"This is no valid JSON ({message}) near: {near}", "Correct the file there.")
