"""From the answers and the facts to a plan: a table of small rules, each value with its reason.

First the core is searched, what depends on memory (`search`). Then each rule of `rules.RULES` gives one value from what
is known. A recipe's value goes before a rule's, and the user's before both; the core is searched around them, and
everything is checked again at the end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from grpo_tui.draft import Draft
from grpo_tui.inert import one_line
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan import search
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.dialect import (
    LIBRARY_DEFAULT,
    LIBRARY_SECTIONS,
    OLD_KEYS,
    Schema,
    bad_choice,
    renamed,
    spelled,
    spelling,
    unknown_key,
)
from grpo_tui.plan.memory import GIB, predict
from grpo_tui.plan.plan import SECTIONS, Plan, Setting
from grpo_tui.plan.rules import RULES
from grpo_tui.plan.situation import AMPERE, MEASURED, RECIPE, USER, Advice, Card, Choice, Facts, Situation
from grpo_tui.plan.spread import spread
from grpo_tui.problem import Problem

__all__ = ["Advice", "Card", "Facts", "cards_of", "tune"]

DEFAULT_PROMPT_TOKENS = 512
"""Taken as the longest prompt where lengths were not measured."""


_LEFT = "Library default: you left it to the library."
"""Why a value is there that the user gave back to the library, with LIBRARY_DEFAULT."""


MOST_ALIKE = 0.5
"""Chance of a group that is all alike from which larger groups are worth their time. A rule of thumb."""


def _advised(facts: Facts) -> tuple[dict[str, Choice], list[str]]:
    """What the recipe sets, by dotted key, and what is to be said of it: it was written for some other version."""
    given: dict[str, Choice] = {}
    notes = []
    for asked, advice in facts.recipe.items():
        key, value = renamed(asked, advice.value, facts.schema)
        wrong = unknown_key(key, facts.schema)
        if wrong is not None:
            notes.append(f"The recipe's {one_line(asked, 60)} is left out. {wrong.what}")
        elif key == asked or key not in facts.recipe:
            given[f"grpo.{key}"] = Choice(value, advice.why, RECIPE)
            if key != asked:
                reason = OLD_KEYS[asked].reason if asked in OLD_KEYS else "The installed version calls it so."
                notes.append(f"The recipe's {asked} is written as {key}. {reason}")
    return given, notes


def _sampled_generations(draft: Draft) -> Choice | None:
    """The group size that the pilot's pass rate asks for; None: there was no pilot, or eight will do.

    With a pass rate p, taken as that of every prompt, a group of n is all alike with the chance p^n + (1 - p)^n.
    """
    rate = draft.score.pilot.pass_rate
    if not 0 < rate < 1:
        return None
    alike = {size: rate**size + (1 - rate) ** size for size in (8, 16)}
    if alike[8] <= MOST_ALIKE:
        return None
    why = (
        f"The model passed {rate:.0%} of the samples, so {alike[8]:.0%} of groups of 8 would be all alike, and"
        f" {alike[16]:.0%} of 16."
    )
    return Choice(16, why, MEASURED)


def _given(draft: Draft, facts: Facts) -> tuple[dict[str, Choice], list[str], list[Problem]]:
    """What recipe and user set, by dotted key; the user goes before the recipe. Then what is to be said of it."""
    given, notes = _advised(facts)
    sampled = _sampled_generations(draft)
    if sampled is not None:
        given.setdefault("grpo.num_generations", sampled)
    problems: list[Problem] = []
    known_keys = {rule.key for rule in RULES}
    for dotted, value in draft.settings.overrides.items():
        section, _, key = dotted.partition(".")
        if section in LIBRARY_SECTIONS and value == LIBRARY_DEFAULT:
            declared = facts.schema.field(section, key)
            if declared is not None:
                given[f"{section}.{declared.name}"] = Choice(declared.default, _LEFT, USER)
                if declared.default is None:
                    notes.append(f"{dotted} is not set: library default, set by you.")
            continue
        if section == "grpo":
            key, value = spelled(key, value, facts.schema)
            wrong = unknown_key(key, facts.schema) or bad_choice(key, value, facts.schema)
            if wrong is not None:
                problems.append(wrong)
                continue
        elif section == "lora" and facts.schema.lora and key not in facts.schema.lora:
            problems.append(Problem(dotted, "peft.LoraConfig does not know this key.", "Leave it out."))
            continue
        elif section not in SECTIONS or (section in ("model", "launch") and dotted not in known_keys):
            problems.append(Problem(dotted, "The configuration has no such key.", "Leave it out."))
            continue
        given[f"{section}.{key}"] = Choice(value, "You set it.", USER)
    for one, other in (("grpo.max_steps", "grpo.num_train_epochs"), ("grpo.num_train_epochs", "grpo.max_steps")):
        # The length is said once: the user's way of saying it ends the recipe's, and what was left to the library.
        if one in given and other in given and _is_weak(given[other]) and not _is_weak(given[one]):
            del given[other]
    return given, notes, problems


def _is_weak(choice: Choice) -> bool:
    """Gives way to what the user set otherwise: a recipe's value, or one left to the library."""
    return choice.source == RECIPE or choice.why == _LEFT


