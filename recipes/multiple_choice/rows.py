"""Multiple-choice questions, made in code: `python rows.py` prints them, one JSON object a line, always the same.

Columns: `question` with its four options below it, `answer`, the right letter, and `options`, the four texts.
"""

import json
import random

COUNT = 384
SEED = 3

MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905  reads better than a list
UNITS = (("hours", "minutes", 60), ("kilograms", "grams", 1000), ("metres", "centimetres", 100), ("weeks", "days", 7))
SIDES = {"triangle": 3, "square": 4, "pentagon": 5, "hexagon": 6, "octagon": 8}


def divisible(rng: random.Random) -> tuple[str, str, list[str]]:
    by = rng.randint(3, 12)
    right = by * rng.randint(4, 15)
    others = [right + step for step in range(-by * 2, by * 2) if step % by]
    return f"Which of these numbers can be divided by {by} without a remainder?", str(right), list(map(str, others))


def months(rng: random.Random) -> tuple[str, str, list[str]]:
    at, later = rng.randrange(12), rng.randint(2, 30)
    right = MONTHS[(at + later) % 12]
    return f"Which month comes {later} months after {MONTHS[at]}?", right, [name for name in MONTHS if name != right]


def units(rng: random.Random) -> tuple[str, str, list[str]]:
    large, small, factor = rng.choice(UNITS)
    count = rng.randint(2, 30)
    right = count * factor
    others = {count * 10, count * 12, count * 24, count * 100, count * 1000, count * 60, count + factor} - {right}
    return f"How many {small} are {count} {large}?", str(right), [str(number) for number in sorted(others)]


def corners(rng: random.Random) -> tuple[str, str, list[str]]:
    shape, many = rng.choice(list(SIDES)), rng.randint(2, 12)
    right = SIDES[shape] * many
    others = {sides * many for sides in (*SIDES.values(), 7, 9)} - {right}
    return f"How many corners do {many} {shape}s have in all?", str(right), [str(number) for number in sorted(others)]


def asked(question: str, options: list[str]) -> str:
    """The question with its options, as the model sees it."""
    return "\n".join([question, *(f"{chr(65 + at)}) {text}" for at, text in enumerate(options))])


def rows(count: int = COUNT, seed: int = SEED) -> list[dict[str, object]]:
    """`count` rows with different questions; the right letter is any of the four, equally often."""
    rng = random.Random(seed)
    made: dict[str, dict[str, object]] = {}
    while len(made) < count:
        question, right, others = rng.choice((divisible, months, units, corners))(rng)
        options = rng.sample(others, 3)
        place = rng.randrange(4)
        options.insert(place, right)
        made.setdefault(question, {"question": asked(question, options), "answer": "ABCD"[place], "options": options})
    return list(made.values())


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
