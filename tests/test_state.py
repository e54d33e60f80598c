"""No answer is lost: not to a crash, a broken file, a strange value, or another version of the program."""

import dataclasses
import errno
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from grpo_tui import atomic, state
from grpo_tui.draft import (
    Approval,
    DatasetAnswer,
    Done,
    Draft,
    Example,
    HardwareAnswer,
    ModelAnswer,
    PilotAnswer,
    ReviewAnswer,
    RewardItem,
    RewardsAnswer,
    ScoreAnswer,
    SettingsAnswer,
    TaskAnswer,
)
from grpo_tui.problem import Problem
from grpo_tui.state import STATE_FILE, Loaded, load, restore_backup, save

FULL = Draft(
    task=TaskAnswer(recipe="word_problems", checkable="yes", material="prompts", goal="skill", verdict="GRPO"),
    hardware=HardwareAnswer(gpus=("GPU-1", "GPU-2"), manual_name="H200", manual_bytes=150_754_820_096),
    model=ModelAnswer(name="Qwen/Qwen3-0.6B", revision="main", method="lora"),
    dataset=DatasetAnswer(
        source="rows.jsonl",
        options={"encoding": "cp1252"},
        prompt="question",
        system='You "think" first.\nThen\tyou answer: \\boxed{…} 🙂\r\n',
        examples=(Example(question="1+1?\n", answer='"2"'), Example(question="", answer="—")),
        faults={"empty_prompt": "leave_out"},
        eval_share=0.05,
        seed=7,
    ),
    rewards=RewardsAnswer(items=(RewardItem(name="correct"), RewardItem(name="brevity", weight=0.125))),
    score=ScoreAnswer(
        samples=("4", "", "\x1b[31mred"),
        row=3,
        skipped=True,
        pilot=PilotAnswer(verdict="too hard", why="0 % pass.", pass_rate=0.0, prompts=32, generations=8, rests_on="p"),
    ),
    review=ReviewAnswer(tried="failed", rests_on="r", predicted={"train": 3 << 30, "peak": 4 << 30}),
    settings=SettingsAnswer(
        prefer="speed", overrides={"grpo.learning_rate": 1e-6, "grpo.bf16": True, "lora.r": 16, "grpo.x": math.inf}
    ),
    step="settings",
    done={"task": Done(at="2026-01-01T00:00:00+00:00", rests_on={}), "hardware": Done(at="t", rests_on={"gpus": "f"})},
    approvals=(Approval(what="run", at="t", sha256="0" * 64, detail="python train.py"),),
    files={"config.toml": "1" * 64},
)


def loaded(project: Path) -> Draft:
    got = load(project)
    assert isinstance(got, Loaded), got
    return got.draft


def problem(project: Path) -> Problem:
    got = load(project)
    assert isinstance(got, Problem), got
    return got


def saved(project: Path, *drafts: Draft) -> str:
    """Save the drafts one after the other; the text of the file."""
    for draft in drafts:
        assert save(project, draft) is None
    return (project / STATE_FILE).read_text()


# What goes in comes out.


def test_an_empty_folder_is_a_new_draft_and_is_left_empty(tmp_path: Path) -> None:
    assert loaded(tmp_path) == Draft()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("draft", [Draft(), FULL])
def test_every_answer_comes_back_as_it_was(tmp_path: Path, draft: Draft) -> None:
    saved(tmp_path, draft)
    assert loaded(tmp_path) == draft


def test_every_field_of_the_draft_is_in_that_test() -> None:
    untouched = [
        field.name
        for field in dataclasses.fields(Draft)
        if field.name != "unknown" and getattr(FULL, field.name) == getattr(Draft(), field.name)
    ]
    assert untouched == []


def test_saving_the_same_answers_again_keeps_the_earlier_backup(tmp_path: Path) -> None:
    saved(tmp_path, FULL, replace(FULL, step="review"), replace(FULL, step="review"))
    assert 'step = "settings"' in (tmp_path / f"{STATE_FILE}.bak").read_text()


