"""A model found on this machine, read from its files: shape, parameters, chat template, end tokens.

Nothing heavy is imported: `config.json`, the tokenizer's JSON and the headers of safetensors files are read by path,
from a local folder or from the cache that huggingface_hub keeps.
"""

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_tui.plan.shape import ModelShape, read_shape, whole
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_MAX_HEADER = 100_000_000  # the limit safetensors itself sets on a header


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model found on this machine."""

    name: str
    folder: Path
    commit: str
    """Commit of the hub's repository; empty for a local folder."""

    shape: ModelShape
    weight_bytes: int
    """Size of the weight files here; 0: they are not on this machine yet."""

    chat_template: bool
    tokenizer: bool
    end_tokens: tuple[str, ...]
    """Text (or id, where the text is not known) of every token that ends a completion."""

    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes when the model does: its name, commit and parameter count."""
        return f"{self.name}@{self.commit or self.folder}:{self.shape.parameters}"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where huggingface_hub keeps what it fetched; the order of variables is that of huggingface_hub.constants."""
    home = Path(environ.get("HOME", "~")).expanduser()
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub_home = Path(environ.get("HF_HOME") or cache / "huggingface").expanduser()
    return Path(environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or hub_home / "hub").expanduser()


def is_hub_id(name: str, project: Path = Path()) -> bool:
    """`name` can be an id on the Hugging Face hub, and is not a folder of this machine."""
    if not name or (project / expanded(name)).exists():
        return False
    return len(name) <= 96 and _HUB_ID.fullmatch(name) is not None and "--" not in name and ".." not in name


def locate(
    name: str, revision: str = "", *, project: Path = Path(), environ: Mapping[str, str] = os.environ
) -> tuple[Path, str] | Problem:
    """Folder that holds the model's `config.json`, and its commit if it comes from the cache of the hub."""
    if not name.strip():
        return Problem("model", "No model is chosen.", "Name a local folder or a model of the Hugging Face hub.")
    folder = project / expanded(name)
    if folder.is_dir():
        if (folder / "config.json").is_file():
            return folder, ""
        adapter = (folder / "adapter_config.json").is_file()
        return Problem(
            name,
            "The folder holds an adapter, not a model."
            if adapter
            else "The folder has no config.json, so it is no model.",
            "Choose the base model that the adapter was trained on."
            if adapter
            else "Choose the folder that save_pretrained wrote.",
        )
    if folder.exists():
        return Problem(name, "This is a file, not a model folder.", "Choose the folder that contains config.json.")
    if not is_hub_id(name, project):
        return Problem(
            name, "There is no such folder.", "Correct the path, or name a model of the hub as `owner/name`."
        )
    stored = cache_folder(environ) / f"models--{name.replace('/', '--')}"
    reference = stored / "refs" / (revision or "main")
    try:
        commit = reference.read_text().strip() if reference.is_file() else revision
    except OSError:
        commit = revision
    snapshot = stored / "snapshots" / commit
    if commit and (snapshot / "config.json").is_file():
        return snapshot, commit
    return Problem(
        name,
        "There is no folder of this name, and the model is not in the Hugging Face cache of this machine"
        + (f" at revision {revision}." if revision else "."),
        "Fetch its configuration and tokenizer (a few megabytes), or correct the name.",
    )


def _read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; empty where there is none or it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _config(folder: Path) -> dict[str, Any] | Problem:
    path = folder / "config.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return Problem(str(path), f"It cannot be read ({error.strerror or error}).", "Check its permissions.")
    except ValueError as error:
        return Problem(str(path), f"It is not valid JSON ({error}).", "Fetch the model again or repair the file.")
    if not isinstance(value, dict):
        return Problem(str(path), "It holds no JSON object.", "Fetch the model again or repair the file.")
    return value


