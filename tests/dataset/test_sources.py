"""Sources of rows: what is shown is what training reads, and what is broken is named."""

import bz2
import csv
import io
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from grpo_tui.child import Worker
from grpo_tui.dataset import source as opened_source
from grpo_tui.dataset.json_rows import JSONRows
from grpo_tui.dataset.rows import BrokenRow, UnreadableError
from grpo_tui.dataset.sources import (
    Source,
    count_rows,
    fingerprint,
    is_hub_id,
    load_call,
    open_source,
    repair,
    sample,
)
from grpo_tui.problem import Problem

Open = Callable[..., Source]
Write = Callable[..., Path]

BOM = b"\xef\xbb\xbf"


def told(value: Any) -> Any:
    return value if isinstance(value, str | int | float | list | dict | type(None)) else repr(value)


AGREED: dict[str, str | bytes] = {
    "lines.jsonl": '{"prompt":"a","answer":1}\n{"prompt":"b","answer":2}\n',
    "bom.jsonl": BOM + b'{"prompt":"a","answer":"1"}\n{"prompt":"b","answer":"2"}\n',
    "blank.jsonl": '{"prompt":"a"}\n\n{"prompt":"b"}\n',
    "windows.jsonl": b'{"prompt":"a"}\r\n\r\n{"prompt":"b"}\r\n',
    "pretty.jsonl": '{\n "prompt":"a"\n}\n{\n "prompt":"b"\n}\n',
    "glued.jsonl": '{"prompt":"a"}{"prompt":"b"}\n',
    "no_last_newline.jsonl": '{"prompt":"a"}\n{"prompt":"b"}',
    "ragged.jsonl": '{"prompt":"a","answer":"1"}\n{"prompt":"b"}\n{"prompt":"c","answer":"3","level":2}',
    "numbers.jsonl": '{"n":1,"m":1}\n{"n":2.5,"m":2}\n',
    "mixed.jsonl": '{"v":1}\n{"v":"x"}\n',
    "mixed_digits.jsonl": '{"v":"7"}\n{"v":"007"}\n{"v":true}\n{"v":"[1, 2]"}\n{"v":"NaN"}\n{"v":"seven"}\n',
    "gaps_in_truth.csv": "a,b\nTrue,x\n,y\n",
    "chat_and_plain.jsonl": '{"prompt":"W"}\n{"prompt":[{"role":"user","content":"x"}]}\n',
    "objects.jsonl": '{"o":{"x":1}}\n{"o":{"x":2}}\n',
    "dates.jsonl": '{"answer":"2020-01-01","at":"2020-01-01T10:00:00Z"}\n{"answer":"2021-12-31","at":null}\n',
    "nothing.jsonl": '{"a":null,"b":"x"}\n{"a":null,"b":"y"}\n',
    "null_row.jsonl": '{"a":"x"}\nnull\n{"a":"y"}\n',
    "array.json": '[\n {"a":1},\n {"a":2}\n]',
    "strings.json": '["a","b"]',
    "wrapped.json": '{"version":"1","data":[{"a":1,"b":"x"},{"a":2,"b":"y"}]}',
    "columns.json": '{"a":[1,2],"b":["x","y"]}',
    "indexed.json": '{"a":{"0":1,"1":2},"b":{"0":"x","1":"y"}}',
    "one.json": '{"a":1,"messages":[{"role":"user","content":"x"}]}',
    "utf16.jsonl": '{"prompt":"café"}\n{"prompt":"b"}\n'.encode("utf-16"),
    "latin.jsonl": '{"prompt":"café"}\n{"prompt":"b"}\n'.encode("latin-1"),
    "plain.csv": "prompt,answer\na,1\nb,2\n",
    "bom.csv": BOM + b"prompt,answer\na,1\n",
    "blank.csv": "prompt,answer\n\na,1\n\nb,2\n",
    "quoted.csv": 'prompt,answer\n"a\nb, c",1\n"say ""hi""",2\n',
    "missing.csv": "prompt,answer\na,1\nb,\nc,3\n",
    "short.csv": "prompt,answer\na\nb,2\n",
    "words_for_nothing.csv": "prompt,answer\nNA,007\nnull,1\nsome,2\n",
    "kinds.csv": "a,b,c,d\nTrue,1.0,2020-01-01,1e5\nFalse,2.5,2020-01-02,7\n",
    "twice.csv": "a,a,\n1,2,3\n",
    "semicolon.csv": "prompt;answer\nwhat is 1,5 + 2?;3,5\nand 2?;4,25\n",
    "tabs.tsv": "a\tb\nx\t1\n",
    "bar.csv": "a|b\nx, y|1\nz|2\n",
    "cp1252.csv": "prompt,answer\ncafé – “so”,1\n".encode("cp1252"),
    "utf16.csv": "prompt,answer\ncafé,1\n".encode("utf-16"),
}


