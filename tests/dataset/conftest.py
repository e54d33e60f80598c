"""One tokenizer, one worker, and one process with the real `datasets` for all tests of the data."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.child import Worker
from grpo_tui.dataset.sources import Source, open_source

# What training does: it evaluates the expression that `load_call` wrote, with the code that `load_code` wrote.
LIBRARY = """
from grpo_tui.child import open_channel, serve
channel = open_channel()
import json
from pathlib import Path
from datasets import Dataset, Value, disable_progress_bars, load_dataset, load_from_disk
disable_progress_bars()

def load(params, progress):
    data = eval(params["load"])
    kinds = {}
    for name, feature in data.features.items():
        kind = feature.dtype if isinstance(feature, Value) else type(feature).__name__
        kinds[name] = {"large_string": "string", "List": "list", "Json": "json", "dict": "struct"}.get(kind, kind)
    return {"types": kinds, "rows": [{name: tell(value) for name, value in row.items()} for row in data]}

def train(params, progress):
    namespace = {}
    exec(params["code"], namespace)
    exec(params.get("load_code", ""), globals())
    made = list(namespace["prepare_rows"](eval(params["load"]), held_out=params["held_out"]))
    data = Dataset.from_list(made, on_mixed_types="use_json")
    return {"kind": type(data).__name__, "rows": [{name: tell(value) for name, value in row.items()} for row in data]}

def tell(value):
    return value if isinstance(value, (str, int, float, list, dict, type(None))) else repr(value)

def save(params, progress):
    from datasets import DatasetDict
    made = {name: Dataset.from_list(rows, on_mixed_types="use_json") for name, rows in params["splits"].items()}
    (DatasetDict(made) if len(made) > 1 else made["train"]).save_to_disk(params["folder"])
    return {}

serve({"load": load, "train": train, "save": save}, channel)
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The real `datasets`, offline, in a process of its own."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "library.py").write_text(LIBRARY)
    (folder / "sitecustomize.py").write_text(
        f"import grpo_tui.workers\ngrpo_tui.workers.__path__.append({str(folder)!r})\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(folder), "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
    with Worker("library", env=environ) as worker:
        yield worker


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of text or bytes and returns its path."""

    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


@pytest.fixture
def opened() -> Callable[..., Source]:
    """Opens a source that is sound."""

    def open_it(path: Path, options: dict[str, str] | None = None, split: str = "") -> Source:
        source = open_source(str(path), options, split)
        assert isinstance(source, Source), str(source)
        return source

    return open_it


TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def make_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a model folder with a byte-level tokenizer: one token a byte, and whole special tokens."""

    def made(template: str | None = TEMPLATE) -> Path:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        folder = tmp_path_factory.mktemp("model")
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE(vocab={character: at for at, character in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        names = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
        tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
        tokenizer.save(str(folder / "tokenizer.json"))
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
        if template is not None:
            config["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    return made


@pytest.fixture(scope="session")
def model(make_tokenizer: Callable[..., Path]) -> Path:
    """A model folder with a chat template."""
    return make_tokenizer()


@pytest.fixture(scope="session")
def tokenize(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The worker that counts tokens, without a network."""
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path_factory.mktemp("hf"))}
    with Worker("tokenize", env=environ) as worker:
        yield worker
