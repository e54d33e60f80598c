"""Requests to a running training."""

import json
import os

import pytest

from grpo_tui.problem import Problem
from grpo_tui.run import control


def test_a_request_waits_until_it_is_done(tmp_path):
    path = control.request(tmp_path, "save", "anna@desk")
    [asked] = control.pending(tmp_path)
    assert (asked.path, asked.action, asked.who) == (path, "save", "anna@desk")
    control.done(asked)
    control.done(asked)
    assert control.pending(tmp_path) == []
    assert len(list((tmp_path / "control").glob("*.done.json"))) == 1


def test_requests_come_in_the_order_they_were_made(tmp_path):
    for action in ("save", "stop", "save"):
        control.request(tmp_path, action)
    assert [asked.action for asked in control.pending(tmp_path)] == ["save", "stop", "save"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\x00", b"[]", b'{"action": "erase"}', b'{"who": 1}', b'{"action": "stop", "t": "now"}', b"[" * 9999],
)
def test_files_that_are_no_requests_are_passed_over(tmp_path, content):
    control.request(tmp_path, "stop")
    (tmp_path / "control" / "odd.json").write_bytes(content)
    (tmp_path / "control" / ".half.tmp").write_bytes(b"{")
    assert [asked.action for asked in control.pending(tmp_path)] == ["stop"]


def test_what_a_run_cannot_be_asked_is_refused(tmp_path):
    assert isinstance(control.request(tmp_path, "erase"), Problem)
    assert isinstance(control.request(tmp_path / "none", "stop"), Problem)


def test_a_name_with_terminal_sequences_is_shown_inert(tmp_path):
    path = control.request(tmp_path, "stop", "\x1b[31manna\n")
    assert "\x1b" in json.loads(path.read_text())["who"]
    assert control.pending(tmp_path)[0].who == "anna"


def test_a_pipe_or_a_device_in_the_folder_holds_nobody_up(tmp_path):
    (tmp_path / "control").mkdir()
    os.mkfifo(tmp_path / "control" / "pipe.json")
    (tmp_path / "control" / "zero.json").symlink_to("/dev/zero")
    control.request(tmp_path, "stop")
    assert [asked.action for asked in control.pending(tmp_path)] == ["stop"]
