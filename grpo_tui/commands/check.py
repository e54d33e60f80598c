"""`grpo-tui check`: everything about a project that can be checked without training."""

import argparse
import ast
import json
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui import regular, state
from grpo_tui.commands.printing import refuse
from grpo_tui.dataset.faults import KINDS
from grpo_tui.draft import FACT_NAMES, Draft, stale
from grpo_tui.hardware.environment import Check
from grpo_tui.inert import inert, one_line
from grpo_tui.plan import files
from grpo_tui.plan.checks import packages
from grpo_tui.plan.dialect import installed
from grpo_tui.plan.footing import Footing, footing_of
from grpo_tui.plan.ladder import climb
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.situation import Card
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.run import folder, launch

if TYPE_CHECKING:
    from grpo_tui.plan.model import ModelFacts
    from grpo_tui.session import Session
    from grpo_tui.survey import Data


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "check", help="check a project's configuration against the installed libraries",
        description="Check config.toml as it stands, the rewards, the data, the model and the machine. Nothing is "
        "trained, written or fetched, and no reward function is run.",
        epilog="Exit status: 0 ready to run, 2 something must be mended first.",
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="project folder (default: --project)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Check and print."""
    from grpo_tui.session import Session

    project = expanded(args.dir or args.project)
    text = _config_text(project)
    if isinstance(text, Problem):
        return refuse(args.json, text)
    config = files.read_config(text, str(project / "config.toml"))
    if isinstance(config, Problem):
        return refuse(args.json, config)
    loaded = state.load(project)
    known = loaded.draft if isinstance(loaded, state.Loaded) else Draft()
    session = Session(project.resolve())
    try:
        checks = list(_checks(session, known, config, loaded))
    finally:
        session.close()
    failed = [check for check in checks if check.level == "fail"]
    if args.json:
        problems = [{"where": check.id, "what": check.text, "remedy": check.remedy} for check in failed]
        told = [{"id": c.id, "level": c.level, "text": c.text, "remedy": c.remedy} for c in checks]
        print(json.dumps({"project": str(session.project), "checks": told, "problems": problems}))
    else:
        for check in checks:
            print(inert(f"{_MARKS[check.level]} {check.text}"))
            if check.remedy and check.level != "ok":
                print("\n".join(_indented(inert(check.remedy))))
        print("\nReady to run." if not failed else f"\n{len(failed)} to mend before it can run.")
    return 2 if failed else 0


_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


