"""Templates run as the user would run them: written out, loaded, and asked about one completion in every shape."""

from functools import cache
from typing import Any

from grpo_tui.rewards.catalogue import Proposal, render_rewards


def functions(*choices: Proposal) -> dict[str, Any]:
    """The rendered file, run."""
    return _once_run.__wrapped__(render_rewards(choices))


@cache
def _once_run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "rewards"}
    exec(compile(code, "rewards.py", "exec"), names)
    return names


def proposal(template: str, **parameters: Any) -> Proposal:
    return Proposal(template=template, name="paid", parameters=parameters, weight=1.0, why="")


def shapes(text: str) -> list[Any]:
    """Plain, one chat message, parts, and the last of several turns with a tool's reply after it."""
    said = {"role": "assistant", "content": text}
    turns = [{"role": "assistant", "content": "Wait."}, {"role": "tool", "content": "42"}, said]
    return [
        text,
        [said],
        [{"role": "assistant", "content": [{"text": text}]}],
        [*turns, {"role": "tool", "content": "7"}],
    ]


def paid(choice: Proposal, text: str, right: Any = None, **columns: Any) -> float | None:
    """The reward of one completion, which all shapes must agree on. `right` is the row's `answer`."""
    completions = shapes(text)
    count = len(completions)
    rewards = _once_run(render_rewards([choice]))["paid"](
        prompts=["?"] * count,
        completions=completions,
        completion_ids=[text.split()] * count,
        answer=[right] * count,
        trainer_state=None,
        log_extra=lambda name, values: None,
        log_metric=lambda name, value: None,
        **{name: [value] * count for name, value in columns.items()},
        other=[1] * count,
    )
    assert len(rewards) == count
    assert len(set(rewards)) == 1, rewards
    reward: float | None = rewards[0]
    return reward
