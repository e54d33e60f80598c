"""Worker: completions of a model, sampled as TRL's trainer samples them before its first step.

`sample`  {model, revision, prompts, generations, temperature, top_p, top_k, min_p, repetition_penalty,
           max_completion_length, seed, batch, device, chat_template_kwargs} -> {device, dtype, batch}
          progress {done, of, completions: [{text, ids, finished}]}: those of one batch, in the order of the prompts

`model` is a folder or a hub id whose files are in the cache; nothing is fetched. Each prompt (text or chat messages) is
completed `generations` times, neighbours of one prompt together. After TRL 1.16, `GRPOTrainer._tokenize_prompts`,
`_generate_single_turn` and `_generate`.
"""

from grpo_tui.child import Progress, open_channel, serve
from grpo_tui.regular import expanded

channel = open_channel()

from dataclasses import dataclass  # noqa: E402  the channel is opened before anything can print
from typing import Any  # noqa: E402

from grpo_tui.inert import one_line  # noqa: E402
from grpo_tui.problem import Problem  # noqa: E402


@dataclass(frozen=True)
class Loaded:
    """A model ready to sample."""

    model: Any
    tokenizer: Any
    ends: tuple[int, ...]
    """Every token that ends a completion: the tokenizer's and those that the model declares."""


_models: dict[tuple[str, str, str], Loaded] = {}


