"""Turns `google-research-datasets/mbpp` into the columns of this recipe: `python from_mbpp.py > tasks.jsonl`, online.

There the text does not name the function that the tests call, so the first test goes into the prompt and is no longer
one of the hidden ones.
"""

import json
from typing import Any


def converted(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the hub (configuration `full`) as one of this recipe."""
    shown, *hidden = row["test_list"]
    setup = [row["test_setup_code"]] if row["test_setup_code"] else []
    return {
        "question": f"{row['text']}\nThe function must pass this test: `{shown}`",
        "tests": [line.replace("\r\n", "\n") for line in (*setup, *hidden, *row["challenge_test_list"])],
        "solution": row["code"].replace("\r\n", "\n"),
    }


if __name__ == "__main__":
    from datasets import load_dataset  # noqa: TID251  run by hand, where the data are fetched

    for row in load_dataset("google-research-datasets/mbpp", "full", split="train"):
        print(json.dumps(converted(row)))
