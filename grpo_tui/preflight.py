"""From a checked plan to a started training: the files, what changed since, the yes, the start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.draft import FACT_NAMES, RESTS_ON, Approval, Draft
from grpo_tui.marks import file_hash, file_text
from grpo_tui.pilot import rests_on
from grpo_tui.problem import Problem
from grpo_tui.session import Say, Session, now, quiet
from grpo_tui.tryout import score_consent

if TYPE_CHECKING:
    from grpo_tui.plan.files import FileChange
    from grpo_tui.plan.plan import Plan
    from grpo_tui.run.launch import Command, Started
    from grpo_tui.run.trial import DryRun
    from grpo_tui.survey import Data


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What writing would do, and whether it holds together."""

    draft: Draft
    """With what was edited in the files on the disk taken over."""

    plan: Plan
    changes: tuple[FileChange, ...]
    checks: tuple[tuple[str, str], ...]
    """Level (`ok`, `warn`, `fail`) and words."""

    keyless: tuple[str, ...] = ()
    """Trackers whose key is missing."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """What would be started now."""

    run: str
    """Name of the new run."""

    command: Command
    devices: str
    files: tuple[str, ...]
    sha256: str
    steps: str
    tried: str
    """How the dry run went."""

    fetched: str
    """What the run fetches first, its size, where to and the free room; empty: nothing."""

    changed: tuple[str, ...]
    """What is different from what was reviewed, one sentence each."""

    warnings: tuple[Problem, ...]
    stale: str = ""
    """Why this must not be started; empty: it may."""

    runs: tuple[tuple[str, bool, str], ...] = ()
    """Runs of this project: name, alive, words."""


def outlook(session: Session, draft: Draft, say: Say) -> Outlook | list[Problem] | Problem:
    """The files as they would be written, compared with those on the disk."""
    from grpo_tui.plan import files
    from grpo_tui.plan.scale_out import optional_files
    from grpo_tui.plan.script import render_train

    plan = session.checked_plan(draft, say)
    if isinstance(plan, list):
        return plan
    path = session.project / "config.toml"
    old = file_text(path)
    adopted: list[str] = []
    if old is not None and draft.files.get(path.name) not in (None, files.sha256(old)):
        config = files.read_config(old, path.name)
        if isinstance(config, Problem):
            return config
        theirs = files.adopt(draft, plan, config)
        if theirs != draft:
            adopted = [key for key in theirs.settings.overrides if key not in draft.settings.overrides]
            draft = theirs
            plan = session.checked_plan(draft, say)
            if isinstance(plan, list):
                return plan
    data = session.data(draft, say)
    if isinstance(data, Problem):
        return data
    if data.stop is not None:
        return data.stop
    rendered = {
        "config.toml": files.render_config(plan),
        "train.py": render_train(plan, draft, data.code, data.load_call, data.load_code),
    }
    rendered |= optional_files(plan, draft)
    changes = files.changes(session.project, draft, rendered)
    if isinstance(changes, Problem):
        return changes
    listed = tuple(_check_list(session, draft, plan, data, adopted))
    return Outlook(draft=draft, plan=plan, changes=tuple(changes), checks=listed, keyless=tuple(keyless(session, plan)))


def _check_list(
    session: Session, draft: Draft, plan: Plan, data: Data, adopted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    from grpo_tui.run.launch import collisions

    versions = ", ".join(
        f"{name} {version}" for name, version in plan.versions.items() if name in ("trl", "transformers")
    )
    yield (
        "ok",
        f"Every value was accepted by the installed GRPOConfig ({versions}), for {_count(plan.world_size, 'process')}.",
    )
    yield (
        "ok",
        f"Rows used: {data.usable:,} of {data.rows_words}; the longest prompt has {data.longest:,} tokens.",
    )
    if plan.memory is not None:
        fits = not plan.available_bytes or plan.memory.fits(plan.available_bytes)
        peak, room = plan.memory.peak_bytes / 2**30, plan.available_bytes / 2**30
        words = f"Predicted peak {peak:.1f} GiB of {room:.1f} GiB {plan.memory.place}."
        yield "ok" if fits else "warn", words
    if draft.score.skipped or score_consent(session, draft) is not None:
        yield "warn", "The rewards were not tried on completions."
    else:
        yield "ok", f"The rewards were tried: {', '.join(item.name for item in draft.rewards.items)}."
    yield from _pilot(session, draft)
    if adopted:
        yield "warn", f"Taken over from your config.toml: {', '.join(adopted)}."
    if draft.task.overruled:
        yield "warn", f"The fit check recommends {draft.task.verdict}; you go on with GRPO."
    for note in plan.notes:
        yield "warn", note
    for tracker in keyless(session, plan):
        service, remedy = _TRACKER_KEYS[tracker]
        yield "fail", f"{tracker} is to be told of the run, and no key of {service} is on this machine. {remedy}"
    for problem in collisions(session.project, plan.as_config()):
        yield "warn", str(problem)


_TRACKER_KEYS: Mapping[str, tuple[str, str]] = {
    "wandb": (
        "Weights & Biases",
        "t hands one to W&B's own store, as `wandb login` does. Or choose another tracker.",
    ),
}
"""Trackers that end a run at its start without a key: the service, and the way out."""


def keyless(session: Session, plan: Plan) -> list[str]:
    """Trackers that the plan reports to, and whose key is not on this machine."""
    wanted = plan.value("grpo.report_to") or []
    named = {wanted} if isinstance(wanted, str) else set(map(str, wanted))
    kept = session.environment().tokens
    return [tracker for tracker, (service, _) in _TRACKER_KEYS.items() if tracker in named and service not in kept]


def _pilot(session: Session, draft: Draft) -> Iterator[tuple[str, str]]:
    """What the model's own completions said, if they were asked for."""
    kept = draft.score.pilot
    if not kept.verdict:
        return
    old = "" if kept.rests_on == rests_on(session, draft) else " Model, data or rewards have changed since."
    yield "ok" if kept.verdict == "will learn" and not old else "warn", f"Sampled: {kept.verdict}. {kept.why}{old}"


