"""Template: one JSON object and nothing else."""

import json
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

JSON_OBJECT_KEYS = ()  # exactly these keys; none: any
JSON_OBJECT_LONGEST = 100_000  # characters; longer text is not parsed


def json_object(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for one valid JSON object with the wanted keys, all filled, and nothing around it, else 0."""
    return [1.0 if json_object_accepts(text_of(completion)) else 0.0 for completion in completions]


def json_object_accepts(text: str) -> bool:
    if len(text) > JSON_OBJECT_LONGEST:
        return False
    try:
        value = json.loads(text, object_pairs_hook=json_object_pairs, parse_constant=json_object_refuse)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not value or (JSON_OBJECT_KEYS and set(value) != set(JSON_OBJECT_KEYS)):
        return False
    return not any(item is None or item == [] or item == {} or str(item).strip() == "" for item in value.values())


def json_object_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def json_object_refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
