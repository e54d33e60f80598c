"""The rewards tried on completions, before anything trains."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui import tryout
from grpo_tui.draft import Approval, Draft, ScoreAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

from .dialogs import Ask, Type, Write
from .drawn import GLYPHS, Block, Column, Rows
from .line import wrap
from .step import FRAME_KEYS, Say, Step, Trouble
from .theme import Palette
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.tryout import Trial


class ScoreStep(Step, inherit_bindings=False):
    """Completions down, rewards across."""

    NAME = "score"
    QUESTION = "Do the rewards pay for the right thing?"
    WHY = "What is paid wrongly here is learned wrongly there."
    HELP = (
        "The completions are written by hand or come with the recipe. n writes another, space changes the one "
        "under the cursor, d removes it, o chooses the row whose right answer counts. The rewards run in a process "
        "of their own, without your tokens, each with a time limit."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,e", "edit", "change", key_display="space"),
        Binding("n", "new", "new"),
        Binding("d", "delete", "remove"),
        Binding("o", "row", "other row"),
        Binding("s", "skip", "skip / try", show=False),
        *FRAME_KEYS,
    ]

    trial: "Trial | None" = None
    table: "ScoreTable | None" = None
    consent: Approval | None = None
    """The yes that is still needed before the rewards run."""

    def body(self) -> ComposeResult:
        yield Rows("Completions", Column("completion"), empty="No completions yet. n writes one.", id="matrix")
        yield Block(self._detail, id="detail")
        yield Block(self._functions, id="functions")

    def find(self, say: Say) -> object:
        say("Reading the row and the samples…")
        trial = tryout.trial(self.session, self.draft)
        if isinstance(trial, Problem):
            return trial
        consent = tryout.score_consent(self.session, self.draft)
        if len(trial.samples) < 2 or consent is not None:
            return trial, None, consent
        say("Running the rewards…")
        table = tryout.score(self.session, self.draft, trial, lambda name: say(f"Running {name}…"))
        return table if isinstance(table, Problem) else (trial, table, None)

    def found(self, result: object) -> None:
        self.trial, self.table, self.consent = result  # type: ignore[misc]  # the three that `find` made

    def refresh_body(self) -> None:
        text = self.palette.text
        rows = self.query_one(Rows)
        table, samples = self.table, self.trial.samples if self.trial else ()
        names = table.names if table else tuple(item.name for item in self.draft.rewards.items)
        wide = max(7, *(min(12, len(name)) for name in names)) if names else 7
        rows.columns_ = (
            Column("expect", 6, rank=9),
            Column("completion", rank=0),
            *(Column(one_line(name, wide), wide, right=True, rank=1) for name in names),
            Column("sum", 7, right=True, rank=0),
            Column("advantage", 9, right=True, rank=0),
        )
        cells = []
        for at, sample in enumerate(samples):
            paid = table.rewards[at] if table else (None,) * len(names)
            cells.append(
                (
                    text((sample.expect or "–", "muted")),
                    text((one_line(sample.text, 400) or "(empty)", "text")),
                    *(figure(self.palette, value, known=table is not None) for value in paid),
                    figure(self.palette, table.weighted[at] if table else None, bold=True, known=table is not None),
                    figure(self.palette, table.advantages[at] if table else None, sign=True, known=table is not None),
                )
            )
        where = f"row {self.trial.row + 1} · right answer {one_line(str(self.trial.answer), 24)}" if self.trial else ""
        rows.show(cells, where)
        self.query_one("#detail", Block).redraw()
        self.query_one("#functions", Block).redraw()

    def _detail(self, width: int) -> Sequence[Text]:
        if self.trial is None or not self.trial.samples:
            return []
        text = self.palette.text
        sample = self.trial.samples[min(self.query_one(Rows).cursor, len(self.trial.samples) - 1)]
        rows = [
            head(self.palette, width, "Completion", reading=text((one_line(sample.note, 60) or sample.origin, "muted")))
        ]
        shown = wrap(self.palette, one_line(sample.text, 600), width, "text", text((" text      ", "muted")))
        prompt = wrap(self.palette, one_line(self.trial.prompt, 600), width, "muted", text((" prompt    ", "muted")))
        return [*rows, *prompt[:3], *shown[:5]]

    def _functions(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        if self.table is None:
            return []
        table = self.table
        faults = sum(len(problems) for problems in table.problems.values()) + len(table.composition)
        reading = text(
            (
                f"{faults} to mend" if faults else "each returned one number per completion",
                "warn" if faults else "muted",
            )
        )
        rows = [head(self.palette, width, "Functions", reading=reading)]
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
                rows += wrap(self.palette, one_line(f"{problem.what} {problem.remedy}", 400), width, "text", "   ")
            for note in table.notes.get(name, ()):
                rows += wrap(self.palette, one_line(note, 300), width, "muted", "   ")
        for problem in table.composition:
            sign = text((" ! ", "warn bold"))
            rows += wrap(self.palette, one_line(f"{problem.what} {problem.remedy}", 400), width, "text", sign)
        return rows

    def on_rows_moved(self) -> None:
        """Show the completion under the cursor."""
        self.query_one("#detail", Block).redraw()

    # Samples

    def _change(self, **changes: object) -> None:
        score = replace(self.draft.score, skipped=False, **changes)  # type: ignore[arg-type]  # fields of ScoreAnswer
        self.answer(replace(self.draft, score=score), look=True)

    def _own(self) -> int | None:
        """The place of the sample under the cursor among those written by hand."""
        if self.trial is None or not self.trial.samples:
            return None
        at = self.query_one(Rows).cursor - sum(not sample.own for sample in self.trial.samples)
        if at < 0:
            self.notify("This one comes with the recipe. n writes another.", markup=False)
            return None
        return at

    @on(Rows.Picked)
    def picked(self) -> None:
        """Change the sample under the cursor."""
        self.action_edit()

    def action_edit(self) -> None:
        """Change a sample written by hand."""
        at = self._own()
        if at is None:
            return
        samples = self._samples()

        def written(value: str | None) -> None:
            if value is not None:
                self._change(samples=(*samples[:at], value, *samples[at + 1 :]))

        self.app.push_screen(Write("Completion", samples[at], "What the model might answer."), written)

    def action_new(self) -> None:
        """Write another sample."""

        def written(value: str | None) -> None:
            if value is not None:
                self._change(samples=(*self._samples(), value))

        self.app.push_screen(Write("New completion", "", "What the model might answer: good, bad, or sly."), written)

    def action_delete(self) -> None:
        """Remove a sample written by hand."""
        at = self._own()
        if at is not None:
            samples = self._samples()
            self._change(samples=samples[:at] + samples[at + 1 :])

    def _samples(self) -> tuple[str, ...]:
        return tuple(sample.text for sample in self.trial.samples if sample.own) if self.trial else ()

    def action_row(self) -> None:
        """Another row to score against."""

        def typed(value: str | None) -> None:
            if value and value.isdigit() and int(value) > 0:
                self._change(row=int(value) - 1)
            elif value:
                self.notify(f"{value} is not a row number.", severity="warning", markup=False)

        about = "Samples written by hand are scored against the right answer of this row, counted from 1."
        self.app.push_screen(Type("Row", str(self.draft.score.row + 1), about), typed)

    # Going on

    def action_skip(self) -> None:
        """Go on without trying, or try after all."""
        skipped = not self.draft.score.skipped
        self.answer(replace(self.draft, score=replace(self.draft.score, skipped=skipped)))

    def remark(self) -> Trouble | None:
        if not self.draft.score.skipped:
            return None
        return Trouble("Skipped: nobody has seen what the rewards pay.", "s", "try them")

    def missing(self) -> Trouble | None:
        if self.draft.score.skipped:
            return None
        if self.table is None and self.trial is not None and len(self.trial.samples) < 2:
            return Trouble("At least two completions are needed.", "n", "write one; s skips")
        if self.table is None:
            return Trouble("The rewards have not been run.", "enter", "asks for your yes; s skips")
        if self.table.blocking:
            return Trouble(
                f"{', '.join(one_line(name, 30) for name in self.table.blocking)} would stop the training.",
                "[",
                "back to Rewards; s skips",
            )
        return None

    def action_next(self) -> None:
        """Ask for the yes where the rewards have not been run on this data yet."""
        consent = self.consent
        if self.doing or self.failed or self.table is not None or consent is None or self.draft.score.skipped:
            super().action_next()
            return

        def about(width: int) -> Sequence[Text]:
            names = ", ".join(item.name for item in self.draft.rewards.items)
            return [
                *wrap(
                    self.palette,
                    f"Runs {one_line(names, 200)} of {self.draft.rewards.file} on the samples, with the "
                    f"prompt and the answer of row {self.draft.score.row + 1} of {self.draft.dataset.source}.",
                    width,
                ),
                self.palette.text(),
                *wrap(
                    self.palette,
                    "In a process of its own, without your tokens. Code can still read files and use the "
                    "network: read it first (c on the Rewards step). The yes holds for this file and this data.",
                    width,
                    "muted",
                ),
            ]

        def answered(yes: bool | None) -> None:
            if yes:
                self.answer(replace(self.draft, approvals=(*self.draft.approvals, consent)), look=True)

        self.app.push_screen(Ask("Run the reward functions?", about, yes="run them", no="not now"), answered)

    def settle(self) -> Draft:
        samples = self._samples()
        score = self.draft.score
        return replace(self.draft, score=ScoreAnswer(samples=samples, row=score.row, skipped=score.skipped))


def figure(
    palette: Palette, value: float | None, *, bold: bool = False, sign: bool = False, known: bool = True
) -> Text:
    """A reward for people: three decimals, `none` where the function gave nothing."""
    if value is None:
        return palette.text(("none" if known else "–", "muted"))
    shown = f"{value:+.3f}" if sign else f"{value:.3f}"
    return palette.text((shown, "text bold" if bold or (sign and value > 0) else "text"))