def test_values_that_toml_cannot_hold_do_not_lose_the_rest(tmp_path: Path) -> None:
    overrides = {
        "max_grad_norm": None,
        "steps": numpy.int64(3),
        "rate": numpy.float64(0.1),
        "half": numpy.float32(0.5),
        "flag": numpy.bool_(True),
        "array": numpy.arange(3),
        "out": Path("x"),
        "map": {1: "a", 2: None},
        "list": [1, None, Path("y")],
        "set": {"one"},
        "bytes": b"raw",
        "surrogate": "file\udce4",
        "other": 2 + 1j,
    }
    saved(tmp_path, replace(FULL, settings=SettingsAnswer(overrides=overrides)))
    assert loaded(tmp_path).settings.overrides == {
        "steps": 3,
        "rate": 0.1,
        "half": 0.5,
        "flag": True,
        "array": [0, 1, 2],
        "out": "x",
        "map": {"1": "a"},
        "list": [1, "y"],
        "set": ["one"],
        "bytes": "raw",
        "surrogate": "file\\udce4",
        "other": "(2+1j)",
    }
    assert loaded(tmp_path).approvals == FULL.approvals


def test_no_field_of_the_draft_is_made_for_a_secret() -> None:
    def names(kind: Any) -> set[str]:
        fields = dataclasses.fields(kind)
        inner = [field.default for field in fields if dataclasses.is_dataclass(field.default)]
        return {field.name for field in fields}.union(*(names(each) for each in inner))

    assert "max_prompt_tokens" in names(Draft)
    assert not {name for name in names(Draft) if name.endswith(("token", "key", "secret", "password"))}


# A file edited by hand, or broken.


def test_a_byte_order_mark_is_not_minded(tmp_path: Path) -> None:
    text = saved(tmp_path, FULL)
    (tmp_path / STATE_FILE).write_text("\ufeff" + text, encoding="utf-8")
    assert loaded(tmp_path) == FULL
    assert save(tmp_path, FULL) is None


def test_windows_line_ends_are_not_minded(tmp_path: Path) -> None:
    text = saved(tmp_path, FULL)
    (tmp_path / STATE_FILE).write_bytes(text.replace("\n", "\r\n").encode())
    assert loaded(tmp_path) == FULL


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing yet\n"])
def test_an_empty_file_is_a_new_draft(tmp_path: Path, content: str) -> None:
    (tmp_path / STATE_FILE).write_text(content)
    assert loaded(tmp_path) == Draft()


def test_missing_keys_are_their_defaults(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('[model]\nname = "gpt2"\n')
    assert loaded(tmp_path) == Draft(model=ModelAnswer(name="gpt2"))


BROKEN: list[tuple[str | bytes, int, str]] = [
    ("a = 1\na = 2", 2, "given twice"),
    ("[task]\n[model]\n[task]\n", 3, "given twice"),
    ("version = 1\nbroken = ", 2, "cut off"),
    ("version = 1\n\n[task]\nrecipe = 'word", 4, "cut off"),
    ("version = 1\nstep task\n", 2, "not valid TOML"),
    (b"version = 1\n[task]\nrecipe = '\xe4'\n", 3, "UTF-8"),
    ("version = 1\r\n[hardware]\r\nmanual_bytes = 'big'\r\n", 3, 'must be a whole number, but is "big"'),
    ("[hardware]\nmanual_bytes = 1.5\n", 2, "must be a whole number, but is 1.5"),
    ("[hardware]\nmanual_bytes = true\n", 2, "must be a whole number, but is true"),
    ("[hardware]\ncpu = 0\n", 2, "must be true or false"),
    ("hardware.cpu = false\nhardware.gpus = 'GPU-1'\n", 2, "must be a list"),
    ("[hardware]\ngpus = [\n  'GPU-1',\n  2,\n]\n", 2, "hardware.gpus 2 must be text"),
    ("task = 3\n", 1, "task must be a table"),
    ("[[rewards.items]]\nname = 'a'\n\n[[rewards.items]]\nweight = 2\n", 4, "rewards.items 2.name must be there"),
    ("[[rewards.items]]\nname = 'a'\nweight = 'much'\n", 3, "must be a number"),
    ("[done.task]\nat = 2026-01-01\n", 2, "done.task.at must be text"),
    ("[dataset.options]\nencoding = 8\n", 2, "dataset.options.encoding must be text"),
    ("# a comment\nstep = 'lunch'\n", 2, 'but is "lunch"'),
    ("version = 'one'\n", 1, "version must be a whole number"),
    ("version = true\n", 1, "version must be a whole number"),
    ("version = 0\n", 1, "version must be a whole number"),
]


@pytest.mark.parametrize(("content", "line", "words"), BROKEN)
def test_a_broken_file_is_named_by_its_line_and_never_overwritten(
    tmp_path: Path, content: str | bytes, line: int, words: str
) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / STATE_FILE).write_bytes(raw)
    found = problem(tmp_path)
    assert found.where == f"{STATE_FILE}, line {line}"
    assert words in found.what
    assert save(tmp_path, FULL) == found
    assert (tmp_path / STATE_FILE).read_bytes() == raw
    assert [file.name for file in tmp_path.iterdir()] == [STATE_FILE]


