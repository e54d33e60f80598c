"""One reward function tried on a batch: what it pays, what is wrong with it, and which completion did it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.rewards.advantages import Reward
from grpo_tui.rewards.calls import Batch, Caller
from grpo_tui.rewards.kinds import TEMPLATES
from grpo_tui.rewards.source import FunctionSource, check_signature

SLOW = 0.05
"""Seconds per completion from which a reward is worth a word: a step of 64 completions then waits 3 s for it."""

HANGS_BEFORE_GIVING_UP = 2


@dataclass
class Column:
    """What one function did."""

    name: str
    rewards: list[Reward]
    gold: list[Reward]
    problems: list[Problem] = field(default_factory=list)
    blocking: bool = False
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """What the functions of a file are tried on."""

    caller: Caller
    sources: Mapping[str, FunctionSource]
    """The functions as they stand in the file, by name."""

    batch: Batch
    gold: Batch
    """The right answer and a wrong one, each as completions; may be empty."""

    watching: frozenset[str] = frozenset()
    """Functions of weight 0: what they show may well come later."""

    def where(self, name: str) -> str:
        return self.sources[name].where if name in self.sources else f"{self.caller.path.name} {name}"

    def column(self, name: str) -> Column:
        """Everything about one function."""
        column = Column(name, [None] * len(self.batch.completions), [None] * len(self.gold.completions))
        if name in self.sources:
            column.problems = check_signature(self.sources[name], tuple(self.batch.columns))
        if not column.problems:
            reply = self.caller.call(name, self.batch)
            if isinstance(reply, dict) and reply["outcome"] == "returned":
                self._returned(column, reply)
            else:
                self._one_by_one(column, reply)
        column.blocking = column.blocking or not any(value is not None for value in column.rewards)
        return column

    def _returned(self, column: Column, reply: Mapping[str, Any]) -> None:
        where = self.where(column.name)
        column.problems += [Problem(where, **fault) for fault in reply["faults"]]
        column.blocking = reply["blocking"]
        column.seconds = reply["seconds"]
        column.metrics = dict(reply["metrics"])
        column.notes = [*reply["notes"], *self._cautions(column.name)]
        if not self.caller.tokens and "completion_ids" in self._parameters(column.name):
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

    def _cautions(self, name: str) -> tuple[str, ...]:
        """What is known to go wrong with a function of TRL's own (RW-13)."""
        origin = self.sources[name].origin if name in self.sources else ""
        template = TEMPLATES.get(f"trl_{origin.removesuffix('_reward')}")
        return template.cautions if template else ()

    def _parameters(self, name: str) -> tuple[str, ...]:
        return self.sources[name].parameters if name in self.sources else ()

    def _repeated(self, column: Column) -> list[Problem]:
        """Call it again with the same: the rewards must be the same."""
        again = self.caller.call(column.name, self.batch)
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

    def _score_gold(self, column: Column) -> None:
        if not self.gold.completions:
            return
        reply = self.caller.call(column.name, self.gold)
        if isinstance(reply, dict) and reply.get("rewards"):
            column.gold = list(reply["rewards"])
        elif isinstance(reply, dict) and reply["outcome"] == "raised":
            problem = Problem(**reply["problem"])
            column.problems.append(replace(problem, what=f"With the right answer itself as completion: {problem.what}"))

    def _all_the_same(self, column: Column) -> list[Problem]:
        """RW-03: a function that cannot tell different completions apart teaches nothing."""
        texts = {text.strip() for text in self.batch.completions}
        values = [value for value in [*column.rewards, *column.gold] if value is not None]
        if column.blocking or len(texts) < 2 or len(values) < 2 or max(values) != min(values):
            return []
        if column.name in self.watching:
            column.notes.append(f"It has not shown anything yet: {values[0]:z.6g} for all {len(texts)} completions.")
            return []
        remedy = "If they differ in what it pays for, correct it; else add a sample that it should pay."
        other = self.caller.call(column.name, self.batch.other_format())
        rewards = other.get("rewards") if isinstance(other, dict) else None
        if rewards and len({value for value in rewards if value is not None}) > 1:
            remedy = f"In the other prompt format it tells them apart. {self.batch.shapes()}"
        what = f"It gave the same reward ({values[0]:z.6g}) to {len(texts)} different completions."
        return [Problem(self.where(column.name), what, remedy)]

    def _one_by_one(self, column: Column, first: dict[str, Any] | Problem) -> None:
        """Find the completion at fault: each is scored alone, going on behind the one that hung or killed the child."""
        column.blocking = True
        found = _Found()
        for index in range(len(self.batch.completions)):
            reply = self.caller.call(column.name, self.batch.row(index))
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
                f"It did not return within {self.caller.timeout:g} s for {one_line(completions[index], 60)!r}.",
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
        limit = f"{self.caller.timeout:g} s"
        what = f"All {len(completions)} completions together take longer than {limit}; each alone does not."
        return [Problem(where, what, "Make it faster, or allow more time: training waits for it at every step.")]

    def _failure(self, name: str, failures: Mapping[int, Problem]) -> Problem:
        """What an exception means: TRL catches none, so the run would end there (RW-11)."""
        count = len(self.batch.completions)
        index, failure = next(iter(failures.items()))
        share = f" ({len(failures)} of {count} completions)" if len(failures) > 1 else ""
        remedy = f"{failure.remedy}; TRL catches no exception: catch it, and return None for what cannot be scored."
        if len(failures) == count:
            other = self.caller.call(name, self.batch.other_format())
            if isinstance(other, dict) and other["outcome"] == "returned":
                remedy = f"In the other prompt format it works. {self.batch.shapes()}"
        return Problem(f"{failure.where} {name}, completion {index + 1}", failure.what + share, remedy)


@dataclass
class _Found:
    """What asking one by one brought to light, by index of the completion."""

    hung: list[int] = field(default_factory=list)
    died: dict[int, Problem] = field(default_factory=dict)
    failures: dict[int, Problem] = field(default_factory=dict)


def _shown(reward: Reward) -> str:
    return "None" if reward is None else f"{reward:.6g}"
