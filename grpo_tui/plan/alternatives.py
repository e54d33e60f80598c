"""Other plans for the same wish, side by side: the safest, the fastest, and the largest model that fits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from grpo_tui.draft import Draft
from grpo_tui.plan.known import CONFIGS, known_model
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.tuning import Facts, tune

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A plan that fits the card, and what it is better at."""

    name: str
    """`safest`, `fastest` or `largest`."""

    why: str
    plan: Plan
    model: str = ""
    """The model of the plan where it is another than the one asked for."""

    def words(self) -> str:
        """The plan on one line."""
        memory = self.plan.memory
        peak = f", peak {memory.peak_bytes / GIB:.1f} GiB" if memory else ""
        model = f"{self.model}: " if self.model else ""
        return f"{model}{self.plan.method}, {self.plan.batch.words()}{peak}. {self.why}"

    def as_json(self) -> dict[str, Any]:
        """The alternative as `grpo-tui plan --json` prints it: what differs, not every reason again."""
        told = self.plan.as_json()
        kept = ("method", "settings", "lora", "batch", "memory", "peak_bytes", "interval_bytes", "gpu_bytes")
        return {"name": self.name, "why": self.why, "model": self.model, **{key: told[key] for key in kept}}


def alternatives(draft: Draft, facts: Facts) -> tuple[Alternative, ...]:
    """Plans for the same cards and data, each under the card by the memory model; a wish nothing answers is left out.

    A plan that is the same as one before it, or as what the draft asks for, is not repeated.
    """
    asked = tune(draft, facts)
    seen = set() if isinstance(asked, list) else {asked.sha256}
    found = []
    for make in (_safest, _fastest, _largest):
        for other in make(draft, facts):
            memory = other.plan.memory
            fits = memory is None or not other.plan.available_bytes or memory.fits(other.plan.available_bytes)
            if fits and other.plan.sha256 not in seen:
                seen.add(other.plan.sha256)
                found.append(other)
                break
    return tuple(found)


def _safest(draft: Draft, facts: Facts) -> Iterator[Alternative]:
    """The plan with the lowest peak of all methods."""
    plans = []
    for method in ("lora", "qlora"):
        wish = replace(
            draft,
            model=replace(draft.model, method=method),
            settings=replace(draft.settings, prefer="memory", overrides=_without_batch(draft)),
        )
        plan = tune(wish, facts)
        if not isinstance(plan, list) and plan.memory is not None:
            plans.append(plan)
    for plan in sorted(plans, key=lambda plan: plan.memory.peak_bytes if plan.memory else 0):
        yield Alternative(name="safest", why="It leaves the most room on the card.", plan=plan)


def _fastest(draft: Draft, facts: Facts) -> Iterator[Alternative]:
    wish = replace(draft, settings=replace(draft.settings, prefer="speed", overrides=_without_batch(draft)))
    plan = tune(wish, facts)
    if not isinstance(plan, list):
        yield Alternative(name="fastest", why="It uses the card's room for larger batches.", plan=plan)


def _largest(draft: Draft, facts: Facts) -> Iterator[Alternative]:
    """Known models of the same series that are larger, the largest first."""
    series = _series(facts.model.name)
    larger: list[tuple[int, str]] = []
    for name in CONFIGS:
        known = known_model(name)
        if known and series and _series(name) == series and known.shape.parameters > 1.2 * facts.model.shape.parameters:
            larger.append((known.shape.parameters, name))
    for _, name in sorted(larger, reverse=True):
        known = known_model(name)
        if known is None:
            continue
        wish = replace(draft, model=replace(draft.model, name=name, revision="", method=""))
        plan = tune(wish, replace(facts, model=known))
        if not isinstance(plan, list):
            yield Alternative(name="largest", why="The largest of its series that fits.", plan=plan, model=name)


def _series(name: str) -> str:
    """What models of one series share in their names: `qwen2.5`, `llama-3`."""
    short = name.rpartition("/")[2].casefold().removeprefix("meta-")
    head = short.split("-")
    if len(head) > 1 and head[1][:1].isdigit() and not head[1].endswith(("b", "m")):
        return f"{head[0]}-{head[1].partition('.')[0]}"  # Llama-3.1-8B and Llama-3.2-1B are one series
    return head[0]


_BATCH: Callable[[str], bool] = frozenset(
    {
        "grpo.per_device_train_batch_size",
        "grpo.gradient_accumulation_steps",
        "grpo.steps_per_generation",
        "grpo.generation_batch_size",
    }
).__contains__


def _without_batch(draft: Draft) -> dict[str, Any]:
    """The user's single values without those that an alternative is there to vary."""
    return {key: value for key, value in draft.settings.overrides.items() if not _BATCH(key)}
