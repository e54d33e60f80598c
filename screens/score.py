"""The rewards tried on completions, before anything trains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui import pilot, tryout
from grpo_tui.draft import Approval, Draft, PilotAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

from . import bench
from .consent import allowed, run_rewards
from .dialogs import Choose, Show, Type, Write, number
from .drawn import Block, Choice, Column, Rows
from .gather import Gathering
from .step import FRAME_KEYS, Say, Trouble

if TYPE_CHECKING:
    from grpo_tui.pilot import Reading
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.stored import WhatIf
    from grpo_tui.tryout import Trial


NOTHING_TO_LEARN = ("too hard", "too easy", "reward silent")
"""Verdicts that are worth a word before the training, whatever else is in order."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a look at the bench found."""

    trial: "Trial"
    table: "ScoreTable | None" = None
    consent: Approval | None = None
    """The yes that is still needed before the rewards run."""

    reading: "Reading | None" = None
    change: "WhatIf | None" = None
    kept: PilotAnswer | None = None
    """What of the reading is kept in the project; None: the groups are of no pilot."""


class ScoreStep(Gathering, inherit_bindings=False):
    """Completions down, rewards across."""

    NAME = "score"
    QUESTION = "Do the rewards pay for the right thing?"
    WHY = "What is paid wrongly here is learned wrongly there."
    HELP = (
        "The completions are written by hand or come with the recipe; c takes others: of a file, of a run, of the "
        "model, of a server. n writes another, space changes the one under the cursor, d removes it, o chooses the row "
        "whose right answer counts. The rewards run in a process of their own, without your tokens, each with a time "
        "limit. p attacks them with completions made from your data: empty ones, tags without content, every answer at "
        "once. t lets the model complete some prompts in groups, as the training will, and says whether there is "
        "anything to learn; l leaves out prompts that teach nothing. w changes the weights: sums, advantages and ranks "
        "follow at once."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,e", "edit", "change", key_display="space"),
        Binding("c", "gather", "completions"),
        Binding("p", "probe", "attack"),
        Binding("t", "pilot", "model tries"),
        Binding("w", "weights", "weights"),
        Binding("n", "new", "new", show=False),
        Binding("d", "delete", "remove", show=False),
        Binding("o", "row", "other row", show=False),
        Binding("l", "leave_out", "leave out", show=False),
        Binding("s", "skip", "skip / try", show=False),
        *FRAME_KEYS,
    ]

    table: "ScoreTable | None" = None
    reading: "Reading | None" = None
    """What the groups on the bench say of a training; None: they are no groups."""

    change: "WhatIf | None" = None
    """What the present weights and code change against what these completions were paid before; None: nothing."""

    scaling: tuple[str, str] = ("group", "sum_then_normalize")
    current = True
    """What is said of the learning signal is of the present model, data and rewards."""

    def body(self) -> ComposeResult:
        yield Rows("Completions", Column("completion"), empty="No completions yet. n writes one.", id="matrix")
        yield Block(self._detail, id="detail")
        yield Block(self._change_made, id="change")
        yield Block(self._signal, id="signal")
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

    def find(self, say: Say) -> object:
        say("Reading the completions and what they answer…")
        self.scaling = tryout.scaling(self.session, self.draft)
        self.places = pilot.completion_places(self.session)  # also wanted where no completion can be read
        trial = tryout.trial(self.session, self.draft)
        if isinstance(trial, Problem):
            return trial
        consent = tryout.score_consent(self.session, self.draft)
        score, of_pilot = self.draft.score, pilot.is_of_pilot(self.session, self.draft)
        self.current = score.pilot.rests_on == pilot.rests_on(self.session, self.draft)
        if len(trial.samples) < 2 or consent is not None:
            return Found(trial=trial, consent=consent)
        say("Running the rewards…")
        table = tryout.score(self.session, self.draft, trial, lambda name: say(f"Running {name}…"))
        if isinstance(table, Problem):
            return table
        reading = pilot.reading(self.session, self.draft, trial, table, say)
        before = tryout.first_paid(self.session, trial, table, self.scaling)
        change = tryout.compared(before, table, self.scaling)
        kept = None
        if reading is not None:
            self.current = of_pilot or score.completions != pilot.PILOT_FILE
        if reading is not None and of_pilot:
            kept = pilot.answer_of(self.session, self.draft, reading.signal)
        shown = None if isinstance(change, Problem) or change.nothing else change
        return Found(trial=trial, table=table, reading=reading, change=shown, kept=kept)

    def found(self, result: object) -> None:
        assert isinstance(result, Found)
        self.trial, self.table, self.consent = result.trial, result.table, result.consent
        self.reading, self.change = result.reading, result.change
        if result.kept is not None and result.kept != self.draft.score.pilot:
            self.answer(replace(self.draft, score=replace(self.draft.score, pilot=result.kept)))

    def refresh_body(self) -> None:
        rows, trial = self.query_one("#matrix", Rows), self.trial
        names = self.table.names if self.table else self.draft.rewards.names
        weights = self.table.weights if self.table else self.draft.rewards.weights
        rows.columns_ = bench.matrix_columns(names, weights, gathered=trial is not None and trial.gathered)
        rows.most = max(6, self.size.height // 3) if trial is not None and trial.gathered else 0
        rows.show(bench.Matrix(self.palette, trial, self.table, len(names)) if trial else (), self._where())
        self._show_probes()
        for block in self.query("#body Block").results(Block):
            block.redraw()

    def _where(self) -> str:
        """What the completions on the bench are."""
        trial = self.trial
        if trial is None:
            return ""
        if trial.gathered:
            size = trial.groups.size
            groups = f"in groups of {size}" if size > 1 else "each of another prompt"
            return f"{len(trial.samples):,} {groups} · {one_line(trial.groups.origin, 60)}"
        chosen = next((sample.row for sample in trial.samples if sample.own), trial.samples[0].row)
        return f"row {chosen.number + 1} · right answer {one_line(chosen.answer, 24) or 'none'}"

    def _show_probes(self) -> None:
        table = self.query_one("#probes", Rows)
        table.most = 5 if self.size.height < 30 else 10
        if self.probes is None:
            table.show([], "")
        else:
            share = f"form alone earns {self.probes.format_only_share:.0%} of a right answer"
            table.show(bench.probe_cells(self.palette, self.probes), share)

    def _signal(self, width: int) -> Sequence[Text]:
        kept = self.draft.score.pilot
        return bench.signal_rows(self.palette, width, kept, self.reading, self.trial, current=self.current)

    def _detail(self, width: int) -> Sequence[Text]:
        if self.trial is None or not self.trial.samples:
            return []
        at = min(self.query_one("#matrix", Rows).cursor, len(self.trial.samples) - 1)
        return bench.completion_rows(self.palette, self.trial.samples[at], width)

    def _functions(self, width: int) -> Sequence[Text]:
        return bench.function_rows(self.palette, self.table, width) if self.table else []

    def _change_made(self, width: int) -> Sequence[Text]:
        if self.change is None or self.trial is None:
            return []
        title = f"Against what {self.trial.groups.origin} was paid" if self.trial.paid else "Against the rewards before"
        return bench.change_rows(self.palette, one_line(title, 60), self.change.sentence, width)

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the completion under the cursor."""
        if event.rows.id == "matrix":
            self.query_one("#detail", Block).redraw()

    # Samples

    def _own(self) -> int | None:
        """The place of the sample under the cursor among those written by hand."""
        if self.trial is None or not self.trial.samples:
            return None
        at = self.query_one("#matrix", Rows).cursor - sum(not sample.own for sample in self.trial.samples)
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
            each = bench.ordered(self.probes)[event.index]
            self.app.push_screen(
                Show(one_line(each.probe.kind, 60), bench.attack(self.palette, each, self.probes.names))
            )

    def action_edit(self) -> None:
        """Change a sample written by hand; read a completion that is none."""
        if self.trial is not None and self.trial.gathered:
            sample = self.trial.samples[self.query_one("#matrix", Rows).cursor]
            self.app.push_screen(Show(f"Row {bench.row_name(sample)}", bench.whole(self.palette, sample)))
            return
        at = self._own()
        if at is None:
            return
        samples = self._samples()

        def written(value: str | None) -> None:
            if value is not None:
                self.put(samples=(*samples[:at], value, *samples[at + 1 :]))

        self.app.push_screen(Write("Completion", samples[at], "What the model might answer."), written)

    def _by_hand(self) -> bool:
        """Whether samples can be written now; says so where they cannot."""
        if self.trial is not None and self.trial.gathered:
            self.notify("These completions are read only. c goes back to those written by hand.", markup=False)
            return False
        return True

    def action_new(self) -> None:
        """Write another sample."""

        def written(value: str | None) -> None:
            if value is not None:
                self.put(samples=(*self._samples(), value))

        if self._by_hand():
            self.app.push_screen(
                Write("New completion", "", "What the model might answer: good, bad, or sly."), written
            )

    def action_delete(self) -> None:
        """Remove a sample written by hand."""
        at = self._own() if self._by_hand() else None
        if at is not None:
            samples = self._samples()
            self.put(samples=samples[:at] + samples[at + 1 :])

    def _samples(self) -> tuple[str, ...]:
        return tuple(sample.text for sample in self.trial.samples if sample.own) if self.trial else ()

    def action_row(self) -> None:
        """Another row to score against."""

        def typed(value: str | None) -> None:
            if value and value.isdigit() and int(value) > 0:
                self.put(row=int(value) - 1)
            elif value:
                self.notify(f"{value} is not a row number.", severity="warning", markup=False)

        about = "Completions without a prompt of their own are scored against the right answer of this row, from 1."
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

        allowed(self, (self.consent,), run_rewards(self), lambda: self.do(attack))

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
            if self.table is not None and self.trial is not None:
                self.table = tryout.reweighted(self.table, weights, self.trial, self.scaling)
            self.probes = None  # they were scored under other weights
            self.answer(replace(self.draft, rewards=replace(self.draft.rewards, items=taken)), look=True)

        about = (
            f"For {', '.join(item.name for item in items)}, with spaces between. 1, 0.5, 0.25, 0.125 add up exactly."
        )
        self.app.push_screen(Type("Weights", " ".join(f"{item.weight:g}" for item in items), about, check=check), typed)

    def action_leave_out(self) -> None:
        """Leave out prompts at which the model is always right or always wrong, or take them back."""
        settled = self.reading.settled if self.reading else {}
        gone = self.draft.dataset.left_out
        known = self.trial.groups.numbers if self.trial else ()
        rows = {each.row for each in gone}
        new = {
            why: tuple(group for group in groups if known[group] not in rows)
            for why, groups in settled.items()
            if known
        }
        choices = [
            Choice(why, f"{why} ({len(groups)})", "they teach nothing as the model is now")
            for why, groups in new.items()
            if groups
        ]
        if len(choices) > 1:
            choices.append(Choice("both", f"both ({sum(map(len, new.values()))})"))
        if gone:
            choices.append(Choice("back", f"take all {len(gone)} back", "they are practised again"))
        if not choices:
            words = "No prompt on the bench is always right or always wrong. t lets the model try."
            self.notify(words, markup=False)
            return

        def answered(why: str | None) -> None:
            if why == "back":
                self._leave_out({})
            elif why is not None:
                self._leave_out(
                    {group: each for each, groups in new.items() if why in (each, "both") for group in groups}
                )

        about = (
            "Of the sampled prompts; others like them stay in the data. A model that learns may come to solve what it "
            "never solves now: leave out what is always wrong only where it will stay so."
        )
        self.app.push_screen(Choose("Leave out which prompts?", choices, choices[0].value, about), answered)

    def _leave_out(self, groups: dict[int, str]) -> None:
        """Leave the prompts of these groups out; none: take all back."""

        def leaving(say: Say) -> Problem | None:
            if self.trial is None:
                return None
            say("Marking the prompts…")
            found = (
                pilot.leave_out(self.session, self.draft, self.trial, groups)
                if groups
                else pilot.take_back(self.session, self.draft)
            )
            if isinstance(found, Problem):
                return found
            self.app.call_from_thread(self.answer, found)
            return None

        self.do(leaving)

    # Going on

    def action_skip(self) -> None:
        """Go on without trying, or try after all."""
        skipped = not self.draft.score.skipped
        self.answer(replace(self.draft, score=replace(self.draft.score, skipped=skipped)))

    def remark(self) -> Trouble | None:
        if self.draft.score.skipped:
            return Trouble("Skipped: nobody has seen what the rewards pay.", "s", "try them")
        verdict = self.reading.signal.verdict if self.reading else self.draft.score.pilot.verdict
        if verdict in NOTHING_TO_LEARN:
            return Trouble(f"Nothing would be learned as it is: {verdict}.", "[", "back to Rewards")
        return None

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
            allowed(self, (self.consent,), run_rewards(self), self.look)

    def settle(self) -> Draft:
        if self.trial is not None and self.trial.gathered:
            return self.draft
        return replace(self.draft, score=replace(self.draft.score, samples=self._samples()))