def read_headers(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name to (number type, shape) of every tensor in the folder's safetensors files; nothing but the headers is read.

    Empty where there is no such file, where a shard is missing, or where a header is damaged.
    """
    index = _read_json(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict):
        files = sorted({str(name) for name in index.values()})
    else:
        files = ["model.safetensors"] if (folder / "model.safetensors").is_file() else []
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in files:
        if Path(name).name != name:
            return {}
        header = _read_header(folder / name)
        if header is None:
            return {}
        tensors.update(header)
    return tensors


def _read_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER:
                return None
            header = json.loads(file.read(length))
        return {
            name: (str(entry["dtype"]), tuple(int(side) for side in entry["shape"]))
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
        return None


def _parameters(tensors: Mapping[str, tuple[str, tuple[int, ...]]], tied: bool) -> int:
    total = 0
    for name, (_, shape) in tensors.items():
        if tied and name.endswith("lm_head.weight"):
            continue  # some savers write the tied head a second time
        size = 1
        for side in shape:
            size *= side
        total += size
    return total


def with_headers(shape: ModelShape, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> ModelShape:
    """`shape` with the parameter count of the weights themselves; unchanged where they are packed or absent."""
    if not tensors or shape.quantized or any(dtype in ("U8", "I8", "I32", "F4") for dtype, _ in tensors.values()):
        return shape
    return replace(shape, parameters=_parameters(tensors, shape.tied), exact_parameters=True)


def _token_text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _end_tokens(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Every token that ends a completion: the tokenizer's, and those of the generation configuration (TRL 1.16 merges
    them)."""
    tokenizer = _read_json(folder / "tokenizer_config.json")
    own = _token_text(tokenizer.get("eos_token")) or _token_text(
        _read_json(folder / "special_tokens_map.json").get("eos_token")
    )
    if own:
        yield own
    declared = _read_json(folder / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
    texts = {}
    decoder = tokenizer.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        texts = {key: _token_text(value) for key, value in decoder.items()}
    if not texts:
        added = _read_json(folder / "tokenizer.json").get("added_tokens")
        if isinstance(added, list):
            texts = {str(token.get("id")): _token_text(token) for token in added if isinstance(token, dict)}
    for number in declared if isinstance(declared, list) else [declared]:
        if number is not None:
            yield texts.get(str(number)) or f"id {number}"


def read_model(
    name: str, revision: str = "", *, project: Path = Path(), environ: Mapping[str, str] = os.environ
) -> ModelFacts | Problem:
    """Everything known about the model from files on this machine."""
    found = locate(name, revision, project=project, environ=environ)
    if isinstance(found, Problem):
        return found
    folder, commit = found
    config = _config(folder)
    if isinstance(config, Problem):
        return config
    shape = read_shape(config)
    if isinstance(shape, Problem):
        return replace(shape, where=f"{name}: {shape.where}")
    shape = with_headers(shape, read_headers(folder))
    metadata = _read_json(folder / "model.safetensors.index.json").get("metadata")
    counted = whole(metadata.get("total_parameters")) if isinstance(metadata, dict) else 0
    if counted and not shape.exact_parameters and not shape.quantized:
        shape = replace(shape, parameters=counted, exact_parameters=True)  # the index came without the weights
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    tokenizer = any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json"))
    weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    notes = list(shape.notes)
    if not tokenizer:
        notes.append("No tokenizer file lies beside the configuration: token counts need one.")
    remote = config.get("auto_map")
    if isinstance(remote, dict) and remote:
        notes.append(
            "The model brings its own Python code (auto_map); it is run only with trust_remote_code, never by us."
        )
    return ModelFacts(
        name=name,
        folder=folder,
        commit=commit,
        shape=shape,
        weight_bytes=sum(_size(path) for path in weights),
        chat_template=bool(tokenizer_config.get("chat_template")) or (folder / "chat_template.jinja").is_file(),
        tokenizer=tokenizer,
        end_tokens=tuple(dict.fromkeys(_end_tokens(folder, config))),
        notes=tuple(notes),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
