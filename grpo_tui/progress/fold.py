"""Everything a viewer shows of a run, folded from its events."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from grpo_tui.progress.events import VERSION, Cursor, Event, first_view, is_whole, read_new
from grpo_tui.progress.series import Column, Series, canonical


@dataclass(frozen=True, slots=True)
class Save:
    """A checkpoint that was written completely."""

    step: int
    t: float
    path: str
    """Its folder, relative to the run."""


@dataclass(frozen=True, slots=True)
class Control:
    """A request of a viewer or a signal, as the training process obeyed it."""

    step: int
    t: float
    action: str
    by: str


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, in its own words."""

    step: int
    t: float
    reason: str
    """`completed`, `stopped` or `error`."""

    error: str = ""
    """Exception type and message."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A row with figures that are no numbers."""

    step: int
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """A snapshot. Later ones share its columns, so keeping old ones costs nothing."""

    begin: Mapping[str, Any] = field(default_factory=dict)
    """The newest `begin` row, verbatim; empty before it came."""

    started: float | None = None
    """When the first attempt began, Unix seconds of the training machine."""

    attempt_started: float | None = None
    attempts: int = 0
    resumed_from: int | None = None
    """Step the newest attempt went on from."""

    step: int = 0
    """Finished optimizer steps."""

    max_steps: int | None = None
    last_t: float | None = None
    """When the newest event was written."""

    version: int = VERSION
    """Highest format version seen; above `VERSION` the file was written by a newer program."""

    series: Mapping[str, Series] = field(default_factory=dict)
    """Training rows by metric, under TRL 1.16's names. NaN and infinities are points; None and missing are not."""

    evals: Mapping[str, Series] = field(default_factory=dict)
    """Evaluation rows by metric, with their `eval_` prefix."""

    times: Series = field(default_factory=Series)
    """Unix seconds at which each row was logged."""

    latest: Mapping[str, Any] = field(default_factory=dict)
    """The newest training row, verbatim."""

    latest_step: int = 0
    latest_eval: Mapping[str, Any] = field(default_factory=dict)
    latest_eval_step: int = 0
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The row that closes a training (`train_runtime`): no step of it."""

    phases: Mapping[str, Series] = field(default_factory=dict)
    """Seconds per step in `generate`, `reward:<name>`, `sync` and `train`."""

    phase_memory: Mapping[str, int] = field(default_factory=dict)
    """Peak bytes allocated in each phase so far, on the logging process's GPU."""

    now: str = ""
    """The phase that is running, when the run tells (slow steps only)."""

    now_since: float | None = None
    memory: Mapping[str, Series] = field(default_factory=dict)
    """Peak bytes between rows, as `<device>/allocated` and `<device>/reserved`, e.g. `cuda:0/allocated`."""

    flat: Series = field(default_factory=Series)
    """Share of groups whose completions all got the same reward, computed from the rewards by the recorder."""

    spread: tuple[float, ...] = ()
    """Highest minus lowest reward of each group of the newest row."""

    nonfinite: Series = field(default_factory=Series)
    """Steps with non-finite figures, and how many."""

    first_nonfinite: NonFinite | None = None
    saves: tuple[Save, ...] = ()
    controls: tuple[Control, ...] = ()
    end: End | None = None
    """Of the newest attempt; None while it runs, or when it was killed."""

    recorder_errors: tuple[str, ...] = ()
    other_kinds: Mapping[str, int] = field(default_factory=dict)
    """Events of kinds that this version does not know."""

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Reward functions in their order; without a `begin` row, those that were logged."""
        names = self.begin.get("reward_names")
        if isinstance(names, list) and names:
            return tuple(map(str, names))
        return tuple(
            key[len("rewards/") : -len("/mean")]
            for key in self.series
            if key.startswith("rewards/") and key.endswith("/mean")
        )

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of each reward function; 1 where none is known, as TRL has it."""
        weights = self.begin.get("reward_weights")
        names = self.reward_names
        if (
            isinstance(weights, list)
            and len(weights) == len(names)
            and all(isinstance(w, int | float) for w in weights)
        ):
            return tuple(map(float, weights))
        return (1.0,) * len(names)

    @property
    def world_size(self) -> int:
        size = self.begin.get("world_size", 1)
        return size if isinstance(size, int) and size > 0 else 1

    @property
    def batch(self) -> Mapping[str, Any]:
        """The batch arithmetic of the `begin` row."""
        batch = self.begin.get("batch")
        return batch if isinstance(batch, dict) else {}

    @property
    def num_generations(self) -> int:
        """Completions per group; 0: unknown."""
        size = self.batch.get("num_generations", 0)
        return size if isinstance(size, int) else 0

    @property
    def settings(self) -> Mapping[str, Any]:
        """The training arguments of the `begin` row."""
        settings = self.begin.get("settings")
        return settings if isinstance(settings, dict) else {}

    @property
    def beta(self) -> float | None:
        """Weight of the KL term, or None when unknown. 0: no reference model is loaded and no `kl` is logged (TRL's
        default).
        """
        if not self.begin:
            return None
        beta = self.settings.get("beta", 0.0)
        return float(beta) if isinstance(beta, int | float) else None

    @property
    def elapsed(self) -> float | None:
        """Seconds from the newest attempt's beginning to its newest event."""
        if self.attempt_started is None or self.last_t is None:
            return None
        return max(0.0, self.last_t - self.attempt_started)

    @property
    def seconds_per_step(self) -> float | None:
        """Median of the last 50 steps: the logged `step_time`, or the distance between rows."""
        times = [value for value in _get(self.series, "step_time").recent(50) if math.isfinite(value) and value > 0]
        if not times:
            rows = min(len(self.times), 51)
            points = [self.times.point(index) for index in range(-rows, 0)]
            times = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points) if b[0] > a[0]]
        return sorted(times)[len(times) // 2] if times else None


def advance(progress: Progress, events: Iterable[Event]) -> Progress:
    """`progress` with `events` after it. Pure to its caller: `progress` stays as it is. Nothing in an event makes it
    raise.
    """
    fold = _Fold(progress)
    for event in events:
        _HANDLERS.get(event.kind, _unknown)(fold, event)
        fold.changes["last_t"] = event.t
        if event.v > fold.get("version"):
            fold.changes["version"] = event.v
    return fold.frozen()


@dataclass(frozen=True, eq=False)
class View:
    """A run being followed: what can be shown now, and how far its history has been read."""

    progress: Progress
    """What to show."""

    complete: bool
    """False: `progress` rests on samples of a large file, and the whole is still being read."""

    skipped: int = 0
    """Lines that were no events."""

    restarted: bool = False
    """The file was replaced since the last look."""

    read: int = 0
    size: int = 0
    """Bytes folded and bytes there, for saying how far the reading is."""

    _cursor: Cursor = field(default=Cursor(), repr=False)
    _history: tuple[Progress, Cursor] | None = field(default=None, repr=False)


def follow(path: Path, view: View | None = None, budget: int = 4 << 20) -> View:
    """The next look at the events file `path`; begin with None, then hand in the last look.

    A large file is shown at once by samples, and each look folds `budget` bytes more of its history until it is
    complete. Meant to be called from a thread, about once a second (more often while `complete` is False).
    """
    if view is None:
        events, cursor = first_view(path)
        progress = advance(Progress(), events)
        size = cursor.offset + cursor.behind
        whole = is_whole(size)
        return View(
            progress,
            complete=whole,
            skipped=cursor.skipped,
            read=cursor.offset if whole else 0,
            size=size,
            _cursor=cursor,
            _history=None if whole else (Progress(), Cursor()),
        )
    events, cursor = read_new(path, view._cursor, budget)
    if cursor.restarted:
        return replace(follow(path, None, budget), restarted=True)
    progress = advance(view.progress, events) if events else view.progress
    history = view._history
    if history is None:
        return View(
            progress,
            complete=True,
            skipped=cursor.skipped,
            read=cursor.offset,
            size=cursor.offset + cursor.behind,
            _cursor=cursor,
        )
    older, older_cursor = read_new(path, history[1], budget)
    if older_cursor.restarted:
        return replace(follow(path, None, budget), restarted=True)
    history = (advance(history[0], older), older_cursor)
    if older_cursor.offset >= cursor.offset:
        return View(
            history[0],
            complete=True,
            skipped=older_cursor.skipped,
            read=older_cursor.offset,
            size=older_cursor.offset + older_cursor.behind,
            _cursor=older_cursor,
        )
    return View(
        progress,
        complete=False,
        skipped=older_cursor.skipped,
        read=older_cursor.offset,
        size=cursor.offset + cursor.behind,
        _cursor=cursor,
        _history=history,
    )


class _Fold:
    """A progress being changed. Columns are extended in place past every snapshot's end; a snapshot cut short is
    copied.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.changes: dict[str, Any] = {}
        self.groups: dict[str, dict[str, Column]] = {}

    def get(self, name: str) -> Any:
        return self.changes.get(name, getattr(self.progress, name))

    def columns(self, group: str) -> dict[str, Column]:
        if group not in self.groups:
            held = getattr(self.progress, group)
            self.groups[group] = {
                key: _writable(series) for key, series in (held if isinstance(held, Mapping) else {"": held}).items()
            }
        return self.groups[group]

    def point(self, group: str, key: str, step: int, value: float) -> None:
        columns = self.columns(group)
        column = columns.get(key)
        if column is None:
            column = columns[key] = Column.empty()
        if column.used and column.steps[column.used - 1] >= step:
            # A step that comes again (a writer of an older kind, or an attempt without `begin`): the later row counts.
            column = columns[key] = _cut(column, step - 1)
        column.append(step, value)

    def reset(self) -> None:
        """Forget everything: the file holds a new training from step 0."""
        self.progress, self.changes, self.groups = Progress(), {}, {}

    def drop_after(self, step: int) -> None:
        """Forget rows of an earlier attempt after `step`."""
        for group in _COLUMN_GROUPS:
            columns = self.columns(group)
            for key in columns:
                columns[key] = _cut(columns[key], step)
        first = self.get("first_nonfinite")
        self.changes |= {
            "first_nonfinite": first if first and first.step <= step else None,
            "saves": tuple(save for save in self.get("saves") if save.step <= step),
        }

    def frozen(self) -> Progress:
        for group, columns in self.groups.items():
            series = {key: Series(column, column.used) for key, column in columns.items() if column.used}
            held = getattr(self.progress, group)
            self.changes[group] = series if isinstance(held, Mapping) else series.get("", Series())
        return replace(self.progress, **self.changes) if self.changes else self.progress


_COLUMN_GROUPS = ("series", "evals", "times", "phases", "memory", "flat", "nonfinite")


def _get(series: Mapping[str, Series], key: str) -> Series:
    return series.get(key) or Series()


def _writable(series: Series) -> Column:
    return series.column if series.column.used == series.length else series.column.first(series.length)


def _cut(column: Column, step: int) -> Column:
    used = column.used
    while used and column.steps[used - 1] > step:
        used -= 1
    return column if used == column.used else column.first(used)


def _number(value: object) -> float | None:
    """`value` as a float when it is a number; True and False are none of a metric's."""
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _begin(fold: _Fold, event: Event) -> None:
    resumed = event.data.get("resumed_from")
    if isinstance(resumed, int) and resumed >= 0:
        fold.drop_after(resumed)
    elif fold.get("attempts") or fold.get("series"):
        fold.reset()
    settings = _mapping(event.data.get("settings"))
    known = [event.data.get("max_steps"), settings.get("max_steps")]
    fold.changes |= {
        "begin": event.data,
        "started": fold.get("started") if fold.get("started") is not None else event.t,
        "attempt_started": event.t,
        "attempts": fold.get("attempts") + 1,
        "resumed_from": resumed if isinstance(resumed, int) else None,
        "step": event.step,
        "max_steps": next((steps for steps in known if isinstance(steps, int) and steps > 0), None),
        "end": None,
        "summary": {},
        "now": "",
        "now_since": None,
    }


def _log(fold: _Fold, event: Event) -> None:
    logs = _mapping(event.data.get("logs"))
    _reach(fold, event)
    if "train_runtime" in logs:
        fold.changes["summary"] = logs
        return
    if "eval_loss" in logs:
        _eval(fold, event)
        return
    fold.changes |= {"latest": logs, "latest_step": event.step}
    fold.point("times", "", event.step, event.t)
    nonfinite = _rows(fold, "series", event.step, logs)
    if nonfinite:
        fold.point("nonfinite", "", event.step, len(nonfinite))
        if fold.get("first_nonfinite") is None:
            fold.changes["first_nonfinite"] = NonFinite(event.step, nonfinite)
    groups = _mapping(event.data.get("groups"))
    share = _number(groups.get("flat_share"))
    if share is not None:
        fold.point("flat", "", event.step, share)
        spread = groups.get("spread")
        if isinstance(spread, list):
            fold.changes["spread"] = tuple(number for value in spread if (number := _number(value)) is not None)
    for device, peaks in _mapping(event.data.get("memory")).items():
        for name, size in _mapping(peaks).items():
            number = _number(size)
            if number is not None:
                fold.point("memory", f"{device}/{name}", event.step, number)


def _eval(fold: _Fold, event: Event) -> None:
    logs = _mapping(event.data.get("logs"))
    _reach(fold, event)
    fold.changes |= {"latest_eval": logs, "latest_eval_step": event.step}
    _rows(fold, "evals", event.step, logs)


def _rows(fold: _Fold, group: str, step: int, logs: Mapping[str, Any]) -> tuple[str, ...]:
    """Add the figures of a row; returns the keys that are not finite."""
    nonfinite = []
    for key, value in logs.items():
        number = _number(value)
        if number is None:
            continue
        fold.point(group, canonical(key), step, number)
        if not math.isfinite(number):
            nonfinite.append(key)
    return tuple(nonfinite)


def _phase(fold: _Fold, event: Event) -> None:
    _reach(fold, event)
    for name, seconds in _mapping(event.data.get("seconds")).items():
        number = _number(seconds)
        if number is not None:
            fold.point("phases", name, event.step, number)
    memory = dict(fold.get("phase_memory"))
    for name, size in _mapping(event.data.get("memory")).items():
        if isinstance(size, int):
            memory[name] = max(size, memory.get(name, 0))
    fold.changes["phase_memory"] = memory


def _now(fold: _Fold, event: Event) -> None:
    fold.changes |= {"now": str(event.data.get("phase", "")), "now_since": event.t}


def _save(fold: _Fold, event: Event) -> None:
    save = Save(event.step, event.t, str(event.data.get("checkpoint", f"checkpoint-{event.step}")))
    fold.changes["saves"] = (*(old for old in fold.get("saves") if old.step != save.step), save)


def _control(fold: _Fold, event: Event) -> None:
    control = Control(event.step, event.t, str(event.data.get("action", "")), str(event.data.get("by", "")))
    fold.changes["controls"] = (*fold.get("controls"), control)


def _error(fold: _Fold, event: Event) -> None:
    fold.changes["recorder_errors"] = (*fold.get("recorder_errors"), str(event.data.get("error", "")))[-20:]


def _end(fold: _Fold, event: Event) -> None:
    _reach(fold, event)
    fold.changes["end"] = End(event.step, event.t, str(event.data.get("reason", "")), str(event.data.get("error", "")))


def _unknown(fold: _Fold, event: Event) -> None:
    kinds = dict(fold.get("other_kinds"))
    if event.kind in kinds or len(kinds) < 100:
        kinds[event.kind] = kinds.get(event.kind, 0) + 1
    fold.changes["other_kinds"] = kinds


def _reach(fold: _Fold, event: Event) -> None:
    fold.changes |= {"step": max(event.step, fold.get("step")), "now": "", "now_since": None}


_HANDLERS = {
    "begin": _begin,
    "log": _log,
    "eval": _eval,
    "phase": _phase,
    "now": _now,
    "save": _save,
    "control": _control,
    "recorder_error": _error,
    "end": _end,
}
