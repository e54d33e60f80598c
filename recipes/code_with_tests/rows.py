"""Small programming tasks, made in code: `python rows.py` prints them, one JSON object a line, always the same.

Columns: `question` with the name of the function and one example, `tests`, assert statements that the model does not
get to see, and `solution`, code that passes them.
"""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

COUNT = 128
SEED = 23
TESTS = 6

WORDS = "apple bee cloud dune ember fox grape hill iris jade kite lemon moon nest olive pearl quill river stone tulip".split()  # noqa: SIM905, E501  reads better than a list


class Task(NamedTuple):
    """A kind of task. `{k}` stands for a whole number, different in each task of the kind."""

    name: str
    asks: str
    body: str
    given: Callable[[random.Random], Any]
    least: int = 2
    most: int = 14


def numbers(rng: random.Random) -> list[int]:
    return [rng.randint(-20, 60) for _ in range(rng.randint(0, 9))]


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(0, 6)))


def whole(rng: random.Random) -> int:
    return rng.randint(0, 9999)


TASKS = (
    Task("add_{k}", "returns a list with {k} added to each number of the list", "[n + {k} for n in given]", numbers),
    Task("every_{k}th", "returns every {k}th item of the list, beginning with the first", "given[::{k}]", numbers, 4),
    Task(
        "count_multiples_of_{k}",
        "returns how many numbers of the list can be divided by {k} without a remainder",
        "sum(n % {k} == 0 for n in given)",
        numbers,
    ),
    Task(
        "above_{k}",
        "returns the numbers of the list above {k}, in their order",
        "[n for n in given if n > {k}]",
        numbers,
    ),
    Task(
        "largest_{k}",
        "returns the {k} largest numbers, or all if there are fewer, the largest first",
        "sorted(given, reverse=True)[:{k}]",
        numbers,
    ),
    Task(
        "rotate_by_{k}",
        "returns the list turned to the left by {k} places, also when it is shorter than that or empty",
        "given[{k} % len(given):] + given[:{k} % len(given)] if given else []",
        numbers,
    ),
    Task(
        "words_longer_than_{k}",
        "returns a list of the words of the text that have more than {k} letters, in their order",
        "[w for w in given.split() if len(w) > {k}]",
        words,
        2,
        5,
    ),
    Task("last_{k}_characters", "returns the last {k} characters of the text, backwards", "given[-{k}:][::-1]", words),
    Task(
        "shorten_to_{k}",
        'returns the text itself if it has at most {k} characters, and otherwise its first {k} characters and "..."',
        'given if len(given) <= {k} else given[:{k}] + "..."',
        words,
    ),
    Task(
        "digit_sum_times_{k}",
        "returns the sum of the digits of the number, multiplied by {k}",
        "{k} * sum(int(d) for d in str(given))",
        whole,
    ),
    Task("in_base_{k}", "returns the digits of the number in base {k}, as a list", "", whole, 3, 9),
    Task(
        "multiple_of_{k}_above",
        "returns the smallest multiple of {k} above the number",
        "given - given % {k} + {k}",
        whole,
    ),
)
IN_BASE = """    digits = [given % {k}]
    while given >= {k}:
        given //= {k}
        digits.append(given % {k})
    return digits[::-1]
"""


def task(rng: random.Random) -> dict[str, object]:
    """One task: what it asks, its tests, and a solution."""
    kind = rng.choice(TASKS)
    k = rng.randint(kind.least, kind.most)
    name = kind.name.format(k=k)
    body = f"    return {kind.body.format(k=k)}\n" if kind.body else IN_BASE.format(k=k)
    solution = f"def {name}(given):\n{body}"
    names: dict[str, Any] = {}
    exec(compile(solution, name, "exec"), names)
    cases: dict[str, str] = {}
    while len(cases) < TESTS + 1:
        given = kind.given(rng)
        cases[repr(given)] = repr(names[name](given))
    example = max(cases, key=len)
    shown = cases.pop(example)
    return {
        "question": f"Write a Python function `{name}(given)` that {kind.asks.format(k=k)}.\n"
        f"For example, `{name}({example})` returns `{shown}`.",
        "tests": [f"assert {name}({given}) == {wanted}" for given, wanted in cases.items()],
        "solution": solution,
    }


def rows(count: int = COUNT, seed: int = SEED) -> list[dict[str, object]]:
    """`count` rows, each of another function."""
    rng = random.Random(seed)
    made: dict[str, dict[str, object]] = {}
    while len(made) < count:
        row = task(rng)
        made.setdefault(str(row["solution"]), row)
    return list(made.values())


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