def _indented(remedy: str) -> Iterator[str]:
    """Behind an arrow, in lines of 80 columns as far as words are shorter."""
    for place, line in enumerate(remedy.splitlines()):
        yield from textwrap.wrap(
            line,
            80,
            initial_indent="    " if place else "  → ",
            subsequent_indent="      " if line.startswith("- ") else "    ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _config_text(project: Path) -> str | Problem:
    path = project / "config.toml"
    try:
        return regular.read(path, files.CONFIG_BYTES).decode("utf-8")
    except FileNotFoundError:
        return Problem(
            str(project), "There is no config.toml here.", "Write a project with the wizard or with: grpo-tui init"
        )
    except (OSError, UnicodeDecodeError) as error:
        return Problem(str(path), f"It cannot be read: {error}.", "Make it a readable text file in UTF-8.")


def _failed(problem: Problem, where: str = "") -> Check:
    return Check(where or problem.where, "fail", f"{problem.where}: {problem.what}", problem.remedy)


def _checks(
    session: "Session", known: Draft, config: dict[str, Any], loaded: state.Loaded | Problem
) -> Iterator[Check]:
    """Every finding; what rests on something that failed is left out."""
    from grpo_tui.plan.checks import check
    from grpo_tui.plan.dialect import unknown_key

    if isinstance(loaded, Problem):
        yield Check("state", "warn", str(loaded), loaded.remedy)
    draft = files.with_config(known, config)
    schema = session.schema(lambda text: None)
    if isinstance(schema, Problem):
        yield _failed(schema, "schema")
        return
    unknown = [problem for key in config.get("grpo", {}) if (problem := unknown_key(key, schema)) is not None]
    for problem in unknown:
        yield _failed(problem)
    model = session.model(draft)
    yield from _model(model, draft)
    data: Data | Problem = session.data(draft, lambda text: None)
    yield from _data(data)
    rows = None if isinstance(data, Problem) else data.usable
    plan = files.plan_of(config, rows=rows)
    if isinstance(plan, list):
        yield from map(_failed, plan)
    elif not unknown:
        experts = None if isinstance(model, Problem) else model.shape.experts
        stands = None if isinstance(model, Problem) else _footing(session, plan, model, data)
        found = check(plan, session.worker("introspect"), rows=rows, experts=experts, footing=stands)
        yield from map(_failed, found)
        if not found:
            versions = ", ".join(f"{name} {schema.versions.get(name, '')}" for name in ("trl", "transformers"))
            yield Check("grpo", "ok", f"Every value is accepted by {versions}: {plan.batch.words()}.")
        if not found and stands is not None:
            yield _memory(stands)
        if rows is not None and plan.total_steps:
            yield Check("steps", "ok", f"{plan.total_steps:,} optimizer steps.")
    yield from _rewards(session, draft, data)
    yield from _script(session.project, config)
    for problem in launch.collisions(session.project, config):
        yield Check("names", "warn", f"{problem.where}: {problem.what}", problem.remedy)
    yield from _hardware(session, config)
    yield from _state(session, known)


def _model(model: "ModelFacts | Problem", draft: Draft) -> Iterator[Check]:
    if isinstance(model, Problem):
        yield _failed(model, "model")
        return
    exact = "" if model.shape.exact_parameters else "about "
    yield Check("model", "ok", f"{one_line(model.name, 80)}: {exact}{model.shape.parameters:,} parameters.")
    if not model.weight_bytes:
        size = f"about {2 * model.shape.parameters / GIB:.1f} GiB"
        yield Check("weights", "warn", f"Its weights are not on this machine: {size} are fetched when the run starts.")
    if not model.chat_template and not draft.dataset.plain:
        yield Check(
            "template", "fail", "The tokenizer has no chat template, and prompts are chat messages.",
            "Keep the prompts plain text (dataset step), or choose an instruct model.",
        )  # fmt: skip


def _data(data: "Data | Problem") -> Iterator[Check]:
    if isinstance(data, Problem):
        yield _failed(data, "data")
        return
    longest = f"; the longest prompt has {data.longest:,} tokens" if data.longest else ""
    yield Check("data", "ok", f"{data.usable:,} of {data.rows_words} rows are used{longest}.")
    for fault in data.faults:
        if fault.choice == "leave_out":
            yield Check(f"data.{fault.kind}", "ok", f"{fault.count:,} rows are left out: {KINDS[fault.kind].title}.")
            continue
        level = "fail" if fault.blocking else "warn"
        yield Check(f"data.{fault.kind}", level, fault.text, f"Choose in the dataset step: {', '.join(fault.choices)}.")


def _footing(session: "Session", plan: Plan, model: "ModelFacts", data: "Data | Problem") -> Footing:
    """What the plan stands on here. A unified GPU is not filled: the system and other programs live there too."""
    longest = plan.value("data.max_prompt_tokens") or 0
    if not isinstance(data, Problem) and data.longest:
        longest = min(longest, data.longest) if longest else data.longest
    machine = session.machine()
    gpus = launch.choose_gpus(plan.as_config(), machine)
    cards = [
        Card(total_bytes=gpu.total_bytes, free_bytes=gpu.free_bytes, unified=gpu.unified)
        for gpu in (() if isinstance(gpus, Problem) else gpus)
    ]
    free = [machine.memory_available_bytes] if plan.cpu else [card.budget_bytes for card in cards]
    total = [] if plan.cpu else [card.total_bytes for card in cards]
    return footing_of(
        plan,
        model.shape,
        prompt_tokens=longest or 512,
        available_bytes=min((size for size in free if size), default=0),
        total_bytes=min((size for size in total if size), default=0),
        packages=packages(),
        trl=installed(("trl",)).get("trl", ""),
        overhead=session.overhead(gpu.name for gpu in (() if isinstance(gpus, Problem) else gpus))[0],
    )


def _memory(stands: Footing) -> Check:
    memory, available = stands.memory, stands.available_bytes
    words = f"Predicted peak {stands.peak_bytes / GIB:.1f} GiB of {memory.place}, most of it {memory.dominant}"
    if memory.estimate:
        words += " (a rough estimate)"
    words = " ".join([f"{words}.", *memory.remarks]).removesuffix(".") if memory.remarks else words
    if stands.fits is None:
        return Check("memory", "ok", f"{words}.")
    if stands.fits:
        return Check("memory", "ok", f"{words}; {available / GIB:.1f} GiB are free.")
    rungs = climb(stands)
    lines = "\n".join(f"- {rung}" for rung in rungs)
    remedy = f"It fits with:\n{lines}" if rungs else "Choose a smaller model, or a larger device."
    return Check("memory", "warn", f"{words}; only {available / GIB:.1f} GiB are free.", remedy)


def _rewards(session: "Session", draft: Draft, data: "Data | Problem") -> Iterator[Check]:
    from grpo_tui.rewards.source import check_signatures, doubled, read_functions

    functions = read_functions(session.project / draft.rewards.file)
    if isinstance(functions, Problem):
        yield _failed(functions, "rewards")
        return
    columns: list[str] = []
    if not isinstance(data, Problem):
        rows = session.prepared(draft)
        columns = list(rows[0]) if not isinstance(rows, Problem) and rows else []
    names = [item.name for item in draft.rewards.items]
    found = check_signatures(functions, columns, names)
    only_odd = doubled([function for function in functions if function.name in names])
    for problem in found:  # a function defined twice trains, if perhaps not the one that was meant
        failed = _failed(problem, "rewards")
        yield replace(failed, level="warn") if problem in only_odd else failed
    for problem in _looked_through(session.project / draft.rewards.file, session.project):
        yield Check("rewards", "warn", f"{problem.where}: {problem.what}", problem.remedy)
    if not found:
        words = ", ".join(f"{item.name} × {item.weight:g}" for item in draft.rewards.items)
        yield Check("rewards", "ok", f"Rewards: {one_line(words, 200)}. They were read, not run.")


def _looked_through(path: Path, project: Path) -> list[Problem]:
    """What is known to go wrong with code like this, wherever in the file of the rewards."""
    from grpo_tui.rewards.excuses import check_excuses
    from grpo_tui.rewards.patterns import check_patterns
    from grpo_tui.rewards.source import missing_imports, read_text

    text = read_text(path)
    if isinstance(text, Problem):
        return []
    missing = missing_imports(text, path.name, (path.parent, project))
    return [*missing, *check_patterns(text, path.name), *check_excuses(text, path.name)]


def _script(project: Path, config: dict[str, Any]) -> Iterator[Check]:
    stale_keys = written_for_other(project / "train.py", config)
    if stale_keys:
        yield Check(
            "train.py", "fail", f"It was written for other data: [data] says otherwise for {', '.join(stale_keys)}.",
            "Have it written anew by the wizard's review, or change prepare() and WRITTEN_FOR in it.",
        )  # fmt: skip
    for name in folder.files(project):
        path = project / name
        if not path.is_file():
            yield Check(name, "fail", f"{name} is missing.", "Write it with the wizard's review or: grpo-tui init")
        elif name.endswith(".py"):
            try:
                compile(path.read_bytes(), str(path), "exec")
            except (SyntaxError, ValueError) as error:
                line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
                yield Check(name, "fail", f"{name}{line}: it is not Python ({error}).", "Correct it there.")


def written_for_other(path: Path, config: dict[str, Any]) -> list[str]:
    """Keys of [data] whose value is another than that for which the code in `train.py` was written."""
    try:
        tree = ast.parse(path.read_bytes())
        values = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and [getattr(name, "id", "") for name in node.targets] == ["WRITTEN_FOR"]
        ]
    except (OSError, SyntaxError, ValueError):
        return []
    written = values[-1] if values and isinstance(values[-1], dict) else {}
    data = config.get("data", {})
    return [str(key) for key, value in written.items() if data.get(key) != value]


