"""Before the training: are the rewards sound under attack, and does the model find anything to learn from them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_tui.draft import Approval, Draft, PilotAnswer
from grpo_tui.marks import digest
from grpo_tui.problem import Problem
from grpo_tui.session import Say, Session, now
from grpo_tui.tryout import score_worker, tokenizer_of

if TYPE_CHECKING:
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.probes import ProbeTable
    from grpo_tui.rewards.sampling import Samples
    from grpo_tui.rewards.signal import Signal

PROMPTS = 32
"""Prompts of a pilot: with 8 completions each a share of flat groups is known to about ± 0.15."""

PROBED_ROWS = 50
"""Rows whose answers serve the probes as other, wrong answers."""

SAMPLED = ("num_generations", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length")
"""Settings of the training that the sampling takes over."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """Groups that the model completed, what they earned, and what that says."""

    samples: Samples
    rows: tuple[int, ...]
    """Number of each group's row in the data, from 0."""

    table: ScoreTable
    signal: Signal


def probe(session: Session, draft: Draft, say: Say) -> ProbeTable | Problem:
    """The rewards attacked with completions made from the first rows."""
    from grpo_tui.rewards.probes import ProbeRequest, probe

    rows = session.prepared(draft)
    if isinstance(rows, Problem):
        return rows
    request = ProbeRequest(
        path=session.project / draft.rewards.file,
        names=tuple(item.name for item in draft.rewards.items),
        weights=tuple(item.weight for item in draft.rewards.items),
        rows=tuple(rows[:PROBED_ROWS]),
        answer_column="answer" if draft.dataset.answer else "",
        system=draft.dataset.system,
        tokenizer=tokenizer_of(session, draft),
    )
    return probe(score_worker(session), request, lambda name: say(f"Attacking {name}…"))


def sample_consent(session: Session, draft: Draft) -> Approval | None:
    """The yes that is needed before the model completes prompts of these data; None: it was given."""
    mark = rests_on(session, draft)
    if any(yes.what == "sample" and yes.sha256 == mark for yes in draft.approvals):
        return None
    detail = f"{draft.model.name} on {draft.dataset.source}, scored by {draft.rewards.file}"
    return Approval(what="sample", at=now(), sha256=mark, detail=detail)


def rests_on(session: Session, draft: Draft) -> str:
    """Mark of everything that a pilot's result depends on."""
    facts = session.facts(draft)
    return digest(*(facts.get(name, "") for name in ("model", "data", "rewards")))


def pilot(session: Session, draft: Draft, say: Say, *, prompts: int = PROMPTS) -> Pilot | Problem:
    """Groups sampled as the training samples them, scored, and judged."""
    from grpo_tui.rewards.sampling import LocalModel, SampleRequest, sample, start_sampler
    from grpo_tui.rewards.signal import SignalRequest, learning_signal

    model = session.model(draft)
    if isinstance(model, Problem):
        return model
    if not model.weight_bytes:
        what = "Its weights are not on this machine, so it cannot complete anything here."
        return Problem(draft.model.name, what, "Fetch them, or go on: the first steps of the run will tell.")
    drawn = _drawn(session, draft, prompts)
    if isinstance(drawn, Problem):
        return drawn
    plan = session.checked_plan(draft, say)
    if isinstance(plan, list):
        return plan[0]
    settings: dict[str, Any] = {name: plan.value(f"grpo.{name}") for name in SAMPLED}
    request = SampleRequest(
        prompts=tuple(row["prompt"] for _, row in drawn),
        generations=settings.pop("num_generations"),
        **{name: value for name, value in settings.items() if value is not None},
    )
    local = LocalModel(name=str(model.folder), device="cuda" if draft.hardware.gpus else "cpu")
    say("Loading the model…")
    worker = session.extra_worker("sample", lambda: start_sampler(local, session.visible_environment(draft)))
    made = sample(worker, local, request, lambda done, of: say(f"The model completes: {done:,} of {of:,}…"))
    session.end_worker("sample")  # it holds the card's memory, which the training will want
    if isinstance(made, Problem):
        return made
    table = _scored(session, draft, [row for _, row in drawn], made, say)
    if isinstance(table, Problem):
        return table
    signal = learning_signal(
        SignalRequest(
            names=table.names,
            weights=table.weights,
            rewards=table.rewards,
            generations=made.generations,
            scale=str(plan.value("grpo.scale_rewards", "group")),
            aggregation=str(plan.value("grpo.multi_objective_aggregation", "sum_then_normalize")),
        )
    )
    if isinstance(signal, Problem):
        return signal
    return Pilot(samples=made, rows=tuple(number for number, _ in drawn), table=table, signal=signal)


def answer_of(session: Session, draft: Draft, pilot: Pilot) -> PilotAnswer:
    """What of a pilot is kept in the project."""
    signal = pilot.signal
    return PilotAnswer(
        verdict=signal.verdict,
        why=signal.why,
        pass_rate=signal.pass_rate.estimate if signal.pass_rate else -1.0,
        prompts=len(signal.prompts),
        generations=signal.generations,
        rests_on=rests_on(session, draft),
    )


def _drawn(session: Session, draft: Draft, prompts: int) -> list[tuple[int, dict[str, Any]]] | Problem:
    """Usable rows drawn over the whole data set, with their numbers."""
    from grpo_tui.dataset.prepared import drawn

    source = session.source(draft)
    if isinstance(source, Problem):
        return source
    usable = drawn(source, draft.dataset, prompts, seed=1)
    return usable or Problem(draft.dataset.source, "It has no usable row.", "Look at the Dataset step for why.")


def _scored(
    session: Session, draft: Draft, rows: Sequence[Mapping[str, Any]], made: Samples, say: Say
) -> ScoreTable | Problem:
    from grpo_tui.rewards.bench import TIMEOUT, ScoreRequest, columns_of, score, time_limit

    repeated = [row for row in rows for _ in range(made.generations)]
    request = ScoreRequest(
        path=session.project / draft.rewards.file,
        names=tuple(item.name for item in draft.rewards.items),
        weights=tuple(item.weight for item in draft.rewards.items),
        completions=made.texts,
        prompts=tuple(row["prompt"] for row in repeated),
        completion_ids=tuple(each.ids for each in made.completions),
        columns=columns_of(repeated),
        group_size=made.generations,
        tokenizer=tokenizer_of(session, draft),
        timeout=time_limit(TIMEOUT, len(repeated)),
    )
    return score(score_worker(session), request, lambda name: say(f"Running {name}…"))
