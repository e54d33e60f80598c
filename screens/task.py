"""What shall be taught, and whether GRPO is the way to teach it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import on
from textual.app import ComposeResult

from grpo_tui.draft import Approval, Draft, TaskAnswer
from grpo_tui.inert import one_line
from grpo_tui.plan.fit import QUESTIONS, Verdict, verdict
from grpo_tui.problem import Problem
from grpo_tui.session import now

from .drawn import GLYPHS, Block, Choice, Field, Fields
from .line import wrap
from .step import Say, Step, Trouble
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.recipe import Recipe

OWN = "own"
FOLDER = "folder"


class TaskStep(Step):
    """A recipe, or a task of one's own."""

    NAME = "task"
    QUESTION = "What shall the model learn?"
    WHY = "GRPO needs a program that can tell good answers from bad ones."
    HELP = (
        "Space changes the field under the cursor, left and right go through its choices. A recipe fills in every "
        "later step; each answer can still be changed."
    )

    recipes: "tuple[Recipe, ...]" = ()

    def body(self) -> ComposeResult:
        yield Fields("Task", value_width=40, id="task")
        yield Fields("Fit", label_width=49, value_width=20, id="fit")
        yield Block(self._verdict, id="verdict")
        yield Block(self._about, id="about-recipe")

    def find(self, say: Say) -> object:
        return self.session.recipes(self.draft.task.recipe)

    def found(self, result: object) -> None:
        self.recipes = result  # type: ignore[assignment]  # the tuple that `find` made

    @property
    def recipe(self) -> "Recipe | None":
        """The chosen recipe, once it has been read."""
        name = self.draft.task.recipe
        return next((r for r in self.recipes if name and name in (r.name, str(r.folder))), None)

    @property
    def verdict(self) -> Verdict:
        """What the fit check says."""
        return verdict(self.draft.task)

    def refresh_body(self) -> None:
        task = self.draft.task
        choices = (
            *(Choice(recipe.task.recipe, recipe.title, "ready-made") for recipe in self.recipes),
            Choice(OWN, "your own task", "your data, your rewards"),
            Choice(FOLDER, "a recipe folder…", "type where it is"),
        )
        current = task.recipe or OWN
        label = next((choice.label for choice in choices if choice.value == current), task.recipe)
        fields = [Field(key="recipe", label="Task", value=label, current=current, choices=choices)]
        self.query_one("#task", Fields).show(fields)
        fields = []
        for question in QUESTIONS:
            value = getattr(task, question.field)
            options = tuple(Choice(choice.value, choice.label, choice.hint) for choice in question.choices)
            shown = next((option.label for option in options if option.value == value), "")
            fields.append(
                Field(
                    key=question.field,
                    label=question.text,
                    value=shown,
                    current=value,
                    choices=options,
                    state="ok" if value else "",
                    hint=question.why,
                )
            )
        said = self.verdict
        if said.method not in ("GRPO", ""):
            overrule = (Choice("no", f"no, {said.method} it is"), Choice("yes", "yes"))
            fields.append(
                Field(
                    key="overruled",
                    label="Go on with GRPO all the same?",
                    choices=overrule,
                    current="yes" if task.overruled else "no",
                    value=overrule[task.overruled].label,
                    state="warn" if task.overruled else "",
                )
            )
        self.query_one("#fit", Fields).show(fields)
        self.query_one("#verdict", Block).redraw()
        self.query_one("#about-recipe", Block).redraw()

    def _verdict(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        said = self.verdict
        if not said.method:
            return [
                head(self.palette, width, "Verdict"),
                text(" ", ("It appears when the questions above are answered.", "muted")),
            ]
        fits = said.method == "GRPO"
        method = text(
            (GLYPHS["ok" if fits else "warn"], "ok bold" if fits else "warn bold"), (f" {said.method}", "text bold")
        )
        rows = [head(self.palette, width, "Verdict", reading=method)]
        for reason in said.reasons:
            rows += wrap(
                self.palette, reason, width, "text", text((" ✓ " if fits else " ! ", "ok" if fits else "warn"))
            )
        for warning in said.warnings:
            rows += wrap(self.palette, warning, width, "text", text((" ! ", "warn bold")))
        if self.draft.task.overruled and not fits:
            rows += wrap(
                self.palette, "You go on with GRPO against this advice; that is recorded.", width, "muted", "   "
            )
        return rows

    def _about(self, width: int) -> Sequence[Text]:
        if (recipe := self.recipe) is None:
            return []
        text = self.palette.text
        rows = [head(self.palette, width, "Recipe", reading=text((one_line(recipe.name, 30), "muted")))]
        rows += wrap(self.palette, one_line(recipe.summary, 400), width, "text", " ")
        facts = (
            ("model", one_line(recipe.model.name if not isinstance(recipe.model, str) else recipe.model, 60)),
            ("data", one_line(recipe.dataset.source, 60)),
            ("rewards", ", ".join(f"{item.name} × {item.weight:g}" for item in recipe.rewards)),
        )
        rows += [text((f" {label:<9}", "muted"), (value or "you choose", "text")) for label, value in facts]
        return rows

    @on(Fields.Changed)
    def changed(self, event: Fields.Changed) -> None:
        """Another task, or another answer of the fit check."""
        if event.key != "recipe":
            value: Any = event.value == "yes" if event.key == "overruled" else event.value
            changes = {event.key: value}
            self._judged(replace(self.draft.task, **changes))
        elif event.value == FOLDER:
            about = "A folder with a recipe.toml. Code in it runs only after your yes."
            from .dialogs import Type  # see Step.action_help

            self.app.push_screen(Type("Recipe folder", "", about, paths=self.session.project), self._take_recipe)
        elif event.value == OWN:
            self._judged(replace(self.draft.task, recipe=""))
        else:
            self._take_recipe(event.value)

    def _judged(self, task: TaskAnswer) -> None:
        self.answer(replace(self.draft, task=replace(task, verdict=verdict(task).method)))

    def _take_recipe(self, name: str | None) -> None:
        if not name:
            return
        begun = self.session.draft_for(name)
        if isinstance(begun, Problem):
            self.notify(str(begun), severity="error", timeout=10, markup=False)
            return
        answers = replace(
            begun,
            task=replace(begun.task, verdict=verdict(begun.task).method),
            hardware=self.draft.hardware if "hardware" in self.draft.done else begun.hardware,
            step=self.draft.step,
            done=self.draft.done,
            approvals=self.draft.approvals,
            files=self.draft.files,
            unknown=self.draft.unknown,
        )
        self.answer(answers, look=True)

    def missing(self) -> Trouble | None:
        task = self.draft.task
        said = self.verdict
        if not said.method:
            open_question = next(question.text for question in QUESTIONS if not getattr(task, question.field))
            new = task == TaskAnswer()
            what = "Choose a ready-made task, or answer for your own." if new else f"Still open: {open_question}"
            return Trouble(what, "space", "choose")
        if said.method != "GRPO" and not task.overruled:
            return Trouble(
                f"{said.method} fits better than GRPO here.", "space", "at the last field to go on all the same"
            )
        return None

    def action_next(self) -> None:
        """Ask first where the recipe's code is not ours."""
        recipe = self.recipe
        allowed = {approval.sha256 for approval in self.draft.approvals if approval.what == "recipe"}
        if recipe is None or not recipe.needs_consent or recipe.sha256 in allowed or self.missing() is not None:
            super().action_next()
            return

        def about(width: int) -> Sequence[Text]:
            return [
                *wrap(self.palette, "This recipe makes its data with a script that did not come with grpo-tui.", width),
                *wrap(self.palette, f"It runs: python {recipe.script}", width, "text bold"),
                *wrap(
                    self.palette,
                    "The yes holds for the code as it is now; a changed file is asked for again.",
                    width,
                    "muted",
                ),
            ]

        def answered(yes: bool | None) -> None:
            if yes:
                approval = Approval(what="recipe", at=now(), sha256=recipe.sha256, detail=str(recipe.folder))
                self.answer(replace(self.draft, approvals=(*self.draft.approvals, approval)))
                self.action_next()

        from .dialogs import Ask  # see Step.action_help

        self.app.push_screen(Ask("Run code of this recipe?", about, yes="run it", no="not now"), answered)

    def settle(self) -> Draft:
        return replace(self.draft, task=replace(self.draft.task, verdict=self.verdict.method))

    def commit(self) -> Draft | Problem | list[Problem]:
        return self.session.begin(self.settle())
