"""Code against tests: what passes them is paid, what gets around them is not, and no process is left behind."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.rewards.catalogued import functions, paid, proposal

ADD = "assert add(1, 2) == 3\nassert add(5, 6) == 11"


def paid_for(code: str, tests: object = ADD, seconds: float = 5.0) -> float | None:
    """The reward of a completion that ends with this code."""
    function = functions(proposal("code_tests", seconds=seconds))["paid"]
    text = f"<think>```python\nno\n```</think>Here:\n```python\n{dedent(code)}\n```"
    (reward,) = function(completions=[text], tests=[dedent(tests) if isinstance(tests, str) else tests])
    result: float | None = reward
    return result


def processes() -> set[str]:
    """Living processes that run code of ours apart."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if b"RLIMIT_" in command and b"-I" in command.split(b"\0"):
            found.add(folder.name)
    return found


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return a + b",
        "add = lambda a, b: sum([a, b])",
        "import operator\n\n\ndef add(a, b):\n    print('adding', a, b)\n    return operator.add(a, b)",
        "from functools import partial\nfrom operator import add",
        "import numpy\n\n\ndef add(a, b):\n    return numpy.int64(a) + b",
    ],
)
def test_code_that_is_right_is_paid_however_it_is_written(code: str) -> None:
    assert paid_for(code) == 1.0


CHEATS = {
    "wrong": "def add(a, b): return a - b",
    "the visible case only": "def add(a, b): return 3",
    "ends well at once": "import sys; sys.exit(0)",
    "ends well when called": """
        import os
        def add(a, b): os._exit(0)
    """,
    "equal to everything": """
        class Same(int):
            def __eq__(self, other): return True
            def __repr__(self): return "x"
        def add(a, b): return Same()
    """,
    "true to everything": """
        import builtins
        builtins.AssertionError = Warning
        builtins.all = lambda each: True
    """,
    "patches the comparison": """
        import ast, json
        ast.literal_eval = json.loads = lambda text: 3
        def add(a, b): pass
    """,
    "prints that it passed": """
        import os
        for end in range(9):
            try: os.write(end, b"passed\\n")
            except OSError: pass
    """,
    "starts a process": """
        import os
        os.fork()
        def add(a, b): return a + b
    """,
    "starts ever more processes": """
        import os
        while True: os.fork()
    """,
    "takes all memory": "x = bytearray(1 << 40)\ndef add(a, b): return a + b",
    "fills the disk": "open('big', 'wb').write(bytes(1 << 25))\ndef add(a, b): return a + b",
    "says too much": "def add(a, b): return 'x' * 10_000_000",
    "nests too deep": """
        def add(a, b):
            x = []
            for _ in range(900): x = [x]
            return x
    """,
    "no Python": "def add(a, b) return",
    "nothing": "",
    "a null": "\0",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_code_that_cheats_earns_nothing(cheat: str) -> None:
    assert paid_for(CHEATS[cheat]) == 0.0


PEEKS = {
    "files": """
        import pathlib
        def texts():
            here = pathlib.Path().rglob("*")
            running = pathlib.Path("/proc")
            for path in [*here, *running.glob("[0-9]*/cmdline"), *running.glob("[0-9]*/environ")]:
                try: yield path.read_text(errors="replace")
                except OSError: pass
    """,
    "its memory": """
        import gc, sys
        def texts():
            yield from (str(each) for each in gc.get_objects() if type(each) in (dict, list, tuple) and len(each) < 99)
            frame = sys._getframe()
            while frame:
                yield str(frame.f_locals) + str(frame.f_globals)
                frame = frame.f_back
    """,
}


@pytest.mark.parametrize("peek", PEEKS)
def test_code_finds_the_right_value_nowhere(peek: str) -> None:
    code = dedent(PEEKS[peek]) + "def find(): return any(''.join(['4711', '0815']) in text for text in texts())"
    assert paid_for(code, "assert find() is False  # 47110815") == 1.0


def test_code_that_looks_into_its_memory_does_find_what_is_there() -> None:
    code = dedent(PEEKS["its memory"]) + "def find(): return any('47110815' in text for text in texts())"
    assert paid_for(code, "assert find()") == 1.0


@pytest.mark.parametrize(
    "code", ["while True:\n    pass", "import time\ntime.sleep(1e6)", "def add(a, b):\n    while True:\n        pass"]
)
def test_code_that_never_ends_is_ended(code: str) -> None:
    before = processes()
    assert paid_for(code, seconds=0.5) == 0.0
    assert processes() <= before


def test_code_that_leaves_its_group_is_ended_all_the_same() -> None:
    before = processes()
    code = """
        import os, signal
        try: os.setsid()
        except OSError: pass
        signal.signal(15, signal.SIG_IGN)
        while True: pass
    """
    assert paid_for(code, seconds=0.5) == 0.0
    assert processes() <= before


def test_the_code_sees_neither_secrets_nor_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    code = "import os\ndef seen(): return sorted(os.environ), os.listdir()"
    tests = "names, files = seen()\nassert 'HF_TOKEN' not in names\nassert len(names) < 3\nassert not files"
    assert paid_for(code, tests) == 1.0


def test_every_row_has_its_own_tests_and_a_row_without_any_is_skipped() -> None:
    function = functions(proposal("code_tests", tests="checks"))["paid"]
    block = "```python\ndef double(x):\n    return 2 * x\n```"
    checks = ["assert double(2) == 4", ["assert double(2) == 4", "assert double(3) == 7"], None, []]
    assert function(completions=[block] * 4, checks=checks) == [1.0, 0.0, None, None]


@pytest.mark.parametrize(
    "tests",
    [
        """
        def test_it():
            assert half(3) == 1.5

        def test_error():
            try: half("x")
            except TypeError: return
            assert False
        """,
        "def check(candidate):\n    for n in range(50):\n        assert abs(candidate(n) - n / 2) < 1e-9\ncheck(half)",
        "import math\nassert math.isclose(half(x=1.0), 0.5)\nassert half(3) in (1.5,)",
    ],
)  # fmt: skip
def test_tests_may_be_written_in_the_usual_ways(tests: str) -> None:
    assert paid_for("def half(x):\n    return x / 2", tests) == 1.0
    assert paid_for("def half(x):\n    return x // 2", tests) == 0.0


def test_plain_values_come_back_as_they_are() -> None:
    code = "def same(x):\n    return x"
    tests = """
        for x in (1, 1.5, True, None, "a\\n”", b"b", (1, 2), [1, (2,)], {"a": {1: 2}}, {1, 2}):
            assert same(x) == x
            assert type(same(x)) is type(x)
    """
    assert paid_for(code, tests) == 1.0


@pytest.mark.parametrize("text", ["{}", "```python\n{}", "```\n```", "`{}`"])
def test_only_a_closed_block_is_code(text: str) -> None:
    assert paid(proposal("code_tests"), text.replace("{}", "def add(a, b): return a + b"), tests=ADD) == 0.0
