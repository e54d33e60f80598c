"""Reward functions loaded as the training loads them."""

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.loading import forget, is_async, load_rewards, named


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path) -> Iterator[None]:
    """What a test loads from its folder is gone after it."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget(tmp_path)


def test_a_file_in_a_folder_without_init_loads_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LA-03."""
    folder = tmp_path / "proj" / "rewards"
    folder.mkdir(parents=True)
    (folder / "code_based.py").write_text(
        "import tags_of_mine\ndef strict_format(completions, **kwargs): return [tags_of_mine.PAID]"
    )
    (folder / "tags_of_mine.py").write_text("PAID = 1.0")
    monkeypatch.chdir("/")
    loaded = load_rewards(folder / "code_based.py", ["strict_format"])
    assert not isinstance(loaded, Problem)
    assert loaded[0](["x"]) == [1.0]
    assert loaded[0].__name__ == "strict_format"


def test_a_missing_file_or_name_is_a_problem_with_the_resolved_path(
    tmp_path: Path, rewards_file: Callable[[str], Path]
) -> None:
    missing = load_rewards(tmp_path / "none.py", ["f"])
    assert isinstance(missing, Problem)
    assert str(tmp_path / "none.py") == missing.where
    wrong = load_rewards(rewards_file("def f(completions): ..."), ["g"])
    assert isinstance(wrong, Problem)
    assert "no reward function `g`" in wrong.what


def test_a_users_file_hides_no_library(tmp_path: Path) -> None:
    """LA-02: the project folder comes last on the path."""
    (tmp_path / "types.py").write_text("raise RuntimeError('mine')")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('mine')")
    (tmp_path / "rewards.py").write_text("import colorsys, types\ndef f(completions, **k): return [1.0]")
    assert not isinstance(load_rewards(tmp_path / "rewards.py", ["f"]), Problem)


def test_a_rewards_file_named_like_a_loaded_library_does_not_replace_it(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("def f(completions, **k): return [1.0]")
    before = sys.modules["json"]
    assert not isinstance(load_rewards(path, ["f"]), Problem)
    assert sys.modules["json"] is before


def test_dataclasses_and_pickle_find_the_module(rewards_file: Callable[[str], Path]) -> None:
    path = rewards_file(
        """
        from __future__ import annotations
        import pickle
        from dataclasses import dataclass
        @dataclass
        class Score: value: float
        def f(completions, **k): return [pickle.loads(pickle.dumps(Score(1.0))).value for _ in completions]
        """
    )
    loaded = load_rewards(path, ["f"])
    assert not isinstance(loaded, Problem)
    assert loaded[0](["x"]) == [1.0]


def test_lambdas_partials_and_instances_get_the_name_under_which_they_are_chosen(
    rewards_file: Callable[[str], Path],
) -> None:
    """RW-12: TRL would log them all under one name."""
    path = rewards_file(
        """
        import functools
        class Length:
            def __init__(self, top): self.top = top
            async def __call__(self, completions, **k): return [min(len(c), self.top) for c in completions]
        long, short = Length(100), Length(10)
        one = lambda completions, **k: [1.0]
        two = lambda completions, **k: [2.0]
        def base(completions, value, **k): return [value]
        bound = functools.partial(base, value=3.0)
        """
    )
    names = ["long", "short", "one", "two", "bound"]
    loaded = load_rewards(path, names)
    assert not isinstance(loaded, Problem)
    assert [function.__name__ for function in loaded] == names
    assert [is_async(function) for function in loaded] == [True, True, False, False, False]
    assert [function(["x"]) for function in loaded[2:]] == [[1.0], [2.0], [3.0]]


def test_trl_names_and_awaits_them_as_we_do() -> None:
    from trl.trainer.utils import get_callable_name, is_async_callable  # noqa: TID251  the library's own answer

    class Later:
        async def __call__(self, completions: list[str]) -> list[float]:
            return [1.0]

    def plain(completions: list[str]) -> list[float]:
        return [1.0]

    for function in (plain, functools.partial(plain), Later(), functools.partial(Later()), lambda completions: [1.0]):
        wrapped = named(function, "mine")
        assert get_callable_name(wrapped) == "mine"
        assert is_async_callable(wrapped) == is_async_callable(function) == is_async(function)
