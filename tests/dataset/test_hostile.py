"""Files that nobody should have made: each is a problem with its place or read as training reads it, never a crash."""

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.dataset.faults import Scan, scan
from grpo_tui.dataset.mapping import propose
from grpo_tui.dataset.prompts import functions, prepare_code
from grpo_tui.dataset.rows import DEEPEST, BrokenRow, UnreadableError
from grpo_tui.dataset.sources import (
    Source,
    count_rows,
    fingerprint,
    load_call,
    load_code,
    open_source,
    repair,
)
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem

Open = Callable[..., Source]
Write = Callable[..., Path]

LONG = "123456789012345678901234567890"


def read(path: Path, options: dict[str, str] | None = None) -> list[dict[str, Any]] | Problem:
    """All rows of the file, or what is wrong with it."""
    source = open_source(str(path), options)
    if isinstance(source, Problem):
        return source
    try:
        return list(source.iterate())
    except UnreadableError as error:
        return error.problem


def nested(deep: int) -> str:
    return "[" * deep + "1" + "]" * deep


@pytest.mark.parametrize(
    ("name", "content", "where", "what"),
    [
        ("deep.jsonl", '{"p":"a"}\n{"p":"b","x":' + nested(900) + "}\n", "line 2", "more than 62 deep"),
        ("deep.json", '[{"p":"a"},\n{"p":"b","x":' + nested(900) + "}]", "line 2", "more than 62 deep"),
        ("deeper.jsonl", '{"p":"a"}\n{"p":"b","x":' + nested(100_000) + "}\n", "line 2", "more than 62 deep"),
        ("brackets.jsonl", '{"p":"a"}\n' + "[" * 100_000 + "\n" + '{"p":"b"}\n', "line 2", "more than 62 deep"),
        ("only_brackets.jsonl", "[" * 100_000 + "\n", "line 1", "more than 62 deep"),
        ("mixed.jsonl", '{"v":"x"}\n{"v":' + LONG + "}\n", "row 2", "more than 64 bits"),
        ("array.json", '[{"v":1},\n{"v":' + LONG + "}]", "line 2", "more than 64 bits"),
        ("columns.json", '{"v":[1,' + LONG + "]}", "line 1", "more than 64 bits"),
        ("long.csv", "p,v\na,1\nb," + LONG + "\n", "row 2", "more than 64 bits"),
        ("half.jsonl", '{"p":"a"}\n{"p":"x\\ud800y"}\n', "line 2", "half a character"),
        ("half.json", '[{"p":"a"},\n{"p":"b","x":["\\udc00"]}]', "line 2", "half a character"),
        ("half_name.jsonl", '{"p":"a"}\n{"p":"b","\\ud83d":1}\n', "line 2", "half a character"),
        ("quote.csv", 'p,a\nx,1\ny,"2\n' + "z,3\n" * 100, "line 3", "100 lines behind it"),
        ("late.csv", 'p,a\n"two\nlines","2\n' + "z,3\n" * 5, "line 3", "5 lines behind it"),
        ("last.csv", 'p,a\nx,"1', "line 2", "never closed"),
    ],
)
def test_what_the_library_refuses_is_named_by_its_line_or_row(
    library: Worker, write: Write, name: str, content: str, where: str, what: str
) -> None:
    path = write(name, content)
    problem = read(path)
    assert isinstance(problem, Problem), problem
    assert where in problem.where
    assert what in problem.what
    if name.startswith("half.json") and path.suffix == ".json":
        return  # there the library drops it silently
    call = f"load_dataset({'csv' if path.suffix == '.csv' else 'json'!r}, data_files={str(path)!r}, split='train')"
    if name == "columns.json":
        call = f"Dataset.from_dict(json.loads(Path({str(path)!r}).read_text()))"
    assert isinstance(library.call("load", {"load": call}), Problem)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("digits.jsonl", '{"p":"a","v":' + "9" * 5000 + '}\n{"p":"b","v":1}\n'),
        ("long.jsonl", '{"p":"a","v":' + LONG + '}\n{"p":"b","v":1}\n'),
        ("longer.jsonl", '{"p":"a","v":' + "9" * 400 + '}\n{"p":"b","v":1}\n'),
        ("unsigned.jsonl", '{"p":"a","v":9223372036854775809}\n{"p":"b","v":-9223372036854775808}\n'),
        ("inside.jsonl", '{"p":"a","v":{"x":' + LONG + '}}\n{"p":"b","v":{"x":0.5}}\n'),
        ("unsigned.json", '[{"p":"x","v":9223372036854775809},{"p":"b","v":1}]'),
        ("deep.jsonl", '{"p":"a","v":' + nested(DEEPEST) + '}\n{"p":"b","v":null}\n'),
        ("smile.jsonl", '{"p":"\\ud83d\\ude00","v":1}\n{"p":"\\\\ud800","v":1}\n'),
        ("unsigned.csv", "p,v\na,9223372036854775809\nb,1\n"),
        ("unsigned_gap.csv", "p,v\na,9223372036854775809\nb,x\n"),
        ("unsigned_minus.csv", "p,v\na,9223372036854775809\nb,-1\n"),
        ("unsigned_float.csv", "p,v\na,9223372036854775809\nb,1.5\n"),
        ("long_float.csv", f"p,v\na,{LONG}\nb,1.5\n"),
        ("long_text.csv", f"p,v\na,{LONG}\nb,x\n"),
        ("digits.csv", "p,v\na," + "9" * 4301 + "\nb,2\n"),
        ("quote_inside.csv", 'p,v\na"b,1\n"c ""d""",2\n'),
    ],
)
def test_what_the_library_takes_is_read_as_it_does(
    library: Worker, write: Write, opened: Open, name: str, content: str
) -> None:
    source = opened(write(name, content))
    loaded = library.call("load", {"load": load_call(source)})
    assert isinstance(loaded, dict), str(loaded)
    assert repr(list(source.iterate())) == repr(loaded["rows"])
    assert {column.name: column.type for column in source.columns} == loaded["types"]


