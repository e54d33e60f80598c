"""An app that leaves the terminal as it found it: on signals, on faults, on Ctrl-Z."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import traceback
from collections.abc import Mapping
from typing import ClassVar

from rich.console import Console
from textual.app import ReturnType
from textual.binding import Binding, BindingType

from .theme import ThemedApp


class SafeApp(ThemedApp[ReturnType]):
    """What every app of this project is made of; `grpo_tui.terminal.run_screen` runs it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+z", "suspend_process", "to the shell", show=False),
    ]

    def __init__(self, *, theme: str | None = None, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(theme=theme, environ=environ)
        self.crash = ""
        """The traceback of a fault of ours, without the values of variables: they may be secret."""

        self.error_console = Console(file=io.StringIO())  # the report says it, not the screen

    def on_mount(self) -> None:
        """Listen to the signals that end a terminal program."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self.leave_by_signal, number)
            except (ValueError, RuntimeError):  # not in the main thread: a test drives the app
                break

    def leave_by_signal(self, number: int) -> None:
        """Restore the terminal and end as the signal wants it; a training goes on."""
        self.exit(result=self.last_words(), return_code=128 + number)

    def last_words(self) -> ReturnType | None:
        """What is printed when the screen is gone."""
        return None

    def _handle_exception(self, error: Exception) -> None:
        # Textual offers no public door to an error before it prints it with the values of all variables.
        self.crash = "".join(traceback.format_exception(error))
        super()._handle_exception(error)
