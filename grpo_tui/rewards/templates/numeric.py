"""Template: a number compared with the right number."""

from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.number_in import number_in
from grpo_tui.rewards.templates.text_of import text_of

NUMERIC_ABSOLUTE = 0.0  # allowed difference as a number ...
NUMERIC_RELATIVE = 0.0  # ... or as a share of the right value, whichever is larger


def numeric(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the final answer holds exactly one number and it is right, else 0; None where the right answer is none."""
    return [numeric_of(text_of(completion), right) for completion, right in zip(completions, answer, strict=True)]


def numeric_of(text: str, right: Any) -> float | None:
    wanted = number_in(str(right))
    if wanted is None:
        return None
    given = number_in(answer_in(text) or "")
    if given is None:
        return 0.0
    values = [given[0]]
    if wanted[1] and not given[1] and abs(given[0]) <= 1:
        values.append(given[0] * 100)  # 0.5 for 50%; where no percentage is asked for, % is a unit like any other
    allowed = max(NUMERIC_ABSOLUTE, NUMERIC_RELATIVE * abs(wanted[0]))
    return 1.0 if any(abs(value - wanted[0]) <= allowed for value in values) else 0.0