LEAVE_OUT = DatasetAnswer(prompt="p", faults={"broken_line": "leave_out"})
BAD = (
    '{"p":"cut',
    "[1]",
    '"text"',
    "7",
    "{'p': 'x'}",
    '{"p":"a"}}',
    '{"p":"a"},',
    "\x1b[2J",
    "\u00a0",
)


def trained(library: Worker, source: Source, answer: DatasetAnswer) -> list[dict[str, Any]] | Problem:
    """What the trainer gets by the written code."""
    load = load_call(source, answer=answer)
    request = {"code": prepare_code(answer), "load": load, "load_code": load_code(load), "held_out": False}
    made = library.call("train", request)
    return made if isinstance(made, Problem) else list(made["rows"])


def previewed(source: Source, answer: DatasetAnswer) -> list[dict[str, Any]]:
    """The same by the preview, dates as the worker tells them."""
    return [
        {name: repr(value) if isinstance(value, datetime.datetime) else value for name, value in row.items()}
        for row in functions(answer)["prepare_rows"](source.iterate())
    ]


@pytest.mark.parametrize("bad", BAD)
def test_a_broken_line_stops_until_it_is_left_out_and_then_it_alone_is_passed_over(
    library: Worker, write: Write, opened: Open, bad: str
) -> None:
    sound = [{"p": f"p{n}", "when": "2020-01-01", "x": 1 if n % 2 else 0.5, "s": {"k": n}} for n in range(5)]
    lines = [json.dumps(row) for row in sound]
    for at in (0, 3, 5):
        content = "\r\n".join([*lines[:at], bad, "", *lines[at:]]) + "\n"
        source = opened(write(f"{at}.jsonl", content))
        found = scan(source.iterate(), DatasetAnswer(prompt="p"))
        assert isinstance(found, Scan)
        (fault,) = found.faults
        assert (fault.kind, fault.count, fault.rows, fault.choices) == ("broken_line", 1, (at,), ("stop", "leave_out"))
        assert fault.blocking
        assert f"{at}.jsonl, line {at + 1}: " in fault.text
        assert (found.rows, found.usable) == (6, 5)
        assert isinstance(trained(library, source, DatasetAnswer(prompt="p")), Problem)  # as the library refuses it
        left = scan(source.iterate(), LEAVE_OUT)
        assert isinstance(left, Scan)
        assert (left.usable, left.faults[0].blocking) == (5, False)
        made = trained(library, source, LEAVE_OUT)
        assert isinstance(made, list), str(made)
        assert [row["p"] for row in made] == [f"p{n}" for n in range(5)]
        assert repr(made) == repr(previewed(source, LEAVE_OUT))


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ('{"p":"a","v":' + "9" * 5000 + '}\n{"p":"b"\n', "utf-8"),
        ('{"p":"a","v":1}\n{"p":"b\n{"p":"c","v":"x"}\n{"p":"d","v":[1]}\n', "utf-8"),
        ('oops\n{"p":"a","v":null}\nnull\n{}\n{"p":"b","v":{"x":1}}\n', "utf-8"),
        ('{"p":"é"}\n{"p":"ö\n', "cp1252"),
        ('{"p":"é"}\n{"p":"ö\n{"p":"ü"}', "utf-16"),
        ('\n{"p":"é"}\n{"p":"ö\n{"p":"ü"}', "utf-8-sig"),
        ('{"p":"😀 \\ud83d\\ude00"}\n\u2028\n{"p":"\u2028\u0085"}\n{"p":"', "utf-8"),
        ('{"p":"a","v":NaN}\n{"p":"b","v":1}\n{"p":"c","v":nan}\n', "utf-8"),
        ('{"p":"a","when":"2020-01-01"}\n{"p":"b","when":"2021-01-01T10:00:00"}\n{"p', "utf-8"),
    ],
)
def test_the_written_code_reads_the_lines_that_are_left_as_the_preview_does(
    library: Worker, write: Write, opened: Open, content: str, encoding: str
) -> None:
    source = opened(write("rows.jsonl", content.encode(encoding)))
    made = trained(library, source, LEAVE_OUT)
    assert isinstance(made, list), str(made)
    assert repr(made) == repr(previewed(source, LEAVE_OUT))
    assert made
    assert any(isinstance(row, BrokenRow) for row in source.iterate())


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2", ".xz"])
def test_a_broken_line_of_a_compressed_file_is_left_out(
    library: Worker, write: Write, opened: Open, ending: str
) -> None:
    import bz2
    import gzip
    import lzma

    import zstandard

    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[ending]
    parts = [b'{"p":"a"}\n{"p":', b'"b"\n{"p":"c"}\n', b'{"p":"d']
    source = opened(write("rows.jsonl" + ending, b"".join(map(pack, parts))))
    assert source.rows == 4
    made = trained(library, source, LEAVE_OUT)
    assert isinstance(made, list), str(made)
    assert [row["p"] for row in made] == ["a", "c"] == [row["p"] for row in previewed(source, LEAVE_OUT)]


