"""What holds for any rows, any text and any answer: hypothesis looks for the ones for which it does not."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from grpo_tui.child import Worker
from grpo_tui.dataset.faults import Scan, prompt_kind, scan
from grpo_tui.dataset.mapping import RULES
from grpo_tui.dataset.prompts import functions, prepare_function
from grpo_tui.dataset.rows import Row, conform, infer
from grpo_tui.dataset.sources import Source, count_rows, load_call, open_source
from grpo_tui.draft import DatasetAnswer

settings.register_profile(
    "data", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
quick = settings.get_profile("data")

TEXT = st.text(max_size=30)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
NAMES = st.sampled_from(["prompt", "answer", "é", ""])
ROWS = st.lists(st.dictionaries(NAMES, VALUES, min_size=1), min_size=1, max_size=6)

LAYOUTS: dict[str, Callable[[list[Row], bool], str]] = {
    "lines": lambda rows, plain: "\n".join(json.dumps(row, ensure_ascii=plain) for row in rows),
    "blank lines": lambda rows, plain: "\r\n\r\n".join(json.dumps(row, ensure_ascii=plain) for row in rows) + "\r\n",
    "one after the other": lambda rows, plain: "".join(json.dumps(row, ensure_ascii=plain, indent=1) for row in rows),
    "array": lambda rows, plain: json.dumps(rows, ensure_ascii=plain),
}


Read = Callable[..., Source]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Writes a file and opens it."""

    def written(name: str, content: str, options: dict[str, str] | None = None) -> Source:
        path = tmp_path_factory.mktemp("rows") / name
        path.write_bytes(content.encode())
        source = open_source(str(path), options)
        assert isinstance(source, Source), str(source)
        return source

    return written


@quick
@given(rows=ROWS, layout=st.sampled_from(list(LAYOUTS)), plain=st.booleans())
def test_any_rows_come_back_from_json_as_they_were_written(
    read: Read, rows: list[Row], layout: str, plain: bool
) -> None:
    assume(layout == "array" or len(rows) > 1)  # a single object may be meant as a table
    source = read("rows.json", LAYOUTS[layout](rows, plain))
    assert list(source.iterate()) == [conform(row, infer(rows)) for row in rows]
    counted = count_rows(source)
    assert isinstance(counted, Source)
    assert counted.rows == len(rows)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
EMPTY = {"", "NA", "N/A", "nan", "null", "None", "NULL", "NaN", "n/a", "<NA>", "#N/A", "-nan", "-NaN"}


@quick
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_text_comes_back_from_a_delimited_file(
    read: Read, rows: list[tuple[str, str]], delimiter: str, quoting: Any
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
    writer.writerows([("prompt", "answer"), ("a word", "another word"), *rows])  # so that both columns are of text
    source = read("rows.csv", text.getvalue(), {"delimiter": delimiter})
    expected = [("a word", "another word"), *rows]
    assert [tuple(row.values()) for row in source.iterate()] == [
        tuple(None if cell in EMPTY else cell for cell in cells) for cells in expected
    ]


WORDS = st.text("abc é", max_size=5)
ODD = st.sampled_from(["0", "1.50", "true", "null", "007", "[1, 2]", "{}", "NaN", "1e5", " 3 ", '"q"', "1 2"])
CELL_VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([1.5, -0.25]) | WORDS | ODD
MIXED = st.lists(st.dictionaries(NAMES, CELL_VALUES, min_size=1), min_size=2, max_size=6)
NUMBERED = st.sampled_from(
    ["", "1", "2.5", "1e5", "True", "false", "NA", "x", " y", "0x10", "007", "1,5", "-3", "+4", "inf", "1_000"]
)


def told(value: Any) -> Any:
    return value if isinstance(value, str | int | float | list | dict | type(None)) else repr(value)


def agrees(source: Source, library: Worker) -> bool:
    """Are rows and types those that training loads?"""
    loaded = library.call("load", {"load": load_call(source)})
    assert isinstance(loaded, dict), str(loaded)
    assert [{key: told(value) for key, value in row.items()} for row in source.iterate()] == loaded["rows"]
    return bool({column.name: column.type for column in source.columns} == loaded["types"])


@settings(quick, max_examples=25)
@given(rows=MIXED)
def test_rows_of_mixed_types_are_those_that_training_loads(library: Worker, read: Read, rows: list[Row]) -> None:
    assert agrees(read("rows.jsonl", LAYOUTS["lines"](rows, True) + "\n"), library)


@settings(quick, max_examples=25)
@given(rows=st.lists(st.tuples(NUMBERED | WORDS, NUMBERED | WORDS), min_size=1, max_size=5))
def test_cells_of_any_kind_are_those_that_training_loads(
    library: Worker, read: Read, rows: list[tuple[str, str]]
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("prompt", "answer"), *rows])
    assert agrees(read("rows.csv", text.getvalue(), {"delimiter": ","}), library)


