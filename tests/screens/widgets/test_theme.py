"""The look fits the terminal: true colour, 256, 16, none, light, or ASCII only."""

import itertools

import pytest
from grpo_tui.screens.theme import (
    PALETTES,
    THEME_NAMES,
    OnlyAscii,
    ThemedApp,
    WithoutColour,
    ascii_only,
    choose_theme,
)
from rich._palettes import STANDARD_PALETTE  # the palette Rich maps to
from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.color import Color as TextualColor
from textual.widgets import Static


@pytest.mark.parametrize(
    ("environ", "theme"),
    [
        ({"COLORTERM": "truecolor", "TERM": "xterm"}, "grpo-dark"),
        ({"TERM": "xterm-256color"}, "grpo-256"),
        ({"TERM": "screen"}, "grpo-16"),
        ({}, "grpo-16"),
        ({"COLORTERM": "truecolor", "COLORFGBG": "0;15"}, "grpo-light"),
        ({"COLORTERM": "truecolor", "NO_COLOR": "1"}, "grpo-none"),
        ({"COLORTERM": "truecolor", "NO_COLOR": ""}, "grpo-dark"),
    ],
)
def test_the_terminal_decides(environ: dict[str, str], theme: str) -> None:
    assert choose_theme(None, environ) == theme


def test_what_is_asked_for_wins() -> None:
    assert choose_theme("light", {"NO_COLOR": "1"}) == "grpo-light"


RAMP = {"bg": 233, "surface": 234, "band": 236, "select": 237, "border": 238, "faint": 242, "muted": 247, "text": 253}


def test_in_256_colours_every_grey_stays_a_grey_of_its_own() -> None:
    roles = PALETTES["grpo-256"].roles
    assert {role: Color.parse(roles[role]).downgrade(ColorSystem.EIGHT_BIT).number for role in RAMP} == RAMP


@pytest.mark.parametrize("role", ["accent", "ok", "warn", "fail", *(f"s{number}" for number in range(1, 7))])
def test_in_256_colours_every_hue_is_exact(role: str) -> None:
    code = PALETTES["grpo-256"].roles[role]
    assert Color.parse(code).downgrade(ColorSystem.EIGHT_BIT).get_truecolor().hex == code


def test_in_16_colours_every_role_is_a_colour_of_the_terminal() -> None:
    for role, code in PALETTES["grpo-16"].roles.items():
        number = Color.parse(code).downgrade(ColorSystem.STANDARD).number
        assert number is not None
        assert ColorTriplet(*STANDARD_PALETTE[number]).hex == code, role


def luminance(code: str) -> float:
    parts = [int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", ["grpo-dark", "grpo-light", "grpo-256", "grpo-16"])
@pytest.mark.parametrize("role", ["text", "muted", "accent", "ok", "warn", "fail"])
def test_what_must_be_read_can_be_read(name: str, role: str) -> None:
    roles = PALETTES[name].roles
    dark, light = sorted((luminance(roles["bg"]), luminance(roles[role])))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


async def test_every_theme_can_be_set_and_no_other_is_offered() -> None:
    class Plain(ThemedApp[None]):
        CSS = "Static { color: $muted; background: $band; border-top: solid $rule; } Screen { color: $series-2; }"

        def compose(self) -> ComposeResult:
            yield Static("x")

    app = Plain(theme="dark", environ={})
    async with app.run_test(size=(20, 3)) as pilot:
        assert set(app.available_themes) == set(PALETTES)
        for name in THEME_NAMES:
            app.theme = f"grpo-{name}"
            await pilot.pause()
            assert app.palette.name == f"grpo-{name}"


def test_without_colour_bold_and_reverse_are_left() -> None:
    palette = PALETTES["grpo-none"]
    segments = [
        Segment("a", palette.style("accent bold on_bg")), Segment("b", palette.style("text on_select")),
        Segment("c", Style.parse("red on blue dim")),
    ]  # fmt: skip
    bare = WithoutColour().apply(segments, TextualColor(0, 0, 0))
    assert all(
        segment.style is not None and segment.style.color is None and segment.style.bgcolor is None for segment in bare
    )
    assert bare[0].style is not None
    assert bare[0].style.bold
    assert bare[1].style is not None
    assert bare[1].style.reverse
    assert bare[2].style is not None
    assert bare[2].style.dim


def test_without_colour_a_state_still_differs_from_plain_text() -> None:
    palette = PALETTES["grpo-none"]
    for one, other in itertools.combinations(("accent", "text", "faint"), 2):
        assert palette.style(one) != palette.style(other)


def test_in_ascii_every_cell_keeps_its_width() -> None:
    text = "▌ 1 Reward ── ● ✓ ✗ ▲ ⠿⠁⡀ 中 é"
    (shown,) = OnlyAscii().apply([Segment(text)], TextualColor(0, 0, 0))
    assert shown.text.isascii()
    assert shown.cell_length == Segment(text).cell_length


@pytest.mark.parametrize(
    ("environ", "only"),
    [
        ({"TERM": "linux", "LANG": "C.UTF-8"}, True),
        ({"TERM": "xterm", "LANG": "de_DE.ISO-8859-1"}, True),
        ({"TERM": "xterm", "LC_ALL": "ASCII", "LANG": "C.UTF-8"}, True),
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, False),
        ({"TERM": "xterm"}, False),
        ({"TERM": "xterm", "LANG": "en_US.utf8"}, False),
    ],
)
def test_ascii_is_for_terminals_that_show_no_more(environ: dict[str, str], only: bool) -> None:
    assert ascii_only(environ) is only
