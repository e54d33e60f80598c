"""`grpo-tui signal`: whether a training with this model, data and rewards will learn."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_tui.commands.printing import refuse
from grpo_tui.commands.trying import (
    add_data_options,
    add_reward_options,
    functions_of,
    refused,
    rows_of,
    say,
    weights_of,
)
from grpo_tui.inert import inert
from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.rewards.groups import Groups

FORMAT = """\
Groups come from one of: a model that samples them (--model, with --data), a server with OpenAI's protocol (--server),
a file of JSON lines with `prompt`, `completion` and the columns that the functions take (--completions), or a step that
a run kept (--run; its rewards are taken as they are).
"""


def add(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "signal", help="whether a training will learn, from sampled groups", epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Sample groups of completions, score them, and say how many groups will be without signal.",
    )  # fmt: skip
    parser.add_argument("rewards", type=Path, nargs="?", metavar="REWARDS.py", help="file with reward functions")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", default="", metavar="M", help="model folder, or hub id in the cache: samples here")
    source.add_argument(
        "--server", default="", metavar="URL", help="server to sample from, as http://localhost:8000/v1"
    )
    source.add_argument("--completions", type=Path, metavar="FILE", help="JSON lines with completions and prompts")
    source.add_argument("--run", type=Path, metavar="DIR", help="folder of a run that kept completions")
    parser.add_argument("--server-model", default="", metavar="M", help="the model's name at the server")
    parser.add_argument("--key-variable", default="", metavar="NAME", help="environment variable with the server's key")
    parser.add_argument("--data", default="", metavar="SOURCE", help="data set whose prompts are completed")
    parser.add_argument("--answer", default="", metavar="C", help="column of the right answer (default: found)")
    parser.add_argument("--prompts", type=int, default=32, metavar="N", help="prompts to sample (default: 32)")
    parser.add_argument("--generations", type=int, default=8, metavar="G", help="completions per prompt (default: 8)")
    parser.add_argument("--planned", type=int, default=0, metavar="G", help="num_generations of the training")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument("--top-k", type=int, default=0, metavar="K")
    parser.add_argument("--max-completion-length", type=int, default=256, metavar="N", help="tokens (default: 256)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--seed", type=int, default=42, metavar="N")
    parser.add_argument("--step", type=int, metavar="N", help="step of the run (default: the last one kept)")
    parser.add_argument("--last", type=int, default=1, metavar="N", help="so many kept steps up to it (default: 1)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the sampled completions, for --completions")
    add_data_options(parser)
    add_reward_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the verdict. 2 if it cannot be found, whatever the verdict is."""
    from grpo_tui.rewards.signal import learning_signal

    found = _from_run(args) if args.run else _from_code(args)
    if isinstance(found, Problem):
        return refuse(args.json, found)
    request, numbers, about = found
    signal = learning_signal(replace(request, planned=args.planned, seed=args.seed))
    if isinstance(signal, Problem):
        return refuse(args.json, signal)
    report = as_json(signal, numbers) | about
    print(json.dumps(report) if args.json else for_people(signal, report, "row" if numbers else "group"))
    return 0


def as_json(signal: Any, numbers: tuple[int, ...] = ()) -> dict[str, Any]:
    """A signal as `--json` prints it. `numbers`: rows of the groups in the data."""

    def prompts(indices: tuple[int, ...]) -> list[int]:
        return [numbers[index] if numbers else index for index in indices]

    return {
        "prompts": len(signal.prompts),
        "generations": signal.generations,
        "planned": signal.planned,
        "pass_rate": signal.pass_rate and signal.pass_rate.as_json(),
        "zero_signal": {str(size): share.as_json() for size, share in signal.zero_signal.items()},
        "deciding": dict(signal.deciding),
        "correlation": [
            {"functions": list(names), "within_groups": value} for names, value in signal.correlation.items()
        ],
        "silent": list(signal.silent),
        "always_right": prompts(signal.always_right),
        "always_wrong": prompts(signal.always_wrong),
        "per_prompt": [
            {"row": number, "pass_rate": each.passed, "flat": each.flat}
            for number, each in zip(prompts(tuple(range(len(signal.prompts)))), signal.prompts, strict=True)
        ],
        "verdict": signal.verdict,
        "why": signal.why,
        "more_prompts": signal.more_prompts,
    }


def for_people(signal: Any, report: Mapping[str, Any], noun: str = "group") -> str:
    """The verdict, and the figures below it. `noun`: what the numbers of prompts count."""
    lines = [
        signal.why,
        f"From {report['origin']}: {len(signal.prompts)} prompts, {signal.generations} completions each.",
    ]
    lines.append("Groups without signal to be expected")
    lines += [f"  {size:>3} generations  {share}" for size, share in signal.zero_signal.items()]
    if signal.deciding:
        lines.append("Decides the advantages")
        lines += [f"  {name:<20} {share:>5.0%}" for name, share in signal.deciding.items()]
    for title, key in (("Always right", "always_right"), ("Always wrong", "always_wrong")):
        if report[key]:
            named = ", ".join(str(number + 1) for number in report[key][:12])
            lines.append(
                f"{title}: {len(report[key])} prompts ({noun} {named}{', …' if len(report[key]) > 12 else ''})"
            )
    if report.get("cut_share"):
        lines.append(f"Cut at the longest length: {report['cut_share']:.0%} of the completions.")
    lines += [f"! {each['where']}: {each['what']}" for found in report["problems"].values() for each in found]
    return inert("\n".join(lines), 20_000)


