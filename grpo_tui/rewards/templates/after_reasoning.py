"""Part: what the model says after it has thought."""

REASONING_STARTS = ("<think>", "<reasoning>")
REASONING_ENDS = ("</think>", "</reasoning>")


def after_reasoning(text: str) -> str:
    """The text after the last end of reasoning; empty if reasoning never ended."""
    for end in REASONING_ENDS:
        text = text.rpartition(end)[2]
    return "" if any(start in text for start in REASONING_STARTS) else text
