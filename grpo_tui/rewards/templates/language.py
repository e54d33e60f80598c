"""Template: the language of the completion."""

import re
import unicodedata
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

LANGUAGE_SCRIPTS = ("LATIN",)  # names of Unicode: LATIN, CYRILLIC, GREEK, ARABIC, CJK, HIRAGANA, KATAKANA, HANGUL …
LANGUAGE_WORDS = (
    "a an and are as at be but by can for from has have he her his if in is it its not of on or she so than that the "
    "their then there they this to was we were which will with you"
)  # the most frequent words of the language, or nothing: a script alone does not tell English from French
LANGUAGE_LEAST = 10  # letters below which nothing can be told
LANGUAGE_LONGEST = 20_000  # characters that are looked at


def language(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for text in the language, 0 when a fifth or more is in another; code, mathematics and tags are left out."""
    return [language_of(text_of(completion)) for completion in completions]


def language_of(text: str) -> float:
    text = text[:LANGUAGE_LONGEST]
    for aside in (r"(?s)```.*?(?:```|$)", r"`[^`\n]*`", r"\$[^$]*\$", r"\\[a-zA-Z]+", r"</?\w+>"):
        text = re.sub(aside, " ", text)
    letters = [unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha()]
    if len(letters) < LANGUAGE_LEAST:
        return 0.0
    share = sum(script in LANGUAGE_SCRIPTS for script in letters) / len(letters)
    return max(0.0, min(1.0, (min(share, language_words(text)) - 0.8) / 0.15))


def language_words(text: str) -> float:
    """The share of words in sentences in which the frequent words are frequent; short sentences tell nothing."""
    common = set(LANGUAGE_WORDS.split())
    sentences = [re.findall(r"\w+", sentence.casefold()) for sentence in re.split(r"[.!?;:\n]", text)]
    telling = [words for words in sentences if len(words) > 4]
    if not common or not telling:
        return 1.0
    fitting = 0
    for words in telling:
        share = sum(word in common for word in words) / len(words)
        fitting += len(words) if 0.1 <= share <= (0.8 if len(words) > 12 else 1.0) else 0  # no list of these words
    return fitting / sum(map(len, telling))
