"""Reward functions tried on completions in a child process, each on its own, before anything trains."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker, scrubbed_environment
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward, advantages, weighted_sums
from grpo_tui.rewards.calls import Batch, Caller, Prompt
from grpo_tui.rewards.composition import TOO_MANY_TIMES, check_composition, spread_of
from grpo_tui.rewards.excuses import check_excuses
from grpo_tui.rewards.patterns import check_patterns
from grpo_tui.rewards.source import FunctionSource, read_code, read_text
from grpo_tui.rewards.trial import Column, Trial

PER_CALL = 64
"""Completions for which a time limit is meant; a larger batch gets as much more."""

TIMEOUT = 5.0
"""Seconds one function may take for one batch, and then for one completion."""

LEAST_ADDRESS_SPACE = 8 << 30
"""Bytes of address space a reward gets at least: libraries reserve far more than they use."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """Which functions are called with what. Row i of `prompts`, `completions` and every column belong together."""

    path: Path
    """The rewards file."""

    names: tuple[str, ...]
    """Functions in order."""

    weights: tuple[float, ...] = ()
    """One per function; empty: all 1."""

    completions: tuple[str, ...]
    """Texts; a chat prompt makes each into one assistant message, as the trainer does."""

    prompts: tuple[Prompt, ...] = ()
    """Text or chat messages, in the format that the data set produces; empty: plain empty prompts."""

    completion_ids: tuple[tuple[int, ...] | None, ...] = ()
    """Tokens of each completion as the model wrote them, the end token included; empty, or None for one: the tokenizer
    makes them of a completion that came to its end.
    """

    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Every other column of the prepared data set, without `prompt`."""

    answer_column: str = ""
    """Column of the right answer: it is then itself tried as a completion, in several spellings."""

    group_size: int = 0
    """Neighbouring completions that share a prompt; 0: all of them."""

    scale: str = "group"
    aggregation: str = "sum_then_normalize"
    tokenizer: str = ""
    """Model folder, or hub id in the cache, whose tokenizer makes `completion_ids`; else words stand in for tokens."""

    timeout: float = TIMEOUT


