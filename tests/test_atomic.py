"""Files are replaced whole, whatever happens to the process, the disk or the power."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_tui import atomic


class ForgetfulDisk:
    """Follows the calls that reach the disk, and knows what could be left after a power loss.

    Bytes that were not flushed may be there wholly, half or not at all; a rename in a folder that was not flushed may
    have happened or not. Nothing else may be assumed (POSIX promises no more).
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._paths: dict[int, Path] = {}
        self._written: dict[Path, bytes] = {}
        self._flushed: set[Path] = set()
        self._renamed: dict[Path, list[Path]] = {}
        self.left_over: list[tuple[Path, bytes]] = []
        """What could stand under a name at some moment, in addition to what stood there before."""
        for name in ("open", "write", "fsync", "replace"):
            monkeypatch.setattr(os, name, self._follow(getattr(os, name), getattr(self, f"_{name}")))

    def _follow(self, real: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def followed(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            note(result, *arguments)
            self.left_over += list(self._possible())
            return result

        return followed

    def _open(self, result: int, path: Any, *rest: Any) -> None:
        self._paths[result] = Path(path)

    def _write(self, result: int, descriptor: int, data: bytes) -> None:
        path = self._paths[descriptor]
        self._written[path] = self._written.get(path, b"") + bytes(data[:result])
        self._flushed.discard(path)

    def _fsync(self, result: None, descriptor: int) -> None:
        path = self._paths[descriptor]
        if path in self._written:
            self._flushed.add(path)
        else:  # a folder: the renames in it are durable now, only the last one counts
            self._renamed = {target: sources[-1:] for target, sources in self._renamed.items()}

    def _replace(self, result: None, source: Any, target: Any) -> None:
        self._renamed.setdefault(Path(target), []).append(Path(source))

    def _possible(self) -> Iterator[tuple[Path, bytes]]:
        for target, sources in self._renamed.items():
            for source in sources:
                content = self._written[source]
                lengths = {len(content)} if source in self._flushed else {0, len(content) // 2, len(content)}
                yield from ((target, content[:length]) for length in lengths)


def test_a_power_loss_at_any_moment_leaves_the_old_or_the_new_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.toml"
    path.write_text("old")
    disk = ForgetfulDisk(monkeypatch)
    atomic.write(path, "new text", keep_backup=True)
    assert {(path, b"new text"), (atomic.backup_path(path), b"old")} == set(disk.left_over)


def test_without_the_flush_a_power_loss_would_tear_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers.toml"
    path.write_text("old")
    disk = ForgetfulDisk(monkeypatch)
    monkeypatch.setattr(atomic, "_flush", lambda descriptor: None)
    atomic.write(path, "new text")
    assert (path, b"new ") in disk.left_over


def test_the_rename_itself_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append("folder" if _is_folder(descriptor) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    atomic.write(tmp_path / "answers.toml", "new")
    assert flushed == ["file", "folder"]


def _is_folder(descriptor: int) -> bool:
    return os.path.isdir(f"/dev/fd/{descriptor}")  # noqa: PTH112  a descriptor, not a path


def test_the_last_copy_is_kept_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.toml"
    for text in ("first", "second", "third"):
        atomic.write(path, text, keep_backup=True)
    assert path.read_text() == "third"
    assert atomic.backup_path(path).read_text() == "second"


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers.toml"
    path.write_text("old")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["answers.toml"]
    assert path.read_text() == "old"


def test_a_write_that_the_system_takes_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    atomic.write(tmp_path / "answers.toml", "abcdefgh")
    assert (tmp_path / "answers.toml").read_text() == "abcdefgh"


def test_a_folder_that_cannot_be_flushed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def no_folders(descriptor: int) -> None:
        if _is_folder(descriptor):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", no_folders)
    atomic.write(tmp_path / "answers.toml", "new")
    assert (tmp_path / "answers.toml").read_text() == "new"


def test_a_disk_that_fails_to_flush_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers.toml"
    path.write_text("old")

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        atomic.write(path, "new")
    assert path.read_text() == "old"


def test_permissions_are_kept_and_a_new_file_gets_the_usual_ones(tmp_path: Path) -> None:
    path = tmp_path / "answers.toml"
    before = os.umask(0o027)
    try:
        atomic.write(path, "new")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    atomic.write(path, "newer")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.toml", tmp_path / "answers.toml"
    real.write_text("old")
    link.symlink_to(real)
    atomic.write(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    atomic.write(tmp_path / "a", "ä\r\nb\n")
    assert (tmp_path / "a").read_bytes() == "ä\r\nb\n".encode()
