"""A run's completions, taken to the bench."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from grpo_tui.problem import Problem
from grpo_tui.progress import completions
from grpo_tui.progress.kept import kept, rows_of
from grpo_tui.rewards.stored import Stored, standing, what_if

RUNS = Path(__file__).parents[1] / "runs"


def stored(run: str, step: int | None = None) -> Stored:
    found = kept(RUNS / run, step)
    assert isinstance(found, Stored), str(found)
    return found


def test_the_last_step_comes_with_the_weights_and_groups_of_the_run() -> None:
    found = stored("h01_base")
    assert found.step == 240
    assert found.names == ("correctness_reward", "format_reward", "length_reward")
    assert found.weights == (1.0, 0.3, 0.1)
    assert found.group_size == 8
    assert len(found.rewards) == len(found.completions) == len(found.prompts) == 64


@pytest.mark.parametrize(("run", "step"), [("h01_base", 1), ("h04_beta_kl", 1), ("h06_spg4_accum2", 1)])
def test_advantages_are_those_that_the_run_was_trained_with(run: str, step: int) -> None:
    table = completions.read(RUNS / run, step)
    assert not isinstance(table, Problem)
    assert list(standing(stored(run, step)).advantages) == pytest.approx(list(table.advantages), abs=2e-3)


def test_what_other_weights_would_have_done_in_a_run_that_is_over() -> None:
    found = what_if(stored("h01_base", 1), weights=(1.0, 0.0, 0.0))
    assert not isinstance(found, Problem)
    assert found.after.flat_share > found.before.flat_share
    assert found.moved


def test_a_run_of_somebody_else_has_weights_of_one(tmp_path: Path) -> None:
    shutil.copytree(RUNS / "h01_base" / "completions", tmp_path / "completions")
    found = kept(tmp_path, 1)
    assert isinstance(found, Stored)
    assert found.weights == (1.0, 1.0, 1.0)
    assert found.group_size == 8


def test_rows_are_found_by_the_prompt() -> None:
    found = stored("h01_base", 1)
    system, _, user = found.prompts[0].partition("\nuser: ")
    messages = [{"role": "system", "content": system.removeprefix("system: ")}, {"role": "user", "content": user}]
    other = {"prompt": "How many?", "answer": "3"}
    rows = rows_of(found.prompts[:8], enumerate([other, {"prompt": messages, "answer": "12"}]), "step 1")
    assert not isinstance(rows, Problem)
    assert {(number, row["answer"]) for number, row in rows} == {(1, "12")}
    problem = rows_of(found.prompts, enumerate([{"prompt": messages, "answer": "12"}]), "step 1")
    assert isinstance(problem, Problem)
    assert "56 of 64" in problem.what


def test_the_data_are_read_no_further_than_to_the_last_prompt() -> None:
    def endless() -> Iterator[tuple[int, dict[str, str]]]:
        for number in count():
            assert number < 5, "it was found already"
            yield number, {"prompt": f"question {number}"}

    rows = rows_of(["question 4", "question 2", "question 2"], endless(), "step 1")
    assert not isinstance(rows, Problem)
    assert [number for number, _ in rows] == [4, 2, 2]


@pytest.mark.parametrize(
    ("run", "step", "what"),
    [("made_nan", None, "No completions"), ("f25_zero_step", None, "no completion"), ("h01_base", 2, "not kept")],
)
def test_what_a_run_does_not_have_is_said(run: str, step: int | None, what: str) -> None:
    problem = kept(RUNS / run, step)
    assert isinstance(problem, Problem)
    assert what in problem.what
