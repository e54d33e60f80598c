"""`grpo-tui recipes`: the ready-made tasks, or those in a folder."""

import argparse
import json
from pathlib import Path
from typing import Any

from grpo_tui import recipe
from grpo_tui.commands.printing import refuse
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "recipes", help="list the ready-made tasks",
        description="List the ready-made tasks. Begin one with: grpo-tui --recipe NAME",
    )  # fmt: skip
    parser.add_argument("folder", nargs="?", type=Path, help="a folder of recipes (default: the shipped ones)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print every recipe. 2 if one of them is not sound, or the folder is none."""
    if args.folder is not None and not args.folder.is_dir():
        return refuse(args.json, Problem(str(args.folder), "There is no such folder.", "Without one, ours are listed."))
    found = [recipe.read(folder) for folder in recipe.folders(args.folder)]
    recipes = [item for item in found if isinstance(item, recipe.Recipe)]
    problems = [item for item in found if not isinstance(item, recipe.Recipe)]
    if args.json:
        listed: dict[str, Any] = {"recipes": [item.as_json() for item in recipes]}
        print(json.dumps(listed | ({"problems": [item.as_json() for item in problems]} if problems else {})))
    else:
        for item in recipes:
            print(f"{item.name}  {one_line(item.title, 60)}\n    {one_line(item.summary, 300)}\n    {item.folder}")
        for problem in problems:
            print(inert(str(problem)))
        if not found:
            print("No recipes here.")
    return 2 if problems else 0
