"""What the model is paid for: one function per aspect, one number per completion."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CORRECT_SECONDS = 5.0  # for one completion
CORRECT_MEGABYTES = 1024  # of memory for each of its two processes
CORRECT_AT_ONCE = 4  # completions
CORRECT_LONGEST = 100_000  # characters of code


def correct(completions: list[Any], tests: list[Any], **kwargs: Any) -> list[float | None]:
    """1 if the last ```…``` block passes all tests of its row, else 0; None where there are no tests.

    Tests are Python: assert statements that call the model's functions, or functions test_…. Only plain values
    (numbers, text, lists, tuples, sets, dicts, None) are passed and returned. The code runs apart from the tests, with
    limits. That stops a model that cheats, not an attacker: the network is shut only where the kernel lets a process
    without rights do so, files that everybody may read can be read. Code you do not trust belongs into a container.
    """
    blocks = [last_block(text_of(completion)) for completion in completions]
    rows = ["\n".join(map(str, each)) if isinstance(each, (list, tuple)) else str(each or "") for each in tests]
    with ThreadPoolExecutor(CORRECT_AT_ONCE) as pool:
        return list(pool.map(correct_of, blocks, rows))


def correct_of(code: str | None, checks: str) -> float | None:
    if not checks.strip():
        return None
    if not code or len(code) > CORRECT_LONGEST:
        return 0.0
    return float(passes_tests(code, checks, CORRECT_SECONDS, CORRECT_MEGABYTES))


ONE_BLOCK_EXPRESSION = r"[^`]{0,4000}```(?:python|py)?\n[^`]{1,8000}\n```\s*"
ONE_BLOCK_LONGEST = 10_000  # characters; longer text is not searched: some expressions take very long to say no


def one_block(completions: list[Any], **kwargs: Any) -> list[float]:
    """1 if the expression matches the whole completion, from its first character to its last, else 0."""
    whole = re.compile(ONE_BLOCK_EXPRESSION)
    texts = [text_of(completion) for completion in completions]
    return [float(len(text) <= ONE_BLOCK_LONGEST and whole.fullmatch(text) is not None) for text in texts]


BLOCK = re.compile(r"^```[a-zA-Z0-9]*[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def last_block(text: str) -> str | None:
    """What stands in the last ```…``` after the reasoning, or None."""
    blocks = BLOCK.findall(after_reasoning(text))
    return blocks[-1] if blocks else None


# Both processes start with this: no secrets (an empty environment), an empty folder, and limits.
LIMITED = """
import ast, ctypes, json, os, resource, sys
setting = json.loads(sys.stdin.readline())
channel = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
megabytes = setting["megabytes"] << 20
for name, most in (("AS", megabytes), ("CPU", setting["seconds"]), ("FSIZE", 1 << 20), ("NOFILE", 32), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
libc = ctypes.CDLL(None)
libc.prctl(4, 0)  # PR_SET_DUMPABLE: its memory cannot be read by the other process
"""

# The model's code. It never gets to see a test: only calls of its functions, with plain values.
RUN_SOLUTION = """
if os.getuid() == 0:  # whom no limit on processes binds
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, *([65534] * 2 if setting["as_nobody"] else [0] * 2))  # or it could not import anything
    libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())  # no rights beyond those of its files
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
libc.unshare(0x50000000)  # CLONE_NEWUSER | CLONE_NEWNET: without a network, where the kernel lets us
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # no other process, no thread
names = {"__name__": "solution"}
calls = sys.stdin
sys.stdin = open(os.devnull)
exec(compile(setting["code"], "solution.py", "exec"), names)
print(json.dumps([name for name, value in names.items() if callable(value)]), file=channel, flush=True)
for line in calls:
    name, given, named = ast.literal_eval(json.loads(line))
    try:
        value = names[name](*given, **named)
        value = value.tolist() if type(value).__module__ == "numpy" else value
        reply = ["value", repr(value)]
    except Exception as error:
        reply = ["error", type(error).__name__]
    print(json.dumps(reply), file=channel, flush=True)
