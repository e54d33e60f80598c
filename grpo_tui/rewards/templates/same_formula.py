"""Part: two formulas compared by math_verify."""

import importlib.util
import json
import subprocess
import sys
import threading

# Runs in a process of its own. When the time is up, the kernel ends that, whatever it is in the midst of.
COMPARING = r"""
import json, logging, os, signal, sys
channel = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from math_verify import LatexExtractionConfig, parse, verify
logging.disable(logging.WARNING)  # that it keeps no time of its own, which it can only in a main thread
reading = [LatexExtractionConfig(boxed_match_priority=0)]

def read(text):
    return parse("\\boxed{" + text + "}", reading, extraction_mode="first_match", parsing_timeout=None)

signal.signal(signal.SIGALRM, signal.SIG_DFL)
print("ready", file=channel, flush=True)
for line in sys.stdin:
    seconds, given, right = json.loads(line)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    wanted = read(right)
    found = read(given) if wanted and given else []
    equal = bool(found and verify(wanted, found, timeout_seconds=None))
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(equal if wanted else None), file=channel, flush=True)
"""

comparing: list[subprocess.Popen[str]] = []  # the process, once it is needed
comparing_turn = threading.Lock()


def same_formula(given: str, right: str, seconds: float) -> bool | None:
    """Whether they are equal; None where the right one is no formula. What takes longer is taken for not equal."""
    with comparing_turn:
        if not comparing:
            comparing.append(start_comparing())
        process = comparing[0]
        assert process.stdin is not None  # pipes were asked for
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([seconds, given, right]) + "\n")
            process.stdin.flush()
            said = process.stdout.readline()
        except BrokenPipeError:
            said = ""
        if said:
            return None if said == "null\n" else said == "true\n"
        comparing.clear()
        process.wait()
        return False


def start_comparing() -> subprocess.Popen[str]:
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError("This reward needs math_verify: pip install math-verify")
    command = [sys.executable, "-P", "-c", COMPARING]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("math_verify cannot be loaded: what it said stands above")
    return process
