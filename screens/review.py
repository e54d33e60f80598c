"""What will be written, with the differences, and whether everything holds together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui import preflight, tryout
from grpo_tui.draft import Approval, Draft
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

from .consent import allowed, run_rewards
from .dialogs import Show, Type, listing
from .drawn import GLYPHS, Block, Column, Rows
from .line import wrap
from .step import FRAME_KEYS, Say, Step, Trouble
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.preflight import Outlook
    from grpo_tui.run.trial import DryRun


class ReviewStep(Step, inherit_bindings=False):
    """The files, and the check list."""

    NAME = "review"
    QUESTION = "Is this what shall be written?"
    WHY = "The files are yours, and enough to train without this program."
    HELP = (
        "Space shows a file, or how it would change. A file that you have edited is kept as it is unless you choose o; "
        "the old one then stays beside it as a backup. Values you edited in config.toml are taken over as yours. "
        "d makes one real step of this training on the CPU, and a second one from its checkpoint, with your data, "
        "template, rewards and settings and a tiny random model of the same architecture: what fails at step 1 fails "
        "here, within a minute."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "dry_run", "dry run"),
        Binding("o", "overwrite", "keep mine / replace"),
        Binding("t", "token", "tracker's key"),
        *FRAME_KEYS,
    ]

    outlook: "Outlook | None" = None
    replaced: "frozenset[str]" = frozenset()
    """Files edited by the user that shall be replaced all the same."""

    tried: "DryRun | None" = None

    def body(self) -> ComposeResult:
        yield Rows(
            "Files",
            Column("name", 20),
            Column("state", 34),
            Column("lines", 14, right=True),
            empty="Everything on the disk is as it shall be.",
            id="files",
        )
        yield Block(self._list, id="list")
        yield Block(self._tried, id="tried")

    def find(self, say: Say) -> object:
        return preflight.outlook(self.session, self.draft, say)

    def found(self, result: object) -> None:
        self.outlook = result  # type: ignore[assignment]  # what `find` made
        if self.outlook is not None and self.outlook.draft != self.draft:
            self.answer(self.outlook.draft)

    def refresh_body(self) -> None:
        text = self.palette.text
        cells = []
        for change in self.outlook.changes if self.outlook else ():
            if change.old is None:
                state, role, lines = "new", "text", f"+{change.new.count(chr(10))}"
            else:
                added = sum(row.startswith("+") and not row.startswith("+++") for row in change.diff.splitlines())
                gone = sum(row.startswith("-") and not row.startswith("---") for row in change.diff.splitlines())
                lines = f"+{added} −{gone}"
                state, role = "changes", "text"
                if change.edited_by_user:
                    kept = change.name not in self.replaced
                    state, role = ("! edited by you: kept" if kept else "! edited by you: replaced"), "warn"
            cells.append((text((change.name, "text bold")), text((state, role)), text((lines, "muted"))))
        empty = (
            "Everything on the disk is as it shall be." if self.outlook else "The files appear when they are prepared."
        )
        self.query_one(Rows).show(cells, f"in {self.session.project.name}", empty=empty)
        self.query_one("#list", Block).redraw()
        self.query_one("#tried", Block).redraw()

    def _tried(self, width: int) -> Sequence[Text]:
        text, tried = self.palette.text, self.tried
        if self.outlook is None:
            return []
        if tried is None:
            rows = [head(self.palette, width, "Dry run")]
            words = "d makes one real step with your data, rewards and settings, on a tiny model of this architecture."
            return [*rows, *wrap(self.palette, words, width, "muted", " ")]
        state = "ok" if tried.ok else "fail"
        rows = [head(self.palette, width, "Dry run", reading=text((f"{tried.seconds:.0f} s", "muted")))]
        if tried.ok:
            words = f"{tried.steps} steps were made, the second one from the first one's checkpoint."
            rows.append(text((f" {GLYPHS[state]} ", f"{state} bold"), (words, "text")))
        for problem in tried.problems:
            rows += wrap(
                self.palette, one_line(str(problem), 600), width, "text", text((f" {GLYPHS[state]} ", f"{state} bold"))
            )
        return [*rows, *wrap(self.palette, f"Not covered: {', '.join(tried.uncovered)}.", width, "muted", "   ")]

    def action_dry_run(self) -> None:
        """One real step on a small model, after the yes to run the rewards where one is needed."""

        def find_consent(say: Say) -> Problem | None:
            say("Looking at rewards and data…")
            self.app.call_from_thread(self._ask_to_try, tryout.score_consent(self.session, self.draft))
            return None

        if self.outlook is not None and not self.read_only:
            self.do(find_consent)

    def _ask_to_try(self, consent: Approval | None) -> None:
        def trial(say: Say) -> Problem | None:
            if (outlook := self.outlook) is None:
                return None
            say("A dry run: one real step on a tiny model…")
            found = preflight.dry_run(self.session, self.draft, outlook, self.replaced, say)
            if isinstance(found, Problem):
                return found
            self.tried = found
            self.app.call_from_thread(self.answer, preflight.reviewed(self.session, self.draft, found))
            return None

        allowed(self, (consent,), run_rewards(self), lambda: self.do(trial))

    def _list(self, width: int) -> Sequence[Text]:
        if (outlook := self.outlook) is None:
            return []
        text = self.palette.text
        bad = sum(level != "ok" for level, _ in outlook.checks)
        rows = [
            head(
                self.palette,
                width,
                "Check list",
                reading=text((f"{bad} to know" if bad else "all fine", "warn" if bad else "muted")),
            )
        ]
        for level, words in outlook.checks:
            role = "muted" if level == "ok" else "text"
            rows += wrap(self.palette, one_line(words, 400), width, role, text((f" {GLYPHS[level]} ", f"{level} bold")))
        return rows

    @on(Rows.Picked)
    def picked(self, event: Rows.Picked) -> None:
        """Show the file, or its difference."""
        if self.outlook is None:
            return
        change = self.outlook.changes[event.index]
        marks = {"+": "ok", "-": "fail", "@": "accent"} if change.old is not None else {}
        lines = (change.new if change.old is None else change.diff).splitlines()
        self.app.push_screen(Show(change.name, listing(self.palette, lines, marks=marks)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "token":
            return bool(self.outlook and self.outlook.keyless)
        return super().check_action(action, parameters)

    def action_token(self) -> None:
        """Hand a key to the tracker's own store."""
        tracker = self.outlook.keyless[0] if self.outlook and self.outlook.keyless else ""

        def given(key: str | None) -> None:
            if key:
                self.do(lambda say: self.session.log_in_tracker(tracker, key))

        about = f"It goes to the own store of {tracker}, never into this project."
        self.app.push_screen(Type(f"Key for {tracker}", "", about, secret=True), given)

    def action_overwrite(self) -> None:
        """Keep the user's own version of the file under the cursor, or replace it."""
        if self.outlook is None or not self.outlook.changes:
            return
        change = self.outlook.changes[self.query_one(Rows).cursor]
        if change.edited_by_user:
            self.replaced = self.replaced ^ {change.name}
            self.refresh_body()
            self.refresh_frame()

    def missing(self) -> Trouble | None:
        if self.outlook is None:
            return Trouble("The files have not been prepared.", "r", "look again")
        failed = [words for level, words in self.outlook.checks if level == "fail"]
        return Trouble(one_line(failed[0], 200), "esc", "back") if failed else None

    def onward(self) -> str:
        return "write them, go on" if self.outlook and self.outlook.changes else super().onward()

    def commit(self) -> Draft | Problem | list[Problem]:
        assert self.outlook is not None, "enter leads here only when nothing is missing"
        return preflight.write_files(self.session, self.settle(), self.outlook, self.replaced)
