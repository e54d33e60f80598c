"""The rewards of a project tried on completions, in a worker, before anything trains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grpo_tui.draft import Approval, Draft
from grpo_tui.gathered import gathered
from grpo_tui.marks import digest, file_hash
from grpo_tui.problem import Problem
from grpo_tui.session import Say, Session, now
from grpo_tui.survey import RowView

if TYPE_CHECKING:
    from grpo_tui.child import Worker
    from grpo_tui.recipe import Recipe
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.groups import Groups
    from grpo_tui.rewards.stored import Stored, WhatIf


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A completion on the bench."""

    row: RowView
    """What it answers; its number is -1 where the row in the data is not known."""

    text: str
    expect: str = ""
    """`high`, `low`, or empty: nothing is expected."""

    note: str = ""
    origin: str
    """Where it comes from, in a word or two."""

    own: bool = False
    """Written by the user."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the rewards are tried on."""

    samples: tuple[Sample, ...]
    groups: Groups
    """The same completions, as the bench takes them."""

    gathered: bool = False
    """They come from a file, a run or a model, and none of them can be edited."""

    paid: Stored | None = None
    """What a run paid for them; None: they are of no run."""


def first_samples(system: str, right: str) -> tuple[str, ...]:
    """Completions to begin with, made from one row: the right answer in the tags that the system prompt names, the
    right answer alone, and one that answers nothing."""
    tags = tuple(dict.fromkeys(re.findall(r"<([a-z][a-z0-9_]*)>", system))) or ("reasoning", "answer")
    whole = "".join(f"<{tag}>{right if tag == tags[-1] else '...'}</{tag}>" for tag in tags)
    return (whole, right or "An answer.", "I do not know.")


def trial(session: Session, draft: Draft) -> Trial | Problem:
    """The completions on the bench, and the rows they answer."""
    return _gathered(session, draft) if draft.score.completions else _written(session, draft)


