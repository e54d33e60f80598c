"""A wanted format, described once: rewards that pay for it, outputs that keep and break it, and tests of the rewards.

A format is a layout of tags or a JSON schema. It is given by words (`reasoning, answer`), by a schema, or by an example
from which tags or keys are read.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.rewards.kinds import Proposal
from grpo_tui.rewards.writing import literal, render_rewards

NAME = re.compile(r"[A-Za-z_][\w.-]*")
TAG = re.compile(r"<(/?)([A-Za-z_][\w.-]*)>")


@dataclass(frozen=True, kw_only=True)
class Tag:
    """One tag, which stands in the output exactly once."""

    name: str
    inside: tuple["Tag", ...] = ()
    """Tags that stand in it, in order; it then holds nothing else."""

    may_be_empty: bool = False


@dataclass(frozen=True, kw_only=True)
class FormatSpec:
    """What an output must look like: tags in order, or JSON that a schema accepts."""

    tags: tuple[Tag, ...] = ()
    around: bool = False
    """Text may stand outside the tags."""

    schema: Mapping[str, Any] | None = None

    @property
    def template(self) -> str:
        """The strict template of the catalogue."""
        return "json_schema" if self.schema is not None else "tags"

    @property
    def parameters(self) -> dict[str, Any]:
        """What that template, or the gradual one, is given."""
        if self.schema is not None:
            return {"schema": dict(self.schema)}
        empty = tuple(tag.name for tag in _all(self.tags) if tag.may_be_empty)
        return {"tags": tuple(map(_nested, self.tags)), "empty": empty, "around": self.around}

    @property
    def words(self) -> str:
        """The format as one says it, for the system prompt."""
        if self.schema is not None:
            return "one JSON value and nothing else, of this schema: " + json.dumps(self.schema, ensure_ascii=False)
        return "".join(_written(self.tags, lambda tag: "…"))


def read(text: str) -> FormatSpec | Problem:
    """A format however it is told: a JSON schema, an example with tags or JSON in it, or a list of tags."""
    kept = text.strip()
    if kept.startswith("{"):
        schema = from_schema(kept)
        return schema if not isinstance(schema, Problem) and _reads_as_schema(kept) else from_example(kept)
    return from_example(kept) if TAG.search(kept) or kept.startswith("[") else from_text(kept)


def _reads_as_schema(text: str) -> bool:
    """Whether a JSON object is meant as a schema: it speaks of types, not of values."""
    value = json.loads(text)
    return isinstance(value, dict) and bool(
        {"$schema", "type", "properties", "required", "anyOf", "oneOf"} & set(value)
    )


def from_text(text: str) -> FormatSpec | Problem:
    """Tags by their names in order: `reasoning, answer(value, unit), note?`; `?` is one that may be empty."""
    tokens = re.findall(r"[A-Za-z_][\w.-]*|[^\s]", text)
    tags, rest = _read_tags(tokens)
    if rest or not tags:
        told = f"`{one_line(text, 80)}` is no list of tags" + (f", from `{rest[0]}` on." if rest else ".")
        return Problem("format", told, "Write names with commas, as in: reasoning, answer(value, unit).")
    return _checked(FormatSpec(tags=tags))


def from_schema(text: str) -> FormatSpec | Problem:
    """A JSON schema as text."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Problem(
            "format", f"The schema is no JSON: {one_line(str(error), 120)}.", "Correct it, or paste it anew."
        )
    if not isinstance(schema, dict) or not schema:
        return Problem("format", "A schema is a JSON object.", 'Begin with {"type": "object", "properties": …}.')
    return _checked(FormatSpec(schema=schema))


