"""How points by step, any number of them, become the few columns that a chart can draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Steps = NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """Points reduced to dot columns: per column how many there are, and mean, least and greatest of the finite ones."""

    count: Any
    mean: Any
    least: Any
    greatest: Any


def smooth(values: Floats, window: int) -> Floats:
    """The mean of each value and the `window` - 1 before it, of those that are finite; NaN stays NaN."""
    import numpy as np

    if window <= 1 or len(values) < 2:
        return values
    finite = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(finite, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(finite)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    held = counts[ends] - counts[starts]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = np.where(finite, (sums[ends] - sums[starts]) / held, np.nan)
    return mean


def reduce_columns(x: Steps, y: Floats, columns: int, end: float) -> Columns:
    """The points as `columns` dot columns over 0…`end`, ends included. `x` ascends. A few passes over the points."""
    import numpy as np

    bounds = (np.arange(columns + 1) - 0.5) * (end / max(1, columns - 1))
    edges = np.searchsorted(x, np.ceil(bounds).astype(x.dtype) if x.dtype.kind == "i" else bounds)
    edges[0], edges[-1] = 0, len(x)
    filled = np.flatnonzero(edges[1:] > edges[:-1])
    starts = edges[filled]
    count = np.diff(edges)
    mean, least, greatest = (np.full(columns, np.nan) for _ in range(3))
    if len(filled):
        finite = np.isfinite(y)
        if finite.all():
            mean[filled] = np.add.reduceat(y, starts) / count[filled]
            least[filled], greatest[filled] = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
        else:
            held = np.add.reduceat(finite.astype(np.int64), starts)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean[filled] = np.add.reduceat(np.where(finite, y, 0.0), starts) / held
            some = held > 0
            least[filled[some]] = np.minimum.reduceat(np.where(finite, y, np.inf), starts)[some]
            greatest[filled[some]] = np.maximum.reduceat(np.where(finite, y, -np.inf), starts)[some]
    return Columns(count, mean, least, greatest)


def bridge(columns: Columns) -> Floats:
    """The mean in every column from the first to the last point: straight between neighbours, NaN across a gap."""
    import numpy as np

    mean = columns.mean
    have = np.isfinite(mean)
    at = np.arange(len(mean))
    valid = at[have]
    if not len(valid):
        return np.full(len(mean), np.nan)
    line: Floats = np.interp(at, valid, mean[have])
    line[: valid[0]] = np.nan
    line[valid[-1] + 1 :] = np.nan
    holes = (columns.count > 0) & ~have  # points, none of them finite: nothing is drawn from point to point there
    if holes.any():
        before = np.maximum.accumulate(np.where(columns.count > 0, at, -1))
        after = np.minimum.accumulate(np.where(columns.count > 0, at, len(at))[::-1])[::-1]
        known = np.append(have, False)
        line[~(known[before] & known[np.minimum(after, len(at))])] = np.nan
    return line