def test_of_several_files_only_the_broken_lines_are_left_out(
    library: Worker, write: Write, opened: Open, tmp_path: Path
) -> None:
    """Also beside files that do not have a row a line: a pretty-printed one, one of a single row, an array."""
    write("a.jsonl", '{"p":"a"}\n{"p":"b\n{"p":"c"}\n')
    write("b.json", '[\n{"p":"d"},\n{"p":"e"}\n]\n')
    write("c.jsonl", '{"p":"f"}\n')
    write("d.jsonl", '7\n{"p":"g"}\n')
    source = opened(tmp_path)
    assert [row.get("p") for row in source.iterate()] == ["a", None, "c", "d", "e", "f", None, "g"]
    found = scan(source.iterate(), LEAVE_OUT)
    assert isinstance(found, Scan)
    assert [(fault.kind, fault.rows) for fault in found.faults] == [("broken_line", (1, 6))]
    made = trained(library, source, LEAVE_OUT)
    assert isinstance(made, list), str(made)
    assert [row["p"] for row in made] == ["a", "c", "d", "e", "f", "g"]


def test_rows_behind_a_broken_line_keep_their_numbers_in_the_written_code(
    library: Worker, write: Write, opened: Open
) -> None:
    answer = DatasetAnswer(prompt="p", faults={"broken_line": "leave_out", "empty": "stop", "duplicate": "leave_out"})
    source = opened(write("rows.jsonl", '{"p":"a"}\n{"p"\n{"p":"a"}\n[]\n{"p":" "}\n'))
    found = scan(source.iterate(), answer)
    assert isinstance(found, Scan)
    assert {fault.kind: fault.rows for fault in found.faults} == {
        "broken_line": (1, 3), "duplicate": (2,), "empty": (4,),
    }  # fmt: skip
    problem = trained(library, source, answer)
    assert isinstance(problem, Problem)
    assert "Row 5 of the data: nothing to answer" in str(problem)
    with pytest.raises(SystemExit, match="Row 5 of the data: nothing to answer"):
        previewed(source, answer)