def dry_run(session: Session, draft: Draft, outlook: Outlook, replaced: Collection[str], say: Say) -> DryRun | Problem:
    """One real step, and one resumed from its checkpoint, of the files as they would be written, on a small model."""
    from grpo_tui.run import trial

    model = session.model(draft)
    if isinstance(model, Problem):
        return model
    texts = {
        change.name: change.new for change in outlook.changes if not change.edited_by_user or change.name in replaced
    }
    worker = session.extra_worker("trial", lambda: trial.start_worker(session.project))
    return trial.dry_run(session.project, model.folder, worker=worker, texts=texts, say=say)


def reviewed(session: Session, draft: Draft, tried: DryRun) -> Draft:
    """The draft that knows how the dry run went."""
    mark = session.mark(draft, RESTS_ON["review"])
    return replace(draft, review=replace(draft.review, tried="passed" if tried.ok else "failed", rests_on=mark))


def tried_words(session: Session, draft: Draft) -> str:
    """What is known of a dry run, for people."""
    if not draft.review.tried:
        return "not done"
    old = "" if draft.review.rests_on == session.mark(draft, RESTS_ON["review"]) else ", before something changed"
    return f"{draft.review.tried}{old}"


def write_files(session: Session, draft: Draft, outlook: Outlook, replaced: Collection[str] = ()) -> Draft | Problem:
    """Write what the outlook shows; files edited by the user only if named in `replaced`."""
    from grpo_tui.plan import files

    predicted = {} if outlook.plan.cpu else _predicted(session, draft, outlook.plan)
    kept = replace(draft, review=replace(draft.review, predicted=predicted))
    return files.write(session.project, kept, outlook.changes, replaced)


def _predicted(session: Session, draft: Draft, plan: Plan) -> dict[str, int]:
    """Memory that the plan is said to need, for a run to be held against."""
    from grpo_tui.plan.footing import planned_footing
    from grpo_tui.run.prediction import predicted

    facts = session.planning_facts(draft, quiet)
    return {} if isinstance(facts, Problem) else predicted(planned_footing(plan, facts))


