"""Reward functions tried on completions in a child process, each on its own, before anything trains."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker, scrubbed_environment
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward, advantages, standard_deviation, weight_warning, weighted_sums
from grpo_tui.rewards.source import FunctionSource, check_signature, duplicates, read_functions

Prompt = str | Sequence[Mapping[str, Any]]

TIMEOUT = 5.0
"""Seconds one function may take for one batch, and then for one completion."""

KILL_AFTER = 1.0
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


def start_worker(project: Path, environ: Mapping[str, str] = os.environ) -> Worker:
    """A worker for reward functions of `project`: no secrets, the project as working directory, bounded memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = max(LEAST_ADDRESS_SPACE, memory // 2)
    return Worker("score", env=scrubbed_environment(environ), cwd=project, address_space_bytes=limit)


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
    read = read_functions(request.path)
    if isinstance(read, Problem):
        return read
    bench = _Bench(worker, _completed(request), {function.name: function for function in read})
    problem = bench.load()
    if problem:
        return problem
    columns = []
    for name in request.names:
        if on_progress:
            on_progress(name)
        columns.append(bench.column(name))
    return _table(bench.request, columns)


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


class _Bench:
    """One request and the worker that answers it."""

    def __init__(self, worker: Worker, request: ScoreRequest, sources: Mapping[str, FunctionSource]) -> None:
        self.worker = worker
        self.request = request
        self.sources = sources
        self.batch = _Batch(request.prompts, request.completions, request.columns)
        self.gold = _gold_batch(request)
        self.tokens = False  # the worker found the tokenizer

    def load(self) -> Problem | None:
        """Have the functions ready in the worker; cheap when they are."""
        params = {
            "path": str(self.request.path),
            "names": list(dict.fromkeys(self.request.names)),
            "tokenizer": self.request.tokenizer,
        }
        reply = self.worker.call("load", params, timeout=LOAD_TIMEOUT)
        if isinstance(reply, Problem):
            return reply
        self.tokens = reply["tokens"]
        return None

    def where(self, name: str) -> str:
        return self.sources[name].where if name in self.sources else f"{self.request.path.name} {name}"

    def column(self, name: str) -> _Column:
        """Everything about one function."""
        column = _Column(name, [None] * len(self.batch.completions), [None] * len(self.gold.completions))
        if name in self.sources:
            column.problems = check_signature(self.sources[name], tuple(self.request.columns))
        if not column.problems:
            reply = self._call(name, self.batch)
            if isinstance(reply, dict) and reply["outcome"] == "returned":
                self._returned(column, reply)
            else:
                self._one_by_one(column, reply)
        column.blocking = column.blocking or not any(value is not None for value in column.rewards)
        return column

    def _call(self, name: str, batch: "_Batch") -> dict[str, Any] | Problem:
        """One call of the function; an outcome as `workers.score` describes it, or why the worker died."""
        problem = self.load()  # a worker that was killed has to load again, which is not held against the function
        if problem:
            return problem
        params = {
            "path": str(self.request.path),
            "name": name,
            "prompts": list(batch.prompts),
            "completions": list(batch.completions),
            "columns": {column: list(values) for column, values in batch.columns.items()},
            "tokenizer": self.request.tokenizer,
            "timeout": self.request.timeout,
        }
        limit = self.request.timeout + KILL_AFTER
        start = time.monotonic()
        reply = self.worker.call("call", params, timeout=limit)
        if isinstance(reply, Problem) and time.monotonic() - start >= limit:
            return {"outcome": "hung"}  # it did not even react to the alarm
        return reply

    def _returned(self, column: _Column, reply: Mapping[str, Any]) -> None:
        where = self.where(column.name)
        column.problems += [Problem(where, **fault) for fault in reply["faults"]]
        column.blocking = reply["blocking"]
        column.seconds = reply["seconds"]
        column.metrics = dict(reply["metrics"])
        column.notes = list(reply["notes"])
        if not self.tokens and "completion_ids" in self._parameters(column.name):
            column.notes.append("Words stood in for tokens here: no tokenizer was at hand.")
        if not reply["rewards"]:
            return
        column.rewards = list(reply["rewards"])
        each = column.seconds / len(column.rewards)
        if each > SLOW:
            column.notes.append(f"It takes {each:.2g} s per completion; training waits for it at every step.")
        column.problems += self._repeated(column)
        self._score_gold(column)
        column.problems += self._all_the_same(column)

    def _parameters(self, name: str) -> tuple[str, ...]:
        return self.sources[name].parameters if name in self.sources else ()

    def _repeated(self, column: _Column) -> list[Problem]:
        """Call it again with the same: the rewards must be the same."""
        again = self._call(column.name, self.batch)
        rewards = again.get("rewards") if isinstance(again, dict) else None
        if rewards == column.rewards:
            return []
        if not rewards:
            what = "The second call with the same completions failed, the first did not."
        else:
            index, first, second = next(
                (index, *pair)
                for index, pair in enumerate(zip(column.rewards, rewards, strict=True))
                if pair[0] != pair[1]
            )
            what = f"Called twice, it gives completion {index + 1} first {_shown(first)} and then {_shown(second)}."
        return [Problem(self.where(column.name), what, "Take chance, clocks and kept state out of it.")]

    def _score_gold(self, column: _Column) -> None:
        if not self.gold.completions:
            return
        reply = self._call(column.name, self.gold)
        if isinstance(reply, dict) and reply.get("rewards"):
            column.gold = list(reply["rewards"])
        elif isinstance(reply, dict) and reply["outcome"] == "raised":
            problem = Problem(**reply["problem"])
            column.problems.append(replace(problem, what=f"With the right answer itself as completion: {problem.what}"))

    def _all_the_same(self, column: _Column) -> list[Problem]:
        """RW-03: a function that cannot tell different completions apart teaches nothing."""
        texts = {text.strip() for text in self.batch.completions}
        values = [value for value in [*column.rewards, *column.gold] if value is not None]
        if column.blocking or len(texts) < 2 or len(values) < 2 or max(values) != min(values):
            return []
        remedy = "If they differ in what it pays for, correct it; else add a sample that it should pay."
        other = self._call(column.name, self.batch.other_format())
        rewards = other.get("rewards") if isinstance(other, dict) else None
        if rewards and len({value for value in rewards if value is not None}) > 1:
            remedy = f"In the other prompt format it tells them apart. {self.batch.shapes()}"
        what = f"It gave the same reward ({values[0]:g}) to {len(texts)} different completions."
        return [Problem(self.where(column.name), what, remedy)]

    def _one_by_one(self, column: _Column, first: dict[str, Any] | Problem) -> None:
        """Find the completion at fault: each is scored alone, going on behind the one that hung or killed the child."""
        column.blocking = True
        found = _Found()
        for index in range(len(self.batch.completions)):
            reply = self._call(column.name, self.batch.row(index))
            if isinstance(reply, Problem):
                found.died[index] = reply
            elif reply["outcome"] == "hung":
                found.hung.append(index)
            elif reply["outcome"] == "raised":
                found.failures[index] = Problem(**reply["problem"])
            else:
                column.rewards[index] = (reply["rewards"] or [None])[0]
            if len(found.hung) + len(found.died) >= HANGS_BEFORE_GIVING_UP:
                break
        column.problems += self._explained(column.name, first, found)

    def _explained(self, name: str, first: dict[str, Any] | Problem, found: "_Found") -> list[Problem]:
        where = self.where(name)
        completions = self.batch.completions
        problems = [
            Problem(
                f"{where}, completion {index + 1}",
                f"It did not return within {self.request.timeout:g} s for {one_line(completions[index], 60)!r}.",
                "Look for a regular expression with nested repetition (write `.*?` with re.DOTALL instead of "
                "`(\\s*\\S+)*`), an endless loop, or a call without a time-out.",
            )
            for index in found.hung
        ]
        problems += [
            Problem(f"{where}, completion {index + 1}", death.what, death.remedy) for index, death in found.died.items()
        ]
        if found.failures:
            problems.append(self._failure(name, found.failures))
        if problems:
            return problems
        if isinstance(first, Problem):
            return [Problem(where, f"With all completions together: {first.what}", first.remedy)]
        if first["outcome"] == "raised":
            return [replace(Problem(**first["problem"]), remedy="Each completion alone works, all together do not.")]
        limit = f"{self.request.timeout:g} s"
        what = f"All {len(completions)} completions together take longer than {limit}; each alone does not."
        return [Problem(where, what, "Make it faster, or allow more time: training waits for it at every step.")]

    def _failure(self, name: str, failures: Mapping[int, Problem]) -> Problem:
        """What an exception means: TRL catches none, so the run would end there (RW-11)."""
        count = len(self.batch.completions)
        index, failure = next(iter(failures.items()))
        share = f" ({len(failures)} of {count} completions)" if len(failures) > 1 else ""
        remedy = f"{failure.remedy} TRL catches no exception: catch it, and return None for what cannot be scored."
        if len(failures) == count:
            other = self._call(name, self.batch.other_format())
            if isinstance(other, dict) and other["outcome"] == "returned":
                remedy = f"In the other prompt format it works. {self.batch.shapes()}"
        return Problem(f"{failure.where} {name}, completion {index + 1}", failure.what + share, remedy)


@dataclass
class _Found:
    """What asking one by one brought to light, by index of the completion."""

    hung: list[int] = field(default_factory=list)
    died: dict[int, Problem] = field(default_factory=dict)
    failures: dict[int, Problem] = field(default_factory=dict)


@dataclass(frozen=True)
class _Batch:
    """What one call is about; row i of everything belongs together."""

    prompts: Sequence[Prompt]
    completions: Sequence[str]
    columns: Mapping[str, Sequence[Any]]

    def row(self, index: int) -> "_Batch":
        """One completion alone."""
        one = slice(index, index + 1)
        columns = {name: values[one] for name, values in self.columns.items()}
        return _Batch(self.prompts[one], self.completions[one], columns)

    def other_format(self) -> "_Batch":
        """The same with chat messages instead of plain text, or the other way round."""
        return replace(self, prompts=[_other_format(prompt) for prompt in self.prompts])

    def shapes(self) -> str:
        """The two shapes of a completion, side by side, and how to take both (RW-03)."""
        plain, chat = "'text'", "[{'role': 'assistant', 'content': 'text'}]"
        here, there = (plain, chat) if isinstance(self.prompts[0], str) else (chat, plain)
        return (
            f"Here a completion is {here}, not {there}. "
            "Begin with: texts = [c if isinstance(c, str) else c[-1]['content'] for c in completions]"
        )


def _other_format(prompt: Prompt) -> Prompt:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return "\n".join(str(message.get("content") or "") for message in prompt)


def _gold_batch(request: ScoreRequest) -> _Batch:
    """The first row's right answer in several spellings, then a wrong one in the same; empty without an answer."""
    if request.answer_column not in request.columns:
        return _Batch((), (), {})
    texts = [*gold_spellings(request.columns[request.answer_column][0]), *gold_spellings(WRONG_ANSWER)]
    columns = {name: [values[0]] * len(texts) for name, values in request.columns.items()}
    return _Batch([request.prompts[0]] * len(texts), texts, columns)


def _shown(reward: Reward) -> str:
    return "None" if reward is None else f"{reward:.6g}"


def _table(request: ScoreRequest, columns: Sequence[_Column]) -> ScoreTable:
    rewards = tuple(zip(*(column.rewards for column in columns), strict=True))
    finite = [[None if value is None or math.isinf(value) else value for value in row] for row in rewards]
    gold = _gold_batch(request).completions
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
            column.name: _spread([row[index] for row in finite]) * abs(request.weights[index])
            for index, column in enumerate(columns)
        },
    )
    for column in columns:
        column.notes += _length_hint(request, column)
    notes = {column.name: tuple(column.notes) for column in columns if column.notes}
    problems = {column.name: tuple(column.problems) for column in columns if column.problems}
    return replace(table, problems=problems, notes=notes, composition=tuple(check_composition(table)))


def _spread(values: Sequence[Reward]) -> float:
    deviation = standard_deviation(values)
    return 0.0 if math.isnan(deviation) else deviation


def _length_hint(request: ScoreRequest, column: _Column) -> list[str]:
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


def check_composition(table: ScoreTable) -> list[Problem]:
    """What is wrong with the set although each function works: names, weights, scale, cancelling, unpaid answers."""
    problems = [
        Problem(
            "rewards", f"`{name}` is chosen more than once; TRL merges equal names into one metric.", "Choose it once."
        )
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
            Problem(
                "rewards", "The terms cancel: each varies, their weighted sum does not.", "Change a weight or a term."
            )
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
            "Compare as text on both sides: an integer is never equal to extracted text. Look at the answer column.",
        )
    ]
