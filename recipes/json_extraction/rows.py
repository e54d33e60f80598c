"""Short orders, made in code: `python rows.py` prints them, one JSON object a line, always the same.

Columns: `message`, and `answer`, what stands in it, as the text of a JSON object.
"""

import json
import random

COUNT = 384
SEED = 17

FIRST = "Ana Ben Cleo Dan Eva Finn Gia Hugo Ines Jack Kira Leo Mia Noah Olga Pia".split()  # noqa: SIM905  reads better than a list
LAST = "Berg Costa Diaz Ekman Fischer Grant Haas Ito Jensen Klein Lopez Moreau Novak Okafor Petrov Rossi".split()  # noqa: SIM905  likewise
ITEMS = ("green tea", "printer paper", "red candles", "coffee filters", "wool socks", "AA batteries", "blue pens")
CITIES = ("Lisbon", "Oslo", "Ghent", "Porto", "Turin", "Basel", "Leeds", "Cork", "Graz", "Malmö")
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 12: "a dozen"}
MESSAGES = (
    "Hi, {name} here. Please send {count} boxes of {item} to our office in {city}. Thanks!",
    "Could you ship {item} to {city}? We need {count} packs. Best regards, {name}",
    "Order by {name}: {item}, {count} pieces, deliver to {city}.",
    "Hello, this is about my last order of 10 packs. This time I only need {count}, again {item}. "
    "I have moved, so please deliver to {city}. Yours, {name}",
    "{name} called this morning and asked for {count} packs of {item}; they go to {city}, not to the old address.",
)


def rows(count: int = COUNT, seed: int = SEED) -> list[dict[str, str]]:
    """`count` rows with different messages."""
    rng = random.Random(seed)
    answers: dict[str, str] = {}
    while len(answers) < count:
        quantity = rng.choice([*NUMBERS, *range(13, 90)])
        order = {
            "name": f"{rng.choice(FIRST)} {rng.choice(LAST)}",
            "item": rng.choice(ITEMS),
            "quantity": quantity,
            "city": rng.choice(CITIES),
        }
        said = NUMBERS.get(quantity, str(quantity)) if rng.random() < 0.5 else str(quantity)
        answers[rng.choice(MESSAGES).format(count=said, **order)] = json.dumps(order, ensure_ascii=False)
    return [{"message": message, "answer": answer} for message, answer in answers.items()]


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
