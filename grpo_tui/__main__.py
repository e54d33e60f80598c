"""The command line; without a command it opens the wizard."""

import argparse
import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from grpo_tui import __version__
from grpo_tui.regular import expanded
from grpo_tui.secret import blank_environment
from grpo_tui.terminal import NO_TERMINAL, has_terminal, report_crash, run_screen

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "the whole path on a tiny built-in task, without GPU or network",
        "init": "write a project from flags or a recipe, without questions",
        "plan": "settings and memory for a model and a card, here or elsewhere",
        "check": "check a project's configuration against the installed libraries",
        "doctor": "GPUs, versions, tokens, disk: what is fine and what to do",
        "dry-run": "try one step of a project's training on a small random model",
        "run": "start or resume the training of a project",
        "stop": "stop a run after its current step, with a checkpoint",
        "save": "let a run save a checkpoint now",
        "runs": "list the runs of a project",
        "watch": "watch a run, live or finished",
        "export": "write one stand-alone script, or YAML for trl grpo",
        "recipes": "list the ready-made tasks",
        "data": "look at a data set as the training will see it",
        "score": "try reward functions on completions, given or kept by a run",
        "probe": "attack reward functions before a policy does",
        "signal": "whether a training will learn, from sampled groups",
    }
)
"""Command to what it does. Its module (`module_name`) is imported only when it is the one asked for."""

OBJECTS_BEFORE_COLLECTION = 50_000
"""Python looks for garbage after every 700 new objects, and again through the older ones; importing Textual makes
100,000 that all stay. Seldom looked through, they cost a tenth less of the start."""

THEMES = ("dark", "light", "256", "16", "none")
"""What `--theme` takes."""

EPILOG = """\
Without a command the wizard opens in the current folder (or --project) and goes on where it was left.
Training goes on when the terminal closes. If the terminal misbehaves after a kill -9 or a lost connection, type: reset
"""


_FULL = (errno.ENOSPC, errno.EDQUOT)


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments of a script in its language, too."""

    def error(self, message: str) -> NoReturn:
        if "--json" in sys.argv[1:]:
            import json

            what, remedy = f"{message[:1].upper()}{message[1:]}.", f"See {self.prog} --help."
            print(json.dumps({"problems": [{"where": self.prog, "what": what, "remedy": remedy}]}))
        super().error(message)


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """The command line. Only the `chosen` command brings its options; the others are names with a summary."""
    top = Parser(
        prog="grpo-tui",
        description="From a data set to a GRPO run that fits the card, learns, and is watched.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"grpo-tui {__version__}")
    add_screen_options(top)
    top.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="project folder (default: here)")
    top.add_argument("--recipe", default="", metavar="NAME|DIR", help="begin with a ready-made task")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name == chosen:
            importlib.import_module(f"grpo_tui.commands.{module_name(name)}").add(subparsers)
            # It may stand before or after the command; a default here would wipe out what stood before.
            subparsers.choices[name].add_argument(
                "--project", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="project folder (default: here)"
            )
        else:
            subparsers.add_parser(name, help=summary, add_help=False)
    return top


def add_screen_options(target: argparse.ArgumentParser) -> None:
    """The options of everything that draws a screen."""
    target.add_argument(
        "--theme",
        default="",
        choices=("", *THEMES),
        metavar="NAME",
        help=f"{', '.join(THEMES)} (default: by the terminal)",
    )
    target.add_argument("--ascii", action="store_true", help="draw with plain characters only")
    target.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")


def module_name(command: str) -> str:
    """The module of `grpo_tui.commands` that holds a command."""
    return command.replace("-", "_")


def chosen_command(argv: Sequence[str]) -> str | None:
    """The command in `argv`, found before parsing so that only its module is imported."""
    with_value = {"--theme", "--project", "--recipe"}
    words = iter(argv)
    for word in words:
        if word in with_value:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def wizard(args: argparse.Namespace) -> int:
    """Open the wizard, or say in a plain line why not."""
    project = expanded(args.project)
    if not has_terminal():
        print(NO_TERMINAL)
        if project.is_dir():
            from grpo_tui.leaving import status_line

            print(status_line(project))
        return 2
    from grpo_tui.screens.app import GrpoApp

    environ = {**os.environ, "LC_ALL": "ASCII"} if args.ascii else os.environ
    app = GrpoApp(project, recipe=args.recipe, theme=args.theme or None, environ=environ)
    return run_screen(app, mouse=not args.no_mouse)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 2: a problem of the input or the place; 1: a fault of ours, with a report file."""
    if sys.platform == "win32":
        print("grpo-tui does not run on Windows itself: start it inside WSL, where everything works.", file=sys.stderr)
        return 2
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # in a locale without ✓ a sign is lost, not the answer
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    blank_environment()  # user code that is tried can read what stands in the environment of its parent
    chosen = chosen_command(words)
    try:
        args = parser(chosen).parse_args(words)
        if args.command is None:
            return wizard(args)
        return int(importlib.import_module(f"grpo_tui.commands.{module_name(args.command)}").execute(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `grpo-tui runs | head` ends like any other tool
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # noqa: BLE001  the outermost edge: whatever it is becomes one line and a report
        import traceback

        if isinstance(error, OSError) and error.errno in _FULL:
            print(f"grpo-tui: {error.filename or 'the output'} cannot be written: the disk is full.", file=sys.stderr)
            return 2

        print(f"grpo-tui: a fault of ours. The report is in {report_crash(traceback.format_exc())}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
