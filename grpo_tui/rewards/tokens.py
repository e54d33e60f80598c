"""The tokens of a completion as a training counts them, for rewards that look at `completion_ids`."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of the `tokenizers` library, and the token that ends a completion (None: not known)."""

    encode: Callable[..., Any]
    end: int | None


_tokenizers: dict[str, Tokenizer | None] = {}
_words: dict[str, int] = {}
_END = ""
"""Stands for the end token among the words; no word is empty."""


@lru_cache(maxsize=4096)  # the bench calls several functions, some of them twice, with the same completions
def token_ids(text: str, tokenizer: str) -> tuple[int, ...]:
    """Token ids of a finished completion, its end token included, as a training counts them (TRL 1.16).

    Without a tokenizer there is one id per word, equal words sharing one.
    """
    real = find_tokenizer(tokenizer)
    if real is None:
        return tuple(_words.setdefault(word, len(_words)) for word in [*re.findall(r"\S+", text), _END])
    ids = real.encode(text, add_special_tokens=False).ids
    return (*ids,) if real.end is None else (*ids, real.end)


def find_tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer of a local folder, or of a hub model that is in the cache; None where there is none to be had."""
    if name not in _tokenizers:
        file = _file(name, "tokenizer.json") if name else None
        _tokenizers[name] = _read_tokenizer(name, file) if file else None
    return _tokenizers[name]


def _read_tokenizer(name: str, file: Path) -> Tokenizer | None:
    import tokenizers

    try:
        real = tokenizers.Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001  its errors are bare Exceptions; words stand in, and it is said
        return None
    return Tokenizer(real.encode, _end_token(name, real))


def _end_token(name: str, real: Any) -> int | None:
    """The end token: of the tokenizer, or else the first that the model declares."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        token = _content_of(name, file).get("eos_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and (found := real.token_to_id(token)) is not None:
            return int(found)
    for file in ("generation_config.json", "config.json"):
        declared = _content_of(name, file).get("eos_token_id")
        declared = declared[0] if isinstance(declared, list) and declared else declared
        if isinstance(declared, int):
            return declared
    return None


def _content_of(name: str, file: str) -> dict[str, Any]:
    """A JSON file of the model; empty where there is none."""
    path = _file(name, file)
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _file(name: str, file: str) -> Path | None:
    path = Path(name) / file
    return path if path.is_file() else _cached(name, file)


def _cached(model: str, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, file)
    except HFValidationError:  # a folder, without the file
        return None
    return Path(found) if isinstance(found, str) else None