def cards_of(draft: Draft, here: tuple[Card, ...]) -> tuple[Card, ...] | Problem:
    """The GPUs to plan for: typed by hand, or those `here`, the chosen ones of this machine."""
    hardware = draft.hardware
    if hardware.manual_bytes:
        capability = None
        if hardware.manual_capability:
            major, _, minor = hardware.manual_capability.partition(".")
            if not (major.isdigit() and (minor or "0").isdigit()):
                return Problem(
                    "hardware",
                    f"{hardware.manual_capability!r} is no compute capability.",
                    "Write it as 8.0, or leave it empty.",
                )
            capability = (int(major), int(minor or 0))
        card = Card(
            name=hardware.manual_name or "typed by hand",
            total_bytes=hardware.manual_bytes,
            free_bytes=hardware.manual_bytes,
            capability=capability,
        )
        return (card,) * max(1, hardware.manual_count)
    return () if hardware.cpu else here


def tune(draft: Draft, facts: Facts) -> Plan | list[Problem]:
    """A complete plan from the answers and the facts, or everything that stands in its way."""
    given, notes, problems = _given(draft, facts)
    cards = cards_of(draft, facts.cards)
    over = cards if isinstance(cards, Problem) else spread(cards, given)
    if isinstance(over, Problem):
        return [*problems, over]
    cards, world = over.cards, over.world
    prompt = draft.dataset.prompt_limit or facts.longest_prompt or DEFAULT_PROMPT_TOKENS
    if facts.longest_prompt:
        prompt = min(prompt, facts.longest_prompt)
    ampere = bool(cards) and (min((c.capability for c in cards if c.capability), default=AMPERE)) >= AMPERE
    methods = search.methods(draft, facts, bool(cards), ampere)
    if isinstance(methods, Problem):
        problems.append(methods)
    completion = search.completion(facts, given, prompt)
    if isinstance(completion, Problem):
        problems.append(completion)
    asked = {key.removeprefix("grpo."): choice.value for key, choice in given.items() if key.startswith("grpo.")}
    if problems or isinstance(methods, Problem) or isinstance(completion, Problem):
        return problems
    batches = list(search.batches(given, world, facts.rows, draft.settings.prefer == "speed"))
    if not batches:
        found = arithmetic.read(asked, world)
        if isinstance(found, list):
            return found
        return [Problem("grpo.num_generations", "No batch holds whole groups of completions.", "Choose 8 of them.")]
    free = [card.budget_bytes for card in cards if card.budget_bytes] if cards else [facts.ram_bytes]
    base = Situation(
        draft=draft,
        facts=facts,
        given=given,
        cards=cards,
        method=methods[0][0],
        method_why=methods[0][1],
        dtype="float32",
        batch=batches[0],
        completion=completion[0],
        completion_why=completion[1],
        prompt=prompt,
        checkpointing=True,
        optim="adamw_torch_fused",
        memory=predict(facts.model.shape, "lora", {}, prompt_tokens=prompt),
        available=min(free, default=0),
        world=world,
        strategy=over.strategy or "ddp",
        vllm=over.vllm,
        server=over.server,
    )
    situation = search.pick(base, methods, fixed=bool(over.strategy))
    if situation is None:
        return [search.too_large(base, methods)]
    return _complete(situation, notes)


