"""Reward functions tried on completions in a child process, each on its own, before anything trains."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grpo_tui.child import Worker, scrubbed_environment
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward, advantages, standard_deviation, weight_warning, weighted_sums
from grpo_tui.rewards.source import duplicates

Prompt = str | Sequence[Mapping[str, Any]]

TIMEOUT = 5.0
"""Seconds one function may take for one batch, and then for one completion."""

KILL_AFTER = 2.0
"""Seconds past its own time-out after which a child that does not answer is killed."""

LOAD_TIMEOUT = 120.0
"""Seconds for running the rewards file: it may import large libraries."""

SLOW = 0.05
"""Seconds per completion from which a reward is worth a word: a step of 64 completions then waits 3 s for it."""

LEAST_ADDRESS_SPACE = 8 << 30
"""Bytes of address space a reward gets at least: libraries reserve far more than they use."""

HANGS_BEFORE_GIVING_UP = 2

TOO_MANY_TIMES = 10.0
"""A weighted term with this many times the spread of the first one decides the advantages alone."""


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

    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Every other column of the prepared data set, without `prompt`."""

    answer_column: str = ""
    """Column of the right answer: it is then itself tried as a completion, in several spellings."""

    group_size: int = 0
    """Neighbouring completions that share a prompt; 0: all of them."""

    scale: str = "group"
    aggregation: str = "sum_then_normalize"
    tokenizer: str = ""
    """Local folder of the tokenizer that makes `completion_ids`; empty: words stand in for tokens."""

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


def start_worker(project: Path, environ: Mapping[str, str] = os.environ) -> Worker:
    """A worker for reward functions of `project`: no secrets, the project as working directory, bounded memory."""
    import psutil

    limit = max(LEAST_ADDRESS_SPACE, psutil.virtual_memory().available)
    return Worker("score", env=scrubbed_environment(environ), cwd=project, address_space_bytes=limit)


def score(
    worker: Worker, request: ScoreRequest, on_progress: Callable[[str], None] | None = None
) -> ScoreTable | Problem:
    """Call every function on the completions and say what a training would make of it.

    A function that hangs, dies or raises spoils only its own column; the completion that did it is named and the others
    are scored one by one. `on_progress` gets the name of the function whose turn it is. A `Problem` is returned when
    nothing could be scored: the request does not fit together, or the file cannot be loaded.
    """
    problem = _check_request(request)
    if problem:
        return problem
    request = _completed(request)
    loaded = worker.call("load", {"path": str(request.path), "names": list(request.names)}, timeout=LOAD_TIMEOUT)
    if isinstance(loaded, Problem):
        return loaded
    columns = []
    for name in request.names:
        if on_progress:
            on_progress(name)
        columns.append(_score_function(worker, request, name, loaded["functions"][name]))
    return _table(request, columns)


@dataclass
class _Column:
    """What one function did."""

    name: str
    rewards: list[Reward]
    gold: list[Reward]
    problems: list[Problem] = field(default_factory=list)
    blocking: bool = False
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


def _check_request(request: ScoreRequest) -> Problem | None:
    count = len(request.completions)
    if count < 2:
        return Problem("completions", f"There are {count} completions.", "Give at least two: one alone hides most faults.")
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
    if not request.names:
        return Problem("rewards", "No reward function is chosen.", "Choose at least one.")
    lengths = {"prompts": len(request.prompts) or count} | {name: len(each) for name, each in request.columns.items()}
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


def _gold_rows(request: ScoreRequest) -> list[str]:
    if request.answer_column not in request.columns:
        return []
    return [*gold_spellings(request.columns[request.answer_column][0]), *gold_spellings(WRONG_ANSWER)]


def _params(request: ScoreRequest, name: str, **more: Any) -> dict[str, Any]:
    return {
        "path": str(request.path),
        "name": name,
        "prompts": list(request.prompts),
        "completions": list(request.completions),
        "columns": {column: list(values) for column, values in request.columns.items()},
        "gold": _gold_rows(request),
        "tokenizer": request.tokenizer,
        "timeout": request.timeout,
        **more,
    }


def _score_function(worker: Worker, request: ScoreRequest, name: str, about: Mapping[str, Any]) -> _Column:
    """Ask once for the whole batch; if that fails, one by one."""
    count = len(request.completions)
    column = _Column(name, [None] * count, [None] * len(_gold_rows(request)))
    # The call itself, its repetition, the other prompt format and the gold rows: each has the time-out to itself.
    reply = worker.call("score", _params(request, name), timeout=4 * request.timeout + KILL_AFTER)
    if isinstance(reply, dict) and reply["outcome"] == "scored":
        _take(column, reply)
        return column
    if isinstance(reply, dict) and reply["outcome"] == "shape":
        column.problems = [Problem(**each) for each in reply["problems"]]
        column.seconds = reply["seconds"]
        column.blocking = True
        return column
    column.blocking = True
    _one_by_one(worker, request, column, reply, about)
    return column


