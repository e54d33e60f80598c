"""A configuration that somebody has already, taken over into the answers of a project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_tui.draft import Draft
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded

if TYPE_CHECKING:
    from grpo_tui.plan.translate import Target, Translation
    from grpo_tui.session import Say, Session


def translated(session: Session, draft: Draft, path: Path, say: Say) -> Translation | Problem:
    """What the YAML file or Python script at `path` says, for the GPUs of `draft` or those that are proposed.

    Nothing in a script is executed.
    """
    from grpo_tui.plan.translate import translate
    from grpo_tui.plan.written import read_file

    written = read_file(path)
    if isinstance(written, Problem):
        return written
    target = _target(session, draft, say)
    return target if isinstance(target, Problem) else translate(written, target)


def taken_over(session: Session, draft: Draft, translation: Translation, place: Path, *, rewards: bool) -> Draft:
    """`draft` with the answers of a translation; files are looked for beside the configuration, in `place`, too.

    Its reward functions are taken by name only with `rewards`: when their code comes along.
    """
    from grpo_tui.plan.translate import apply

    source = str(translation.data.get("source", ""))
    if source:
        found = _beside(source, place)
        draft = session.with_source(draft, found)
        translation = replace(translation, data={**translation.data, "source": found})
    model = _beside(translation.model.name, place) if translation.model.name else ""
    translation = replace(translation, model=replace(translation.model, name=model))
    return apply(draft, translation, rewards=rewards)


def _beside(name: str, place: Path) -> str:
    """The absolute path of a file or folder beside the configuration; else the name as it is, a hub id mostly."""
    found = place / expanded(name)
    return str(found.resolve()) if found.exists() else name


def _target(session: Session, draft: Draft, say: Say) -> Target | Problem:
    from grpo_tui.draft import HardwareAnswer
    from grpo_tui.plan.checks import packages
    from grpo_tui.plan.translate import Target
    from grpo_tui.plan.tuning import cards_of

    schema = session.schema(say)
    if isinstance(schema, Problem):
        return schema
    if draft.hardware == HardwareAnswer():
        draft = replace(draft, hardware=session.proposed_hardware())
    chosen = set(draft.hardware.gpus)
    here = tuple(gpu.capability for gpu in session.machine().gpus if gpu.uuid in chosen)
    capabilities = here
    if draft.hardware.manual_bytes:
        cards = cards_of(draft, ())
        if isinstance(cards, Problem):
            return cards
        capabilities = tuple(card.capability for card in cards)
    return Target(
        schema=schema,
        world=max(1, len(capabilities)),
        cpu=draft.hardware.cpu,
        capability=min((each for each in capabilities if each), default=None),
        packages=packages(),
    )
