"""Why a run failed: the end of its log read, and where memory ran out the next change of its own configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_tui import regular
from grpo_tui.diagnosis.finding import Advice, Finding
from grpo_tui.diagnosis.out_of_memory import OutOfMemory, next_rung
from grpo_tui.diagnosis.traces import TAIL_CHARACTERS, Trace, read_trace
from grpo_tui.plan import files
from grpo_tui.plan.checks import packages
from grpo_tui.plan.footing import footing_of
from grpo_tui.plan.ladder import Rung
from grpo_tui.plan.model import read_model
from grpo_tui.plan.plan import Plan
from grpo_tui.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What a failed run's output says, and what to change."""

    trace: Trace
    rung: Rung | None = None
    """What to give up next where memory ran out; None: nothing helps, or its configuration or model is not known."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it ran with, of the keys that `rung` changes."""

    trl: str = ""

    @property
    def cause(self) -> str:
        """Where and what, as a sentence."""
        return self.trace.what if self.trace.memory else f"{self.trace.where}: {self.trace.what}"

    @property
    def remedy(self) -> str:
        """What to change."""
        if self.trace.memory is None or self.rung is None:
            return self.trace.remedy
        return self.trace.memory.remedy(self.trl, f"next: {self.rung}")

    def finding(self, step: int) -> Finding:
        """It as a finding about a run that had come to `step`."""
        memory = self.trace.memory
        figures = {"step": step, "where": self.trace.where} | (_figures(memory) if memory else {})
        changes = self.rung.changes.items() if self.rung else ()
        why = self.rung.why if self.rung else ""
        return Finding(
            id=self.trace.id or "exception",
            level="fail",
            title=self.cause,
            remedy=self.remedy,
            figures=figures,
            quoted=self.trace.quoted,
            advice=tuple(
                Advice(key=key, before=self.settings.get(key), after=after, trade_off=why) for key, after in changes
            ),
            confidence="certain" if self.trace.id else "likely",
        )


_NO_ROW: Mapping[str, Any] = {}


def read_failure(run: Path, log: Path, *, start: int = 0, begin: Mapping[str, Any] = _NO_ROW) -> Failure | None:
    """What the end of `log`, the output of `run`, says went wrong; None: nothing is found in it.

    `start` is where the output of the newest attempt begins, in bytes; `begin` its first event, with the versions that
    ran. Reads a bounded part of the log, and files of the run and its model only; never raises for what they hold.
    """
    versions = begin.get("versions")
    trl = str(versions.get("trl", "")) if isinstance(versions, dict) else ""
    trace = read_trace(_end(log, start), trl=trl)
    if trace is None:
        return None
    plan = _plan(run) if trace.memory else None
    rung = _next_rung(plan, trace.memory, run, trl) if plan and trace.memory else None
    known = {key: plan.value(key) for key in rung.changes} if plan and rung else {}
    if plan and "method" in known:
        known["method"] = plan.method
    return Failure(trace=trace, rung=rung, settings=known, trl=trl)


def _end(log: Path, start: int) -> str:
    try:
        if not log.is_file():  # a pipe would be waited for
            return ""
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start if start <= size else 0, size - TAIL_CHARACTERS))
            return file.read(TAIL_CHARACTERS).decode("utf-8", "replace")
    except OSError:
        return ""


def _plan(run: Path) -> Plan | None:
    """What the run was to do, by its copy of `config.toml`; None: it has none that can be read."""
    try:
        text = regular.read(run / "config.toml", files.CONFIG_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    config = files.read_config(text, "config.toml")
    plan = config if isinstance(config, Problem) else files.plan_of(config)
    return plan if isinstance(plan, Plan) else None


def _next_rung(plan: Plan, error: OutOfMemory, run: Path, trl: str) -> Rung | None:
    project = run.parent.parent  # runs/<name>: names of folders are relative to the project
    model = read_model(str(plan.value("model.name") or ""), str(plan.value("model.revision") or ""), project=project)
    if isinstance(model, Problem):
        return None
    there = max(0, error.total - error.others)
    known = {"available_bytes": there, "total_bytes": error.total, "packages": packages(), "trl": trl}
    try:
        return next_rung(error, footing_of(plan, model.shape, **known))
    except (ValueError, TypeError, ArithmeticError):  # a value by hand that is no number: nothing can be computed
        return None


def _figures(memory: OutOfMemory) -> dict[str, Any]:
    return {
        "phase": memory.phase,
        "asked_bytes": memory.asked,
        "free_bytes": memory.free,
        "total_bytes": memory.total,
        "short_bytes": memory.missing,
        "unused_bytes": memory.unallocated,
        "other_processes_bytes": memory.others,
        "fragmented": memory.fragmented,
    }
