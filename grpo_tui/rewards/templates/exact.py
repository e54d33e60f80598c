"""Template: text compared with the right text."""

from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.plain_form import plain_form
from grpo_tui.rewards.templates.text_of import text_of


def exact(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the final answer is the right one but for case, spaces and punctuation around it, else 0; None without one.

    Another wording earns nothing.
    """
    given = [plain_form(answer_in(text_of(completion)) or "") for completion in completions]
    wanted = [plain_form("" if right is None else right) for right in answer]
    return [float(a == b) if b else None for a, b in zip(given, wanted, strict=True)]