def sample(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Sample in batches; a batch that does not fit into memory is halved."""
    import torch  # noqa: TID251  a worker

    loaded = _load(str(params["model"]), str(params.get("revision") or ""), _device(str(params["device"])))
    if isinstance(loaded, Problem):
        return loaded
    model = loaded.model
    prompt_ids = _prompt_ids(
        loaded.tokenizer, params["prompts"], params.get("chat_template_kwargs") or {}, params["model"]
    )
    if isinstance(prompt_ids, Problem):
        return prompt_ids
    todo = [ids for ids in prompt_ids for _ in range(params["generations"])]
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = max(map(len, todo)) + params["max_completion_length"]
    if longest and needed > longest:
        return Problem(
            f"model {params['model']}",
            f"The longest prompt and its completion need {needed:,} tokens; the model takes {longest:,}.",
            "Leave out long prompts, or allow shorter completions.",
        )
    torch.manual_seed(params["seed"])
    settings = _settings(loaded, params)
    model.generation_config = settings  # transformers 4 lets the model's own values win over some of the settings
    done, batch = 0, max(1, min(int(params["batch"]), len(todo)))
    while done < len(todo):
        try:
            completions = _generate(loaded, todo[done : done + batch], settings)
        except torch.OutOfMemoryError:
            if batch == 1:
                return Problem(
                    f"model {params['model']}",
                    "The memory of the device is too small for a single completion.",
                    "Allow shorter completions, sample on the CPU, or choose a smaller model.",
                )
            batch = (batch + 1) // 2
            torch.cuda.empty_cache()
            continue
        done += len(completions)
        progress({"done": done, "of": len(todo), "completions": completions})
    return {"device": str(model.device), "dtype": str(model.dtype).removeprefix("torch."), "batch": batch}


def _device(wanted: str) -> str:
    """`wanted`, or for `auto` the first GPU that is seen, else the CPU."""
    import torch  # noqa: TID251  a worker

    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def _load(name: str, revision: str, device: str) -> Loaded | Problem:
    """Model and tokenizer, kept for the next call. On a GPU in bfloat16, on the CPU in float32."""
    import torch  # noqa: TID251  a worker
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: TID251  a worker

    where = f"model {name}"
    if (name, revision, device) in _models:
        return _models[name, revision, device]
    folder = expanded(name)
    place = {"pretrained_model_name_or_path": str(folder) if folder.is_dir() else name, "revision": revision or None}
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    try:
        tokenizer = AutoTokenizer.from_pretrained(**place, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(**place, local_files_only=True, dtype=dtype)
        model = model.to(device).eval()
    except Exception as error:  # noqa: BLE001  the files, the hub's library and torch raise what they like
        if isinstance(error, torch.OutOfMemoryError):
            what, remedy = "Its weights do not fit on the device.", "Free the device, or sample on the CPU."
        elif folder.is_dir():
            what = f"It cannot be loaded: {one_line(f'{type(error).__name__}: {error}', 300)}."
            remedy = "A model folder needs config.json, the weights and the tokenizer's files."
        else:
            what = f"It is neither a folder here nor complete in the local cache ({type(error).__name__})."
            remedy = "Fetch it first, with `hf download`, or name the folder where it lies."
        return Problem(where, what, remedy)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        return Problem(where, "Its tokenizer has neither a padding nor an end token.", "Choose a complete model.")
    _models.clear()  # one model in memory at a time
    declared = model.generation_config.eos_token_id
    ends = [declared] if isinstance(declared, int) else list(declared or ())
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ends:
        ends.insert(0, tokenizer.eos_token_id)
    _models[name, revision, device] = loaded = Loaded(model, tokenizer, tuple(ends))
    return loaded


def _prompt_ids(tokenizer: Any, prompts: list[Any], template: dict[str, Any], name: str) -> list[list[int]] | Problem:
    """The prompts as the model sees them: chat messages by the chat template with the opening of a reply."""
    if isinstance(prompts[0], str):
        return [list(ids) for ids in tokenizer(text=prompts)["input_ids"]]
    if not tokenizer.chat_template:
        return Problem(
            f"model {name}",
            "Its tokenizer has no chat template, so it takes no chat messages: it is a base model.",
            "Keep the prompts as plain text, or choose the model's instruct version.",
        )
    try:
        rendered = tokenizer.apply_chat_template(
            conversation=prompts, add_generation_prompt=True, tokenize=True, return_dict=True, **template
        )
    except Exception as error:  # noqa: BLE001  a template is a program of its own and raises what it likes
        return Problem(
            f"model {name}",
            f"Its chat template refuses the messages: {one_line(f'{type(error).__name__}: {error}', 300)}.",
            "Some templates take no system message, or want user and assistant in turn.",
        )
    return [list(ids) for ids in rendered["input_ids"]]


def _settings(loaded: Loaded, params: dict[str, Any]) -> Any:
    """The generation of a training."""
    from transformers import GenerationConfig  # noqa: TID251  a worker

    return GenerationConfig(
        max_new_tokens=params["max_completion_length"],
        do_sample=True,
        pad_token_id=loaded.tokenizer.pad_token_id,
        bos_token_id=loaded.tokenizer.bos_token_id,
        eos_token_id=list(loaded.ends) or None,
        temperature=params["temperature"],
        top_p=params["top_p"],
        top_k=params["top_k"],
        min_p=params.get("min_p"),
        repetition_penalty=params["repetition_penalty"],
        disable_compile=True,
    )


def _generate(loaded: Loaded, prompts: list[list[int]], settings: Any) -> list[dict[str, Any]]:
    """One completion for each of the prompts, its ids up to and with the first end token."""
    import torch  # noqa: TID251  a worker

    model, tokenizer = loaded.model, loaded.tokenizer
    width = max(map(len, prompts))
    padded = [[tokenizer.pad_token_id] * (width - len(ids)) + ids for ids in prompts]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
    with torch.inference_mode():
        output = model.generate(
            input_ids=torch.tensor(padded, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            generation_config=settings,
        )
    kept = [_up_to_end(ids, loaded.ends) for ids in output[:, width:].tolist()]
    texts = tokenizer.batch_decode([ids for ids, _ in kept], skip_special_tokens=True)
    return [{"text": text, "ids": ids, "finished": finished} for text, (ids, finished) in zip(texts, kept, strict=True)]


def _up_to_end(ids: list[int], ends: tuple[int, ...]) -> tuple[list[int], bool]:
    """The ids without what follows the first end token, and whether there is one."""
    at = next((index for index, token in enumerate(ids) if token in ends), None)
    return (ids, False) if at is None else (ids[: at + 1], True)


if __name__ == "__main__":
    serve({"sample": sample}, channel)
