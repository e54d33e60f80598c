"""A reward that excuses every exception with a number hides a verifier that never works (RW-06)."""

import pytest

from grpo_tui.rewards.excuses import check_excuses
from grpo_tui.rewards.kinds import FOLDER

HEAD = """def f(completions, **kwargs):
    out = []
    for c in completions:
        try:
            out.append(g(c))
"""


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception: out.append(0.0)",
        "except: out.append(0)",
        "except (ValueError, Exception):\n            print(c)\n            out.append(-1.0)",
        "except BaseException: return [0.0] * len(completions)",
        "except Exception as error: score = 0.0",
    ],
)
def test_a_number_for_every_exception_is_named_with_its_line(handler: str) -> None:
    (problem,) = check_excuses(f"{HEAD}        {handler}\n", "mine.py")
    assert problem.where == "mine.py:6"
    assert "looks like wrong answers" in problem.what
    assert "None" in problem.remedy


@pytest.mark.parametrize(
    "handler",
    [
        "except ValueError: out.append(0.0)",
        "except Exception: out.append(None)",
        "except Exception: raise",
        "except Exception as error: out.append(str(error))",
    ],
)
def test_an_exception_that_is_named_or_not_counted_is_left_alone(handler: str) -> None:
    assert check_excuses(f"{HEAD}        {handler}\n") == []


def test_the_catalogue_excuses_nothing_and_a_file_that_is_no_python_is_somebody_elses_problem() -> None:
    assert [path.name for path in FOLDER.glob("*.py") if check_excuses(path.read_text("utf-8"))] == []
    assert check_excuses("def (") == []
