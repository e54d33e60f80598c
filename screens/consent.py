"""The yes that must be given before code or a model runs on the user's data."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.text import Text

from grpo_tui.draft import Approval
from grpo_tui.inert import one_line

from .dialogs import Ask
from .line import wrap
from .step import Step


def allowed(step: Step, consents: Sequence[Approval | None], ask: Ask, then: Callable[[], None]) -> None:
    """Do `then` at once where every yes was given (None), else after `ask` got it; the yes is kept."""
    wanted = tuple(each for each in consents if each is not None)

    def answered(yes: bool | None) -> None:
        if yes:
            step.answer(replace(step.draft, approvals=(*step.draft.approvals, *wanted)))
            then()

    if wanted:
        step.app.push_screen(ask, answered)
    else:
        then()


def run_rewards(step: Step) -> Ask:
    """The question whether the project's reward functions may run on its data."""

    def about(width: int) -> Sequence[Text]:
        rewards = step.draft.rewards
        what = (
            f"Runs {', '.join(rewards.names)} of {rewards.file} on completions, with the prompts and the answers of "
            f"{step.draft.dataset.source}."
        )
        how = (
            "In a process of its own, without your tokens. Code can still read files and use the network: read it "
            "first (c on the Rewards step). The yes holds for this file and this data."
        )
        rows = wrap(step.palette, one_line(what, 400), width)
        return [*rows, step.palette.text(), *wrap(step.palette, how, width, "muted")]

    return Ask("Run the reward functions?", about, yes="run them", no="not now")
