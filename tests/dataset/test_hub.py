"""Data sets of the hub, asked of a hub on this machine by the real `datasets`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.dataset.sources import Source, count_rows, load_call, open_source
from grpo_tui.problem import Problem
from tests.dataset.hub import Hub, serving


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with serving() as place:
        yield {**place, "HF_HOME": str(tmp_path_factory.mktemp("hf"))}


@pytest.fixture(scope="module")
def worker(environ: dict[str, str]) -> Iterator[Worker]:
    with Worker("hub_rows", env={**os.environ, **environ}) as started:
        yield started


def opened(worker: Worker, name: str, split: str = "", **options: str) -> Source:
    source = open_source(name, options, split, worker=worker)
    assert isinstance(source, Source), str(source)
    return source


def refused(worker: Worker, name: str, split: str = "", **options: str) -> Problem:
    problem = open_source(name, options, split, worker=worker)
    assert isinstance(problem, Problem)
    assert problem.where == f"data set {name}"
    return problem


def test_the_first_rows_are_seen_without_a_download(worker: Worker) -> None:
    Hub.asked.clear()
    source = opened(worker, "team/plain")
    assert source.head(2) == [
        {"question": "plain 0?", "answer": "#### 0"}, {"question": "plain 1?", "answer": "#### 1"},
    ]  # fmt: skip
    assert (source.split, source.splits, source.rows_exact) == ("train", ("train", "test"), False)
    assert [(column.name, column.type) for column in source.columns] == [("question", "string"), ("answer", "string")]
    assert load_call(source) == "load_dataset('team/plain', split='train')"
    assert not any("test.jsonl" in asked for asked in Hub.asked)


def test_the_other_rows_come_page_by_page(
    worker: Worker, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)  # the rows are read by a worker of their own
    source = opened(worker, "team/plain")
    assert [row["answer"] for row in source.iterate()] == [f"#### {n}" for n in range(700)]
    counted = count_rows(source)
    assert isinstance(counted, Source)
    assert (counted.rows, counted.rows_exact) == (700, True)
    assert source.row(650) == {"question": "plain 650?", "answer": "#### 650"}


def test_of_several_configurations_one_must_be_named(worker: Worker) -> None:
    problem = refused(worker, "team/configs")
    assert "several configurations" in problem.what
    assert problem.remedy == "Choose one: main, hard."
    source = opened(worker, "team/configs", "test", config="hard")
    assert [row["question"] for row in source.head(5)] == ["hard test 0?", "hard test 1?"]
    assert load_call(source) == "load_dataset('team/configs', name='hard', split='test')"
    assert refused(worker, "team/configs", config="soft").remedy == "Configurations: main, hard."
    assert refused(worker, "team/configs", "dev", config="hard").remedy == "Splits: train, test."


def test_a_revision_is_kept_for_training(worker: Worker) -> None:
    source = opened(worker, "team/plain", revision="main")
    assert load_call(source) == "load_dataset('team/plain', revision='main', split='train')"
    assert "no such revision" in refused(worker, "team/plain", revision="v9").what


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        ("team/gated", "gives access only to those who asked", "hf auth login"),
        ("team/former", "It was renamed: it is called team/plain now.", "Use the new name"),
        ("team/nothing", "no such data set, or it is private", "Check the spelling"),
    ],
)
def test_what_the_hub_does_not_give_is_said_with_its_reason(worker: Worker, name: str, what: str, remedy: str) -> None:
    problem = refused(worker, name)
    assert what in problem.what
    assert remedy in problem.remedy


def test_a_hub_that_answers_nothing_is_not_taken_for_a_missing_data_set(tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
    with Worker("hub_rows", env={**os.environ, **environ}) as worker:
        assert "cannot be reached" in refused(worker, "team/plain").what
