"""The panel of the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_tui.screens.widgets.gauge import gauge
from rich.text import Text

from .figures import size
from .glance import Card
from .panel import MonitorPanel
from .sight import Sight


class CardsPanel(MonitorPanel):
    """The GPUs, two lines each."""

    NUMBER, NAME = 5, "GPUs"

    def reading(self, sight: Sight) -> Text | None:
        """How many of which."""
        cards = sight.glance.cards
        if not cards:
            return None
        name, *others = sorted({card.name.removeprefix("NVIDIA ") for card in cards})
        return self.palette.text((f"{len(cards)} × {name}" if name and not others else f"{len(cards)}", "muted"))

    def body(self, sight: Sight, width: int, height: int) -> Sequence[Text]:
        """Use and memory of each; with little room, one line a card."""
        cards = sight.glance.cards
        if not cards:
            cpu = sight.progress.settings.get("use_cpu") is True
            return self.sentence("Trained on the CPU." if cpu else "No GPU figures are recorded for this run.", width)
        if 2 * len(cards) <= height:
            return [line for card in cards for line in self._two(card, width)]
        lines = [self._one(card, width) for card in cards]
        if len(lines) > height > 1:
            lines[height - 1 :] = [self.palette.text((f" and {len(cards) - height + 1} more", "muted"))]
        return lines

    def _two(self, card: Card, width: int) -> list[Text]:
        text, bar = self.palette.text, max(6, width - 31)
        use = card.utilisation
        right = "".join((f"  {card.temperature:.0f}°C" if card.temperature is not None else "",
                         f" {card.watts:.0f}W" if card.watts is not None else ""))  # fmt: skip
        return [
            text((f" {card.index:>2} ", "muted"), ("util ", "muted"), gauge(self.palette, bar, (use or 0) / 100),
                 (f" {use:>3.0f}%" if use is not None else "    –", "text bold"), (right, "muted")),
            text(("    mem  ", "muted"), self._memory(card, bar)),
        ]  # fmt: skip

    def _memory(self, card: Card, bar: int) -> Text:
        text = self.palette.text
        if card.used is None or not card.total:
            return text(("not told by the driver", "muted"))
        share = card.used / card.total
        role = "warn" if share > 0.95 else "accent"
        return text(
            gauge(self.palette, bar, share, role),
            (f" {100 * share:>3.0f}%", f"{'warn' if role == 'warn' else 'text'} bold"),
            (f"  {size(card.used)}/{size(card.total)} GB", "warn" if role == "warn" else "muted"),
        )

    def _one(self, card: Card, width: int) -> Text:
        text = self.palette.text
        use = f"{card.utilisation:>3.0f}%" if card.utilisation is not None else "   –"
        return text((f" {card.index:>2} ", "muted"), (use, "text bold"), ("  mem ", "muted"),
                    self._memory(card, max(6, width - 32)))  # fmt: skip
