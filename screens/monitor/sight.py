"""What the panels paint: a glance, and how the viewer wants it shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_tui.screens.widgets.lines import Lines

from grpo_tui.progress.fold import Progress

from .glance import Glance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What the panels paint: one glance, and how the viewer wants it shown."""

    glance: Glance
    cursor: int | None = None
    """The step under the cursor."""

    smoothing: int = 1
    log: bool = False
    zoom: int = 0
    """The enlarged panel."""

    tab: int = 0
    """The panel in the shared place of a small screen; 0: all are in sight."""

    @property
    def progress(self) -> Progress:
        """What the events tell."""
        return self.glance.progress


class Seen(Lines):
    """Lines painted from a sight."""

    sight: Sight | None = None
    """What to paint; None before the first look."""

    def show(self, sight: Sight) -> None:
        """Paint this; what is out of sight is painted when it comes back."""
        self.sight = sight
        if self.display:
            self.repaint()


def moved(steps: NDArray[np.int64], cursor: int | None, by: float) -> int:
    """The logged step, of `steps` in rising order, that a cursor moved by so many steps is on: at least the next one.

    A cursor that was nowhere begins at the newest step.
    """
    last = len(steps) - 1
    if cursor is None:
        return int(steps[last])
    at = int(steps.searchsorted(cursor))
    near = int(steps.searchsorted(steps[min(at, last)] + by))
    near = max(near, at + 1) if by > 0 else min(near, at - 1)
    return int(steps[max(0, min(last, near))])
