"""The reward functions of a project: which there are, which the data ask for, and the file they stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from grpo_tui import atomic, regular
from grpo_tui.draft import Draft, RewardItem, RewardsAnswer, carried
from grpo_tui.marks import file_hash
from grpo_tui.problem import Problem
from grpo_tui.session import Session

if TYPE_CHECKING:
    from grpo_tui.rewards.kinds import Proposal
    from grpo_tui.rewards.source import FunctionSource


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A reward function that can be taken: from the project's file, or proposed for its data."""

    name: str
    weight: float
    pays: str
    why: str = ""
    warnings: tuple[str, ...] = ()
    code: str
    origin: str
    """File and lines, or the title of the template."""

    proposed: bool = True
    """Taken unless the user says otherwise."""

    source: Any = None
    """The `FunctionSource` or `Proposal` behind it."""


@dataclass(frozen=True, kw_only=True)
class Offered:
    """The functions to choose from, and what their calls are checked against."""

    offers: tuple[Offer, ...]
    from_file: bool
    """They stand in the project's file already."""

    columns: tuple[str, ...] = ()
    """Columns of the prepared rows: what the training passes to a reward."""

    opening: str = ""
    """A prompt as the model sees it, to tell where a completion begins; empty: not known."""


def is_reward(function: FunctionSource) -> bool:
    """Whether a function of a file is meant as a reward: it takes completions, and its name is not private."""
    return "completions" in function.parameters and not function.name.startswith("_")


def unasked(draft: Draft, offers: Sequence[Offer]) -> str:
    """What the prompt does not ask for although a function that is taken pays for it; empty: nothing."""
    from grpo_tui.rewards.catalogue import NOT_ASKED

    paying = {item.name for item in draft.rewards.items if item.weight}
    names = (offer.name for offer in offers if offer.name in paying and NOT_ASKED in offer.warnings)
    return next((f"{name}: {NOT_ASKED}" for name in names), "")


def offered(session: Session, draft: Draft) -> Offered | Problem:
    """The functions to choose from: those of the project's file, or else those proposed for the data."""
    path = session.project / draft.rewards.file
    rows = session.prepared(draft)
    if not path.exists():
        return rows if isinstance(rows, Problem) else Offered(offers=_proposed(draft, rows), from_file=False)
    offers = _written(draft, path)
    if isinstance(offers, Problem):
        return offers
    columns = () if isinstance(rows, Problem) or not rows else tuple(rows[0])
    return Offered(offers=offers, from_file=True, columns=columns, opening=_opening(session, draft))


def _opening(session: Session, draft: Draft) -> str:
    """The first prompt with the model's chat template; empty where it cannot be rendered."""
    source = session.source(draft)
    if isinstance(source, Problem) or not draft.model.name or draft.dataset.plain:
        return ""
    rows = source.head(1)
    seen = session.as_seen(draft, rows[0]) if rows else None
    return seen.text if seen is not None and not isinstance(seen, Problem) else ""


def _written(draft: Draft, path: Path) -> tuple[Offer, ...] | Problem:
    from grpo_tui.rewards.source import read_functions

    functions = read_functions(path)
    if isinstance(functions, Problem):
        return functions
    weights = {item.name: item.weight for item in draft.rewards.items}
    return tuple(
        Offer(
            name=each.name,
            weight=weights.get(each.name, 1.0),
            pays=each.doc.strip().partition("\n")[0],
            code=each.code,
            origin=f"{path.name}, lines {each.lines[0]}–{each.lines[1]}",
            proposed=not weights and is_reward(each),
            source=each,
        )
        for each in functions
        if each.name in weights or is_reward(each)
    )


