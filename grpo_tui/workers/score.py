"""The child that runs reward functions: one batch at a time, with a time-out, called as TRL's trainer calls them.

`load`  {path, names, tokenizer} -> {tokens: is there a real tokenizer}
`call`  {path, name, prompts, completions, completion_ids, columns, tokenizer, timeout} -> an outcome
        progress {seconds}: the function's time begins

`completion_ids` has the tokens of each completion, or null where they are not known: then the tokenizer makes them.

An outcome is `returned` (with rewards, faults, notes, blocking, metrics), `raised` (with problem) or `hung`, and has
the seconds that the call took; or it is `unloaded`, when the function has to be loaded first.
"""

from grpo_tui.child import take_pipes

pipes = take_pipes()

import asyncio  # noqa: E402  the pipes are taken before anything can print
import hashlib  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

from grpo_tui import regular  # noqa: E402
from grpo_tui.problem import Problem  # noqa: E402
from grpo_tui.rewards.loading import Reward, forget, is_async, load_rewards, raised  # noqa: E402
from grpo_tui.rewards.returned import read_returned  # noqa: E402
from grpo_tui.rewards.source import CODE_BYTES, NOT_PASSED  # noqa: E402
from grpo_tui.rewards.tokens import find_tokenizer, token_ids  # noqa: E402
from grpo_tui.warden import AGAIN, guard  # noqa: E402

Progress = Callable[[dict[str, Any]], None]


class Overtime(BaseException):
    """The time-out. No `Exception`, so that a reward which excuses every exception with 0.0 does not swallow it."""


_loaded: dict[tuple[Path, str], Reward] = {}
_content: dict[Path, str] = {}


def load(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Load the file, anew when it changed since, and keep its functions."""
    path = Path(params["path"]).resolve()
    content = _content_of(path)
    if isinstance(content, Problem):
        return content
    if not _is_loaded(path, content, params["names"]):
        if _content.get(path, content) != content:
            forget(path.parent)
            _loaded.clear()
        functions = load_rewards(path, params["names"])
        if isinstance(functions, Problem):
            return functions
        _content[path] = content
        _loaded.update({(path, name): function for name, function in zip(params["names"], functions, strict=True)})
    return _about(params)


def loaded(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """The same in a copy, which has what the original has."""
    path = Path(params["path"]).resolve()
    content = _content_of(path)
    if isinstance(content, Problem):
        return content
    return _about(params) if _is_loaded(path, content, params["names"]) else AGAIN


def _content_of(path: Path) -> str | Problem:
    try:
        return hashlib.sha256(regular.read(path, CODE_BYTES)).hexdigest()
    except OSError as error:
        return Problem(str(path), f"The file cannot be read: {error}.", "Check the path of the rewards file.")


def _is_loaded(path: Path, content: str, names: Sequence[str]) -> bool:
    return _content.get(path) == content and all((path, name) in _loaded for name in names)


def _about(params: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": find_tokenizer(params["tokenizer"]) is not None}


def call(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Call the function with all completions and read what it returns."""
    path = Path(params["path"]).resolve()
    function = _loaded.get((path, params["name"]))
    if function is None:
        return {"outcome": "unloaded"}
    metrics: dict[str, float] = {}
    arguments = _arguments(params, metrics)
    progress({"seconds": params["timeout"]})  # from here on the function's time counts
    start = time.perf_counter()
    try:
        with _time_limit(params["timeout"]):
            output = asyncio.run(function(**arguments)) if is_async(function) else function(**arguments)
            reading = read_returned(output, len(params["completions"]))  # a generator runs only now
    except Overtime:
        return {"outcome": "hung", "seconds": time.perf_counter() - start}
    except BaseException as error:  # noqa: BLE001  the user's code may raise anything, SystemExit too
        problem = raised(error, path, "It raises")
        return {"outcome": "raised", "seconds": time.perf_counter() - start, "problem": problem.as_json()}
    seconds = time.perf_counter() - start
    if seconds > params["timeout"] + 0.1:  # a bare `except:` swallowed the time-out
        return {"outcome": "hung", "seconds": seconds}
    return {
        "outcome": "returned",
        "seconds": seconds,
        "rewards": list(reading.rewards),
        "faults": [vars(fault) for fault in reading.faults],
        "blocking": reading.blocking,
        "notes": list(reading.notes),
        "metrics": metrics,
    }


def _arguments(params: dict[str, Any], metrics: dict[str, float]) -> dict[str, Any]:
    """The keywords of TRL's call (1.16 `_calculate_rewards`). They came for this call only: it may change them."""
    texts, prompts = params["completions"], params["prompts"]
    columns = {name: values for name, values in params["columns"].items() if name not in NOT_PASSED}
    given = {
        "prompts": prompts,
        "completions": [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for prompt, text in zip(prompts, texts, strict=True)
        ],
        "completion_ids": [
            list(token_ids(text, params["tokenizer"])) if ids is None else ids
            for text, ids in zip(texts, params["completion_ids"] or [None] * len(texts), strict=True)
        ],
    }
    return {
        **columns,
        **given,
        "trainer_state": _trainer_state(),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: metrics.__setitem__(str(name), float(value)),
    }


def _trainer_state() -> SimpleNamespace:
    """Stands in for transformers.TrainerState before the first step, without importing transformers."""
    return SimpleNamespace(
        epoch=0.0, global_step=0, max_steps=1, num_train_epochs=1, log_history=[], best_metric=None,
        is_local_process_zero=True, is_world_process_zero=True,
    )  # fmt: skip


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise Overtime in the main thread after `seconds`. `re` looks for signals while it backtracks; other C code may
    not, and a function may use the timer itself (math_verify does): then the parent's kill is what ends it."""

    def expired(number: int, frame: Any) -> None:
        raise Overtime

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    guard(pipes, {"load": load, "call": call}, {"load": loaded}, loads="load", late={"outcome": "hung"})
