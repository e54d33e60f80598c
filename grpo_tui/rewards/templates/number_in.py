"""Part: the one number in a text."""

import re
import unicodedata
from fractions import Fraction

WHOLE = r"(?:\d{1,3}(?:[,'_]\d{3})+|\d+)"
NUMBER = re.compile(rf"[-+]?(?:{WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,3}})?(?:\s?/\s?\d+)?%?")
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺−", "0123456789-+-")
TIMES_TEN = re.compile(r"\s?(?:[×x*·]|\\times|\\cdot)\s?10(?:\^\{?([-+−]?\d{1,3})\}?|([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3}))")
SPELLINGS = (
    (TIMES_TEN, lambda found: "e" + (found[1] or found[2]).translate(RAISED)),  # 1.2 × 10³
    (re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}"), r"\1/\2"),
    (re.compile(r"(?<=[^\W\d_])(?:\^\{?-?\d\}?|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹])"), ""),  # units: m², s^-1
    (re.compile(r"(?<=\d)(?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺¼½¾⅐-⅞])"), " ^"),  # 5² and 3½ are not 52 and 31/2
    (re.compile(r"(?<=\d)(?:\{,\}|\\,|[\u00a0\u2009\u202f])(?=\d{3})"), ","),  # 1{,}234 and thin spaces
)
MINUS = str.maketrans("\u2212\u2010\u2013\u2044", "---/")  # after NFKC; the last is the bar of ½
LARGEST = 10**300  # what is larger, a float takes for infinite


def number_in(text: str) -> tuple[Fraction, bool] | None:
    """The only number in the text as (exact value, is it a percentage), or None: none, several, or too large.

    Reads 1,234 · 1e3 · 1.2 × 10³ · −5 (any minus sign) · 3/4 · ½ · 12.5 % · digits of any script. Words and units
    around it do not matter.
    """
    for pattern, written in SPELLINGS:
        text = pattern.sub(written, text)
    text = unicodedata.normalize("NFKC", text).translate(MINUS).replace("\\%", "%").replace(" %", "%")
    found = NUMBER.findall(text)
    if len(found) != 1 or len(found[0]) > 300:
        return None
    top, _, below = re.sub(r"[,'_%\s]", "", found[0]).partition("/")
    if below and not int(below):
        return None
    value = Fraction(top) / int(below or 1)
    return (value, found[0].endswith("%")) if abs(value) < LARGEST else None
