"""Marks of files and answers: equal as long as what they stand for is."""

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

from grpo_tui import regular

LARGEST = 2**30
"""Bytes of a file that is hashed: completions, and whatever else a project keeps, are far shorter."""


def digest(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each with its length, so that no two lists of parts collide."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part
        total.update(f"{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def marked(answer: Any) -> str:
    """What a dataclass says beyond its defaults: the same text when a later version adds a field."""
    said = {item.name: getattr(answer, item.name) for item in fields(answer)}
    return repr({name: value for name, value in said.items() if value != getattr(type(answer)(), name)})


def file_bytes(path: Path) -> bytes | None:
    """The content of a file; None where there is none, or none that can be read."""
    try:
        return regular.read(path, LARGEST)
    except OSError:
        return None


def file_text(path: Path) -> str | None:
    """The text of a file; None where there is none, or none that can be read."""
    content = file_bytes(path)
    return None if content is None else content.decode("utf-8", "surrogateescape")


def file_hash(path: Path) -> str:
    """SHA-256 of a file as `Draft.files` keeps it; empty where it cannot be read."""
    content = file_bytes(path)
    return "" if content is None else hashlib.sha256(content).hexdigest()
