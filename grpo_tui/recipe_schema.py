"""What a `recipe.toml` may hold, and a table of it read accordingly.

Schema 1 of `recipe.toml`. Paths are relative to the folder and stay inside it; keys without default must be there; an
unknown key is an error.

    schema = 1
    title = "One line"
    summary = "What it does, one sentence"
    page = "README.md"                # default; Markdown; the file may be missing

    [task]                            # answers of the fit check, see `grpo_tui.draft.TaskAnswer`
    checkable = "yes"                 # yes, partly, no, or empty (default)
    material = "prompts"              # prompts, demonstrations, pairs, thumbs, or empty (default)
    goal = "skill"                    # skill, format, knowledge, taste, or empty (default)

    [hardware]
    cpu = false                       # default; true: propose to train on the CPU

    [model]                           # the table may be missing: the user chooses a model
    folder = "model"                  # either a folder of the recipe
    name = "owner/model"              # or a hub id
    method = ""                       # full, lora, qlora, or empty (default): the tuning chooses

    [data]
    file = "problems.jsonl"           # either a file, its name in the project; copied from the recipe, or
    script = "rows.py"                # made by this script, which prints one JSON object a line
    source = "owner/data"             # or a hub id; nothing is copied
    config = ""                       # default; which configuration of the hub's data set
    split = ""                        # default
    prompt = "question"               # column of the prompt
    answer = ""                       # column of the right answer (default: none)
    extract = "as_is"                 # rule that takes the answer out of its column (default)
    extract_argument = ""             # what the rule needs (default)

    [[systems]]                       # system prompts on offer, the first is proposed; none: no system prompt
    name = "Short"
    text = "Reason, then answer."     # empty: no system prompt

    [rewards]
    file = "rewards.py"               # default
    [[rewards.items]]                 # in this order
    name = "correct"                  # a function of the file
    weight = 1.0                      # default

    [[samples]]                       # completions to try the rewards on
    text = "<answer>7</answer>"
    row = 0                           # default; row of the data whose answer it is scored against, from 0
    expect = "high"                   # the sample must earn much (high) or little (low)
    note = ""                         # why (default)

    [grpo.learning_rate]              # any key of GRPOConfig, with its reason
    value = 1e-4
    why = "Measured on this model."
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from grpo_tui.inert import one_line

SCHEMA = 1


class BadKeyError(Exception):
    """A key of recipe.toml is not as the schema says; `grpo_tui.recipe.read` turns it into a Problem."""

    def __init__(self, key: str, what: str, remedy: str) -> None:
        super().__init__(key)
        self.key, self.what, self.remedy = key, what, remedy


class _Key(NamedTuple):
    """What may stand at a key. Without a default the key must be there."""

    kind: type
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()


_TEXT = _Key(str, "")
_NEEDED_TEXT = _Key(str, required=True)
TABLES: Mapping[str, Mapping[str, _Key]] = MappingProxyType(
    {
        "": {
            "schema": _Key(int, required=True),
            "title": _NEEDED_TEXT,
            "summary": _NEEDED_TEXT,
            "page": _Key(str, "README.md"),
            "task": _Key(dict, {}),
            "hardware": _Key(dict, {}),
            "model": _Key(dict, {}),
            "data": _Key(dict, required=True),
            "systems": _Key(list, []),
            "rewards": _Key(dict, required=True),
            "samples": _Key(list, []),
            "grpo": _Key(dict, {}),
        },
        "task": {
            "checkable": _Key(str, "", choices=("yes", "partly", "no")),
            "material": _Key(str, "", choices=("prompts", "demonstrations", "pairs", "thumbs")),
            "goal": _Key(str, "", choices=("skill", "format", "knowledge", "taste")),
        },
        "hardware": {"cpu": _Key(bool, False)},
        "model": {
            "folder": _TEXT,
            "name": _TEXT,
            "method": _Key(str, "", choices=("full", "lora", "qlora")),
        },
        "data": {
            "file": _TEXT,
            "script": _TEXT,
            "source": _TEXT,
            "config": _TEXT,
            "split": _TEXT,
            "prompt": _NEEDED_TEXT,
            "answer": _TEXT,
            "extract": _Key(str, "as_is"),
            "extract_argument": _TEXT,
        },
        "systems": {"name": _NEEDED_TEXT, "text": _Key(str, required=True)},
        "rewards": {"file": _Key(str, "rewards.py"), "items": _Key(list, required=True)},
        "rewards.items": {"name": _NEEDED_TEXT, "weight": _Key(float, 1.0)},
        "samples": {
            "text": _Key(str, required=True),
            "row": _Key(int, 0),
            "expect": _Key(str, required=True, choices=("high", "low")),
            "note": _TEXT,
        },
        "grpo": {"value": _Key(object, required=True), "why": _NEEDED_TEXT},
    }
)
"""The schema: table to its keys. Lists of tables and the settings of `grpo` name the keys of one item."""

_KIND_NAMES: Mapping[type, str] = MappingProxyType(
    {
        str: "a text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        dict: "a table",
        list: "a list of tables",
    }
)


def read_table(where: str, given: object, keys: Mapping[str, _Key]) -> dict[str, Any]:
    """`given` with defaults filled in; `where` is its name in the file."""
    if not isinstance(given, dict):
        raise BadKeyError(where, "It must be a table.", f"Write it as [{where}].")
    dotted = f"{where}." if where else ""
    for name in given:
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(keys)}."
            raise BadKeyError(one_line(dotted + name, 80), "This key is unknown.", remedy)
    return {name: _value(dotted + name, given, name, key) for name, key in keys.items()}


def _value(where: str, table: dict[str, Any], name: str, key: _Key) -> Any:
    if name not in table:
        if key.required:
            raise BadKeyError(where, "This key is missing.", f"Give it {_KIND_NAMES.get(key.kind, 'a value')}.")
        return key.default
    value = table[name]
    if key.kind is float and type(value) is int:
        value = float(value)
    if key.kind is not object and type(value) is not key.kind:
        raise BadKeyError(where, f"It must be {_KIND_NAMES[key.kind]}.", f"Now it is {one_line(repr(value), 60)}.")
    if key.required and key.kind is str and name != "text" and not value.strip():
        raise BadKeyError(where, "It is empty.", "Give it a text.")
    if value and key.choices and value not in key.choices:
        raise BadKeyError(
            where, f"{one_line(repr(value), 60)} is none of its values.", f"Use {', '.join(key.choices)}."
        )
    return value


def read_items(where: str, given: list[Any], least: int = 0) -> list[dict[str, Any]]:
    """The tables of a list of at least `least`; `where` is its name in the file and in TABLES."""
    if len(given) < least:
        raise BadKeyError(where, "The list is empty.", f"Add an item [[{where}]].")
    return [read_table(f"{where}[{number}]", item, TABLES[where]) for number, item in enumerate(given)]


def one_of(where: str, table: dict[str, Any], names: tuple[str, str], *, needed: bool) -> None:
    """Raise BadKeyError where both keys of `table` are given, or neither of them and one is needed."""
    given = [name for name in names if table[name]]
    if len(given) > 1 or (needed and not given):
        what = "Both are given." if given else "Neither is given."
        raise BadKeyError(f"{where}.{names[0]}, {where}.{names[1]}", what, "Give one of the two.")