def from_example(text: str) -> FormatSpec | Problem:
    """The format that an example output shows: its tags, or the keys and kinds of its JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict | list) and value:
        return _checked(FormatSpec(schema=_schema_of(value)))
    stack: list[tuple[str, list[Tag], str]] = [("", [], "")]
    end = 0
    for found in TAG.finditer(text):
        closes, name = found[1] == "/", found[2]
        outer, inside, said = stack.pop()
        stack.append((outer, inside, said + text[end : found.start()]))
        end = found.end()
        if not closes:
            stack.append((name, [], ""))
            continue
        opened, inner, body = stack.pop()
        if opened != name:
            told = f"</{name}> closes <{opened}>." if opened else f"</{name}> closes nothing."
            return Problem("example", told, "Give an example in which every tag is opened and closed.")
        if inner and body.strip():
            return Problem("example", f"<{name}> holds tags and text of its own.", "Put that text into a tag, too.")
        stack[-1][1].append(Tag(name=name, inside=tuple(inner), may_be_empty=not inner and not body.strip()))
    (outer, tags, said) = stack[-1]
    if outer:
        return Problem("example", f"<{outer}> is never closed.", "Give an example in which every tag is closed.")
    if not tags:
        return Problem("example", "It holds no tags and is no JSON.", "Give an example such as <answer>42</answer>.")
    around = bool((said + text[end:]).strip())
    return _checked(FormatSpec(tags=tuple(tags), around=around))


def strict_code(spec: FormatSpec, name: str = "format") -> str:
    """A `rewards.py` with the function that pays 1 for outputs of this format and 0 for all others."""
    return render_rewards([_choice(spec.template, name, spec.parameters)])


def gradual_code(spec: FormatSpec, name: str = "format_gradual") -> str:
    """A `rewards.py` with a function that pays for parts too, in full only for the whole: to start learning with."""
    if spec.schema is not None:
        return render_rewards([_choice("json_schema", name, {**spec.parameters, "gradual": True})])
    return render_rewards([_choice("tags_gradual", name, spec.parameters)])


@dataclass(frozen=True, kw_only=True)
class Output:
    """One output, and whether it keeps the format."""

    text: str
    complies: bool
    why: str
    """What is special about it, in a few words."""


def samples(spec: FormatSpec) -> tuple[Output, ...]:
    """Outputs that keep the format and outputs that break it in one way each, those that keep it first."""
    made = dict(_kept(spec))
    broken = {why: text for why, text in _broken(spec, next(iter(made.values()))) if text not in made.values()}
    return (
        *(Output(text=text, complies=True, why=why) for why, text in made.items()),
        *(Output(text=text, complies=False, why=why) for why, text in broken.items()),
    )


def pytest_code(spec: FormatSpec, name: str = "format", file: str = "rewards.py", full: float = 1.0) -> str:
    """A pytest file beside `file` that shows: full credit for outputs of the format, and for no other."""
    outputs = samples(spec)
    return TESTS.format(
        file=json.dumps(file),
        name=name,
        full=repr(full),
        kept=_listed([(each.why, each.text) for each in outputs if each.complies]),
        broken=_listed([(each.why, each.text) for each in outputs if not each.complies]),
    )


TESTS = '''"""The format reward pays in full for outputs of the format, and for no other."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("rewards_of_the_format", Path(__file__).with_name({file}))
REWARDS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(REWARDS)

FULL = {full}
KEPT = {kept}
BROKEN = {broken}


def paid(text):
    """What one completion earns, plain and as a chat message alike."""
    shapes = [text, [{{"role": "assistant", "content": text}}]]
    plain, chat = REWARDS.{name}(completions=shapes, prompts=["", ""], completion_ids=[[], []], trainer_state=None)
    assert plain == chat
    return plain


@pytest.mark.parametrize("why", KEPT)
def test_an_output_of_the_format_is_paid_in_full(why):
    assert paid(KEPT[why]) == FULL


@pytest.mark.parametrize("why", BROKEN)
def test_an_output_that_breaks_the_format_is_not_paid_in_full(why):
    assert paid(BROKEN[why]) < FULL
