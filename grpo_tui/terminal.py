"""The terminal around a screen: whether there is one, and how it is left, whatever happens."""

import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from grpo_tui import __version__

NO_TERMINAL = (
    "grpo-tui: no terminal here, so no screen. Without one, use `grpo-tui init`, `grpo-tui check`, "
    "`grpo-tui run --yes`, `grpo-tui watch --json` or `grpo-tui demo --headless`."
)


class Screenful(Protocol):
    """What is run here: a Textual app.

    It keeps the traceback of a fault of ours in `crash`, and in `unsaved` why answers are not on the disk.
    """

    crash: str
    unsaved: str

    def run(self, *, mouse: bool) -> str | None: ...

    @property
    def return_code(self) -> int | None: ...


def has_terminal(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a screen can be drawn: all three streams are terminals (Textual draws on standard error)."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return environ.get("TERM", "") not in ("", "dumb") and all(s is not None and s.isatty() for s in streams)


def report_crash(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Write a crash report and say where it is: in the user's state folder, or where files are temporary."""
    home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (Path(home) / "grpo-tui", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"grpo-tui {__version__}, Python {sys.version}\n\n{text}", encoding="utf-8")
        except OSError:
            continue
        return str(folder / name)
    return "no place where it could be written"


def run_screen(app: Screenful, *, mouse: bool = True) -> int:
    """Run `app`, print its last words when the screen is gone, and give the exit status.

    A fault of ours becomes a report file and one line; Textual restores the terminal before that.
    """
    words = app.run(mouse=mouse)
    if app.crash:
        where = report_crash(app.crash)
        kept = "" if app.unsaved else " your answers are kept."
        print(f"grpo-tui: a fault of ours;{kept} The report is in {where}", file=sys.stderr)
        return 1
    if app.unsaved:
        print(f"grpo-tui: the last answers were not saved. {app.unsaved}", file=sys.stderr)
        return 2
    columns = max(20, shutil.get_terminal_size().columns)
    for line in (words or "").splitlines():
        # An indented line is a command, to be copied whole.
        whole = line.startswith("  ") or len(line) <= columns
        print(line if whole else textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False))
    return app.return_code or 0
