"""What is laid over the panels: to read, to choose, to say yes to. Imported when wanted: the first paint needs none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from grpo_tui.screens.dialogs import Ask, Choose, Show
from grpo_tui.screens.drawn import Choice
from grpo_tui.screens.line import wrap
from grpo_tui.screens.theme import Palette
from rich.text import Text

from grpo_tui.inert import inert, one_line
from grpo_tui.progress.completions import CompletionTable
from grpo_tui.run.folder import RunSummary

from .completions import CompletionsPanel
from .facts import STATES
from .figures import exact
from .sight import Sight

OTHER_KEYS = (
    ("[ ]", "In the completions: the kept step before and after."),
    ("↑ ↓", "In completions and log: up and down; g and G to the ends."),
)
NOTES = (
    "The arrows in the strip compare the last five rows with those fifty steps before. "
    "The band around the reward is its spread over the batch; the whisker over other lines reaches to the "
    "greatest of the rows that share a column. Groups without signal are computed here from the rewards."
)


@dataclass(frozen=True)
class Request:
    """What the viewer may ask of a training that runs."""

    question: str
    about: str
    asked: str
    """What is said once it has been asked."""


JOURNALLED = "The request is written to the run's journal with your name."
REQUESTS: Mapping[str, Request] = MappingProxyType(
    {
        "stop": Request(
            "Stop this training?",
            "It ends after the current step and writes a checkpoint first, from which it can go on later. "
            f"{JOURNALLED}",
            "Asked to stop after the current step.",
        ),
        "save": Request(
            "Write a checkpoint now?",
            f"It is written after the current step; training goes on. {JOURNALLED}",
            "Asked for a checkpoint after this step.",
        ),
    }
)


def completion(palette: Palette, sight: Sight, panel: CompletionsPanel, table: CompletionTable) -> Show:
    """The completion under the panel's cursor: prompt, text, every reward, their sum, the advantage."""
    group, index = panel.order(table)[panel.place]
    total, advantage = panel.sums(sight, table)[index], table.advantages[index]
    weights = dict(zip(sight.progress.reward_names, sight.progress.weights, strict=False))

    def figure(name: str, value: float | None, weight: str = "") -> Text:
        return palette.text((f"{name:<30} ", "muted"), (exact(value), "text bold"), (weight, "muted"))

    def draw(width: int) -> list[Text]:
        lines = [palette.text(("Prompt", "muted bold"))]
        lines += wrap(palette, inert(table.prompts[index]), width, "muted")
        lines += [palette.text(), palette.text(("Completion", "muted bold"))]
        lines += wrap(palette, inert(table.completions[index]), width, "text")
        lines += [palette.text(), palette.text(("Rewards", "muted bold"))]
        for name, values in table.rewards.items():
            weight = f"  × {exact(weights[name])}" if name in weights else ""
            lines.append(figure(one_line(name, 30), values[index], weight))
        lines += [figure("weighted sum", total), figure("advantage", advantage)]
        for name, texts in table.extra.items():
            lead = palette.text((f"{one_line(name, 30):<30} ", "muted"))
            lines += wrap(palette, inert(texts[index]), width, "text", lead)
        for note in table.notes:
            lines += wrap(palette, note, width, "text", palette.text(("! ", "warn bold")))
        return lines

    return Show(f"Step {table.step}, group {group + 1}, completion {panel.place + 1} of {len(table.completions)}", draw)


def keys(palette: Palette, rows: Sequence[tuple[str, str]]) -> Show:
    """All keys, `rows` of sign and words, and what the signs in the panels mean."""

    def draw(width: int) -> list[Text]:
        lines = []
        for sign, words in (*rows, *OTHER_KEYS):
            lines += wrap(palette, words, width, "text", palette.text((f"{sign:<9}", "accent bold")))
        return [*lines, palette.text(), *wrap(palette, NOTES, width, "muted")]

    return Show("Keys", draw)


def after_training(palette: Palette, run: Path, lines: str) -> Show:
    """Where the trained model is and how to load it."""
    where = f"After training: {one_line(str(run), 60)}"
    return Show(where, lambda width: wrap(palette, inert(lines), width, "text"))


def choice_of_run(found: Sequence[RunSummary], here: Path) -> Choose:
    """The runs of the project, the one that is watched chosen."""
    choices = [Choice(str(one.run), one_line(one.name, 28), _in_words(one)) for one in found]
    return Choose("Runs of this project", choices, str(here))


def _in_words(one: RunSummary) -> str:
    far = f"step {one.life.step}" + (f" of {one.life.max_steps}" if one.life.max_steps else "")
    return f"{STATES[one.life.state][0]} {one.life.state}  {far}"


def request(palette: Palette, action: str) -> Ask:
    """Whether `action` shall be asked of the training."""
    asked = REQUESTS[action]
    return Ask(
        asked.question, lambda width: wrap(palette, asked.about, width, "text"), yes=f"{action} it", no="no, go on"
    )
