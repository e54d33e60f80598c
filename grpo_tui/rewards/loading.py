"""Reward functions loaded from a file, the way a training loads them. Standard library only; runs the user's code."""

import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo_tui.answered import only_answered
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

Reward = Callable[..., Any]


def load_rewards(path: Path, names: Sequence[str]) -> list[Reward] | Problem:
    """The functions `names` of the file, in that order, each with its own `__name__`, asked about answered rows only.

    The module is registered in `sys.modules` under the file's stem (or beside a library of that name), and its folder
    is *appended* to `sys.path`: the user's helpers import, and nothing of theirs shadows a library.
    """
    module = load_module(path)
    if isinstance(module, Problem):
        return module
    found = []
    for name in names:
        function = getattr(module, name, None)
        if not callable(function):
            return Problem(str(path), f"There is no reward function `{name}` in it.", "Correct the name, or define it.")
        found.append(named(only_answered(function), name))
    return found


def load_module(path: Path) -> ModuleType | Problem:
    """Run the file and return its module. An exception of the user's code becomes a problem with its line."""
    path = path.resolve()
    if not path.is_file():
        return Problem(str(path), "There is no such file.", "Check the path of the rewards file.")
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    name = path.stem if path.stem not in sys.modules or _is_ours(sys.modules[path.stem], path) else f"{path.stem}_file"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return Problem(str(path), "It is not a Python file.", "Give a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses, pickle and its own helpers look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code may raise anything
        del sys.modules[name]
        return raised(error, path, "The file cannot be loaded")
    return module


def forget(folder: Path) -> None:
    """Drop every loaded module that lies under `folder`, so that edited helpers are read again."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder) and "site-packages" not in file:
            del sys.modules[name]


def named(function: Reward, name: str) -> Reward:
    """`function`, or a wrapper of it, whose `__name__` is `name`.

    TRL names metrics by `__name__`; two lambdas, or two instances of one class, would share one metric.
    """
    if getattr(function, "__name__", None) == name and not isinstance(function, functools.partial):
        return function
    if is_async(function):

        async def awaited(*arguments: Any, **kwargs: Any) -> Any:
            return await function(*arguments, **kwargs)

        wrapper: Reward = awaited
    else:

        def called(*arguments: Any, **kwargs: Any) -> Any:
            return function(*arguments, **kwargs)

        wrapper = called
    wrapper.__name__ = wrapper.__qualname__ = name
    return wrapper


def is_async(function: Reward) -> bool:
    """Whether calling it returns a coroutine (as TRL's `is_async_callable`: partials and instances included)."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def raised(error: BaseException, path: Path, doing: str) -> Problem:
    """An exception of the user's code: the line in the user's file where it happened, and what was said."""
    line, text = last_line(error, path)
    where = f"{path.name}:{line}" if line else path.name
    said = one_line(f"{type(error).__name__}: {error}", 300).rstrip(":. ")
    return Problem(where, f"{doing}: {said}.", f"The line is: {one_line(text, 160)}" if text else "Correct the file.")


def last_line(error: BaseException, path: Path) -> tuple[int, str]:
    """Number (from 1; 0: none) and text of the innermost line of `path` in the traceback."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == path.name:
        return error.lineno or 0, error.text or ""
    lines = [(frame.lineno or 0, frame.line or "") for frame in traceback.extract_tb(error.__traceback__)
             if Path(frame.filename).name == path.name]  # fmt: skip
    return lines[-1] if lines else (0, "")


def _is_ours(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and Path(str(file)).resolve() == path
