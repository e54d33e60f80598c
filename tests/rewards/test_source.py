"""Reward functions read from their source: nothing of it is run."""

from pathlib import Path
from textwrap import dedent

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.source import (
    FunctionSource,
    check_opening_tag,
    check_signatures,
    duplicates,
    missing_imports,
    nearest,
    read_code,
    read_functions,
)

COLUMNS = ("prompt", "answer")


def functions(code: str) -> tuple[FunctionSource, ...]:
    read = read_code(dedent(code))
    assert not isinstance(read, Problem)
    return read


def test_every_form_of_a_reward_function_is_found_and_helpers_are_not() -> None:
    found = functions(
        """
        import functools
        from trl.rewards import think_format_reward, get_cosine_scaled_reward as cosine_reward
        from os import path

        def plain(completions, **kwargs):
            "Pays one."
            return [1.0]

        @functools.lru_cache
        def decorated(prompts, completions, *, answer=None, **kwargs): ...

        async def judge(completions, **kwargs): ...

        def _private(completions): ...
        def text_of(completion): ...

        class Length:
            async def __call__(self, completions, completion_ids, **kwargs): ...

        length = Length()
        short = lambda completions, **kwargs: [0.0]
        bound = functools.partial(decorated, answer="4")
        NUMBER = 3
        """
    )
    assert {each.name: each.kind for each in found} == {
        "think_format_reward": "import",
        "cosine_reward": "import",
        "plain": "function",
        "decorated": "function",
        "judge": "function",
        "length": "instance",
        "short": "lambda",
        "bound": "partial",
    }
    by_name = {each.name: each for each in found}
    assert by_name["plain"].doc == "Pays one."
    assert by_name["plain"].code.startswith("def plain(")
    assert by_name["decorated"].lines == (10, 11)
    assert by_name["decorated"].parameters == ("prompts", "completions", "answer")
    assert by_name["decorated"].required == ("prompts", "completions")
    assert [each.name for each in found if each.is_async] == ["judge", "length"]
    assert by_name["length"].required == ("completions", "completion_ids")


def test_reading_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "rewards.py"
    path.write_text(f"open({str(marker)!r}, 'w')\ndef one(completions, **kwargs): return [1.0]\n")
    read = read_functions(path)
    assert not isinstance(read, Problem)
    assert [each.name for each in read] == ["one"]
    assert not marker.exists()


@pytest.mark.parametrize("text", ["def f(:\n", "x = 1\n  y = 2\n", "a\0b"])
def test_what_is_not_python_is_named_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rewards.py"
    path.write_text(text)
    problem = read_functions(path)
    assert isinstance(problem, Problem)
    assert problem.where.startswith("rewards.py")
    assert "not Python" in problem.what


def test_a_syntax_error_is_named_with_its_line() -> None:
    problem = read_code("import re\ndef f(completions:\n    pass\n")
    assert isinstance(problem, Problem)
    assert problem.where == "rewards.py:2"


def test_a_missing_or_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# é".encode("latin-1"))
    for path in (tmp_path / "none.py", tmp_path / "latin.py"):
        assert isinstance(read_functions(path), Problem)


@pytest.mark.parametrize(
    ("code", "what", "remedy"),
    [
        ("def r1(completions): return []", "TRL also passes prompts", "Add `**kwargs`"),
        ("def r2(prompts, completions): return []", "TRL also passes completion_ids", "Add `**kwargs`"),
        ("def r3(prompts, responses, **kwargs): return []", "requires `responses`", "`completions`"),
        ("def r4(completions, solution, **k): return []", "requires `solution`", "`answer`"),
        ("def r5(completions, anwser, **k): return []", "requires `anwser`", "`answer`"),
        ("def r6(completions, weather, **k): return []", "requires `weather`", "Columns are: answer."),
        ("def r7(completions, /, **k): return []", "only be given by position", "Remove the `/`"),
        ("def r8(completions, prompt, **k): return []", "requires `prompt`", "`prompts`"),
    ],
)
def test_a_signature_that_trl_cannot_call_is_explained(code: str, what: str, remedy: str) -> None:
    """RW-01."""
    (problem,) = check_signatures(functions(code), COLUMNS)
    assert what in problem.what
    assert remedy in problem.remedy
    assert problem.where == f"rewards.py:1 r{code[5]}"


