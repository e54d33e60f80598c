"""Run a project's own train.py for a step or two, on a small random model or, to measure it, on the real one.

`try`      {folder, model, config} -> {steps, ...} or {stage, problem}; progress {text}
           one step of the script in `folder`, then `config` as its config.toml and a second step from its checkpoint
`measure`  {folder, script_module} -> {steps} or {stage, problem}; needs a GPU

`folder` is a run folder: copies of config.toml, train.py and the rewards, the configuration already cut down.
"""

from grpo_tui.child import open_channel, serve

channel = open_channel()

import copy  # noqa: E402 - the channel must be open before anything can print
import importlib.util  # noqa: E402
import os  # noqa: E402
import runpy  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Callable, Iterator, Mapping  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from grpo_tui.diagnosis.traces import read_trace  # noqa: E402
from grpo_tui.problem import Problem  # noqa: E402
from grpo_tui.rewards.loading import forget  # noqa: E402

Progress = Callable[[dict[str, Any]], None]

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")
"""Ends of names of files that are not copied beside the small model."""

COPIED_BYTES = 64 << 20
"""A larger file is no part of a tokenizer."""

SMALL: tuple[Mapping[str, int], ...] = (
    {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32},
    {"num_attention_heads": 2, "num_key_value_heads": 2},
    {},
)
"""Widths to try, the smallest first: some architectures tie tables to the width of a head (rotary scaling), which then
stays as it is, and the hidden size follows. The last one cuts layers only."""

_ALWAYS: Mapping[str, int] = {
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}
"""Cut wherever the architecture has them and they are larger."""

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "num_heads"),
    "intermediate_size": ("n_inner", "ffn_dim"),
    "num_hidden_layers": ("n_layer", "num_layers"),
}

_OF_THE_TEXT = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "max_position_embeddings")
"""What a stand-in takes over."""

_PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Lists with one entry per layer."""


def try_steps(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """One step, its checkpoint, and a second step from there."""
    folder = Path(params["folder"])
    forget(folder.parent.parent)  # the project: its helpers may have been edited since the last trial
    progress({"text": "Making a small random model of the same architecture…"})
    made = make_small(Path(params["model"]), folder / "model")
    if isinstance(made, Problem):
        return {"stage": "model", "problem": made.as_json()}
    _without_four_bit()
    script = folder / "train.py"
    progress({"text": "Training one step of it with your data and rewards…"})
    failed = _run(script, [])
    if failed is not None:
        return {"stage": "first step", **failed, "model": made}
    if not any(folder.glob("checkpoint-*/trainer_state.json")):
        problem = Problem("train.py", "It ended without a checkpoint after its first step.", "Look at what it printed.")
        return {"stage": "checkpoint", "problem": problem.as_json(), "model": made}
    if "--resume" not in script.read_text("utf-8", "surrogateescape"):
        return {"model": made, "resumed": False}
    progress({"text": "Going on from its checkpoint for a second step…"})
    (folder / "config.toml").write_text(params["config"], encoding="utf-8")
    failed = _run(script, ["--resume", str(folder)])
    if failed is not None:
        return {"stage": "second step, from the checkpoint", **failed, "model": made}
    return {"model": made, "resumed": True}


def measure(params: dict[str, Any], progress: Progress) -> dict[str, Any] | Problem:
    """Two steps of the real model at the longest prompts; the recorder writes the peaks into the folder's events."""
    import torch  # noqa: TID251 - a worker

    if not torch.cuda.is_available():
        return Problem("hardware", "There is no GPU here that torch can use.", "Measure on the machine that trains.")
    progress({"text": "Two steps of the real model, at the longest prompts and full completions…"})
    failed = run_longest(Path(params["folder"]) / "train.py")
    return {"stage": "measuring", **failed} if failed is not None else {}


def run_longest(script: Path) -> dict[str, Any] | None:
    """Run the script's `main()` on its longest prompts alone; what went wrong, or None."""
    spec = importlib.util.spec_from_file_location("train", script)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module

    def run() -> None:
        spec.loader.exec_module(module)  # type: ignore[union-attr]  # asserted above
        load = module.load_data
        module.load_data = lambda: longest_rows(load(), module)
        module.main()

    return _caught(run, [str(script)])


