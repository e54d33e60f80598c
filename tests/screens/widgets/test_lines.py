"""Lines repaint what changed; the last line keeps what matters; rules carry their readings."""

from collections.abc import Sequence

import pytest
from grpo_tui.screens.theme import PALETTES, ThemedApp
from grpo_tui.screens.widgets.gauge import gauge
from grpo_tui.screens.widgets.keys import Key, key_line
from grpo_tui.screens.widgets.lines import Lines, changed_cells, strip_of
from grpo_tui.screens.widgets.panel import head
from rich.text import Text
from textual.app import ComposeResult
from textual.geometry import Region

DARK = PALETTES["grpo-dark"]
BASE = DARK.style("text on_bg")


def strip(text: str) -> object:
    return strip_of(DARK.text(text), BASE)


@pytest.mark.parametrize(
    ("old", "new", "cells"),
    [
        ("elapsed 43:41", "elapsed 43:42", [(12, 13)]),
        ("same", "same", []),
        ("a中b", "a文b", [(1, 3)]),
        ("ab", "abc", [(0, 3)]),
        ("1 of 9", "2 of 8", [(0, 6)]),
        ("1" + " " * 30 + "9", "2" + " " * 30 + "8", [(0, 1), (31, 32)]),
    ],
)
def test_only_stretches_that_differ_count_as_changed(old: str, new: str, cells: list[tuple[int, int]]) -> None:
    assert changed_cells(strip(old), strip(new)) == cells  # type: ignore[arg-type]


def test_brackets_in_text_are_no_markup() -> None:
    assert strip_of(DARK.text(("[/INST] [bold]x[/]", "fail")), BASE).text == "[/INST] [bold]x[/]"


class Clock(Lines):
    """Counts, on its second line."""

    count = 0
    sent: tuple[Region, ...] = ()

    def paint(self, width: int, height: int) -> Sequence[Text]:
        return [self.palette.text("steady"), self.palette.text(f"count {self.count}")]

    def refresh(self, *regions: Region, **more: bool) -> "Clock":  # type: ignore[override]  # counts what is sent
        self.sent = regions
        super().refresh(*regions, **more)
        return self


class ClockApp(ThemedApp[None]):
    def compose(self) -> ComposeResult:
        yield Clock()


async def test_a_widget_sends_the_cells_that_changed_and_nothing_when_nothing_did() -> None:
    app = ClockApp(theme="dark", environ={})
    async with app.run_test(size=(20, 4)) as pilot:
        clock = app.query_one(Clock)
        await pilot.pause()
        clock.count, clock.sent = 1, ()
        clock.repaint()
        assert clock.sent == (Region(6, 1, 1, 1),)
        clock.sent = ()
        clock.repaint()
        assert clock.sent == ()


class Lamp(Lines, can_focus=True):
    """Says whether it has the focus."""

    def paint(self, width: int, height: int) -> Sequence[Text]:
        return [self.palette.text("lit" if self.has_focus else "dark")]


class LampApp(ThemedApp[None]):
    def compose(self) -> ComposeResult:
        yield Lamp(id="first")
        yield Lamp(id="second")


async def test_the_one_widget_that_has_the_focus_is_lit() -> None:
    app = LampApp(theme="dark", environ={})
    async with app.run_test(size=(20, 4)) as pilot:
        for lit, dark in [("#first", "#second"), ("#second", "#first"), ("#first", "#second")]:
            app.query_one(lit, Lamp).focus()
            await pilot.pause()
            assert app.query_one(lit, Lamp).render_line(0).text.strip() == "lit"
            assert app.query_one(dark, Lamp).render_line(0).text.strip() == "dark"


KEYS = [Key("1-8", "panel"), Key("enter", "zoom"), Key("p", "pause"), Key("S", "stop"), Key("?", "help")]


def test_keys_drop_from_the_right_and_help_stays() -> None:
    line = key_line(DARK, 34, KEYS, DARK.text(("● 2 s ago ", "ok"))).plain
    assert len(line) == 34
    assert "1-8 panel" in line
    assert "? help" in line
    assert "stop" not in line
    assert line.endswith("● 2 s ago ")


@pytest.mark.parametrize("width", [1, 5, 12, 40, 120])
def test_the_last_line_is_never_wider_than_the_screen(width: int) -> None:
    assert key_line(DARK, width, KEYS, DARK.text("host ● 2 s ago")).cell_len == width


def test_a_rule_shows_number_title_and_reading_and_is_lit_by_focus() -> None:
    rule = head(DARK, 40, "GPUs", number="5", reading=DARK.text(("2 × H100", "muted")))
    assert rule.plain.startswith("─ 5 GPUs ─")
    assert rule.plain.endswith(" 2 × H100 ─")
    assert rule.cell_len == 40
    lit = head(DARK, 40, "GPUs", number="5", focused=True)
    assert lit.plain.startswith("▌ 5 GPUs ─")


@pytest.mark.parametrize("width", [4, 10, 16, 30])
def test_a_reading_that_does_not_fit_gives_way(width: int) -> None:
    assert head(DARK, width, "Completions", number="7", reading=DARK.text("step 312 · 16 of 128")).cell_len <= width


@pytest.mark.parametrize(
    ("fraction", "bar"), [(0, "────"), (0.5, "━━──"), (0.625, "━━╸─"), (1, "━━━━"), (7, "━━━━"), (-1, "────")]
)
def test_a_gauge_fills_in_half_cells(fraction: float, bar: str) -> None:
    assert gauge(DARK, 4, fraction).plain == bar
