"""Part: the form in which texts are compared."""

import unicodedata
from typing import Any


def plain_form(value: Any) -> str:
    """The text without what does not matter: case, width, spaces, and punctuation around it."""
    text = " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())
    return text.lstrip("\"'`*([ ").rstrip("\"'`*)] .,;:!?")
