"""Files that strangers may have made, by names that anybody typed: read if they are files at all, and never more of
them than asked for."""

import errno
import os
import stat
from pathlib import Path


def read(path: Path, limit: int) -> bytes:
    """The content of `path`.

    A pipe or a device is refused instead of waited for, and a file of more than `limit` bytes instead of read.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large; its `strerror` says which.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a zero in the name
        raise OSError(errno.EINVAL, "this is no name of a file", str(path)) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit / 2**20:,.0f} MiB", str(path))
    return content


def expanded(place: str | Path) -> Path:
    """`place` with the home folder for `~`; that of a user whom nobody knows stays as it is, and is not found."""
    return Path(os.path.expanduser(place))  # noqa: PTH111  Path.expanduser raises there