"""

# The tests. Functions of the model's code are called in the other process, and only plain values come back.
RUN_TESTS = """
import builtins
calls = os.fdopen(setting["calls"], "w")
replies = os.fdopen(setting["replies"])

def answer():
    line = replies.readline(1_000_000)
    if not line.endswith("\\n"):
        os._exit(1)  # the code has ended, or says too much
    return json.loads(line)

def function(name):
    def call(*given, **named):
        print(json.dumps(repr((name, given, named))), file=calls, flush=True)
        kind, text = answer()
        if kind == "value":
            return ast.literal_eval(text)
        error = getattr(builtins, text, Exception)
        raise error if isinstance(error, type) and issubclass(error, Exception) else Exception
    return call

names = {"__name__": "tests"}
names |= {name: function(name) for name in answer() if name.isidentifier() and not hasattr(builtins, name)}
before = set(names)
exec(compile(setting["tests"], "tests.py", "exec"), names)
for name in [name for name in names if name.startswith("test_") and name not in before]:
    names[name]()
print("passed", file=channel, flush=True)
"""


def passes_tests(code: str, tests: str, seconds: float, megabytes: int) -> bool:
    """Whether the code passes: each runs in a fresh interpreter of its own, and only plain values go between them."""
    common = {"seconds": int(seconds) + 1, "megabytes": megabytes}
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pathlib.Path(folder).chmod(0o755)  # nobody may enter, and not write
        try:
            solution = start_apart(RUN_SOLUTION, folder)
            processes.append(solution)
            calls, replies = solution.stdin, solution.stdout
            assert calls is not None  # a pipe was asked for
            assert replies is not None
            calls.write(started_with(common, code=code, as_nobody=nobody_can_import()))
            calls.flush()
            ends = (calls.fileno(), replies.fileno())
            checking = start_apart(RUN_TESTS, folder, ends)
            processes.append(checking)
            for end in (calls, replies):
                end.close()  # only the tests speak with the code now, and notice when it has ended
            setting = started_with(common, tests=tests, calls=ends[0], replies=ends[1])
            said, _ = checking.communicate(setting, timeout=seconds)
            return said == "passed\n"
        except (subprocess.TimeoutExpired, BrokenPipeError, UnicodeError):
            return False
        finally:
            for process in processes:
                end_process(process)


def start_apart(program: str, folder: str, ends: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-c", LIMITED + program]
    pipe, single = subprocess.PIPE, {"OPENBLAS_NUM_THREADS": "1"}  # numpy, where threads are forbidden
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, pass_fds=ends, cwd=folder, env=single, text=True, start_new_session=True
    )


def started_with(common: dict[str, Any], **setting: Any) -> str:
    return json.dumps({**common, **setting}) + "\n"


def nobody_can_import() -> bool:
    """Whether the libraries can be reached without the rights of root."""
    paths = [pathlib.Path(os.__file__).resolve(), pathlib.Path(sys.prefix).resolve() / "lib"]
    return all(folder.stat().st_mode & 1 for path in paths for folder in path.parents)


def end_process(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    for end in (process.stdin, process.stdout):
        if end is not None:
            with contextlib.suppress(OSError):  # what could not be sent
                end.close()
    process.wait()


def text_of(completion: Any) -> str:
    """The text of a completion: plain text as it is, of chat messages the last one that the model wrote."""
    if isinstance(completion, str):
        return completion
    messages = [each for each in completion if isinstance(each, dict)] if isinstance(completion, list) else []
    written = [each for each in messages if each.get("role", "assistant") == "assistant"]  # no replies of tools
    content = written[-1].get("content") if written else ""
    if isinstance(content, list):  # parts: text, images
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


REASONING_STARTS = ("<think>", "<reasoning>")
REASONING_ENDS = ("</think>", "</reasoning>")


def after_reasoning(text: str) -> str:
    """The text after the last end of reasoning; empty if reasoning never ended."""
    for end in REASONING_ENDS:
        text = text.rpartition(end)[2]
    return "" if any(start in text for start in REASONING_STARTS) else text
