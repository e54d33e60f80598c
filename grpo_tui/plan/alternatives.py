"""Other plans for the same wish, side by side: the safest, the fastest, and the largest model that fits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from grpo_tui.draft import Draft, ModelAnswer, SettingsAnswer
from grpo_tui.plan.footing import Footing, planned_footing
from grpo_tui.plan.known import CONFIGS, known_model
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.sizes import ACCUMULATION, GENERATION_BATCH, PER_DEVICE, STEPS, pinned, sizes_of
from grpo_tui.plan.tuning import Facts, tune

Sound = Callable[[Plan, Facts], bool]
"""Whether a plan stands every check; the facts are those it was made from."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A plan that fits the card, and what it is better at."""

    name: str
    """`now`: as asked for; `tuned`: without what was set by hand; or `safest`, `fastest`, `largest`."""

    why: str
    plan: Plan
    answers: Draft
    """The answers that give this plan: those asked for, changed only where the tuning would choose otherwise."""

    footing: Footing
    model: str = ""
    """The model of the plan where it is another than the one asked for."""

    gains: tuple[str, ...] = ()
    """What it is better at than the plan asked for, a phrase each."""

    pays: tuple[str, ...] = ()
    """What it is worse at."""

    def words(self) -> str:
        """The plan on one line."""
        memory = self.plan.memory
        peak = f", peak {memory.peak_bytes / GIB:.1f} GiB" if memory else ""
        model = f"{self.model}: " if self.model else ""
        return f"{model}{self.plan.method}, {self.plan.batch.words()}{peak}. {self.why}"

    def proposed_name(self, asked: str) -> str:
        """A name to begin with for `model`: of the owner, and of the variant, of the model asked for."""
        owner, slash, short = asked.rpartition("/")
        variant = next(
            (end for end in ("-Instruct", "-it", "-Base", "-Chat") if short.casefold().endswith(end.casefold())), ""
        )
        return f"{owner}{slash}{self.model}{variant}" if self.model and slash and owner.count("/") == 0 else self.model

    def as_json(self) -> dict[str, Any]:
        """The alternative as `grpo-tui plan --json` prints it: what differs, not every reason again."""
        told = self.plan.as_json()
        kept = ("method", "settings", "lora", "batch", "memory", "peak_bytes", "interval_bytes", "gpu_bytes")
        return {
            "name": self.name,
            "why": self.why,
            "model": self.model,
            "gains": list(self.gains),
            "pays": list(self.pays),
            **{key: told[key] for key in kept},
        }

    def outline(self) -> dict[str, str]:
        """What the plan is, by the names of its parts, in the order in which they are read."""
        plan, batch, room = self.plan, self.plan.batch, self.plan.available_bytes
        four_bit = bool(plan.value("model.load_in_4bit"))
        peak = f"{self.footing.peak_bytes / GIB:.1f}"
        return {
            "method": plan.method,
            "weights": "4 bit" if four_bit else str(plan.value("model.dtype", "")),
            "completions a step": f"{batch.completions_per_step}",
            "learnt at a time": f"{batch.per_device * batch.world}",
            "generated at a time": f"{batch.generation_batch}",
            "generations": f"{batch.generations} a prompt",
            "prompt tokens": f"up to {self.footing.prompt_tokens}",
            "completion tokens": f"up to {plan.value('grpo.max_completion_length')}",
            "checkpointing": "on" if _checkpoints(plan) else "off",
            "vLLM": str(plan.value("grpo.vllm_mode", "colocate")) if plan.value("grpo.use_vllm") else "off",
            "peak, GiB": f"{peak} of {room / GIB:.1f}" if room else peak,
        }


_CHECKPOINTING = ("grpo.activation_checkpointing", "grpo.gradient_checkpointing")
_VARIED = frozenset({PER_DEVICE, ACCUMULATION, STEPS, GENERATION_BATCH, *_CHECKPOINTING})
"""Keys that an alternative is there to vary, whatever recipe and user say of them."""


def _checkpoints(plan: Plan) -> bool:
    return all(plan.value(name, True) is not False for name in _CHECKPOINTING)


def alternatives(draft: Draft, facts: Facts, sound: Sound = lambda plan, facts: True) -> tuple[Alternative, ...]:
    """Plans for the same cards and data, each under the card by the memory model; a wish nothing answers is left out.

    A plan that is the same as one before it, or as what the draft asks for, is not repeated, nor is one that is no
    better than that at what it is named for.
    """
    asked = asked_for(draft, facts)
    seen = {asked.plan.sha256} if asked else set()
    found = []
    for make in (_tuned, _safest, _fastest, _largest):
        for other in make(draft, facts):
            fits = other.footing.fits is not False
            if fits and other.plan.sha256 not in seen and _is_better(other, asked) and sound(other.plan, facts):
                seen.add(other.plan.sha256)
                found.append(_compared(other, asked, facts))
                break
    return tuple(found)


def asked_for(draft: Draft, facts: Facts) -> Alternative | None:
    """What the draft gives as it is; None: it cannot be, or does not fit."""
    return next(_tries("now", "As it is.", draft, facts), None)


