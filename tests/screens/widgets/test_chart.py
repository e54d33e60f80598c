"""The chart: what is drawn where, what stays, and what a gap looks like."""

from itertools import pairwise

import numpy as np
import pytest
from grpo_tui.screens.theme import PALETTES
from grpo_tui.screens.widgets.chart import BRAILLE, Chart, Curve, Picture
from textual.strip import Strip

DARK = PALETTES["grpo-dark"]
WIDTH, HEIGHT = 60, 10


def curve(values: object, **more: object) -> Curve:
    y = np.asarray(values, float)
    return Curve(np.arange(1, len(y) + 1), y, **more)  # type: ignore[arg-type]


def drawn(picture: Picture, palette: str = "grpo-dark") -> list[str]:
    return [strip.text for strip in Chart().draw(picture, PALETTES[palette], WIDTH, HEIGHT)]


def dotted(line: str) -> list[int]:
    return [place for place, sign in enumerate(line) if BRAILLE < ord(sign) < BRAILLE + 256]


def test_every_row_is_as_wide_as_the_chart() -> None:
    rows = Chart().draw(Picture((curve(np.linspace(0, 1, 50)),), end=100), DARK, WIDTH, HEIGHT)
    assert {row.cell_length for row in rows} == {WIDTH}
    assert len(rows) == HEIGHT


def test_a_rising_line_rises() -> None:
    rows = drawn(Picture((curve(np.linspace(0, 1, 100)),), end=100))
    lefts = [dotted(row)[0] for row in rows[:-1] if dotted(row)]
    assert lefts == sorted(lefts, reverse=True)


def test_the_line_ends_where_training_is() -> None:
    rows = drawn(Picture((curve(np.full(50, 0.5)),), end=100))
    (row,) = [row for row in rows[:-1] if dotted(row)]
    assert dotted(row)[-1] == pytest.approx(6 + (WIDTH - 6) / 2, abs=2)


def test_a_name_stands_at_the_end_of_its_line() -> None:
    rows = drawn(Picture((curve(np.full(50, 0.5), label="0.500"),), end=100))
    (row,) = [row for row in rows if "0.500" in row]
    assert row.index("0.500") > dotted(row)[-1]


def test_a_finished_run_keeps_room_for_the_name() -> None:
    assert any("0.842" in row for row in drawn(Picture((curve(np.full(100, 0.842), label="0.842"),), end=100)))


def test_names_of_lines_that_meet_do_not_cover_each_other() -> None:
    rows = drawn(Picture((curve([0.5] * 50, label="format"), curve([0.5] * 50, label="correct")), end=100))
    assert sum("format" in row for row in rows) == 1
    assert sum("correct" in row for row in rows) == 1


def test_one_point_is_seen() -> None:
    assert any(dotted(row) for row in drawn(Picture((curve([0.3]),), end=20)))


def test_without_points_a_sentence_stands_in_an_empty_grid() -> None:
    rows = drawn(Picture(empty="No steps yet."))
    assert sum("No steps yet." in row for row in rows) == 1


def test_only_broken_points_are_like_none() -> None:
    assert any("Nothing to draw." in row for row in drawn(Picture((curve([np.nan] * 9),), empty="Nothing to draw.")))


def test_a_gap_of_broken_points_is_left_open() -> None:
    y = np.full(100, 0.5)
    y[40:60] = np.nan
    (row,) = [row for row in drawn(Picture((curve(y),), end=100)) if dotted(row)]
    places = dotted(row)
    assert max(b - a for a, b in pairwise(places)) > 8


def test_on_a_logarithmic_scale_what_is_not_positive_is_a_gap() -> None:
    rows = drawn(Picture((curve([0.0, -1.0, 0.001, 0.1, 10.0]),), end=5, log=True))
    assert any(row.lstrip().startswith(("10", "0.1", "0.01", "1")) for row in rows)


def test_a_row_that_stays_is_the_very_same_strip() -> None:
    chart, y = Chart(), np.linspace(0.2, 0.3, 200)
    before = chart.draw(Picture((curve(y[:100]),), end=400, include=(0.0, 1.0)), DARK, WIDTH, HEIGHT)
    after = chart.draw(Picture((curve(y[:103]),), end=400, include=(0.0, 1.0)), DARK, WIDTH, HEIGHT)
    kept = sum(one is other for one, other in zip(before, after, strict=True))
    assert HEIGHT - 3 <= kept < HEIGHT


def test_another_theme_is_another_picture() -> None:
    chart, picture = Chart(), Picture((curve(np.linspace(0, 1, 50)),), end=100)
    dark = chart.draw(picture, DARK, WIDTH, HEIGHT)
    light = chart.draw(picture, PALETTES["grpo-light"], WIDTH, HEIGHT)
    assert [strip.text for strip in dark] == [strip.text for strip in light]
    assert dark != light


def test_the_band_is_filled_and_where_tints_may_not_be_used_its_edges_are_dotted() -> None:
    picture = Picture((curve(np.full(50, 0.5), spread=np.full(50, 0.3)),), end=50)
    assert band_cells(Chart().draw(picture, DARK, WIDTH, HEIGHT)) > 50
    assert sum(bool(dotted(row)) for row in drawn(picture, "grpo-16")) == 3


def band_cells(strips: list[Strip]) -> int:
    band = DARK.style("on_band").bgcolor
    return sum(
        len(segment.text) for strip in strips for segment in strip if segment.style and segment.style.bgcolor == band
    )


def test_the_cursor_tints_one_column() -> None:
    picture = Picture((curve(np.linspace(0, 1, 50)),), end=100, cursor=25)
    strips = Chart().draw(picture, DARK, WIDTH, HEIGHT)
    select = DARK.style("on_select").bgcolor
    tinted = [sum(len(s.text) for s in strip if s.style and s.style.bgcolor == select) for strip in strips]
    assert tinted == [1] * (HEIGHT - 1) + [0]


@pytest.mark.parametrize("size", [(0, 0), (3, 1), (12, 2), (20, 3), (200, 60)])
def test_no_size_is_too_odd(size: tuple[int, int]) -> None:
    Chart().draw(Picture((curve(np.linspace(0, 1, 50), label="0.5", whisker=True),), end=50, limit=0.4), DARK, *size)
