"""Before the training: are the rewards sound under attack, and does the model find anything to learn from them?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grpo_tui.draft import Approval, Draft, LeftOut, PilotAnswer, ServerAnswer, carried
from grpo_tui.inert import one_line
from grpo_tui.marks import digest, file_hash, marked
from grpo_tui.problem import Problem
from grpo_tui.session import TRY, Say, Session, now
from grpo_tui.tryout import Trial, everything, scaling, score_worker, tokenizer_of

if TYPE_CHECKING:
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.probes import ProbeTable
    from grpo_tui.rewards.sampling import SampleRequest, Samples
    from grpo_tui.rewards.signal import Signal

PILOT_FILE = "pilot.jsonl"
"""Keeps the completions of the last pilot in the project, as `grpo-tui score --completions` reads them."""

PROMPTS = 32
"""Prompts of a pilot: with 8 completions each a share of flat groups is known to about ± 0.15."""

MORE_PROMPTS = 128
"""Four times as many halve that."""

ALL_PROMPTS = 2048
"""Of a data set with no more usable prompts than this all may be sampled, to find each that teaches nothing."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What scored groups say of a training."""

    signal: Signal
    groups: tuple[int, ...]
    """Which groups on the bench it was read from, in its order."""

    @property
    def settled(self) -> dict[str, tuple[int, ...]]:
        """Groups on the bench without signal because the model is always right, or always wrong, by that word."""
        found = {"always right": self.signal.always_right, "always wrong": self.signal.always_wrong}
        return {why: tuple(self.groups[at] for at in places) for why, places in found.items() if places}


LISTED_RUNS = 5
"""Runs whose completions are offered by name."""

HERE = ServerAnswer()
"""No server: the model completes on this machine."""

PROBED_ROWS = 50
"""Rows whose answers serve the probes as other, wrong answers."""

