"""Columns of figures by step, and what they are called."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Column:
    """The store behind `Series`: two buffers that double when full and are otherwise only written past `used`.

    So any number of snapshots share one store, appending costs the same however long the run is, and numpy can look at
    the buffers without copying while the next figure is added (a buffer that is looked at must not change its size).
    """

    __slots__ = ("steps", "used", "values")

    def __init__(self, steps: "array[int]", values: "array[float]", used: int) -> None:
        self.steps = steps
        self.values = values
        self.used = used

    @classmethod
    def empty(cls) -> "Column":
        return cls(array("q", bytes(8 * 16)), array("d", bytes(8 * 16)), 0)

    def first(self, length: int) -> "Column":
        """A store of its own with the first `length` points."""
        return Column(self.steps[: max(length, 16)], self.values[: max(length, 16)], length)

    def append(self, step: int, value: float) -> None:
        used = self.used
        if used == len(self.values):
            self.steps = self.steps + self.steps
            self.values = self.values + self.values
        self.steps[used] = step
        self.values[used] = value
        self.used = used + 1


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Values of one metric by step, oldest first. A step where the metric was not logged has no point: missing is not
    zero.
    """

    column: Column = field(default_factory=Column.empty, repr=False)
    length: int = 0

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> "Series":
        """A series of `points` (step, value), in rising order of steps."""
        column = Column.empty()
        for step, value in points:
            column.append(step, value)
        return cls(column, column.used)

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return self.length > 0

    @property
    def steps(self) -> "NDArray[np.int64]":
        """Steps, shape (length,). A view: not to be written."""
        import numpy as np

        return np.frombuffer(self.column.steps, dtype=np.int64, count=self.length)

    @property
    def values(self) -> "NDArray[np.float64]":
        """Values as logged, shape (length,), NaN and infinities among them. A view: not to be written."""
        import numpy as np

        return np.frombuffer(self.column.values, dtype=np.float64, count=self.length)

    def point(self, index: int) -> tuple[int, float]:
        """The point at `index`, which may count from the end as -1."""
        if not -self.length <= index < self.length:
            raise IndexError(index)
        index %= self.length
        return self.column.steps[index], self.column.values[index]

    def last(self) -> tuple[int, float] | None:
        """The newest point, or None."""
        return self.point(-1) if self.length else None

    def at(self, step: int) -> float | None:
        """The value logged for exactly `step`, or None."""
        index = bisect_right(self.column.steps, step, 0, self.length) - 1
        return self.column.values[index] if index >= 0 and self.column.steps[index] == step else None

    def recent(self, count: int) -> list[float]:
        """The newest `count` values, oldest first, without numpy."""
        return self.column.values[max(0, self.length - count) : self.length].tolist()


@dataclass(frozen=True, slots=True)
class Metric:
    """What one logged key means."""

    key: str
    title: str
    unit: str
    meaning: str
    """One sentence for the value table."""

    aliases: tuple[str, ...] = ()
    """What other generations of TRL called it."""