def longest_rows(data: Any, module: Any) -> Any:
    """The rows of `data` with the longest prompts, as many as two generations take."""
    grpo = module.CONFIG["grpo"]
    needed = 2 * int(grpo.get("per_device_train_batch_size", 8)) * int(grpo.get("gradient_accumulation_steps", 1))

    def length(prompt: Any) -> int:
        return len(prompt) if isinstance(prompt, str) else sum(len(str(part.get("content", ""))) for part in prompt)

    order = sorted(range(len(data)), key=lambda number: length(data[number]["prompt"]), reverse=True)
    kept = order[: max(1, min(needed, len(order) // 10 or 1))]
    return data.select([kept[number % len(kept)] for number in range(needed)])


def make_small(source: Path, target: Path) -> dict[str, Any] | Problem:
    """Write a random model of the architecture of `source`, small, with its tokenizer and vocabulary, to `target`."""
    import torch  # noqa: TID251 - a worker
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig  # noqa: TID251

    try:
        whole = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return _unloadable(source, error)
    text = whole.get_text_config(decoder=True)
    torch.manual_seed(0)
    reasons = []
    tries = [(text, widths) for widths in SMALL]
    if text is not whole:  # of some models with images the text part is no model by itself: a Llama stands in for it
        stand_in = LlamaConfig(**{name: getattr(text, name) for name in _OF_THE_TEXT if hasattr(text, name)})
        tries.append((stand_in, SMALL[0]))
    for figures, widths in tries:
        try:
            config = shrunk(figures, widths)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            with torch.no_grad():
                model(torch.zeros(1, 4, dtype=torch.long), attention_mask=torch.ones(1, 4, dtype=torch.long))
        except Exception as error:  # noqa: BLE001 - the next widths may do
            reasons.append(error)
            continue
        break
    else:
        return _unloadable(source, reasons[-1])
    target.mkdir(parents=True)
    copy_tokenizer(source, target, text_only=text is not whole)
    if (source / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(source))
    model.save_pretrained(str(target))
    try:
        tokens = len(AutoTokenizer.from_pretrained(str(target)))
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return Problem(str(source), f"Its tokenizer cannot be loaded ({type(error).__name__}: {error}).",
                       "Choose a model with a tokenizer, or mend the folder.")  # fmt: skip
    if tokens > config.vocab_size:
        return Problem(
            str(source),
            f"Its tokenizer has {tokens:,} tokens and the model only {config.vocab_size:,}: the last ones would fail.",
            "Use the tokenizer that belongs to the model.",
        )
    return {
        "architecture": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "text_only": text is not whole,
        "stand_in": figures is not text,
    }


def shrunk(config: Any, widths: Mapping[str, int]) -> Any:
    """A copy of a text model's configuration, cut to few layers and to `widths`; the vocabulary stays."""
    small = copy.deepcopy(config)
    heads = _get(small, "num_attention_heads") or 1  # models without attention have none
    head = getattr(small, "head_dim", None) or _get(small, "hidden_size") // heads
    for name, value in _ALWAYS.items():
        if (_get(small, name) or 0) > value:
            _set(small, name, value)
    for name, value in widths.items():
        if name == "head_dim" and not hasattr(small, name):
            continue
        as_many = name == "num_key_value_heads" and _get(config, name) == heads  # each query head has its own
        if _get(small, name) is not None:
            _set(small, name, widths["num_attention_heads"] if as_many else value)
    if widths and "hidden_size" not in widths:  # heads as wide as they were
        _set(small, "hidden_size", head * widths["num_attention_heads"])
    layers = _get(small, "num_hidden_layers")
    kinds = next((getattr(small, name) for name in _PER_LAYER if isinstance(getattr(small, name, None), list)), None)
    kept = min(2, layers)
    if kinds is not None and len(kinds) == layers:
        kept = next(number for number in range(kept, layers + 1) if set(kinds[:number]) == set(kinds))
    for name in _PER_LAYER:
        listed = getattr(small, name, None)
        if isinstance(listed, list) and len(listed) == layers:
            setattr(small, name, listed[:kept])
    _set(small, "num_hidden_layers", kept)
    return small


def copy_tokenizer(source: Path, target: Path, *, text_only: bool) -> None:
    """Copy what lies beside the weights: tokenizer, chat template, generation settings."""
    for path in sorted(source.iterdir()):
        if not path.is_file() or path.name == "config.json" or path.name.endswith(WEIGHTS):
            continue
        if path.stat().st_size <= COPIED_BYTES and not (text_only and "processor" in path.name):
            shutil.copyfile(path, target / path.name)


def _get(config: Any, name: str) -> Any:
    return next((getattr(config, each) for each in _names(name) if hasattr(config, each)), None)


def _set(config: Any, name: str, value: int) -> None:
    for each in _names(name):
        if hasattr(config, each):
            setattr(config, each, value)
            return


def _names(name: str) -> Iterator[str]:
    yield name
    yield from _SPELLINGS.get(name, ())


def _unloadable(source: Path, error: Exception) -> Problem:
    said = " ".join(str(error).split())[:300]
    return Problem(
        str(source),
        f"transformers cannot make a model of this architecture ({type(error).__name__}: {said}).",
        "Check the model's config.json, or install the version of transformers that it needs.",
    )


def _without_four_bit() -> None:
    """Let scripts that load in 4 bit check that wish as always, and load the small model whole."""
    import transformers  # noqa: TID251 - a worker
    import trl.trainer.grpo_trainer  # noqa: F401, TID251 - it must have the real one
    from transformers.utils.quantization_config import BitsAndBytesConfig as Real  # noqa: TID251

    def checked(kind: type, *args: Any, **kwargs: Any) -> None:
        wanted = Real(*args, **kwargs)
        if wanted.load_in_4bit and importlib.util.find_spec("bitsandbytes") is None:
            raise ImportError("Using `bitsandbytes` 4-bit quantization requires `bitsandbytes`")  # as transformers says

    transformers.BitsAndBytesConfig = type("BitsAndBytesConfig", (Real,), {"__new__": checked})


def _run(script: Path, arguments: list[str]) -> dict[str, Any] | None:
    return _caught(lambda: runpy.run_path(str(script), run_name="__main__"), [str(script), *arguments])


def _caught(run: Callable[[], object], argv: list[str]) -> dict[str, Any] | None:
    """What went wrong while the script ran, read from its traceback; None: it ended well."""
    os.environ["GRPO_TUI_RUN"] = str(Path(argv[0]).parent)
    sys.argv = argv
    try:
        run()
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        text = traceback.format_exc()
    except Exception:  # noqa: BLE001 - whatever the user's code raises is the answer
        text = traceback.format_exc()
    else:
        return None
    sys.stderr.write(text)
    found = read_trace(text, trl=metadata.version("trl"))
    if found is None:
        last = text.strip().splitlines()[-1]
        problem = Problem("train.py", f"It ended with: {last}", "Correct it there, and try again.")
    else:
        problem = found.problem
    return {"problem": problem.as_json(), "trace": text[-8000:]}


if __name__ == "__main__":
    serve({"try": try_steps, "measure": measure}, channel)
