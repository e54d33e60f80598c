"""Template: JSON compared with the right JSON."""

import json
from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.text_of import text_of

SAME_JSON_LONGEST = 100_000  # characters; longer text is not parsed


def same_json(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the final answer is JSON with the right content, whatever the order of its keys; None where that is none."""
    given = [same_json_form(answer_in(text_of(completion)) or "") for completion in completions]
    rights = [right if isinstance(right, str) else json.dumps(right, default=str) for right in answer]
    wanted = [same_json_form(right) for right in rights]
    return [float(a == b) if b else None for a, b in zip(given, wanted, strict=True)]


def same_json_form(text: str) -> str:
    """The one spelling in which equal values are equal texts; empty for what is not JSON, and for null."""
    try:
        value = json.loads(text) if len(text) <= SAME_JSON_LONGEST else None
        return "" if value is None else json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return ""
