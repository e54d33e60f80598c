"""The panel that says what is so with the run, what is not as it should be first."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_tui.screens.line import fit, wrap
from rich.text import Text

from .facts import facts
from .panel import MonitorPanel
from .sight import Sight

URGENT = ("fail", "do", "warn")
"""States in the order in which they come before the others."""

ROLES = {"do": "accent"}


class HealthPanel(MonitorPanel):
    """Facts about the run, one a line."""

    NUMBER, NAME = 6, "Health"

    def mark(self, sight: Sight) -> str:
        """The worst there is."""
        states = {fact.state for fact in facts(sight.glance)}
        return next((state for state in ("fail", "warn") if state in states), "")

    def reading(self, sight: Sight) -> Text | None:
        """How many lines are not as they should be."""
        states = [fact.state for fact in facts(sight.glance)]
        if failed := states.count("fail"):
            return self.palette.text((f"✗ {failed} {'failure' if failed == 1 else 'failures'}", "fail"))
        if warned := states.count("warn"):
            return self.palette.text((f"! {warned} {'warning' if warned == 1 else 'warnings'}", "warn"))
        return None

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """Sign, name, words; what is not as it should be comes first, and words wrap while there is room."""
        found = facts(sight.glance)
        ordered = [fact for state in URGENT for fact in found if fact.state == state]
        urgent = len(ordered)
        ordered += [fact for fact in found if fact.state not in URGENT]
        lines: list[Text] = []
        for place, fact in enumerate(ordered):
            role = ROLES.get(fact.state, fact.state or "muted")
            calm = fact.state in ("ok", "")
            lead = self.palette.text(
                (f" {fact.sign} ", f"{role} bold"), (f"{fact.name:<9}", "text" if calm else f"{role} bold"), " "
            )
            rows = wrap(self.palette, fact.words, width - 1, "muted" if calm else "text", lead)
            # Beside a failure the figures that speak neither way give way.
            kept = urgent if sight.glance.failure and place < urgent else len(ordered)
            room = max(1, height - len(lines) - (kept - place - 1))
            if len(rows) > room:
                rest = " ".join(row.plain.strip() for row in rows[room:])
                rows = rows[:room]
                rows[-1] = fit(rows[-1].append(f" {rest}", rows[-1].spans[-1].style), width)
            lines += rows
        return lines
