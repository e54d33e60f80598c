"""What TRL before 1.15 holds beside the closed form of newer ones: the logits of a whole micro-batch.

From 1.15 on log-probabilities are computed tile by tile (trl/kernels/chunked_logprob.py). Before, the model's logits
were there at once, in float32, since accelerate converts what a model under autocast returns. Read in the sources of
TRL 1.0 and 1.9 to 1.15, and traced (FakeTensor): the peak of training is met within 1 %.
"""

from dataclasses import dataclass

from grpo_tui.plan.dialect import release
from grpo_tui.plan.shape import ModelShape
from grpo_tui.plan.sharding import Part

LOGITS = "logits"
"""Name of the part."""

FRAGMENTATION = 0.42
"""What the default allocator reserves beside held logits, as a share of them: the median of six published A100 runs.

They are those of fms-acceleration whose loss took whole logits: 0.35 to 0.48, and one with 1.24.
"""

TILED = (1, 15)
"""The first TRL that holds no logits."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Bytes of each logit at the moments that may be the peak."""

    backward: int
    """While the gradient of the logits is put together."""

    held: int
    """While they are scored without gradients."""

    row: int
    """Beside `held`, of the logits of one sequence: what logsumexp works on."""

    cast: int = 6
    """While the 16-bit logits become float32."""


_HEADS: tuple[tuple[tuple[int, int], Head], ...] = (
    ((1, 14), Head(backward=8, held=4, row=0)),  # a kernel: logits and their gradient, nothing else
    ((1, 10), Head(backward=16, held=8, row=4)),  # divided by the temperature into a second copy
    ((0, 0), Head(backward=16, held=4, row=4)),  # divided in place
)


def head_of(trl: str, *, fused: bool = False) -> Head | None:
    """How TRL of this version holds its logits; None: it does not, or the version is not known.

    `fused` is `use_liger_kernel`, which in 1.14 meant tiles. Before, it made the loss without logits, but old
    log-probabilities with them; as that is not traced, it is taken to change nothing.
    """
    if release(trl) == (0, 0) or release(trl) >= TILED or (fused and release(trl) >= (1, 14)):
        return None
    return next(head for since, head in _HEADS if release(trl) >= since)


def logits_parts(
    head: Head, shape: ModelShape, method: str, *, batch: int, prompt: int, completion: int
) -> tuple[Part, Part]:
    """The peak of the output head in training and in scoring; lengths are tokens, one sequence of `batch` a row."""
    tokens, row = batch * (prompt + completion), (completion + 1) * shape.vocab
    logits = batch * row
    backward = head.backward * logits + 6 * tokens * shape.hidden
    if method == "full":  # later the weight's gradient is there, with what is left of the logits'
        backward = max(backward, 2 * logits + 2 * shape.vocab * shape.hidden + 10 * tokens * shape.hidden)
    scored = max(head.cast * logits, head.held * logits + head.row * row)
    what = f"{batch} × {completion + 1} tokens × {shape.vocab:,} scores, held whole"
    return Part(LOGITS, backward, what), Part(LOGITS, scored, what)