@pytest.mark.parametrize(
    "content", ["{'p': 1}\n{'p': 2}\n{'p': 3}\n", "oops\n" * 3000 + '{"p":"a"}\n', '{"p":"a\n' * 9, "[1]\n2\n"]
)
def test_a_file_of_which_all_the_first_lines_are_broken_is_refused(write: Write, content: str) -> None:
    problem = open_source(str(write("rows.jsonl", content)), {})
    assert isinstance(problem, Problem)
    assert problem.remedy


def test_numbers_that_lost_digits_are_counted_and_left_out_if_chosen(write: Write, opened: Open) -> None:
    rows = '{"p":"a","n":1}\n{"p":"b","n":' + LONG + '}\n{"p":"c","n":9007199254740993}\n{"p":"d","n":7.5}\n'
    source = opened(write("rows.jsonl", rows))
    found = scan(source.iterate(), DatasetAnswer(prompt="p", answer="n"))
    assert isinstance(found, Scan)
    fault = next(fault for fault in found.faults if fault.kind == "lost_digits")
    assert (fault.count, fault.rows, fault.choice, found.usable) == (2, (1, 2), "keep", 4)
    left_out = DatasetAnswer(prompt="p", answer="n", faults={"lost_digits": "leave_out"})
    found = scan(source.iterate(), left_out)
    assert isinstance(found, Scan)
    assert found.usable == 2 == len(list(functions(left_out)["prepare_rows"](source.iterate())))
    stop = DatasetAnswer(prompt="p", faults={"lost_digits": "stop"})
    with pytest.raises(SystemExit, match="Row 2 of the data: a number may have lost digits"):
        list(executed(stop)(source.iterate()))


def executed(answer: DatasetAnswer) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(prepare_code(answer), namespace)
    made: Callable[..., Any] = namespace["prepare_rows"]
    return made


BROKEN: list[dict[str, Any]] = [
    {"p": "a\ud800", "a": "1"},
    {"p": "b", "a": "\udfff"},
    {"p": [{"role": "user", "content": "é\ud83d"}], "a": "1"},
    {"p": "c", "a": {"x": [2**64]}},
    {"p": "d", "a": "1", "\ud800": 1},
    {"p": "e", "a": 2**63},
]


def test_rows_that_no_table_holds_are_left_out_or_stop(library: Worker) -> None:
    rows = [{"p": "sound 😀", "a": -(2**63)}, *BROKEN, {"p": "sound", "a": 2**63 - 1}]
    answer = DatasetAnswer(prompt="p", answer="a")
    found = scan(rows, answer)
    assert isinstance(found, Scan)
    fault = next(fault for fault in found.faults if fault.kind == "broken_value")
    assert (fault.count, fault.rows, fault.choice, found.usable) == (6, (1, 2, 3, 4, 5, 6), "leave_out", 2)
    loaded = library.call("train", {"code": prepare_code(answer), "load": repr(rows), "held_out": False})
    assert isinstance(loaded, dict), str(loaded)
    assert [row["p"] for row in loaded["rows"]] == ["sound 😀", "sound"]
    stop = DatasetAnswer(prompt="p", answer="a", faults={"broken_value": "stop"})
    with pytest.raises(SystemExit, match="Row 2 of the data: half a character"):
        list(executed(stop)(rows))