'''


def _choice(template: str, name: str, parameters: Mapping[str, Any]) -> Proposal:
    return Proposal(template=template, name=name, parameters=parameters, weight=1.0, why="")


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"    {literal(why)}: {json.dumps(text, ensure_ascii=True)},\n" for why, text in pairs)
    return "{\n" + items + "}"


def _all(tags: Sequence[Tag]) -> Iterator[Tag]:
    for tag in tags:
        yield tag
        yield from _all(tag.inside)


def _nested(tag: Tag) -> Any:
    return (tag.name, tuple(map(_nested, tag.inside))) if tag.inside else tag.name


def _checked(spec: FormatSpec) -> FormatSpec | Problem:
    """The format, unless it cannot be kept."""
    names = [tag.name for tag in _all(spec.tags)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return Problem("format", f"<{twice[0]}> stands there twice.", "Give each tag a name of its own.")
    return (_schema_problem(spec.schema) if spec.schema is not None else None) or spec


def _schema_problem(schema: Mapping[str, Any]) -> Problem | None:
    """Why no output of the schema can be made, and so none of its tests."""
    none_made = Problem("schema", "No output of it could be thought of.", 'Add one to it: "examples": […].')
    try:
        value = _instance(schema, schema)
    except (AttributeError, KeyError, TypeError, ValueError):
        return Problem("schema", "It is no JSON schema.", "Correct it: see https://json-schema.org/learn.")
    try:
        import jsonschema
        import referencing
    except ImportError:  # it is not needed to write the reward, only to run it
        return none_made if value is None else None
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    nothing: Any = referencing.Registry()  # a $ref elsewhere is not fetched
    try:
        kind.check_schema(schema)
        return none_made if value is None or not kind(schema, registry=nothing).is_valid(value) else None
    except jsonschema.SchemaError as error:
        return Problem("schema", f"It is no JSON schema: {one_line(error.message, 160)}.", "Correct it.")
    except referencing.exceptions.Unresolvable as error:
        return Problem("schema", f"It refers to what is not in it: {one_line(str(error), 160)}.", "Copy that into it.")


def _read_tags(tokens: Sequence[str]) -> tuple[tuple[Tag, ...], Sequence[str]]:
    """The tags at the start of the tokens, and the tokens left over."""
    tags: list[Tag] = []
    while tokens and NAME.fullmatch(tokens[0]):
        name, tokens = tokens[0], tokens[1:]
        inside: tuple[Tag, ...] = ()
        if tokens[:1] == ["("]:
            inside, after = _read_tags(tokens[1:])
            if not inside or after[:1] != [")"]:
                return tuple(tags), tokens
            tokens = after[1:]
        may_be_empty = tokens[:1] == ["?"] and not inside
        tags.append(Tag(name=name, inside=inside, may_be_empty=may_be_empty))
        tokens = tokens[1:] if may_be_empty else tokens
        if tokens[:1] != [","] or len(tokens) < 2:
            break
        tokens = tokens[1:]
    return tuple(tags), tokens


def _written(tags: Sequence[Tag], body: Any, gap: str = "") -> list[str]:
    """The tags one after another, each with its body or the tags inside; `gap` stands between any two."""
    pieces = []
    for tag in tags:
        inner = gap + gap.join(_written(tag.inside, body, gap)) + gap if tag.inside else body(tag)
        pieces.append(f"<{tag.name}>{inner}</{tag.name}>")
    return pieces


def _kept(spec: FormatSpec) -> Iterator[tuple[str, str]]:
    if spec.schema is not None:
        value = _instance(spec.schema, spec.schema)
        yield "in one line", json.dumps(value)
        yield "over several lines", "\n" + json.dumps(value, indent=2) + "\n"
        if isinstance(value, dict) and len(value) > 1:
            yield "keys in another order", json.dumps(dict(reversed(value.items())))
        return
    yield "as short as it can be", "".join(_written(spec.tags, lambda tag: "4"))
    yield "over several lines", "\n".join(_written(spec.tags, lambda tag: "\nfirst\n\nthen 3 < 4\n", "\n")) + "\n"
    if any(tag.may_be_empty for tag in _all(spec.tags)):
        yield "empty where it may be", "".join(_written(spec.tags, lambda tag: "" if tag.may_be_empty else "4"))
    if spec.around:
        yield "with text around", "Well: " + " so ".join(_written(spec.tags, lambda tag: "4")) + " That is it."


def _broken(spec: FormatSpec, right: str) -> Iterator[tuple[str, str]]:
    """Outputs with one fault each; `right` is one without."""
    yield "nothing", ""
    yield "other text", "The answer is 4."
    yield "twice", f"{right} {right}"
    if right[-1] in '>}]"':
        yield "cut off", right[:-1]
    yield from _broken_json(spec.schema, right) if spec.schema is not None else _broken_tags(spec, right)


def _broken_json(schema: Mapping[str, Any], right: str) -> Iterator[tuple[str, str]]:
    value = json.loads(right)
    yield "text after it", right + " I hope this helps."
    yield "text before it", "Here it is: " + right
    yield "in a fence", f"```json\n{right}\n```"
    yield "nested for ever", "[" * 5000
    if isinstance(value, dict):
        yield "an empty object", "{}"
        key = next(iter(value))
        yield "a key twice", right[:-1] + f", {json.dumps(key)}: {json.dumps(value[key])}" + "}"
        if schema.get("additionalProperties") in (None, False) and "properties" in schema:
            yield "a key too many", json.dumps({**value, "something_else": 1})
        for key in (key for key in schema.get("required", ()) if key in value):
            yield f"without {key}", json.dumps({name: each for name, each in value.items() if name != key})
            yield f"{key} empty", json.dumps({**value, key: ""})


def _broken_tags(spec: FormatSpec, right: str) -> Iterator[tuple[str, str]]:
    tags = spec.tags
    if len(tags) > 1:
        yield "in the wrong order", "".join(reversed(_written(tags, lambda tag: "4")))
    if not spec.around:
        yield "text before it", "Sure! " + right
        yield "text after it", right + " Done."
        yield "2,000 characters after it", right + "x" * 2000
        yield "in a fence", f"```\n{right}\n```"
    yield "in capitals", right.upper() if right.upper() != right else right.lower()
    yield "many times", right * 50
    yield "closed before opened", re.sub(r"<(/?)(\w[^>]*)>", lambda tag: f"<{'' if tag[1] else '/'}{tag[2]}>", right)
    for tag in _all(tags):
        start, end = f"<{tag.name}>", f"</{tag.name}>"
        yield f"without {start}", right.replace(start, "")
        yield f"without {end}", right.replace(end, "")
        yield f"{end} twice", right.replace(end, end + end)
        yield f"{start} named and then used", right.replace(start, f"{start}{start}")
        if not tag.may_be_empty and not tag.inside:
            yield f"{start} empty", right.replace(f"{start}4{end}", start + end)
            yield f"{start} with spaces only", right.replace(f"{start}4{end}", f"{start} \n{end}")
        if tag.inside and not spec.around:
            yield f"text straight in {start}", right.replace(start, f"{start}so ")


def _schema_of(value: Any) -> dict[str, Any]:
    """The schema of an example: its keys, all required, and the kinds of its values."""
    if isinstance(value, dict):
        properties = {key: _schema_of(each) for key, each in value.items()}
        return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}
    if isinstance(value, list):
        kinds = [_schema_of(each) for each in value]
        same = kinds and all(kind == kinds[0] for kind in kinds)
        return {"type": "array", "items": kinds[0], "minItems": 1} if same else {"type": "array"}
    kinds_by_type = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": kinds_by_type[type(value)]} if type(value) in kinds_by_type else {}


def _instance(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """A filled value that the schema accepts; None if none can be thought of."""
    if not isinstance(schema, Mapping) or depth > 20:
        return "text" if schema is True else None
    for given in ("examples", "enum"):
        if schema.get(given):
            return schema[given][0]
    if "const" in schema:
        return schema["const"]
    if str(schema.get("$ref", "")).startswith("#/"):
        target: Any = root
        for step in schema["$ref"][2:].split("/"):
            target = target.get(step) if isinstance(target, Mapping) else None
        return _instance(target, root, depth + 1)
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        return _instance(choice, root, depth + 1)
    if "pattern" in schema or "format" in schema:
        return None
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((each for each in kind if each != "null"), "null") if isinstance(kind, list) else kind
    if kind == "object":
        names = [*schema.get("properties", {})] or ["key"]
        parts = schema.get("properties", {"key": {}})
        made = {name: _instance(parts[name], root, depth + 1) for name in names}
        return None if any(each is None for each in made.values()) else made
    if kind == "array":
        count = max(1, schema.get("minItems", 1))
        made_items = [_instance(schema.get("items", {}), root, depth + 1) for _ in range(count)]
        return None if None in made_items else made_items
    if kind == "string":
        longest = schema.get("maxLength", 100)
        return "text".ljust(schema.get("minLength", 0), "x")[:longest] or None
    if kind in ("integer", "number"):
        step = schema.get("multipleOf", 1)
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + step)
        number = -(-least // step) * step
        return min(number, schema["maximum"]) if "maximum" in schema else number
    return {"boolean": True}.get(str(kind))
