"""Compressed files, read as if they were not: unpacked on the way, in constant memory, never to the disk."""

import bz2
import errno
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from grpo_tui.dataset.rows import UnreadableError
from grpo_tui.problem import Problem

_LOOKED_AT = 4 << 20
"""So many bytes are unpacked to learn how much smaller the file is than its content."""


class _ZstandardFrames:
    """The content of a zstandard file. Raises EOFError where its last frame has no end, which the library's own reader
    takes for the end of the file."""

    _PIECE = 1 << 12
    """So many bytes are unpacked at once: a block of 128 KiB may stand in four."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._content = io.BytesIO()
        self._frame: Any = None
        self._behind = b""

    def read(self, size: int) -> bytes:
        import zstandard

        while not (block := self._content.read(size)):
            packed = self._behind or self._file.read(self._PIECE)
            if not packed:
                if self._frame is not None:
                    raise EOFError("its last frame has no end")
                return b""
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._content, self._behind = io.BytesIO(self._frame.decompress(packed)), b""
            if self._frame.eof:
                self._behind, self._frame = self._frame.unused_data, None
        return block


PACKED: Mapping[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".zst": _ZstandardFrames,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
"""File ending to what unpacks it. `datasets` unpacks the same ones by itself."""


def is_packed(path: Path) -> bool:
    """Is the file compressed, by its ending?"""
    return path.suffix.lower() in PACKED


def unpacked_name(path: Path) -> Path:
    """The path without the ending that says how the file is compressed."""
    return path.with_suffix("") if is_packed(path) else path


def packing_problem(path: Path) -> Problem | None:
    """What is missing to unpack the file, here and in training."""
    if path.suffix.lower() == ".zst" and find_spec("zstandard") is None:
        return Problem(str(path), "Zstandard files are read by a package that is not installed.",
                       "Run `pip install zstandard`, which training needs too, or unpack the file.")  # fmt: skip
    return None


def _descriptor(path: Path) -> int:
    """A descriptor of the file, to read from. A pipe or a device is refused instead of waited for: raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def check_regular(path: Path) -> None:
    """Raises OSError where the path leads to no file that can be read, but to a pipe, a device or a folder."""
    os.close(_descriptor(path))


def open_packed(path: Path) -> io.BufferedReader:
    """The file as it stands on the disk, compressed or not. Raises OSError."""
    return os.fdopen(_descriptor(path), "rb")


def open_bytes(path: Path) -> io.BufferedReader:
    """The file's content from its start. Reading raises UnreadableError where the compressed file is damaged.

    Raises OSError where it is no file that can be read.
    """
    if not is_packed(path):
        return open_packed(path)
    return io.BufferedReader(_Unpacked(path))


def open_text(path: Path, encoding: str, newline: str) -> TextIO:
    """The file's content as text; `newline` as for `open`. Raises OSError."""
    if not is_packed(path):
        return os.fdopen(_descriptor(path), encoding=encoding, newline=newline)
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline=newline)


def content_size(path: Path) -> int:
    """Bytes of the file's content; of a compressed file an estimate by how much its beginning shrank."""
    size = path.stat().st_size
    if not is_packed(path):
        return size
    with _Unpacked(path) as file:
        length = 0
        while length < _LOOKED_AT:
            block = file.read(1 << 18)
            if not block:
                return length
            length += len(block)
        return round(size * length / max(1, file.taken()))


class _Unpacked(io.RawIOBase):
    """Bytes of a compressed file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._packed = open_packed(path)
        self._content = PACKED[path.suffix.lower()](self._packed)

    def taken(self) -> int:
        """Bytes of the compressed file that were read so far."""
        return self._packed.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._content.read(len(buffer))
        except _errors(self._path) as error:
            raise UnreadableError(
                Problem(str(self._path), f"The compressed file is damaged or cut off: {error}.",
                        "Copy it again from where it came, and compare the sizes.")
            ) from error  # fmt: skip
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._packed.close()
        super().close()


def _errors(path: Path) -> tuple[type[Exception], ...]:
    """What the unpacking of this file raises where it is damaged."""
    if path.suffix.lower() != ".zst":
        return (OSError, EOFError, zlib.error, lzma.LZMAError)
    import zstandard

    return (OSError, EOFError, zstandard.ZstdError)
