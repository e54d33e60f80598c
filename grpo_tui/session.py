"""One sitting at one project: the facts behind the answers, found when asked and kept while they hold."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_tui import atomic, state
from grpo_tui.draft import FACT_NAMES, STEPS, Draft, HardwareAnswer, RewardsAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.child import Worker
    from grpo_tui.dataset.sources import Source
    from grpo_tui.hardware.environment import Check, Environment
    from grpo_tui.hardware.machine import Machine
    from grpo_tui.plan.model import ModelFacts
    from grpo_tui.recipe import Recipe
    from grpo_tui.rewards.source import FunctionSource

Found = TypeVar("Found")

Say = Callable[[str], None]
"""Takes a sentence about how far something is."""


def now() -> str:
    """The time as the state file writes it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each with its length, so that no two lists of parts collide."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part
        total.update(f"{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def what_is_done(draft: Draft) -> str:
    """What is done and what is not, in a sentence; empty for a new draft."""
    done = [name for name in STEPS if name in draft.done]
    if not done:
        return ""
    left = [name for name in STEPS if name not in draft.done]
    return f"Done: {_listed(done)}. " + (f"Not done yet: {_listed(left)}." if left else "Nothing is left to do.")


def farewell(project: Path, draft: Draft) -> str:
    """What is printed when the wizard is left."""
    words = what_is_done(draft) or "Nothing is answered yet."
    return f"{words} Kept in {project / state.STATE_FILE}. Go on with: grpo-tui --project {project}"


def status_line(project: Path) -> str:
    """How far a project is, for a place without a terminal."""
    loaded = state.load(project)
    if isinstance(loaded, Problem):
        return str(loaded)
    return f"{project}: {what_is_done(loaded.draft) or 'no answers yet.'}"


def is_reward(function: FunctionSource) -> bool:
    """Whether a function of a file is meant as a reward: it takes completions, and its name is not private."""
    return "completions" in function.parameters and not function.name.startswith("_")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.capitalize() for name in names)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A reward function that can be taken: from the project's file, or proposed for its data."""

    name: str
    weight: float
    pays: str
    why: str = ""
    warnings: tuple[str, ...] = ()
    code: str
    origin: str
    """File and lines, or the title of the template."""

    proposed: bool = True
    """Taken unless the user says otherwise."""

    source: Any = None
    """The `FunctionSource` or `Proposal` behind it."""


