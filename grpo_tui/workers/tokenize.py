"""Worker: prompts through the model's own tokenizer and chat template.

`describe`  {model, revision} -> {chat_template, vocabulary, longest, special}
`render`    {model, revision, prompt} -> {text, tokens, opens_think, pieces}
`lengths`   {model, revision, prompts} -> {lengths}, with progress {done}

`model` is a folder or a hub id; of the hub only the tokenizer's files are fetched. `prompt` is text or chat messages.
"""

from grpo_tui.child import Progress, open_channel, serve
from grpo_tui.regular import expanded

channel = open_channel()

import os  # noqa: E402  the channel is opened before anything can print
from typing import Any  # noqa: E402

from grpo_tui.dataset.rows import has_half_character  # noqa: E402
from grpo_tui.inert import one_line  # noqa: E402
from grpo_tui.problem import Problem  # noqa: E402

os.environ["TOKENIZERS_PARALLELISM"] = "true"  # unlike other workers this one never forks

BATCH = 5000
"""Prompts that are counted before the progress is told; fewer keep several threads less busy."""

_tokenizers: dict[tuple[str, str], Any] = {}


def _load(params: dict[str, Any]) -> Any:
    """The tokenizer, kept for the next call, or a Problem."""
    name, revision = str(params["model"]), str(params.get("revision") or "")
    key = (name, revision)
    if key not in _tokenizers:
        folder = expanded(name)
        if not folder.is_dir() and _is_path(name):
            return Problem(
                f"model {name}", "There is no such folder.", "Check the path; a hub model is written owner/name."
            )
        if folder.is_dir() and not any((folder / file).exists() for file in _FILES):
            return Problem(
                f"model {name}",
                "The folder holds no tokenizer.",
                f"It should have one of {', '.join(_FILES)}: copy it from the base model.",
            )
        from transformers import AutoTokenizer  # noqa: TID251  # a worker

        try:
            _tokenizers[key] = AutoTokenizer.from_pretrained(
                str(folder) if folder.is_dir() else name, revision=revision or None
            )
        except Exception as error:  # noqa: BLE001  # the hub, the files and the tokenizers raise what they like
            return _explained(name, error, folder.is_dir())
    return _tokenizers[key]


_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or name.endswith("/")


def describe(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """What is known of the tokenizer."""
    tokenizer = _load(params)
    if isinstance(tokenizer, Problem):
        return tokenizer
    return {
        "chat_template": bool(tokenizer.chat_template),
        "vocabulary": len(tokenizer),
        "longest": min(int(tokenizer.model_max_length), 10**9),
        "special": [str(token) for token in tokenizer.all_special_tokens],
    }


def render(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """The prompt exactly as the model sees it."""
    tokenizer = _load(params)
    if isinstance(tokenizer, Problem):
        return tokenizer
    prompt = params["prompt"]
    text = _text(tokenizer, prompt, params["model"])
    if isinstance(text, Problem):
        return text
    ids = tokenizer(text, add_special_tokens=isinstance(prompt, str))["input_ids"]
    if isinstance(prompt, str):
        text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return {
        "text": text,
        "tokens": len(ids),
        "opens_think": text.rstrip().endswith("<think>"),
        "pieces": [tokenizer.decode([one], clean_up_tokenization_spaces=False) for one in ids],
    }


def lengths(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """How many tokens each of the prompts has."""
    tokenizer = _load(params)
    if isinstance(tokenizer, Problem):
        return tokenizer
    prompts = params["prompts"]
    counted = [0] * len(prompts)
    for start in range(0, len(prompts), BATCH):
        numbers = range(start, min(start + BATCH, len(prompts)))
        texts = {at: _text(tokenizer, prompts[at], params["model"]) for at in numbers}
        if problem := next((text for text in texts.values() if isinstance(text, Problem)), None):
            return problem
        for plain in (True, False):  # plain text gets the tokenizer's special tokens, a chat template writes its own
            chosen = [at for at in numbers if isinstance(prompts[at], str) is plain]
            for at, length in zip(chosen, _count(tokenizer, [texts[at] for at in chosen], plain), strict=True):
                counted[at] = length
        progress({"done": numbers.stop})
    return {"lengths": counted}


def _count(tokenizer: Any, texts: list[Any], special: bool) -> list[int]:
    if not texts:
        return []
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None and tokenizer.is_fast:  # no Python lists of ids are made
        fast.no_truncation()
        fast.no_padding()
        return [len(one) for one in fast.encode_batch_fast(texts, add_special_tokens=special)]
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=special)["input_ids"]]


def _text(tokenizer: Any, prompt: Any, model: str) -> Any:
    """What is tokenized, or a Problem."""
    if has_half_character(prompt):
        return Problem(
            "prompt",
            f"It holds half a character (a lone surrogate), which no tokenizer takes: {one_line(ascii(prompt), 80)}",
            "Look at the data's faults, and at the system prompt and the examples.",
        )
    if isinstance(prompt, str):
        return prompt
    if not tokenizer.chat_template:
        return Problem(
            f"model {model}",
            "Its tokenizer has no chat template, so it takes no chat messages: it is a base model.",
            "Keep the prompts as plain text, or choose the model's instruct version.",
        )
    try:
        return tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # noqa: BLE001  # a template is a program of its own and raises what it likes
        return Problem(
            f"model {model}",
            f"Its chat template refuses the messages: {type(error).__name__}: {one_line(str(error), 300)}.",
            "Some templates take no system message, or want user and assistant in turn.",
        )


def _explained(name: str, error: Exception, local: bool) -> Problem:
    names: set[str] = set()
    one: BaseException | None = error
    while one is not None:
        names.add(type(one).__name__)
        one = one.__cause__ or one.__context__
    where, text = f"model {name}", one_line(str(error), 300)
    if local:
        return Problem(where, f"Its tokenizer cannot be read: {text}", "Copy the tokenizer's files again.")
    if "GatedRepoError" in names or "gated repo" in text:
        return Problem(
            where, "Its owner gives access only to those who asked.", "Ask on its page, then run `hf auth login`."
        )
    if "RepositoryNotFoundError" in names:
        return Problem(
            where,
            "The hub has no such model, or it is private; nor is there a folder of this name.",
            "Check the spelling (owner/name); for a private one run `hf auth login`.",
        )
    if "RevisionNotFoundError" in names:
        return Problem(where, "The hub has no such revision of it.", "Name a branch, a tag or a commit that exists.")
    if "trust_remote_code" in str(error):
        return Problem(
            where, "Its tokenizer needs code from the hub to be run here.", "Choose a model without such code."
        )
    offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    if offline or names & {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ConnectError"}:
        return Problem(
            where,
            "It is neither a folder here nor in the local cache, and the hub is not reached"
            + (" (HF_HUB_OFFLINE is set)." if offline else "."),
            "Check the name, connect, or name the folder where it lies.",
        )
    return Problem(where, f"Its tokenizer cannot be loaded: {text}", "Check the name and the model's page on the hub.")


if __name__ == "__main__":
    serve({"describe": describe, "render": render, "lengths": lengths}, channel)