def departure(session: Session, draft: Draft) -> Departure | Problem:
    """What would be started, after everything it rests on was looked at again."""
    from grpo_tui.hardware.machine import format_gib
    from grpo_tui.run import folder, launch

    session.forget()
    config = launch.read_config(session.project)
    if isinstance(config, Problem):
        return config
    gpus = launch.choose_gpus(config, session.machine())
    if isinstance(gpus, Problem):
        return gpus
    facts = session.facts(draft)
    reviewed = draft.done["review"].rests_on if "review" in draft.done else {}
    changed = [
        f"The {FACT_NAMES[name]} changed since the review."
        for name, mark in reviewed.items()
        if name in facts and facts[name] != mark
    ]
    edited = [
        name
        for name in folder.files(session.project)
        if name in draft.files and file_hash(session.project / name) != draft.files[name]
    ]
    changed += [f"{name} is not as it was written: you edited it." for name in edited]
    unwritten = _unwritten(draft, config, {name for name, mark in reviewed.items() if facts.get(name, mark) != mark})
    stale = "The plan is for another machine: copy the folder there." if draft.hardware.manual_bytes else ""
    if unwritten and "config.toml" in edited:
        changed.append(f"It is used as it stands, and holds other answers than these: {', '.join(unwritten)}.")
    elif unwritten:
        stale = stale or f"The files do not hold your present answers yet: {', '.join(unwritten)}. Review writes them."
    name = folder.free_name(session.project, datetime.now().astimezone())
    command = launch.command(session.project, (session.project / folder.RUNS_FOLDER / name).resolve(), config, gpus)
    busy = [f"{gpu.name}: {format_gib(gpu.free_bytes)} of {format_gib(gpu.total_bytes)} free" for gpu in gpus]
    needed = (*folder.files(session.project), *folder.OPTIONAL_FILES)
    present = [name for name in needed if (session.project / name).is_file()]
    runs = folder.runs(session.project)
    warnings = [
        *(launch.still_running(each) for each in runs if each.life.alive),
        *launch.collisions(session.project, config),
    ]
    return Departure(
        run=name,
        command=command,
        devices="; ".join(busy) or "the CPU: no GPU is used",
        files=tuple(present),
        sha256=launch.approval_hash(session.project),
        steps=_length(config.get("grpo", {})),
        tried=tried_words(session, draft),
        fetched=_fetched(session, draft),
        changed=tuple(changed),
        warnings=tuple(warnings),
        stale=stale,
        runs=tuple((each.name, bool(each.life.alive), each.life.words) for each in runs),
    )


def _unwritten(draft: Draft, config: Mapping[str, Any], changed: Collection[str]) -> list[str]:
    """Which answers `config.toml` does not hold; `changed`: facts that are not as they were at the review."""
    from grpo_tui.plan.files import with_config

    theirs = with_config(draft, config)
    behind = {
        "model": "model" in changed or theirs.model != draft.model,
        "data": theirs.dataset != draft.dataset,
        "rewards": theirs.rewards != draft.rewards,
        "settings": "settings" in changed,
    }
    return [name for name, differs in behind.items() if differs]


def _count(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def _length(grpo: Mapping[str, Any]) -> str:
    """How long the training is, for people."""
    steps, epochs = grpo.get("max_steps", -1), grpo.get("num_train_epochs", 1)
    return f"{steps:,}" if isinstance(steps, int) and steps > 0 else f"{epochs} epoch{'' if epochs == 1 else 's'}"


def _fetched(session: Session, draft: Draft) -> str:
    from grpo_tui.hardware.machine import format_size

    offer = session.weights_to_fetch(draft)
    if offer is None:
        return ""
    return (
        f"the weights of {draft.model.name}, about {format_size(offer.weight_bytes)}, to {offer.place}, where "
        f"{format_size(offer.free_bytes)} are free"
    )


def approval(departure: Departure) -> Approval:
    """The yes for it."""
    return Approval(what="run", at=now(), sha256=departure.sha256, detail=str(departure.command))


def start(session: Session, draft: Draft, departure: Departure, approval: Approval) -> Started | Problem:
    """Start the training that was approved; the caller keeps the yes in the draft before."""
    from grpo_tui.run import launch

    config = launch.read_config(session.project)
    if isinstance(config, Problem):
        return config
    gpus = launch.choose_gpus(config, session.machine())
    if isinstance(gpus, Problem):
        return gpus
    return launch.start(
        session.project,
        approved=approval,
        gpus=gpus,
        name=departure.run,
        notify=draft.settings.notify_command,
        predicted=draft.review.predicted,
    )


def run_folder(session: Session, name: str) -> Path:
    """The folder of a run of this project."""
    from grpo_tui.run.folder import RUNS_FOLDER

    return session.project / RUNS_FOLDER / name
