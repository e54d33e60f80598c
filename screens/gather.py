"""The dialogs that put completions on the bench: of a file, of a run, of the model, of a server."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text

from grpo_tui import pilot
from grpo_tui.draft import Approval, ScoreAnswer, ServerAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

from .consent import allowed
from .dialogs import Ask, Choose, Type
from .drawn import Choice
from .line import wrap
from .step import Say, Step

if TYPE_CHECKING:
    from grpo_tui.rewards.probes import ProbeTable
    from grpo_tui.tryout import Trial


class Gathering(Step, inherit_bindings=False):
    """A step with a bench on which completions of any origin can be put."""

    trial: "Trial | None" = None
    consent: Approval | None = None
    """The yes that is still needed before the rewards run."""

    probes: "ProbeTable | None" = None
    places: Sequence[tuple[str, str, str]] = ()
    """Where the project has completions: see `pilot.completion_places`."""

    _sampling = False

    def put(self, **changes: object) -> None:
        """Change what stands on the bench: fields of ScoreAnswer."""
        score = replace(self.draft.score, skipped=False, **changes)  # type: ignore[arg-type]  # fields of ScoreAnswer
        self.answer(replace(self.draft, score=score), look=True)

    def action_gather(self) -> None:
        """Choose which completions stand on the bench."""
        present = self.draft.score.completions
        choices = (
            Choice("", "by hand", "those of the recipe, and yours"),
            *(Choice(place, label, note) for place, label, note in self.places),
            Choice("file", "a file…", "JSON lines with `completion`"),
            Choice("run", "a run…", "its folder, in any project"),
            Choice("model", "let the model complete some…", "in groups, as training will"),
            Choice("server", "let a server complete some…", "vLLM, Ollama, a provider"),
        )
        errands: dict[str, Callable[[], None]] = {
            "file": partial(self._type_place, "Completions file", "A file of JSON lines."),
            "run": partial(self._type_place, "Run", "The folder of a run, of this project or another one."),
            "model": self.action_pilot,
            "server": self._ask_for_server,
        }

        def answered(place: str | None) -> None:
            if place in errands:
                errands[place]()
            elif place is not None and place != present:
                self._gather(place)

        self.app.push_screen(Choose("Which completions?", choices, present), answered)

    def _type_place(self, title: str, about: str) -> None:
        def typed(name: str | None) -> None:
            if name:
                self._gather(name)

        self.app.push_screen(Type(title, self.draft.score.completions, about, paths=self.session.project), typed)

    def _gather(self, place: str) -> None:
        self.probes = None
        self.put(completions=place)

    def _ask_for_server(self) -> None:
        """Address, key and model of a server, one after the other."""
        known = self.draft.score.server

        def url_typed(url: str | None) -> None:
            if url:
                about = "The environment variable that holds its key, such as OPENAI_API_KEY; empty: it needs none."
                self.app.push_screen(
                    Type("Key", known.key_variable, about, check=variable_or_nothing), partial(key_typed, url)
                )

        def key_typed(url: str, variable: str | None) -> None:
            if variable is not None:
                self._look_for_models(ServerAnswer(url=url, key_variable=variable, model=known.model))

        about = "With the version, as http://localhost:8000/v1. The prompts of some rows will be sent there."
        self.app.push_screen(Type("Server", known.url, about), url_typed)

    def _look_for_models(self, server: ServerAnswer) -> None:
        def look(say: Say) -> Problem | None:
            say("Asking the server for its models…")
            names = pilot.server_models(server)
            if isinstance(names, Problem):
                return names
            self.app.call_from_thread(self._choose_model if names else self._type_model, server, names)
            return None

        self.do(look)

    def _type_model(self, server: ServerAnswer, names: Sequence[str]) -> None:
        def typed(name: str | None) -> None:
            if name:
                self._choose_prompts(replace(server, model=name))

        about = "The server does not say which models it has: type the name of the one that it serves."
        self.app.push_screen(Type("Model", server.model, about), typed)

    def _choose_model(self, server: ServerAnswer, names: Sequence[str]) -> None:
        def answered(name: str | None) -> None:
            if name:
                self._choose_prompts(replace(server, model=name))

        if not self.doing:
            return  # it was cancelled while the server was asked
        choices = tuple(Choice(name, one_line(name, 60)) for name in names)
        self.app.push_screen(Choose("Which of its models?", choices, server.model), answered)

    def action_pilot(self) -> None:
        """Let the model complete some prompts, and say whether there is anything to learn."""
        self._choose_prompts(pilot.HERE)

    def _choose_prompts(self, server: ServerAnswer) -> None:
        """How many prompts are sampled; more of them say it more exactly."""

        def look(say: Say) -> Problem | None:
            say("Looking at the data…")
            counts = pilot.prompt_counts(self.session, self.draft, say)
            if isinstance(counts, Problem):
                return counts
            consent = pilot.sample_consent(self.session, self.draft, server)
            self.app.call_from_thread(ask, counts, consent)
            return None

        def ask(counts: Sequence[tuple[int, str]], consent: Approval | None) -> None:
            if not self.doing:
                return  # it was cancelled while the data were looked at
            choices = tuple(Choice(str(count), f"{count:,} prompts", note) for count, note in counts)

            def answered(count: str | None) -> None:
                if count:
                    self._ask_to_sample(int(count), server, consent)

            if len(choices) == 1:
                self._ask_to_sample(counts[0][0], server, consent)
            else:
                self.app.push_screen(Choose("How many prompts?", choices, choices[0].value), answered)

        self.do(look)

    def on_unmount(self) -> None:
        """Nobody waits for the model on another step."""
        if self._sampling:
            pilot.stop(self.session)

    def _sampled(self, score: ScoreAnswer, serial: int) -> None:
        """Put what the model made on the bench; what the user answered since look `serial` stays."""
        mine = {name: getattr(score, name) for name in ("completions", "server", "pilot")}
        draft = replace(self.draft, score=replace(self.draft.score, **mine))
        self.answer(draft, look=serial != self._serial)

    def _ask_to_sample(self, prompts: int, server: ServerAnswer, consent: Approval | None) -> None:
        def sampling(say: Say) -> Problem | None:
            self._sampling, serial = True, self._serial
            try:
                found = pilot.sample(self.session, self.draft, say, prompts=prompts, server=server)
            finally:
                self._sampling = False
            if isinstance(found, Problem):
                return found
            self.app.call_from_thread(self._sampled, found.score, serial)
            return None

        def about(width: int) -> Sequence[Text]:
            place = "the chosen GPU" if self.draft.hardware.gpus else "the CPU"
            who = f"{server.model} at {server.url}" if server.url else f"{self.draft.model.name} on {place}"
            leaves = f"The prompts are sent to {server.url}." if server.url else "Nothing leaves this machine."
            return [
                *wrap(
                    self.palette,
                    f"{one_line(who, 240)} completes {prompts:,} prompts of "
                    f"{one_line(self.draft.dataset.source, 200)}, as many times each as the training will, "
                    f"and {self.draft.rewards.file} scores them. They are kept in {pilot.PILOT_FILE}.",
                    width,
                ),
                *wrap(self.palette, f"Nothing is trained. {leaves}", width, "muted"),
            ]

        ask = Ask("Let the model try?", about, yes="let it", no="not now")
        allowed(self, (consent, self.consent), ask, lambda: self.do(sampling))


def variable_or_nothing(text: str) -> str:
    """A check: the name of an environment variable that is set here, or nothing. A pasted key is never one."""
    if not text or text in os.environ:
        return ""
    return "No such variable is set here. Type its name, not the key; export it before grpo-tui is started."
