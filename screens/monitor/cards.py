"""The panel of the GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_tui.screens.widgets.gauge import gauge
from rich.text import Text

from .figures import size
from .glance import Card, Glance
from .panel import MonitorPanel
from .sight import Sight

LEAST_BAR = 6
"""Cells of the shortest gauge that still says something."""

BESIDE_BAR_OF_TWO, BESIDE_BAR_OF_ONE = 24, 29
"""Cells of a line that neither the card's name nor its gauge takes, where a card has two lines and where it has one."""


GIB = 2**30


def lines_of(glance: Glance) -> int:
    """Lines that the panel likes to have."""
    return 2 * len(glance.cards) + min(2, len(glance.memory))


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
            none = "Trained on the CPU." if cpu else "No GPU figures are recorded for this run."
            return self._peaks(sight, width) or self.sentence(none, width)
        peaks = self._peaks(sight, width)
        lines = self._cards(cards, width, max(1, height - len(peaks)))
        return [*lines, *peaks[: max(0, height - len(lines))]]

    def _cards(self, cards: Sequence[Card], width: int, height: int) -> list[Text]:
        if 2 * len(cards) <= height:
            names = self._names(cards, width - LEAST_BAR - BESIDE_BAR_OF_TWO)
            return [line for card, name in zip(cards, names, strict=True) for line in self._two(card, name, width)]
        names = self._names(cards, width - LEAST_BAR - BESIDE_BAR_OF_ONE)
        lines = [self._one(card, name, width) for card, name in zip(cards, names, strict=True)]
        if len(lines) > height > 1:
            lines[height - 1 :] = [self.palette.text((f" and {len(cards) - height + 1} more", "muted"))]
        return lines

    def _peaks(self, sight: Sight, width: int) -> list[Text]:
        """What torch took at the most, beside what it was said to take; as many of them a line as there is room."""
        text, lines = self.palette.text, list[Text]()
        for place, each in enumerate(sight.glance.memory):
            role = "warn" if each.measured > each.predicted else "text"
            figures = (f"{each.measured / GIB:.1f} of {each.predicted / GIB:.1f}", f"{role} bold")
            part = text((f" {each.name} ", "muted"), figures, ("" if place else " GiB predicted", "muted"))
            if lines and lines[-1].cell_len + part.cell_len + 1 <= width:
                lines[-1] = text(lines[-1], " ", part)
            else:
                lines.append(part)
        return lines

    def _names(self, cards: Sequence[Card], room: int) -> list[str]:
        """What each is called, as wide as the widest: number and name, or less where one of them needs more room."""
        numbers = [f"GPU {card.index}".rstrip() for card in cards]
        named = [f"{number} {brief_card(card.name)}".rstrip() for number, card in zip(numbers, cards, strict=True)]
        bare = [card.index for card in cards]
        shown = next((names for names in (named, numbers) if max(map(len, names)) <= room), bare)
        return [f"{name:<{max(map(len, shown))}}" for name in shown]

    def _two(self, card: Card, name: str, width: int) -> list[Text]:
        text, bar = self.palette.text, max(LEAST_BAR, width - len(name) - BESIDE_BAR_OF_TWO)
        right = "".join((f"  {card.temperature:.0f}°C" if card.temperature is not None else "",
                         f" {card.watts:.0f}W" if card.watts is not None else ""))  # fmt: skip
        return [
            text((f" {name} ", "text"), ("util ", "muted"), self._load(card, bar), (right, "muted")),
            text((f" {'':<{len(name)}} mem  ", "muted"), self._memory(card, bar)),
        ]  # fmt: skip

    def _load(self, card: Card, bar: int) -> Text:
        """How busy it is; of a slice (MIG) NVIDIA's library tells nothing."""
        if card.utilisation is None and not card.index:
            return self.palette.text((f"{'n/a (MIG)':<{bar + 5}}", "muted"))
        busy = gauge(self.palette, bar, (card.utilisation or 0) / 100)
        return self.palette.text(busy, (self._use(card), "text bold"))

    def _use(self, card: Card) -> str:
        if card.utilisation is not None:
            return f" {card.utilisation:>3.0f}%"
        return "    –" if card.index else "  n/a"

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

    def _one(self, card: Card, name: str, width: int) -> Text:
        return self.palette.text((f" {name}", "text"), (self._use(card), "text bold"), ("  mem ", "muted"),
                                 self._memory(card, max(LEAST_BAR, width - len(name) - BESIDE_BAR_OF_ONE)))  # fmt: skip


_VARIANT = re.compile(r"[- ](?:\d+ ?GB|SXM|PCIe|NVL|HBM|Generation|Laptop)", re.IGNORECASE)
"""Where the name of a card begins to say how it is built: `A100-SXM4-80GB`, `H100 80GB HBM3`."""


def brief_card(name: str) -> str:
    """A card's name as people say it: `H100` for `NVIDIA H100 80GB HBM3`; a slice keeps its profile."""
    whole, mark, profile = name.partition(" MIG ")
    for maker in ("NVIDIA ", "Tesla ", "GeForce "):
        whole = whole.removeprefix(maker)
    return f"{_VARIANT.split(whole, maxsplit=1)[0]}{mark}{profile}"