class Session:
    """Looks things up for a draft. Every method may block: screens call them in threads.

    What was found is kept under the digest of what it rests on; `forget` throws it away.
    """

    def __init__(self, project: Path, *, machine: Machine | None = None) -> None:
        """`machine`: the hardware, where it shall not be looked at."""
        self.project = project
        self._given_machine = machine
        self._machine = machine
        self._workers: dict[str, Worker] = {}
        self._kept: dict[str, Any] = {}
        self._guard = threading.Lock()

    def kept(self, key: str, find: Callable[[], Found]) -> Found:
        """What `find` yields, found once a key; problems are found anew each time."""
        with self._guard:
            if key in self._kept:
                return self._kept[key]  # type: ignore[no-any-return]  # kept under a key of its own kind
        found = find()
        if not isinstance(found, Problem):
            with self._guard:
                self._kept[key] = found
        return found

    # The machine

    def machine(self) -> Machine:
        """The hardware as it was when first looked at, or since `forget`."""
        if self._machine is None:
            from grpo_tui.hardware.nvml import read_machine

            self._machine = read_machine()
        return self._machine

    def machine_words(self) -> str:
        """The machine in a few words, from what is known by now; empty before it was looked at."""
        machine = self._machine
        if machine is None:
            return ""
        kinds = Counter(gpu.name.removeprefix("NVIDIA ") for gpu in machine.gpus)
        gpus = ", ".join(f"{count} × {name}" for name, count in kinds.items()) or "no GPU"
        return f"{one_line(machine.host, 24)}  {one_line(gpus, 36)}"

    def environment(self) -> Environment:
        """Versions, tokens and room on disk."""
        from grpo_tui.hardware.environment import read_environment

        return self.kept("environment", lambda: read_environment(self.project))

    def checks(self) -> list[Check]:
        """What is fine and what is not about this machine."""
        if self._given_machine is not None:
            return []
        from grpo_tui.hardware.environment import checks

        return checks(self.machine(), self.environment())

    def proposed_hardware(self) -> HardwareAnswer:
        """The GPUs to begin with, or the CPU where there are none."""
        from grpo_tui.hardware.machine import suggested

        gpus = tuple(gpu.uuid for gpu in suggested(self.machine()))
        return HardwareAnswer(gpus=gpus, cpu=not gpus)

    def hardware_for(self, place: str) -> HardwareAnswer:
        """The answer to begin with for `gpus`, `cpu` or `other`."""
        if place == "gpus":
            return replace(self.proposed_hardware(), cpu=False)
        if place == "cpu":
            return HardwareAnswer(cpu=True)
        return HardwareAnswer(manual_name="card", manual_count=1)

    # The model

    def model(self, draft: Draft) -> ModelFacts | Problem:
        """The model's figures, from files on this machine."""
        from grpo_tui.plan.model import read_model

        answer = draft.model
        key = digest("model", answer.name, answer.revision)
        return self.kept(key, lambda: read_model(answer.name, answer.revision, project=self.project))

    # Facts

    def facts(self, draft: Draft) -> dict[str, str]:
        """Fingerprints of what the answers rest on, as far as they can be taken."""
        taken = {
            "gpus": self._gpu_mark(draft),
            "model": self._model_mark(draft),
            "data": self._data_mark(draft),
            "rewards": self._rewards_mark(draft),
            "samples": digest(repr(draft.score.samples), repr(draft.score.row)),
            "versions": self._versions_mark(),
            "settings": digest(repr(draft.settings.prefer), repr(sorted(draft.settings.overrides.items()))),
        }
        return {name: mark for name, mark in taken.items() if mark}

    def _gpu_mark(self, draft: Draft) -> str:
        from grpo_tui.hardware.machine import fingerprint

        hardware = draft.hardware
        if hardware.manual_bytes:
            return digest(repr(hardware))
        return fingerprint(self.machine(), () if hardware.cpu else hardware.gpus)

    def _model_mark(self, draft: Draft) -> str:
        facts = self.model(draft) if draft.model.name else None
        return "" if facts is None or isinstance(facts, Problem) else digest(facts.fingerprint, draft.model.method)

    def _data_mark(self, draft: Draft) -> str:
        from grpo_tui.dataset.sources import fingerprint

        if not draft.dataset.source:
            return ""
        source = self.source(draft)
        if isinstance(source, Problem):
            return digest("missing", draft.dataset.source)
        try:
            return digest(fingerprint(source), repr(draft.dataset))
        except OSError:
            return digest("unreadable", draft.dataset.source)

    def _rewards_mark(self, draft: Draft) -> str:
        try:
            content = (self.project / draft.rewards.file).read_bytes()
        except OSError:
            return ""
        return digest(content, repr(draft.rewards.items))

    def _versions_mark(self) -> str:
        from grpo_tui.hardware.environment import versions_fingerprint

        return versions_fingerprint(self.environment())

    # The data

    def source(self, draft: Draft) -> Source | Problem:
        """The opened data set. Not kept: opening is quick, and a file may have changed."""
        from grpo_tui.dataset.sources import is_hub_id, open_source

        answer = draft.dataset
        if is_hub_id(answer.source) and not (self.project / answer.source).exists():
            key = digest("source", answer.source, answer.split, repr(sorted(answer.options.items())))
            return self.kept(key, lambda: open_source(answer.source, answer.options, answer.split))
        place = str(self.project.resolve() / Path(answer.source).expanduser()) if answer.source else ""
        return open_source(place, answer.options, answer.split)

    def what_changed(self, names: Sequence[str]) -> str:
        """A sentence on the facts that changed since a step was done."""
        changed = " and ".join(FACT_NAMES[name] for name in names)
        return f"Changed since this step was done: {changed}. Look again; enter keeps the answer."

    # Rewards

    def offers(self, draft: Draft) -> tuple[tuple[Offer, ...], bool] | Problem:
        """The functions to choose from, and whether they stand in the project's file already."""
        from grpo_tui.rewards.source import read_functions

        path = self.project / draft.rewards.file
        if path.exists():
            functions = read_functions(path)
            if isinstance(functions, Problem):
                return functions
            weights = {item.name: item.weight for item in draft.rewards.items}
            taken = bool(weights)
            return tuple(
                Offer(
                    name=each.name, weight=weights.get(each.name, 1.0), pays=each.doc.strip().partition("\n")[0],
                    code=each.code, origin=f"{path.name}, lines {each.lines[0]}–{each.lines[1]}",
                    proposed=not taken and is_reward(each), source=each,
                )
                for each in functions if each.name in weights or is_reward(each)
            ), True  # fmt: skip
        return self._proposed(draft)

    def _proposed(self, draft: Draft) -> tuple[tuple[Offer, ...], bool] | Problem:
        from grpo_tui.rewards.catalogue import TEMPLATES, proposals, render_rewards

        rows = self.prepared(draft)
        if isinstance(rows, Problem):
            return rows
        columns = list(rows[0]) if rows else []
        return tuple(
            Offer(
                name=each.name, weight=each.weight, pays=TEMPLATES[each.template].pays, why=each.why,
                warnings=each.warnings, code=render_rewards([each]), origin=TEMPLATES[each.template].title, source=each,
            )
            for each in proposals(draft.dataset, columns, rows)
        ), False  # fmt: skip

    def reward_problems(self, draft: Draft, offers: Sequence[Offer]) -> list[Problem]:
        """What would make the training's call of the taken functions fail, found without running them."""
        from grpo_tui.rewards.source import FunctionSource, check_signatures

        functions = [offer.source for offer in offers if isinstance(offer.source, FunctionSource)]
        if not functions:
            return []
        rows = self.prepared(draft)
        columns = list(rows[0]) if not isinstance(rows, Problem) and rows else []
        return check_signatures(functions, columns, [item.name for item in draft.rewards.items])

    def write_rewards(self, draft: Draft, offers: Sequence[Offer]) -> Draft | Problem:
        """Write the taken proposals into the project's file."""
        from grpo_tui.rewards.catalogue import render_rewards

        weights = {item.name: item.weight for item in draft.rewards.items}
        chosen = [replace(offer.source, weight=weights[offer.name]) for offer in offers if offer.name in weights]
        return self._write(draft, {draft.rewards.file: render_rewards(chosen)})

    def take_rewards_file(self, path: Path) -> Problem | None:
        """Copy a file of the user's to the project's rewards file; one that is there is kept beside it."""
        path = self.project / path
        target = self.project / RewardsAnswer().file
        try:
            if target.exists() and path.samefile(target):
                return None
            content = path.read_bytes()
            aside = self.set_rewards_aside() if target.exists() else None
            if aside is None:
                atomic.write(target, content)
        except OSError as error:
            return Problem(str(path), f"It cannot be read: {error.strerror or error}.", "Check its name.")
        return aside

    def set_rewards_aside(self) -> Problem | None:
        """Rename the project's rewards file to a name that is free."""
        target = self.project / RewardsAnswer().file
        names = (target.with_suffix(f".old{number}.py" if number else ".old.py") for number in range(1000))
        try:
            target.rename(next(name for name in names if not name.exists()))
        except OSError as error:
            return Problem(str(target), f"It cannot be renamed: {error.strerror or error}.", "Check the folder.")
        return None

    def _write(self, draft: Draft, rendered: Mapping[str, str], approved: Collection[str] = ()) -> Draft | Problem:
        from grpo_tui.plan import files

        found = files.changes(self.project, draft, rendered)
        return found if isinstance(found, Problem) else files.write(self.project, draft, found, approved)

    # Keeping

    def forget(self) -> None:
        """Look anew from here on."""
        with self._guard:
            self._kept.clear()
            self._machine = self._given_machine

    def cancel(self) -> None:
        """End what the workers do now."""
        for worker in list(self._workers.values()):
            worker.cancel()

    def close(self) -> None:
        """End the workers."""
        for worker in list(self._workers.values()):
            worker.close()

    # Recipes

    def recipes(self, chosen: str = "") -> tuple[Recipe, ...]:
        """The shipped recipes, and the chosen one where it is a folder of the user's."""
        from grpo_tui import recipe as recipes

        shipped = tuple(recipes.find())
        if not chosen or any(chosen == known.name for known in shipped):
            return shipped
        own = recipes.read(chosen)
        return shipped if isinstance(own, Problem) else (*shipped, own)

    def draft_for(self, recipe: str) -> Draft | Problem:
        """The answers of a recipe."""
        from grpo_tui import recipe as recipes

        found = recipes.read(recipe)
        return found if isinstance(found, Problem) else recipes.draft_for(found)

    def begin(self, draft: Draft) -> Draft | Problem:
        """Put the recipe's data and rewards into the project, where there is a recipe; the draft that knows them."""
        from grpo_tui import recipe as recipes

        if not draft.task.recipe:
            return draft
        found = recipes.read(draft.task.recipe)
        if isinstance(found, Problem):
            return found
        allowed = next((yes.sha256 for yes in reversed(draft.approvals) if yes.what == "recipe"), "")
        names = recipes.materialise(found, self.project, approved_sha256=allowed, written=draft.files)
        if isinstance(names, Problem):
            return names
        hashes = {name: hashlib.sha256((self.project / name).read_bytes()).hexdigest() for name in names}
        return replace(draft, files={**draft.files, **hashes})
