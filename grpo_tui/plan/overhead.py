"""What a GPU holds beside tensors: as published, or as learnt from the runs of this machine.

Learnt figures belong to a kind of GPU and a version of torch, and are kept in `overhead.toml` in the user's
configuration folder, one entry a run. What is used is the median of the newest runs, within limits; without enough of
them it is what was fitted on seven published A100 runs (fms-acceleration), whose residuals are within 0.16 GiB.
"""

import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w

from grpo_tui import atomic, regular
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

GIB = 2**30

LEAST, NEWEST, KEPT = 3, 9, 200
"""Runs from which on the median is used, runs that it is taken of, and entries that the file keeps."""

CONTEXT_LIMITS = (GIB // 10, 3 * GIB)
FRAGMENTATION_LIMITS = (0.0, 0.5)
"""Whatever was learnt, these are not left: a bare context has 0.14 GiB (T4), and beyond the upper ends something else
was on the card."""

_VERSION = 1
_FILE_BYTES = 1 << 20
_FIRST_LINE = (
    "# What GPUs of this machine held beside tensors, learnt from runs. `grpo-tui doctor --forget` empties it.\n"
)


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """What one device holds beside tensors."""

    context_bytes: int
    """CUDA context, cuBLAS workspaces and the like."""

    fragmentation: float
    """What the allocator reserves beyond what is allocated, as a share of what comes and goes."""

    runs: int = 0
    """Of this machine that it was learnt from; 0: it is the published one."""


PUBLISHED_OVERHEAD = Overhead(context_bytes=int(0.83 * GIB), fragmentation=0.108)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one run tells."""

    gpu: str
    """Its name, as the driver spells it."""

    torch: str
    """The version, without what follows a plus sign."""

    context_bytes: int
    fragmentation: float = -1.0
    """Below 0: too little came and went to tell."""

    run: str
    """The run's folder."""

    began: float
    """Unix seconds."""

    @property
    def credible(self) -> bool:
        """Whether it can be overhead at all, rather than a mistake of the measurement."""
        low, high = CONTEXT_LIMITS
        return low / 4 <= self.context_bytes <= 2 * high and self.fragmentation <= 2 * FRAGMENTATION_LIMITS[1]


def plain(torch: str) -> str:
    """A version of torch without the build: `2.13.0` of `2.13.0+cu130`."""
    return torch.partition("+")[0]


def overhead_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the measurements are kept."""
    home = Path(environ.get("HOME", "~")).expanduser()
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "grpo-tui" / "overhead.toml"


def read(environ: Mapping[str, str] = os.environ) -> tuple[Measured, ...] | Problem:
    """The measurements, oldest first; none where there is no file, and a Problem where it cannot be used."""
    path = overhead_file(environ)
    try:
        content = tomllib.loads(regular.read(path, _FILE_BYTES).decode("utf-8"))
        version = content.get("version")
        if isinstance(version, int) and version > _VERSION:
            return _unusable(path, "It is of a newer version of grpo-tui.")
        found = [_measured(each) for each in content.get("run", [])]
    except FileNotFoundError:
        return ()
    except OSError as error:
        return _unusable(path, f"It cannot be read: {error.strerror or error}.")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return _unusable(path, f"It is broken: {one_line(str(error), 120)}.")
    return tuple(sorted((each for each in found if each.credible), key=lambda each: each.began))


def _unusable(path: Path, what: str) -> Problem:
    return Problem(
        str(path), f"{what} The published overhead is used.", "Remove it with `grpo-tui doctor --forget`, or mend it."
    )


def _measured(entry: Mapping[str, Any]) -> Measured:
    """One entry of the file. Raises KeyError, TypeError and ValueError for what is none."""
    values = {item.name: entry[item.name] for item in fields(Measured) if item.name in entry}
    for name, value in values.items():
        kinds = (str,) if name in ("gpu", "torch", "run") else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"{name} = {value!r} is of another kind")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} = {value!r} is no number")
    values["context_bytes"] = int(values["context_bytes"])
    return Measured(**values)


def keep(measured: Measured, environ: Mapping[str, str] = os.environ) -> Problem | None:
    """Add what a run told; once more of the same run replaces it. An unusable file is left as it is.

    Two runs that end in the same moment may lose one of the two: the next ones make up for it.
    """
    if not measured.credible:
        what = f"{measured.context_bytes / GIB:.2f} GiB beside tensors is no credible overhead."
        return Problem(one_line(measured.run, 80), what, "It is not learnt from.")
    kept = read(environ)
    if isinstance(kept, Problem):
        return kept
    others = [each for each in kept if (each.run, each.began) != (measured.run, measured.began)]
    return _write(sorted([*others, measured], key=lambda each: each.began)[-KEPT:], environ)


def _write(entries: Sequence[Measured], environ: Mapping[str, str]) -> Problem | None:
    path = overhead_file(environ)
    text = _FIRST_LINE + tomli_w.dumps({"version": _VERSION, "run": [asdict(each) for each in entries]})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text)
    except OSError as error:
        return Problem(str(path), f"It cannot be written: {error.strerror or error}.", "Free some room, or mend it.")
    return None


def forget(environ: Mapping[str, str] = os.environ) -> bool | Problem:
    """Remove what was learnt; whether there was anything."""
    path = overhead_file(environ)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        return Problem(str(path), f"It cannot be removed: {error.strerror or error}.", "Remove it by hand.")
    return True


def of(kept: Iterable[Measured], gpu: str, torch: str) -> list[Measured]:
    """The newest measurements of a kind of GPU under a version of torch, oldest first."""
    return [each for each in kept if (each.gpu, each.torch) == (gpu, plain(torch))][-NEWEST:]


def learnt(kept: Iterable[Measured], gpu: str, torch: str) -> Overhead:
    """The overhead of a kind of GPU under a version of torch: learnt where LEAST runs tell it, else published."""
    mine = of(kept, gpu, torch)
    if len(mine) < LEAST:
        return PUBLISHED_OVERHEAD
    shares = [each.fragmentation for each in mine if each.fragmentation >= 0]
    share = median(shares) if len(shares) >= LEAST else PUBLISHED_OVERHEAD.fragmentation
    return Overhead(
        context_bytes=int(_within(median(each.context_bytes for each in mine), CONTEXT_LIMITS)),
        fragmentation=_within(share, FRAGMENTATION_LIMITS),
        runs=len(mine),
    )


def _within(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return min(max(value, low), high)


def of_cards(kept: Iterable[Measured], gpus: Iterable[str], torch: str) -> Overhead:
    """The overhead to plan with on GPUs of these names: where they differ, the larger one."""
    known = tuple(kept)
    found = [learnt(known, gpu, torch) for gpu in dict.fromkeys(gpus)]
    return max(found, key=lambda each: each.context_bytes, default=PUBLISHED_OVERHEAD)
