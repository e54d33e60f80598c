"""Groups of completions as a file keeps them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_tui.problem import Problem
from grpo_tui.rewards.groups import Groups, made, read, request, save
from grpo_tui.rewards.sampling import Completion, Samples

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


def of(path: Path) -> Groups:
    found = read(path)
    assert isinstance(found, Groups), str(found)
    return found


@given(
    st.lists(
        st.tuples(TEXTS, st.lists(TEXTS, min_size=2, max_size=2)), min_size=1, max_size=4, unique_by=lambda x: x[0]
    )
)
def test_what_was_saved_is_read_back(tmp_path_factory: pytest.TempPathFactory, groups: list[Any]) -> None:
    path = tmp_path_factory.mktemp("kept") / "pilot.jsonl"
    rows = tuple(
        {"prompt": [{"role": "user", "content": prompt}], "answer": "4", "completion": text}
        for prompt, texts in groups
        for text in texts
    )
    kept = Groups(
        rows=rows,
        size=2,
        origin="a model",
        ids=tuple((1, 2) if at % 2 else None for at in range(len(rows))),
        finished=tuple((True, False, None)[at % 3] for at in range(len(rows))),
        numbers=tuple(range(7, 7 + len(groups))),
    )
    assert save(path, kept) is None
    found = of(path)
    assert (found.rows, found.ids, found.finished, found.numbers) == (kept.rows, kept.ids, kept.finished, kept.numbers)
    assert found.size == (2 if len(groups) > 1 else len(rows))


def test_completions_without_prompts_are_one_group(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('"four"\n{"completion": "five"}\n"six"\n')
    found = of(path)
    assert (found.size, len(found.rows), found.numbers, found.cut_share) == (3, 3, (), None)


def test_prompts_that_come_unevenly_are_groups_of_one(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "completion": "x"}) + "\n" for p in "aab"))
    assert of(path).size == 1


@pytest.mark.parametrize("content", ["", "\n\n", "{", '{"completion": 4}\n', "[]\n"])
def test_what_is_no_completions_file_is_said(tmp_path: Path, content: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(content)
    problem = read(path)
    assert isinstance(problem, Problem)
    assert str(path) in problem.where


def test_what_somebody_wrote_beside_a_completion_cannot_break_it(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    lines = [
        {"completion": "a", "completion_ids": "not tokens", "finished": "yes", "data_row": -3},
        {"completion": "b", "completion_ids": [1, "2"], "finished": 1, "data_row": "4"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = of(path)
    assert (found.ids, found.finished, found.numbers) == ((None, None), (None, None), ())


def test_what_a_model_made_stands_beside_the_rows_it_was_asked(tmp_path: Path) -> None:
    samples = Samples(
        prompts=("1?", "2?"),
        completions=tuple(Completion(text=text, ids=(5,), finished=text != "c") for text in "abcd"),
        generations=2,
        origin="tiny on cpu",
    )
    groups = made(samples, [{"prompt": "1?", "answer": "1"}, {"prompt": "2?", "answer": "2"}], [4, 9])
    assert [row["answer"] + row["completion"] for row in groups.rows] == ["1a", "1b", "2c", "2d"]
    assert groups.cut_share == 0.25
    asked = request(groups, path=tmp_path / "rewards.py", names=("f",), weights=(1.0,))
    assert (asked.group_size, asked.prompts, asked.columns) == (2, ("1?", "1?", "2?", "2?"), {"answer": list("1122")})


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    groups = Groups(rows=({"completion": "a"},), size=1, origin="x")
    problem = save(tmp_path / "gone" / "pilot.jsonl", groups)
    assert isinstance(problem, Problem)
