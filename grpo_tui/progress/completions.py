"""What the model wrote, from the parquet files that TRL keeps beside a run (`log_completions=True`).

TRL writes `completions/completions_<step>.parquet` at every log: the completions of the last generation, each with its
rewards and advantage. Evaluation of the same step writes the same file again, with evaluation completions in it.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_tui.problem import Problem
from grpo_tui.progress import groups
from grpo_tui.progress.series import Series
from grpo_tui.rewards.advantages import weighted_sums

_NAME = re.compile(r"completions_(\d+)\.parquet$")
_OWN_COLUMNS = ("step", "prompt", "completion", "advantage")


@dataclass(frozen=True, kw_only=True)
class CompletionTable:
    """The completions of one step. All columns have one entry per completion, in the order of training."""

    step: int
    prompts: tuple[str, ...]
    """What the model was asked: chat messages as `role: content` lines, plain text as it is."""

    questions: tuple[str, ...]
    """The last user message alone; of a plain prompt, all of it."""

    completions: tuple[str, ...]
    rewards: Mapping[str, tuple[float | None, ...]]
    """By function, before its weight. None: the function did not score the completion."""

    advantages: tuple[float | None, ...]
    groups: tuple[tuple[int, ...], ...]
    """Places of the completions that answer the same prompt together, in order."""

    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that reward functions logged by `log_extra`, as text."""

    notes: tuple[str, ...] = ()
    """What a reader should know, e.g. that evaluation completions are among these."""


def steps(run: Path) -> tuple[int, ...]:
    """The steps whose completions were kept, rising."""
    try:
        names = [path.name for path in (run / "completions").iterdir()]
    except OSError:
        return ()
    return tuple(sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name))))


def path_of(run: Path, step: int) -> Path:
    """The file TRL keeps the completions of `step` in."""
    return run / "completions" / f"completions_{step:05d}.parquet"


def read(run: Path, step: int, *, num_generations: int = 0, evaluated: bool = False) -> CompletionTable | Problem:
    """The completions of `step`. A file that is missing, empty, half written or no parquet is a `Problem`.

    `num_generations` (0: unknown) separates two groups with one prompt; `evaluated` says that an evaluation ran at this
    step.
    """
    import pyarrow.parquet as parquet

    path = path_of(run, step)
    if not path.is_file():
        return Problem(str(path), "The completions of this step were not kept.", "Choose a step from the list.")
    try:
        with path.open("rb") as file:
            table = parquet.ParquetFile(file).read()
        columns = {name: table.column(index).to_pylist() for index, name in enumerate(table.column_names)}
    except Exception as error:  # noqa: BLE001 - pyarrow raises its own and builtin errors, whatever the bytes hold
        what = f"This file cannot be read as parquet ({type(error).__name__}: {error})."
        return Problem(str(path), what, "It may be half written: look again after the next step.")
    prompts, written = columns.get("prompt"), columns.get("completion")
    if prompts is None or written is None:
        found = ", ".join(columns) or "none"
        return Problem(
            str(path), f"There are no columns prompt and completion; found: {found}.", "Was it written by TRL?"
        )
    texts = tuple(map(as_text, prompts))
    rewards = {
        name: tuple(map(_figure, values))
        for name, values in columns.items()
        if name not in _OWN_COLUMNS and not name.startswith("__index_level") and _numeric(values)
    }
    extra = {
        name: tuple("" if value is None else str(value) for value in values)
        for name, values in columns.items()
        if name not in _OWN_COLUMNS and not name.startswith("__index_level") and name not in rewards
    }
    notes = []
    if evaluated:
        notes.append("An evaluation ran at this step: TRL wrote its completions into this file too.")
    if not texts:
        notes.append("No completion was generated at this step.")
    return CompletionTable(
        step=step,
        prompts=texts,
        questions=tuple(map(_question, prompts)),
        completions=tuple(as_text(value, roles=False) for value in written),
        rewards=rewards,
        advantages=tuple(map(_figure, columns.get("advantage", [None] * len(texts)))),
        groups=_groups(texts, num_generations),
        extra=extra,
        notes=tuple(notes),
    )


def share_without_signal(table: CompletionTable, names: Sequence[str], weights: Sequence[float]) -> float | None:
    """Share of the groups of `table` whose completions all got one weighted reward; None when there is no group.

    `names` and `weights` are those of the run, in its order; functions the table lacks count nothing.
    """
    columns = [
        (table.rewards[name], weight) for name, weight in zip(names, weights, strict=False) if name in table.rewards
    ]
    if not columns:
        return None
    rows = [[column[index] for column, _ in columns] for index in range(len(table.prompts))]
    sums = weighted_sums(rows, [weight for _, weight in columns])
    spreads = [groups.spread([sums[index] for index in group]) for group in table.groups if len(group) > 1]
    return groups.share_without_signal(spreads)


def flat_series(
    run: Path, names: Sequence[str], weights: Sequence[float], *, num_generations: int = 0, known: Series | None = None
) -> Series:
    """The share of groups without signal at every step whose completions were kept, for runs that did not record it.

    Steps between have no point: a chart shows the gaps. `known`, the series of the last look, is not read again.
    """
    points = [] if known is None else [known.point(index) for index in range(len(known))]
    seen = {step for step, _ in points}
    for step in steps(run):
        if step in seen:
            continue
        table = read(run, step, num_generations=num_generations)
        share = None if isinstance(table, Problem) else share_without_signal(table, names, weights)
        if share is not None:
            points.append((step, share))
    return Series.of(sorted(points))


def as_text(value: Any, *, roles: bool = True) -> str:
    """Chat messages or plain text as one text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(message, dict) for message in value):
        if not roles and len(value) == 1:
            return _content(value[0])
        return "\n".join(f"{message.get('role', '?')}: {_content(message)}" for message in value)
    return "" if value is None else str(value)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):  # multimodal: parts of text and images
        content = " ".join(
            str(part.get("text") or f"[{part.get('type', '?')}]") for part in content if isinstance(part, dict)
        )
    if message.get("tool_calls"):
        calls = json.dumps(message["tool_calls"], default=str, ensure_ascii=False)
        return f"{content or ''} {calls}".strip()
    return "" if content is None else str(content)


def _question(prompt: Any) -> str:
    if isinstance(prompt, list):
        asked = [_content(message) for message in prompt if isinstance(message, dict) and message.get("role") == "user"]
        if asked:
            return asked[-1]
    return as_text(prompt)


def _numeric(values: Sequence[Any]) -> bool:
    """Are these figures, or nothing at all (a function that scored no completion)?"""
    return all(value is None or isinstance(value, int | float) for value in values)


def _figure(value: Any) -> float | None:
    """pandas writes None as NaN in a column of floats: both mean that nothing was scored."""
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else float(value)


def _groups(prompts: Sequence[str], size: int) -> tuple[tuple[int, ...], ...]:
    """Neighbours with one prompt, cut into groups of `size` when it is known."""
    runs: list[list[int]] = []
    for index, prompt in enumerate(prompts):
        if runs and prompts[runs[-1][0]] == prompt and not (size and len(runs[-1]) == size):
            runs[-1].append(index)
        else:
            runs.append([index])
    return tuple(map(tuple, runs))
