"""Template: an expression compared with the right one by math_verify."""

import re
from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.same_formula import same_formula
from grpo_tui.rewards.templates.text_of import text_of

MATHEMATICS_SECONDS = 2  # for reading and comparing one answer
MATHEMATICS_LONGEST = 50_000  # characters; longer completions earn nothing
MATHEMATICS_LONGEST_ANSWER = 500  # characters of the final answer


def mathematics(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    r"""1 if the final answer, best in \boxed{…}, equals the right one, else 0; None where the right one is no formula.

    An unfinished one such as 12·7 equals its value. A comparison that takes too long earns nothing, in any thread.
    """
    texts = [text_of(completion) for completion in completions]
    return [mathematics_of(text, right) for text, right in zip(texts, answer, strict=True)]


def mathematics_of(text: str, right: Any) -> float | None:
    wanted = mathematics_formula(answer_in("" if right is None else str(right)))
    if not wanted:
        return None
    given = mathematics_formula(answer_in(text)) if len(text) <= MATHEMATICS_LONGEST else ""
    equal = same_formula(given, wanted, MATHEMATICS_SECONDS)
    return None if equal is None else float(equal)


def mathematics_formula(text: str | None) -> str:
    """The text where it may be one formula, else nothing."""
    text = (text or "").strip(" \t\n$*.")
    if len(text) > MATHEMATICS_LONGEST_ANSWER:
        return ""
    bare = re.sub(r"\\(?:text|mathrm)\{[^{}]*\}", "", text)
    if re.search(r"(?<!\\)\b[A-Za-z]{3,}", bare) and not re.search(r"\d", bare):
        return ""  # a word, which would be read as a product of its letters
    if text.count("=") > 1 or ("=" in text and not re.search(r"[A-Za-z]", text.partition("=")[0])):
        return ""  # 4 = 5 names two numbers, x = 4 one
    return text