@dataclass(frozen=True, kw_only=True)
class GoldProbe:
    """The right answer, or a wrong one, given as a completion, and what each function pays for it."""

    text: str
    right: bool
    rewards: tuple[Reward, ...]


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """Completions down, functions across."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    rewards: tuple[tuple[Reward, ...], ...]
    """None: the function gave nothing for it (in training: skipped), or could not be asked."""

    weighted: tuple[Reward, ...]
    advantages: tuple[float, ...]
    problems: Mapping[str, tuple[Problem, ...]]
    """By function name; only functions that have any."""

    blocking: tuple[str, ...]
    """Functions with which a training would stop or learn nothing."""

    composition: tuple[Problem, ...]
    """About the set as a whole: weights, names, terms that cancel, the right answer unpaid."""

    notes: Mapping[str, tuple[str, ...]]
    """What is worth knowing and no fault, by function name; under the empty name about all."""

    seconds_per_call: Mapping[str, float]
    """Seconds of one call with all completions, by function name."""

    gold: tuple[GoldProbe, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the functions gave to `log_metric`."""

    spread: Mapping[str, float] = field(default_factory=dict)
    """Standard deviation times weight of each function's rewards on the completions."""


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of the rows as a reward gets them by name, prompt and completion left out."""
    names = dict.fromkeys(name for row in rows for name in row if name not in ("prompt", "completion"))
    return {name: [row.get(name) for row in rows] for name in names}


def time_limit(seconds: float, completions: int) -> float:
    """Seconds for a call with so many completions, where PER_CALL of them may take `seconds`."""
    return seconds * max(1, -(-completions // PER_CALL))


def start_worker(project: Path, environ: Mapping[str, str] = os.environ) -> Worker:
    """A worker for reward functions of `project`: no secrets, the project as working directory, bounded memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = max(LEAST_ADDRESS_SPACE, memory // 2)
    environment = scrubbed_environment(environ)
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads would keep the process from being forked
    return Worker("score", env=environment, cwd=project, address_space_bytes=limit)


def score(
    worker: Worker, request: ScoreRequest, on_progress: Callable[[str], None] | None = None
) -> ScoreTable | Problem:
    """Call every function on the completions and say what a training would make of it.

    A function that hangs, dies or raises spoils only its own column; the completion that did it is named and the others
    are scored one by one. A function whose signature cannot work is not called. `on_progress` gets the name of the
    function whose turn it is. A `Problem` is returned when nothing could be scored: the request does not fit together,
    or the file cannot be loaded.
    """
    problem = _check_request(request)
    if problem:
        return problem
    text = read_text(request.path)
    if isinstance(text, Problem):
        return text
    read = read_code(text, request.path.name)
    if isinstance(read, Problem):
        return read
    request = _completed(request)
    caller = Caller(worker, request.path, request.names, request.tokenizer, request.timeout)
    watching = frozenset(name for name, weight in zip(request.names, request.weights, strict=True) if not weight)
    functions = {function.name: function for function in read}
    trial = Trial(caller, functions, _batch(request), _gold_batch(request), watching)
    problem = caller.load()
    if problem:
        return problem
    columns = []
    for name in request.names:
        if on_progress:
            on_progress(name)
        columns.append(trial.column(name))
    linted = [*check_patterns(text, request.path.name), *check_excuses(text, request.path.name)]
    for column in columns:
        column.problems += _within(linted, trial.sources.get(column.name))
    return _table(request, columns, trial.gold.completions)


def _within(problems: Iterable[Problem], function: FunctionSource | None) -> list[Problem]:
    """Those whose line is one of the function's."""
    first, last = function.lines if function else (0, -1)
    return [problem for problem in problems if first <= int(problem.where.rpartition(":")[2]) <= last]


def _check_request(request: ScoreRequest) -> Problem | None:
    count = len(request.completions)
    if count < 2:
        return Problem(
            "completions", f"There are {count} completions.", "Give at least two: one alone hides most faults."
        )
    if request.group_size and count % request.group_size:
        return Problem(
            "completions",
            f"{count} completions are no whole number of groups of {request.group_size}.",
            "Give a multiple of the group, or leave the group size out.",
        )
    if request.weights and len(request.weights) != len(request.names):
        return Problem(
            "weights",
            f"There are {len(request.weights)} weights for {len(request.names)} functions.",
            "Give one weight per function, in the same order.",
        )
    if not 0 < request.timeout < math.inf:
        return Problem("time-out", f"{request.timeout:g} s is no time-out.", "Give a number of seconds above 0.")
    if not request.names:
        return Problem("rewards", "No reward function is chosen.", "Choose at least one.")
    lengths = {name: len(each) for name, each in request.columns.items()} | {
        "prompts": len(request.prompts) or count,
        "completion_ids": len(request.completion_ids) or count,
    }
    wrong = [f"{name} has {length}" for name, length in lengths.items() if length != count]
    if wrong:
        return Problem("completions", f"{count} completions, but {', '.join(wrong)} rows.", "Give one row for each.")
    return None


def _completed(request: ScoreRequest) -> ScoreRequest:
    count = len(request.completions)
    return replace(
        request,
        weights=request.weights or (1.0,) * len(request.names),
        prompts=request.prompts or ("",) * count,
        completion_ids=request.completion_ids or (None,) * count,
        group_size=request.group_size or count,
    )


def gold_spellings(answer: Any) -> tuple[str, ...]:
    """The right answer as a completion: bare, in a sentence, boxed, in a tag, and after reasoning in tags."""
    text = str(answer)
    return (
        text,
        f"The answer is {text}",
        f"\\boxed{{{text}}}",
        f"<answer>{text}</answer>",
        f"<think>It follows.</think><answer>{text}</answer>",
        f"<reasoning>It follows.</reasoning>\n<answer>{text}</answer>",
    )


WRONG_ANSWER = "zzz no answer zzz"
"""What no task's right answer is."""


def _batch(request: ScoreRequest) -> Batch:
    return Batch(
        prompts=request.prompts,
        completions=request.completions,
        completion_ids=request.completion_ids,
        columns=request.columns,
    )


def _gold_batch(request: ScoreRequest) -> Batch:
    """The first right answer in several spellings, then a wrong one in the same; empty where no row has one."""
    answers = request.columns.get(request.answer_column, ())
    row = next((number for number, answer in enumerate(answers) if answer is not None), None)
    if row is None:
        return Batch(prompts=(), completions=(), completion_ids=(), columns={})
    texts = [*gold_spellings(answers[row]), *gold_spellings(WRONG_ANSWER)]
    return Batch(
        prompts=[request.prompts[row]] * len(texts),
        completions=texts,
        completion_ids=[None] * len(texts),
        columns={name: [values[row]] * len(texts) for name, values in request.columns.items()},
    )


def _table(request: ScoreRequest, columns: Sequence[Column], gold: Sequence[str]) -> ScoreTable:
    rewards = tuple(zip(*(column.rewards for column in columns), strict=True))
    probes = tuple(
        GoldProbe(text=text, right=index < len(gold) // 2, rewards=tuple(column.gold[index] for column in columns))
        for index, text in enumerate(gold)
    )
    table = ScoreTable(
        names=request.names,
        weights=request.weights,
        rewards=rewards,
        weighted=tuple(weighted_sums(rewards, request.weights)),
        advantages=tuple(advantages(rewards, request.weights, request.group_size, request.scale, request.aggregation)),
        problems={},
        blocking=tuple(column.name for column in columns if column.blocking),
        composition=(),
        notes={},
        seconds_per_call={column.name: column.seconds for column in columns},
        gold=probes,
        metrics={key: value for column in columns for key, value in column.metrics.items()},
        spread={
            column.name: spread_of(column.rewards) * abs(weight)
            for column, weight in zip(columns, request.weights, strict=True)
        },
    )
    for column in columns:
        column.notes += _length_hint(request, column)
    notes = {column.name: tuple(column.notes) for column in columns if column.notes}
    problems = {column.name: tuple(column.problems) for column in columns if column.problems}
    return replace(table, problems=problems, notes=notes, composition=tuple(check_composition(table)))


def _length_hint(request: ScoreRequest, column: Column) -> list[str]:
    """RW-09: rewards that grow without bound with the distance from a length."""
    scored = [
        (value, len(text)) for value, text in zip(column.rewards, request.completions, strict=True) if value is not None
    ]
    if len(scored) < 3:
        return []
    best = max(scored)
    if (
        best[0] > TOO_MANY_TIMES
        and best[1] == max(length for _, length in scored)
        and best[1] > min(length for _, length in scored)
    ):
        return [f"The longest completion wins, with {best[0]:g}: is this the order you want? Keep rewards in 0 … 1."]
    return []
