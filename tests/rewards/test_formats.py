"""Format specifications: read from words, schemas and examples; paid strictly; and tested by tests that can fail."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_tui.problem import Problem
from grpo_tui.rewards.formats import (
    FormatSpec,
    Tag,
    from_example,
    from_schema,
    from_text,
    gradual_code,
    pytest_code,
    samples,
    strict_code,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 1, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "home": {"$ref": "#/$defs/home"},
    },
    "required": ["name", "age"],
    "$defs": {"home": {"type": "object", "properties": {"street": {"type": ["null", "string"]}}}},
}
SPECS = {
    "two tags": from_text("reasoning, answer"),
    "one tag": from_text("answer"),
    "tags in a tag": from_text("think?, answer(value, unit)"),
    "text around": FormatSpec(tags=(Tag(name="answer"),), around=True),
    "an example of tags": from_example("<plan>\nfirst this\n</plan>\n<code>x = 1</code>"),
    "a schema": from_schema(json.dumps(SCHEMA)),
    "an example of JSON": from_example(
        '{"city": "Rome", "people": 2.8, "old": true, "of": ["it", "eu"], "at": {"x": 1}}'
    ),
    "a list": from_schema('{"type": "array", "items": {"type": "number"}}'),
}


def spec_of(kind: str) -> FormatSpec:
    spec = SPECS[kind]
    assert not isinstance(spec, Problem), spec
    return spec


def paying(code: str, name: str = "format") -> Any:
    """The reward of one text."""
    names: dict[str, Any] = {}
    exec(compile(code, "rewards.py", "exec"), names)
    return lambda text: names[name](completions=[text])[0]


@pytest.mark.parametrize("kind", SPECS)
def test_only_outputs_of_the_format_are_paid_and_the_gradual_reward_is_full_for_no_other(kind: str) -> None:
    spec = spec_of(kind)
    strict, gradual = paying(strict_code(spec)), paying(gradual_code(spec), "format_gradual")
    outputs = samples(spec)
    assert sum(each.complies for each in outputs) >= 2
    assert sum(not each.complies for each in outputs) >= 8
    assert len({each.text for each in outputs}) == len(outputs)
    for output in outputs:
        assert strict(output.text) == float(output.complies), output
        assert (gradual(output.text) == 1.0) is output.complies, output


@pytest.mark.parametrize("kind", SPECS)
def test_the_tests_pass_for_the_strict_reward_and_fail_for_one_that_can_be_gamed(kind: str, tmp_path: Path) -> None:
    spec = spec_of(kind)
    (tmp_path / "test_format.py").write_text(pytest_code(spec))

    def run(code: str) -> str:
        (tmp_path / "rewards.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_format.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert f"{len(samples(spec))} passed" in run(strict_code(spec))
    if kind in ("two tags", "a schema"):
        gamed = run(
            "def format(completions, **kwargs):\n    return [float(len(str(each)) > 60) for each in completions]\n"
        )
        assert "test_an_output_that_breaks_the_format_is_not_paid_in_full" in gamed
        assert "failed" in gamed


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("reasoning, answer", "<reasoning>…</reasoning><answer>…</answer>"),
        (" answer ", "<answer>…</answer>"),
        ("a, b(c, d(e)), f?", "<a>…</a><b><c>…</c><d><e>…</e></d></b><f>…</f>"),
    ],
)
def test_tags_are_read_from_their_names(text: str, layout: str) -> None:
    spec = from_text(text)
    assert isinstance(spec, FormatSpec)
    assert spec.words == layout
    assert [tag.may_be_empty for tag in spec.tags if tag.name == "f"] in ([], [True])


@pytest.mark.parametrize(
    "text", ["", "a b", "a,", ",a", "a(", "a()", "a(b", "a)", "<a>", "a, a", "a(a)", "1", "a(b)?", "a??", "ä ö"]
)
def test_what_names_no_tags_is_a_problem(text: str) -> None:
    problem = from_text(text)
    assert isinstance(problem, Problem)
    assert problem.what
    assert problem.remedy


@pytest.mark.parametrize(
    ("example", "tags", "around"),
    [
        ("<think>so</think><answer>4</answer>", (Tag(name="think"), Tag(name="answer")), False),
        ("<think></think>\n<answer>4</answer>\n", (Tag(name="think", may_be_empty=True), Tag(name="answer")), False),
        ("So <answer>4</answer>.", (Tag(name="answer"),), True),
        ("<a><b>1</b> <c>2 < 3</c></a>", (Tag(name="a", inside=(Tag(name="b"), Tag(name="c"))),), False),
    ],
)
def test_tags_are_read_from_an_example(example: str, tags: tuple[Tag, ...], around: bool) -> None:
    assert from_example(example) == FormatSpec(tags=tags, around=around)


@pytest.mark.parametrize(
    "example",
    [
        "",
        "just text",
        "<a>",
        "</a>",
        "<a><b></a></b>",
        "<a>1</a><a>2</a>",
        "<a>so <b>1</b></a>",
        "{}",
        "[",
        "3",
        "<a>1</b>",
    ],
)
def test_what_is_no_example_is_a_problem(example: str) -> None:
    assert isinstance(from_example(example), Problem)


def test_an_example_is_always_an_output_of_its_format() -> None:
    for example in (
        "<think>so</think> <answer>4</answer>",
        "So: <a><b>1</b><c>2</c></a>!",
        '{"a": [1, 2], "b": {"c": "x"}}',
    ):
        spec = from_example(example)
        assert isinstance(spec, FormatSpec)
        assert paying(strict_code(spec))(example) == 1.0


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("", "no JSON"),
        ("[]", "object"),
        ('{"type": "oject"}', "no JSON schema"),
        ('{"properties": []}', "no JSON schema"),
        ('{"type": "string", "pattern": "^A$"}', "No output"),
        ('{"type": "object", "properties": {"a": false}}', "No output"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}', "No output"),
        ('{"$ref": "http://127.0.0.1:9/schema.json"}', "refers to what is not in it"),
        ('{"type": "integer", "minimum": 5, "maximum": 4}', "No output"),
    ],
)
def test_a_schema_of_which_no_output_can_be_made_is_a_problem(schema: str, said: str) -> None:
    problem = from_schema(schema)
    assert isinstance(problem, Problem)
    assert said in problem.what


def test_a_schema_may_bring_its_own_examples() -> None:
    spec = from_schema('{"type": "string", "pattern": "^A[0-9]$", "examples": ["A7"]}')
    assert isinstance(spec, FormatSpec)
    assert samples(spec)[0].text == '"A7"'


bodies = st.text(st.characters(codec="utf-8", exclude_characters="<>"), max_size=20)


@settings(max_examples=50, deadline=None)
@given(first=bodies, second=bodies, between=st.text(" \n\t", max_size=3))
def test_two_tags_are_paid_exactly_when_both_are_filled(first: str, second: str, between: str) -> None:
    text = f"<reasoning>{first}</reasoning>{between}<answer>{second}</answer>"
    assert STRICT(text) == float(bool(first.strip() and second.strip()))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["<reasoning>", "</reasoning>", "<answer>", "</answer>", "4", " "]), max_size=8))
def test_no_other_order_of_tags_is_paid(pieces: list[str]) -> None:
    full = [piece for piece in pieces if piece.strip()]
    merged = [piece for at, piece in enumerate(full) if not (piece == "4" and at and full[at - 1] == "4")]
    complies = merged == ["<reasoning>", "4", "</reasoning>", "<answer>", "4", "</answer>"]
    assert STRICT("".join(pieces)) == float(complies)
    assert (GRADUAL("".join(pieces)) == 1.0) is complies


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_whatever_is_written_is_read_or_refused_and_nothing_raises(text: str) -> None:
    for read in (from_text, from_example, from_schema):
        assert isinstance(read(text), FormatSpec | Problem)
    assert STRICT(text) == 0.0


STRICT = paying(strict_code(FormatSpec(tags=(Tag(name="reasoning"), Tag(name="answer")))))
GRADUAL = paying(gradual_code(FormatSpec(tags=(Tag(name="reasoning"), Tag(name="answer")))), "format_gradual")
