"""The look: five palettes, the Textual themes made of them, and the app class that knows them.

Colours are exact entries of the xterm 256 cube, greys have so little saturation that they map to the grey ramp, and
the 16-colour palette is Rich's own standard palette, so that down-conversion is the identity.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ReturnType, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.theme import Theme

from .widgets.trim import trimmed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.color import Color
    from textual.screen import Screen

THEME_CSS = Path(__file__).with_name("theme.tcss")
"""Styles every screen shares. An app with styles of its own lists this file first in its `CSS_PATH`."""

Part = str | Text | tuple[str, str]
"""A piece of a line: plain text in the colour of text, ready `Text`, or `(text, style)`."""


@dataclass(frozen=True)
class Palette:
    """Colours by role: three greys (`text`, `muted`, `faint`), one `accent`, three states, and what lies behind."""

    name: str
    dark: bool
    roles: Mapping[str, str]
    """Role to `#rrggbb`. Roles: bg surface select band border faint muted text accent ok warn fail s1 … s6."""

    tints: bool = True
    """Backgrounds may carry meaning: a filled band. Where they may not, the band has dotted edges."""

    attributes: Mapping[str, str] | None = None
    """Role to Rich attributes, instead of colours: how things are told apart without any colour."""

    def style(self, spec: str) -> Style:
        """The Rich style of `spec`: roles and attributes parted by blanks, `on_` before a role for the background."""
        return _style(self.name, spec)

    def text(self, *parts: Part) -> Text:
        """One line made of `parts`. Nothing in it is ever read as markup."""
        line = Text(no_wrap=True, end="")
        for part in parts:
            if isinstance(part, Text):
                line.append_text(part)
            elif isinstance(part, str):
                line.append(part, self.style("text"))
            else:
                line.append(part[0], self.style(part[1]))
        return line


def _roles(**roles: str) -> Mapping[str, str]:
    return MappingProxyType(roles)


_DARK = _roles(
    bg="#14161a", surface="#1c1f24", select="#333a44", band="#2a3038", border="#3f4650",
    faint="#636b77", muted="#98a1ad", text="#dcdfe4", accent="#5fafff", ok="#5fd7af", warn="#ffaf00", fail="#ff5f5f",
    s1="#5fafff", s2="#ffaf5f", s3="#87d7af", s4="#d787af", s5="#af8700", s6="#ffd7ff",
)  # fmt: skip
_LIGHT = _roles(
    bg="#ffffff", surface="#f2f2f1", select="#d9dbde", band="#e6e7e9", border="#c4c6c9",
    faint="#9a9da2", muted="#5d6167", text="#1b1d20", accent="#005faf", ok="#00875f", warn="#af5f00", fail="#af0000",
    s1="#005faf", s2="#878700", s3="#005f00", s4="#af5fd7", s5="#008787", s6="#5f0087",
)  # fmt: skip
_ANSI16 = _roles(
    bg="#000000", surface="#000000", select="#555555", band="#000000", border="#555555",
    faint="#555555", muted="#aaaaaa", text="#ffffff", accent="#55ffff", ok="#55ff55", warn="#ffff55", fail="#ff5555",
    s1="#55ffff", s2="#ffff55", s3="#55ff55", s4="#ff55ff", s5="#5555ff", s6="#ffffff",
)  # fmt: skip
_WITHOUT_COLOUR = MappingProxyType(
    {"select": "reverse", "faint": "dim", "border": "dim", "accent": "bold", "warn": "bold", "fail": "bold"}
)

PALETTES: Mapping[str, Palette] = MappingProxyType(
    {
        palette.name: palette
        for palette in (
            Palette("grpo-dark", True, _DARK),
            Palette("grpo-light", False, _LIGHT),
            Palette("grpo-256", True, _DARK),
            Palette("grpo-16", True, _ANSI16, tints=False),
            Palette("grpo-none", True, _ANSI16, tints=False, attributes=_WITHOUT_COLOUR),
        )
    }
)
THEME_NAMES = tuple(name.removeprefix("grpo-") for name in PALETTES)
"""What `--theme` takes."""


@lru_cache(maxsize=1024)
def _style(palette: str, spec: str) -> Style:
    known = PALETTES[palette]
    words: list[str] = []
    for word in spec.split():
        role = word.removeprefix("on_")
        if role not in known.roles:
            words.append(word)
        elif known.attributes is not None:
            words.append(known.attributes.get(role, ""))
        else:
            words.append(f"on {known.roles[role]}" if word != role else known.roles[role])
    return Style.parse(" ".join(words))


def _theme(palette: Palette) -> Theme:
    c = palette.roles
    return Theme(
        name=palette.name, dark=palette.dark, luminosity_spread=0.0, text_alpha=1.0,
        primary=c["accent"], secondary=c["muted"], accent=c["accent"],
        success=c["ok"], warning=c["warn"], error=c["fail"],
        foreground=c["text"], background=c["bg"], surface=c["surface"], panel=c["surface"],
        variables={
            **{role: c[role] for role in ("muted", "faint", "select", "band")},
            **{f"series-{number}": c[f"s{number}"] for number in range(1, 7)},
            "rule": c["border"], "border": c["border"], "border-blurred": c["border"],
            "footer-background": c["surface"], "footer-key-foreground": c["accent"],
            "footer-description-foreground": c["muted"],
            "block-cursor-background": c["select"], "block-cursor-foreground": c["text"],
            "block-cursor-text-style": "bold", "block-cursor-blurred-background": c["select"],
            "block-cursor-blurred-foreground": c["text"], "block-cursor-blurred-text-style": "none",
            "block-hover-background": c["surface"],
            "input-selection-background": c["select"], "input-cursor-background": c["text"],
            "input-cursor-foreground": c["bg"],
            "scrollbar": c["border"], "scrollbar-background": c["bg"], "scrollbar-corner-color": c["bg"],
            "scrollbar-background-hover": c["bg"], "scrollbar-background-active": c["bg"],
            "scrollbar-hover": c["faint"], "scrollbar-active": c["accent"],
        },
    )  # fmt: skip


def register_themes(app: App[ReturnType]) -> None:
    """Make the five themes known to `app` by the names of `PALETTES`."""
    for palette in PALETTES.values():
        app.register_theme(_theme(palette))


def choose_theme(asked: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The theme for this terminal: the one asked for, else what the terminal says it can show.

    `NO_COLOR` as on no-color.org, `COLORTERM` and `TERM` as Rich reads them (`Console._detect_color_system`), and
    `COLORFGBG` ("15;0": colour numbers of text and background) where the terminal sets it.
    """
    if asked:
        return f"grpo-{asked.removeprefix('grpo-')}"
    if environ.get("NO_COLOR"):
        return "grpo-none"
    term = environ.get("TERM", "")
    many = environ.get("COLORTERM", "").strip().lower() in {"truecolor", "24bit"}
    if not many and not term.endswith("256color"):
        return "grpo-16"
    if environ.get("COLORFGBG", "").rpartition(";")[2] in {"7", "15"}:
        return "grpo-light"
    return "grpo-dark" if many else "grpo-256"