ARGUMENTS = {
    "as_is": st.just(""),
    "after_marker": st.text(min_size=1, max_size=5),
    "tag": st.from_regex(r"[A-Za-z][\w.-]{0,5}", fullmatch=True),
    "boxed": st.just(""),
    "letter": st.just(""),
    "regex": st.sampled_from([r"(\d+)", r"\d+", r"(a)|b", r"^$", r"(x)?y"]),
    "json_path": st.sampled_from(["a", "a.b", "a.0", "0", "-1", ".", "a..b"]),
}


@quick
@given(data=st.data(), rule=st.sampled_from(sorted(RULES)), value=VALUES | st.text(max_size=200))
def test_a_rule_gives_text_or_nothing_and_never_fails(data: st.DataObject, rule: str, value: Any) -> None:
    answer = DatasetAnswer(
        prompt="q", answer="a", extract=rule, extract_argument=data.draw(ARGUMENTS[rule]),
        faults={"missing_answer": "keep", "unparsable": "keep"},
    )  # fmt: skip
    row = prepare_function(answer)({"q": "x", "a": value})
    assert row is not None
    assert row["answer"] is None or (isinstance(row["answer"], str) and row["answer"].strip())
    assert row["a"] is value


def extracted(rule: str, argument: str, text: str) -> str | None:
    answer = DatasetAnswer(prompt="q", answer="a", extract=rule, extract_argument=argument)
    found: str | None = functions(answer)["extract"](text)
    return found


WORD = st.from_regex(r"[A-Za-z0-9.+/-]{1,12}", fullmatch=True)


@quick
@given(before=TEXT, marker=st.sampled_from(["####", "A:", "=>"]), word=WORD, after=TEXT)
def test_what_follows_a_marker_is_found(before: str, marker: str, word: str, after: str) -> None:
    assume(marker not in word and marker not in after and not marker.endswith(word[:1]))
    assert extracted("after_marker", marker, f"{before}\n{marker} {word}\n{after}") == word


@quick
@given(before=TEXT, tag=ARGUMENTS["tag"], inside=st.text(max_size=30), after=TEXT)
def test_what_is_inside_a_tag_is_found(before: str, tag: str, inside: str, after: str) -> None:
    assume(f"<{tag}>" not in before + inside + after and f"</{tag}>" not in inside)
    assert extracted("tag", tag, f"{before}<{tag}>{inside}</{tag}>{after}") == (inside.strip() or None)


BALANCED = st.recursive(
    st.text(st.characters(codec="utf-8", exclude_characters="{}\\"), max_size=6),
    lambda inner: st.builds("{}{{{}}}".format, inner, inner) | st.builds("{}{}".format, inner, inner),
    max_leaves=6,
)


@quick
@given(before=TEXT, inside=BALANCED, after=st.text(st.characters(codec="utf-8", exclude_characters="\\"), max_size=10))
def test_what_is_boxed_is_found_with_its_braces(before: str, inside: str, after: str) -> None:
    assert extracted("boxed", "", f"{before}\\boxed{{{inside}}}{after}") == (inside.strip() or None)


@quick
@given(path=st.lists(WORD.filter(lambda word: "." not in word), min_size=1, max_size=4), value=WORD)
def test_what_is_at_the_end_of_a_path_is_found_in_json_and_by_a_dotted_column(path: list[str], value: str) -> None:
    nested: Any = value
    for name in reversed(path):
        nested = {name: nested}
    assert extracted("json_path", ".".join(path), json.dumps(nested)) == value
    row = prepare_function(DatasetAnswer(prompt="q", answer=".".join(["a", *path])))({"q": "x", "a": nested})
    assert row is not None
    assert row["answer"] == value


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", None]), "content": st.none() | TEXT},
        optional={"from": st.sampled_from(["human", "gpt", "system", None, 3]), "value": st.none() | TEXT},
    ),
    max_size=4,
)


@quick
@given(
    prompts=st.lists(VALUES | MESSAGES, min_size=1, max_size=8),
    plain=st.booleans(),
    system=st.sampled_from(["", "S"]),
    share=st.sampled_from([0.0, 0.5]),
    choice=st.sampled_from(["keep", "leave_out"]),
)
def test_the_pass_counts_what_the_code_trains_on(
    prompts: list[Any], plain: bool, system: str, share: float, choice: str
) -> None:
    answer = DatasetAnswer(prompt="prompt", plain=plain, system=system, eval_share=share, faults={"duplicate": choice})
    rows: list[Row] = [{"prompt": prompt} for prompt in prompts]
    result = scan(rows, answer)
    assert isinstance(result, Scan)
    made = functions(answer)
    assert result.usable == len(list(made["prepare_rows"](rows)))
    if not plain and not system:
        assert [made["prepare"](row) is not None for row in rows] == [
            prompt_kind(prompt) in ("text", "messages") for prompt in prompts
        ]