def test_a_number_or_a_nesting_beyond_all_bounds_is_a_problem(tmp_path: Path) -> None:
    for text in (f"a = {'1' * 5000}", f"a = {'[' * 5000}"):
        (tmp_path / STATE_FILE).write_text(text)
        assert isinstance(load(tmp_path), Problem)


def test_a_file_cut_off_anywhere_is_a_problem_even_between_two_keys(tmp_path: Path) -> None:
    text = saved(tmp_path, FULL)
    first_line = text.index("\n") + 1
    for length in range(first_line, len(text) - 1, 11):
        (tmp_path / STATE_FILE).write_text(text[:length])
        assert STATE_FILE in problem(tmp_path).where
    (tmp_path / STATE_FILE).write_text(text[: text.index("[model]")])
    assert "cut off" in problem(tmp_path).what


def test_the_last_good_copy_is_offered_and_restored_and_the_broken_file_kept(tmp_path: Path) -> None:
    saved(tmp_path, FULL, replace(FULL, step="review"))
    (tmp_path / STATE_FILE).write_text("broken = ")
    assert f"{STATE_FILE}.bak" in problem(tmp_path).remedy
    restored = restore_backup(tmp_path)
    assert isinstance(restored, Loaded)
    assert restored.draft == FULL
    assert loaded(tmp_path) == FULL
    assert (tmp_path / f"{STATE_FILE}.broken").read_text() == "broken = "


