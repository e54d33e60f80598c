"""Template: an expression compared with the right one by math_verify."""

import re
import threading
from typing import Any

from grpo_tui.rewards.templates.answer_in import answer_in
from grpo_tui.rewards.templates.text_of import text_of

MATHEMATICS_SECONDS = 2  # for reading, and for comparing one answer
MATHEMATICS_LONGEST = 50_000  # characters; longer completions earn nothing
MATHEMATICS_LONGEST_ANSWER = 500  # characters of the final answer


def mathematics(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    r"""1 if the final answer, best in \boxed{…}, equals the right one, else 0; None where the right one is no formula.

    An unfinished one such as 12·7 equals its value. math_verify keeps time by an alarm of the main thread; in another
    thread nothing stops a comparison that hangs.
    """
    texts = [text_of(completion) for completion in completions]
    return [mathematics_of(text, right) for text, right in zip(texts, answer, strict=True)]


def mathematics_of(text: str, right: Any) -> float | None:
    wanted = mathematics_read(answer_in("" if right is None else str(right)))
    if not wanted:
        return None
    given = mathematics_read(answer_in(text)) if len(text) <= MATHEMATICS_LONGEST else []
    return 1.0 if given and mathematics_equal(wanted, given) else 0.0


def mathematics_read(text: str | None) -> list[Any]:
    """The one formula that the text is; empty if it is none."""
    text = (text or "").strip(" \t\n$*.")
    if not text or len(text) > MATHEMATICS_LONGEST_ANSWER:
        return []
    bare = re.sub(r"\\(?:text|mathrm)\{[^{}]*\}", "", text)
    if re.search(r"(?<!\\)\b[A-Za-z]{3,}", bare) and not re.search(r"\d", bare):
        return []  # a word, which would be read as a product of its letters
    if text.count("=") > 1 or ("=" in text and not re.search(r"[A-Za-z]", text.partition("=")[0])):
        return []  # 4 = 5 names two numbers, x = 4 one
    try:
        from math_verify import LatexExtractionConfig, parse
    except ImportError as error:
        raise ImportError("This reward needs math_verify: pip install math-verify") from error
    reading = [LatexExtractionConfig(boxed_match_priority=0)]
    seconds: Any = mathematics_seconds()
    found = parse("\\boxed{" + text + "}", reading, extraction_mode="first_match", parsing_timeout=seconds)
    return list(found)


def mathematics_equal(wanted: list[Any], given: list[Any]) -> bool:
    from math_verify import verify

    seconds: Any = mathematics_seconds()
    return bool(verify(wanted, given, timeout_seconds=seconds))


def mathematics_seconds() -> int | None:
    return MATHEMATICS_SECONDS if threading.current_thread() is threading.main_thread() else None
