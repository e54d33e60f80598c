"""Figures are short in strips, exact where quoted; the panels find a place on every screen."""

import itertools

import numpy as np
import pytest
from grpo_tui.screens.monitor.cards import brief_card
from grpo_tui.screens.monitor.figures import ago, brief_name, change, duration, exact, percent, short, strip
from grpo_tui.screens.monitor.layout import LEAST, arrange
from grpo_tui.screens.monitor.sight import moved

from grpo_tui.progress.fold import Progress
from grpo_tui.progress.series import Series


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.842, "0.842"), (0.0123, "0.0123"), (487.2, "487"), (1234.5, "1,234"), (1e-6, "1e-6"), (0.0, "0"),
     (-0.25, "-0.250"), (1.3444, "1.34"), (12.34, "12.3"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
     (3.1e9, "3.10e9"),
     (0.99999, "1.000")],
)  # fmt: skip
def test_three_digits_are_enough_for_the_eye(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize("value", [0.1 + 0.2, 1e-9, 0.7906250357627869, 3.0])
def test_a_quoted_figure_is_the_very_float(value: float) -> None:
    assert float(exact(value)) == value


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (0.031, "3.1%"), (0.79, "79%"), (1.0, "100%"), (float("nan"), "NaN")]
)
def test_shares_are_per_cent(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "clock"), [(0, "0:00"), (2621, "43:41"), (7421.9, "2:03:41"), (266_640, "3 d 02:04"), (-5, "0:00")]
)
def test_elapsed_time_is_a_clock(seconds: float, clock: str) -> None:
    assert duration(seconds) == clock


@pytest.mark.parametrize(
    ("seconds", "words"), [(2, "2 s ago"), (119, "119 s ago"), (180, "3 min ago"), (90_000, "25 h ago")]
)
def test_age_has_one_unit(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_an_arrow_compares_with_fifty_steps_before() -> None:
    series = Series.of((step, float(step)) for step in range(1, 201))
    assert change(series) == pytest.approx(50)
    assert change(Series.of([(1, 1.0)])) is None
    assert change(Series.of((step, float("nan")) for step in range(100))) is None


def test_the_strip_keeps_groups_without_signal_and_the_clipped_share_when_room_is_short() -> None:
    keys = (
        "reward",
        "reward_std",
        "entropy",
        "kl",
        "grad_norm",
        "completions/mean_length",
        "completions/clipped_ratio",
    )
    progress = Progress(series={key: Series.of([(1, 0.5)]) for key in keys})
    shown = [figure.entry.key for figure in strip(progress, Series.of([(1, 0.25)]), 3)]
    assert shown == ["reward", "completions/clipped_ratio", "flat"]


def test_what_was_not_logged_takes_no_place() -> None:
    assert strip(Progress(), Series(), 8) == []


def test_names_of_reward_functions_lose_what_they_share() -> None:
    names = ("correctness_reward", "reward_format", "reward", "think_format_reward_func")
    assert list(map(brief_name, names)) == ["correctness", "format", "reward", "think_format"]


@pytest.mark.parametrize("size", [(80, 23), (80, 24), (99, 50), (100, 30), (120, 36), (120, 24), (300, 100)])
@pytest.mark.parametrize("cards", [0, 1, 2, 8])
def test_panels_lie_side_by_side_within_the_screen(size: tuple[int, int], cards: int) -> None:
    places = arrange(*size, gpu_lines=2 * cards)
    assert {"status", "strip", "1", "6"} <= set(places)
    for place in places.values():
        assert place.x >= 0
        assert place.y >= 0
        assert place.width > 0
        assert place.height > 0
        assert place.right <= size[0]
        assert place.bottom <= size[1] - 1
    for one, other in itertools.combinations(places.values(), 2):
        assert not one.overlaps(other)


@pytest.mark.parametrize("height", [23, 24, 30, 34, 36])
def test_every_panel_has_at_least_three_rows_of_content(height: int) -> None:
    for width in (80, 120):
        places = arrange(width, height, gpu_lines=4)
        assert all(place.height >= 4 for name, place in places.items() if name.isdigit())


def test_an_enlarged_panel_has_the_screen_to_itself() -> None:
    assert set(arrange(120, 36, zoom=7)) == {"status", "7"}


def test_below_the_least_size_there_is_no_arrangement() -> None:
    assert arrange(LEAST[0] - 1, 50) == {}
    assert arrange(200, LEAST[1] - 1) == {}


@pytest.mark.parametrize(
    ("name", "brief"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100 MIG 1g.10gb"),
        ("NVIDIA GB10", "GB10"),
        ("", ""),
    ],
)
def test_a_card_is_named_as_people_say_it(name: str, brief: str) -> None:
    assert brief_card(name) == brief


@pytest.mark.parametrize(
    ("cursor", "by", "found"),
    [(None, -1, 50), (50, -1, 40), (40, 1, 50), (10, -1, 10), (50, 1, 50), (10, 25, 40), (40, -25, 20)],
)
def test_the_cursor_moves_onto_logged_steps_and_not_past_the_ends(cursor: int | None, by: float, found: int) -> None:
    assert moved(np.array([10, 20, 40, 50]), cursor, by) == found
