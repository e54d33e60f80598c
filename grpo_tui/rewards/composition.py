"""What is wrong with a set of rewards although each works: weights, names, scale, cancelling, unpaid answers."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward, standard_deviation, weight_warning
from grpo_tui.rewards.source import duplicates

if TYPE_CHECKING:
    from grpo_tui.rewards.bench import ScoreTable

TOO_MANY_TIMES = 10.0
"""A weighted term with this many times the spread of the first one decides the advantages alone."""


def check_composition(table: "ScoreTable") -> list[Problem]:
    """What is wrong with the set although each function works: names, weights, scale, cancelling, unpaid answers."""
    problems = [
        Problem(
            "rewards", f"`{name}` is chosen more than once; TRL merges equal names into one metric.", "Choose it once."
        )
        for name in duplicates(table.names)
    ]
    warnings = [weight_warning(name, weight) for name, weight in zip(table.names, table.weights, strict=True)]
    problems += [
        Problem(f"weight of {name}", warning, "Change it on the Rewards step, or go on knowing this.")
        for name, warning in zip(table.names, warnings, strict=True)
        if warning
    ]
    total = spread_of(table.weighted)
    largest = max(table.spread.values(), default=0.0)
    if largest > 0 and total < 1e-6 * max(1.0, largest):
        problems.append(
            Problem(
                "rewards", "The terms cancel: each varies, their weighted sum does not.", "Change a weight or a term."
            )
        )
    problems += _shadows_with_a_say(table)
    problems += _drowned(table)
    problems += _never_paid(table)
    return problems


def _shadows_with_a_say(table: "ScoreTable") -> list[Problem]:
    """A completion that only functions of weight 0 scored counts as scored, with 0, in TRL's comparison."""
    paid = [index for index, weight in enumerate(table.weights) if weight]
    alone = [row for row in table.rewards if all(row[index] is None for index in paid)]
    return [
        Problem(
            f"weight of {name}",
            f"It has the weight 0, but scores {count} completions that no paid function scores: TRL then compares them "
            "as if they had earned 0.",
            "Let it return None where the paid functions do.",
        )
        for index, (name, weight) in enumerate(zip(table.names, table.weights, strict=True))
        if paid and not weight and (count := sum(row[index] is not None for row in alone))
    ]


def _drowned(table: "ScoreTable") -> list[Problem]:
    """A term of another size than the first one (correctness) decides alone (RW-09)."""
    first = table.spread.get(table.names[0], 0.0)
    return [
        Problem(
            f"weight of {name}",
            f"Its spread is {spread / first:.3g} times that of {table.names[0]}, which it drowns.",
            "Bring it into 0 … 1, or lower its weight.",
        )
        for name, spread in table.spread.items()
        if first > 0 and spread > TOO_MANY_TIMES * first
    ]


def _never_paid(table: "ScoreTable") -> list[Problem]:
    """RW-07: no spelling of the right answer earns more than the same spelling of a wrong one, from any function."""
    half = len(table.gold) // 2
    pairs = list(zip(table.gold[:half], table.gold[half:], strict=True))
    values = [
        (good, bad)
        for right, wrong in pairs
        for name, good, bad in zip(table.names, right.rewards, wrong.rewards, strict=True)
        if name not in table.blocking
    ]
    if not values or any(good is not None and good > (bad if bad is not None else -math.inf) for good, bad in values):
        return []
    return [
        Problem(
            "rewards",
            "The right answer itself is never paid more than a wrong one, in none of "
            f"{half} spellings (bare, boxed, in an answer tag …).",
            "Compare as text on both sides: an integer is never equal to extracted text. Look at the answer column.",
        )
    ]


def spread_of(values: Sequence[Reward]) -> float:
    """Standard deviation of finite rewards; 0 below two of them."""
    deviation = standard_deviation([None if value is None or math.isinf(value) else value for value in values])
    return 0.0 if math.isnan(deviation) else deviation