def _proposed(draft: Draft, rows: Sequence[Mapping[str, Any]]) -> tuple[Offer, ...]:
    from grpo_tui.rewards.catalogue import TEMPLATES, proposals, render_rewards

    return tuple(
        Offer(
            name=each.name,
            weight=each.weight,
            pays=TEMPLATES[each.template].pays,
            why=each.why,
            warnings=each.warnings,
            code=render_rewards([each]),
            origin=TEMPLATES[each.template].title,
            source=each,
        )
        for each in proposals(draft.dataset, list(rows[0]) if rows else [], rows)
    )


def reward_problems(draft: Draft, offered: Offered) -> list[Problem]:
    """What would make the training's call of the taken functions fail, or never pay, found without running them."""
    from grpo_tui.rewards.source import FunctionSource, check_opening_tag, check_signatures

    functions = [offer.source for offer in offered.offers if isinstance(offer.source, FunctionSource)]
    if not functions:
        return []
    taken = [item.name for item in draft.rewards.items]
    return [
        *check_signatures(functions, offered.columns, taken),
        *check_opening_tag([each for each in functions if each.name in taken], offered.opening),
    ]


def write_rewards(session: Session, draft: Draft, offers: Sequence[Offer]) -> Draft | Problem:
    """Write the taken proposals into the project's file."""
    from grpo_tui.rewards.catalogue import render_rewards

    weights = {item.name: item.weight for item in draft.rewards.items}
    chosen = [replace(offer.source, weight=weights[offer.name]) for offer in offers if offer.name in weights]
    return session.write(draft, {draft.rewards.file: render_rewards(chosen)})


def templates() -> list[tuple[str, str, str]]:
    """The catalogue: key, title and what it pays for, correctness first."""
    from grpo_tui.rewards.catalogue import TEMPLATES

    return [(key, each.title, each.pays) for key, each in TEMPLATES.items()]


def add_template(session: Session, draft: Draft, key: str) -> Draft | Problem:
    """A function of the catalogue, added to the project's file under a name that is free there."""
    from grpo_tui.rewards.catalogue import TEMPLATES, WEIGHTS, Proposal, render_rewards
    from grpo_tui.rewards.merging import free_name

    code = _code(session, draft)
    if isinstance(code, Problem):
        return code
    template = TEMPLATES[key]
    usual = {"correct": "correct", "format": "format"}.get(template.aspect, key)
    name = free_name(usual, code)
    addition = render_rewards([Proposal(template=key, name=name, weight=1.0, why="")])
    return _added(session, draft, code, addition, RewardItem(name=name, weight=WEIGHTS[template.aspect]))


GRADUAL: Mapping[str, float | None] = MappingProxyType({"no": None, "watch": 0.0, "pay": 0.125})
"""Whether a gradual function stands beside a strict one: not at all, recorded only, or paid a little to begin with."""


def format_problem(text: str) -> Problem | None:
    """Why `text` describes no format; None: it does."""
    from grpo_tui.rewards import formats

    spec = formats.read(text)
    return spec if isinstance(spec, Problem) else None


def add_format(session: Session, draft: Draft, text: str, gradual: str = "no") -> Draft | Problem:
    """A strict reward for a described format, and a pytest file beside it that shows what it pays for.

    `text` is a list of tags, a JSON schema, or an example; `gradual` a key of `GRADUAL`.
    """
    from grpo_tui.rewards import formats
    from grpo_tui.rewards.catalogue import WEIGHTS
    from grpo_tui.rewards.merging import free_name

    spec = formats.read(text)
    if isinstance(spec, Problem):
        return spec
    code = _code(session, draft)
    if isinstance(code, Problem):
        return code
    name = free_name("format", code)
    item = RewardItem(name=name, weight=WEIGHTS["format"])
    added = _added(session, draft, code, formats.strict_code(spec, name), item)
    if isinstance(added, Problem):
        return added
    path = session.project / draft.rewards.file
    tests = path.with_name(f"test_{name}.py")
    problem = write_code(tests, formats.pytest_code(spec, name, path.name))
    weight = GRADUAL[gradual]
    if problem is not None or weight is None:
        return problem or added
    code = _code(session, added)
    if isinstance(code, Problem):
        return code
    name = free_name(f"{name}_gradual", code)
    return _added(session, added, code, formats.gradual_code(spec, name), RewardItem(name=name, weight=weight))