@pytest.mark.parametrize("name", AGREED)
def test_rows_columns_and_types_are_those_that_training_loads(
    library: Worker, write: Write, opened: Open, name: str
) -> None:
    source = opened(write(name, AGREED[name]))
    loaded = library.call("load", {"load": load_call(source)})
    assert isinstance(loaded, dict), str(loaded)
    assert [{key: told(value) for key, value in row.items()} for row in source.iterate()] == loaded["rows"]
    assert {column.name: column.type for column in source.columns} == loaded["types"]
    assert (source.rows, source.rows_exact) == (len(loaded["rows"]), True)


def test_parquet_and_folders_of_it_agree_with_training(library: Worker, tmp_path: Path, opened: Open) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"prompt": [{"role": "user", "content": str(n)}], "answer": n / 2, "meta": {"n": n}} for n in range(1500)]
    for part in range(2):
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows[part * 900 : (part + 1) * 900]),
            tmp_path / f"train-{part}.parquet",
            row_group_size=400,
        )
    for path in (tmp_path / "train-0.parquet", tmp_path):
        source = opened(path)
        loaded = library.call("load", {"load": load_call(source)})
        assert isinstance(loaded, dict), str(loaded)
        assert list(source.iterate()) == loaded["rows"]
        assert {column.name: column.type for column in source.columns} == loaded["types"]
    assert source.rows == 1500
    assert [source.row(n) for n in (0, 399, 400, 899, 900, 1499, 1500)] == [
        *(rows[n] for n in (0, 399, 400, 899, 900, 1499)),
        None,
    ]


def test_a_folder_of_save_to_disk_is_read_and_of_several_splits_the_training_one(
    library: Worker, tmp_path: Path, opened: Open
) -> None:
    mixed = [{"prompt": "a", "v": 1}, {"prompt": "b", "v": "x"}, {"prompt": "c", "v": None}]
    library.call("save", {"folder": str(tmp_path / "one"), "splits": {"train": mixed}})
    library.call("save", {"folder": str(tmp_path / "two"), "splits": {"test": mixed[:1], "train": mixed}})
    for folder, split in (("one", ""), ("two", ""), ("two", "test")):
        source = opened(tmp_path / folder, split=split)
        loaded = library.call("load", {"load": load_call(source)})
        assert isinstance(loaded, dict), str(loaded)
        assert list(source.iterate()) == loaded["rows"]
        assert {column.name: column.type for column in source.columns} == loaded["types"]
        assert source.rows == len(loaded["rows"])
    assert opened(tmp_path / "two").split == "train"
    assert opened(tmp_path / "two").splits == ("test", "train")
    problem = open_source(str(tmp_path / "two"), split="dev")
    assert isinstance(problem, Problem)
    assert "test, train" in problem.remedy


def test_a_folder_without_data_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    problem = open_source(str(tmp_path))
    assert isinstance(problem, Problem)
    assert "dataset_dict.json" in problem.what
    assert ".parquet" in problem.what


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("bom.jsonl", AGREED["bom.jsonl"], "byte-order mark removed"),
        ("bom.csv", AGREED["bom.csv"], "byte-order mark removed"),
        ("cp1252.csv", AGREED["cp1252.csv"], "fails at byte 17"),
        ("utf16.jsonl", AGREED["utf16.jsonl"], "UTF-16"),
        ("powershell.jsonl", '{"prompt":"café"}\n'.encode("utf-16-le"), "UTF-16-LE"),
        ("semicolon.csv", AGREED["semicolon.csv"], "semicolon"),
        ("semicolon.csv", AGREED["semicolon.csv"], "decimal commas"),
        ("wrapped.json", AGREED["wrapped.json"], "rows under 'data'"),
        ("columns.json", AGREED["columns.json"], "one list for each column"),
    ],
)
def test_what_was_decided_on_the_way_is_said(write: Write, opened: Open, name: str, content: str, note: str) -> None:
    assert note in "; ".join(opened(write(name, content)).notes)


