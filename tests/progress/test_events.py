"""Reading a file that is being written, was cut, was replaced, or holds anything at all."""

import json
import math
import os
from itertools import pairwise
from pathlib import Path

import pytest

from grpo_tui.progress import events
from grpo_tui.progress.events import first_view, parse, read_new, strict, tail

RUNS = Path(__file__).parents[1] / "runs"


def line(step, kind="log", **data):
    return json.dumps({"v": 1, "t": 1000.0 + step, "kind": kind, "step": step, **data}) + "\n"


def read(path, cursor=events.START, **options):
    found, cursor = read_new(path, cursor, **options)
    return [event.step for event in found], cursor


def test_half_a_last_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "events.jsonl"
    whole = line(2)
    path.write_text(line(1) + whole[:20])
    steps, cursor = read(path)
    assert (steps, cursor.behind) == ([1], 20)
    with path.open("a") as file:
        file.write(whole[20:])
    steps, cursor = read(path, cursor)
    assert (steps, cursor.behind, cursor.skipped) == ([2], 0, 0)


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_a_line_may_be_cut_at_any_byte(tmp_path, cut):
    path = tmp_path / "events.jsonl"
    text = (line(1, logs={"reward": "Infinity", "name": "größer"}) + line(2)).encode()
    path.write_bytes(text[:cut])
    before, cursor = read(path)
    path.write_bytes(text)
    after, cursor = read(path, cursor)
    assert before + after == [1, 2]
    assert not cursor.restarted
    assert cursor.skipped == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 300,
        b"\xff\xfe\x93binary\x00",
        b'{"v": 1, "kind": "log", "st',
        b"[1, 2]",
        b'"text"',
        b'{"kind": 7}',
        b'{"v": 1, "t": "yesterday", "kind": "log", "step": 1}',
        b'{"v": 1, "t": 1, "kind": "log", "step": 1e400}',
        b'{"v": 1, "t": NaN, "kind": "log", "step": 1}',
        b"[" * 100_000,
        b'{"v": 1, "t": 1, "kind": "log", "step": ' + b"9" * 5000 + b"}",
    ],
    ids=[
        "NUL",
        "binary",
        "half a row",
        "a list",
        "a text",
        "no kind",
        "no time",
        "infinite step",
        "NaN",
        "deep",
        "long",
    ],
)
def test_a_line_that_is_no_event_is_passed_over_and_counted(tmp_path, garbage):
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(1).encode() + garbage + b"\n" + line(2).encode())
    steps, cursor = read(path)
    assert steps == [1, 2]
    assert cursor.skipped == (0 if not garbage.strip(b"\0") else 1)


def test_nul_bytes_before_a_row_do_not_cost_the_row():
    assert parse(b"\0" * 64 + line(3).encode()).step == 3


def test_a_line_longer_than_any_row_is_passed_over_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "events.jsonl"
    path.write_text(line(1) + "x" * 5000 + "\n" + line(2))
    steps, cursor = [], events.START
    for _ in range(20):
        found, cursor = read(path, cursor, budget=500)
        steps += found
    assert steps == [1, 2]
    assert (cursor.skipped, cursor.behind) == (1, 0)