def canaries(session: Session, draft: Draft) -> tuple[Proposal, ...] | Problem:
    """Functions that may watch over the training with weight 0, as the data suggest them."""
    from grpo_tui.rewards.canaries import canaries
    from grpo_tui.rewards.merging import names_in

    rows, code = session.prepared(draft), _code(session, draft)
    if isinstance(rows, Problem):
        return rows
    taken = frozenset(draft.rewards.names) | (frozenset() if isinstance(code, Problem) else names_in(code))
    return canaries(draft.dataset, list(rows[0]) if rows else [], rows, taken)


def add_canaries(session: Session, draft: Draft, chosen: Sequence[Proposal]) -> Draft | Problem:
    """The chosen functions in the project's file, each of weight 0."""
    from grpo_tui.rewards.catalogue import render_rewards

    for each in chosen:
        code = _code(session, draft)
        if isinstance(code, Problem):
            return code
        item = RewardItem(name=each.name, weight=each.weight)
        added = _added(session, draft, code, render_rewards([each]), item)
        if isinstance(added, Problem):
            return added
        draft = added
    return draft


def hold_out(session: Session, draft: Draft) -> Draft:
    """The draft with some prompts kept apart from training; steps that were done stay so."""
    from grpo_tui.rewards.canaries import HELD_OUT

    changed = replace(draft, dataset=replace(draft.dataset, eval_share=HELD_OUT))
    return carried(changed, session.facts(draft), session.facts(changed))


def _code(session: Session, draft: Draft) -> str | Problem:
    from grpo_tui.rewards.source import read_text

    path = session.project / draft.rewards.file
    return read_text(path) if path.exists() else ""


def _added(session: Session, draft: Draft, code: str, addition: str, item: RewardItem) -> Draft | Problem:
    """Write the file with the addition; one that was ours as it stood stays ours."""
    from grpo_tui.rewards.merging import merged

    both = merged(code, addition)
    if isinstance(both, Problem):
        return both
    name, path = draft.rewards.file, session.project / draft.rewards.file
    ours = not code or draft.files.get(name) == file_hash(path)
    problem = write_code(path, both)
    if problem is not None:
        return problem
    hashes = {**draft.files, name: file_hash(path)} if ours else draft.files
    return replace(draft, files=hashes, rewards=replace(draft.rewards, items=(*draft.rewards.items, item)))


def write_code(path: Path, text: str) -> Problem | None:
    """Write what the user edited."""
    try:
        atomic.write(path, text)
    except OSError as error:
        return Problem(str(path), f"It cannot be written: {error.strerror or error}.", "Check folder and disk.")
    return None


def take_rewards_file(session: Session, path: Path) -> Problem | None:
    """Copy a file of the user's to the project's rewards file; one that is there is kept beside it."""
    from grpo_tui.rewards.source import CODE_BYTES

    path = session.project / path
    target = session.project / RewardsAnswer().file
    try:
        if target.exists() and path.samefile(target):
            return None
        content = regular.read(path, CODE_BYTES)
        aside = set_rewards_aside(session) if target.exists() else None
        if aside is None:
            atomic.write(target, content)
    except OSError as error:
        return Problem(str(path), f"It cannot be read: {error.strerror or error}.", "Check its name.")
    return aside


def set_rewards_aside(session: Session) -> Problem | None:
    """Rename the project's rewards file to a name that is free."""
    target = session.project / RewardsAnswer().file
    names = (target.with_suffix(f".old{number}.py" if number else ".old.py") for number in range(1000))
    try:
        target.rename(next(name for name in names if not name.exists()))
    except OSError as error:
        return Problem(str(target), f"It cannot be renamed: {error.strerror or error}.", "Check the folder.")
    return None
