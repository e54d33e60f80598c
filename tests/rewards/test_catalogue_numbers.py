"""Numbers: whichever way one is spelled, it is the same number, and nothing else is."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tui.rewards.templates.number_in import number_in
from tests.rewards.catalogued import functions, proposal

PAID = functions(proposal("numeric"))["paid"]
SCRIPTS = ("0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９")
AROUND = ("{}", "{} km", "$ {}", "{}.", "The answer is {}.", "\\boxed{{{}}}", "<answer> {} </answer>", "**{}**", "({})",
          "<think>5 or 6</think>{} apples")  # fmt: skip

wholes = st.integers(-(10**15), 10**15)


@settings(max_examples=50, deadline=None)
@given(number=wholes, group=st.sampled_from(["", ",", "_", "'", "\u202f", "\u00a0"]), minus=st.sampled_from("-−‐–"),
       digits=st.sampled_from(SCRIPTS), around=st.sampled_from(AROUND))  # fmt: skip
def test_a_whole_number_is_read_in_every_spelling(
    number: int, group: str, minus: str, digits: str, around: str
) -> None:
    spelled = f"{abs(number):,}".replace(",", group).translate(str.maketrans(SCRIPTS[0], digits))
    text = around.format((minus if number < 0 else "") + spelled)
    assert PAID(completions=[text], answer=[number]) == [1.0]
    assert PAID(completions=[text], answer=[str(number + 1)]) == [0.0]


@settings(max_examples=50, deadline=None)
@given(st.decimals(-(10**6), 10**6, places=4))
def test_a_decimal_equals_its_scientific_and_its_fractional_spelling(number: object) -> None:
    value = Fraction(str(number))
    mantissa, exponent = f"{number:e}".split("e")
    spellings = [
        str(number),
        f"{number:.4f}",
        f"{mantissa}E{exponent}",
        f"{mantissa} × 10^{exponent}",
        f"{mantissa} \\times 10^{{{int(exponent)}}}",
        f"{mantissa}·10" + str(int(exponent)).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")),
        f"{value.numerator}/{value.denominator}",
        f"{value.numerator} / {value.denominator}",
    ]
    assert [number_in(spelled) for spelled in spellings] == [(value, False)] * len(spellings)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 999), min_size=2, max_size=6), st.sampled_from([", ", " or ", "; ", " = ", "\n", ": "]))
def test_several_numbers_are_none(numbers: list[int], between: str) -> None:
    assert number_in(between.join(map(str, numbers))) is None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), wholes)
def test_whatever_is_written_is_paid_or_not_and_nothing_raises(text: str, number: int) -> None:
    assert PAID(completions=[text], answer=[number]) in ([0.0], [1.0])
    assert PAID(completions=[str(number)], answer=[text]) in ([0.0], [1.0], [None])