def _hardware(session: "Session", config: dict[str, Any]) -> Iterator[Check]:
    gpus = launch.choose_gpus(config, session.machine())
    if isinstance(gpus, Problem):
        yield _failed(gpus, "hardware")
        return
    launched = config.get("launch", {})
    nodes = int(launched.get("nodes", 1))
    planned = int(launched.get("processes", 1)) // nodes
    if nodes > 1:
        words = f"{nodes} machines with {planned} GPUs each are planned; Slurm finds them."
        yield Check("hardware", "ok", words)
    elif not config.get("grpo", {}).get("use_cpu") and len(gpus) < planned:
        yield Check(
            "hardware", "fail", f"{planned} processes are planned, one per GPU, and {len(gpus)} GPUs are here.",
            "Set use_cpu = true, change [launch], or copy the folder to the machine it is for.",
        )  # fmt: skip
    else:
        yield Check("hardware", "ok", ", ".join(one_line(gpu.name, 60) for gpu in gpus) or "Training runs on the CPU.")


def _state(session: "Session", draft: Draft) -> Iterator[Check]:
    edited = [name for name, mark in draft.files.items() if _hash(session.project / name) not in ("", mark)]
    if edited:
        yield Check("edited", "ok", f"Edited by you since it was written: {', '.join(sorted(edited))}.")
    for step, names in stale(draft, session.facts(draft)).items():
        changed = " and ".join(FACT_NAMES[name] for name in names)
        yield Check(f"step.{step}", "warn", f"Changed since the step {step} was done: {changed}.", "Look at it again.")


def _hash(path: Path) -> str:
    try:
        return files.sha256(path.read_bytes().decode("utf-8", "surrogateescape"))
    except OSError:
        return ""
