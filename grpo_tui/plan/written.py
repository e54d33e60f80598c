"""A configuration that was written for something else: YAML of `trl grpo` or open-r1, or a Python script.

It is read and sorted, not understood: `translate` says what each key means today. Of a script only literals are read,
and names that stand for one; nothing in it is executed.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from grpo_tui.problem import Problem

MAXIMUM_BYTES = 1_000_000
"""No configuration is as long as this."""

MODEL_KEYS = frozenset(
    {
        "model", "model_name_or_path", "model_name", "pretrained_model_name_or_path", "model_revision", "revision",
        "torch_dtype", "dtype", "attn_implementation", "device_map", "load_in_4bit", "load_in_8bit",
        "bnb_4bit_quant_type", "bnb_4bit_quant_storage", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant",
        "use_bnb_nested_quant", "max_seq_length", "fast_inference",
    }
)  # fmt: skip
"""Keys that say which model is loaded, and how: of `trl.ModelConfig`, `from_pretrained` and `BitsAndBytesConfig`."""

LORA_KEYS: Mapping[str, str] = {
    "lora_r": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_target_modules": "target_modules",
    "lora_target_parameters": "target_parameters",
    "lora_modules_to_save": "modules_to_save",
    "lora_task_type": "task_type",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}
"""Keys of `trl.ModelConfig`, and the fields of `peft.LoraConfig` that they are."""

DATA_KEYS = frozenset(
    {
        "dataset_name", "dataset_config", "dataset_configs", "dataset_train_split", "dataset_test_split", "datasets",
        "dataset_prompt_column", "system_prompt", "dataset_mixture",
    }
)  # fmt: skip
"""Keys that say what is trained on, of `trl.ScriptArguments` and of open-r1."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a file sets, under the names that stand there."""

    training: Mapping[str, Any] = field(default_factory=dict)
    """Keys meant for GRPOConfig, of whatever version, and all that nobody knows."""

    model: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] | None = None
    """Fields of `peft.LoraConfig`; None: no adapter is set up."""

    data: Mapping[str, Any] = field(default_factory=dict)
    rewards: tuple[str, ...] = ()
    """Names of the reward functions, in their order."""

    computed: tuple[tuple[str, str], ...] = ()
    """Keys of a script whose value is computed there, with the source of the value."""


def read_file(path: Path) -> Written | Problem:
    """What the file sets: Python by its suffix `.py`, else YAML, of which JSON is a part."""
    try:
        if path.stat().st_size > MAXIMUM_BYTES:
            return Problem(str(path), "It is too long for a configuration.", "Name the file with the settings.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        return Problem(str(path), f"It cannot be read: {why}.", "Name a YAML file or a Python script.")
    found = read_python(text, str(path)) if path.suffix == ".py" else read_yaml(text, str(path))
    if isinstance(found, Written) and not (found.training or found.model or found.lora):
        return Problem(str(path), "It sets nothing that training knows.", "Name a YAML file or a Python script.")
    return found


# ----------------------------------------------------------------------------------------------------------- YAML


def read_yaml(text: str, where: str = "configuration") -> Written | Problem:
    """What a YAML file for `trl grpo --config`, or one of open-r1, sets."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        return Problem(where, f"It is not valid YAML{line}: {getattr(error, 'problem', error)}.", "Correct it there.")
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        return Problem(where, "It holds no settings: a key and a value in each line.", "Name another file.")
    return sort(content)


def sort(settings: Mapping[str, Any]) -> Written:
    """Flat settings sorted by what they are about."""
    rest = dict(settings)
    loading = rest.pop("model_init_kwargs", None)
    model = {key: rest.pop(key) for key in list(rest) if key in MODEL_KEYS}
    if isinstance(loading, Mapping):
        model |= {str(key): value for key, value in loading.items()}
    adapter = next((rest.pop(key) for key in ("lora", "lora_config", "peft_config") if key in rest), None)
    flat = {LORA_KEYS[key]: rest.pop(key) for key in list(rest) if key in LORA_KEYS}
    wanted = rest.pop("use_peft", bool(adapter))
    return Written(
        model=model,
        lora={**flat, **(adapter if isinstance(adapter, Mapping) else {})} if wanted else None,
        data={key: rest.pop(key) for key in list(rest) if key in DATA_KEYS},
        rewards=tuple(str(name).rpartition(".")[2] for name in _listed(rest.pop("reward_funcs", None))),
        training=rest,
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if value is None else [value]


# ---------------------------------------------------------------------------------------------------------- Python


class _ComputedError(Exception):
    """A value that is no literal."""


def read_python(text: str, where: str = "script") -> Written | Problem:
    """What a script passes to GRPOConfig, LoraConfig, `from_pretrained`, `load_dataset` and GRPOTrainer."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return Problem(where, f"It is not Python{line}: {error}.", "Correct it, or name another file.")
    names = _names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    configs = [call for call in calls if _called(call) == "GRPOConfig"]
    if not configs:
        return Problem(where, "There is no GRPOConfig(...) in it.", "Name the script that makes the configuration.")
    if len(configs) > 1:
        lines = ", ".join(str(call.lineno) for call in configs)
        what = f"It makes {len(configs)} configurations, in lines {lines}."
        return Problem(where, what, "Copy the one that is meant into a file of its own.")
    computed: list[tuple[str, str]] = []

    def arguments(call: ast.Call) -> dict[str, Any]:
        return dict(_arguments(call, names, text, computed))

    training = arguments(configs[0])
    loading = training.pop("model_init_kwargs", None)
    model: dict[str, Any] = dict(loading) if isinstance(loading, Mapping) else {}
    adapters = [call for call in calls if _called(call) == "LoraConfig"]
    adapters += [call for call in calls if _called(call) == "get_peft_model" and len(call.keywords) > 2]  # Unsloth
    lora = {key: value for key, value in arguments(adapters[0]).items() if key != "model"} if adapters else None
    for call in calls:
        if _loads_a_model(call):
            model |= {key: value for key, value in arguments(call).items() if key != "quantization_config"}
            model |= _first(call, names, "model_name_or_path")
        elif _called(call) == "BitsAndBytesConfig":
            model |= arguments(call)
    trainer = next((call for call in calls if _called(call) == "GRPOTrainer"), None)
    if trainer is not None:
        chosen = next((keyword.value for keyword in trainer.keywords if keyword.arg == "model"), None)
        name = _quiet(chosen, names)
        if isinstance(name, str):
            model.setdefault("model_name_or_path", name)
    return Written(
        training=training,
        model=model,
        lora=lora,
        data=_data(calls, names),
        rewards=_rewards(trainer),
        computed=tuple(computed),
    )


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _loads_a_model(call: ast.Call) -> bool:
    if _called(call) != "from_pretrained" or not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value)
    return owner.endswith(("ForCausalLM", "LanguageModel", "FastModel", "ForConditionalGeneration"))