def _tries(
    name: str, why: str, wish: Draft, facts: Facts, model: str = "", *, free: bool = False
) -> Iterator[Alternative]:
    """The plan of a wish, if there is one, and the answers that give it.

    A method that the tuning would choose by itself is left to it. `free`: what an alternative varies is chosen anew,
    and set in the answers only where the recipe would have it otherwise.
    """
    if free:
        settings = replace(wish.settings, overrides=_without_varied(wish))
        wish = replace(wish, settings=settings)
        recipe = {key: advice for key, advice in facts.recipe.items() if f"grpo.{key}" not in _VARIED}
        chosen = tune(wish, replace(facts, recipe=recipe))
        if isinstance(chosen, list):
            return
        wanted = {key: chosen.value(key) for key in _CHECKPOINTING if chosen.value(key) is not None}
        wanted |= {key: number for key, number in sizes_of(chosen, wish, facts).values().items() if key in _VARIED}
        wish = replace(wish, settings=replace(settings, overrides=pinned(wish, facts, wanted)))
    plan = tune(wish, facts)
    if isinstance(plan, list):
        return
    left = replace(wish, model=replace(wish.model, method=""))
    by_itself = tune(left, facts)
    if name != "now" and not isinstance(by_itself, list) and by_itself.sha256 == plan.sha256:
        wish = left
    yield Alternative(name=name, why=why, plan=plan, answers=wish, footing=planned_footing(plan, facts), model=model)


def _is_better(other: Alternative, asked: Alternative | None) -> bool:
    """Whether it keeps what its name promises."""
    if asked is None:
        return True
    if other.name == "safest":
        return other.footing.peak_bytes < asked.footing.peak_bytes
    return other.name != "fastest" or _pace(other.plan) > _pace(asked.plan)


def _pace(plan: Plan) -> tuple[bool, int, int]:
    """What makes a plan fast, the strongest first: nothing computed twice, and much at a time."""
    return not _checkpoints(plan), plan.batch.generated_per_device, plan.batch.per_device


def _tuned(draft: Draft, facts: Facts) -> Iterator[Alternative]:
    """What the tuning proposes where nothing that an alternative varies was set by hand."""
    came = facts.recipe_draft
    wish = replace(
        draft,
        model=replace(draft.model, method=(came.model if came else ModelAnswer()).method),
        settings=replace(
            draft.settings,
            prefer=(came.settings if came else SettingsAnswer()).prefer,
            overrides=_without_varied(draft),
        ),
    )
    yield from _tries("tuned", "As tuned: method and batch are chosen by memory.", wish, facts)


def _safest(draft: Draft, facts: Facts) -> Iterator[Alternative]:
    """The plan with the lowest peak of all methods."""
    plans: list[Alternative] = []
    for method in ("lora", "qlora"):
        wish = replace(
            draft,
            model=replace(draft.model, method=method),
            settings=replace(draft.settings, prefer="memory"),
        )
        plans += _tries("safest", "It leaves the most memory free.", wish, facts, free=True)
    yield from sorted(plans, key=lambda each: each.footing.peak_bytes)


def _fastest(draft: Draft, facts: Facts) -> Iterator[Alternative]:
    wish = replace(draft, settings=replace(draft.settings, prefer="speed"))
    yield from _tries("fastest", "It uses the memory there is for speed.", wish, facts, free=True)


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
        why = "The largest of its series that fits."
        yield from _tries("largest", why, wish, replace(facts, model=known), model=name)


Read = Callable[[Plan], Any]

_MORE: tuple[tuple[Read, str, str], ...] = (
    (lambda plan: plan.batch.completions_per_step, "{} completions a step, not {}", "{} completions a step, not {}"),
    (
        lambda plan: plan.batch.per_device * plan.batch.world,
        "{} learnt at a time, not {}",
        "{} learnt at a time, not {}",
    ),
    (lambda plan: plan.batch.generation_batch, "{} generated at a time, not {}", "{} generated at a time, not {}"),
    (lambda plan: not _checkpoints(plan), "nothing is computed twice", "activations are computed twice"),
    (lambda plan: plan.batch.on_policy, "on-policy", "off-policy"),
    (lambda plan: plan.method == "full", "all weights learn", "only an adapter learns"),
    (
        lambda plan: not plan.value("model.load_in_4bit"),
        "weights are not rounded to 4 bit",
        "weights are rounded to 4 bit, and unpacked at every use",
    ),
)
"""What more of is better: read from a plan, said where it is more than in another, and where it is less."""


def _compared(other: Alternative, asked: Alternative | None, facts: Facts) -> Alternative:
    """With what one gains and pays against the plan that was asked for."""
    gains: list[str] = []
    pays: list[str] = []
    if asked is None:
        return replace(other, gains=("it fits",))
    size, before = other.footing.shape.parameters, facts.model.shape.parameters
    if other.model:
        gains.append(f"{size / 1e9:.2g} billion parameters, not {before / 1e9:.2g}")
        pays.append(f"about {size / before:.2g} times the arithmetic a token")
    freed = (asked.footing.peak_bytes - other.footing.peak_bytes) / GIB
    if abs(freed) >= 0.05:
        (gains if freed > 0 else pays).append(f"{abs(freed):.1f} GiB {'more' if freed > 0 else 'less'} room")
    for read, better, worse in _MORE:
        new, old = read(other.plan), read(asked.plan)
        if new != old:
            (gains if new > old else pays).append((better if new > old else worse).format(new, old))
    return replace(other, gains=tuple(gains), pays=tuple(pays))


def _series(name: str) -> str:
    """What models of one series share in their names: `qwen2.5`, `llama-3`."""
    short = name.rpartition("/")[2].casefold().removeprefix("meta-")
    head = short.split("-")
    if len(head) > 1 and head[1][:1].isdigit() and not head[1].endswith(("b", "m")):
        return f"{head[0]}-{head[1].partition('.')[0]}"  # Llama-3.1-8B and Llama-3.2-1B are one series
    return head[0]


def _without_varied(draft: Draft) -> Mapping[str, Any]:
    """The user's single values without those that an alternative is there to vary."""
    return {key: value for key, value in draft.settings.overrides.items() if key not in _VARIED}
