"""A file that only grows, by whole lines, whatever cut an earlier writer short."""

import contextlib
import os
from pathlib import Path


class Lines:
    """A file that only grows, by whole lines: each is one `write` to a descriptor that appends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        size = os.fstat(self._descriptor).st_size
        # An earlier attempt may have been cut short in a line, and so may our own last write (a full disk).
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"

    def append(self, line: str, *, sync: bool) -> None:
        data = (b"\n" if self._torn else b"") + line.encode() + b"\n"
        self._torn = True
        written = os.write(self._descriptor, data)
        if written < len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written: the disk is full")
        self._torn = False
        if sync:
            with contextlib.suppress(OSError):  # some file systems cannot
                os.fsync(self._descriptor)
