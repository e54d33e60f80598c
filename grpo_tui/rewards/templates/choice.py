"""Template: the letter of a multiple-choice question."""

import re
from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.plain_form import plain_form
from grpo_tui.rewards.templates.text_of import text_of

CHOICE_LETTER = re.compile(r"[(\[*]*([A-Za-z])[)\]*.:]*")
CHOICE_WITH_TEXT = re.compile(r"[(\[*]*([A-Za-z])[)\]*.:]+\s+(\S.*)")


def choice(
    completions: list[Any],
    answer: list[Any],
    options: list[Any] | None = None,
    choices: list[Any] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """1 if the final answer is the right letter and nothing else, else 0; None where the right answer is no letter.

    With a column `options` or `choices` (a list of texts per row), an option's whole text is its letter too.
    """
    found = []
    for completion, right, texts in zip(completions, answer, options or choices or [()] * len(answer), strict=True):
        forms = [plain_form(text) for text in texts] if isinstance(texts, list) else []
        wanted = choice_letter(
            chr(65 + right) if isinstance(right, int) and 0 <= right < len(forms) else str(right), []
        )
        given = choice_letter(answer_in(text_of(completion)) or "", forms)
        found.append(float(given == wanted) if wanted else None)
    return found


def choice_letter(text: str, forms: list[str]) -> str:
    """B for `B`, `(B)`, `B.`, `B) text of B` or `text of B`; empty for anything else."""
    text = text.strip()
    alone, both = CHOICE_LETTER.fullmatch(text), CHOICE_WITH_TEXT.fullmatch(text)
    if alone:
        return alone[1].upper()
    named = [chr(65 + at) for at, form in enumerate(forms) if form and form == plain_form(both[2] if both else text)]
    return named[0] if len(named) == 1 and (not both or both[1].upper() == named[0]) else ""
