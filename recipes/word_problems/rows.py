"""Word problems, made in code: `python rows.py` prints the data set, one JSON object a line, always the same.

Columns: `question`, and `answer`, the right number as text.
"""

import json
import random
from typing import NamedTuple

COUNT = 512
SEED = 7

NAMES = "Ana Ben Cleo Dan Eva Finn Gia Hugo Ines Jack Kira Leo Mia Noah Olga Pia Quin Rosa Sam Tara".split()  # noqa: SIM905  reads better than a list
ITEMS = "apples books cards coins eggs figs keys kites nuts pears pens plums rings shells stamps stars toys".split()  # noqa: SIM905  likewise
TEMPLATES = {
    "+": (
        "{name} has {a} {items} and gets {b} more. How many {items} now?",
        "{name} finds {a} {items}, then {b} more. How many {items} in total?",
        "There are {a} {items} on the table and {b} in the box. How many {items} in all?",
    ),
    "-": (
        "{name} has {a} {items} and gives away {b}. How many {items} are left?",
        "{name} had {a} {items} but lost {b}. How many {items} remain?",
        "Of {a} {items}, {name} sells {b}. How many {items} are left?",
    ),
    "*": (
        "{name} fills {a} bags with {b} {items} each. How many {items} in total?",
        "{name} buys {a} {items} a day for {b} days. How many {items} in total?",
        "There are {a} boxes of {b} {items} each. How many {items} in all?",
    ),
}


class WordProblem(NamedTuple):
    """A question, the calculation behind it, and its result."""

    question: str
    a: int
    operation: str
    b: int
    result: int


def problem(rng: random.Random) -> WordProblem:
    """One problem: sums and differences of numbers up to 20, products of numbers up to 6."""
    operation = rng.choice("++--*")
    if operation == "+":
        a, b = rng.randint(1, 20), rng.randint(1, 20)
        result = a + b
    elif operation == "-":
        a = rng.randint(2, 20)
        b = rng.randint(1, a - 1)
        result = a - b
    else:
        a, b = rng.randint(2, 6), rng.randint(2, 6)
        result = a * b
    template = rng.choice(TEMPLATES[operation])
    question = template.format(name=rng.choice(NAMES), items=rng.choice(ITEMS), a=a, b=b)
    return WordProblem(question, a, operation, b, result)


def rows(count: int = COUNT, seed: int = SEED) -> list[dict[str, str]]:
    """`count` rows with different questions."""
    rng = random.Random(seed)
    answers: dict[str, str] = {}
    while len(answers) < count:
        made = problem(rng)
        answers[made.question] = str(made.result)
    return [{"question": question, "answer": answer} for question, answer in answers.items()]


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
