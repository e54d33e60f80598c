"""Calls of reward functions in the scoring worker: one batch at a time, killed when it does not come back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_tui.child import Worker
from grpo_tui.problem import Problem

Prompt = str | Sequence[Mapping[str, Any]]

PREPARE_TIMEOUT = 120.0
"""Seconds for all that is not the function itself: its arguments have to be read and tokenized."""

LOAD_TIMEOUT = 120.0
"""Seconds for running the rewards file: it may import large libraries."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one call is about; row i of everything belongs together."""

    prompts: Sequence[Prompt]
    completions: Sequence[str]
    completion_ids: Sequence[Sequence[int] | None]
    """Tokens of each completion, the end token included; None: the worker makes them."""

    columns: Mapping[str, Sequence[Any]]

    def row(self, index: int) -> "Batch":
        """One completion alone."""
        one = slice(index, index + 1)
        return Batch(
            prompts=self.prompts[one],
            completions=self.completions[one],
            completion_ids=self.completion_ids[one],
            columns={name: values[one] for name, values in self.columns.items()},
        )

    def other_format(self) -> "Batch":
        """The same with chat messages instead of plain text, or the other way round."""
        return replace(self, prompts=[_other_format(prompt) for prompt in self.prompts])

    def shapes(self) -> str:
        """The two shapes of a completion, side by side, and how to take both (RW-03)."""
        plain, chat = "'text'", "[{'role': 'assistant', 'content': 'text'}]"
        here, there = (plain, chat) if isinstance(self.prompts[0], str) else (chat, plain)
        return (
            f"Here a completion is {here}, not {there}. "
            "Begin with: texts = [c if isinstance(c, str) else c[-1]['content'] for c in completions]"
        )


def _other_format(prompt: Prompt) -> Prompt:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return "\n".join(str(message.get("content") or "") for message in prompt)


@dataclass
class Caller:
    """A file of reward functions, and the worker that calls them."""

    worker: Worker
    path: Path
    names: tuple[str, ...]
    tokenizer: str
    timeout: float
    tokens: bool = False
    """The worker found the tokenizer: `completion_ids` are real tokens."""

    def load(self) -> Problem | None:
        """Have the functions ready in the worker; cheap when they are."""
        params = {"path": str(self.path), "names": list(dict.fromkeys(self.names)), "tokenizer": self.tokenizer}
        reply = self.worker.call("load", params, timeout=LOAD_TIMEOUT)
        if isinstance(reply, Problem):
            return reply
        self.tokens = reply["tokens"]
        return None

    def call(self, name: str, batch: Batch) -> dict[str, Any] | Problem:
        """One call of the function; an outcome as `workers.score` describes it, or why the worker died."""
        params = {
            "path": str(self.path),
            "name": name,
            "prompts": list(batch.prompts),
            "completions": list(batch.completions),
            "completion_ids": [None if ids is None else list(ids) for ids in batch.completion_ids],
            "columns": {column: list(values) for column, values in batch.columns.items()},
            "tokenizer": self.tokenizer,
            "timeout": self.timeout,
        }
        patience = PREPARE_TIMEOUT + self.timeout
        reply = self.worker.call("call", params, timeout=patience)
        if isinstance(reply, dict) and reply["outcome"] == "unloaded":
            problem = self.load()  # a worker that was killed has to load again, not at the function's expense
            reply = problem or self.worker.call("call", params, timeout=patience)
        return reply