@pytest.mark.parametrize("row", BROKEN)
def test_such_a_row_would_end_the_training(library: Worker, row: dict[str, Any]) -> None:
    code = "def prepare_rows(rows, held_out):\n    return rows\n"
    assert isinstance(library.call("train", {"code": code, "load": repr([row]), "held_out": False}), Problem)


def test_a_repaired_copy_holds_whole_characters_only(write: Write, opened: Open) -> None:
    lines = '{"p":"x\\ud800y"}\n{"p":"\\ud83d\\ude00"}\n{"p":"\\\\ud800"}\n{"p":"\\udc00\\ud800"}\n'
    prompts = ["x�y", "😀", "\\ud800", "��"]
    array = "[\n" + ",\n".join(lines.splitlines()) + "\n]\n"
    for path in (write("half.jsonl", lines), write("half.json", array)):
        copy = repair(path)
        assert isinstance(copy, Path)
        assert [row["p"] for row in opened(copy).iterate()] == prompts


def test_the_tokenizer_says_what_is_wrong_with_half_a_character(tokenize: Worker, model: Path) -> None:
    for prompt in ("a\ud800", [{"role": "user", "content": "a\ud800"}]):
        for request in ({"prompt": prompt, "method": "render"}, {"prompts": ["a", prompt], "method": "lengths"}):
            method = request.pop("method")
            problem = tokenize.call(str(method), {"model": str(model), **request})
            assert isinstance(problem, Problem)
            assert "half a character" in problem.what
            assert "\\ud800" in problem.what


def test_an_answer_of_brackets_is_no_json_path_and_no_crash() -> None:
    answer = DatasetAnswer(prompt="p", answer="a", extract="json_path", extract_argument="x")
    found = scan([{"p": "a", "a": "[" * 100_000}, {"p": "b", "a": '{"x": 1}'}], answer)
    assert isinstance(found, Scan)
    assert {fault.kind: fault.rows for fault in found.faults} == {"unparsable": (0,)}


def in_a_fresh_python(path: Path, then: str = "") -> str:
    """What opening the source says, in a process that is given up if it hangs."""
    code = f"import sys\nfrom grpo_tui.dataset.sources import open_source\nprint(open_source(sys.argv[1]){then})"
    said = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    return said.stdout


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.jsonl.gz", "rows.parquet", "rows.arrow", "rows"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert "it is a pipe or a device, not a file" in in_a_fresh_python(tmp_path / name)


def test_a_device_behind_a_link_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").symlink_to("/dev/zero")
    assert "it is a pipe or a device, not a file" in in_a_fresh_python(tmp_path / "rows.jsonl")


def test_a_folder_passes_over_what_is_no_file_and_says_so(write: Write, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to("/dev/zero")
    assert "only pipes, devices or broken links: a.jsonl, b.jsonl" in in_a_fresh_python(tmp_path)
    write("c.jsonl", '{"p":"x"}\n')
    assert "no files, passed over: a.jsonl, b.jsonl" in in_a_fresh_python(tmp_path, ".notes")
    assert in_a_fresh_python(tmp_path / "*.jsonl", ".rows") == "1\n"


def test_a_saved_data_set_whose_description_is_a_pipe_is_no_trap(tmp_path: Path) -> None:
    for name in ("state.json", "dataset_info.json"):
        os.mkfifo(tmp_path / name)
    assert "There is no file to read" in in_a_fresh_python(tmp_path)
    (tmp_path / "dataset_dict.json").symlink_to(tmp_path / "state.json")
    assert "There is no split" in in_a_fresh_python(tmp_path)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"delimiter": ",,"}, "delimiter"),
        ({"delimiter": "\\n"}, "delimiter"),
        ({"delimiter": "\n"}, "delimiter"),
        ({"delimiter": '"'}, "delimiter"),
        ({"decimal": ",,"}, "decimal"),
        ({"encoding": "hex"}, "rows.csv"),
        ({"encoding": "no\0such"}, "rows.csv"),
        ({"encoding": "utf-16"}, "rows.csv"),
        ({"encoding": "ascii"}, "rows.csv"),
    ],
)
def test_a_way_of_reading_that_there_is_not_is_a_problem(write: Write, options: dict[str, str], where: str) -> None:
    problem = open_source(str(write("rows.csv", "p,a\né,1\n")), options)
    assert isinstance(problem, Problem)
    assert where in problem.where


