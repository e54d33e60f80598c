"""One sitting at one project: the facts behind the answers, found when asked and kept while they hold."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui import state
from grpo_tui.draft import FACT_NAMES, STEPS, Draft
from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.child import Worker
    from grpo_tui.hardware.nvml import Machine
    from grpo_tui.recipe import Recipe

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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.capitalize() for name in names)


class Session:
    """Looks things up for a draft. Every method may block: screens call them in threads.

    What was found is kept under the digest of what it rests on; `forget` throws it away.
    """

    def __init__(self, project: Path, *, machine: "Machine | None" = None) -> None:
        """`machine`: the hardware, where it shall not be looked at."""
        self.project = project
        self._given_machine = machine
        self._machine = machine
        self._workers: dict[str, Worker] = {}
        self._kept: dict[str, Any] = {}
        self._guard = threading.Lock()

    # The machine

    def machine_words(self) -> str:
        """The machine in a few words, from what is known by now."""
        return ""

    # Facts

    def facts(self, draft: Draft) -> dict[str, str]:
        """Fingerprints of what the answers rest on, as far as they can be taken."""
        return {}

    def what_changed(self, names: Sequence[str]) -> str:
        """A sentence on the facts that changed since a step was done."""
        changed = " and ".join(FACT_NAMES[name] for name in names)
        return f"Changed since this step was done: {changed}. Look again; enter keeps the answer."

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

    def recipes(self, chosen: str = "") -> "tuple[Recipe, ...]":
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