def _names(tree: ast.Module) -> dict[str, Any]:
    """Names that stand for one literal wherever they are set; a name that is set twice stands for nothing."""
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
            targets = [node.target]
        for target in targets:
            if not isinstance(target, ast.Name):
                continue
            value = None if target.id in seen or not isinstance(node, ast.Assign) else _quiet(node.value, found)
            seen.add(target.id)
            found.pop(target.id, None)
            if value is not None:
                found[target.id] = value
    return found


def _arguments(
    call: ast.Call, names: Mapping[str, Any], text: str, computed: list[tuple[str, str]]
) -> Iterator[tuple[str, Any]]:
    """The keyword arguments of a call that are literals; the others are put to `computed`."""
    for keyword in call.keywords:
        try:
            value = _literal(keyword.value, names)
        except _ComputedError:
            source = " ".join((ast.get_source_segment(text, keyword.value) or "").split())
            computed.append((keyword.arg or "**", source))
            continue
        if keyword.arg is not None:
            yield keyword.arg, value
        elif isinstance(value, Mapping):
            yield from value.items()


def _literal(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a literal, of a name that stands for one, or of a number type of torch. Raises _ComputedError."""
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return node.attr
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item, names) for item in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {
            _literal(key, names): _literal(value, names)
            for key, value in zip(node.keys, node.values, strict=True)
            if key
        }
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _ComputedError from None
    return sorted(map(str, value)) if isinstance(value, set) else value


def _quiet(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """As `_literal`; None for what is no literal."""
    try:
        return None if node is None else _literal(node, names)
    except _ComputedError:
        return None


def _first(call: ast.Call, names: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = _quiet(call.args[0], names) if call.args else None
    return {key: value} if isinstance(value, str) else {}


_READERS = ("json", "csv", "parquet", "text")


def _data(calls: Sequence[ast.Call], names: Mapping[str, Any]) -> dict[str, Any]:
    """What the first `load_dataset` loads, by the keys of `trl grpo`."""
    call = next((call for call in calls if _called(call) == "load_dataset"), None)
    if call is None:
        return {}
    given = {keyword.arg: _quiet(keyword.value, names) for keyword in call.keywords if keyword.arg}
    for key, node in zip(("path", "name"), call.args, strict=False):
        given.setdefault(key, _quiet(node, names))
    files = given.get("data_files")
    source = files if given.get("path") in _READERS and isinstance(files, str) else given.get("path")
    found = {"dataset_name": source, "dataset_config": given.get("name"), "dataset_train_split": given.get("split")}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _rewards(trainer: ast.Call | None) -> tuple[str, ...]:
    given = next((word.value for word in trainer.keywords if word.arg == "reward_funcs"), None) if trainer else None
    nodes = given.elts if isinstance(given, ast.List | ast.Tuple) else [given] if given is not None else []
    return tuple(node.id for node in nodes if isinstance(node, ast.Name))
