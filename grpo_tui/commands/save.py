"""`grpo-tui save`: let a run write a checkpoint now."""

import argparse
from typing import Any

from grpo_tui.commands import stop


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "save", help="let a run save a checkpoint now",
        description="Ask a running training to write a checkpoint after its current step, whatever its save_strategy, "
        "and to go on.",
        epilog="Exit status: 0 asked, 2 there is nothing to ask.",
    )  # fmt: skip
    stop.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Ask the run to save."""
    return stop.ask(args, "save", "It writes a checkpoint after its current step and goes on.")