SAMPLED = ("num_generations", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length")
"""Settings of the training that the sampling takes over."""


def probe(session: Session, draft: Draft, say: Say) -> ProbeTable | Problem:
    """The rewards attacked with completions made from the first rows."""
    from grpo_tui.rewards.probes import ProbeRequest, probe

    rows = session.prepared(draft)
    if isinstance(rows, Problem):
        return rows
    request = ProbeRequest(
        path=session.project / draft.rewards.file,
        names=draft.rewards.names,
        weights=draft.rewards.weights,
        rows=tuple(rows[:PROBED_ROWS]),
        answer_column="answer" if draft.dataset.answer else "",
        system=draft.dataset.system,
        tokenizer=tokenizer_of(session, draft),
    )
    return probe(score_worker(session), request, lambda name: say(f"Attacking {name}…"))


def completion_places(session: Session) -> list[tuple[str, str, str]]:
    """Where the project has completions for the bench: the place, what it is, and a remark; the newest run first."""
    from grpo_tui.progress.completions import steps
    from grpo_tui.run.folder import runs

    places = []
    if (session.project / PILOT_FILE).is_file():
        places.append((PILOT_FILE, "the last try", "what a model completed here"))
    for each in runs(session.project)[:LISTED_RUNS]:
        kept = steps(each.run)
        if kept:
            place = str(each.run.relative_to(session.project))
            places.append((place, one_line(f"run {each.name}", 40), f"as it was at step {kept[-1]:,}"))
    return places


def server_models(server: ServerAnswer) -> tuple[str, ...] | Problem:
    """The models that a server has; none where it tells none."""
    from grpo_tui.rewards.server import Server, models

    return models(Server(url=server.url, model="", key_variable=server.key_variable))


def prompt_counts(session: Session, draft: Draft, say: Say) -> list[tuple[int, str]] | Problem:
    """How many prompts a pilot may take, each with what it is good for, the usual number first."""
    source = session.source(draft)
    if isinstance(source, Problem):
        return source
    usual = [(PROMPTS, "a first verdict"), (MORE_PROMPTS, "half the uncertainty, four times the time")]
    if source.rows is None or source.rows > ALL_PROMPTS:
        return usual
    data = session.data(draft, say)
    if isinstance(data, Problem):
        return data
    whole = (data.usable, "all of them: finds each that teaches nothing")
    return [*(each for each in usual if each[0] < data.usable), whole]


def sample_consent(session: Session, draft: Draft, server: ServerAnswer = HERE) -> Approval | None:
    """The yes that is needed before the model completes prompts of these data, here or at `server`; None: it was given.

    What a server is sent leaves this machine, so that each of them needs a yes of its own.
    """
    mark = rests_on(session, draft)
    detail = f"{draft.model.name} on {draft.dataset.source}, scored by {draft.rewards.file}"
    if server.url:
        mark = digest(mark, marked(server))
        detail = f"prompts of {draft.dataset.source} sent to {server.url}, scored by {draft.rewards.file}"
    if any(yes.what == "sample" and yes.sha256 == mark for yes in draft.approvals):
        return None
    return Approval(what="sample", at=now(), sha256=mark, detail=detail)


def rests_on(session: Session, draft: Draft) -> str:
    """Mark of everything that a pilot's verdict depends on."""
    return session.mark(everything(draft), ("model", "data", "rewards"))


def sampled(session: Session, draft: Draft) -> str:
    """Mark of what the kept completions were made from, and of the file that keeps them."""
    return digest(session.mark(everything(draft), ("model", "data")), file_hash(session.project / PILOT_FILE))


def is_of_pilot(session: Session, draft: Draft) -> bool:
    """Are the completions on the bench those of the present model on the present data?"""
    score = draft.score
    return score.completions == PILOT_FILE and score.pilot.sampled == sampled(session, draft)


def sample(
    session: Session, draft: Draft, say: Say, *, prompts: int = PROMPTS, server: ServerAnswer = HERE
) -> Draft | Problem:
    """Groups sampled as the training samples them, by the model here or by a server, kept in the project's PILOT_FILE.

    The draft afterwards has them on the bench; what they earn and say is found when they are scored.
    """
    from grpo_tui.rewards import groups, sampling

    cancelled = session.watch(TRY)
    drawn = _drawn(session, draft, prompts)
    if isinstance(drawn, Problem):
        return drawn
    plan = session.checked_plan(draft, say)
    if isinstance(plan, list):
        return plan[0]
    settings: dict[str, Any] = {name: plan.value(f"grpo.{name}") for name in SAMPLED}
    request = sampling.SampleRequest(
        prompts=tuple(row["prompt"] for _, row in drawn),
        generations=settings.pop("num_generations"),
        **{name: value for name, value in settings.items() if value is not None},
    )
    made = _at_server(session, server, request, say) if server.url else _here(session, draft, request, say)
    if isinstance(made, Problem):
        return made
    if cancelled():  # the last answer came all the same
        return Problem(PILOT_FILE, "The try was cancelled.", "Start it again when you want to.")
    found = groups.made(made, [row for _, row in drawn], [number for number, _ in drawn])
    problem = groups.save(session.project / PILOT_FILE, found)
    if problem is not None:
        return problem
    kept = PilotAnswer(sampled=sampled(session, draft))
    return replace(draft, score=replace(draft.score, completions=PILOT_FILE, server=server, pilot=kept))


def _here(session: Session, draft: Draft, request: SampleRequest, say: Say) -> Samples | Problem:
    """The model's own completions, in a worker that sees the chosen GPUs."""
    from grpo_tui.rewards.sampling import LocalModel, sample, start_sampler

    model = session.model(draft)
    if isinstance(model, Problem):
        return model
    if not model.weight_bytes:
        what = "Its weights are not on this machine, so it cannot complete anything here."
        remedy = "Fetch them, let a server complete the prompts (c), or go on: the first steps of the run will tell."
        return Problem(draft.model.name, what, remedy)
    local = LocalModel(name=str(model.folder), device="cuda" if draft.hardware.gpus else "cpu")
    say("Loading the model…")
    worker = session.extra_worker("sample", lambda: start_sampler(local, session.visible_environment(draft)))
    made = sample(worker, local, request, lambda done, of: say(f"The model completes: {done:,} of {of:,}…"))
    session.end_worker("sample")  # it holds the card's memory, which the training will want
    return made


def _at_server(session: Session, server: ServerAnswer, request: SampleRequest, say: Say) -> Samples | Problem:
    """Completions of a server."""
    from grpo_tui.rewards.server import Server, ask

    asked = Server(url=server.url, model=server.model, key_variable=server.key_variable)
    say("Asking the server…")
    return ask(
        asked,
        request,
        lambda done, of: say(f"The server completes: {done:,} of {of:,}…"),
        cancelled=session.watch(TRY),
    )


def reading(session: Session, draft: Draft, trial: Trial, table: ScoreTable, say: Say) -> Reading | None:
    """What the scored groups say of a training; None where they are no groups.

    Prompts that were left out still count: the rest of the data has such prompts as well. Only where every prompt was
    sampled are they taken out.
    """
    from grpo_tui.rewards.signal import SignalRequest, learning_signal

    size, count = trial.groups.size, len(table.rewards) // trial.groups.size
    if size < 2 or count < 2:
        return None
    read = tuple(range(count))
    gone = {each.row for each in draft.dataset.left_out}
    if gone and is_of_pilot(session, draft):
        data = session.data(draft, say)
        kept = tuple(at for at in read if trial.groups.numbers[at] not in gone)
        if not isinstance(data, Problem) and kept and data.usable <= len(kept):
            read = kept
    scale, aggregation = scaling(session, draft)
    found = learning_signal(
        SignalRequest(
            names=table.names,
            weights=table.weights,
            rewards=tuple(row for at in read for row in table.rewards[at * size : (at + 1) * size]),
            generations=size,
            scale=scale,
            aggregation=aggregation,
        )
    )
    return None if isinstance(found, Problem) else Reading(signal=found, groups=read)


def stop(session: Session) -> None:
    """Give up a try that nobody waits for any longer, and nothing else."""
    session.stop(TRY)
    session.end_worker("sample")


def answer_of(session: Session, draft: Draft, signal: Signal) -> PilotAnswer:
    """What of a pilot is kept in the project."""
    return replace(
        draft.score.pilot,
        verdict=signal.verdict,
        why=signal.why,
        pass_rate=signal.pass_rate.estimate if signal.pass_rate else -1.0,
        prompts=len(signal.prompts),
        generations=signal.generations,
        rests_on=rests_on(session, draft),
    )


def leave_out(session: Session, draft: Draft, trial: Trial, groups: Mapping[int, str]) -> Draft | Problem:
    """The draft without the prompts of these groups, each with the reason; steps that were done stay so.

    A row that asks something else by now is not left out: the numbers come from the file of the completions.
    """
    from grpo_tui.dataset.prompts import mark, prepare_function
    from grpo_tui.dataset.rows import UnreadableError
    from grpo_tui.progress.completions import as_text

    source = session.mapped_source(draft)
    if isinstance(source, Problem):
        return source
    prepare = prepare_function(everything(draft).dataset)
    gone = {each.row: each for each in draft.dataset.left_out}
    for group, why in groups.items():
        number = trial.groups.numbers[group]
        try:
            row = source.row(number)
        except UnreadableError as error:
            return error.problem
        asked = trial.groups.rows[group * trial.groups.size]["prompt"]
        made = None if row is None else prepare(row)
        if row is None or made is None or as_text(made["prompt"]) != as_text(asked):
            what = "It does not ask what these completions answer: the data, or how they are read, changed since."
            return Problem(f"row {number + 1:,}", what, "Let the model try again (t), then leave prompts out.")
        gone[number] = LeftOut(row=number, mark=mark(draft.dataset, row), why=why)
    return _without(session, draft, tuple(gone[number] for number in sorted(gone)))


def take_back(session: Session, draft: Draft) -> Draft:
    """The draft with every prompt practised again."""
    return _without(session, draft, ())


def _without(session: Session, draft: Draft, left_out: tuple[LeftOut, ...]) -> Draft:
    changed = replace(draft, dataset=replace(draft.dataset, left_out=left_out))
    return carried(changed, session.facts(draft), session.facts(changed))


def _drawn(session: Session, draft: Draft, prompts: int) -> list[tuple[int, dict[str, Any]]] | Problem:
    """Usable rows drawn over the whole data set, with their numbers."""
    from grpo_tui.dataset.prepared import drawn

    source = session.mapped_source(draft)
    if isinstance(source, Problem):
        return source
    usable = drawn(source, draft.dataset, prompts, seed=1, cancelled=session.watch(TRY))
    return usable or Problem(draft.dataset.source, "It has no usable row.", "Look at the Dataset step for why.")
