"""Turns `allenai/ai2_arc` into the columns of this recipe: `python from_arc.py > questions.jsonl`, with a network.

There the options stand in a column of their own, `choices` with lists `text` and `label`, and some labels are digits.
"""

import json
from typing import Any


def converted(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the hub as one of this recipe: options below the question, the right one as a letter."""
    options = list(row["choices"]["text"])
    letters = [f"{chr(65 + at)}) {text}" for at, text in enumerate(options)]
    right = list(row["choices"]["label"]).index(row["answerKey"])
    return {"question": "\n".join([row["question"], *letters]), "answer": chr(65 + right), "options": options}


if __name__ == "__main__":
    from datasets import load_dataset  # noqa: TID251  run by hand, where the data are fetched

    for row in load_dataset("allenai/ai2_arc", "ARC-Challenge", split="train"):
        print(json.dumps(converted(row)))
