"""Files replaced whole: after a crash or a power loss the old or the new content stands there, never a mixture."""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

BACKUP_SUFFIX = ".bak"

# File systems that cannot flush a folder, or anything at all, say so with these; the rename is still atomic there.
_CANNOT_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def backup_path(path: Path) -> Path:
    """Where `write` keeps the last copy of `path`."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def write(path: Path, data: str | bytes, *, keep_backup: bool = False) -> None:
    """Replace the content of `path` by `data` (text as UTF-8, newlines as given), keeping its permissions.

    With `keep_backup` what stood there before is first copied to `backup_path(path)`, by the same means. A symbolic
    link stays one: the file it points to is replaced.

    Raises:
        OSError: nothing was replaced, or the replacement could not be flushed to the disk.
    """
    content = data.encode() if isinstance(data, str) else data
    if keep_backup and path.exists():
        write(backup_path(path), path.read_bytes())
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            with contextlib.suppress(OSError):  # a new file has no permissions to keep; FAT has none at all
                os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            _flush(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    _flush_folder(target.parent)


def _flush(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise


def _flush_folder(folder: Path) -> None:
    """Make the rename itself durable (a renamed file lives in its folder's data, not in its own)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)
