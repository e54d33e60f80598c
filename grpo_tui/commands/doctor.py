"""`grpo-tui doctor`: GPUs, versions, tokens, disk: what is fine and what to do."""

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_tui.commands.printing import refuse
from grpo_tui.hardware.environment import Check, Environment, checks, read_environment
from grpo_tui.hardware.machine import GPU, Machine, format_gib
from grpo_tui.hardware.nvml import read_machine
from grpo_tui.inert import one_line
from grpo_tui.plan import overhead
from grpo_tui.plan.overhead import GIB, PUBLISHED_OVERHEAD
from grpo_tui.problem import Problem

_LEVELS = {"ok": ("✓", "32"), "warn": ("!", "33"), "fail": ("✗", "31")}
"""Glyph and SGR colour of each level; the word stands beside them, so that neither carries the meaning alone."""

_ASCII = str.maketrans({"✓": "+", "✗": "x", "→": ">", "·": "-", "°": " ", "…": "."})

WIDTHS = (40, 120)
"""Narrowest and widest text printed, in cells."""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "doctor", help="GPUs, versions, tokens, disk: what is fine and what to do",
        description="Look at GPUs, installed versions, tokens (whether there are any) and disk. Changes nothing, unless"
        " told to forget.",
        epilog="Exit status: 0 nothing stands in the way, 2 something does.",
    )  # fmt: skip
    parser.add_argument(
        "--forget", action="store_true", help="forget what runs taught about the memory of this machine's GPUs"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print what was found. 2 if any check fails."""
    if args.forget:
        return _forget(args.json)
    machine, environment, found = look(args.project)
    if args.json:
        print(json.dumps(as_json(machine, environment, found)))
    else:
        encoding = sys.stdout.encoding or "ascii"
        width = min(max(shutil.get_terminal_size((80, 24)).columns, WIDTHS[0]), WIDTHS[1])
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        for line in report(machine, environment, found, width, coloured=coloured):
            print(line if _can_print(line, encoding) else _plain(line, encoding))
    return 2 if any(check.level == "fail" for check in found) else 0


def look(project: Path) -> tuple[Machine, Environment, list[Check]]:
    """The machine, the environment and what is to be said about them."""
    environment = read_environment(project)
    machine = read_machine()
    from grpo_tui.hardware.torch_devices import ask_torch, worth_asking

    if worth_asking(machine, environment.torch_backend):
        answer = ask_torch(machine)
        if isinstance(answer, Problem):
            return (
                machine,
                environment,
                [*checks(machine, environment), Check("torch", "fail", answer.what, answer.remedy)],
            )
        machine = answer
    return machine, environment, [*checks(machine, environment), *overhead_checks(machine, environment)]


def overhead_checks(machine: Machine, environment: Environment) -> list[Check]:
    """What GPUs of each kind here hold beside tensors, where runs on them told it."""
    kept = overhead.read()
    if isinstance(kept, Problem):
        return [Check("overhead", "warn", f"{kept.where}: {kept.what}", kept.remedy)]
    torch = overhead.plain(environment.versions.get("torch", ""))
    found = []
    for name in dict.fromkeys(gpu.name for gpu in machine.gpus if gpu.visible):
        runs = overhead.of(kept, name, torch)
        now, fitted = overhead.learnt(kept, name, torch), PUBLISHED_OVERHEAD
        if now.runs:
            text = (
                f"{one_line(name, 60)}: overhead learnt from {now.runs} runs on this machine:"
                f" {now.context_bytes / GIB:.1f} GiB instead of {fitted.context_bytes / GIB:.1f}, and"
                f" {now.fragmentation:.0%} of what comes and goes instead of {fitted.fragmentation:.0%}."
            )
        elif runs:
            text = (
                f"{one_line(name, 60)}: {len(runs)} of {overhead.LEAST} runs measured from which the memory beside"
                " tensors is learnt."
            )
        else:
            continue
        found.append(Check("overhead", "ok", text))
    return found


def _forget(as_object: bool) -> int:
    gone = overhead.forget()
    if isinstance(gone, Problem):
        return refuse(as_object, gone)
    if as_object:
        print(json.dumps({"forgotten": gone}))
    else:
        print("What runs taught about this machine is forgotten." if gone else "Nothing was learnt on this machine.")
    return 0


def as_json(machine: Machine, environment: Environment, found: Sequence[Check]) -> dict[str, Any]:
    """The answer for scripts."""
    return {
        "gpus": [asdict(gpu) for gpu in machine.gpus],
        "versions": {"python": environment.python, **environment.versions},
        "checks": [asdict(check) for check in found],
        "machine": {
            "host": machine.host,
            "kind": machine.kind,
            "driver": machine.driver,
            "cuda_driver": machine.cuda_driver,
            "torch_backend": environment.torch_backend,
            "memory_total_bytes": machine.memory_total_bytes,
            "memory_available_bytes": machine.memory_available_bytes,
        },
        "tokens": {service: service in environment.tokens for service in ("Hugging Face", "Weights & Biases")},
    }


def report(
    machine: Machine, environment: Environment, found: Sequence[Check], width: int, *, coloured: bool
) -> Iterator[str]:
    """The answer for people, line by line."""
    memory = f"{format_gib(machine.memory_total_bytes)} memory, {format_gib(machine.memory_available_bytes)} available"
    yield from _wrapped(f"{machine.host} · {memory}", width)
    if machine.gpus:
        yield ""
        for gpu in machine.gpus:
            yield from _gpu_lines(gpu, width)
    yield ""
    versions = {"python": environment.python, **environment.versions}
    yield from _listed([f"{name} {version}" for name, version in versions.items()], width)
    yield ""
    for check in found:
        yield from _check_lines(check, width, coloured)
    yield ""
    counts = {level: sum(check.level == level for check in found) for level in _LEVELS}
    yield ", ".join(f"{count} {level}" for level, count in counts.items() if count)


def _gpu_lines(gpu: GPU, width: int) -> Iterator[str]:
    """One device: what it is, how it is, and who uses it."""
    number = "-" if gpu.index is None else str(gpu.index)
    place = f"CUDA {gpu.cuda_index}" if gpu.cuda_index is not None else "hidden from CUDA programs"
    if not gpu.visible and gpu.index is None and not gpu.mig:
        place = "not used for training"
    yield from _wrapped(f"{number:>2}  {gpu.name} · {place} · {gpu.uuid}", width, "    ")
    memory = f"{format_gib(gpu.total_bytes)}, {format_gib(gpu.free_bytes)} free"
    if gpu.total_bytes is None:
        memory = "memory unknown"
    capability = ".".join(map(str, gpu.capability)) if gpu.capability else "unknown"
    readings = [
        memory + (" (unified)" if gpu.unified else ""),
        f"slice of {gpu.parent}" if gpu.mig else "",
        f"capability {capability}",
        f"busy {gpu.utilisation_words}",
        f"{gpu.temperature} °C" if gpu.temperature is not None else "",
        f"{gpu.power_watts:.0f} of {gpu.power_limit_watts:.0f} W"
        if gpu.power_watts is not None and gpu.power_limit_watts is not None
        else "",
    ]
    yield from _listed([reading for reading in readings if reading], width, "    ")
    for process in gpu.processes:
        who = f"{process.name} of {process.user}" if process.user else process.name
        yield from _wrapped(f"    {process.pid}  {who}  {format_gib(process.used_bytes)}", width, "      ")


def _check_lines(check: Check, width: int, coloured: bool) -> Iterator[str]:
    glyph, colour = _LEVELS[check.level]
    mark = f"{glyph} {check.level:<4}"
    lines = [*_wrapped(check.text, width - 8), *(_wrapped(f"→ {check.remedy}", width - 8) if check.remedy else ())]
    for place, line in enumerate(lines):
        head = "        " if place else f"\x1b[{colour}m{mark}\x1b[0m  " if coloured else f"{mark}  "
        yield head + line


def _listed(parts: Sequence[str], width: int, indent: str = "") -> list[str]:
    """Parts one after the other; a line ends between two, since textwrap does not break at the no-break space."""
    text = indent + " · ".join(part.replace(" ", "\xa0") for part in parts)
    return [line.replace("\xa0", " ") for line in _wrapped(text, width, indent)]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False, replace_whitespace=True
    )


def _can_print(line: str, encoding: str) -> bool:
    try:
        line.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _plain(line: str, encoding: str) -> str:
    """`line` for a terminal or a pipe that does not take every character (LANG=C)."""
    return line.translate(_ASCII).encode("ascii", "replace").decode()
