"""`grpo-tui plan`: settings and memory for a model and a card, wherever the card is. Nothing is written."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grpo_tui.commands.init import METHODS, card, settings_of
from grpo_tui.commands.printing import refuse
from grpo_tui.draft import Draft, HardwareAnswer, ModelAnswer, RewardItem, RewardsAnswer, SettingsAnswer
from grpo_tui.inert import inert, one_line
from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.plan.plan import Plan
    from grpo_tui.plan.tuning import Facts
    from grpo_tui.session import Session

GIB = 2**30

EPILOG = """\
A folder, a model of the hub's cache, or one of the built-in table; the hub itself is not asked. No time or cost is
estimated.

  grpo-tui plan --model Qwen/Qwen2.5-7B-Instruct --gpu 24GiB
  grpo-tui plan --model Qwen/Qwen3-8B --gpu 80GiBx8 --prefer speed --prompt-tokens 900 --set grpo.num_generations=16
"""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "plan", help="settings and memory for a model and a card", epilog=EPILOG,
        description="Work out settings and memory for a model and a card, here or elsewhere. Nothing is written.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--model", required=True, metavar="MODEL", help="local folder or hub id")
    parser.add_argument("--revision", default="", metavar="REV", help="commit, tag or branch of the hub's repository")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--gpu", default="", metavar="SIZE[xN]", help="memory and number of the cards, such as 24GiBx2")
    where.add_argument("--here", action="store_true", help="plan for the GPUs of this machine")
    where.add_argument("--cpu", action="store_true", help="plan for the CPU of this machine")
    parser.add_argument("--capability", default="", metavar="X.Y", help="compute capability of the card, such as 8.0")
    parser.add_argument("--prefer", default="memory", choices=("memory", "speed"), help="default: memory")
    parser.add_argument(
        "--method", default="", choices=("", *METHODS), metavar="|".join(METHODS), help="default: tuned"
    )
    parser.add_argument("--prompt-tokens", type=int, default=0, metavar="N", help="tokens of the longest prompt")
    parser.add_argument("--rows", type=int, default=None, metavar="N", help="usable rows of the data")
    parser.add_argument(
        "--trl", default="", metavar="VERSION", help="memory as that version of TRL takes it (default: the one here)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a single value, such as grpo.beta=0.04"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print the plan and its alternatives. 2 if nothing fits, or a value cannot be."""
    from grpo_tui.session import Session

    session = Session(args.project)
    try:
        return _execute(args, session)
    finally:
        session.close()


def _execute(args: argparse.Namespace, session: "Session") -> int:
    from grpo_tui.plan.alternatives import alternatives
    from grpo_tui.plan.tuning import tune

    draft = _draft(args, session)
    if isinstance(draft, Problem):
        return refuse(args.json, draft)
    facts = _facts(args, session, draft)
    if isinstance(facts, Problem):
        return refuse(args.json, facts)
    plan = tune(draft, facts)
    others = alternatives(draft, facts, lambda plan, known: not session.plan_problems(plan, draft, known))
    if isinstance(plan, list):
        return refuse(args.json, *plan, alternatives=[other.as_json() for other in others])
    problems = session.plan_problems(plan, draft, facts)
    if problems:
        return refuse(args.json, *problems)
    if args.json:
        print(json.dumps({**plan.as_json(), "alternatives": [other.as_json() for other in others]}, default=str))
    else:
        for line in _lines(args, plan):
            print(inert(line))
        if others:
            print("\nOther plans")
        for other in others:
            print(inert(f"  {other.name:<9} {other.words()}"))
            for lead, said in (("gained", other.gains), ("paid", other.pays)):
                if said:
                    print(inert(f"{'':<12}{lead}: {'; '.join(said)}"))
    return 0


def _draft(args: argparse.Namespace, session: "Session") -> Draft | Problem:
    hardware = HardwareAnswer(cpu=True)
    if args.here:
        hardware = HardwareAnswer(gpus=tuple(gpu.uuid for gpu in session.machine().visible))
        if not hardware.gpus:
            return Problem("--here", "There is no GPU on this machine that could train.", "Write --gpu SIZE or --cpu.")
    if args.gpu:
        found = card(args.gpu)
        if isinstance(found, Problem):
            return found
        hardware = HardwareAnswer(
            manual_name=args.gpu, manual_bytes=found[0], manual_count=found[1], manual_capability=args.capability
        )
    overrides = settings_of(args.set)
    if isinstance(overrides, Problem):
        return overrides
    return Draft(
        hardware=hardware,
        model=ModelAnswer(name=args.model, revision=args.revision, method=args.method),
        rewards=RewardsAnswer(items=(RewardItem(name="correct"),)),
        settings=SettingsAnswer(prefer=args.prefer, overrides=overrides),
    )


def _facts(args: argparse.Namespace, session: "Session", draft: Draft) -> "Facts | Problem":
    from grpo_tui.plan.dialect import release
    from grpo_tui.plan.known import known_model

    model = session.model(draft)
    if isinstance(model, Problem):
        known = known_model(args.model)
        if known is None:
            return model
        model = known
    facts = session.facts_for(model, draft, lambda text: None)
    if isinstance(facts, Problem):
        return facts
    facts = replace(facts, rows=args.rows, longest_prompt=args.prompt_tokens)
    if not args.trl:
        return facts
    if release(args.trl) < (1, 0):
        return Problem("--trl", f"{one_line(args.trl, 40)!r} is no version of TRL.", "Write one from 1.0 on, as 1.9.")
    return replace(facts, schema=replace(facts.schema, versions={**facts.schema.versions, "trl": args.trl}))


def _lines(args: argparse.Namespace, plan: "Plan") -> Iterator[str]:
    memory = plan.memory
    where = "the CPU" if plan.cpu else args.gpu or "the GPUs of this machine"
    yield f"{one_line(args.model, 80)} on {where}: {plan.method}, {plan.batch.words()}"
    if memory is not None:
        low, high = memory.interval
        room = f" of {plan.available_bytes / GIB:.1f} GiB usable" if plan.available_bytes else ""
        yield (
            f"Peak {memory.peak_bytes / GIB:.1f} GiB ({low / GIB:.1f}–{high / GIB:.1f}){room}, in {memory.peak_phase}; "
            f"most of it: {memory.dominant}"
        )
        yield "  " + "  ".join(f"{phase} {size / GIB:.1f}" for phase, size in memory.phases.items()) + "  GiB"
    yield ""
    widest = max(len(setting.key) for setting in plan.settings)
    for setting in plan.settings:
        if setting.key.startswith(("grpo.", "lora.", "model.")):
            yield f"{setting.key:<{widest}}  {one_line(str(setting.value), 40):<20}  {setting.why} [{setting.source}]"
    for note in plan.notes:
        yield f"! {note}"
