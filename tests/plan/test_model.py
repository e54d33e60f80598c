"""What a model's files say: shape, parameters, template, end tokens; and what is said when they say nothing."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.plan.model import (
    ModelFacts,
    cache_folder,
    is_hub_id,
    read_headers,
    read_model,
)
from grpo_tui.plan.shape import ModelShape, read_shape
from grpo_tui.problem import Problem
from tests.plan.shapes import CONFIGS, COUNTS, shape_of


@pytest.mark.parametrize("name", COUNTS)
def test_the_closed_form_counts_every_parameter_as_the_instantiated_module_does(name: str) -> None:
    parameters, adapter, packed = COUNTS[name]
    shape = shape_of(name)
    assert shape.parameters == parameters
    assert shape.adapter_parameters(16) == pytest.approx(adapter * 1e6, abs=0.06e6)
    assert shape.nf4_bytes == pytest.approx(packed * 2**30, abs=0.006 * 2**30)


def test_a_mixture_of_experts_is_an_estimate_and_says_what_does_not_reach_the_experts() -> None:
    shape = shape_of("Qwen3-30B-A3B")
    assert shape.estimate
    assert shape.intermediate == 8 * 768
    assert "experts" in " ".join(shape.notes)


def test_an_architecture_nobody_counted_is_called_an_estimate() -> None:
    shape = read_shape({**CONFIGS["Llama-3.1-8B"], "model_type": "brand_new"})
    assert isinstance(shape, ModelShape)
    assert shape.estimate
    assert "brand_new" in shape.notes[0]


def test_of_a_multimodal_model_the_text_part_is_read() -> None:
    shape = read_shape(
        {"model_type": "gemma3", "text_config": CONFIGS["Gemma-3-1B"], "vision_config": {"hidden_size": 9}}
    )
    assert isinstance(shape, ModelShape)
    assert (shape.hidden, shape.layers, shape.multimodal, shape.estimate) == (1152, 26, True, True)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "bert"}, "hidden size"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({**CONFIGS["Qwen2.5-0.5B"], "num_hidden_layers": "many"}, "number of layers"),
        ({}, "vocabulary size"),
    ],
)
def test_a_configuration_that_is_no_decoder_is_refused_with_a_sentence(config: dict[str, Any], word: str) -> None:
    problem = read_shape(config)
    assert isinstance(problem, Problem)
    assert word in problem.what


def test_layers_with_a_window_keep_only_their_window_in_the_cache() -> None:
    shape = read_shape({**CONFIGS["Gemma-3-1B"], "sliding_window": 512, "sliding_window_pattern": 6})
    assert isinstance(shape, ModelShape)
    full = shape_of("Gemma-3-1B")
    assert shape.kv_bytes(1, 256) == full.kv_bytes(1, 256)
    assert shape.kv_bytes(1, 4096) < full.kv_bytes(1, 4096) / 3
    hybrid = read_shape({**CONFIGS["Qwen3-0.6B"], "layer_types": ["linear_attention", "full_attention"] * 14})
    assert isinstance(hybrid, ModelShape)
    assert hybrid.kv_bytes(4, 1000) == shape_of("Qwen3-0.6B").kv_bytes(4, 1000) // 2


def write_tensors(path: Path, shapes: dict[str, tuple[int, ...]], dtype: str = "BF16") -> None:
    """A safetensors file whose header is real and whose data were never written: only headers are read."""
    header = {name: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


TINY = {**CONFIGS["Qwen2.5-0.5B"], "hidden_size": 8, "vocab_size": 16, "eos_token_id": [3, 5]}


def make_model(folder: Path, config: dict[str, Any] = TINY, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"config.json": config, **files}.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def test_the_parameter_count_comes_from_the_weights_own_headers(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})
    )
    write_tensors(folder / "one.safetensors", {"model.embed_tokens.weight": (16, 8), "lm_head.weight": (16, 8)})
    write_tensors(folder / "two.safetensors", {"model.norm.weight": (8,)})
    facts = read_model(str(folder))
    assert isinstance(facts, ModelFacts)
    assert facts.shape.parameters == 16 * 8 + 8  # the tied head is not counted twice
    assert facts.shape.exact_parameters
    (folder / "two.safetensors").unlink()
    again = read_model(str(folder))
    assert isinstance(again, ModelFacts)
    assert not again.shape.exact_parameters


@pytest.mark.parametrize("content", [b"", b"\x01", struct.pack("<Q", 2**60), struct.pack("<Q", 4) + b"{{{{"])
def test_a_damaged_weight_file_is_not_counted_and_stops_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert read_headers(tmp_path) == {}


def test_every_token_that_ends_a_completion_is_named(tmp_path: Path) -> None:
    folder = make_model(
        tmp_path / "m",
        **{
            "tokenizer_config.json": {
                "eos_token": {"content": "<|im_end|>"},
                "chat_template": "{{ messages }}",
                "added_tokens_decoder": {"3": {"content": "<|im_end|>"}},
            },
            "tokenizer.json": {},
        },
    )
    facts = read_model(str(folder))
    assert isinstance(facts, ModelFacts)
    assert facts.end_tokens == ("<|im_end|>", "id 5")
    assert facts.chat_template
    assert facts.tokenizer


def test_a_template_in_its_own_file_counts_and_a_missing_one_is_seen(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    before = read_model("m", project=tmp_path)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    after = read_model("m", project=tmp_path)
    assert isinstance(before, ModelFacts)
    assert isinstance(after, ModelFacts)
    assert (before.chat_template, after.chat_template) == (False, True)


def test_a_model_of_the_hub_is_found_in_the_cache_by_its_reference(tmp_path: Path) -> None:
    environ = {"HF_HOME": str(tmp_path)}
    stored = cache_folder(environ) / "models--team--tiny"
    make_model(stored / "snapshots" / "abc123")
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("abc123")
    facts = read_model("team/tiny", environ=environ)
    assert isinstance(facts, ModelFacts)
    assert facts.commit == "abc123"
    other = read_model("team/tiny", "v2", environ=environ)
    assert isinstance(other, Problem)
    assert "revision v2" in other.what


def test_the_cache_is_where_the_hub_library_would_look(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert cache_folder(home) == tmp_path / ".cache/huggingface/hub"
    assert cache_folder({**home, "XDG_CACHE_HOME": "/x"}) == Path("/x/huggingface/hub")
    assert cache_folder({**home, "XDG_CACHE_HOME": "/x", "HF_HOME": "/h"}) == Path("/h/hub")
    assert cache_folder({**home, "HF_HOME": "/h", "HF_HUB_CACHE": "/c"}) == Path("/c")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "No model is chosen"),
        ("/nowhere/model", "no such folder"),
        ("./gone", "no such folder"),
        ("a/b/c", "no such folder"),
        ("team/never-fetched", "not in the Hugging Face cache"),
        ("notes.txt", "a file, not a model folder"),
        ("empty", "no config.json"),
        ("adapter", "an adapter, not a model"),
    ],
)
def test_a_model_that_is_not_there_is_told_plainly(tmp_path: Path, name: str, word: str) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    problem = read_model(name, project=tmp_path, environ={"HF_HOME": str(tmp_path / "hf")})
    assert isinstance(problem, Problem)
    assert word in problem.what
    assert problem.remedy


def test_a_broken_configuration_names_its_file(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    (folder / "config.json").write_text("{")
    problem = read_model(str(folder))
    assert isinstance(problem, Problem)
    assert problem.where.endswith("config.json")


def test_an_existing_folder_is_never_taken_for_a_hub_id(tmp_path: Path) -> None:
    (tmp_path / "team" / "tiny").mkdir(parents=True)
    assert not is_hub_id("team/tiny", tmp_path)
    assert is_hub_id("team/other", tmp_path)
    assert not is_hub_id("../up", tmp_path)