def _gathered(session: Session, draft: Draft) -> Trial | Problem:
    """Those of a file, of a run or of a model's last try."""
    found = gathered(session, draft)
    if isinstance(found, Problem):
        return found
    groups = found.groups
    numbers = groups.numbers or (-1,) * (len(groups.rows) // groups.size)
    samples = tuple(
        Sample(
            row=RowView(number=numbers[at // groups.size], raw={}, prepared={"prompt": "", **row}),
            text=row["completion"],
            origin=groups.origin,
        )
        for at, row in enumerate(groups.rows)
    )
    return Trial(samples=samples, groups=groups, gathered=True, paid=found.paid)


def _written(session: Session, draft: Draft) -> Trial | Problem:
    """The samples of the recipe, and those that the user wrote for the chosen row."""
    from grpo_tui.rewards.groups import Groups

    recipe = session.recipe(draft)
    given = recipe.samples if recipe and _is_recipes_data(session, draft, recipe) else ()
    rows: dict[int, RowView] = {}
    for number in {draft.score.row, *(sample.row for sample in given)}:
        found = session.row(draft, number)
        if isinstance(found, Problem):
            return found
        if found.prepared is None:
            return Problem(f"row {number + 1}", found.trouble, "Choose another row: press o.")
        rows[number] = found
    chosen = rows[draft.score.row]
    own = draft.score.samples or (() if given else first_samples(draft.dataset.system, chosen.answer))
    note = "" if draft.score.samples else "made from the row; change it"
    samples = (
        *(
            Sample(row=rows[each.row], text=each.text, expect=each.expect, note=each.note, origin="recipe")
            for each in given
        ),
        *(Sample(row=chosen, text=text, origin="written by you", note=note, own=True) for text in own),
    )
    groups = Groups(
        rows=tuple({**(sample.row.prepared or {}), "completion": sample.text} for sample in samples),
        size=len(samples),
        origin="samples",
    )
    return Trial(samples=samples, groups=groups)


def _is_recipes_data(session: Session, draft: Draft, recipe: Recipe) -> bool:
    """Whether the data are the recipe's own; a file of that name is as long as it is as it was written."""
    data = draft.dataset.source
    unchanged = data not in draft.files or file_hash(session.project / data) == draft.files[data]
    return data == recipe.dataset.source and unchanged


def everything(draft: Draft) -> Draft:
    """The draft before single prompts were left out: a yes, and what a model did, hold for fewer prompts as well."""
    return replace(draft, dataset=replace(draft.dataset, left_out=()))


def score_consent(session: Session, draft: Draft) -> Approval | None:
    """The yes that is needed before the rewards run on these data; None: it was given, or all of it is ours."""
    recipe = session.recipe(draft)
    code = file_hash(session.project / draft.rewards.file)
    ours = recipe is not None and recipe.ours and _is_recipes_data(session, draft, recipe)
    if ours and recipe is not None and code == file_hash(recipe.rewards_file):
        return None
    mark = digest(code, session.data_mark(everything(draft)))  # read only here: it looks at the data
    if any(yes.what == "score" and yes.sha256 == mark for yes in draft.approvals):
        return None
    return Approval(what="score", at=now(), sha256=mark, detail=f"{draft.rewards.file} on {draft.dataset.source}")


def score(session: Session, draft: Draft, trial: Trial, say: Say) -> ScoreTable | Problem:
    """The rewards really run on the completions, in a worker without secrets.

    Once: under other weights, or with the bench opened again, what they gave is taken as it was until `forget`.
    """
    from grpo_tui.rewards import groups
    from grpo_tui.rewards.bench import score

    path, ways = session.project / draft.rewards.file, scaling(session, draft)
    request = groups.request(
        trial.groups,
        path=path,
        names=draft.rewards.names,
        weights=draft.rewards.weights,
        answer_column="answer" if draft.dataset.answer else "",
        tokenizer=tokenizer_of(session, draft),
        scale=ways[0],
        aggregation=ways[1],
    )
    key = digest("score", file_hash(path), repr(replace(request, weights=(), scale="", aggregation="")))
    table = session.kept(key, lambda: score(score_worker(session), request, say))
    return table if isinstance(table, Problem) else reweighted(table, draft.rewards.weights, trial, ways)


def scaling(session: Session, draft: Draft) -> tuple[str, str]:
    """How the training will scale advantages and add rewards, as user or recipe set it: TRL's defaults otherwise."""
    from grpo_tui.rewards.advantages import AGGREGATIONS, SCALES, scale_name

    recipe = session.recipe(draft)
    advice = {key: each.value for key, each in (recipe.grpo if recipe else {}).items()}
    mine = {key.removeprefix("grpo."): value for key, value in draft.settings.overrides.items()}
    said = {**advice, **mine}
    scale = scale_name(said.get("scale_rewards", SCALES[0]))
    aggregation = str(said.get("multi_objective_aggregation", AGGREGATIONS[0]))
    # A word that TRL does not know is the Settings step's trouble.
    return scale if scale in SCALES else SCALES[0], aggregation if aggregation in AGGREGATIONS else AGGREGATIONS[0]


def score_worker(session: Session) -> Worker:
    """The worker that runs the project's reward functions, without secrets."""
    from grpo_tui.rewards.bench import start_worker

    return session.extra_worker("score", lambda: start_worker(session.project))


def tokenizer_of(session: Session, draft: Draft) -> str:
    """Where the model's tokenizer lies; empty: nowhere here."""
    model = session.model(draft)
    return str(model.folder) if not isinstance(model, Problem) and model.tokenizer else ""


def reweighted(table: ScoreTable, weights: Sequence[float], trial: Trial, scaling: tuple[str, str]) -> ScoreTable:
    """The table under other weights: sums and advantages follow without running a function again."""
    from grpo_tui.rewards.advantages import advantages, weighted_sums
    from grpo_tui.rewards.composition import check_composition

    other = replace(
        table,
        weights=tuple(weights),
        weighted=tuple(weighted_sums(table.rewards, weights)),
        advantages=tuple(advantages(table.rewards, weights, trial.groups.size, *scaling)),
        spread={
            name: table.spread[name] * abs(new / old) if old else 0.0
            for name, old, new in zip(table.names, table.weights, weights, strict=True)
        },
    )
    return replace(other, composition=tuple(check_composition(other)))


def compared(before: Stored, table: ScoreTable, scaling: tuple[str, str]) -> WhatIf | Problem:
    """What these rewards and weights would have done to completions that others were paid for."""
    from grpo_tui.rewards.stored import what_if

    scale, aggregation = scaling
    return what_if(
        before, names=table.names, weights=table.weights, rewards=table.rewards, scale=scale, aggregation=aggregation
    )


def first_paid(session: Session, trial: Trial, table: ScoreTable, scaling: tuple[str, str]) -> Stored:
    """What the run paid for these completions, else what they were paid when they were first scored."""
    from grpo_tui.rewards.stored import Stored

    texts = tuple(sample.text for sample in trial.samples)
    now_paid = Stored(
        names=table.names,
        weights=table.weights,
        rewards=table.rewards,
        group_size=trial.groups.size,
        completions=texts,
        scale=scaling[0],
        aggregation=scaling[1],
    )
    return trial.paid or session.kept(digest("paid", *texts), lambda: now_paid)
