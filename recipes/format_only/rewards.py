"""What the model is paid for: one function per aspect, one number per completion."""

import re
import unicodedata
from fractions import Fraction
from typing import Any

FORMAT_TAGS = ("reasoning", "answer")  # a tag that holds others: ("answer", ("value", "unit"))
FORMAT_EMPTY = ()  # tags with which nothing need be said
FORMAT_AROUND = False  # may text stand outside the tags?


def format(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for exactly these tags, each once, in order and filled, nothing around them; 0 for anything less.

    A part of it does not pay, or the model would stop there.
    """
    return [1.0 if format_accept(text_of(completion)) else 0.0 for completion in completions]


def format_accept(text: str) -> bool:
    signs = signs_of(FORMAT_TAGS)
    pieces = pieces_between(text, signs)
    if pieces is None:
        return False
    for before, piece, after in zip(["", *signs], pieces, [*signs, ""], strict=True):
        is_body = before.replace("<", "</") == after  # else it stands between two tags
        if is_body and not piece.strip() and before.strip("<>") not in FORMAT_EMPTY:
            return False
        if not is_body and piece.strip() and not FORMAT_AROUND:
            return False
    return True


CORRECT_ABSOLUTE = 0.0  # allowed difference as a number ...
CORRECT_RELATIVE = 0.0  # ... or as a share of the right value, whichever is larger


def correct(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the final answer holds exactly one number and it is right, else 0; None where the right answer is none."""
    return [correct_of(text_of(completion), right) for completion, right in zip(completions, answer, strict=True)]


def correct_of(text: str, right: Any) -> float | None:
    wanted = number_in(str(right))
    if wanted is None:
        return None
    given = number_in(answer_in(text) or "")
    if given is None:
        return 0.0
    values = [given[0]]
    if wanted[1] and not given[1] and abs(given[0]) <= 1:
        values.append(given[0] * 100)  # 0.5 for 50%; where no percentage is asked for, % is a unit like any other
    allowed = max(CORRECT_ABSOLUTE, CORRECT_RELATIVE * abs(wanted[0]))
    return 1.0 if any(abs(value - wanted[0]) <= allowed for value in values) else 0.0


def signs_of(tags: tuple[Any, ...]) -> list[str]:
    """Opening and closing tags in order. A tag that holds others is written (name, (its tags))."""
    signs = []
    for tag in tags:
        name, inside = (tag, ()) if isinstance(tag, str) else tag
        signs += [f"<{name}>", *signs_of(inside), f"</{name}>"]
    return signs


def pieces_between(text: str, signs: list[str]) -> list[str] | None:
    """The text before, between and after the signs; None unless each stands there once, in this order."""
    if any(text.count(sign) != 1 for sign in signs):
        return None
    pieces = []
    for sign in signs:
        piece, found, text = text.partition(sign)
        if not found:
            return None
        pieces.append(piece)
    return [*pieces, text]


def text_of(completion: Any) -> str:
    """The text of a completion: plain text as it is, of chat messages the last one that the model wrote."""
    if isinstance(completion, str):
        return completion
    messages = [each for each in completion if isinstance(each, dict)] if isinstance(completion, list) else []
    written = [each for each in messages if each.get("role", "assistant") == "assistant"]  # no replies of tools
    content = written[-1].get("content") if written else ""
    if isinstance(content, list):  # parts: text, images
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


MARKED = re.compile(r"(?:answer is:?|answer:|####)[ \t*]*([^\s*][^\n]*)", re.IGNORECASE)


def answer_in(text: str) -> str | None:
    r"""The one final answer of a completion, or None: there is none, or more than one.

    Reasoning is cut off first. Then: what stands in the only <answer>…</answer>, there or else in the whole text in
    \boxed{…}, and otherwise after the only "answer is", "answer:" or "####"; or else all of it.
    """
    text = after_reasoning(text)
    if "<answer>" in text or "</answer>" in text:
        before, _, rest = text.partition("<answer>")
        text, closed, after = rest.partition("</answer>")
        if not closed or "answer>" in before + text + after:
            return None
    if "\\boxed" in text:
        boxes = boxes_in(text)
        return boxes[0] if len(set(boxes)) == 1 else None
    marked = MARKED.findall(text)
    return (marked or [text])[0].strip() if len(marked) < 2 else None


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


REASONING_STARTS = ("<think>", "<reasoning>")
REASONING_ENDS = ("</think>", "</reasoning>")


def after_reasoning(text: str) -> str:
    """The text after the last end of reasoning; empty if reasoning never ended."""
    for end in REASONING_ENDS:
        text = text.rpartition(end)[2]
    return "" if any(start in text for start in REASONING_STARTS) else text


MOST_BOXES = 3  # a final answer may be said again, but not tried over and over


def boxes_in(text: str) -> list[str]:
    r"""What stands in each \boxed{…}, braces matched; empty if one never closes, or there are too many."""
    pieces = re.split(r"\\boxed\s*\{", text)[1:]
    boxes = []
    for piece in pieces if len(pieces) <= MOST_BOXES else []:
        depth = 1
        for sign in re.finditer(r"\\.|[{}]", piece, re.DOTALL):  # \{ and \} are no braces
            depth += {"{": 1, "}": -1}.get(sign[0], 0)
            if depth == 0:
                boxes.append(piece[: sign.start()].strip())
                break
        else:
            return []
    return boxes
