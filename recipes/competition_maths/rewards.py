"""What the model is paid for: one function per aspect, one number per completion."""

import importlib.util
import json
import re
import subprocess
import sys
import threading
from typing import Any

CORRECT_SECONDS = 2  # for reading and comparing one answer
CORRECT_LONGEST = 50_000  # characters; longer completions earn nothing
CORRECT_LONGEST_ANSWER = 500  # characters of the final answer


def correct(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    r"""1 if the final answer, best in \boxed{…}, equals the right one, else 0; None where the right one is no formula.

    An unfinished one such as 12·7 equals its value. A comparison that takes too long earns nothing, in any thread.
    """
    texts = [text_of(completion) for completion in completions]
    return [correct_of(text, right) for text, right in zip(texts, answer, strict=True)]


def correct_of(text: str, right: Any) -> float | None:
    wanted = correct_formula(answer_in("" if right is None else str(right)))
    if not wanted:
        return None
    given = correct_formula(answer_in(text)) if len(text) <= CORRECT_LONGEST else ""
    equal = same_formula(given, wanted, CORRECT_SECONDS)
    return None if equal is None else float(equal)


def correct_formula(text: str | None) -> str:
    """The text where it may be one formula, else nothing."""
    text = (text or "").strip(" \t\n$*.")
    if len(text) > CORRECT_LONGEST_ANSWER:
        return ""
    bare = re.sub(r"\\(?:text|mathrm)\{[^{}]*\}", "", text)
    if re.search(r"(?<!\\)\b[A-Za-z]{3,}", bare) and not re.search(r"\d", bare):
        return ""  # a word, which would be read as a product of its letters
    if text.count("=") > 1 or ("=" in text and not re.search(r"[A-Za-z]", text.partition("=")[0])):
        return ""  # 4 = 5 names two numbers, x = 4 one
    return text


OVERLONG_LARGEST = 2048  # tokens: max_completion_length of the training; above it, it never bites
OVERLONG_FADE = 512  # tokens before that over which the penalty grows


def overlong(completion_ids: list[Any], completions: list[Any] | None = None, **kwargs: Any) -> list[float]:
    """0 for a length with room to spare, falling to -1 at the largest one (DAPO, equation 13); never above 0."""
    start = OVERLONG_LARGEST - OVERLONG_FADE
    return [-min(1.0, max(0, len(ids) - start) / OVERLONG_FADE) for ids in completion_ids]


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


# Runs in a process of its own. When the time is up, the kernel ends that, whatever it is in the midst of.
COMPARING = r"""
import json, logging, os, signal, sys
channel = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from math_verify import LatexExtractionConfig, parse, verify
logging.disable(logging.WARNING)  # that it keeps no time of its own, which it can only in a main thread
reading = [LatexExtractionConfig(boxed_match_priority=0)]

def read(text):
    return parse("\\boxed{" + text + "}", reading, extraction_mode="first_match", parsing_timeout=None)

signal.signal(signal.SIGALRM, signal.SIG_DFL)
print("ready", file=channel, flush=True)
for line in sys.stdin:
    seconds, given, right = json.loads(line)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    wanted = read(right)
    found = read(given) if wanted and given else []
    equal = bool(found and verify(wanted, found, timeout_seconds=None))
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(equal if wanted else None), file=channel, flush=True)
"""

comparing: list[subprocess.Popen[str]] = []  # the process, once it is needed
comparing_turn = threading.Lock()


def same_formula(given: str, right: str, seconds: float) -> bool | None:
    """Whether they are equal; None where the right one is no formula. What takes longer is taken for not equal."""
    with comparing_turn:
        if not comparing:
            comparing.append(start_comparing())
        process = comparing[0]
        assert process.stdin is not None  # pipes were asked for
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([seconds, given, right]) + "\n")
            process.stdin.flush()
            said = process.stdout.readline()
        except BrokenPipeError:
            said = ""
        if said:
            return None if said == "null\n" else said == "true\n"
        comparing.clear()
        process.wait()
        return False


def start_comparing() -> subprocess.Popen[str]:
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError("This reward needs math_verify: pip install math-verify")
    command = [sys.executable, "-P", "-c", COMPARING]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("math_verify cannot be loaded: what it said stands above")
    return process


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
