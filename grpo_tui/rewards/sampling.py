"""Completions from a model, in groups of one prompt as training makes them: by the `sample` worker, or by a server."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.problem import Problem

Prompt = str | Sequence[Mapping[str, Any]]

Told = Callable[[int, int], None]
"""Gets how many completions there are and how many there will be."""


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """What is asked for. The defaults are those of TRL's `GRPOConfig` (1.16)."""

    prompts: tuple[Prompt, ...]
    """All text or all chat messages, as the data set's preparation makes them."""

    generations: int = 8
    """Completions for each prompt: `num_generations`."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float | None = None
    repetition_penalty: float = 1.0
    max_completion_length: int = 256
    """Tokens after which a completion is cut."""

    seed: int = 42
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A model that is here: a folder, or a hub id whose files are in the cache."""

    name: str
    revision: str = ""
    device: str = "auto"
    """`auto` (the first GPU, else the CPU), `cpu`, `cuda` or `mps`."""

    batch: int = 64
    """Completions made at once; halved by itself where memory is short."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One completion of a prompt."""

    text: str
    ids: tuple[int, ...] | None = None
    """Its tokens, the end token included; None where a server made it."""

    finished: bool | None = None
    """It came to its end; False: it was cut at the longest length. None: not known."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The completions of a request, neighbours of one prompt together."""

    prompts: tuple[Prompt, ...]
    """One per group."""

    completions: tuple[Completion, ...]
    generations: int
    origin: str
    """What made them, in a few words."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The completions as the rewards get them."""
        return tuple(each.text for each in self.completions)

    @property
    def cut_share(self) -> float | None:
        """Share of the completions that were cut; None where it is not known."""
        known = [each.finished for each in self.completions if each.finished is not None]
        return known.count(False) / len(known) if known else None


def start_sampler(model: LocalModel, environ: Mapping[str, str] = os.environ) -> Worker:
    """A worker that samples from `model` and fetches nothing; it sees GPUs unless the CPU is asked for."""
    return Worker("sample", env={**environ, "HF_HUB_OFFLINE": "1"}, gpu=model.device != "cpu")


def sample(worker: Worker, model: LocalModel, request: SampleRequest, told: Told | None = None) -> Samples | Problem:
    """Have `model` complete the prompts. Cancel from another thread with `worker.cancel()`."""
    problem = check_request(request)
    if problem:
        return problem
    made: list[Completion] = []
    params = {
        "model": model.name,
        "revision": model.revision,
        "device": model.device,
        "batch": model.batch,
        "prompts": [prompt if isinstance(prompt, str) else list(prompt) for prompt in request.prompts],
        "generations": request.generations,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "max_completion_length": request.max_completion_length,
        "seed": request.seed,
        "chat_template_kwargs": dict(request.chat_template_kwargs),
    }

    def received(said: Mapping[str, Any]) -> None:
        made.extend(
            Completion(text=each["text"], ids=tuple(each["ids"]), finished=each["finished"])
            for each in said["completions"]
        )
        if told:
            told(said["done"], said["of"])

    reply = worker.call("sample", params, on_progress=received)
    if isinstance(reply, Problem):
        return reply
    origin = f"{model.name} on {reply['device']}, {reply['dtype']}"
    return Samples(prompts=request.prompts, completions=tuple(made), generations=request.generations, origin=origin)


def check_request(request: SampleRequest) -> Problem | None:
    """Why nothing can be sampled for this request."""
    where = "sampling"
    if not request.prompts:
        return Problem(where, "There is no prompt to complete.", "Choose a source with usable rows.")
    if len({isinstance(prompt, str) for prompt in request.prompts}) > 1:
        return Problem(where, "Some prompts are text and some chat messages.", "Make them one kind.")
    if request.generations < 1 or request.max_completion_length < 1:
        return Problem(where, "Nothing would be generated.", "Ask for at least one completion of one token.")
    if not request.temperature > 0:
        return Problem(
            where, f"At temperature {request.temperature:g} all completions of a prompt are alike.", "Set it above 0."
        )
    return None
