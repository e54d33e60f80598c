"""Where the panels are, for any size of the screen: two arrangements and the enlarged panel."""

from __future__ import annotations

from collections.abc import Mapping

from textual.geometry import Region

LEAST = (80, 23)
"""The smallest screen: 80 × 24 without the line that tmux keeps for itself."""

WIDE = (100, 34)
"""From here on all eight panels are in sight."""

TABS = (6, 5, 7, 8)
"""Panels that share one place on a small screen, in the order of their names in its rule."""

CHARTS = (1, 2, 3, 4)


def is_wide(width: int, height: int) -> bool:
    """All eight panels fit."""
    return width >= WIDE[0] and height >= WIDE[1]


def arrange(width: int, height: int, *, tab: int = 6, pair: tuple[int, int] = (3, 4), zoom: int = 0,
            gpu_lines: int = 0) -> Mapping[str, Region]:  # fmt: skip
    """Name to place: `status`, `strip` and the panels in sight by number; nothing when the screen is too small.

    `tab` is the panel in the shared place of a small screen, `pair` its two small charts; `zoom` the enlarged panel
    or 0; `gpu_lines` how many lines the panel of the GPUs likes to have.
    """
    if width < LEAST[0] or height < LEAST[1]:
        return {}
    if zoom:
        return {"status": Region(0, 0, width, 1), str(zoom): Region(0, 1, width, height - 2)}
    return _wide(width, height, gpu_lines) if is_wide(width, height) else _small(width, height, tab, pair)


def _wide(width: int, height: int, gpu_lines: int) -> dict[str, Region]:
    rows = height - 6  # status, strip and keys, and a blank row above and below the strip
    small, bottom = max(7, round(rows * 8 / 30)), max(6, round(rows * 7 / 30))
    hero = rows - 2 - small - bottom
    side = min(48, max(36, round(width * 0.35)))
    gpus = min(max(2, 1 + gpu_lines), hero - 6)
    third = (width - 4) // 3
    left = third + (width - 4) % 3
    table = round((width - 2) * 0.63)
    return {
        "status": Region(0, 0, width, 1),
        "strip": Region(0, 2, width, 2),
        "1": Region(0, 5, width - side - 2, hero),
        "5": Region(width - side, 5, side, gpus),
        "6": Region(width - side, 6 + gpus, side, hero - gpus - 1),
        "2": Region(0, 6 + hero, left, small),
        "3": Region(left + 2, 6 + hero, third, small),
        "4": Region(left + third + 4, 6 + hero, third, small),
        "7": Region(0, 7 + hero + small, table, bottom),
        "8": Region(table + 2, 7 + hero + small, width - table - 2, bottom),
    }


def _small(width: int, height: int, tab: int, pair: tuple[int, int]) -> dict[str, Region]:
    extra = height - 24
    small, shared = 6 + max(0, extra // 4), 4 + max(0, extra // 2)
    hero = height - 4 - small - shared
    half = (width - 2) // 2
    return {
        "status": Region(0, 0, width, 1),
        "strip": Region(0, 1, width, 2),
        "1": Region(0, 3, width, hero),
        str(pair[0]): Region(0, 3 + hero, half, small),
        str(pair[1]): Region(half + 2, 3 + hero, width - half - 2, small),
        str(tab): Region(0, 3 + hero + small, width, shared),
    }
