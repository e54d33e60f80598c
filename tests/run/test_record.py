"""`run.toml`, whatever it holds."""

import pytest

from grpo_tui.run.record import RECORD_FILE, Record, read, write


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    record = Record(
        attempt=2, host="node", training_pid=12, training_started=3.5, command=("python", "a b.py"), gpus=("GPU-1",),
        environment={"A": 'x"y'}, started=1.5, beat=7, ended=9.0, signal=9, resumed=True,
    )  # fmt: skip
    write(tmp_path, record)
    assert read(tmp_path) == record


def test_a_missing_or_broken_record_is_none(tmp_path):
    assert read(tmp_path) is None
    (tmp_path / RECORD_FILE).write_bytes(b"\xff = [")
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    "line", ['training_pid = "many"', "command = 7", "environment = []", "host = 3", 'ended = "x"']
)
def test_a_value_of_another_kind_counts_as_missing(tmp_path, line):
    (tmp_path / RECORD_FILE).write_text(f"{line}\nbeat = 4\nfrom_the_future = 1\n")
    assert read(tmp_path) == Record(beat=4)