def _from_run(args: argparse.Namespace) -> Any:
    """The rewards that a run kept."""
    from grpo_tui.progress.kept import kept_steps
    from grpo_tui.rewards.signal import SignalRequest

    steps = kept_steps(args.run, args.step, args.last)
    weights = weights_of(args.weights)
    if isinstance(steps, Problem):
        return steps
    if isinstance(weights, Problem):
        return weights
    if args.rewards:
        return Problem("REWARDS.py", "A run's rewards are taken as they are.", "Leave the file out.")
    stored = steps[-1]
    request = SignalRequest(
        names=stored.names,
        weights=weights or stored.weights,
        rewards=tuple(row for each in steps for row in each.rewards),
        generations=stored.group_size,
        scale=stored.scale,
        aggregation=stored.aggregation,
    )
    numbers = [each.step for each in steps]
    origin = f"step {', '.join(map(str, numbers))} of {args.run}"
    return request, (), {"origin": origin, "step": stored.step, "steps": numbers, "problems": {}}


def _from_code(args: argparse.Namespace) -> Any:
    """Completions from a file, a model or a server, scored."""
    from grpo_tui.rewards import groups
    from grpo_tui.rewards.bench import score, start_worker
    from grpo_tui.rewards.signal import SignalRequest

    functions = functions_of(args)
    if isinstance(functions, Problem):
        return functions
    if args.completions:
        found = _stored(args)
        found = found if isinstance(found, Problem) else refused(args, _doing(args)) or found
    else:
        found = refused(args, _doing(args)) or _sampled(args)
    if isinstance(found, Problem):
        return found
    request = groups.request(
        found,
        path=args.rewards,
        names=functions[0],
        weights=functions[1],
        tokenizer=args.tokenizer or args.model,
        timeout=args.timeout,
    )
    with start_worker(Path.cwd()) as worker:
        table = score(worker, request, None if args.json else say)
    if isinstance(table, Problem):
        return table
    signal = SignalRequest(names=table.names, weights=table.weights, rewards=table.rewards, generations=found.size)
    about: dict[str, Any] = {
        "origin": found.origin,
        "problems": {name: [each.as_json() for each in problems] for name, problems in table.problems.items()},
        "blocking": list(table.blocking),
    }
    if found.cut_share is not None:
        about["cut_share"] = found.cut_share
    return signal, found.numbers, about


def _doing(args: argparse.Namespace) -> str:
    """What needs a yes."""
    doing = f"runs the code of {args.rewards} on {args.data or args.completions}"
    doing += f", samples from {args.model}" if args.model else ""
    return doing + (f", sends its prompts to {args.server}" if args.server else "")


def _stored(args: argparse.Namespace) -> "Groups | Problem":
    """The groups of a completions file."""
    from grpo_tui.rewards import groups
    from grpo_tui.rewards.stored import group_size_of

    found = groups.read(args.completions)
    if isinstance(found, Problem):
        return found
    size = group_size_of([row["prompt"] for row in found.rows if "prompt" in row])
    return replace(size, where=str(args.completions)) if isinstance(size, Problem) else found


def _sampled(args: argparse.Namespace) -> "Groups | Problem":
    """Groups made now."""
    from grpo_tui.rewards import groups
    from grpo_tui.rewards.sampling import LocalModel, SampleRequest, sample, start_sampler
    from grpo_tui.rewards.server import Server, ask

    if not args.data:
        return Problem("--data", "There are no prompts to complete.", "Name the data set.")
    rows = rows_of(args, args.prompts, seed=args.seed)
    if isinstance(rows, Problem):
        return rows
    request = SampleRequest(
        prompts=tuple(row["prompt"] for row in rows.prepared),
        generations=args.generations,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        max_completion_length=args.max_completion_length,
        seed=args.seed,
    )

    def told(done: int, of: int) -> None:
        if not args.json:
            say(f"{done} of {of} completions")

    if args.server:
        server = Server(url=args.server, model=args.server_model, key_variable=args.key_variable)
        samples = ask(server, request, told)
    else:
        model = LocalModel(name=args.model, device=args.device)
        with start_sampler(model) as worker:
            samples = sample(worker, model, request, told)
    if isinstance(samples, Problem):
        return samples
    found = groups.made(samples, rows.prepared, rows.numbers)
    return (groups.save(args.save, found) if args.save else None) or found
