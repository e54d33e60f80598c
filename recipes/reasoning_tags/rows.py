"""Puzzles answered by one word, made in code: `python rows.py` prints them, one JSON object a line, always the same.

Columns: `question`, and `answer`, the one word that is right.
"""

import itertools
import json
import random

COUNT = 512
SEED = 11

NAMES = "Ana Ben Cleo Dan Eva Finn Gia Hugo Ines Jack Kira Leo Mia Noah Olga Pia Quin Rosa Sam Tara".split()  # noqa: SIM905  reads better than a list
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905  likewise
PLACES = ("the tallest", "the second tallest", "the shortest")


def order(rng: random.Random) -> tuple[str, str]:
    """Four people, each taller than the next one, told in any order."""
    people = rng.sample(NAMES, 4)
    facts = [
        rng.choice((f"{tall} is taller than {short}.", f"{short} is shorter than {tall}."))
        for tall, short in itertools.pairwise(people)
    ]
    rng.shuffle(facts)
    place = rng.randrange(len(PLACES))
    return f"{' '.join(facts)} Who is {PLACES[place]}?", people[(0, 1, 3)[place]]


def weekday(rng: random.Random) -> tuple[str, str]:
    """A day of the week, some days on or back."""
    today, days = rng.randrange(7), rng.randint(3, 40)
    if rng.random() < 0.5:
        return f"Today is {DAYS[today]}. Which day of the week is it in {days} days?", DAYS[(today + days) % 7]
    return f"Today is {DAYS[today]}. Which day of the week was it {days} days ago?", DAYS[(today - days) % 7]


def rows(count: int = COUNT, seed: int = SEED) -> list[dict[str, str]]:
    """`count` rows with different questions."""
    rng = random.Random(seed)
    answers: dict[str, str] = {}
    while len(answers) < count:
        question, answer = rng.choice((order, weekday))(rng)
        answers[question] = answer
    return [{"question": question, "answer": answer} for question, answer in answers.items()]


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
