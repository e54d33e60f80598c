"""What the isolation of reward functions costs, beside the same functions called in this process."""

import time
from pathlib import Path

import pytest

from grpo_tui.problem import Problem
from grpo_tui.rewards.bench import start_worker
from grpo_tui.rewards.calls import Batch, Caller
from grpo_tui.rewards.loading import load_rewards

pytestmark = [pytest.mark.slow, pytest.mark.bench]

BATCH = 64

CODE = '''
import re
TAGS = re.compile(r"<reasoning>(.*?)</reasoning>\\\\s*<answer>(.*?)</answer>", re.S)
def checks(completions, answer, **kwargs):
    """A verifier of ordinary cost: about 1 ms a completion."""
    found = []
    for completion, right in zip(completions, answer):
        text = completion[-1]["content"]
        score = 0.0
        for _ in range(25):
            match = TAGS.search(text)
            words = re.findall(r"\\\\w+", text)
            score = float(match is not None and match[2] == right) + len(set(words)) * 0
        found.append(score)
    return found
def hangs(completions, **kwargs):
    return [float(bool(re.match(r"^<think>(\\\\s*\\\\S+\\\\s*)+</think>$", c[-1]["content"]))) for c in completions]
def stubborn(completions, **kwargs):
    import signal
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        pass
def in_c(completions, **kwargs):
    return [float(sum(range(10**15)))] * len(completions)
'''


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "rewards.py"
    file.write_text(CODE.replace("\\\\", "\\"))
    return file


def batch(text):
    return Batch(
        prompts=[[{"role": "user", "content": "?"}]] * BATCH,
        completions=[text] * BATCH,
        completion_ids=[None] * BATCH,
        columns={"answer": ["42"] * BATCH},
    )


def test_isolated_scoring_costs_a_twentieth_more_at_most(path, capsys):
    text = "<reasoning>" + "step by step " * 100 + "</reasoning><answer>42</answer>"
    functions = load_rewards(path, ["checks"])
    assert not isinstance(functions, Problem)
    chat = [[{"role": "assistant", "content": text}]] * BATCH

    def inside():
        return functions[0](prompts=batch(text).prompts, completions=chat, completion_ids=[], answer=["42"] * BATCH)

    with start_worker(Path.cwd()) as worker:
        caller = Caller(worker, path, ("checks",), "", 60.0)
        assert caller.call("checks", batch(text))["rewards"] == inside() == [1.0] * BATCH
        here, there = [], []
        for _ in range(30):  # in turn, so that other load on the machine meets both
            for spent, call in ((here, inside), (there, lambda: caller.call("checks", batch(text)))):
                began = time.perf_counter()
                call()
                spent.append(time.perf_counter() - began)
    ratio = min(there) / min(here)
    with capsys.disabled():
        print(f"\nbatch of {BATCH}: {min(here) * 1e3:.0f} ms here, isolated {ratio:.3f} x")
    assert ratio <= 1.05


@pytest.mark.parametrize("name", ["hangs", "stubborn", "in_c"])
@pytest.mark.parametrize("imports", ["", "import math_verify, numpy"], ids=["light", "heavy"])
def test_a_hung_reward_is_back_in_service_soon_after_its_time(path, capsys, name, imports):
    """`hangs` reacts to the alarm; the others do not: their process is killed, and another one forked."""
    timeout = 0.5
    path.write_text(imports + path.read_text())
    late = []
    with start_worker(Path.cwd()) as worker:
        caller = Caller(worker, path, ("checks", name), "", timeout)
        caller.call("checks", batch("warm"))
        for _ in range(20):
            began = time.perf_counter()
            assert caller.call(name, batch("<think>" + "a" * 40))["outcome"] == "hung"
            caller.call("checks", batch("<answer>"))
            late.append(time.perf_counter() - began - timeout)
    late.sort()
    with capsys.disabled():
        print(f"\n{name}: scores again {late[10] * 1e3:.0f} ms after the time-out (p95 {late[18] * 1e3:.0f} ms)")
    assert late[18] <= 0.15
