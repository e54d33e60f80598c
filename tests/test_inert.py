"""Text from anywhere can be printed: nothing in it moves the cursor, and nothing that can be read is lost."""

import pytest

from grpo_tui.inert import inert, one_line


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[31mred\x1b[0m b", "ared b"),
        ("before\x1b]52;c;c2VjcmV0\x07after", "beforeafter"),
        ("before\x1b]0;title\x1b\\after", "beforeafter"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("bell\x07 back\x08", "bell· back·"),
        ("half a \ud83d pair", "half a · pair"),
        ("\u202eright to left", "·right to left"),
        ("[bold red]markup[/]", "[bold red]markup[/]"),
    ],
)
def test_sequences_are_gone_and_text_stays(given: str, shown: str) -> None:
    assert inert(given) == shown


@pytest.mark.parametrize(
    "given",
    [
        "He said \u00e2\u20ac\x9dyes\u00e2\u20ac\x9d and left.",
        "an \x1b] never ended, and more",
        "\x9b5 apples",
        "\x90 quote",
    ],
)
def test_what_only_looks_like_a_sequence_does_not_eat_the_text_behind_it(given: str) -> None:
    for word in given.replace("\x9d", " ").replace("\x9b", " ").replace("\x1b]", " ").replace("\x90", " ").split():
        assert word in inert(given)
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in inert(given))


def test_a_long_text_is_cut_where_it_is_told_to_be() -> None:
    assert one_line("word " * 100_000, 11) == "word word …"
