"""Part: the code in a completion."""

import re

from grpo_tui.rewards.templates.after_reasoning import after_reasoning

BLOCK = re.compile(r"^```[a-zA-Z0-9]*[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def last_block(text: str) -> str | None:
    """What stands in the last ```…``` after the reasoning, or None."""
    blocks = BLOCK.findall(after_reasoning(text))
    return blocks[-1] if blocks else None