_TABLE = (
    Metric(
        "loss",
        "loss",
        "",
        "Says little: advantages in a group sum to zero, so on-policy the loss sits near 0 whatever is learnt; "
        "watch the reward.",
    ),
    Metric(
        "grad_norm",
        "gradient norm",
        "",
        "Length of the gradient before clipping; 0 means no signal, a spike a bad batch.",
    ),
    Metric(
        "learning_rate",
        "learning rate",
        "",
        "As the schedule has it at this step; 0 during the first warm-up step is normal.",
    ),
    Metric("epoch", "epoch", "epochs", "Passes over the training prompts."),
    Metric(
        "num_tokens",
        "tokens",
        "tokens",
        "Prompt and completion tokens so far, all processes; prompts count once per completion.",
    ),
    Metric(
        "step_time",
        "seconds per step",
        "s",
        "One optimizer step on the logging process, generation and rewards included.",
    ),
    Metric(
        "completions/mean_length",
        "mean length",
        "tokens",
        "Mean completion length; at the limit it means cut answers.",
        ("completion_length", "mean_completion_length", "completions/mean_len"),
    ),
    Metric("completions/min_length", "shortest", "tokens", "Shortest completion.", ("min_completion_length",)),
    Metric(
        "completions/max_length",
        "longest",
        "tokens",
        "Longest completion; the limit when any answer was cut.",
        ("max_completion_length",),
    ),
    Metric(
        "completions/clipped_ratio",
        "cut at the limit",
        "share",
        "Share of completions that did not end by themselves but were cut at the limit.",
        ("clipped_completions_ratio",),
    ),
    Metric(
        "completions/mean_terminated_length",
        "mean length, finished",
        "tokens",
        "Mean length of completions that ended by themselves; 0 when none did.",
    ),
    Metric(
        "completions/min_terminated_length",
        "shortest, finished",
        "tokens",
        "Shortest completion that ended by itself; 0 when none did.",
    ),
    Metric(
        "completions/max_terminated_length",
        "longest, finished",
        "tokens",
        "Longest completion that ended by itself; 0 when none did.",
    ),
    Metric(
        "reward", "reward", "", "Mean of the weighted sum of all reward functions, over all completions of the row."
    ),
    Metric(
        "reward_std",
        "reward spread",
        "",
        "Standard deviation of the weighted sum over the whole batch, not within groups.",
    ),
    Metric(
        "frac_reward_zero_std",
        "groups without signal (TRL)",
        "share",
        "TRL's own share of groups with equal rewards. Float rounding hides flat groups for most weights: trust the "
        "share computed from the rewards.",
    ),
    Metric(
        "entropy",
        "entropy",
        "nats",
        "Mean entropy of the next-token distribution; a slow fall is normal, a fall to 0 is collapse.",
    ),
    Metric(
        "kl",
        "KL to the start",
        "nats",
        "Mean per-token divergence from the reference model; logged only when beta is not 0.",
    ),
    Metric(
        "clip_ratio/low_mean",
        "clipped low",
        "share",
        "Tokens with a negative advantage whose ratio fell below 1 - epsilon; 0 on-policy.",
    ),
    Metric(
        "clip_ratio/high_mean",
        "clipped high",
        "share",
        "Tokens with a positive advantage whose ratio rose above 1 + epsilon; 0 on-policy.",
    ),
    Metric(
        "clip_ratio/region_mean", "clipped", "share", "Tokens clipped on either side; 0 on-policy.", ("clip_ratio",)
    ),
    Metric(
        "clip_ratio/low_min", "clipped low, least", "share", "Least share of clipped tokens in any sequence, low side."
    ),
    Metric(
        "clip_ratio/high_max",
        "clipped high, most",
        "share",
        "Largest share of clipped tokens in any sequence, high side.",
    ),
    Metric("cispo_clip_ratio", "clipped (CISPO)", "share", "Share of tokens whose importance weight CISPO capped."),
    Metric("vespo/phi_seq_mean", "VESPO weight", "", "Mean sequence weight of the VESPO loss."),
    Metric(
        "sampling/sampling_logp_difference/mean",
        "log-prob mismatch",
        "nats",
        "Mean difference between the sampler's and the trainer's token log-probabilities.",
    ),
    Metric(
        "sampling/sampling_logp_difference/max",
        "log-prob mismatch, largest",
        "nats",
        "Largest such difference of one token; above 1 can be normal.",
    ),
    Metric(
        "sampling/importance_sampling_ratio/min",
        "sampling ratio, least",
        "",
        "Smallest trainer-to-sampler ratio after clipping or masking.",
    ),
    Metric(
        "sampling/importance_sampling_ratio/mean",
        "sampling ratio",
        "",
        "Mean trainer-to-sampler ratio after clipping or masking; near 1 when the two agree.",
    ),
    Metric(
        "sampling/importance_sampling_ratio/max",
        "sampling ratio, largest",
        "",
        "Largest trainer-to-sampler ratio after clipping or masking.",
    ),
    Metric("policy_loss", "policy loss", "", "The loss without the entropy bonus; logged only with one."),
    Metric("entropy_coef", "entropy coefficient", "", "Current weight of the entropy bonus; logged only with one."),
    Metric("aux_loss", "router loss", "", "Load-balancing loss of mixture-of-experts models."),
    Metric("tools/call_frequency", "tool calls", "per completion", "Tool calls per completion."),
    Metric("tools/failure_frequency", "tool failures", "share", "Share of tool calls that failed."),
    Metric("train_runtime", "run time", "s", "Whole training, in the last row only."),
    Metric("train_samples_per_second", "samples per second", "1/s", "Over the whole training, in the last row only."),
    Metric("train_steps_per_second", "steps per second", "1/s", "Over the whole training, in the last row only."),
    Metric("train_loss", "mean loss", "", "Mean of the loss over the run; says as little as the loss."),
    Metric("total_flos", "floating-point operations", "", "As the Trainer estimates them; 0 when it cannot."),
    Metric("eval_loss", "loss on the test prompts", "", "Says as little as the loss: look at eval_reward."),
    Metric("eval_runtime", "evaluation time", "s", "One evaluation."),
    Metric("eval_samples_per_second", "evaluation samples per second", "1/s", "During one evaluation."),
    Metric("eval_steps_per_second", "evaluation batches per second", "1/s", "During one evaluation."),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.key: metric for metric in _TABLE})
"""Every key that TRL 1.16's `GRPOTrainer` logs under a fixed name. `metric` also knows those that hold a function's
name.
"""

_ALIASES = {alias: metric.key for metric in _TABLE for alias in metric.aliases}
_FUNCTION_STATISTICS = {
    "mean": ("", "Mean of this reward function over all completions, before its weight; None means it scored none."),
    "std": (
        " spread",
        "Standard deviation of this reward function over the batch, before its weight; 0 tells no answers apart.",
    ),
}


def canonical(key: str) -> str:
    """The name TRL 1.16 has for `key` of any generation: `completion_length` becomes `completions/mean_length`."""
    if key in METRICS:
        return key
    if key.startswith("eval_"):
        return f"eval_{canonical(key.removeprefix('eval_'))}"
    if key.startswith("rewards/") and not key.endswith(("/mean", "/std")):
        return f"{key}/mean"
    return _ALIASES.get(key, key)


def metric(key: str) -> Metric:
    """Title, unit and meaning of any logged key; an unknown one is said to be the user's or a newer library's."""
    name = canonical(key)
    if name in METRICS:
        return METRICS[name]
    for statistic, (suffix, meaning) in _FUNCTION_STATISTICS.items():
        if name.startswith("rewards/") and name.endswith(f"/{statistic}"):
            return Metric(name, name[len("rewards/") : -len(statistic) - 1] + suffix, "", meaning)
    if name.startswith("eval_"):
        known = metric(name.removeprefix("eval_"))
        return Metric(name, f"{known.title}, test prompts", known.unit, f"On the test prompts. {known.meaning}")
    return Metric(
        name, name, "", "An extra metric: logged by a reward function, or by a library newer than this table."
    )
