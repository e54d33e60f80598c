"""The steps of the wizard without a screen: from answers to files that can be started."""

from collections.abc import Callable
from dataclasses import replace

from grpo_tui import offers, preflight, state, tryout
from grpo_tui.draft import STEPS, Draft, HardwareAnswer, RewardItem, TaskAnswer, finish
from grpo_tui.problem import Problem
from grpo_tui.session import Session, now, quiet

WRITTEN = STEPS[: STEPS.index("launch")]
"""The steps that `walk` does: all but the start."""


def walk(session: Session, draft: Draft, done: Callable[[str], None] = lambda name: None) -> Draft | list[Problem]:
    """Every step up to the written files, each with the answer of `draft` or what is proposed; saved after each.

    It ends at the first step that a person must decide, with the reason. `done` gets the name of each finished step.
    """
    for name in WRITTEN:
        result = _STEPS[name](session, draft)
        if isinstance(result, Problem):
            return [result]
        if isinstance(result, list):
            return result
        following = STEPS[STEPS.index(name) + 1]
        draft = replace(finish(result, name, now(), session.facts(result)), step=following)
        problem = state.save(session.project, draft)
        if problem is not None:
            return [problem]
        done(name)
    return draft


Result = Draft | Problem | list[Problem]


def _task(session: Session, draft: Draft) -> Result:
    method = session.fit(draft)
    if method not in ("GRPO", "") and not draft.task.overruled:
        return Problem("task", f"{method} fits better than GRPO here.", "Open the wizard to go on all the same.")
    return session.begin(replace(draft, task=replace(draft.task, verdict=method)))


def _hardware(session: Session, draft: Draft) -> Result:
    if draft.hardware != HardwareAnswer():
        return draft
    return replace(draft, hardware=session.proposed_hardware())


def _model(session: Session, draft: Draft) -> Result:
    facts = session.model(draft)
    return facts if isinstance(facts, Problem) else draft


def _dataset(session: Session, draft: Draft) -> Result:
    mapped = session.mapped(draft)
    if isinstance(mapped, Problem):
        return mapped
    data = session.data(mapped, quiet)
    if isinstance(data, Problem):
        return data
    return data.stop or mapped


def _rewards(session: Session, draft: Draft) -> Result:
    offered = offers.offered(session, draft)
    if isinstance(offered, Problem):
        return offered
    if not draft.rewards.items:
        items = tuple(RewardItem(name=offer.name, weight=offer.weight) for offer in offered.offers if offer.proposed)
        draft = replace(draft, rewards=replace(draft.rewards, items=items))
    if not offered.from_file:
        return offers.write_rewards(session, draft, offered.offers)
    return offers.reward_problems(draft, offered) or draft


def _score(session: Session, draft: Draft) -> Result:
    if draft.score.skipped or tryout.score_consent(session, draft) is not None:
        return replace(draft, score=replace(draft.score, skipped=True))
    trial = tryout.trial(session, draft)
    if isinstance(trial, Problem):
        return trial
    table = tryout.score(session, draft, trial, quiet)
    if isinstance(table, Problem):
        return table
    return [problem for name in table.blocking for problem in table.problems[name]] or draft


def _settings(session: Session, draft: Draft) -> Result:
    plan = session.checked_plan(draft, quiet)
    return plan if isinstance(plan, list) else draft


def _review(session: Session, draft: Draft) -> Result:
    outlook = preflight.outlook(session, draft, quiet)
    if isinstance(outlook, Problem | list):
        return outlook
    kept = [change.name for change in outlook.changes if change.edited_by_user]
    if kept:
        what = f"{' and '.join(kept)} would be overwritten, and you edited it."
        return Problem(str(session.project), what, "Open the wizard: its review shows the difference.")
    return preflight.write_files(session, outlook.draft, outlook)


_STEPS: dict[str, Callable[[Session, Draft], Result]] = {
    "task": _task,
    "hardware": _hardware,
    "model": _model,
    "dataset": _dataset,
    "rewards": _rewards,
    "score": _score,
    "settings": _settings,
    "review": _review,
}


def is_new(draft: Draft) -> bool:
    """Nothing was answered yet."""
    return draft.task == TaskAnswer() and not draft.done
