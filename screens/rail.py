"""The rail: the nine steps, what was chosen in each, and which must be looked at again."""

from collections.abc import Mapping, Sequence

from rich.text import Text

from grpo_tui.draft import FACT_NAMES, STEPS, Draft
from grpo_tui.inert import one_line

from .line import fit
from .widgets.lines import Lines

TITLES: Mapping[str, str] = {name: name.capitalize() for name in STEPS}
"""Step to its name on the screen."""

_ROLES = {
    "done": ("✓", "ok", "text"),
    "stale": ("!", "warn", "text"),
    "now": ("●", "accent", "text bold"),
    "next": ("○", "faint", "muted"),
}


def chosen(draft: Draft, step: str) -> str:
    """What was answered in a step, in a few cells."""
    if step != draft.step and step not in draft.done:
        return ""
    rewards, hardware = len(draft.rewards.items), draft.hardware
    values = {
        "task": draft.task.recipe.rstrip("/").rpartition("/")[2] or ("own task" if draft.task.verdict else ""),
        "hardware": "CPU" if hardware.cpu else hardware.manual_name or _count(len(hardware.gpus), "GPU"),
        "model": draft.model.name.rstrip("/").rpartition("/")[2],
        "dataset": draft.dataset.source.rstrip("/").rpartition("/")[2],
        "rewards": _count(rewards, "function"),
        "score": "skipped" if draft.score.skipped else "tried" if "score" in draft.done else "",
        "settings": draft.settings.prefer,
        "review": "written" if "review" in draft.done else "",
        "launch": "",
    }
    return values[step]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


class Rail(Lines):
    """Two rows a step where there is room for a column, one row for all where there is not."""

    def __init__(self) -> None:
        super().__init__(id="rail")
        self.draft = Draft()
        self.current = STEPS[0]
        self.stale: Mapping[str, tuple[str, ...]] = {}

    def show(self, draft: Draft, current: str, stale: Mapping[str, tuple[str, ...]]) -> None:
        """Show where the user is, what is done, and what changed since."""
        self.draft, self.current, self.stale = draft, current, stale
        self.repaint()

    def state(self, step: str) -> str:
        """`now`, `stale`, `done` or `next`."""
        if step == self.current:
            return "now"
        if step in self.stale:
            return "stale"
        return "done" if step in self.draft.done else "next"

    def paint(self, width: int, height: int) -> Sequence[Text]:
        return [self.one_row(width)] if height == 1 else self.two_rows(width, height)

    def one_row(self, width: int) -> Text:
        """`✓ ✓ ● ○ ○  Model`, and why a step is stale."""
        text = self.palette.text
        signs = [text((f" {sign}", f"{role} on_surface")) for sign, role, _ in map(_ROLES.get, map(self.state, STEPS))]  # type: ignore[misc]  # every state is a key
        row = text(*signs, (f"  {TITLES[self.current]}", "text bold on_surface"))
        for step, facts in self.stale.items():
            row.append_text(text((f"  ! {TITLES[step]}: {FACT_NAMES[facts[0]]} changed", "warn on_surface")))
        row = fit(row, width)
        row.stylize_before(self.palette.style("on_surface"))
        return row

    def two_rows(self, width: int, height: int) -> list[Text]:
        """A step: its sign and name, then what was chosen, or the word for what changed."""
        text, rows = self.palette.text, [self.palette.text()]
        gap = height >= 3 * len(STEPS) + 5
        for step in STEPS:
            state = self.state(step)
            sign, colour, name = _ROLES[state]
            rows.append(text((f" {sign} ", colour), (TITLES[step], name)))
            last = step == STEPS[-1]
            note = f"{FACT_NAMES[self.stale[step][0]]} changed" if step in self.stale else chosen(self.draft, step)
            role = "warn" if step in self.stale else "text" if state == "now" else "muted"
            rows.append(text((" │ " if not last else "   ", "border"), (one_line(note, max(1, width - 4)), role)))
            if gap and not last:
                rows.append(text((" │ ", "border")))
        rows += [text()] * (height - len(rows))
        surface = self.palette.style("on_surface")
        filled = [fit(row, width) for row in rows]
        for row in filled:
            row.stylize_before(surface)
        return filled