def _complete(situation: Situation, notes: Iterable[str]) -> Plan | list[Problem]:
    facts, draft = situation.facts, situation.draft
    settings = _settings(situation)
    grpo = {s.key.removeprefix("grpo."): s.value for s in settings if s.key.startswith("grpo.")}
    problems: list[Problem] = []
    for key, value in grpo.items():
        wrong = unknown_key(key, facts.schema) or bad_choice(key, value, facts.schema)
        if wrong is not None:
            problems.append(wrong)
    found = arithmetic.read(grpo, situation.world)
    if isinstance(found, list):
        return [*problems, *found]
    if facts.rows is not None:
        trap = arithmetic.too_few_rows(found, facts.rows)
        if trap is not None:
            problems.append(trap)
    if problems:
        return problems
    return Plan(
        settings=settings,
        rewards=draft.rewards.items,
        method=situation.method,
        world_size=situation.world,
        cpu=situation.cpu,
        batch=found,
        memory=situation.memory,
        available_bytes=situation.available,
        total_steps=situation.steps,
        capability=situation.capability,
        notes=(*_notes(situation, found), *notes),
        versions=facts.schema.versions,
    )


def _settings(situation: Situation) -> tuple[Setting, ...]:
    """Every value: the user's, else the recipe's, else the rule's; then what no rule knows."""
    schema = situation.facts.schema
    rest = dict(situation.given)
    settings = []
    for rule in RULES:
        section, _, name = rule.key.partition(".")
        key = f"grpo.{spelling(name, schema)}" if section == "grpo" else rule.key
        choice = rest.pop(key, None) or rest.pop(rule.key, None)
        if choice is None:
            choice = rule.decide(situation)
        if choice is None or choice.value is None:
            continue
        if section == "grpo":
            name, value = spelled(name, choice.value, schema)
            if name not in schema.fields:
                continue  # a default of ours that this version does not have; what the user sets was checked before
            choice = replace(choice, value=value)
            key = f"grpo.{name}"
        settings.append(Setting(key, choice.value, rule.what, choice.why, choice.source))
    for key, value in situation.facts.data.items():
        settings.append(Setting(f"data.{key}", value, "What the source is.", "Found there.", MEASURED))
    for key, choice in rest.items():
        if choice.value is not None:
            settings.append(Setting(key, choice.value, _help(key, schema), choice.why, choice.source))
    order = {section: number for number, section in enumerate(SECTIONS)}
    return tuple(sorted(settings, key=lambda setting: order[setting.key.partition(".")[0]]))


def _help(key: str, schema: Schema) -> str:
    """What a field does: the first sentence of the library's own help."""
    section, _, name = key.partition(".")
    declared = (schema.lora if section == "lora" else schema.fields).get(name)
    first = (declared.help if declared else "").split(". ")[0].strip().rstrip(".")
    return f"{first}." if first else "See the library's documentation."


def _notes(situation: Situation, batch: Batch) -> Iterator[str]:
    facts = situation.facts
    yield from facts.model.notes
    yield from facts.notes
    yield from situation.memory.remarks
    if situation.vllm != "off" and any(card.uuid.startswith("MIG-") for card in situation.cards):
        yield "vLLM is to run on a slice of a GPU (MIG), whose name some of its releases cannot read: use_vllm = false."
    if facts.rows is not None and batch.dropped_rows(facts.rows):
        yield (
            f"{batch.dropped_rows(facts.rows)} of {facts.rows} rows are left over in each epoch: a generation takes"
            f" {batch.prompts_per_generation} prompts."
        )
    if batch.prompts_per_step < 4:
        yield f"A step learns from {batch.prompts_per_step:g} prompts only: expect a noisy gradient."
    if not batch.on_policy:
        yield "Completions are learnt from after the weights have changed (off-policy): watch the clip ratios."
    if not facts.longest_prompt:
        yield f"Prompt lengths were not measured: {situation.prompt} tokens are assumed for the memory."
    if not situation.available:
        yield "How much memory is free is not known, so nothing says whether this fits."
    if situation.cards and situation.capability is None:
        yield "The GPU's compute capability is not known: Ampere or newer (bfloat16) is assumed."
    shared = next((card for card in situation.cards if card.unified), None)
    if shared is not None and shared.free_bytes:
        yield (
            f"GPU and CPU share their memory: of {shared.free_bytes / GIB:.1f} GiB free,"
            f" {shared.reserve_bytes / GIB:.1f} GiB are left to the system and to other programs, which can still take"
            " more."
        )
    if situation.draft.hardware.manual_bytes:
        yield "Planned for a GPU typed by hand, not for this machine."
    if not facts.model.chat_template:
        yield "The tokenizer has no chat template: prompts must be plain text."
