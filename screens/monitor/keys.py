"""The monitor's keys: what each does, its verb in the last line, and its sentence in the help."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("1", "panel(1)", "panel", key_display="1-8",
            tooltip="Go to a panel; once more: its next metric (2, 3)."),
    *(Binding(str(number), f"panel({number})", "panel", show=False) for number in range(2, 9)),
    Binding("enter", "zoom", "zoom", key_display="enter",
            tooltip="Enlarge the panel, or make it small again; on a completion: read it."),
    Binding("v", "values", "values", tooltip="Every logged figure exactly as logged, with its unit and meaning."),
    Binding("o", "project", "project", tooltip="Back to the project's steps. A training that runs goes on."),
    Binding("left", "cursor(-1)", "cursor", key_display="←/→",
            tooltip="Move the cursor over the steps; the panels' rules show the exact figures there."),
    Binding("right", "cursor(1)", "cursor", show=False),
    Binding("comma", "row(-1)", "row before", key_display=",", show=False, tooltip="The cursor one row back."),
    Binding("full_stop", "row(1)", "row after", key_display=".", show=False, tooltip="The cursor one row on."),
    Binding("p", "pause", "pause", tooltip="Keep what is on the screen; training goes on."),
    Binding("S", "stop", "stop", tooltip="Ask training to end after the current step, with a checkpoint."),
    Binding("w", "save", "save", tooltip="Ask training for a checkpoint after the current step."),
    Binding("q", "leave", "leave", tooltip="Leave the monitor. A training that runs goes on."),
    Binding("s", "smooth", "smooth", tooltip="Average 1, 5 or 20 rows into each point."),
    Binding("y", "log", "log scale", show=False, tooltip="Logarithmic scale, and back."),
    Binding("r", "runs", "runs", tooltip="All runs of this project."),
    Binding("l", "show_log", "log", show=False, tooltip="The log, enlarged."),
    Binding("a", "after", "after training", tooltip="Where the trained model is, and the lines that load it."),
    Binding("colon", "app.command_palette", "commands", key_display=":", show=False),
    Binding("escape", "back", "back", show=False, tooltip="Without cursor; from the enlarged panel to all."),
    Binding("question_mark", "help", "help", key_display="?"),
]  # fmt: skip
"""The last line drops the last first. One without a sentence is told with another, or moves as everywhere."""
