"""Functions that only watch: recorded in training with weight 0, they show a model that earns without getting better.

A paid reward that rises while such a function falls is being gamed. Checked on TRL 1.16: a function of weight 0 is
called and logged at every step, on held-out prompts as well, and changes no advantage.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_tui.draft import DatasetAnswer
from grpo_tui.rewards.catalogue import Proposal, proposals
from grpo_tui.rewards.kinds import TEMPLATES
from grpo_tui.rewards.templates.language import language_of
from grpo_tui.rewards.templates.text_of import text_of

HELD_OUT = 0.05
"""Share of the prompts that is proposed to be held out: a curve of its own for every function."""

ENGLISH_FROM = 0.8
"""Mean of `language` on the prompts from which they are taken for English."""

LOOKED_AT = 50
"""Prompts whose language is looked at."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Canary:
    """A function that may watch."""

    template: str
    name: str
    beside: frozenset[str]
    """Templates of correctness beside which it tells something; empty: any, and none."""

    parameters: Callable[[DatasetAnswer, Rows], Mapping[str, Any] | None]
    """What it is given; None: it would tell nothing on these data."""

    watches: str
    """What it shows, and how to read it."""


def _nothing(answer: DatasetAnswer, rows: Rows) -> Mapping[str, Any]:
    return {}


def _asked(prompt: Any) -> str:
    """The last message of a prompt."""
    return prompt if isinstance(prompt, str) else text_of([{"content": prompt[-1].get("content")}])


def _language(answer: DatasetAnswer, rows: Rows) -> Mapping[str, Any] | None:
    """English as the template has it; of another language its script alone, where that tells anything."""
    texts = [_asked(row["prompt"]) for row in rows[:LOOKED_AT]]
    told = [language_of(text) for text in texts]
    if told and sum(told) / len(told) >= ENGLISH_FROM:
        return {}
    letters = Counter(unicodedata.name(letter, "?").split()[0] for text in texts for letter in text if letter.isalpha())
    script = letters.most_common(1)[0][0] if letters else ""
    return {"scripts": (script,), "words": ""} if script not in ("", "?", "LATIN") else None


CANARIES = (
    _Canary(
        "exact", "word_for_word", frozenset({"numeric", "mathematics", "choice", "judge"}), _nothing,
        "Compares the final answer word for word. When `correct` rises and this falls, answers are dressed up for the "
        "reading of `correct`.",
    ),
    _Canary(
        "repetition", "no_repetition", frozenset(), _nothing,
        "Falls below 0 where the same is said again to fill a length.",
    ),
    _Canary(
        "language", "one_language", frozenset(), _language,
        "Falls where the text leaves the language of the prompts, as models trained on right answers alone do.",
    ),
)  # fmt: skip
"""In the order in which they are offered."""


def canaries(
    answer: DatasetAnswer, columns: Sequence[str], rows: Rows, taken: Collection[str] = ()
) -> tuple[Proposal, ...]:
    """Functions that may watch over a training on these prepared rows, each of weight 0.

    Those that would be proposed as paid ones are not among them, nor those whose names are `taken`.
    """
    paid = {each.template for each in proposals(answer, columns, rows)}
    found = []
    for each in CANARIES:
        if each.template in paid or each.name in taken or (each.beside and not each.beside & paid):
            continue
        parameters = each.parameters(answer, rows)
        if parameters is not None:
            found.append(
                Proposal(
                    template=each.template,
                    name=each.name,
                    parameters=parameters,
                    weight=0.0,
                    why=each.watches,
                    warnings=TEMPLATES[each.template].cautions,
                )
            )
    return tuple(found)
