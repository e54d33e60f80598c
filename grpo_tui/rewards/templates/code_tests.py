"""Template: code that passes tests."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo_tui.rewards.templates.last_block import last_block
from grpo_tui.rewards.templates.passes_tests import passes_tests
from grpo_tui.rewards.templates.text_of import text_of

CODE_TESTS_SECONDS = 5.0  # for one completion
CODE_TESTS_MEGABYTES = 1024  # of memory for each of its two processes
CODE_TESTS_AT_ONCE = 4  # completions
CODE_TESTS_LONGEST = 100_000  # characters of code


def code_tests(completions: list[Any], tests: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the last ```…``` block passes all tests of its row, else 0; None where there are no tests.

    Tests are Python: assert statements that call the model's functions, or functions test_…. Only plain values
    (numbers, text, lists, tuples, sets, dicts, None) are passed and returned. The code runs apart from the tests, with
    limits. That stops a model that cheats, not an attacker: the network is shut only where the kernel lets a process
    without rights do so, files that everybody may read can be read. Code you do not trust belongs into a container.
    """
    blocks = [last_block(text_of(completion)) for completion in completions]
    rows = ["\n".join(map(str, each)) if isinstance(each, (list, tuple)) else str(each or "") for each in tests]
    with ThreadPoolExecutor(CODE_TESTS_AT_ONCE) as pool:
        return list(pool.map(code_tests_of, blocks, rows))


def code_tests_of(code: str | None, checks: str) -> float | None:
    if not checks.strip():
        return None
    if not code or len(code) > CODE_TESTS_LONGEST:
        return 0.0
    return float(passes_tests(code, checks, CODE_TESTS_SECONDS, CODE_TESTS_MEGABYTES))
