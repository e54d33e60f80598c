"""What the model is paid for: one function per aspect, one number per completion."""

import json
import re
from typing import Any

CORRECT_LONGEST = 100_000  # characters; longer text is not parsed


def correct(completions: list[Any], answer: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the final answer is JSON with the right content, whatever the order of its keys; None where that is none."""
    given = [correct_form(answer_in(text_of(completion)) or "") for completion in completions]
    rights = [right if isinstance(right, str) else json.dumps(right, default=str) for right in answer]
    wanted = [correct_form(right) for right in rights]
    return [float(a == b) if b else None for a, b in zip(given, wanted, strict=True)]


def correct_form(text: str) -> str:
    """The one spelling in which equal values are equal texts; empty for what is not JSON, and for null."""
    try:
        value = json.loads(text) if len(text) <= CORRECT_LONGEST else None
        return "" if value is None else json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return ""


FORMAT_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "item": {"type": "string"},
        "quantity": {"type": "integer"},
        "city": {"type": "string"},
    },
    "required": ["name", "item", "quantity", "city"],
    "additionalProperties": False,
}
FORMAT_GRADUAL = False  # pay for parts: 0.2 it is JSON, 0.4 the required keys, 0.4 values of the right kind
FORMAT_LONGEST = 100_000  # characters; longer text is not parsed


def format(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for one JSON value that the schema accepts, filled, without other keys and with nothing around it, else 0."""
    try:
        import jsonschema
        import referencing
    except ImportError as error:
        raise ImportError("This reward needs jsonschema: pip install jsonschema") from error
    kind = jsonschema.validators.validator_for(FORMAT_SCHEMA, jsonschema.Draft202012Validator)
    nothing: Any = referencing.Registry()  # a $ref elsewhere is not fetched
    schema = kind(format_closed(FORMAT_SCHEMA), registry=nothing)
    return [format_of(text_of(completion), schema) for completion in completions]


def format_of(text: str, schema: Any) -> float:
    if len(text) > FORMAT_LONGEST:
        return 0.0
    try:
        value = json.loads(text, object_pairs_hook=format_pairs, parse_constant=format_refuse)
        if format_filled(value) and schema.is_valid(value):
            return 1.0
        return format_part(value, schema) if FORMAT_GRADUAL else 0.0
    except (ValueError, RecursionError):
        return 0.0


def format_part(value: Any, schema: Any) -> float:
    """What is paid for JSON that falls short: at most 0.8, and nothing for an object in which nothing is filled."""
    if not isinstance(value, dict) or not any(map(format_filled, value.values())):
        return 0.0
    kinds = schema.schema.get("properties", {})
    required = schema.schema.get("required", list(kinds)) or list(value)
    there = [key for key in required if format_filled(value.get(key))]
    right = [key for key in there if schema.evolve(schema=kinds.get(key, {})).is_valid(value[key])]
    return min(0.8, 0.2 + 0.4 * len(there) / len(required) + 0.4 * len(right) / len(required))


def format_closed(schema: Any) -> Any:
    """The schema with no keys allowed but those it names, where it does not say otherwise."""
    if isinstance(schema, list):
        return [format_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: format_closed(each) for name, each in part.items()}
        if key in ("properties", "$defs", "definitions")
        else format_closed(part)
        if key in ("items", "anyOf", "oneOf")
        else part
        for key, part in schema.items()
    }
    return {"additionalProperties": False, **closed} if "properties" in closed else closed


def format_filled(value: Any) -> bool:
    """False for empty text, lists and objects, and for null, anywhere in the value."""
    if isinstance(value, dict):
        return bool(value) and all(map(format_filled, value.values()))
    if isinstance(value, list):
        return bool(value) and all(map(format_filled, value))
    return value is not None and str(value).strip() != ""


def format_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def format_refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


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