def ascii_only(environ: Mapping[str, str] = os.environ) -> bool:
    """The terminal cannot be trusted with more than ASCII: the Linux console, or a locale that is not UTF-8.

    An unset locale says nothing: over SSH it is often missing although the terminal shows everything.
    """
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    utf8 = "utf8" in locale.lower().replace("-", "")
    written = environ.get("PYTHONIOENCODING", "").lower()
    if written and not written.startswith("utf"):
        return True
    return environ.get("TERM") == "linux" or (bool(locale) and not utf8 and locale not in {"C", "POSIX"})


class WithoutColour(LineFilter):
    """Takes every colour away and leaves bold, dim, underline and reverse."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """`segments` without colours."""
        return [Segment(text, None if style is None else _bare(style), control) for text, style, control in segments]


@lru_cache(maxsize=256)
def _bare(style: Style) -> Style:
    return Style(bold=style.bold, dim=style.dim, underline=style.underline, reverse=style.reverse)


_ASCII = str.maketrans(
    {
        "─": "-",
        "━": "=",
        "╸": "=",
        "│": "|",
        "┤": "+",
        "├": "+",
        "┈": ".",
        "╭": "+",
        "╮": "+",
        "╰": "+",
        "╯": "+",
        "╌": "-",
        "▌": "|",
        "●": "*",
        "○": "o",
        "✓": "+",
        "✗": "x",
        "▲": "^",
        "▼": "v",
        "▾": "v",
        "…": "~",
        "·": ".",
        "×": "x",
        "±": "~",
        "°": "o",
        "←": "<",
        "→": ">",
        "↑": "^",
        "↓": "v",
        "–": "-",
        "—": "-",
        "’": "'",
    }
)


class OnlyAscii(LineFilter):
    """Every sign as its nearest in ASCII, cell by cell: a braille cell as the dot, colon or quote it looks like."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """`segments` in ASCII, each as wide as it was."""
        return [Segment(_ascii(text), style, control) for text, style, control in segments]


@lru_cache(maxsize=4096)
def _ascii(text: str) -> str:
    if text.isascii():
        return text
    return "".join(character if character.isascii() else _ascii_sign(character) for character in text)


def _ascii_sign(character: str) -> str:
    if (plain := character.translate(_ASCII)).isascii():
        return plain
    code = ord(character)
    if 0x2800 <= code <= 0x28FF:  # dots 1 2 4 5 are the upper half, 3 6 7 8 the lower
        upper, lower = code & 0b00011011, code & 0b11100100
        return ":" if upper and lower else "'" if upper else "." if lower else " "
    if 0x2580 <= code <= 0x259F:
        return "#"
    return "?" * Segment(character).cell_length


class ThemedApp(App[ReturnType]):
    """An app in the look of this project. It knows no theme but ours, and restores the terminal however it ends."""

    CSS_PATH: ClassVar = [THEME_CSS]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+z", "suspend_process", "to the shell", show=False)]
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMAND_PALETTE_DISPLAY = "^p"

    def __init__(self, *, theme: str | None = None, environ: Mapping[str, str] = os.environ) -> None:
        """`theme`: one of `THEME_NAMES`, or None: chosen from the terminal described by `environ`."""
        super().__init__()
        chosen = choose_theme(theme, environ)
        builtin = [name for name in self.available_themes if name not in PALETTES]
        register_themes(self)
        self.theme = chosen
        for name in builtin:
            self.unregister_theme(name)
        self._without_colour = WithoutColour()
        self._only_ascii = OnlyAscii(enabled=ascii_only(environ))
        self.crash = ""
        """The traceback of a fault of ours, without the values of variables: they may be secret."""

        self.unsaved = ""
        """Why the last answers are not on the disk; empty: they are."""

        self.error_console = Console(file=io.StringIO())

    def on_mount(self) -> None:
        """Listen to the signals that end a terminal program."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self.leave_by_signal, number)
            except (ValueError, RuntimeError):  # not in the main thread: a test drives the app
                break

    def leave_by_signal(self, number: int) -> None:
        """Restore the terminal and end as the signal wants it; a training goes on."""
        self.exit(return_code=128 + number)

    def action_help_quit(self) -> None:
        """Ctrl-C, which ends other programs: say which key ends this one."""
        self.notify("q leaves, and everything is kept.", markup=False)

    def _handle_exception(self, error: Exception) -> None:
        # Textual offers no public door to an error before it prints it with the values of all variables.
        self.crash = "".join(traceback.format_exception(error))
        super()._handle_exception(error)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        # Textual offers no public door to what it sends, and sends too much of it for a slow line.
        super()._display(screen, trimmed(renderable))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette offers: what the screen's keys do, and the themes."""
        seen: set[str] = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.tooltip and active.enabled and binding.action not in seen:
                seen.add(binding.action)
                title = f"{binding.description[:1].upper()}{binding.description[1:]}"
                yield SystemCommand(title, binding.tooltip, partial(self.run_action, binding.action, active.node))
        for name in THEME_NAMES:
            yield SystemCommand(f"Theme: {name}", "Change the colours", partial(setattr, self, "theme", f"grpo-{name}"))

    @property
    def palette(self) -> Palette:
        """The colours of the theme in use; in ASCII a filled band would be a wall of `#`."""
        palette = PALETTES[self.theme]
        return replace(palette, tints=False) if self._only_ascii.enabled else palette

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Own variables: they must exist before the theme is set, or the styles cannot be parsed."""
        return dict(_theme(PALETTES["grpo-dark"]).variables)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, and ours for terminals without colour or without more than ASCII."""
        filters = list(super().get_line_filters())
        if self.theme == "grpo-none":
            filters.append(self._without_colour)
        if self._only_ascii.enabled:
            filters.append(self._only_ascii)
        return filters


def palette_of(app: App[object]) -> Palette:
    """The colours of `app`: those of its theme, or the dark ones in an app that is not ours."""
    return app.palette if isinstance(app, ThemedApp) else PALETTES["grpo-dark"]