def test_trls_own_reward_is_known_to_want_a_column_of_its_name() -> None:
    """DS-02: left to the training, it dies at step 0 for want of `solution`."""
    code = "from trl.rewards import accuracy_reward as right, think_format_reward, get_cosine_scaled_reward"
    (problem,) = check_signatures(functions(code), COLUMNS)
    assert problem.where == "rewards.py:1 right"
    assert "requires `solution`" in problem.what
    assert "`answer`" in problem.remedy
    assert check_signatures(functions(code), [*COLUMNS, "solution"]) == []
    assert check_signatures(functions("from mine import accuracy_reward"), COLUMNS) == []


@pytest.mark.parametrize(
    "code",
    [
        "def f(completions, answer, **kwargs): return []",
        "def f(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, answer): return []",
        "def f(completions, environments, **kwargs): return []",
        "def f(completions, tolerance=0.1, *, answer, **kwargs): return []",
        "class C:\n  def __call__(self, completions, **k): ...\nf = C()",
    ],
)
def test_a_signature_that_trl_can_call_is_fine(code: str) -> None:
    assert check_signatures(functions(code), COLUMNS) == []


def test_a_name_defined_twice_is_named_with_both_lines() -> None:
    """RW-12: the first one would silently be lost."""
    found = functions("def f(completions, **k): ...\ndef f(completions, **k): ...")
    (problem,) = check_signatures(found, COLUMNS)
    assert "lines 1, 2" in problem.what
    assert duplicates(["f", "g", "f"]) == ("f",)


def test_chosen_names_are_looked_up_and_only_they_are_checked() -> None:
    found = functions("def correct(completions, **k): ...\ndef broken(completions): ...")
    assert check_signatures(found, COLUMNS, ["correct"]) == []
    (missing,) = check_signatures(found, COLUMNS, ["corect"])
    assert missing.remedy == "Did you mean `correct`?"
    (twice,) = check_signatures(found, COLUMNS, ["correct", "correct"])
    assert "more than once" in twice.what


def test_modules_that_nobody_has_are_named_with_their_line_before_a_training_dies_of_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('it is not run')")
    code = "import json, mine\ndef f(completions):\n    from . import near\n    from no_such_judge.api import ask"
    (problem,) = missing_imports(code, "rewards.py", [tmp_path])
    assert problem.where == "rewards.py:4"
    assert "imports no_such_judge" in problem.what
    assert "pip install no-such-judge" in problem.remedy
    assert [each.what.split()[2] for each in missing_imports(code, "r.py", [])] == ["mine,", "no_such_judge,"]
    assert missing_imports("def (", "r.py", []) == []


def test_the_nearest_column_is_found_by_meaning_before_spelling() -> None:
    assert nearest("solution", ["resolution", "answer"]) == "answer"
    assert nearest("answers", ["question", "answer"]) == "answer"
    assert nearest("zebra", ["question", "answer"]) == ""


@pytest.mark.parametrize(
    ("rendered", "warned"),
    [
        ("<|user|>2+2?<|assistant|>\n<think>\n", True),
        ("<|user|>2+2?<|assistant|>\n", False),
        ("<|im_start|>assistant\n", False),
        ("done</think>\n", False),
    ],
)
def test_a_format_reward_is_warned_of_a_template_that_opens_the_tag_itself(rendered: str, warned: bool) -> None:
    """RW-05: completions start after the tag, so a pattern anchored at it never matches."""
    code = 'import re\ndef fmt(completions, **k): return [float(bool(re.match(r"^<think>.*</think>", c))) for c in k]'
    other = "def right(completions, **k): return [1.0]"
    problems = check_opening_tag([*functions(code), *functions(other)], rendered)
    assert [problem.where for problem in problems] == (["rewards.py:2 fmt"] if warned else [])


def test_a_folder_in_the_place_of_the_file_is_said_in_plain_words(tmp_path: Path) -> None:
    problem = read_functions(tmp_path)
    assert isinstance(problem, Problem)
    assert problem.what == "The file cannot be read: Is a directory."
