"""Reward functions really run in a child process on sample completions."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.rewards.bench import ScoreRequest, ScoreTable, score, start_worker

Scored = Callable[..., ScoreTable]
CHAT = ({"role": "user", "content": "2+2?"},)


def words(table: ScoreTable, name: str) -> str:
    return " ".join(str(problem) for problem in table.problems.get(name, ()))


def test_a_table_of_rewards_weighted_sums_and_advantages(scored: Scored) -> None:
    table = scored(
        """
        def correct(completions, answer, **kwargs):
            return [1.0 if right in text else 0.0 for text, right in zip(completions, answer)]
        def brief(completions, completion_ids, **kwargs):
            return [1.0 / (len(ids) - 1) for ids in completion_ids]
        """,
        "correct brief",
        weights=(1.0, 0.25),
        columns={"answer": ["42"] * 3},
        answer_column="answer",
    )
    assert table.rewards == ((1.0, 0.5), (0.0, 1.0), (0.0, 0.5))
    assert table.weighted == (1.125, 0.25, 0.125)
    assert table.advantages[0] > 1 > 0 > table.advantages[1] > table.advantages[2]
    assert table.blocking == ()
    assert table.composition == ()
    assert table.problems == {}
    assert set(table.seconds_per_call) == {"correct", "brief"}
    assert all(seconds > 0 for seconds in table.seconds_per_call.values())


def test_the_call_has_all_that_the_trainer_passes(scored: Scored) -> None:
    table = scored(
        """
        def sees(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, **kwargs):
            assert prompts[0] == [{"role": "user", "content": "2+2?"}], prompts
            assert completions[0] == [{"role": "assistant", "content": "4"}], completions
            assert [len(ids) for ids in completion_ids] == [2, 4] and completion_ids[1][0] != completion_ids[1][2]
            assert (trainer_state.global_step, sorted(kwargs)) == (0, ["answer", "level"])
            log_extra("extracted", ["4", "5"])
            log_metric("share", 0.5)
            return [float(level) for level in kwargs["level"]]
        """,
        "sees",
        completions=("4", "it is 5"),
        prompts=(CHAT, CHAT),
        columns={"answer": ["4", "4"], "level": [1, 2]},
    )
    assert words(table, "sees") == ""
    assert table.rewards == ((1.0,), (2.0,))
    assert table.metrics == {"share": 0.5}


def test_real_token_ids_are_passed_when_the_tokenizer_is_at_hand(scored: Scored, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"yes": 7, "no": 9, "?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    code = "def ids(completions, completion_ids, **kwargs): return [float(sum(each)) for each in completion_ids]"
    table = scored(code, "ids", completions=("yes no", "no"), tokenizer=str(tmp_path))
    assert table.rewards == ((16.0,), (9.0,))
    assert "Words stood in" not in str(table.notes)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", {"eos_token": "<end>"}),
        ("tokenizer_config.json", {"eos_token": {"content": "<end>", "special": True}}),
        ("generation_config.json", {"eos_token_id": [1, 2]}),
        ("config.json", {"eos_token_id": 1}),
    ],
)
def test_the_end_token_is_counted_as_in_training(
    scored: Scored, tmp_path: Path, file: str, content: dict[str, object]
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"?": 0, "<end>": 1, "yes": 7}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / file).write_text(json.dumps(content))
    code = (
        "def length(completions, completion_ids, **kwargs): return [float(len(i)) + i[-1] / 10 for i in completion_ids]"
    )
    table = scored(code, "length", completions=("yes yes", "yes"), tokenizer=str(tmp_path))
    assert table.rewards == ((3.1,), (2.1,))


def test_tokens_that_the_model_wrote_are_passed_as_they_are(scored: Scored) -> None:
    """A completion that was cut has no end token, and its text may be tokenized otherwise than it was written."""
    code = "def last(completions, completion_ids, **kwargs): return [float(ids[-1]) for ids in completion_ids]"
    table = scored(code, "last", completions=("a", "b"), completion_ids=((5, 2), (9, 9, 9)))
    assert table.rewards == ((2.0,), (9.0,))


@pytest.mark.parametrize("tokenizer", ["", "/no/such/folder", "nobody/not-in-the-cache"])
def test_words_stand_in_for_tokens_and_it_is_said(scored: Scored, tokenizer: str) -> None:
    code = "def count(completions, completion_ids, **kwargs): return [float(len(each)) for each in completion_ids]"
    table = scored(code, "count", completions=("one  two\nthree", ""), tokenizer=tokenizer)
    assert table.rewards == ((4.0,), (1.0,)), "the end counts as one"
    assert table.notes["count"] == ("Words stood in for tokens here: no tokenizer was at hand.",)


def test_a_hanging_expression_dies_alone_and_is_named_with_its_completion(scored: Scored) -> None:
    """RW-08: the others are scored all the same."""
    start = time.monotonic()
    table = scored(
        r"""
        import re
        def fmt(completions, **kwargs):
            pattern = re.compile(r"^<think>(\s*\S+\s*)+</think>$")
            return [1.0 if pattern.match(text) else 0.0 for text in completions]
        def length(completions, **kwargs):
            return [len(text) / 100 for text in completions]
        """,
        "fmt length",
        completions=("<think>a</think>", "<think>" + "a" * 40, "b"),
        timeout=0.5,
    )
    assert table.rewards == ((1.0, 0.16), (None, 0.47), (0.0, 0.01))
    assert table.blocking == ("fmt",)
    assert "fmt, completion 2" in words(table, "fmt")
    assert "did not return within 0.5 s" in words(table, "fmt")
    assert time.monotonic() - start < 60  # not for ever: unguarded it would take longer than anyone lives


def test_a_function_that_ignores_the_alarm_is_killed_and_named(scored: Scored) -> None:
    table = scored(
        """
        import time
        def stubborn(completions, **kwargs):
            while "hang" in "".join(completions):
                try: time.sleep(60)
                except BaseException: pass
            return [1.0] * len(completions)
        """,
        "stubborn",
        completions=("a", "hang", "c"),
        timeout=0.2,
    )
    assert "stubborn, completion 2" in words(table, "stubborn")
    assert "did not return" in words(table, "stubborn")
    assert table.rewards == ((1.0,), (None,), (1.0,))


def test_an_async_function_is_awaited_and_its_hang_is_ended(scored: Scored) -> None:
    """RW-11."""
    table = scored(
        """
        import asyncio
        async def judge(completions, **kwargs):
            await asyncio.sleep(0)
            return [float(len(text)) for text in completions]
        class Sleeper:
            async def __call__(self, completions, **kwargs):
                await asyncio.sleep(60)
        sleeper = Sleeper()
        """,
        "judge sleeper",
        completions=("ab", "c"),
        timeout=0.2,
    )
    assert [row[0] for row in table.rewards] == [2.0, 1.0]
    assert table.blocking == ("sleeper",)


def test_a_function_that_kills_its_process_is_named_and_the_others_go_on(scored: Scored) -> None:
    table = scored(
        """
        import os, signal
        def dies(completions, **kwargs):
            if "b" in completions: os.kill(os.getpid(), signal.SIGKILL)
            return [1.0] * len(completions)
        def lives(completions, **kwargs): return [float(len(text)) for text in completions]
        """,
        "dies lives",
        completions=("aa", "b"),
    )
    assert table.rewards == ((1.0, 2.0), (None, 1.0))
    assert "dies, completion 2" in words(table, "dies")
    assert "SIGKILL" in words(table, "dies")


def test_memory_has_a_limit(scored: Scored) -> None:
    table = scored('def eats(completions, **kwargs): return [len("a" * (1 << 45))]', "eats")
    assert "MemoryError" in words(table, "eats")


def test_an_exception_is_named_with_the_line_of_the_users_file_and_the_completion(scored: Scored) -> None:
    """RW-11."""
    table = scored(
        """
        def helper(text):
            return 1 / (len(text) - 1)

        def flaky(completions, **kwargs):
            return [helper(text) for text in completions]
        """,
        "flaky",
        completions=("ab", "c", "def"),
    )
    assert table.rewards == ((1.0,), (None,), (0.5,))
    (problem,) = table.problems["flaky"]
    assert problem.where == "rewards.py:3 flaky, completion 2"
    assert "ZeroDivisionError" in problem.what
    assert "return 1 / (len(text) - 1)" in problem.remedy
    assert "None for what cannot be scored" in problem.remedy


def test_a_function_that_exits_or_prints_does_no_harm(scored: Scored) -> None:
    table = scored(
        """
        import sys
        def exits(completions, **kwargs): sys.exit(0)
        def prints(completions, **kwargs):
            print('{"id": 1, "result": {}}'); return [float(len(text)) for text in completions]
        """,
        "exits prints",
    )
    assert "SystemExit" in words(table, "exits")
    assert [row[1] for row in table.rewards] == [4.0, 1.0, 3.0]


BY_ITEM = 'def f(completions, **k): return [float(len(c[0]["content"])) for c in completions]'
BY_REGEX = 'import re\ndef f(completions, **k): return [1.0 if re.search("42", c) else 0.0 for c in completions]'
BY_LENGTH = "def f(completions, **k): return [-abs(200 - len(c)) for c in completions]"


@pytest.mark.parametrize(("code", "chat"), [(BY_ITEM, False), (BY_REGEX, True)])
def test_a_function_for_the_other_prompt_format_is_shown_both_shapes(scored: Scored, code: str, chat: bool) -> None:
    """RW-03."""
    table = scored(code, "f", prompts=(CHAT if chat else "2+2?",) * 3)
    (problem,) = table.problems["f"]
    assert table.blocking == ("f",)
    assert "TypeError" in problem.what
    assert "In the other prompt format it works" in problem.remedy
    assert "'text'" in problem.remedy
    assert "[{'role': 'assistant'" in problem.remedy
    assert scored(code, "f", prompts=("2+2?" if chat else CHAT,) * 3).problems == {}


def test_the_same_reward_for_clearly_different_completions_is_flagged(scored: Scored) -> None:
    """RW-03: len() of a list of messages is always 1."""
    (problem,) = scored(BY_LENGTH, "f", prompts=(CHAT,) * 3).problems["f"]
    assert "same reward (-199) to 3 different completions" in problem.what
    assert "other prompt format it tells them apart" in problem.remedy


def test_a_reward_that_pays_only_the_right_answer_is_not_flagged_for_wrong_samples(scored: Scored) -> None:
    code = "def exact(completions, answer, **k): return [float(c == a) for c, a in zip(completions, answer)]"
    table = scored(code, "exact", columns={"answer": ["42"] * 3}, answer_column="answer")
    assert table.rewards == ((0.0,), (0.0,), (0.0,))
    assert table.problems == {}
    assert table.composition == ()


@pytest.mark.parametrize(("answer", "blamed"), [(2, True), ("2", False)])
def test_a_reward_that_never_pays_the_right_answer_is_found_by_trying_it(
    scored: Scored, answer: object, blamed: bool
) -> None:
    """RW-07: an integer is never equal to text."""
    code = "def exact(completions, answer, **k): return [float(c.strip() == a) for c, a in zip(completions, answer)]"
    table = scored(
        code, "exact", completions=("it is 2", "no"), columns={"answer": [answer] * 2}, answer_column="answer"
    )
    assert any("never paid" in problem.what for problem in table.composition) is blamed
    assert {probe.text for probe in table.gold if probe.right} >= {"2", "\\boxed{2}", "<answer>2</answer>"}


def test_a_verifier_that_uses_the_alarm_works_as_in_training(scored: Scored) -> None:
    """RW-06: rewards run in the main thread of their process, where signal.alarm is allowed."""
    table = scored(
        """
        import signal
        def verifier(completions, **kwargs):
            out = []
            for text in completions:
                try:
                    signal.signal(signal.SIGALRM, lambda *a: None); signal.alarm(5)
                    out.append(float("42" in text))
                except Exception:
                    out.append(0.0)
                finally:
                    signal.alarm(0)
            return out
        """,
        "verifier",
    )
    assert table.rewards == ((1.0,), (0.0,), (0.0,))


def test_a_function_that_depends_on_chance_is_named(scored: Scored) -> None:
    code = "import random\ndef dice(completions, **k): return [random.random() for _ in completions]"
    table = scored(code, "dice")
    assert "Called twice, it gives completion 1 first" in words(table, "dice")
    assert table.blocking == ()


def test_a_function_cannot_spoil_the_next_call_by_changing_its_arguments(scored: Scored) -> None:
    code = "def pops(completions, answer, **k): return [float(len(answer.pop())) for _ in list(completions)]"
    table = scored(code, "pops", columns={"answer": ["1", "22", "333"]})
    assert table.rewards == ((3.0,), (2.0,), (1.0,))
    assert table.problems == {}


def test_a_function_whose_signature_cannot_work_is_not_called(scored: Scored, tmp_path: Path) -> None:
    """RW-01."""
    marker = tmp_path / "ran"
    table = scored(f"def r(completions, solution, **k): open({str(marker)!r}, 'w')", "r", columns={"answer": ["1"] * 3})
    assert "Rename the parameter to `answer`" in words(table, "r")
    assert table.blocking == ("r",)
    assert not marker.exists()


def test_wrong_returns_block_only_their_own_function(scored: Scored) -> None:
    """RW-02, RW-04; the kinds themselves are tested in test_returned."""
    table = scored(
        """
        def keys(completions, **k): return {0: 1.0, 1: 2.0, 2: 3.0}
        def short(completions, **k): return [1.0]
        def none(completions, **k): pass
        def nothing(completions, **k): return [None] * len(completions)
        def fine(completions, **k): return (float(len(text)) for text in completions)
        """,
        "keys short none nothing fine",
    )
    assert table.blocking == ("keys", "short", "none", "nothing")
    assert table.weighted == (4.0, 1.0, 3.0)
    assert "returned 1 rewards for 3" in words(table, "short")
    assert "generator" in table.notes["fine"][0]


def test_an_infinite_reward_is_shown_and_its_group_teaches_nothing(scored: Scored) -> None:
    table = scored("def f(completions, **k): return [float('inf'), 0.0, 1.0][: len(completions)]", "f")
    assert table.rewards[0] == (float("inf"),)
    assert table.advantages == (0.0, 0.0, 0.0)
    assert table.blocking == ("f",)


def test_what_is_known_to_go_wrong_with_code_like_this_is_said_of_its_function(scored: Scored) -> None:
    """RW-06, RW-08, RW-10: found in the text, whatever these completions earn."""
    code = r"""
    import re
    def blocks(completions, **k):
        return [float(bool(re.match(r"^<a>.*?</a>$", text, re.DOTALL))) for text in completions]
    def excused(completions, **k):
        try:
            return [float("42" in text) for text in completions]
        except Exception:
            return [0.0] * len(completions)
    def sound(completions, **k):
        return [float(len(text) > 3) for text in completions]
    """
    table = scored(code, "blocks excused sound", completions=("<a>42</a>", "b", "c c"))
    assert "<a> stands twice" in words(table, "blocks")
    assert "Every exception becomes a number" in words(table, "excused")
    assert words(table, "sound") == ""
    assert table.blocking == ()


def test_a_reward_of_trls_own_is_told_with_what_is_known_of_it(scored: Scored) -> None:
    r"""RW-13: it reads \boxed{…} and $…$ only, and passes over words."""
    code = "from trl.rewards import accuracy_reward"
    completions = ("The answer is 72", "\\boxed{72}", "Answer: 72", '{"answer": 72}')
    table = scored(code, "accuracy_reward", completions, prompts=(CHAT,) * 4, columns={"solution": ["$72$"] * 4},
                   timeout=60.0)  # fmt: skip
    assert table.rewards == ((0.0,), (1.0,), (0.0,), (0.0,))
    assert "free text earns nothing" in " ".join(table.notes["accuracy_reward"])
    assert "words or letters" in " ".join(table.notes["accuracy_reward"])


def test_composition_traps_are_named(scored: Scored) -> None:
    """RW-09, RW-12."""
    code = """
    def longer(completions, **k): return [float(len(text)) for text in completions]
    def shorter(completions, **k): return [-float(len(text)) for text in completions]
    def right(completions, **k): return [float("42" in text) for text in completions]
    """
    said = [problem.what for problem in scored(code, "longer shorter").composition]
    assert any("The terms cancel" in what for what in said)
    table = scored(code, "right longer", completions=("42", "b" * 25, "c" * 400), weights=(1.0, 0.3))
    said = [problem.what for problem in table.composition]
    assert any("no exact binary form" in what for what in said)
    assert any("drowns" in what for what in said)
    assert "The longest completion wins" in table.notes["longer"][0]
    assert any("more than once" in problem.what for problem in scored(code, "right right").composition)


def test_a_shadow_reward_that_would_have_a_say_is_named(scored: Scored) -> None:
    """See test_shadow.py for what TRL makes of it."""
    code = """
        def some(completions, **kwargs): return [1.0, 0.0, None]
        def canary(completions, **kwargs): return [0.25, 0.5, 1.0]
        """
    (problem,) = scored(code, "some canary", weights=(1.0, 0.0)).composition
    assert problem.where == "weight of canary"
    assert "scores 1 completions that no paid function scores" in problem.what
    assert scored(code, "some canary", weights=(1.0, 0.25)).composition == ()


def test_groups_keep_their_advantages_apart(scored: Scored) -> None:
    code = "def f(completions, **k): return [float(text) for text in completions]"
    table = scored(code, "f", completions=("0", "1", "5", "5"), group_size=2)
    assert table.advantages[0] == -table.advantages[1]
    assert table.advantages[2:] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        ({"completions": ("a",)}, "There are 1 completions"),
        ({"completions": ("a", "b", "c"), "group_size": 2}, "no whole number of groups"),
        ({"completions": ("a", "b"), "weights": (1.0, 2.0)}, "2 weights for 1 functions"),
        ({"completions": ("a", "b"), "columns": {"answer": ["1"]}}, "answer has 1 rows"),
        ({"completions": ("a", "b"), "timeout": 0.0}, "no time-out"),
        ({"completions": ("a", "b"), "names": ()}, "No reward function is chosen"),
        ({"completions": ("a", "b"), "names": ("other",)}, "no reward function `other`"),
    ],
)
def test_a_request_that_does_not_fit_together_is_refused(
    worker: Worker, rewards_file: Callable[[str], Path], request_: dict[str, object], what: str
) -> None:
    path = rewards_file("def f(completions, **k): return [1.0] * len(completions)")
    problem = score(worker, ScoreRequest(**{"path": path, "names": ("f",), **request_}))  # type: ignore[arg-type]
    assert isinstance(problem, Problem)
    assert what in problem.what


@pytest.mark.parametrize(
    ("code", "where", "what"),
    [
        ("def f(:", "rewards.py:1", "not Python"),
        ("x = 1\nimport no_such_library\ndef f(completions, **k): ...", "rewards.py:2", "ModuleNotFoundError"),
        ("def f(completions, **k): ...\nraise SystemExit(3)", "rewards.py:2", "SystemExit"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_a_problem_with_its_line(
    worker: Worker, rewards_file: Callable[[str], Path], code: str, where: str, what: str
) -> None:
    problem = score(worker, ScoreRequest(path=rewards_file(code), names=("f",), completions=("a", "b")))
    assert isinstance(problem, Problem)
    assert problem.where == where
    assert what in problem.what


def test_an_edited_file_and_its_edited_helpers_are_read_again(
    worker: Worker, rewards_file: Callable[[str], Path], tmp_path: Path
) -> None:
    helper = tmp_path / "my_helper_of_rewards.py"
    seen = []
    for value in (1, 2):
        helper.write_text(f"VALUE = {value}\n" + "#" * value)  # another size: the bytecode cache compares it
        path = rewards_file(
            f"from my_helper_of_rewards import VALUE\ndef f(completions, **k): return [VALUE, 0]  # {value}"
        )
        table = score(worker, ScoreRequest(path=path, names=("f",), completions=("a", "b")))
        assert isinstance(table, ScoreTable)
        seen.append(table.rewards[0][0])
    assert seen == [1, 2]


def test_rewards_see_no_secrets_and_run_in_the_project_folder(
    rewards_file: Callable[[str], Path], tmp_path: Path
) -> None:
    path = rewards_file(
        """
        import os
        def secret(completions, **k): return [float("HF_TOKEN" in os.environ), float("my-secret" in str(os.environ))]
        def here(completions, folder, **k): return [float(os.getcwd() == folder[0]), 0.0]
        """
    )
    environ = {**os.environ, "HF_TOKEN": "hf_my-secret", "WANDB_API_KEY": "my-secret"}
    with start_worker(tmp_path, environ) as worker:
        request = ScoreRequest(
            path=path,
            names=("secret", "here"),
            completions=("a", "b"),
            columns={"folder": [str(tmp_path.resolve())] * 2},
        )
        table = score(worker, request)
    assert isinstance(table, ScoreTable)
    assert table.rewards == ((0.0, 1.0), (0.0, 0.0))


def test_the_name_of_the_function_whose_turn_it_is_is_told(worker: Worker, rewards_file: Callable[[str], Path]) -> None:
    path = rewards_file("def f(completions, **k): return [1, 0]\ndef g(completions, **k): return [1, 0]")
    told: list[str] = []
    score(worker, ScoreRequest(path=path, names=("f", "g"), completions=("a", "b")), told.append)
    assert told == ["f", "g"]


def test_a_function_that_only_watches_need_not_tell_anything_apart_yet(scored: Callable[..., ScoreTable]) -> None:
    code = "".join(f"def {name}(completions, **k):\n    return [1.0] * len(completions)\n" for name in ("one", "two"))
    table = scored(code, "one two", weights=(1.0, 0.0))
    assert set(table.problems) == {"one"}
    assert any("has not shown anything yet" in note for note in table.notes["two"])
