"""Sums, made in code: `python rows.py` prints them, one JSON object a line, always the same.

Columns: `question`, and `answer`, the right number as text. The answers are there to be watched, not to be paid for.
"""

import json
import random

COUNT = 256
SEED = 5


def rows(count: int = COUNT, seed: int = SEED) -> list[dict[str, str]]:
    """`count` rows with different questions: three numbers up to 60, added and taken away."""
    rng = random.Random(seed)
    answers: dict[str, str] = {}
    while len(answers) < count:
        a, b, c = (rng.randint(2, 60) for _ in range(3))
        answers[f"What is {a} + {b} - {c}?"] = str(a + b - c)
    return [{"question": question, "answer": answer} for question, answer in answers.items()]


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
