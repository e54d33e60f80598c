"""`grpo-tui init`: write a project from flags or a recipe, without questions."""

import argparse
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui import lock, state, takeover
from grpo_tui.commands.printing import refuse
from grpo_tui.draft import Approval, Draft, HardwareAnswer, RewardItem
from grpo_tui.inert import inert
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.secret import is_secret

if TYPE_CHECKING:
    from grpo_tui.plan.translate import Change, Translation
    from grpo_tui.session import Session
    from grpo_tui.survey import Data

METHODS = ("lora", "qlora", "full")
_SIZE = re.compile(r"([0-9.]+)\s*(GiB|GB|G)?\s*(?:[x×]\s*([0-9]+))?", re.IGNORECASE)
_UNITS: Mapping[str, int] = {"": 2**30, "G": 2**30, "GIB": 2**30, "GB": 10**9}

EPILOG = """\
What is not given is proposed: columns by name and content, rewards by the task, GPUs by what is free, settings by
memory. A project that is there already is gone on with; what is given here replaces its answers. A file that you edited
is never overwritten. Rewards of yours are not run: `grpo-tui score` and the wizard do that after a yes.

  grpo-tui init my-task --recipe word_problems
  grpo-tui init my-task --model Qwen/Qwen2.5-1.5B-Instruct --data train.jsonl --gpu 24GiB --set grpo.num_generations=16
  grpo-tui init my-task --from recipe.yaml --rewards rewards.py --data train.jsonl
"""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "init", help="write a project from flags or a recipe, without questions", epilog=EPILOG,
        description="Write config.toml, train.py and rewards.py into a folder. Nothing is started.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="project folder (default: --project)")
    # SUPPRESS: `--recipe` may also stand before the command, and a default here would wipe it out.
    parser.add_argument("--recipe", default=argparse.SUPPRESS, metavar="NAME|DIR", help="begin with a ready-made task")
    parser.add_argument(
        "--from", dest="origin", type=Path, metavar="FILE",
        help="take over a configuration: YAML of trl or open-r1, or a Python script, which is read and not run",
    )  # fmt: skip
    parser.add_argument("--allow-code", action="store_true", help="the yes to run the data script of a foreign recipe")
    parser.add_argument("--overrule", action="store_true", help="go on with GRPO whatever the fit check recommends")
    for name, choices in (("checkable", "yes, partly or no"), ("material", "prompts, demonstrations, pairs or thumbs"),
                          ("goal", "skill, format, knowledge or taste")):  # fmt: skip
        parser.add_argument(f"--{name}", default="", metavar="ANSWER", help=f"for the fit check: {choices}")
    parser.add_argument("--model", default="", metavar="MODEL", help="local folder or hub id")
    parser.add_argument("--revision", default="", metavar="REV", help="commit, tag or branch of the hub's repository")
    parser.add_argument(
        "--fetch", action="store_true", help="fetch configuration and tokenizer (no weights) if missing"
    )
    parser.add_argument(
        "--method", default="", choices=("", *METHODS), metavar="|".join(METHODS), help="default: tuned"
    )
    parser.add_argument("--data", default="", metavar="SOURCE", help="file, folder or hub id of the prompts")
    parser.add_argument("--split", default="", help="which part of the source")
    parser.add_argument("--prompt", default="", metavar="COLUMN", help="column of the prompt")
    parser.add_argument("--answer", metavar="COLUMN", help="column of the right answer; an empty one: none")
    parser.add_argument("--system", metavar="TEXT", help="system prompt put before every prompt; an empty one: none")
    parser.add_argument("--extract", default="", metavar="RULE", help="how the answer is taken out of its column")
    parser.add_argument("--extract-argument", default="", metavar="TEXT", help="what that rule needs")
    parser.add_argument("--max-prompt-tokens", type=int, metavar="N", help="leave out longer prompts; 0: none")
    parser.add_argument(
        "--choose", action="append", default=[], metavar="FAULT=CHOICE",
        help="what becomes of faulty rows, as duplicate=leave_out; `grpo-tui data` names the faults",
    )  # fmt: skip
    parser.add_argument("--eval-share", type=float, metavar="X", help="share of the prompts kept apart, such as 0.05")
    parser.add_argument("--seed", type=int, metavar="N", help="which prompts those are")
    parser.add_argument("--rewards", type=Path, metavar="FILE", help="your reward functions; copied to rewards.py")
    parser.add_argument(
        "--reward", action="append", default=[], metavar="NAME[=WEIGHT]", help="a function that counts; repeatable"
    )
    parser.add_argument("--cpu", action="store_true", help="train on the CPU")
    parser.add_argument("--gpus", default="", metavar="0,1|UUID", help="GPUs by doctor's number or UUID")
    parser.add_argument("--gpu", default="", metavar="SIZE[xN]", help="plan for a card elsewhere, such as 24GiBx2")
    parser.add_argument("--capability", default="", metavar="8.0", help="compute capability of that card")
    parser.add_argument("--prefer", default="", choices=("", "memory", "speed"), metavar="memory|speed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a single value, such as grpo.beta=0.04"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Fill in the answers, do every step up to the files, and say what was written."""
    from grpo_tui.session import Session

    project = expanded(args.dir or args.project)
    try:
        project.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        return refuse(args.json, Problem(str(project), f"The folder cannot be made: {why}.", "Name another one."))
    held = lock.acquire(project)
    if isinstance(held, Problem):
        return refuse(args.json, held)
    if not isinstance(held, lock.Lock):
        return refuse(
            args.json,
            Problem(str(project), f"{held} has this project open.", "Close it there, or name another folder."),
        )
    session = Session(project.resolve())
    try:
        return _written(args, session)
    finally:
        session.close()
        held.release()


def _written(args: argparse.Namespace, session: "Session") -> int:
    from grpo_tui import offers
    from grpo_tui.walk import is_new, walk

    def say(text: str) -> None:
        if not args.json:
            print(inert(text), flush=True)

    loaded = state.load(session.project)
    if isinstance(loaded, Problem):
        return refuse(args.json, loaded)
    if loaded.read_only:
        return refuse(args.json, Problem(str(session.project), " ".join(loaded.notes), "Use the newer version."))
    draft: Draft | Problem = loaded.draft
    if args.recipe and (is_new(loaded.draft) or loaded.draft.task.recipe != args.recipe):
        draft = session.draft_for(args.recipe)
    changes: tuple[Change, ...] = ()
    if args.origin is not None and not isinstance(draft, Problem):
        translation = _translated(args, draft, session)
        if isinstance(translation, Problem):
            return refuse(args.json, translation)
        changes = translation.changes
        for change in changes:
            say(f"· {change}")
        if translation.problems:
            return refuse(args.json, *translation.problems, changes=[change.as_json() for change in changes])
        place = (Path.cwd() / args.origin).parent
        draft = takeover.taken_over(session, draft, translation, place, rewards=args.rewards is not None)
    if not isinstance(draft, Problem):
        draft = answered(args, draft, session)
    if isinstance(draft, Problem):
        return refuse(args.json, draft)
    if args.fetch and session.is_on_hub(draft) and isinstance(session.model(draft), Problem):
        fetched = session.fetch_model(draft, say)
        if isinstance(fetched, Problem):
            return refuse(args.json, fetched)
    if args.rewards is not None:
        copied = offers.take_rewards_file(session, Path.cwd() / args.rewards)
        if isinstance(copied, Problem):
            return refuse(args.json, copied)
    walked = walk(session, draft, lambda name: say(f"✓ {name}"))
    if isinstance(walked, list):
        return refuse(args.json, *walked)
    plan = session.checked_plan(walked, lambda text: None)
    if isinstance(plan, list):
        return refuse(args.json, *plan)
    if args.json:
        told = {"project": str(session.project), "files": dict(walked.files), **plan.as_json()}
        if args.origin is not None:
            told["changes"] = [change.as_json() for change in changes]
        print(json.dumps(told, default=str))
        return 0
    say(f"\nWritten  {', '.join(sorted(walked.files))} in {session.project}")
    if not isinstance(data := session.data(walked, lambda text: None), Problem):
        say(f"Rows     {data.usable:,} of {data.rows_words} are used{_left_out(data)}")
    say(f"Method   {plan.method} · {plan.batch.words()}")
    if plan.memory is not None:
        free = f" of {plan.available_bytes / 2**30:.1f} GiB free" if plan.available_bytes else ""
        about = "about " if plan.memory.estimate else ""
        say(f"Memory   {about}{plan.memory.peak_bytes / 2**30:.1f} GiB of {plan.memory.place} at the peak{free}")
    for note in plan.notes:
        say(f"Note     {note}")
    say(f"Next     grpo-tui check {args.dir or args.project}   then   grpo-tui run {args.dir or args.project} --yes")
    return 0


def _left_out(data: "Data") -> str:
    """How many rows of which fault are left out; empty: none."""
    from grpo_tui.dataset.faults import KINDS

    left = [f"{KINDS[fault.kind].title} ({fault.count:,})" for fault in data.faults if fault.choice == "leave_out"]
    return f"; left out: {', '.join(left)}" if left else ""


def _translated(args: argparse.Namespace, draft: Draft, session: "Session") -> "Translation | Problem":
    """The configuration of --from, for the GPUs that the other flags name."""
    placed = _hardware(args, draft, session)
    if isinstance(placed, Problem):
        return placed
    return takeover.translated(session, placed, Path.cwd() / args.origin, lambda text: None)


def answered(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    """`draft` with what the flags say."""
    steps: tuple[Callable[[argparse.Namespace, Draft, Session], Draft | Problem], ...] = (
        _task, _hardware, _model, _dataset, _rewards, _settings,
    )  # fmt: skip
    for step in steps:
        result = step(args, draft, session)
        if isinstance(result, Problem):
            return result
        draft = result
    return draft


def _task(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    given = {name: getattr(args, name) for name in ("checkable", "material", "goal") if getattr(args, name)}
    task = replace(draft.task, **given, overruled=draft.task.overruled or args.overrule)
    if args.recipe and not task.recipe:
        task = replace(task, recipe=args.recipe)
    draft = replace(draft, task=task)
    recipe = session.recipe(draft)
    if args.allow_code and recipe is not None:
        from grpo_tui.session import now

        yes = Approval(what="recipe", at=now(), sha256=recipe.sha256, detail=str(recipe.folder))
        draft = replace(draft, approvals=(*draft.approvals, yes))
    return draft


def _hardware(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    if args.gpu:
        found = card(args.gpu)
        if isinstance(found, Problem):
            return found
        size, count = found
        manual = HardwareAnswer(
            manual_name=args.gpu, manual_bytes=size, manual_count=count, manual_capability=args.capability
        )
        return replace(draft, hardware=manual)
    if args.cpu:
        return replace(draft, hardware=HardwareAnswer(cpu=True))
    if not args.gpus:
        return draft
    machine = session.machine()
    chosen = []
    for word in args.gpus.split(","):
        gpu = next((one for one in machine.gpus if word.strip() in (one.uuid, str(one.index))), None)
        if gpu is None:
            known = ", ".join(f"{one.index} ({one.name})" for one in machine.gpus) or "none"
            return Problem("--gpus", f"This machine has no GPU {word.strip()}.", f"Its GPUs: {known}.")
        chosen.append(gpu.uuid)
    return replace(draft, hardware=HardwareAnswer(gpus=tuple(chosen)))


def card(text: str) -> tuple[int, int] | Problem:
    """Bytes and number of the cards that `24GiB`, `80GBx8` or `24` (GiB) mean."""
    found = _SIZE.fullmatch(text.strip())
    size = 0.0
    if found:
        try:
            size = float(found[1]) * _UNITS[(found[2] or "").upper()]
        except ValueError:
            found = None
    if not found or size < 2**30 or int(found[3] or 1) < 1:
        return Problem("--gpu", f"{text!r} is no size of a card.", "Write 24GiB, or 80GiBx8 for eight of them.")
    return int(size), int(found[3] or 1)


def _model(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    flags = {"name": args.model, "revision": args.revision, "method": args.method}
    given = {name: value for name, value in flags.items() if value}
    if args.model and (Path.cwd() / args.model).is_dir():
        given["name"] = str((Path.cwd() / args.model).resolve())
    draft = replace(draft, model=replace(draft.model, **given))
    if not draft.model.name:
        return Problem("model", "No model is chosen.", "Name a folder or hub id with --model, or a recipe.")
    return draft


def _dataset(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    answer = draft.dataset
    if args.data:
        place = Path.cwd() / expanded(args.data)
        source = str(place.resolve()) if place.exists() else args.data
        inside = place.exists() and place.resolve().is_relative_to(session.project)
        if inside:
            source = str(place.resolve().relative_to(session.project))
        draft = session.with_source(draft, source)
        answer = draft.dataset
    from grpo_tui.dataset.faults import read_choices

    chosen = read_choices(args.choose)
    if isinstance(chosen, Problem):
        return chosen
    given = {
        "split": args.split or None,
        "prompt": args.prompt or None,
        "answer": args.answer,
        "system": args.system,
        "extract": args.extract or None,
        "extract_argument": args.extract_argument or None,
        "max_prompt_tokens": args.max_prompt_tokens,
        "faults": {**answer.faults, **chosen} or None,
        "eval_share": args.eval_share,
        "seed": args.seed,
    }
    answer = replace(answer, **{name: value for name, value in given.items() if value is not None})
    if not answer.source:
        return Problem("data", "No data are chosen.", "Name a file, folder or hub id with --data, or a recipe.")
    return replace(draft, dataset=answer)


def _rewards(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    items = []
    for text in args.reward:
        name, _, weight = text.partition("=")
        try:
            items.append(RewardItem(name=name.strip(), weight=float(weight) if weight else 1.0))
        except ValueError:
            return Problem("--reward", f"The weight {weight!r} is no number.", "Write correct=1.0.")
    return replace(draft, rewards=replace(draft.rewards, items=tuple(items))) if items else draft


def _settings(args: argparse.Namespace, draft: Draft, session: "Session") -> Draft | Problem:
    overrides = settings_of(args.set)
    if isinstance(overrides, Problem):
        return overrides
    overrides = {**draft.settings.overrides, **overrides}
    prefer = args.prefer or draft.settings.prefer
    return replace(draft, settings=replace(draft.settings, prefer=prefer, overrides=overrides))


def settings_of(texts: Sequence[str]) -> dict[str, Any] | Problem:
    """Dotted key to value of flags such as `grpo.beta=0.04`."""
    found = {}
    for text in texts:
        key, given, value = text.partition("=")
        if not given or "." not in key:
            return Problem("--set", f"{text!r} is no setting.", "Write a dotted key and its value: grpo.beta=0.04.")
        if is_secret(key.rpartition(".")[2].strip()):
            return Problem("--set", f"{key.strip()} is a secret, and none is kept in a project.", "Log in instead.")
        found[key.strip()] = toml_value(value.strip())
    return found


def toml_value(text: str) -> Any:
    """`text` as TOML reads a value; what is none is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
