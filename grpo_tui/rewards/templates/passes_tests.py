"""Part: code run against tests that it cannot see."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any

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
