"""What is said of a project on leaving and on return: what is done, and what is not."""

from collections.abc import Collection, Sequence
from pathlib import Path

from grpo_tui import state
from grpo_tui.draft import STEPS, Draft
from grpo_tui.problem import Problem


def what_is_done(draft: Draft, changed: Collection[str] = ()) -> str:
    """What is done and what is not, in a sentence; empty for a new draft.

    `changed`: finished steps that something under them has changed since.
    """
    if not draft.done:
        return ""
    parts = {
        "Done": [name for name in STEPS if name in draft.done and name not in changed],
        "To be looked at again": [name for name in STEPS if name in changed],
        "Not done yet": [name for name in STEPS if name not in draft.done],
    }
    said = [f"{title}: {_listed(names)}." for title, names in parts.items() if names]
    return " ".join([*said, *([] if len(said) > 1 else ["Nothing is left to do."])])


def farewell(project: Path, draft: Draft, changed: Collection[str] = ()) -> str:
    """What is printed when the wizard is left."""
    words = what_is_done(draft, changed) or "Nothing is answered yet."
    return f"{words} Kept in {project / state.STATE_FILE}. Go on with:\n  grpo-tui --project {project}"


def status_line(project: Path) -> str:
    """How far a project is, for a place without a terminal."""
    loaded = state.load(project)
    if isinstance(loaded, Problem):
        return str(loaded)
    return f"{project}: {what_is_done(loaded.draft) or 'no answers yet.'}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.capitalize() for name in names)
