"""What the tests of this room share: one worker that scores and one that knows TRL, for starting them costs."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from grpo_tui import recipe
from grpo_tui.child import Worker
from grpo_tui.rewards.bench import start_worker


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with start_worker(tmp_path_factory.mktemp("project")) as started:
        yield started


@pytest.fixture(scope="session")
def introspect() -> Iterator[Worker]:
    """A worker that knows the installed TRL."""
    with Worker("introspect") as started:
        yield started


@pytest.fixture(scope="session")
def script() -> Callable[[str, str], ModuleType]:
    """A script of a shipped recipe as a module."""

    def load(name: str, file: str) -> ModuleType:
        path: Path = recipe.shipped() / name / file
        spec = importlib.util.spec_from_file_location(f"{name}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
