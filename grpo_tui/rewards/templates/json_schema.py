"""Template: JSON that a schema accepts."""

import json
from typing import Any

from grpo_tui.rewards.templates.text_of import text_of

JSON_SCHEMA_SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
JSON_SCHEMA_GRADUAL = False  # pay for parts: 0.2 it is JSON, 0.4 the required keys, 0.4 values of the right kind
JSON_SCHEMA_LONGEST = 100_000  # characters; longer text is not parsed


def json_schema(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 for one JSON value that the schema accepts, filled, without other keys and with nothing around it, else 0."""
    try:
        import jsonschema
        import referencing
    except ImportError as error:
        raise ImportError("This reward needs jsonschema: pip install jsonschema") from error
    kind = jsonschema.validators.validator_for(JSON_SCHEMA_SCHEMA, jsonschema.Draft202012Validator)
    nothing: Any = referencing.Registry()  # a $ref elsewhere is not fetched
    schema = kind(json_schema_closed(JSON_SCHEMA_SCHEMA), registry=nothing)
    return [json_schema_of(text_of(completion), schema) for completion in completions]


def json_schema_of(text: str, schema: Any) -> float:
    if len(text) > JSON_SCHEMA_LONGEST:
        return 0.0
    try:
        value = json.loads(text, object_pairs_hook=json_schema_pairs, parse_constant=json_schema_refuse)
        if json_schema_filled(value) and schema.is_valid(value):
            return 1.0
        return json_schema_part(value, schema) if JSON_SCHEMA_GRADUAL else 0.0
    except (ValueError, RecursionError):
        return 0.0


def json_schema_part(value: Any, schema: Any) -> float:
    """What is paid for JSON that falls short: at most 0.8, and nothing for an object in which nothing is filled."""
    if not isinstance(value, dict) or not any(map(json_schema_filled, value.values())):
        return 0.0
    kinds = schema.schema.get("properties", {})
    required = schema.schema.get("required", list(kinds)) or list(value)
    there = [key for key in required if json_schema_filled(value.get(key))]
    right = [key for key in there if schema.evolve(schema=kinds.get(key, {})).is_valid(value[key])]
    return min(0.8, 0.2 + 0.4 * len(there) / len(required) + 0.4 * len(right) / len(required))


def json_schema_closed(schema: Any) -> Any:
    """The schema with no keys allowed but those it names, where it does not say otherwise."""
    if isinstance(schema, list):
        return [json_schema_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: json_schema_closed(each) for name, each in part.items()}
        if key in ("properties", "$defs", "definitions")
        else json_schema_closed(part)
        if key in ("items", "anyOf", "oneOf")
        else part
        for key, part in schema.items()
    }
    return {"additionalProperties": False, **closed} if "properties" in closed else closed


def json_schema_filled(value: Any) -> bool:
    """False for empty text, lists and objects, and for null, anywhere in the value."""
    if isinstance(value, dict):
        return bool(value) and all(map(json_schema_filled, value.values()))
    if isinstance(value, list):
        return bool(value) and all(map(json_schema_filled, value))
    return value is not None and str(value).strip() != ""


def json_schema_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def json_schema_refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
