"""Part: the one final answer of a completion."""

import re

from grpo_tui.rewards.templates.after_reasoning import after_reasoning
from grpo_tui.rewards.templates.boxes_in import boxes_in

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
