"""Marks of files and answers: equal as long as what they stand for is."""

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any


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


def file_text(path: Path) -> str | None:
    """The text of a file; None where there is none, or none that can be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def file_hash(path: Path) -> str:
    """SHA-256 of a file as `Draft.files` keeps it; empty where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
