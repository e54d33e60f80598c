"""A pipe or a device in the place of a file is refused, and nothing is waited for."""

import os
from pathlib import Path

import pytest

from grpo_tui import regular


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert regular.read(tmp_path / "file", 3) == b"abc"
    assert regular.read(tmp_path / "link", 3) == b"abc"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(OSError, match="not a file"):
            regular.read(tmp_path / name, 10)
    with pytest.raises(IsADirectoryError):
        regular.read(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        regular.read(tmp_path / "none", 10)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than"):
        regular.read(tmp_path / "large", 10)


def test_a_name_with_a_zero_in_it_is_no_file() -> None:
    with pytest.raises(OSError, match="no name of a file"):
        regular.read(Path("a\0b"), 10)


def test_the_home_of_nobody_is_a_place_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert regular.expanded("~/x") == Path("/home/ada/x")
    assert regular.expanded("~nobody-knows/x") == Path("~nobody-knows/x")