@pytest.mark.parametrize(
    ("name", "content", "where", "what"),
    [
        ("cut_first.jsonl", '{"prompt":"a","ans', "line 1", "cut off"),
        ("cut.json", '[{"prompt":"a"},\n{"prompt":"b"', "line 2", "cut off"),
        ("commas.jsonl", '{"prompt":"a"},\n{"prompt":"b"},\n', "line 1", "array without its brackets"),
        ("numbers.jsonl", "1\n2\n", "numbers.jsonl", "starts with: 1"),
        ("all_lists.jsonl", "[1]\n[2]\n", "line 1", "must be an object"),
        ("python.jsonl", "{'a': 1}\n{'a': 2}\n", "line 1", "no valid JSON"),
        ("wrapped.json", '{"data":[\n{"a":1},\n{"a":},\n{"a":3}\n]}', "line 3", "no valid JSON"),
        ("array.json", '[\n{"a":1},\n{"a":x},\n{"a":3}\n]' + " " * 99, "line 3", "no valid JSON"),
        ("empty.jsonl", "", "empty.jsonl", "empty"),
        ("blank.jsonl", "\n \n", "blank.jsonl", "empty"),
        ("no_rows.json", "[]", "no_rows.json", "no rows"),
        ("header.csv", "a,b\n", "header.csv", "no rows"),
        ("wide.csv", "prompt,answer\na,1\nb,2,3\n", "line 3", "3 fields, the header has 2"),
        ("all_wide.csv", "prompt,answer\na,1,2\nb,2,3\n", "line 2", "3 fields, the header has 2"),
        ("text.csv", b"\x00\x01\x02", "text.csv", ""),
        ("damaged.parquet", b"PAR1 and then nothing of a footer", "damaged.parquet", "damaged"),
        ("notes.md", "# hello", "notes.md", "ending '.md'"),
    ],
)
def test_what_is_broken_is_named_with_its_place(write: Write, name: str, content: str, where: str, what: str) -> None:
    problem = open_source(str(write(name, content)))
    assert isinstance(problem, Problem)
    assert where in problem.where
    assert what in problem.what


def test_a_source_that_is_not_there_is_answered_with_what_is(write: Write) -> None:
    path = write("train.jsonl", AGREED["lines.jsonl"])
    problem = open_source(str(path.with_name("trian.jsonl")))
    assert isinstance(problem, Problem)
    assert "train.jsonl" in problem.remedy


@pytest.mark.parametrize(
    ("text", "hub"),
    [
        ("openai/gsm8k", True), ("HuggingFaceH4/MATH-500", True), ("./openai/gsm8k", False), ("/data/gsm8k", False),
        ("data/train.jsonl", False), ("a/b/c", False), ("gsm8k", False), ("../x/y", False), ("own er/x", False),
    ],
)  # fmt: skip
def test_a_hub_id_is_told_from_a_path(text: str, hub: bool) -> None:
    assert is_hub_id(text) is hub


def test_a_hub_id_without_a_network_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    problem = open_source("somebody/some-data")
    assert isinstance(problem, Problem)
    assert problem.where == "data set somebody/some-data"
    assert "cannot be reached" in problem.what


def test_how_full_the_columns_are_is_known(write: Write, opened: Open) -> None:
    source = opened(write("ragged.jsonl", AGREED["ragged.jsonl"]))
    assert [(column.name, column.filled) for column in source.columns] == [("prompt", 3), ("answer", 2), ("level", 1)]
    assert source.looked_at == 3


