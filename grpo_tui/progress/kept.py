"""The completions that a run kept, as the bench compares them: to ask what other rewards would have done."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.progress import completions
from grpo_tui.progress.events import EVENTS_FILE, first_view
from grpo_tui.rewards.advantages import scale_name
from grpo_tui.rewards.stored import Stored

Row = Mapping[str, Any]


def kept(run: Path, step: int | None = None) -> Stored | Problem:
    """The completions of one step, by default the last one kept, with the weights that the run was started with.

    Of a run without `events.jsonl` the functions are those of the file, all with weight 1.
    """
    steps = completions.steps(run)
    if not steps:
        return Problem(
            str(run), "No completions were kept beside this run.", "Set log_completions and train, or name another run."
        )
    begin = _begin(run)
    size = _number(_mapping(begin, "batch").get("num_generations"))
    table = completions.read(run, steps[-1] if step is None else step, num_generations=size)
    if isinstance(table, Problem):
        return table
    if not table.completions:
        return Problem(str(completions.path_of(run, table.step)), "It holds no completion.", "Choose another step.")
    named = [str(name) for name in begin.get("reward_names") or table.rewards]
    names = [name for name in named if name in table.rewards]
    if not names:
        found = one_line(", ".join(table.rewards) or "none", 200)
        return Problem(str(run), f"None of its rewards are in the file; found: {found}.", "Choose another step.")
    weights = [float(weight) for weight in begin.get("reward_weights") or [1.0] * len(named)]
    by_name = dict(zip(named, weights, strict=False))
    sizes = {len(group) for group in table.groups}
    if not size and len(sizes) == 1:
        size = sizes.pop()
    if not size or any(len(group) != size for group in table.groups):
        what = "Its completions are no whole groups of one size; an evaluation may have written among them."
        return Problem(f"step {table.step}", what, "Choose another step.")
    settings = _mapping(begin, "settings")
    return Stored(
        names=tuple(names),
        weights=tuple(by_name.get(name, 1.0) for name in names),
        rewards=tuple(zip(*(table.rewards[name] for name in names), strict=True)),
        group_size=size,
        prompts=table.prompts,
        completions=table.completions,
        scale=scale_name(settings.get("scale_rewards", "group")),
        aggregation=str(settings.get("multi_objective_aggregation", "sum_then_normalize")),
        step=table.step,
    )


def kept_steps(run: Path, step: int | None = None, last: int = 1) -> tuple[Stored, ...] | Problem:
    """The completions of `last` kept steps up to `step`, rising; fewer where fewer were kept with the same rewards."""
    newest = kept(run, step)
    if isinstance(newest, Problem):
        return newest
    earlier = [number for number in completions.steps(run) if number < newest.step][-(last - 1) :] if last > 1 else []
    read = [kept(run, number) for number in earlier]
    alike = [
        each
        for each in read
        if isinstance(each, Stored) and (each.names, each.group_size) == (newest.names, newest.group_size)
    ]
    return (*alike, newest)


def rows_of(
    prompts: Sequence[str], prepared: Iterable[tuple[int, Row]], where: str
) -> tuple[tuple[int, Row], ...] | Problem:
    """The numbered prepared row that each of `prompts` comes from: what new code needs to be called with.

    `prompts` are texts as `completions.as_text` makes them. `prepared` is read no further than to the last one found.
    """
    wanted, found = set(prompts), {}
    for number, row in prepared:
        text = completions.as_text(row["prompt"])
        if text in wanted and text not in found:
            found[text] = (number, row)
            if len(found) == len(wanted):
                break
    missing = sum(prompt not in found for prompt in prompts)
    if missing:
        return Problem(
            where,
            f"The prompts of {missing} of {len(prompts)} completions are not among the rows of the data.",
            "Give the data, the columns and the system prompt with which they were made.",
        )
    return tuple(found[prompt] for prompt in prompts)


def _begin(run: Path) -> Mapping[str, Any]:
    """The newest `begin` row; empty without one."""
    begins = [event.data for event in first_view(run / EVENTS_FILE)[0] if event.kind == "begin"]
    return begins[-1] if begins else {}


def _mapping(begin: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = begin.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
