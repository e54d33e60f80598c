"""What the model is paid for: one function per aspect, one number per completion."""

import re
import unicodedata
from typing import Any

CORRECT_LETTER = re.compile(r"[(\[*]*([A-Za-z])[)\]*.:]*")
CORRECT_WITH_TEXT = re.compile(r"[(\[*]*([A-Za-z])[)\]*.:]+\s+(\S.*)")


def correct(
    completions: list[Any],
    answer: list[Any],
    options: list[Any] | None = None,
    choices: list[Any] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """1 if the final answer is the right letter and nothing else, else 0; None where the right answer is no letter.

    With a column `options` or `choices` (a list of texts per row), an option's whole text is its letter too.
    """
    found = []
    for completion, right, texts in zip(completions, answer, options or choices or [()] * len(answer), strict=True):
        forms = [plain_form(text) for text in texts] if isinstance(texts, list) else []
        wanted = correct_letter(
            chr(65 + right) if isinstance(right, int) and 0 <= right < len(forms) else str(right), []
        )
        given = correct_letter(answer_in(text_of(completion)) or "", forms)
        found.append(float(given == wanted) if wanted else None)
    return found


def correct_letter(text: str, forms: list[str]) -> str:
    """B for `B`, `(B)`, `B.`, `B) text of B` or `text of B`; empty for anything else."""
    text = text.strip()
    alone, both = CORRECT_LETTER.fullmatch(text), CORRECT_WITH_TEXT.fullmatch(text)
    if alone:
        return alone[1].upper()
    named = [chr(65 + at) for at, form in enumerate(forms) if form and form == plain_form(both[2] if both else text)]
    return named[0] if len(named) == 1 and (not both or both[1].upper() == named[0]) else ""


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


def plain_form(value: Any) -> str:
    """The text without what does not matter: case, width, spaces, and punctuation around it."""
    text = " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())
    return text.lstrip("\"'`*([ ").rstrip("\"'`*)] .,;:!?")


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
