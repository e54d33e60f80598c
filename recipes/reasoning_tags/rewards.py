"""What the model is paid for: one function per aspect, one number per completion."""

import re
import unicodedata
from typing import Any


def correct(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the final answer is the right one but for case, spaces and punctuation around it, else 0; None without one.

    Another wording earns nothing.
    """
    given = [plain_form(answer_in(text_of(completion)) or "") for completion in completions]
    wanted = [plain_form("" if right is None else right) for right in answer]
    return [float(a == b) if b else None for a, b in zip(given, wanted, strict=True)]


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


FORMAT_STEPS_TAGS = ("reasoning", "answer")  # a tag that holds others: ("answer", ("value", "unit"))
FORMAT_STEPS_EMPTY = ()  # tags with which nothing need be said
FORMAT_STEPS_AROUND = False  # may text stand outside the tags?
FORMAT_STEPS_REPEATED = -0.25  # for a tag that stands there twice: scattering tags must not pay
FORMAT_STEPS_WRONG = 0.25  # at most, when a tag stands in a wrong place or is empty


def format_steps(completions: list[Any], **kwargs: Any) -> list[float]:
    """A step from 0 towards 1 for each tag in its place, the last for nothing around them; -0.25 for repeated tags.

    Each step needs the one before it.
    """
    return [format_steps_of(text_of(completion)) for completion in completions]


def format_steps_of(text: str) -> float:
    signs = signs_of(FORMAT_STEPS_TAGS)
    parts = re.split("(" + "|".join(map(re.escape, signs)) + ")", text)
    pieces, found = parts[::2], parts[1::2]
    if len(set(found)) < len(found):
        return FORMAT_STEPS_REPEATED
    steps, clean = 0, not pieces[0].strip()
    for at, (sign, wanted) in enumerate(zip(found, signs, strict=False)):
        opened = found[at - 1] if at else ""
        is_body = bool(at) and sign == opened.replace("<", "</")
        if sign != wanted:
            break
        if is_body and not pieces[at].strip() and opened.strip("<>") not in FORMAT_STEPS_EMPTY:
            break
        clean = clean and (is_body or not pieces[at].strip())
        steps += 1
    reward = steps / (len(signs) + 1)
    if steps < len(found):
        return min(reward, FORMAT_STEPS_WRONG)
    is_whole = steps == len(signs) and ((clean and not pieces[-1].strip()) or FORMAT_STEPS_AROUND)
    return 1.0 if is_whole else reward


STYLE_UNWANTED = (r"\bas an ai\b", r"\bcertainly!", r"\bi hope this helps\b", r"\bgreat question\b")
STYLE_EACH = 0.25  # what one of them costs
STYLE_LONGEST = 20_000  # characters that are looked at


def style(completions: list[Any], **kwargs: Any) -> list[float]:
    """0 for text without unwanted phrases, less for each, at least -1; capitals do not matter. Never above 0."""
    unwanted = [re.compile(expression, re.IGNORECASE) for expression in STYLE_UNWANTED]
    texts = [text_of(completion)[:STYLE_LONGEST] for completion in completions]
    counts = [sum(sum(1 for _ in each.finditer(text)) for each in unwanted) for text in texts]
    return [-min(1.0, STYLE_EACH * count) for count in counts]


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
