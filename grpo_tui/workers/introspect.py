"""What the installed TRL accepts: the fields of its configuration, and whether a planned configuration constructs.

A configuration for four GPUs is tried on a machine that may have none: the world size, and whether the GPU knows
bfloat16 and TF32, are answered as planned while GRPOConfig checks itself. Nothing is loaded and nothing is trained.
"""

from grpo_tui.child import open_channel, serve

channel = open_channel()

import contextlib  # noqa: E402 - the channel must be open before anything can print
import dataclasses  # noqa: E402
import enum  # noqa: E402
import inspect  # noqa: E402
import tempfile  # noqa: E402
import types  # noqa: E402
import typing  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402
from unittest import mock  # noqa: E402

warnings.filterwarnings("ignore")

import transformers  # noqa: E402, TID251 - a worker
from peft import LoraConfig  # noqa: E402, TID251 - a worker
from trl import GRPOConfig, GRPOTrainer  # noqa: E402, TID251 - a worker

Progress = Callable[[dict[str, Any]], None]


def _plain(value: Any) -> Any:
    """`value` as JSON holds it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _choices(annotation: Any) -> list[str]:
    parts = [annotation, *typing.get_args(annotation)]
    enums = [part for part in parts if isinstance(part, type) and issubclass(part, enum.Enum)]
    return [str(member.value) for member in enums[0]] if enums else []


def _fields(cls: Any) -> dict[str, dict[str, Any]]:
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):  # an annotation that only a type checker can resolve
        hints = {}
    found = {}
    for one in dataclasses.fields(cls):
        if not one.init:
            continue
        default = one.default
        if default is dataclasses.MISSING:
            default = None if one.default_factory is dataclasses.MISSING else one.default_factory()
        found[one.name] = {
            "name": one.name,
            "default": _plain(default),
            "help": " ".join(str(one.metadata.get("help", "")).split()),
            "kind": one.type if isinstance(one.type, str) else getattr(one.type, "__name__", str(one.type)),
            "choices": _choices(hints.get(one.name)),
        }
    return found


def schema(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Fields of GRPOConfig and LoraConfig, and the parameters of GRPOTrainer."""
    return {
        "fields": _fields(GRPOConfig),
        "lora": _fields(LoraConfig),
        "trainer": [name for name in inspect.signature(GRPOTrainer.__init__).parameters if name != "self"],
    }


@contextlib.contextmanager
def _planned_machine(world_size: int, ampere: bool) -> Iterator[None]:
    """While this holds, configurations believe in `world_size` processes, on GPUs of Ampere or newer if `ampere`."""
    arguments = transformers.training_args
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(arguments.TrainingArguments, "world_size", property(lambda self: world_size))
        )
        answers = {"is_torch_bf16_gpu_available": ampere, "is_torch_tf32_available": ampere, "enable_tf32": None}
        for name, answer in answers.items():
            if hasattr(arguments, name):
                stack.enter_context(mock.patch.object(arguments, name, return_value=answer))
        yield


def _mistyped(cls: Any, settings: dict[str, Any]) -> dict[str, str]:
    """Settings whose value is of another type than the field's annotation: name to the type that is wanted.

    A dataclass takes any value; a wrong type fails in the first step, or is misread.
    """
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):
        return {}
    wrong = {name for name, value in settings.items() if name in hints and not _fits(value, hints[name])}
    return {name: str(hints[name]).replace("typing.", "") for name in sorted(wrong)}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of TOML can stand where `hint` is wanted. What is not understood is let through."""
    parts = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    plain = origin or hint
    if plain is type(None):
        return value is None
    if not isinstance(plain, type):
        return True
    if issubclass(plain, enum.Enum):
        return isinstance(value, str)
    if plain is bool or isinstance(value, bool):
        return plain is bool and isinstance(value, bool)
    if plain is float:
        return isinstance(value, int | float)
    if plain in (int, str, dict, list):
        return isinstance(value, plain)
    return True


def _construct(request: dict[str, Any]) -> dict[str, Any]:
    settings = dict(request["settings"])
    ampere = bool(request.get("ampere", True))
    with tempfile.TemporaryDirectory() as folder, _planned_machine(int(request.get("world_size", 1)), ampere):
        try:
            args = GRPOConfig(output_dir=folder, **settings)
            warmup = getattr(args, "get_warmup_steps", lambda steps: 0)(100)
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            return {"error": type(error).__name__, "text": str(error)}
    return {
        "mistyped": _mistyped(GRPOConfig, settings),
        "generation_batch_size": args.generation_batch_size,
        "steps_per_generation": args.steps_per_generation,
        "num_generations": args.num_generations,
        "warmup": warmup,
    }


def construct(params: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Try each of `requests`, {settings, world_size, ampere, lora}: what it resolves to, or {error, text}."""
    results = []
    for request in params["requests"]:
        result = _construct(request)
        if "error" not in result and request.get("lora"):
            try:
                LoraConfig(task_type="CAUSAL_LM", **request["lora"])
            except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
                result = {"error": type(error).__name__, "text": str(error), "lora": True}
        results.append(result)
    return {"results": results}


if __name__ == "__main__":
    serve({"schema": schema, "construct": construct}, channel)
