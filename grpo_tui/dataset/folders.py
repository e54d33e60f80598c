"""Folders: written by `save_to_disk`, or full of files."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_tui import regular
from grpo_tui.dataset.arrow_rows import open_arrow
from grpo_tui.dataset.files import FORMATS, is_data_file, kind_by_name, open_files
from grpo_tui.dataset.source import Source, described
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

_DESCRIPTION_BYTES = 64 << 20
_SPLIT_WORDS = {"train": "train", "training": "train", "test": "test", "testing": "test", "eval": "test",
                "evaluation": "test", "validation": "validation", "valid": "validation", "val": "validation",
                "dev": "validation"}  # datasets.data_files.SPLIT_KEYWORDS  # fmt: skip


def open_folder(folder: Path, options: dict[str, str], split: str) -> Source | Problem:
    """The rows of one split of a folder. Raises OSError and UnreadableError."""
    if (folder / "dataset_dict.json").exists():
        return _open_saved_splits(folder, options, split)
    if (folder / "state.json").exists() and (folder / "dataset_info.json").exists():
        return _open_saved(folder, options, split)
    files, left, odd = _files_of(folder)
    odd_note = (f"no files, passed over: {one_line(', '.join(one.name for one in odd), 100)}",) if odd else ()
    by_format: dict[str, list[Path]] = {}
    for one in files:
        by_format.setdefault(kind_by_name(one) or "", []).append(one)
    if not by_format:
        return Problem(
            str(folder),
            "The folder holds no data: looked for dataset_dict.json, state.json with dataset_info.json, and for files "
            f"ending in {', '.join(FORMATS)}, there and in its sub-folders."
            + (
                f" There are only pipes, devices or broken links: {one_line(', '.join(one.name for one in odd), 100)}."
                if odd
                else ""
            ),
            "Choose a file, or a folder that `save_to_disk` wrote.",
        )
    kind, chosen = max(by_format.items(), key=lambda item: len(item[1]))
    groups: dict[str, list[Path]] = {}
    for one in chosen:
        groups.setdefault(_split_of(one.relative_to(folder)), []).append(one)
    name = split or ("train" if "train" in groups else next(iter(groups)))
    if name not in groups:
        return Problem(str(folder), f"There is no split '{one_line(name, 40)}'.", f"Splits there: {', '.join(groups)}.")
    opened = open_files(tuple(groups[name]), options, name)
    if isinstance(opened, Problem):
        return opened
    others = tuple(other for other in by_format if other != kind)
    notes: tuple[str, ...] = (f"{len(groups[name])} {kind} files of split {name}",) if len(groups[name]) > 1 else ()
    notes += (f"files of another kind left aside: {', '.join(others)}",) if others else ()
    notes += odd_note
    notes += (f"{left} data files in sub-folders left aside",) if left else ()
    splits = tuple(groups) if len(groups) > 1 else ()
    return replace(opened, path=str(folder), notes=notes + opened.notes, splits=splits, split=name if splits else "")


def _files_of(folder: Path) -> tuple[list[Path], int, list[Path]]:
    """The data files of the folder, else those of its sub-folders; how many of the latter are left aside; and what is
    named like one and is none: a pipe, a device, a broken link.

    A project's own folder holds runs with files of rows in them, so that sub-folders count only where it has no data.
    """
    named = sorted(one for one in folder.rglob("*") if is_data_file(one) and not _is_aside(one.relative_to(folder)))
    found = [one for one in named if one.is_file()]
    odd = [one for one in named if not one.is_file() and not one.is_dir()]
    here = [one for one in found if one.parent == folder]
    return (here, len(found) - len(here), odd) if here else (found, 0, odd)


def _is_aside(path: Path) -> bool:
    return any(part.startswith((".", "__")) for part in path.parts)


def open_pattern(pattern: str, options: dict[str, str]) -> Source | Problem:
    """All files that an absolute pattern such as `data/**/*.jsonl` names, in the order of their names."""
    anchor = Path(Path(pattern).anchor)
    files = tuple(
        sorted(
            one for one in anchor.glob(str(Path(pattern).relative_to(anchor))) if is_data_file(one) and one.is_file()
        )
    )
    kinds = {kind_by_name(one) or "" for one in files}
    if not files:
        return Problem(pattern, "No data file has such a name.", f"Files end in {', '.join(FORMATS)}.")
    if len(kinds) > 1:
        return Problem(pattern, f"It names files of several kinds: {', '.join(sorted(kinds))}.", "Name one kind only.")
    opened = open_files(files, options, "")
    if isinstance(opened, Problem):
        return opened
    return replace(opened, path=pattern, notes=(f"{len(files)} {opened.format} files", *opened.notes))


def _split_of(path: Path) -> str:
    """The split that a file's name or a folder above it says."""
    parts = (path.name, *reversed(path.parts[:-1]))
    words = (word for part in parts for word in re.split(r"[^a-z]+", part.lower()))
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), "train")


def _open_saved_splits(folder: Path, options: dict[str, str], split: str) -> Source | Problem:
    try:
        splits = tuple(map(str, _described(folder / "dataset_dict.json")["splits"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        splits = ()
    splits = splits or tuple(sorted(one.name for one in folder.iterdir() if (one / "state.json").exists()))
    name = split or ("train" if "train" in splits else "".join(splits[:1]))
    if name not in splits:
        there = one_line(", ".join(splits), 200) or "none"
        return Problem(str(folder), f"There is no split '{one_line(name, 40)}'.", f"Splits there: {there}.")
    opened = _open_saved(folder / name, options, name)
    return opened if isinstance(opened, Problem) else replace(opened, path=str(folder), splits=splits, split=name)


def _described(path: Path) -> Any:
    """What a file of `save_to_disk` says of the data beside it. Raises OSError, ValueError and RecursionError."""
    return json.loads(regular.read(path, _DESCRIPTION_BYTES))


def _open_saved(folder: Path, options: dict[str, str], split: str) -> Source | Problem:
    try:
        files = tuple(folder / one["filename"] for one in _described(folder / "state.json")["_data_files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        files = tuple(sorted(folder.glob("*.arrow")))
    opened = open_arrow(files)
    if isinstance(opened, Problem):
        return opened
    note = "written by save_to_disk" + (f", split {split}" if split else "")
    return described(str(folder), "saved", opened, (note,), options, files)