def test_without_a_copy_none_is_offered(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("broken = ")
    assert ".bak" not in problem(tmp_path).remedy
    assert isinstance(restore_backup(tmp_path), Problem)


def test_a_broken_copy_is_neither_offered_nor_restored(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("broken = ")
    (tmp_path / f"{STATE_FILE}.bak").write_text("[task]\nrecipe = 3\n")
    assert ".bak" not in problem(tmp_path).remedy
    assert isinstance(restore_backup(tmp_path), Problem)
    assert (tmp_path / STATE_FILE).read_text() == "broken = "


def test_an_emptied_file_beside_a_copy_is_not_a_new_start(tmp_path: Path) -> None:
    saved(tmp_path, FULL, replace(FULL, step="review"))
    (tmp_path / STATE_FILE).write_text("")
    assert f"{STATE_FILE}.bak" in problem(tmp_path).remedy
    assert save(tmp_path, Draft()) is None  # answers in memory are worth more than an empty file
    restored = restore_backup(tmp_path)
    assert isinstance(restored, Loaded)
    assert restored.draft == FULL


def test_a_missing_file_beside_a_copy_is_mentioned(tmp_path: Path) -> None:
    saved(tmp_path, FULL, replace(FULL, step="review"))
    (tmp_path / STATE_FILE).unlink()
    got = load(tmp_path)
    assert isinstance(got, Loaded)
    assert got.draft == Draft()
    assert f"{STATE_FILE}.bak" in got.notes[0]


def test_a_file_that_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).mkdir()
    assert "cannot be read" in problem(tmp_path).what
    assert isinstance(save(tmp_path, FULL), Problem)


def test_keys_we_do_not_know_stay_at_every_depth(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text(
        "mine = 2026-01-01\nunknown = 1\n[task]\nrecipe = 'r'\nmood = 'good'\n[[rewards.items]]\nname = 'a'\n"
        "[[rewards.items]]\nname = 'b'\nwhy = 'because'\n[done.task]\nat = 't'\nby = 'me'\n"
    )
    draft = loaded(tmp_path)
    saved(tmp_path, draft)
    draft = loaded(tmp_path)
    swapped = tuple(reversed(draft.rewards.items))
    text = saved(tmp_path, replace(draft, task=TaskAnswer(recipe="s"), rewards=RewardsAnswer(items=swapped)))
    for words in ("mine = 2026-01-01", "unknown = 1", 'mood = "good"', 'recipe = "s"', 'by = "me"'):
        assert words in text
    assert '{ name = "b", weight = 1.0, why = "because" }' in text
    assert loaded(tmp_path).unknown == draft.unknown


def test_the_unknown_keys_of_an_item_go_with_it(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("[[rewards.items]]\nname = 'a'\nwhy = 'because'\n")
    assert "because" not in saved(tmp_path, replace(loaded(tmp_path), rewards=RewardsAnswer()))


# Other versions.


def test_a_newer_file_is_shown_and_not_overwritten(tmp_path: Path) -> None:
    text = "version = 99\nstep = 'dream'\n[task]\nrecipe = 'r'\nverdict = 7\n[[rewards.items]]\nweight = 1\n"
    (tmp_path / STATE_FILE).write_text(text)
    got = load(tmp_path)
    assert isinstance(got, Loaded)
    assert got.read_only
    assert "newer" in got.notes[0]
    assert got.draft.task == TaskAnswer(recipe="r")
    assert got.draft.rewards.items == ()
    refused = save(tmp_path, FULL)
    assert refused is not None
    assert "newer" in refused.what
    assert (tmp_path / STATE_FILE).read_text() == text


@pytest.fixture
def version_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose format has moved on twice: `llm` became `model`, whose `id` became `name`."""

    def rename_table(table: dict[str, Any]) -> dict[str, Any]:
        return {"model" if key == "llm" else key: value for key, value in table.items()}

    def rename_key(table: dict[str, Any]) -> dict[str, Any]:
        return {**table, "model": {"name": table["model"]["id"]}}

    monkeypatch.setattr(state, "VERSION", 3)
    monkeypatch.setattr(state, "MIGRATIONS", {1: rename_table, 2: rename_key})


OLD = 'version = 1\n[llm]\nid = "gpt2"\n'


@pytest.mark.usefixtures("version_three")
def test_an_older_file_is_migrated_and_kept(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text(OLD)
    got = load(tmp_path)
    assert isinstance(got, Loaded)
    assert got.draft.model.name == "gpt2"
    assert "older" in got.notes[0]
    assert (tmp_path / STATE_FILE).read_text() == OLD  # reading writes nothing
    saved(tmp_path, replace(got.draft, step="model"))
    saved(tmp_path, replace(got.draft, step="dataset"))
    assert (tmp_path / f"{STATE_FILE}.v1").read_text() == OLD
    assert loaded(tmp_path).model.name == "gpt2"


@pytest.mark.usefixtures("version_three")
def test_an_older_file_that_is_not_what_it_says_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("version = 1\n[model]\nname = 'gpt2'\n")
    assert "does not fit" in problem(tmp_path).what


@pytest.mark.usefixtures("version_three")
def test_a_file_older_than_all_migrations_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MIGRATIONS", {})
    (tmp_path / STATE_FILE).write_text(OLD)
    assert "too old" in problem(tmp_path).what


# The process ends, or the disk fails, at any moment.

SYSTEM_CALLS = ("open", "fchmod", "write", "fsync", "close", "replace")
"""Every call of `os` by which a save reaches the disk."""


def interrupt(at: int, how: str, fail: Callable[[], None]) -> None:
    """Let `fail` happen `how` (before, after, halfway) the call number `at` of this process; for good."""
    count = iter(range(1 << 30))
    for name in SYSTEM_CALLS:
        setattr(os, name, _failing(getattr(os, name), name, count, at, how, fail))


def _failing(real: Any, name: str, count: Any, at: int, how: str, fail: Callable[[], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        here = next(count) == at
        if here and how == "before":
            fail()
        if here and how == "halfway" and name == "write":
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            fail()
        result = real(*arguments, **options)
        if here and how == "after":
            fail()
        return result

    return call


def in_a_child(action: Callable[[], None]) -> int:
    """The exit status of a process of its own that does `action`; 0 when it comes to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


KILLED = 9


@pytest.mark.parametrize("how", ["before", "halfway", "after"])
def test_a_process_that_ends_at_any_call_leaves_the_old_or_the_new_answers(tmp_path: Path, how: str) -> None:
    first, second, third = FULL, replace(FULL, step="review"), replace(FULL, step="launch")
    seen = set()
    for at in range(100):
        project = tmp_path / str(at)
        project.mkdir()
        saved(project, first, second)

        def save_and_die(at: int = at, project: Path = project) -> None:
            interrupt(at, how, lambda: os._exit(KILLED))
            save(project, third)

        status = in_a_child(save_and_die)
        assert status in (0, KILLED)
        draft = loaded(project)
        assert draft in (second, third)
        backup = load_backup(project)
        assert backup in (first, second)
        assert save(project, replace(third, step="task")) is None  # and it goes on from there
        seen.add((draft.step, backup.step, status))
        if at > 20 or (status == 0 and how != "halfway"):
            break
    assert {("review", "settings", KILLED), ("launch", "review", 0)} <= seen
    if how != "halfway":
        assert {("review", "review", KILLED), ("launch", "review", KILLED)} <= seen


def load_backup(project: Path) -> Draft:
    copy = project / "copy"
    copy.mkdir()
    (copy / STATE_FILE).write_bytes((project / f"{STATE_FILE}.bak").read_bytes())
    return loaded(copy)


def test_a_disk_that_fails_at_any_call_is_a_problem_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, FULL)

    def fail() -> None:
        failed.append(at)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    failed: list[int] = []
    problems = 0
    for at in range(100):
        saved(tmp_path, replace(FULL, step="review"))
        with monkeypatch.context() as patch:
            for name in SYSTEM_CALLS:
                patch.setattr(os, name, getattr(os, name))  # remembered, and put back
            interrupt(at, "before", fail)
            result = save(tmp_path, replace(FULL, step="launch"))
        assert {file.name for file in tmp_path.iterdir()} == {STATE_FILE, f"{STATE_FILE}.bak"}
        assert loaded(tmp_path).step in ("review", "launch")
        if isinstance(result, Problem):
            problems += 1
            assert "Input/output error" in result.what
        if at not in failed:  # there are no more calls than that
            break
    assert problems > 8


def test_the_state_is_written_by_the_atomic_writer_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes, *, keep_backup: bool = False) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic, "write", refuse)
    refused = save(tmp_path, FULL)
    assert refused is not None
    assert "No space left" in refused.what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[model]\nmethod = "x"\n', "model.method must be one of"),
        ('[settings]\nprefer = "x"\n', "settings.prefer must be one of memory, speed"),
        ("[score]\nrow = -1\n", "score.row must be a whole number from 0"),
    ],
)
def test_a_word_that_is_no_choice_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / state.STATE_FILE).write_text(text)
    problem = state.load(tmp_path)
    assert isinstance(problem, Problem)
    assert "line 2" in problem.where
    assert words in problem.what
