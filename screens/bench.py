"""How the bench is drawn: completions against rewards, attacks, what the functions did, and what there is to learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from rich.text import Text

from grpo_tui.draft import PilotAnswer
from grpo_tui.inert import inert, one_line

from .drawn import GLYPHS, Column, Draw
from .line import wrap
from .theme import Palette
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.pilot import Reading
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.probes import Probed, ProbeTable
    from grpo_tui.tryout import Sample, Trial

VERDICT_ORDER = ("paid wrongly", "unpaid although right", "sound", "not scored")

NAMED_PROMPTS = 8
"""So many rows of always right or always wrong prompts are named."""


ROW_RANK, WATCHED_RANK = 1_000, 2_000
"""Columns of the table of completions that are left out early: of functions that only watch, then the first one."""


def matrix_columns(names: Sequence[str], weights: Sequence[float], *, gathered: bool) -> tuple[Column, ...]:
    """The columns of the table of completions: what is expected of a sample, or the row that a completion answers.

    Where there is no room for all, functions that only watch go first, and the one with the most weight goes last.
    """
    wide = max(7, *(min(12, len(name)) for name in names)) if names else 7
    heaviest = sorted(range(len(names)), key=lambda at: -abs(weights[at]))
    ranks = {at: place + (1 if weights[at] else WATCHED_RANK) for place, at in enumerate(heaviest)}
    return (
        Column("row", 7, right=True, rank=ROW_RANK) if gathered else Column("expect", 6, rank=ROW_RANK),
        Column("completion", rank=0),
        *(Column(one_line(name, wide), wide, right=True, rank=ranks[at]) for at, name in enumerate(names)),
        Column("sum", 7, right=True, rank=0),
        Column("advantage", 9, right=True, rank=0),
    )


@dataclass(frozen=True)
class Matrix(Sequence[Sequence[Text]]):
    """One row per completion, drawn when it comes in sight: there may be thousands."""

    palette: Palette
    trial: Trial
    table: ScoreTable | None
    """None: the rewards did not run yet, and figures are dashes."""

    functions: int

    def __len__(self) -> int:
        return len(self.trial.samples)

    @overload
    def __getitem__(self, at: int) -> Sequence[Text]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Sequence[Text]]: ...

    def __getitem__(self, at: int | slice) -> Sequence[Text] | Sequence[Sequence[Text]]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        text, table, known = self.palette.text, self.table, self.table is not None
        sample = self.trial.samples[at]
        paid = table.rewards[at] if table else (None,) * self.functions
        of_group = row_name(sample) if at % self.trial.groups.size == 0 else ""
        return (
            text((of_group if self.trial.gathered else sample.expect or "–", "muted")),
            text((one_line(sample.text, 400) or "(empty)", "text")),
            *(figure(self.palette, value, known=known) for value in paid),
            figure(self.palette, table.weighted[at] if table else None, bold=True, known=known),
            figure(self.palette, table.advantages[at] if table else None, sign=True, known=known),
        )


def row_name(sample: Sample) -> str:
    """The row that a completion answers, from 1."""
    return f"{sample.row.number + 1:,}" if sample.row.number >= 0 else "–"


def figure(
    palette: Palette, value: float | None, *, bold: bool = False, sign: bool = False, known: bool = True
) -> Text:
    """A reward for people: three decimals, `none` where the function gave nothing."""
    if value is None:
        return palette.text(("none" if known else "–", "muted"))
    shown = f"{value:+z.3f}" if sign else f"{value:z.3f}"
    return palette.text((shown, "text bold" if bold or (sign and value > 0) else "text"))


def completion_rows(palette: Palette, sample: Sample, width: int) -> list[Text]:
    """The completion under the cursor with the prompt that it answers."""
    text = palette.text
    reading = one_line(sample.note, 60) or sample.origin
    answer = one_line(sample.row.answer, 40)
    rows = [head(palette, width, "Completion", reading=text((reading, "muted")))]
    prompt = wrap(palette, one_line(sample.row.prompt, 600), width, "muted", text((" prompt    ", "muted")))
    shown = wrap(palette, one_line(sample.text, 600), width, "text", text((" text      ", "muted")))
    right = (
        [text((f" row {row_name(sample):<6}", "muted"), ("right answer ", "muted"), (answer, "text"))] if answer else []
    )
    return [*rows, *prompt[:3], *shown[:5], *right]


def function_rows(palette: Palette, table: ScoreTable, width: int) -> list[Text]:
    """What each function did, what is wrong with it, and what is wrong with all together."""
    text = palette.text
    faults = sum(len(problems) for problems in table.problems.values()) + len(table.composition)
    reading = f"{faults} to mend" if faults else "each returned one number per completion"
    rows = [head(palette, width, "Functions", reading=text((reading, "warn" if faults else "muted")))]
    for name, weight in zip(table.names, table.weights, strict=True):
        bad = table.problems.get(name, ())
        state = "fail" if name in table.blocking else "warn" if bad else "ok"
        seconds = table.seconds_per_call.get(name)
        time = f"{seconds * 1000:,.1f} ms a call" if seconds is not None else "not called"
        word = {"ok": "works", "warn": "works, but", "fail": "does not work"}[state]
        rows.append(
            text(
                (f" {GLYPHS[state]} ", f"{state} bold"),
                (f"{one_line(name, 20):<20} ", "text"),
                (f"× {weight:g}".ljust(9), "muted"),
                (f"{word:<14}", "text"),
                (time, "muted"),
            )
        )
        for problem in bad:
            rows += wrap(palette, one_line(f"{problem.what} {problem.remedy}", 400), width, "text", "   ")
        for note in table.notes.get(name, ()):
            rows += wrap(palette, one_line(note, 300), width, "muted", "   ")
    for problem in table.composition:
        sign = text((" ! ", "warn bold"))
        rows += wrap(palette, one_line(f"{problem.what} {problem.remedy}", 400), width, "text", sign)
    return rows


def change_rows(palette: Palette, title: str, sentence: str, width: int) -> list[Text]:
    """What other weights or other code changed."""
    return [head(palette, width, title), *wrap(palette, one_line(sentence, 400), width, "text", " ")]


def ordered(probes: ProbeTable) -> list[Probed]:
    """The attacks, those that are paid wrongly first."""
    return sorted(probes.probes, key=lambda each: VERDICT_ORDER.index(each.verdict))


def probe_cells(palette: Palette, probes: ProbeTable) -> list[Sequence[Text]]:
    """One row per attack."""
    text = palette.text
    cells: list[Sequence[Text]] = []
    for each in ordered(probes):
        state = "ok" if each.verdict == "sound" else "muted" if each.verdict == "not scored" else "fail"
        cells.append(
            (
                text((f"{GLYPHS.get(state, '–')} {each.verdict}", state)),
                text((f"{each.probe.kind}: ", "text"), (one_line(each.probe.completion, 200) or "(empty)", "muted")),
                text(("–" if each.share is None else f"{each.share:.0%}", "text bold")),
                text((", ".join(each.paid_by), "muted")),
            )
        )
    return cells


def attack(palette: Palette, each: Probed, names: Sequence[str]) -> Draw:
    """One attack in full."""

    def rows(width: int) -> Sequence[Text]:
        paid = ", ".join(
            f"{name} {value:g}" for name, value in zip(names, each.rewards, strict=True) if value is not None
        )
        expected = f"Expected: {each.probe.expected.replace('_', ' ')}. Paid: {paid or 'nothing'}."
        return [
            *wrap(palette, one_line(each.probe.why, 400), width),
            *wrap(palette, expected, width),
            palette.text(),
            *wrap(palette, inert(each.probe.completion, 4000) or "(empty)", width, "muted"),
        ]

    return rows


def whole(palette: Palette, sample: Sample) -> Draw:
    """A completion in full, with the prompt it answers."""

    def rows(width: int) -> Sequence[Text]:
        lines = []
        for role, content in sample.row.messages:
            lines += wrap(
                palette, inert(content, 8000), width, "muted", palette.text((f"{one_line(role, 9):<10}", "muted"))
            )
        return [*lines, palette.text(), *wrap(palette, inert(sample.text, 20_000) or "(empty)", width)]

    return rows


def signal_rows(
    palette: Palette, width: int, kept: PilotAnswer, read: Reading | None, trial: Trial | None, *, current: bool
) -> list[Text]:
    """Whether there is anything to learn: of the completions on the bench, else of the last pilot."""
    text, signal = palette.text, read.signal if read else None
    if signal is None and not kept.verdict:
        words = "t lets the model complete some prompts: is there anything to learn?"
        return [head(palette, width, "Learning signal"), text(" ", (words, "muted"))]
    if signal is None:
        verdict, why, prompts, generations = kept.verdict, kept.why, kept.prompts, kept.generations
    else:
        verdict, why, prompts, generations = signal.verdict, signal.why, len(signal.prompts), signal.generations
    old = "" if current else ", before something changed"
    state = "ok" if verdict == "will learn" else "warn"
    reading = text((f"{prompts} prompts × {generations}{old}", "muted"))
    rows = [head(palette, width, "Learning signal", reading=reading)]
    sign = text((f" {GLYPHS[state]} ", f"{state} bold"))
    rows += wrap(palette, one_line(why, 500), width, "text", sign)
    if signal is None or read is None or trial is None:
        return rows
    for size, share in signal.zero_signal.items():
        note = "  as planned" if size == signal.planned else ""
        rows.append(
            text((f"   {size:>3} generations  ", "muted"), (f"{share} of the groups flat", "text"), (note, "muted"))
        )
    for name, part in signal.deciding.items():
        rows.append(text((f"   {one_line(name, 24):<24} ", "muted"), (f"decides {part:.0%} of the advantages", "text")))
    for (one, other), value in signal.correlation.items():
        if value is not None and abs(value) >= ALIKE:
            pair = f"{one_line(one, 20)} and {one_line(other, 20)}"
            words = "go together" if value > 0 else "pull against each other"
            rows.append(text((f"   {pair}  ", "muted"), (f"{words} (correlation {value:+.2f})", "text")))
    cut = trial.groups.cut_share
    if cut:
        rows.append(text(("   cut at the longest length  ", "muted"), (f"{cut:.0%}", "text")))
    for title, found in read.settled.items():
        words = f"{len(found)} prompts{_named(trial, found)}"
        rows += wrap(palette, words, width, "text", text((f"   {title}  ", "muted")))
    return rows


ALIKE = 0.8
"""Correlation within groups from which two rewards are said to go together: they share two thirds of their variance."""


def _named(trial: Trial, groups: Sequence[int]) -> str:
    """The rows of some groups, where they are known."""
    if not trial.groups.numbers:
        return ""
    named = ", ".join(f"{trial.groups.numbers[group] + 1:,}" for group in groups[:NAMED_PROMPTS])
    return f": rows {named}{'…' if len(groups) > NAMED_PROMPTS else ''}"