@pytest.mark.parametrize("seed", range(40))
def test_lines_are_counted_exactly_whatever_lies_between_them(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines, spaces around a row and inside it, both kinds of line ends, none at the end, blocks of any size."""
    chance = random.Random(seed)
    monkeypatch.setattr("grpo_tui.dataset.json_rows._BLOCK", chance.choice([1, 2, 3, 7, 64, 1000]))
    rows = chance.randrange(1, 80)
    between = chance.choice([[""], ["", "\n"], ["", "\n", "  \n", "\r\n", "\t\n\n", "   "]])
    ends = chance.choice([["\n"], ["\r\n"], ["\n", "\r\n", " \n"]])
    inside = chance.choice(["x", " ", "  x"])
    text = "".join(
        chance.choice(between) + json.dumps({"a": inside * chance.randrange(90)}) + chance.choice(ends)
        for _ in range(rows)
    )
    mark = chance.choice(["", "\ufeff"])
    path = tmp_path / "rows.jsonl"
    path.write_bytes((mark + chance.choice([text, text.rstrip(), text + "\n \n", text + "   "])).encode())
    reader = JSONRows(path, "utf-8-sig" if mark else "utf-8", "lines")
    assert reader.count(lambda: False) == len(list(reader.iterate())) == rows


@pytest.mark.parametrize("kind", ["jsonl", "csv", "json"])
def test_a_large_file_is_estimated_first_and_counted_exactly_on_demand(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(opened_source, "COUNT_BYTES", 1000)
    chance = random.Random(1)
    rows = [{"prompt": "What, 2\nlines? " * chance.randrange(1, 30), "n": n} for n in range(5000)]
    path = tmp_path / f"large.{kind}"
    if kind == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, ["prompt", "n"])
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(text.getvalue())
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if kind == "jsonl" else json.dumps(rows))
    source = opened(path)
    assert not source.rows_exact
    assert source.rows == pytest.approx(5000, rel=0.15)
    counted = count_rows(source)
    assert isinstance(counted, Source)
    assert (counted.rows, counted.rows_exact) == (5000, True)
    assert counted.row(4321) == rows[4321]
    assert count_rows(source, cancelled=lambda: True) == source


def test_what_cannot_be_read_behind_the_rows_looked_at_is_named_when_it_is_reached(write: Write, opened: Open) -> None:
    lines = ['{"prompt":"x"}'] * 4000
    lines[3500] = '{"prompt":"\\ud800"}'
    path = write("late.jsonl", "\n".join(lines) + "\n")
    source = opened(path)
    with pytest.raises(UnreadableError) as caught:
        list(source.iterate())
    assert "line 3501" in caught.value.problem.where
    assert isinstance(sample(source, 10), Problem)


@pytest.mark.parametrize(
    ("content", "broken"),
    [
        ('{"a":1}\n{"a":2}\n{"a":', {2: "line 3: The last line looks cut off"}),
        ('{"a":1}\n{"a":\n\n', {1: "line 2: The last line looks cut off"}),
        ('{"a":\n{"a":2}\n', {0: "line 1: The line is no valid JSON"}),
        ('\n{"a":1\n\r\n{"a":2}\n{"a":3}}\n{"a":4}\n', {0: "line 2: ", 2: "line 5: "}),
        ('a heading\n{"a":1}\n', {0: "line 1: The line is no valid JSON"}),
        ('{"a":1}\n[1]\n{"a":2}\n"x"\n3\n', {1: "line 2: A row must be an", 3: "line 4: A row", 4: "line 5: A row"}),
        ('[{"a":0}]\n{"a":1}\n', {0: "line 1: A row must be an object"}),
        ('{"a":1}\n{"a":2},\n{"a":3}\n', {1: "line 2: A comma follows the object"}),
        ('{"a":1},\n{"a":2}\n{"a":3}\n', {0: "line 1: A comma follows the object"}),
        ('{"a":1}\n{"a":2}{"a":3}\n', {1: "line 2: The line is no valid JSON (Extra data"}),
        ('{"a":1} x\n{"a":2}\n', {0: "line 1: The line is no valid JSON (Extra data"}),
        ('{"a":1}\nnull\n{}\n\u00a0\n{"a":2}\n', {3: "line 4: The line is no valid JSON"}),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_a_broken_line_keeps_its_place_among_the_rows(
    write: Write, opened: Open, content: str, broken: dict[int, str], encoding: str
) -> None:
    """Whatever is asked of the source, the row has the same number."""
    source = opened(write("rows.jsonl", content.encode(encoding)))
    rows = list(source.iterate())
    found = {
        at: f"{row.problem.where}: {row.problem.what}" for at, row in enumerate(rows) if isinstance(row, BrokenRow)
    }
    assert found.keys() == broken.keys()
    assert all(f"rows.jsonl, {said}" in found[at] for at, said in broken.items())
    assert source.rows == source.reader.count(lambda: False) == len(rows) == source.looked_at
    assert source.head(len(rows)) == rows
    assert sample(source, 100) == list(enumerate(rows))
    for at, row in enumerate(rows):
        if at in broken:
            with pytest.raises(UnreadableError, match=broken[at].partition(":")[0]):
                source.row(at)
        else:
            assert source.row(at) == row != {}


def test_a_broken_first_line_of_a_file_too_large_to_be_looked_at_as_a_whole(
    write: Write, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_tui.dataset.json_rows.WHOLE_BYTES", 100)
    for first in ('{"a":0', '{"a":', '{"a":"0', '{"a":0} x', "heading"):
        rows = list(opened(write("rows.jsonl", f"{first}\n" + '{"a":1}\n' * 50)).iterate())
        assert (len(rows), isinstance(rows[0], BrokenRow)) == (51, True)
        assert rows[1:] == [{"a": 1}] * 50


def test_broken_lines_of_a_long_file_take_no_memory(tmp_path: Path, opened: Open) -> None:
    import tracemalloc

    path = tmp_path / "rows.jsonl"
    path.write_text(('{"p":"' + "x" * 900 + '"}\n{"p":"' + "y" * 900 + "\n") * 10_000)
    source = opened(path)
    tracemalloc.start()
    assert sum(isinstance(row, BrokenRow) for row in source.iterate()) == 10_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 10


def test_text_that_stops_being_utf8_in_the_middle_is_named_by_its_line(write: Write, opened: Open) -> None:
    good = b'{"prompt":"' + b"x" * 1000 + b'"}\n'
    path = write("late.jsonl", good * 1500 + b'{"prompt":"caf\xe9"}\n' + good * 1500)
    with pytest.raises(UnreadableError) as caught:
        list(opened(path).iterate())
    assert "0xe9" in caught.value.problem.what


def test_a_sample_is_drawn_evenly_and_the_same_each_time(write: Write, opened: Open) -> None:
    source = opened(write("many.jsonl", "".join(f'{{"n":{n}}}\n' for n in range(3000))))
    drawn = sample(source, 600, seed=3)
    assert isinstance(drawn, list)
    assert drawn == sample(source, 600, seed=3)
    assert all(number == row["n"] for number, row in drawn)
    assert len({number for number, _ in drawn}) == 600
    assert sum(number < 1500 for number, _ in drawn) == pytest.approx(300, abs=60)
    everything = sample(source, 5000)
    assert isinstance(everything, list)
    assert [number for number, _ in everything] == list(range(3000))


def test_the_fingerprint_changes_with_the_data_and_with_how_they_are_read(write: Write, opened: Open) -> None:
    path = write("a.csv", "a;b\n1;2\n")
    first = fingerprint(opened(path))
    assert fingerprint(opened(path)) == first
    assert fingerprint(opened(path, {"delimiter": ","})) != first
    write("a.csv", "a;b\n1;3\n")
    assert fingerprint(opened(path)) != first


def test_files_of_the_project_are_loaded_by_their_name_there(write: Write, opened: Open, tmp_path: Path) -> None:
    source = opened(write("data/rows.jsonl", AGREED["lines.jsonl"]))
    assert "'data/rows.jsonl'" in load_call(source, tmp_path)
    assert repr(str(tmp_path / "data" / "rows.jsonl")) in load_call(source, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("cut.jsonl", '{"prompt":"a"}\n{"prompt":"b","ans', [{"prompt": "a"}]),
        ("commas.jsonl", '{"prompt":"a"},\n{"prompt":"b"},\n', [{"prompt": "a"}, {"prompt": "b"}]),
        ("latin.jsonl", '{"prompt":"café"}\n'.encode("cp1252"), [{"prompt": "café"}]),
        ("wide.csv", "a;b\ncafé;1\n".encode("utf-16"), [{"a": "café", "b": 1}]),
    ],
)
def test_a_repaired_copy_loads_as_plain_utf8_and_the_original_stays(
    write: Write, opened: Open, name: str, content: str | bytes, rows: list[dict[str, Any]]
) -> None:
    path = write(name, content)
    before = path.read_bytes()
    copy, again = repair(path), repair(path)
    assert isinstance(copy, Path)
    assert copy != again
    assert list(opened(copy).iterate()) == rows
    assert "encoding" not in opened(copy).options
    assert path.read_bytes() == before


def test_a_single_json_of_more_than_one_list_is_read_by_the_field_that_is_asked_for(write: Write, opened: Open) -> None:
    path = write("two.json", '{"train":[{"a":1}],"test":[{"a":2},{"a":3}]}')
    assert list(opened(path).iterate()) == [{"a": 1}]
    assert list(opened(path, {"field": "test"}).iterate()) == [{"a": 2}, {"a": 3}]
    problem = open_source(str(path), {"field": "dev"})
    assert isinstance(problem, Problem)
    assert "'train', 'test'" in problem.remedy


def test_a_huge_wrapped_json_is_recognised_without_reading_it_as_a_whole(
    write: Write, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_tui.dataset.json_rows.WHOLE_BYTES", 100)
    rows = [{"a": n} for n in range(50)]
    text = json.dumps({"meta": {"v": 1}, "chat": [{"role": "user", "content": "x"}], "items": rows}, indent=1)
    source = opened(write("large.json", text))
    assert list(source.iterate()) == rows
    assert source.options == {"field": "items"}


def test_reading_a_long_file_takes_no_memory_for_it(tmp_path: Path, opened: Open) -> None:
    import tracemalloc

    path = tmp_path / "array.json"
    with path.open("w") as file:
        file.write("[" + ",".join(json.dumps({"prompt": "x" * 900, "n": n}) for n in range(20000)) + "]")
    source = opened(path)
    tracemalloc.start()
    assert sum(1 for _ in source.iterate()) == 20000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4


def gzipped(content: bytes) -> bytes:
    import gzip

    return gzip.compress(content)


def zstandard(content: bytes) -> bytes:
    import zstandard as library

    return library.ZstdCompressor().compress(content)


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzipped,
    ".zst": zstandard,
    ".bz2": lambda content: bz2.compress(content, 1),  # the smallest blocks: an estimate looks at several
    ".xz": lzma.compress,
}


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("name", ["lines.jsonl", "latin.jsonl", "wrapped.json", "array.json", "semicolon.csv"])
def test_a_compressed_file_gives_the_rows_that_training_loads_from_it(
    library: Worker, write: Write, opened: Open, name: str, ending: str
) -> None:
    content = AGREED[name]
    packed = PACK[ending](content.encode() if isinstance(content, str) else content)
    source = opened(write(name + ending, packed))
    loaded = library.call("load", {"load": load_call(source)})
    assert isinstance(loaded, dict), str(loaded)
    assert list(source.iterate()) == loaded["rows"] == list(opened(write(name, content)).iterate())
    assert (source.rows, source.rows_exact) == (len(loaded["rows"]), True)


@pytest.mark.parametrize("ending", PACK)
def test_a_byte_order_mark_in_a_compressed_file_is_no_row(write: Write, opened: Open, ending: str) -> None:
    source = opened(write("bom.jsonl" + ending, PACK[ending]('\ufeff\n{"a":1}\n{"a":2}\n'.encode())))
    assert (source.rows, list(source.iterate())) == (2, [{"a": 1}, {"a": 2}])


@pytest.mark.parametrize("ending", PACK)
def test_rows_of_a_large_compressed_file_are_estimated_and_said_to_be(
    write: Write, opened: Open, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(opened_source, "COUNT_BYTES", 1000)
    monkeypatch.setattr("grpo_tui.dataset.packed._LOOKED_AT", 1 << 19)
    chance = random.Random(2)
    lines = [json.dumps({"n": n, "prompt": str(chance.getrandbits(chance.randrange(99, 999)))}) for n in range(8000)]
    source = opened(write("large.jsonl" + ending, PACK[ending]("\n".join(lines).encode())))
    assert not source.rows_exact
    assert source.rows == pytest.approx(8000, rel=0.15)
    assert any("compressed size" in note for note in source.notes)
    counted = count_rows(source)
    assert isinstance(counted, Source)
    assert (counted.rows, counted.rows_exact) == (8000, True)


@pytest.mark.parametrize("ending", PACK)
def test_a_compressed_file_that_was_cut_off_is_named(write: Write, ending: str) -> None:
    chance = random.Random(3)
    lines = "".join(json.dumps({"prompt": f"{chance.random()}"}) + "\n" for _ in range(20_000))
    packed = PACK[ending](lines.encode())
    source = open_source(str(write("cut.jsonl" + ending, packed[: len(packed) // 2])))
    problem = source if isinstance(source, Problem) else count_rows(source)
    if isinstance(problem, Source):  # lines may be counted that are not whole: reading finds it
        problem = cast(Problem, sample(problem, 10))
    assert isinstance(problem, Problem)
    assert "cut off" in problem.what
    garbage = open_source(str(write("bad.jsonl" + ending, b"this was never compressed")))
    assert isinstance(garbage, Problem)
    assert "damaged" in garbage.what


def test_what_a_compressed_file_needs_is_said_before_training(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("rows.jsonl.zst", PACK[".zst"](b'{"a":1}\n'))
    monkeypatch.setattr("grpo_tui.dataset.packed.find_spec", lambda name: None)
    problem = open_source(str(path))
    assert isinstance(problem, Problem)
    assert "pip install zstandard" in problem.remedy


def test_a_compressed_file_is_repaired_into_a_plain_one(write: Write, opened: Open) -> None:
    path = write("cut.jsonl.gz", gzipped(b'{"prompt":"a"}\n{"prompt":"b","ans'))
    copy = repair(path)
    assert copy == path.with_name("cut.repaired.jsonl")
    assert list(opened(copy).iterate()) == [{"prompt": "a"}]


def test_reading_a_compressed_file_takes_no_memory_for_it(tmp_path: Path, opened: Open) -> None:
    import gzip
    import tracemalloc

    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        for n in range(20000):
            file.write(json.dumps({"prompt": "x" * 900, "n": n}) + "\n")
    source = opened(path)
    tracemalloc.start()
    assert sum(1 for _ in source.iterate()) == 20000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20000 * 900 / 4


def test_a_pattern_names_files_that_training_loads_in_the_same_order(
    library: Worker, write: Write, opened: Open, tmp_path: Path
) -> None:
    for name in ("part2.jsonl", "part1.jsonl", "deep/er/part3.jsonl.gz", "notes.txt", "test.csv"):
        line = json.dumps({"prompt": name, "n": 1}) + "\n"
        write(f"data/{name}", gzipped(line.encode()) if name.endswith(".gz") else line)
    for pattern, names in (
        ("data/part*.jsonl", ["part1.jsonl", "part2.jsonl"]),
        ("data/**/*.jsonl*", ["deep/er/part3.jsonl.gz", "part1.jsonl", "part2.jsonl"]),
        ("data/part[2].jsonl", ["part2.jsonl"]),
    ):
        source = opened(tmp_path / pattern)
        loaded = library.call("load", {"load": load_call(source)})
        assert isinstance(loaded, dict), str(loaded)
        assert [row["prompt"] for row in source.iterate()] == names
        assert list(source.iterate()) == loaded["rows"]
        assert source.path == str(tmp_path / pattern)
    for pattern, what in (("data/*.parquet", "No data file"), ("data/*", "several kinds: csv, json")):
        problem = open_source(str(tmp_path / pattern))
        assert isinstance(problem, Problem)
        assert what in problem.what


def test_a_name_with_a_bracket_is_a_file_before_it_is_a_pattern(write: Write, opened: Open) -> None:
    assert opened(write("rows[1].jsonl", '{"a":1}\n')).rows == 1


def test_sub_folders_are_read_where_the_folder_itself_has_no_data(
    library: Worker, write: Write, opened: Open, tmp_path: Path
) -> None:
    for name in ("train/b.jsonl", "train/a.jsonl", "test/a.jsonl", ".cache/c.jsonl"):
        write(f"data/{name}", json.dumps({"prompt": name}) + "\n")
    source = opened(tmp_path / "data")
    loaded = library.call("load", {"load": load_call(source)})
    assert isinstance(loaded, dict), str(loaded)
    assert [row["prompt"] for row in source.iterate()] == ["train/a.jsonl", "train/b.jsonl"]
    assert (list(source.iterate()), source.split, set(source.splits)) == (loaded["rows"], "train", {"train", "test"})
    write("data/own.jsonl", '{"prompt":"own"}\n')
    source = opened(tmp_path / "data")
    assert [row["prompt"] for row in source.iterate()] == ["own"]
    assert "3 data files in sub-folders left aside" in source.notes
