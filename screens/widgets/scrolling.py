"""The keys that move through anything longer than its place."""

from __future__ import annotations

from textual.binding import Binding

SCROLLING = (
    Binding("up,k", "scroll(-1)", "one up", show=False),
    Binding("down,j", "scroll(1)", "one down", show=False),
    Binding("pageup,b", "scroll(-10)", "ten up", show=False),
    Binding("pagedown,space", "scroll(10)", "ten down", show=False),
    Binding("home,g", "scroll(-100000)", "to the first", show=False),
    Binding("end,G", "scroll(100000)", "to the last", show=False),
)
"""A widget that takes them has `action_scroll(by)`, in rows."""
