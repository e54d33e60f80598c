"""Part: the text of a completion, whatever its shape."""

from typing import Any


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