def _take(column: _Column, reply: Mapping[str, Any]) -> None:
    column.rewards = [_number(value) for value in reply["rewards"]]
    column.gold = [_number(value) for value in reply["gold"]]
    column.problems = [Problem(**each) for each in reply["problems"]]
    column.blocking = reply["blocking"]
    column.notes = list(reply["notes"])
    column.seconds = reply["seconds"]
    column.metrics = dict(reply["metrics"])
    each = column.seconds / len(column.rewards)
    if each > SLOW:
        column.notes.append(f"It takes {each:.2g} s per completion; training waits for it at every step.")


def _number(value: Any) -> Reward:
    """A reward out of JSON, which has no infinities of its own."""
    return float(value) if isinstance(value, str) else value


def _one_by_one(
    worker: Worker, request: ScoreRequest, column: _Column, first: dict[str, Any] | Problem, about: Mapping[str, Any]
) -> None:
    """Find the completion at fault: each is scored alone, in one call, going on behind the one that killed the child."""
    count = len(request.completions)
    hung: list[int] = []
    died: dict[int, Problem] = {}
    failures: dict[int, Problem] = {}
    start = 0
    while start < count and len(hung) + len(died) < HANGS_BEFORE_GIVING_UP:
        at = [start]
        reply = worker.call(
            "each",
            _params(request, column.name, start=start),
            timeout=(count - start) * request.timeout + KILL_AFTER,
            on_progress=lambda message, at=at: at.__setitem__(0, message["completion"]),  # type: ignore[misc]
        )
        if isinstance(reply, Problem):
            died[at[0]] = reply
            start = at[0] + 1
            continue
        for index, value in enumerate(reply["rewards"], start):
            column.rewards[index] = _number(value)
        failures |= {int(index): Problem(**each) for index, each in reply["failures"].items()}
        if reply["hung"] is None:
            break
        hung.append(reply["hung"])
        start = reply["hung"] + 1
    column.problems += _explained(request, column.name, first, hung, died, failures, about)


def _explained(
    request: ScoreRequest,
    name: str,
    first: dict[str, Any] | Problem,
    hung: Sequence[int],
    died: Mapping[int, Problem],
    failures: Mapping[int, Problem],
    about: Mapping[str, Any],
) -> list[Problem]:
    where = f"{request.path.name}:{about['line']} {name}"
    problems = [
        Problem(
            f"{where}, completion {index + 1}",
            f"It did not return within {request.timeout:g} s for {one_line(request.completions[index], 60)!r}.",
            "Look for a regular expression with nested repetition (replace `(\\s*\\S+)*` by `.*?` with re.DOTALL) or a "
            "call without a time-out.",
        )
        for index in hung
    ]
    problems += [
        Problem(f"{where}, completion {index + 1}", death.what, death.remedy) for index, death in died.items()
    ]
    if failures:
        index, failure = next(iter(failures.items()))
        more = f" It happens on {len(failures)} of {len(request.completions)} completions." if len(failures) > 1 else ""
        problems.append(Problem(f"{failure.where}, completion {index + 1}", failure.what + more, failure.remedy))
    if problems:
        return problems
    if isinstance(first, Problem):
        return [Problem(where, f"With all completions together: {first.what}", first.remedy)]
    if first["outcome"] == "hung":
        return [
            Problem(
                where,
                f"All {len(request.completions)} completions together take longer than {request.timeout:g} s, though each "
                "alone does not.",
                "Make it faster, or allow more time: training waits for it at every step.",
            )
        ]
    return [Problem(**first["problem"])]


