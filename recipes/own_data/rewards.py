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


BREVITY_LOW = 1  # tokens
BREVITY_HIGH = 200
BREVITY_FADE = 200  # tokens below and above, over which the reward falls to 0
BREVITY_GATED = True  # nothing for a completion without one final answer


def brevity(completions: list[Any], completion_ids: list[Any], **kwargs: Any) -> list[float]:
    """1 for a length within the band, falling to 0 on either side; 0 for filling words and for no answer."""
    texts = [text_of(completion) for completion in completions]
    return [brevity_of(text, ids) for text, ids in zip(texts, completion_ids, strict=True)]


def brevity_of(text: str, ids: list[int]) -> float:
    triples = list(zip(ids, ids[1:], ids[2:], strict=False))
    if not (answer_in(text) if BREVITY_GATED else text.strip()) or len(set(triples)) < len(triples) / 2:
        return 0.0  # nothing said, or the same words over and over to fill the band
    outside = max(BREVITY_LOW - len(ids), len(ids) - BREVITY_HIGH, 0)
    return max(0.0, 1.0 - outside / BREVITY_FADE)


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