@pytest.mark.parametrize(
    "name", ["~nobody-of-that-name/rows.jsonl", "a\0b.jsonl", "x" * 5000 + ".jsonl", "a**b/*.jsonl"]
)
def test_a_path_that_cannot_be_is_a_problem(tmp_path: Path, name: str) -> None:
    assert isinstance(open_source(name if name[0] == "~" else str(tmp_path / name)), Problem)


def test_a_row_that_swallows_others_is_told_where_its_quote_is_closed(write: Write, opened: Open) -> None:
    rows = 'p,a\nx,1\ny,"2\n' + "z,3\n" * 100 + '"\nw,4\n'
    assert "row 2 of rows.csv: a quoted cell holds lines that look like rows" in "; ".join(
        opened(write("rows.csv", rows)).notes
    )
    sound = 'p,a\n"' + "a line of a poem\n" * 100 + '",1\n'
    assert "quote" not in "; ".join(opened(write("sound.csv", sound)).notes)


def test_a_file_that_goes_away_or_shrinks_while_it_is_read_is_a_problem(write: Write, opened: Open) -> None:
    rows = '{"p":"' + "x" * 1000 + '"}\n'
    path = write("rows.jsonl", rows * 3000)
    source = opened(path)
    reading = source.iterate()
    next(reading)
    os.truncate(path, 2_000_300)
    last = list(reading)[-1]
    assert isinstance(last, BrokenRow)
    assert "cut off" in last.problem.what
    path.unlink()
    for look in (lambda: source.head(1), lambda: source.row(1)):
        with pytest.raises(UnreadableError) as caught:
            look()
        assert "No such file" in caught.value.problem.what
    assert isinstance(count_rows(replace(source, rows_exact=False)), Problem)
    with pytest.raises(FileNotFoundError):
        fingerprint(source)


def test_a_folder_in_place_of_a_file_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    problem = open_source(str(tmp_path / "rows.jsonl"))
    assert isinstance(problem, Problem)
    assert "holds no data" in problem.what
    problem = open_source(str(tmp_path))
    assert isinstance(problem, Problem)


@pytest.mark.parametrize("name", ["long.jsonl", "long.json", "long.csv"])
def test_fifty_megabytes_on_one_line_are_one_row(tmp_path: Path, opened: Open, name: str) -> None:
    text = "x, " * (17 << 20)
    path = tmp_path / name
    row = {"p": text}
    path.write_text(f'p\n"{text}"\n' if name == "long.csv" else json.dumps([row] if name == "long.json" else row))
    source = opened(path)
    (found,) = source.iterate()
    assert found["p"] == text


def test_thousands_of_columns_are_read(write: Write, opened: Open) -> None:
    names = [f"c{n}" for n in range(5000)]
    row = json.dumps(dict.fromkeys(names, "x"))
    assert len(opened(write("wide.jsonl", f"{row}\n{row}\n")).columns) == 5000
    wide = opened(write("wide.csv", ",".join(["a"] * 5000) + "\n" + ",".join(["x"] * 5000) + "\n"))
    assert [column.name for column in wide.columns[:3]] == ["a", "a.1", "a.2"]
    proposal = propose(wide.columns, wide.head(5))
    found = scan(wide.iterate(), proposal.answer)
    assert isinstance(found, Scan)
    assert found.usable == 1


def test_a_json_cell_of_a_parquet_file_is_no_deeper_than_others(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    features = {"info": {"features": {"p": {"dtype": "string", "_type": "Value"}, "v": {"_type": "Json"}}}}
    for deep in (900, 100_000):
        table = pyarrow.table({"p": ["a", "b"], "v": ["1", nested(deep)]})
        table = table.replace_schema_metadata({b"huggingface": json.dumps(features).encode()})
        pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
        problem = read(tmp_path / "rows.parquet")
        assert isinstance(problem, Problem)
        assert "row 2" in problem.where