def test_a_shortened_file_is_read_again_from_its_start(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    _, cursor = read(path)
    path.write_text(line(1))
    steps, cursor = read(path, cursor)
    assert (steps, cursor.restarted) == ([1], True)
    assert read(path, cursor)[1].restarted is False


def test_a_replaced_file_is_read_again_although_it_is_longer(tmp_path):
    path, fresh = tmp_path / "events.jsonl", tmp_path / "fresh"
    path.write_text(line(1))
    _, cursor = read(path)
    fresh.write_text(line(7) + line(8) + line(9))
    fresh.replace(path)
    steps, cursor = read(path, cursor)
    assert (steps, cursor.restarted) == ([7, 8, 9], True)


def test_a_file_rewritten_in_place_is_read_again_although_it_is_longer(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text(line(1))
    inode = path.stat().st_ino
    _, cursor = read(path)
    with path.open("r+") as file:
        file.write(line(7) + line(8))
    assert path.stat().st_ino == inode
    steps, cursor = read(path, cursor)
    assert (steps, cursor.restarted) == ([7, 8], True)


def test_a_file_that_is_gone_gives_nothing_and_may_come_back(tmp_path):
    path = tmp_path / "events.jsonl"
    assert read(path)[0] == []
    path.write_text(line(1))
    steps, cursor = read(path)
    path.unlink()
    assert read(path, cursor) == ([], cursor)
    assert steps == [1]


def test_numbers_that_json_has_not_are_read_however_they_were_written():
    quoted = parse(b'{"kind": "log", "logs": {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": "text"}}').data[
        "logs"
    ]
    bare = parse(b'{"kind": "log", "logs": {"a": NaN, "b": Infinity, "c": -Infinity, "d": null}}').data["logs"]
    for logs in (quoted, bare):
        assert math.isnan(logs["a"])
        assert (logs["b"], logs["c"]) == (math.inf, -math.inf)
    assert quoted["d"] == "text"
    assert bare["d"] is None


def test_what_is_written_strictly_is_read_back_as_it_was():
    logs = {"a": math.inf, "b": -math.inf, "c": 0.1 + 0.2, "d": None, "e": 5e-324}
    text = json.dumps(strict({"kind": "log", "logs": logs}), allow_nan=False)
    assert parse(text.encode()).data["logs"] == logs


def test_numbers_of_other_libraries_are_written_as_numbers():
    import numpy as np

    assert strict({"x": np.float32(0.5), "y": np.int64(3), "z": np.float64("nan")}) == {"x": 0.5, "y": 3, "z": "NaN"}


def test_a_large_file_is_first_seen_by_head_samples_and_tail(tmp_path):
    path = tmp_path / "events.jsonl"
    steps = 20_000
    with path.open("w") as file:
        file.write(line(0, "begin", max_steps=steps))
        for step in range(1, steps + 1):
            file.write(line(step, "phase", seconds={"train": 0.1}))
            file.write(line(step, logs={"reward": step / steps, "filler": "x" * 80}))
    assert path.stat().st_size > events.WHOLE_BYTES
    found, cursor = first_view(path)
    assert found[0].kind == "begin"
    assert found[-1].step == steps
    assert cursor.behind == 0
    logs = [event.step for event in found if event.kind == "log"]
    assert logs == sorted(set(logs))
    gaps = [later - earlier for earlier, later in pairwise(logs)]
    assert max(gaps) < steps / 200
    with path.open("a") as file:
        file.write(line(steps + 1))
    assert read(path, cursor)[0] == [steps + 1]


def test_the_tail_begins_with_a_whole_line(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(line(step) for step in range(1, 50)))
    size = len(line(49)) + len(line(48)) + 5
    assert [event.step for event in tail(path, size)] == [48, 49]
    assert [event.step for event in tail(path)] == list(range(1, 50))
    assert tail(tmp_path / "none") == []


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir() if path.is_dir()))
def test_every_recorded_run_can_be_read(run):
    found, cursor = read_new(RUNS / run / "events.jsonl")
    assert found[0].kind == "begin"
    assert cursor.skipped == (4 if run == "made_torn" else 0)


@pytest.mark.slow
def test_a_gigabyte_is_first_seen_without_being_read(tmp_path):
    path = tmp_path / "events.jsonl"
    rows = (RUNS / "h01_base" / "events.jsonl").read_bytes().splitlines(keepends=True)
    block = b"".join(rows[1:200])
    with path.open("wb") as file:
        file.write(rows[0])
        while file.tell() < 1 << 30:
            file.write(block)
    read_before = _bytes_read()
    found, cursor = first_view(path)
    assert len(found) > events.SAMPLES
    assert cursor.behind == 0
    assert _bytes_read() - read_before < 16 << 20


def _bytes_read():
    text = Path(f"/proc/{os.getpid()}/io").read_text()
    return int(text.split("rchar:")[1].split()[0])