def _table(request: ScoreRequest, columns: Sequence[_Column]) -> ScoreTable:
    rewards = tuple(zip(*(column.rewards for column in columns), strict=True))
    finite = [[None if value is None or math.isinf(value) else value for value in row] for row in rewards]
    gold = _gold_rows(request)
    probes = tuple(
        GoldProbe(text=text, right=index < len(gold) // 2, rewards=tuple(column.gold[index] for column in columns))
        for index, text in enumerate(gold)
    )
    table = ScoreTable(
        names=request.names,
        weights=request.weights,
        rewards=rewards,
        weighted=tuple(weighted_sums(rewards, request.weights)),
        advantages=tuple(
            advantages(rewards, request.weights, request.group_size, request.scale, request.aggregation)
        ),
        problems={},
        blocking=tuple(column.name for column in columns if column.blocking),
        composition=(),
        notes={},
        seconds_per_call={column.name: column.seconds for column in columns},
        gold=probes,
        metrics={key: value for column in columns for key, value in column.metrics.items()},
        spread={
            column.name: _spread([row[index] for row in finite]) * abs(request.weights[index])
            for index, column in enumerate(columns)
        },
    )
    for column in columns:
        column.problems += _all_the_same(request, column)
        column.notes += _length_hint(request, column)
    notes = {column.name: tuple(column.notes) for column in columns if column.notes}
    problems = {column.name: tuple(column.problems) for column in columns if column.problems}
    return replace(table, problems=problems, notes=notes, composition=tuple(check_composition(table)))


def _spread(values: Sequence[Reward]) -> float:
    deviation = standard_deviation(values)
    return 0.0 if math.isnan(deviation) else deviation


def _all_the_same(request: ScoreRequest, column: _Column) -> list[Problem]:
    """RW-03: a function that cannot tell different completions apart teaches nothing."""
    texts = {text.strip() for text in request.completions}
    values = [value for value in [*column.rewards, *column.gold] if value is not None]
    if column.blocking or len(texts) < 2 or len(values) < 2 or max(values) != min(values):
        return []
    other = [note for note in column.notes if note.startswith(OTHER_FORMAT)]
    column.notes = [note for note in column.notes if not note.startswith(OTHER_FORMAT)]
    return [
        Problem(
            f"{request.path.name} {column.name}",
            f"It gave the same reward ({values[0]:g}) to {len(texts)} different completions.",
            other[0] if other else "If they differ in what it pays for, correct it; else add a sample that it should pay.",
        )
    ]


OTHER_FORMAT = "In the other prompt format "
"""How the worker begins the note that says what the function does there."""


def _length_hint(request: ScoreRequest, column: _Column) -> list[str]:
    """RW-09: rewards that grow without bound with the distance from a length."""
    scored = [(value, len(text)) for value, text in zip(column.rewards, request.completions, strict=True) if value is not None]
    if len(scored) < 3:
        return []
    best = max(scored)
    if best[0] > TOO_MANY_TIMES and best[1] == max(length for _, length in scored) and best[1] > min(
        length for _, length in scored
    ):
        return [f"The longest completion wins, with {best[0]:g}: is this the order you want? Keep rewards in 0 … 1."]
    return []


def check_composition(table: ScoreTable) -> list[Problem]:
    """What is wrong with the set although each function works: names, weights, scale, cancelling terms, unpaid answers."""
    problems = [
        Problem("rewards", f"`{name}` is chosen more than once; TRL merges equal names into one metric.", "Choose it once.")
        for name in duplicates(table.names)
    ]
    warnings = [weight_warning(name, weight) for name, weight in zip(table.names, table.weights, strict=True)]
    problems += [
        Problem(f"weight of {name}", warning, "Change it on the Rewards step, or go on knowing this.")
        for name, warning in zip(table.names, warnings, strict=True)
        if warning
    ]
    total = _spread([None if value is None or math.isinf(value) else value for value in table.weighted])
    largest = max(table.spread.values(), default=0.0)
    if largest > 0 and total < 1e-6 * max(1.0, largest):
        problems.append(
            Problem("rewards", "The terms cancel: each varies, their weighted sum does not.", "Change a weight or a term.")
        )
    problems += _drowned(table)
    problems += _never_paid(table)
    return problems


def _drowned(table: ScoreTable) -> list[Problem]:
    """A term of another size than the first one (correctness) decides alone (RW-09)."""
    first = table.spread.get(table.names[0], 0.0)
    return [
        Problem(
            f"weight of {name}",
            f"Its spread is {spread / first:.3g} times that of {table.names[0]}, which it drowns.",
            "Bring it into 0 … 1, or lower its weight.",
        )
        for name, spread in table.spread.items()
        if first > 0 and spread > TOO_MANY_TIMES * first
    ]


def _never_paid(table: ScoreTable) -> list[Problem]:
    """RW-07: no spelling of the right answer earns more than the same spelling of a wrong one, from any function."""
    half = len(table.gold) // 2
    pairs = list(zip(table.gold[:half], table.gold[half:], strict=True))
    values = [
        (good, bad)
        for right, wrong in pairs
        for name, good, bad in zip(table.names, right.rewards, wrong.rewards, strict=True)
        if name not in table.blocking
    ]
    if not values or any(good is not None and good > (bad if bad is not None else -math.inf) for good, bad in values):
        return []
    return [
        Problem(
            "rewards",
            "The right answer itself is never paid more than a wrong one, in none of "
            f"{half} spellings (bare, boxed, in an answer tag …).",
            "Compare as text on both sides: an integer answer is never equal to extracted text. Look at the answer column.",
        )
    ]


NO_NOTES: Mapping[str, tuple[str, ...]] = MappingProxyType({})
