"""What the model is paid for. Each function gives one number from 0 to 1 for each completion."""

import re
from decimal import Decimal
from typing import Any

ANSWER = re.compile(r"<answer>(.*)</answer>", re.DOTALL)
NUMBER = re.compile(r"[+-]?([0-9]{1,30}|[0-9]{1,3}(,[0-9]{3}){1,9})(\.[0-9]{1,30})?")
WELL_FORMED = re.compile(r"\s*<reasoning>(.*)</reasoning>\s*<answer>(.*)</answer>\s*", re.DOTALL)
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def correct(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float]:
    """1 if there is exactly one answer, it is one number, and it is the right one."""
    return [
        float((given := answered(text_of(completion))) is not None and given == number(str(right)))
        for completion, right in zip(completions, answer, strict=False)
    ]


def format(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 if the completion is <reasoning>...</reasoning><answer>...</answer>, both filled, and nothing else."""
    return [float(is_well_formed(text_of(completion))) for completion in completions]


def brevity(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for an answer within 16 characters, falling to 0 at 48, tags and spaces not counted; 0 without an answer."""
    texts = [text_of(completion) for completion in completions]
    return [0.0 if answered(text) is None else min(1.0, max(0.0, (48 - own_length(text)) / 32)) for text in texts]


def text_of(completion: Any) -> str:
    """The text of a completion: plain text, or the last of a list of chat messages; empty if there is none."""
    if isinstance(completion, list):
        completion = completion[-1] if completion else None
    if isinstance(completion, dict):
        completion = completion.get("content")
    if isinstance(completion, list):  # content in parts
        parts = (part.get("text") if isinstance(part, dict) else part for part in completion)
        completion = "".join(part for part in parts if isinstance(part, str))
    return completion if isinstance(completion, str) else ""


def answered(text: str) -> Decimal | None:
    """The number between <answer> and </answer>; None unless there is one such pair and one number in it."""
    found = ANSWER.search(text) if text.count("<answer>") == text.count("</answer>") == 1 else None
    return number(found[1]) if found else None


def number(text: str) -> Decimal | None:
    """The number that `text` is, such as 34, -2, 1,250 or 4.0; None for anything else, two numbers included."""
    text = text.strip()
    return Decimal(text.replace(",", "")) if NUMBER.fullmatch(text) else None


def is_well_formed(text: str) -> bool:
    """Each tag once, in order, with something in it, and nothing outside."""
    found = WELL_FORMED.fullmatch(text) if all(text.count(tag) == 1 for tag in TAGS) else None
    return bool(found and found[1].strip() and found[2].strip())


def own_length(text: str) -> int:
    """Characters of `text` without the four tags and without spaces."""
    for tag in TAGS:
        text = text.replace(tag, "")
    return len("".join(text.split()))
