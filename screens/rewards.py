"""What the model is paid for: functions, their weights and their code."""

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType

from grpo_tui import offers
from grpo_tui.draft import STEPS, Draft, RewardItem
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded

from .dialogs import Ask, Choose, Show, Type, Write, listing, number
from .drawn import GLYPHS, Block, Choice, Column, Rows
from .line import wrap
from .step import FRAME_KEYS, Say, Step, Trouble
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.offers import Offer, Offered
    from grpo_tui.rewards.kinds import Proposal


WATCH_SECONDS = 1.0
"""How often the file is looked at for changes made elsewhere."""


LOOKING_ONLY = Problem("rewards", "The project was opened for looking only.", "Close the other grpo-tui first.")


class Functions(Rows):
    """The functions to choose from."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "pick", "use")]


class RewardsStep(Step, inherit_bindings=False):
    """Three to five functions and their weights."""

    NAME = "rewards"
    QUESTION = "What is the model paid for?"
    WHY = "The weighted sum of these numbers is all that the model learns from."
    HELP = (
        "Space takes a function or leaves it; + and - double and halve its weight, w types it; c shows its code, "
        "e edits the file (in $EDITOR, or here), f takes another one; what is saved elsewhere is read again by itself. "
        "a adds a function of the catalogue; m makes one from a format that you describe, with tests beside it. "
        "Correctness should outweigh all the rest together. A function of weight 0 only watches: it is recorded, and "
        "shows where the model earns without getting better; s proposes some, and prompts held out for them."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "code", "code"),
        Binding("plus,equals_sign,right", "scale(2.0)", "double weight", key_display="+", show=False),
        Binding("minus,left", "scale(0.5)", "halve weight", key_display="-", show=False),
        Binding("w", "weight", "weight"),
        Binding("e", "edit", "edit"),
        Binding("a", "add", "add one"),
        Binding("s", "canaries", "let one watch"),
        Binding("f", "file", "own file"),
        Binding("m", "format", "describe a format", show=False),
        Binding("p", "propose", "propose anew", show=False),
        *FRAME_KEYS,
    ]

    offered: "Offered | None" = None
    problems: "tuple[Problem, ...]" = ()
    _saved: int | None = None
    """When the file was last written, in nanoseconds; None: not looked at yet."""

    def body(self) -> ComposeResult:
        yield Functions(
            "Functions",
            Column("use", 3),
            Column("name", 18),
            Column("weight", 8, right=True),
            Column("pays for", rank=1),
            empty="No function yet.",
            id="functions",
        )
        yield Block(self._detail, id="detail")
        yield Block(self._problems, id="problems")

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(WATCH_SECONDS, self._watch)

    def find(self, say: Say) -> object:
        say("Reading the reward functions…")
        return offers.offered(self.session, self.draft)

    @property
    def offers(self) -> "tuple[Offer, ...]":
        """The functions to choose from."""
        return self.offered.offers if self.offered else ()

    @property
    def from_file(self) -> bool:
        """They stand in the project's file already."""
        return self.offered is not None and self.offered.from_file

    def found(self, result: object) -> None:
        self.offered = result  # type: ignore[assignment]  # what `find` made
        names = {offer.name for offer in self.offers}
        items = tuple(item for item in self.draft.rewards.items if item.name in names)
        if not items:
            items = tuple(RewardItem(name=offer.name, weight=offer.weight) for offer in self.offers if offer.proposed)
        if items != self.draft.rewards.items:
            self.answer(replace(self.draft, rewards=replace(self.draft.rewards, items=items)))
        self._check()

    def _check(self) -> None:
        self.problems = tuple(offers.reward_problems(self.draft, self.offered)) if self.offered else ()

    @property
    def weights(self) -> dict[str, float]:
        """Name to weight, of the functions that are taken."""
        return {item.name: item.weight for item in self.draft.rewards.items}

    def refresh_body(self) -> None:
        text = self.palette.text
        weights = self.weights
        cells = []
        for offer in self.offers:
            weight = weights.get(offer.name)
            role = "muted" if not weight else "text"
            cells.append(
                (
                    text(("✓", "ok bold")) if weight is not None else text(("·", "muted")),
                    text((one_line(offer.name, 40), role)),
                    text((f"{offer.weight if weight is None else weight:g}", f"{role} bold" if weight else "muted")),
                    text(("only watches: " if weight == 0 else "", "muted"), (one_line(offer.pays, 200), role)),
                )
            )
        total = sum(weights.values())
        where = self.draft.rewards.file if self.from_file else "proposed from the data"
        reading = f"{len(weights)} of {len(self.offers)} · highest sum {total:g} · {where}" if self.offers else ""
        self.query_one(Rows).show(cells, reading)
        self.query_one("#detail", Block).redraw()
        self.query_one("#problems", Block).redraw()

    def _detail(self, width: int) -> Sequence[Text]:
        if not self.offers:
            return []
        offer = self.offers[self.query_one(Rows).cursor]
        rows = [head(self.palette, width, one_line(offer.name, 40), reading=self.palette.text((offer.origin, "muted")))]
        for words in (offer.why, offer.pays):
            if words:
                rows += wrap(self.palette, one_line(words, 300), width, "text", " ")
        for warning in offer.warnings:
            rows += wrap(self.palette, one_line(warning, 400), width, "text", self.palette.text((" ! ", "warn bold")))
        return rows

    def _problems(self, width: int) -> Sequence[Text]:
        if not self.problems:
            return []
        rows = [head(self.palette, width, "To mend", reading=self.palette.text((str(len(self.problems)), "warn")))]
        for problem in self.problems:
            sign = self.palette.text((f" {GLYPHS['fail']} ", "fail bold"))
            rows += wrap(self.palette, one_line(str(problem), 500), width, "text", sign)
        return rows

    def on_rows_moved(self) -> None:
        """Show the function under the cursor."""
        self.query_one("#detail", Block).redraw()

    @on(Rows.Picked)
    def picked(self, event: Rows.Picked) -> None:
        """Take this function, or leave it."""
        offer = self.offers[event.index]
        weights = self.weights
        if offer.name in weights:
            del weights[offer.name]
        else:
            weights[offer.name] = offer.weight
        self._take(weights)

    def _take(self, weights: dict[str, float]) -> None:
        items = tuple(
            RewardItem(name=offer.name, weight=weights[offer.name]) for offer in self.offers if offer.name in weights
        )
        self.draft = replace(self.draft, rewards=replace(self.draft.rewards, items=items))
        self._check()
        self.answer(self.draft)

    def _here(self) -> "Offer | None":
        return self.offers[self.query_one(Rows).cursor] if self.offers else None

    def action_scale(self, factor: float) -> None:
        """Another weight, exact in binary."""
        offer = self._here()
        if offer is not None and offer.name in self.weights:
            self._take({**self.weights, offer.name: self.weights[offer.name] * factor or factor / 2})

    def action_weight(self) -> None:
        """Type the weight."""
        offer = self._here()
        if offer is None:
            return

        def typed(value: str | None) -> None:
            if value is not None:
                self._take({**self.weights, offer.name: float(value.replace(",", "."))})

        about = "How much it counts. 0: it is logged, not paid. Numbers such as 1, 0.25, 0.125 add up exactly."
        self.app.push_screen(
            Type(f"Weight of {offer.name}", f"{self.weights.get(offer.name, offer.weight):g}", about, check=number),
            typed,
        )

    def action_code(self) -> None:
        """Show the code of the function under the cursor."""
        offer = self._here()
        if offer is not None:
            self.app.push_screen(
                Show(f"{offer.name} · {offer.origin}", listing(self.palette, offer.code.splitlines(), numbered=True))
            )

    def action_edit(self) -> None:
        """Edit the rewards file: in the editor of the environment, or here where there is none."""
        if self.offered is None:
            self.notify("One moment: the functions are being read.", markup=False)
            return
        if self.read_only or not self.from_file:
            words = LOOKING_ONLY.what if self.read_only else "Nothing is written yet: enter writes rewards.py."
            self.notify(words, markup=False)
            return
        path = self.session.project / self.draft.rewards.file
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if editor:
            try:
                with self.app.suspend():
                    # The editor's own words stay on the terminal; whatever it returns, the file is read again.
                    subprocess.run([*shlex.split(editor), str(path)], check=False)
            except (OSError, ValueError) as error:
                self.notify(f"{editor} cannot be started: {error}.", severity="error", markup=False)
            except SuspendNotSupported:
                self._read_to_edit(path)
            self.look()
        else:
            self._read_to_edit(path)

    @work(thread=True, exclusive=True, group="edit")
    def _read_to_edit(self, path: Path) -> None:
        from grpo_tui.rewards.source import read_text

        text = read_text(path)
        if isinstance(text, Problem):
            self.app.call_from_thread(self.notify, str(text), severity="error", markup=False)
            return
        self.app.call_from_thread(self._edit_here, path, text)

    def _edit_here(self, path: Path, text: str) -> None:
        def edited(new: str | None) -> None:
            if new is not None and new != text:
                self._do(lambda: offers.write_code(path, new))

        about = "Set $EDITOR to edit it in an editor of yours. Nothing in it is run by saving it."
        self.app.push_screen(Write(one_line(path.name, 60), text, about, code=True), edited)

    def action_add(self) -> None:
        """Add a function of the catalogue."""
        choices = tuple(Choice(key, title, pays) for key, title, pays in offers.templates())

        def answered(key: str | None) -> None:
            if key:
                self._add(lambda draft: offers.add_template(self.session, draft, key))

        self.app.push_screen(Choose("Which function?", choices, choices[0].value), answered)

    def action_format(self) -> None:
        """Make a function from a described format."""

        choices = (
            Choice("no", "strict alone", "all of it or nothing"),
            Choice("watch", "and a gradual one that watches", "weight 0: shows how near the model comes"),
            Choice("pay", "and a gradual one, paid a little", "to begin with; it can be gamed"),
        )

        def answered(text: str | None) -> None:
            if text and text.strip():
                self.do(partial(read, text))

        def read(text: str, say: Say) -> Problem | None:
            problem = offers.format_problem(text)
            if problem is None:
                ask = Choose("Strict, or gradual too?", choices, "no")
                self.app.call_from_thread(self.app.push_screen, ask, partial(chosen, text))
            return problem

        def chosen(text: str, gradual: str | None) -> None:
            if gradual:
                self._add(lambda draft: offers.add_format(self.session, draft, text, gradual))

        about = (
            "Tags in their order, such as: reasoning, answer(value, unit), note? Or an example of a good output, or a "
            "JSON schema. The function pays only for outputs that keep all of it; tests are written beside it."
        )
        self.app.push_screen(Write("The format", "", about), answered)

    def action_canaries(self) -> None:
        """Let functions watch with weight 0."""

        def look(say: Say) -> Problem | None:
            say("Looking at the data…")
            found = offers.canaries(self.session, self.draft)
            if isinstance(found, Problem):
                return found
            self.app.call_from_thread(self._choose_canaries, found)
            return None

        self.do(look)

    def _choose_canaries(self, found: "Sequence[Proposal]") -> None:
        if not found:
            words = "All that are proposed for these data watch already. w and 0 lets any other function only watch."
            self.notify(words, markup=False)
            return
        choices = [Choice(each.name, each.name, one_line(each.why, 200)) for each in found]
        if len(found) > 1:
            choices.insert(0, Choice("", f"all {len(found)}", "none of them has a say"))

        def answered(name: str | None) -> None:
            chosen = [each for each in found if name in ("", each.name)]
            if chosen and self.draft.dataset.eval_share:
                self._let_watch(chosen, False)
            elif chosen:
                self._ask_to_hold_out(chosen)

        about = "A function that watches has weight 0: it is recorded at every step, and nothing is learned from it."
        self.app.push_screen(Choose("Which one shall watch?", choices, choices[0].value, about), answered)

    def _ask_to_hold_out(self, chosen: "Sequence[Proposal]") -> None:
        def about(width: int) -> Sequence[Text]:
            words = (
                "Every function is then also asked on prompts that the model is not trained on: 5 % of them, chosen by "
                "their text. Where the two curves part, the model has learned prompts or rewards by heart."
            )
            return wrap(self.palette, words, width)

        def answered(yes: bool | None) -> None:
            self._let_watch(chosen, bool(yes))

        self.app.push_screen(Ask("Hold out some prompts?", about, yes="hold out 5 %", no="train on all"), answered)

    def _let_watch(self, chosen: "Sequence[Proposal]", held_out: bool) -> None:
        def change(draft: Draft) -> Draft | Problem:
            added = offers.add_canaries(self.session, draft, chosen)
            return offers.hold_out(self.session, added) if held_out and isinstance(added, Draft) else added

        self._add(change)

    def _add(self, change: "Callable[[Draft], Draft | Problem]") -> None:
        """Write what is proposed, if nothing is written yet, and then the addition."""

        def adding(say: Say) -> Problem | None:
            if self.read_only:
                return LOOKING_ONLY
            say("Writing the function…")
            draft: Draft | Problem = self.draft
            if not self.from_file:
                draft = offers.write_rewards(self.session, self.settle(), self.offers)
            draft = draft if isinstance(draft, Problem) else change(draft)
            if isinstance(draft, Problem):
                return draft
            self.app.call_from_thread(self.answer, draft)
            return None

        self.do(adding)

    def action_file(self) -> None:
        """Take functions from a file of one's own."""

        def typed(name: str | None) -> None:
            if not name:
                return
            self._do(lambda: offers.take_rewards_file(self.session, expanded(name)), anew=True)

        about = (
            "A Python file with functions like `def correct(completions, answer, **kwargs): ...`, one number per "
            "completion. It is copied to rewards.py; nothing in it is run yet."
        )
        self.app.push_screen(Type("Own rewards", "", about, paths=self.session.project), typed)

    @work(thread=True, exclusive=True, group="edit")
    def _do(self, change: "Callable[[], Problem | None]", anew: bool = False) -> None:
        """Change the file in a thread, then read it; `anew`: other functions, so none is taken yet."""
        problem = LOOKING_ONLY if self.read_only else change()
        if problem is not None:
            self.app.call_from_thread(self.notify, str(problem), severity="error", timeout=10, markup=False)
            return
        self.app.call_from_thread(self._changed, anew)

    def _changed(self, anew: bool) -> None:
        items = () if anew else self.draft.rewards.items
        self.answer(replace(self.draft, rewards=replace(self.draft.rewards, items=items)), look=True)

    @work(thread=True, exclusive=True, group="watch")
    def _watch(self) -> None:
        """Look again when the file was saved elsewhere."""
        try:
            saved = (self.session.project / self.draft.rewards.file).stat().st_mtime_ns
        except OSError:
            saved = 0
        before, self._saved = self._saved, saved
        if before is not None and before != saved and not self.doing:
            self.app.call_from_thread(self.look)

    def action_propose(self) -> None:
        """Propose from the data again, where rewards.py is ours to replace."""
        choices = (
            Choice("keep", "keep rewards.py"),
            Choice("move", "propose anew", "rewards.py is kept as rewards.old.py"),
        )

        def answered(value: str | None) -> None:
            if value == "move":
                self._do(lambda: offers.set_rewards_aside(self.session), anew=True)

        if self.from_file:
            self.app.push_screen(Choose("Propose from the data?", choices, "keep"), answered)

    def missing(self) -> Trouble | None:
        if not self.draft.rewards.items:
            return Trouble("No function is taken.", "space", "take one")
        if not any(self.weights.values()):
            return Trouble("All weights are 0: nothing would be learned.", "w", "type a weight")
        if self.problems:
            return Trouble(f"{one_line(self.problems[0].what, 160)}", "f", "another file; r reads it again")
        return None

    def remark(self) -> Trouble | None:
        if not (unasked := offers.unasked(self.draft, self.offers)):
            return None
        return Trouble(unasked, str(STEPS.index("dataset") + 1), "go to the prompt")

    def onward(self) -> str:
        return super().onward() if self.from_file else "write rewards.py, go on"

    def commit(self) -> Draft | Problem | list[Problem]:
        return offers.write_rewards(self.session, self.settle(), self.offers) if not self.from_file else self.settle()
