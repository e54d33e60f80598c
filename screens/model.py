"""The model to train, and what full training, LoRA and QLoRA would take of the card."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from grpo_tui.hardware.machine import format_gib, format_size
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

from .dialogs import Ask, Type
from .drawn import Block, Choice, Field, Fields
from .line import fit, wrap
from .step import FRAME_KEYS, Say, Step, Trouble
from .widgets.gauge import gauge
from .widgets.panel import head

if TYPE_CHECKING:
    from grpo_tui.plan.model import ModelFacts
    from grpo_tui.plan.plan import Plan
    from grpo_tui.session import HubOffer

TYPED = "typed"
METHODS = (
    Choice("", "chosen by memory", "the most thorough one that fits"),
    Choice("lora", "LoRA", "small matrices beside the weights"),
    Choice("qlora", "QLoRA", "LoRA over weights in 4 bit; CUDA only"),
    Choice("full", "all weights", "needs the most memory"),
)


class ModelStep(Step, inherit_bindings=False):
    """Which model, and which part of it learns."""

    NAME = "model"
    QUESTION = "Which model shall learn?"
    WHY = "GRPO strengthens what the model already does now and then."
    HELP = (
        "A folder that save_pretrained wrote, or a model of the Hugging Face hub as owner/name. For a plan only its "
        "configuration and tokenizer are needed, a few megabytes; weights are fetched when training starts."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "fetch", "fetch configuration"),
        Binding("t", "token", "token", show=False),
        *FRAME_KEYS,
    ]

    facts: "ModelFacts | None" = None
    plans: "Mapping[str, Plan | list[Problem]]" = {}  # noqa: RUF012  replaced as a whole
    known: tuple[tuple[str, str], ...] = ()
    """Names to choose from, each with a remark."""

    on_hub = False
    """The model's name can be one of the hub."""

    def body(self) -> ComposeResult:
        yield Fields("Model", value_width=46, id="model")
        yield Block(self._shape, id="shape")
        yield Block(self._memory, id="memory")

    def find(self, say: Say) -> object:
        # Also wanted where the model cannot be read, so they are no part of the result.
        self.known = tuple(self.session.known_models(self.draft))
        self.on_hub = self.session.is_on_hub(self.draft)
        if not self.draft.model.name:
            return None, {}
        say("Reading the model's configuration…")
        facts = self.session.model(self.draft)
        if isinstance(facts, Problem):
            return facts
        say("Working out the memory…")
        plans = self.session.method_plans(self.draft, say)
        return plans if isinstance(plans, Problem) else (facts, plans)

    def found(self, result: object) -> None:
        self.facts, self.plans = result  # type: ignore[misc]  # the pair that `find` made

    def look(self) -> None:
        self.facts, self.plans = None, {}
        super().look()

    def refresh_body(self) -> None:
        answer = self.draft.model
        choices = (*(Choice(name, name, note) for name, note in self.known), Choice(TYPED, "a hub id or a folder…"))
        fields = [
            Field(
                key="name",
                label="Model",
                value=answer.name,
                choices=choices,
                current=answer.name,
                state="ok" if self.facts else "",
            )
        ]
        if answer.revision or (self.facts and self.facts.commit):
            commit = self.facts.commit[:12] if self.facts else ""
            fields.append(
                Field(
                    key="revision",
                    label="Revision",
                    value=answer.revision or "main",
                    current=answer.revision,
                    note=f"commit {commit}" if commit else "",
                    hint="Branch, tag or commit; empty: main",
                )
            )
        label = next(choice.label for choice in METHODS if choice.value == answer.method)
        fields.append(Field(key="method", label="Train", value=label, current=answer.method, choices=METHODS))
        self.query_one("#model", Fields).show(fields)
        self.query_one("#shape", Block).redraw()
        self.query_one("#memory", Block).redraw()

    def _shape(self, width: int) -> Sequence[Text]:
        if (facts := self.facts) is None:
            return []
        text, shape = self.palette.text, facts.shape
        strip = (
            ("parameters", f"{'' if shape.exact_parameters else '~'}{shape.parameters:,}"),
            ("layers", f"{shape.layers} × {shape.hidden}"),
            ("context", f"{shape.context:,}" if shape.context else "not said"),
            ("weights", shape.dtype or "not said"),
            ("kind", one_line(shape.model_type, 14)),
        )
        cells = max(11, width // len(strip))
        rows = [
            text(*(fit(text((label, "muted")), cells) for label, _ in strip)),
            text(*(fit(text((value, "text bold")), cells) for _, value in strip)),
        ]
        template = (
            ("ok", "A chat template: prompts become a conversation.")
            if facts.chat_template
            else ("warn", "No chat template: prompts are taken as plain text.")
        )
        ends = (
            ("ok", f"Ends with {', '.join(one_line(end, 24) for end in facts.end_tokens[:3])}.")
            if facts.end_tokens
            else ("warn", "No end token is named: completions may never end.")
        )
        for level, words in (template, ends, *(("warn", note) for note in facts.notes)):
            sign = text(("✓ " if level == "ok" else "! ", f"{level} bold"))
            rows += wrap(self.palette, one_line(words, 300), width, "muted" if level == "ok" else "text", sign)
        return rows

    def _memory(self, width: int) -> Sequence[Text]:
        text = self.palette.text
        if not self.plans:
            return []
        known = [plan for plan in self.plans.values() if not isinstance(plan, list) and plan.memory]
        room = max((plan.available_bytes for plan in known), default=0)
        place = "memory (RAM)" if self.draft.hardware.cpu else "GPU memory"
        reading = text((f"{format_gib(room)} free a device" if room else "room unknown", "muted"))
        rows = [head(self.palette, width, f"Peak {place}, predicted", reading=reading)]
        scale = room or max((plan.memory.peak_bytes for plan in known if plan.memory), default=1)
        names = {choice.value: choice.label for choice in METHODS}
        bar = max(8, width - 48)
        for method, plan in self.plans.items():
            name = text((f" {names[method]:<12}", "text"))
            if isinstance(plan, list) or plan.memory is None:
                why = one_line(plan[0].what, 300) if isinstance(plan, list) and plan else "not known"
                rows += wrap(self.palette, why, width, "muted", name)
                continue
            memory = plan.memory
            fits = not room or memory.fits(room)
            share = memory.peak_bytes / scale
            rows.append(
                text(
                    name,
                    gauge(self.palette, bar, share, "accent" if fits else "warn"),
                    (f" {format_gib(memory.peak_bytes):>10}", "text bold"),
                    (f"  {format_gib(memory.interval[0])[:-4]}–{format_gib(memory.interval[1])}", "muted"),
                    ("  ✓ fits" if fits else "  ✗ too big", "ok" if fits else "fail"),
                )
            )
        notes = dict.fromkeys(note for plan in known if plan.memory for note in plan.memory.notes)
        for note in notes:
            rows += wrap(self.palette, note, width, "muted", " ")
        return rows

    @on(Fields.Changed)
    def changed(self, event: Fields.Changed) -> None:
        """Another model, revision or method."""
        if event.value == TYPED and event.key == "name":
            about = "A local folder, or owner/name of the Hugging Face hub."
            current = self.draft.model.name
            self.app.push_screen(
                Type("Model", current, about, paths=self.session.project, folders_only=True), self._take
            )
        elif event.key == "name":
            self._take(event.value)
        else:
            self.answer(replace(self.draft, model=replace(self.draft.model, **{event.key: event.value})), look=True)

    def _take(self, name: str | None) -> None:
        if name:
            self.answer(replace(self.draft, model=replace(self.draft.model, name=name, revision="")), look=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("fetch", "token"):
            return bool(self.failed) and self.on_hub
        return super().check_action(action, parameters)

    def action_fetch(self) -> None:
        """Ask the hub what would be fetched, and then the user."""

        def ask_hub(say: Say) -> Problem | None:
            say(f"Asking the hub about {one_line(self.draft.model.name, 60)}…")
            offer = self.session.hub_offer(self.draft)
            if isinstance(offer, Problem):
                return offer
            self.app.call_from_thread(self._ask_to_fetch, offer)
            return None

        self.do(ask_hub)

    def _ask_to_fetch(self, offer: "HubOffer") -> None:
        def about(width: int) -> Sequence[Text]:
            gated = "Its owner grants access by hand. " if offer.gated else ""
            return [
                *wrap(
                    self.palette,
                    f"Configuration and tokenizer of {one_line(self.draft.model.name, 96)}: "
                    f"{format_size(offer.files_bytes)}, to {offer.place}, where {format_size(offer.free_bytes)} are "
                    "free.",
                    width,
                ),
                *wrap(
                    self.palette,
                    f"{gated}Its weights, {format_size(offer.weight_bytes)}, are not fetched now; a run fetches them.",
                    width,
                    "muted",
                ),
            ]

        def answered(yes: bool | None) -> None:
            if yes:
                self.do(lambda say: self.session.fetch_model(self.draft, say))

        self.app.push_screen(Ask("Fetch from the Hugging Face hub?", about, yes="fetch", no="not now"), answered)

    def action_token(self) -> None:
        """Hand a token to Hugging Face's own store."""

        def given(token: str | None) -> None:
            if token:
                self.do(lambda say: log_in(token, say))

        def log_in(token: str, say: Say) -> Problem | None:
            say("Handing the token to Hugging Face's own store…")
            problem = self.session.log_in(token)
            if problem is None:
                words = "The token is in Hugging Face's own store now."
                self.app.call_from_thread(self.notify, words, markup=False)
            return problem

        about = (
            "For gated models. It goes to Hugging Face's own token file, never into this project. "
            "Make one at huggingface.co/settings/tokens."
        )
        self.app.push_screen(Type("Hugging Face token", "", about, secret=True), given)

    def missing(self) -> Trouble | None:
        if not self.draft.model.name:
            return Trouble("No model is chosen.", "space", "choose one")
        if self.facts is None:
            return Trouble("The model has not been read.", "r", "look again")
        if not self.facts.tokenizer:
            return Trouble("No tokenizer lies beside the model.", "space", "choose another")
        return None
