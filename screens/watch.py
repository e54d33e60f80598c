"""The app that is nothing but the monitor: `grpo-tui watch`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .monitor.screen import MonitorScreen
from .theme import THEME_CSS, ThemedApp


class WatchApp(ThemedApp[str]):
    """Watches one run. What it returns is said after the terminal is restored."""

    TITLE = "grpo-tui watch"
    CSS_PATH: ClassVar = [
        THEME_CSS,
        Path(__file__).with_name("app.tcss"),
        Path(__file__).parent / "monitor" / "monitor.tcss",  # with the others: read later, all would be parsed again
    ]

    def __init__(
        self, run: Path, theme: str | None = None, read_only: bool = False, *, environ: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(theme=theme, environ=environ)
        self.run_folder = run
        self.read_only = read_only

    def on_mount(self) -> None:
        """Show the run."""
        self.push_screen(MonitorScreen(self.run_folder, read_only=self.read_only))
