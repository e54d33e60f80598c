"""Over which processes, GPUs and nodes a training is spread, and where vLLM generates: the keys of [launch].

`strategy` and `vllm` are answers; what is not answered is one process a GPU, data parallel, without vLLM.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_tui.plan.plan import Plan
from grpo_tui.plan.sharding import STRATEGIES, gathers
from grpo_tui.plan.situation import Card, Choice
from grpo_tui.problem import Problem

VLLM = ("off", "colocate", "server")
"""Where completions are generated: by transformers, by vLLM on the training's own GPUs, or by vLLM on others."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Who trains on what."""

    cards: tuple[Card, ...]
    """The training GPUs of one node; empty: the CPU."""

    server: tuple[Card, ...] = ()
    """The GPUs of a vLLM server on the same node."""

    nodes: int = 1
    """Training nodes; with several of them a vLLM server has one more for itself."""

    world: int = 1
    """Training processes on all nodes together."""

    strategy: str = ""
    """One of STRATEGIES if it was chosen; empty: whichever fits."""

    vllm: str = "off"


def where_vllm(given: Mapping[str, Choice]) -> str | Problem:
    """Which of VLLM is asked for: by launch.vllm, or by use_vllm and vllm_mode of GRPOConfig."""
    use = given["grpo.use_vllm"].value if "grpo.use_vllm" in given else None
    mode = given["grpo.vllm_mode"].value if "grpo.vllm_mode" in given else "colocate"
    by_fields = "off" if not use else str(mode)
    if "launch.vllm" not in given:
        return by_fields
    chosen = given["launch.vllm"].value
    if chosen not in VLLM:
        return Problem("launch.vllm", f"{chosen!r} is none of its values.", f"It can be {', '.join(VLLM)}.")
    if use is not None and chosen != by_fields:
        what = f"It says {chosen}, and use_vllm and vllm_mode in [grpo] say {by_fields}."
        return Problem("launch.vllm", what, "Leave out one of the two.")
    return str(chosen)


def _count(given: Mapping[str, Choice], key: str, default: int) -> int | Problem:
    value = given[key].value if key in given else default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return Problem(key, f"{value!r} is no whole number above zero.", "Write one, such as 1.")
    return value


def spread(cards: tuple[Card, ...], given: Mapping[str, Choice]) -> Spread | Problem:
    """How training is spread over `cards`, the chosen GPUs of one node, and as many on every other node."""
    vllm, nodes = where_vllm(given), _count(given, "launch.nodes", 1)
    if isinstance(vllm, Problem):
        return vllm
    if isinstance(nodes, Problem):
        return nodes
    if nodes > 1 and not cards:
        return Problem("launch.nodes", "Several nodes train on GPUs only.", "Choose GPUs, or one node.")
    server: tuple[Card, ...] = ()
    if vllm == "server" and nodes == 1 and cards:
        serving = _count(given, "launch.vllm_gpus", 1)
        if isinstance(serving, Problem):
            return serving
        if serving >= len(cards):
            what = f"{len(cards)} GPU(s) are chosen and vLLM is to have {serving} for itself: none is left to train on."
            return Problem("launch.vllm_gpus", what, 'Choose more GPUs, or set launch.vllm = "colocate".')
        cards, server = cards[:-serving], cards[-serving:]
    world = _count(given, "launch.processes", max(1, len(cards)) * nodes)
    if isinstance(world, Problem):
        return world
    if cards and world > len(cards) * nodes:
        what = f"{world} processes need as many GPUs, and {len(cards) * nodes} are chosen for training."
        return Problem("launch.processes", what, "Choose more.")
    if world % nodes:
        return Problem("launch.processes", f"{world} processes are not the same number on each of {nodes} nodes.",
                       f"Set it to a multiple of {nodes}.")  # fmt: skip
    strategy = _strategy(given, bool(cards), world)
    if isinstance(strategy, Problem):
        return strategy
    used = cards[: world // nodes]
    return Spread(cards=used, server=server, nodes=nodes, world=world, strategy=strategy, vllm=vllm)


def _strategy(given: Mapping[str, Choice], gpus: bool, world: int) -> str | Problem:
    if "launch.strategy" not in given:
        return ""
    chosen: Any = given["launch.strategy"].value
    if chosen not in STRATEGIES:
        return Problem("launch.strategy", f"{chosen!r} is none of its values.", f"It can be {', '.join(STRATEGIES)}.")
    if chosen != "ddp" and (not gpus or world == 1):
        where = "One process" if gpus else "The CPU"
        return Problem("launch.strategy", f"{where} has nothing to divide by {chosen}.", "Leave it out.")
    return str(chosen)


def launch_problems(plan: Plan, installed: Collection[str]) -> Iterator[Problem]:
    """What is wrong with how `plan` spreads the training; `installed` are the optional packages that are there."""
    grpo = plan.section("grpo")
    strategy = str(plan.value("launch.strategy") or "ddp")
    if strategy not in STRATEGIES:
        yield Problem("launch.strategy", f"{strategy!r} is none of its values.", f"It can be {', '.join(STRATEGIES)}.")
        return
    if strategy != "ddp" and (plan.cpu or plan.world_size == 1):
        yield Problem("launch.strategy", f"There is nothing to divide by {strategy} on one device.", "Leave it out.")
    if gathers(strategy) and plan.value("model.load_in_4bit"):
        yield Problem(
            "launch.strategy",
            f"Weights in 4 bit cannot be scattered by {strategy} the way they are loaded here.",
            'Set it to "ddp", or train a LoRA adapter on 16-bit weights.',
        )
    if strategy.startswith("zero") and "deepspeed" not in installed:
        yield Problem(
            "launch.strategy",
            f"{strategy} needs the package deepspeed, which is not installed.",
            f'Install it with {sys.executable} -m pip install deepspeed, or set it to "fsdp2", which is in torch.',
        )
    if strategy == "zero3" and grpo.get("use_vllm") and grpo.get("ds3_gather_for_generation") is False:
        yield Problem(
            "grpo.ds3_gather_for_generation",
            "vLLM gets its weights gathered, so they cannot be left scattered.",
            "Leave it out: true is the default.",
        )
    parallel = grpo.get("vllm_tensor_parallel_size") or 1
    colocated = grpo.get("use_vllm") and grpo.get("vllm_mode", "colocate") == "colocate"
    if colocated and isinstance(parallel, int) and parallel > 0 and plan.world_size % parallel:
        fits = max(number for number in range(1, parallel) if plan.world_size % number == 0)
        yield Problem(
            "grpo.vllm_tensor_parallel_size",
            f"{plan.world_size} processes cannot be parted into groups of {parallel} that share one vLLM.",
            f"Set it to {fits}.",
        )
