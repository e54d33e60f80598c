"""The rewards tried on completions, before anything trains."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui import pilot, tryout
from grpo_tui.draft import Approval, Draft, PilotAnswer
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

from .dialogs import Ask, Show, Type, Write, number
from .drawn import GLYPHS, Block, Column, Draw, Rows
from .line import wrap
from .step import FRAME_KEYS, Say, Step, Trouble
from .theme import Palette
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.pilot import Pilot
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.probes import Probed, ProbeTable
    from grpo_tui.tryout import Trial


VERDICT_ORDER = ("paid wrongly", "unpaid although right", "sound", "not scored")


class ScoreStep(Step, inherit_bindings=False):
    """Completions down, rewards across."""

    NAME = "score"
    QUESTION = "Do the rewards pay for the right thing?"
    WHY = "What is paid wrongly here is learned wrongly there."
    HELP = (
        "The completions are written by hand or come with the recipe. n writes another, space changes the one "
        "under the cursor, d removes it, o chooses the row whose right answer counts. The rewards run in a process "
        "of their own, without your tokens, each with a time limit. p attacks them with completions made from your "
        "data: empty ones, tags without content, every answer at once. t lets the model complete some prompts in "
        "groups, as the training will, and says whether there is anything to learn. w changes the weights; sums and "
        "advantages follow at once."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,e", "edit", "change", key_display="space"),
        Binding("p", "probe", "attack"),
        Binding("t", "pilot", "model tries"),
        Binding("w", "weights", "weights"),
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

    probes: "ProbeTable | None" = None
    pilot: "Pilot | None" = None
    current = True
    """What is kept of a pilot rests on the present model, data and rewards."""

    def body(self) -> ComposeResult:
        yield Rows("Completions", Column("completion"), empty="No completions yet. n writes one.", id="matrix")
        yield Block(self._detail, id="detail")
        yield Block(self._functions, id="functions")
        yield Rows(
            "Attacks",
            Column("verdict", 21),
            Column("completion", rank=0),
            Column("paid", 7, right=True),
            Column("by", 18, rank=1),
            empty="p attacks the rewards with completions made from your data.",
            id="probes",
        )
        yield Block(self._signal, id="signal")

    def find(self, say: Say) -> object:
        say("Reading the row and the samples…")
        trial = tryout.trial(self.session, self.draft)
        if isinstance(trial, Problem):
            return trial
        consent = tryout.score_consent(self.session, self.draft)
        self.current = self.draft.score.pilot.rests_on == pilot.rests_on(self.session, self.draft)
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
        self._show_probes()
        for name in ("detail", "functions", "signal"):
            self.query_one(f"#{name}", Block).redraw()

    def _show_probes(self) -> None:
        text, table = self.palette.text, self.query_one("#probes", Rows)
        table.most = 5 if self.size.height < 30 else 10
        if self.probes is None:
            table.show([], "")
            return
        cells = []
        for each in sorted(self.probes.probes, key=lambda each: VERDICT_ORDER.index(each.verdict)):
            state = "ok" if each.verdict == "sound" else "muted" if each.verdict == "not scored" else "fail"
            sign = GLYPHS.get(state, "–")
            cells.append(
                (
                    text((f"{sign} {each.verdict}", state)),
                    text(
                        (f"{each.probe.kind}: ", "text"), (one_line(each.probe.completion, 200) or "(empty)", "muted")
                    ),
                    text(("–" if each.share is None else f"{each.share:.0%}", "text bold")),
                    text((", ".join(each.paid_by), "muted")),
                )
            )
        table.show(cells, f"form alone earns {self.probes.format_only_share:.0%} of a right answer")

    def _signal(self, width: int) -> Sequence[Text]:
        text, kept = self.palette.text, self.draft.score.pilot
        if not kept.verdict:
            rows = [head(self.palette, width, "Learning signal")]
            return [*rows, text(" ", ("t lets the model complete some prompts: is there anything to learn?", "muted"))]
        state = "ok" if kept.verdict == "will learn" else "warn"
        reading = f"{kept.prompts} prompts × {kept.generations}" + (
            "" if self.current else ", before something changed"
        )
        rows = [head(self.palette, width, "Learning signal", reading=text((reading, "muted")))]
        sign = text((f" {GLYPHS[state]} ", f"{state} bold"))
        rows += wrap(self.palette, one_line(kept.why, 500), width, "text", sign)
        if self.pilot is None:
            return rows
        signal, samples = self.pilot.signal, self.pilot.samples
        for size, share in signal.zero_signal.items():
            note = "  as planned" if size == signal.planned else ""
            rows.append(
                text((f"   {size:>3} generations  ", "muted"), (f"{share} of the groups flat", "text"), (note, "muted"))
            )
        for name, part in signal.deciding.items():
            rows.append(
                text((f"   {one_line(name, 24):<24} ", "muted"), (f"decides {part:.0%} of the advantages", "text"))
            )
        if samples.cut_share:
            rows.append(text(("   cut at the longest length  ", "muted"), (f"{samples.cut_share:.0%}", "text")))
        for title, found in (("always right", signal.always_right), ("always wrong", signal.always_wrong)):
            if found:
                named = ", ".join(f"{self.pilot.rows[group] + 1:,}" for group in found[:8]) + (
                    "…" if len(found) > 8 else ""
                )
                rows += wrap(
                    self.palette, f"{len(found)} prompts: rows {named}", width, "text", text((f"   {title}  ", "muted"))
                )
        return rows

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

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the completion under the cursor."""
        if event.rows.id == "matrix":
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
    def picked(self, event: Rows.Picked) -> None:
        """Change the sample under the cursor, or read the attack."""
        if event.rows.id == "matrix":
            self.action_edit()
        elif self.probes is not None:
            ordered = sorted(self.probes.probes, key=lambda each: VERDICT_ORDER.index(each.verdict))
            self.app.push_screen(
                Show(one_line(ordered[event.index].probe.kind, 60), self._attack(ordered[event.index]))
            )

    def _attack(self, each: "Probed") -> Draw:
        names = self.probes.names if self.probes else ()

        def rows(width: int) -> Sequence[Text]:
            paid = ", ".join(
                f"{name} {value:g}" for name, value in zip(names, each.rewards, strict=True) if value is not None
            )
            return [
                *wrap(self.palette, one_line(each.probe.why, 400), width),
                *wrap(
                    self.palette,
                    f"Expected: {each.probe.expected.replace('_', ' ')}. Paid: {paid or 'nothing'}.",
                    width,
                ),
                self.palette.text(),
                *wrap(self.palette, inert(each.probe.completion, 4000) or "(empty)", width, "muted"),
            ]

        return rows

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

    # Attacks, pilot, weights

    def action_probe(self) -> None:
        """Attack the rewards with completions made from the data."""

        def attack(say: Say) -> Problem | None:
            found = pilot.probe(self.session, self.draft, say)
            if isinstance(found, Problem):
                return found
            self.probes = found
            return None

        if self.consent is not None:
            self._ask_to_score(then=lambda: self.do(attack))
        else:
            self.do(attack)

    def action_pilot(self) -> None:
        """Let the model complete some prompts, and say whether there is anything to learn."""

        def find_consent(say: Say) -> Problem | None:
            say("Looking at model and data…")
            self.app.call_from_thread(self._ask_to_sample, pilot.sample_consent(self.session, self.draft))
            return None

        self.do(find_consent)

    def _ask_to_sample(self, consent: Approval | None) -> None:
        def sampling(say: Say) -> Problem | None:
            found = pilot.pilot(self.session, self.draft, say)
            if isinstance(found, Problem):
                return found
            self.pilot = found
            kept = pilot.answer_of(self.session, self.draft, found)
            self.app.call_from_thread(self._keep, kept)
            return None

        def about(width: int) -> Sequence[Text]:
            place = "the chosen GPU" if self.draft.hardware.gpus else "the CPU"
            return [
                *wrap(
                    self.palette,
                    f"{one_line(self.draft.model.name, 200)} completes {pilot.PROMPTS} prompts of "
                    f"{one_line(self.draft.dataset.source, 200)} on {place}, as many times each as the training will, "
                    f"and {self.draft.rewards.file} scores them.",
                    width,
                ),
                *wrap(self.palette, "Nothing is trained, and nothing leaves this machine.", width, "muted"),
            ]

        def answered(yes: bool | None) -> None:
            if yes and consent is not None:
                self.answer(replace(self.draft, approvals=(*self.draft.approvals, consent)))
                self.do(sampling)

        if consent is None:
            self.do(sampling)
        else:
            self.app.push_screen(Ask("Let the model try?", about, yes="let it", no="not now"), answered)

    def _keep(self, kept: PilotAnswer) -> None:
        self.answer(replace(self.draft, score=replace(self.draft.score, pilot=kept)))

    def action_weights(self) -> None:
        """Other weights; what they change is seen at once."""
        items = self.draft.rewards.items

        def check(text: str) -> str:
            parts = [part.strip() for part in text.split(" ") if part.strip()]
            wrong = next((fault for part in parts if (fault := number(part))), "")
            return wrong or ("" if len(parts) == len(items) else f"{len(items)} numbers are needed, one per function.")

        def typed(text: str | None) -> None:
            if text is None:
                return
            weights = [float(part.replace(",", ".")) for part in text.split()]
            taken = tuple(replace(item, weight=weight) for item, weight in zip(items, weights, strict=True))
            if self.table is not None:
                self.table = tryout.reweighted(self.table, weights)
            self.probes = self.pilot = None  # they were scored under other weights
            self.current = False
            self.answer(replace(self.draft, rewards=replace(self.draft.rewards, items=taken)))

        about = (
            f"For {', '.join(item.name for item in items)}, with spaces between. 1, 0.5, 0.25, 0.125 add up exactly."
        )
        self.app.push_screen(Type("Weights", " ".join(f"{item.weight:g}" for item in items), about, check=check), typed)

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
        ready = self.table is not None or self.consent is None or self.draft.score.skipped
        if self.doing or self.failed or ready:
            super().action_next()
        else:
            self._ask_to_score()

    def _ask_to_score(self, then: Callable[[], None] = lambda: None) -> None:
        consent = self.consent

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
            if yes and consent is not None:
                self.answer(replace(self.draft, approvals=(*self.draft.approvals, consent)), look=True)
                then()

        self.app.push_screen(Ask("Run the reward functions?", about, yes="run them", no="not now"), answered)

    def settle(self) -> Draft:
        samples = self._samples()
        score = self.draft.score
        return replace(self.draft, score=replace(score, samples=samples))


def figure(
    palette: Palette, value: float | None, *, bold: bool = False, sign: bool = False, known: bool = True
) -> Text:
    """A reward for people: three decimals, `none` where the function gave nothing."""
    if value is None:
        return palette.text(("none" if known else "–", "muted"))
    shown = f"{value:+.3f}" if sign else f"{value:.3f}"
    return palette.text((shown, "text bold" if bold or (sign and value > 0) else "text"))
