"""Real trainings in this process: the libraries are imported once, and a training takes a fraction of a second."""

import importlib.util
import signal
import sys
import warnings
from pathlib import Path

import pytest

from grpo_tui.progress.events import EVENTS_FILE
from grpo_tui.progress.fold import follow


@pytest.fixture(scope="session")
def tiny():
    """The module `tiny_train`."""
    path = Path(__file__).with_name("tiny_train.py")
    spec = importlib.util.spec_from_file_location("tiny_train", path)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def train(tiny, monkeypatch):
    """`tiny_train.train`, with what the recorder leaves in a process put back."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield tiny.train
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def progress():
    """The progress of a run folder, as a viewer folds it."""
    return lambda run: follow(run / EVENTS_FILE).progress
