"""Every shipped recipe is really begun, checked and trained for two steps, on the CPU and on a small random model.

Where a recipe takes its rows from the hub, or has a script that converts such rows, rows of that shape stand in for
them, converted by the recipe's own script.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_tui import recipe, state
from grpo_tui.dataset.prompts import prepare_function
from grpo_tui.dataset.source import Source
from grpo_tui.dataset.sources import open_source
from grpo_tui.diagnosis.traces import read_trace
from grpo_tui.problem import Problem
from grpo_tui.progress.kept import kept_steps
from grpo_tui.recipe import Recipe
from tests.plan.tiny import write_tiny_model
from tests.recipes.hub_rows import ARC_DIGITS, ARC_LETTERS, GSM8K, GSM8K_THOUSANDS, MATH, MATH_FRACTION, MBPP

pytestmark = pytest.mark.slow

Row = Mapping[str, Any]
Script = Callable[[str, str], ModuleType]

STEPS = 2
SETTINGS = {
    "grpo.max_steps": STEPS,
    "grpo.max_completion_length": 24,
    "grpo.num_generations": 4,
    "grpo.per_device_train_batch_size": 4,
    "grpo.gradient_accumulation_steps": 1,
    "grpo.save_steps": STEPS,
}
WRONG = "It cannot be said."


@dataclass(frozen=True)
class Case:
    """A recipe with data: its own, or rows as the hub has them."""

    recipe: str
    hub: str = ""
    """Name of the data there; empty: the recipe's own file."""

    rows: tuple[Row, ...] = ()
    column: str = ""
    """Of what is asked there, by which the rows are told apart."""

    script: str = ""
    """The recipe's, which converts them."""

    right: str = ""
    """A right completion for the first row; empty: the recipe's first sample."""

    def __str__(self) -> str:
        return f"{self.recipe}-{self.hub}" if self.hub else self.recipe


HUB = (
    Case("grade_school_maths", "gsm8k", (GSM8K, GSM8K_THOUSANDS), "question"),
    Case("competition_maths", "math", (MATH, MATH_FRACTION), "problem"),
    Case(
        "multiple_choice", "arc", (ARC_LETTERS, ARC_DIGITS), "question", "from_arc.py",
        "<reasoning>Algae make it.</reasoning><answer>B</answer>",
    ),
    Case("code_with_tests", "mbpp", (MBPP,), "text", "from_mbpp.py", f"```python\n{MBPP['code']}\n```"),
)  # fmt: skip
ONLINE = {case.recipe for case in HUB if not case.script}
CASES = (*(Case(folder.name) for folder in recipe.folders() if folder.name not in ONLINE), *HUB)
NEEDED = {"competition_maths": "math_verify", "json_extraction": "jsonschema"}
"""Recipe to the package that its rewards need, by the name they import."""


NOT_FOUND = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
seek = lambda name, *more: None if name.partition(".")[0] in {blocked} else find(name, *more)
PathFinder.find_spec = staticmethod(seek)
"""


def environment(home: Path, *blocked: str) -> dict[str, str]:
    """No network, home folder or GPU; packages that are `blocked` are found nowhere."""
    home.mkdir(exist_ok=True)
    (home / "sitecustomize.py").write_text(NOT_FOUND.format(blocked=blocked) if blocked else "")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(home), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def run(argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, argv)], cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=600
    )


def command(*words: str | Path, cwd: Path, env: Mapping[str, str], status: int = 0) -> dict[str, Any]:
    """What a command of ours prints with --json; it must end with this status."""
    done = run(["-m", "grpo_tui", *words, "--json"], cwd, env)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def shipped(name: str) -> Recipe:
    found = recipe.read(name)
    assert isinstance(found, Recipe), str(found)
    return found


def hub_file(case: Case, place: Path, script: Script) -> Path:
    """Eight rows of that shape, told apart by a number behind the question."""
    rows: list[Row] = [
        {**row, case.column: f"{row[case.column]}{f' ({number})' if number else ''}"}
        for number, row in enumerate((case.rows * 8)[:8])
    ]
    if case.script:
        rows = [script(case.recipe, case.script).converted(row) for row in rows]
    path = place / f"{case.hub}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), context=4096)


def begin(case: Case, model: Path, place: Path, script: Script) -> list[str | Path]:
    """The words of `init` for a project of this case."""
    words: list[str | Path] = ["init", place / "project", "--recipe", case.recipe, "--cpu"]
    if case.recipe != "word_problems":  # which brings its own
        words += ["--model", model]
    if case.hub:
        words += ["--data", hub_file(case, place, script)]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value}"]
    return words


def first_row(project: Path) -> dict[str, Any]:
    """The first row as training gets it, by the mapping that the project has."""
    loaded = state.load(project)
    assert not isinstance(loaded, Problem), str(loaded)
    answer = loaded.draft.dataset
    source = open_source(str(project / answer.source), dict(answer.options), answer.split)
    assert isinstance(source, Source), str(source)
    raw = source.row(0)
    assert raw is not None
    prepared = prepare_function(answer)(raw)
    assert prepared is not None
    return dict(prepared)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_recipe_is_begun_checked_and_trained_and_pays_for_what_is_right(
    case: Case, model: Path, tmp_path: Path, script: Script
) -> None:
    package = NEEDED.get(case.recipe, "")
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"its rewards need {package}, which is not installed")
    env, found = environment(tmp_path / "home"), shipped(case.recipe)
    project = tmp_path / "project"
    command(*begin(case, model, tmp_path, script), cwd=tmp_path, env=env)
    checks = command("check", project, cwd=project, env=env)
    assert checks["problems"] == []
    rewards = [check for check in checks["checks"] if check["id"] == "rewards"]
    assert [check["level"] for check in rewards] == ["ok"], "nothing is known against the code of a recipe"

    done = run(["train.py"], project, env)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = (project / "runs").iterdir()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (events[-1]["kind"], events[-1]["reason"], events[-1]["step"]) == ("end", "completed", STEPS)
    names = [item.name for item in found.rewards]
    phases = [event["seconds"] for event in events if event["kind"] == "phase"]
    assert len(phases) == STEPS
    for seconds in phases:
        assert {f"reward:{name}" for name in names} <= seconds.keys()
    logs = [event["logs"] for event in events if event["kind"] == "log" and "reward" in event["logs"]]
    assert len(logs) == STEPS
    for log in logs:
        figures = [log[f"rewards/{name}/mean"] for name in names] + [log["reward"], log["grad_norm"]]
        assert all(math.isfinite(figure) for figure in figures), log
    stored = kept_steps(folder, None, STEPS)
    assert not isinstance(stored, Problem), str(stored)
    assert sum(len(step.rewards) for step in stored) == STEPS * 4
    assert None not in [value for step in stored for row in step.rewards for value in row]

    row = first_row(project)
    right = case.right or found.samples[0].text
    samples = project / "samples.jsonl"
    lines = [json.dumps({**row, "completion": text}) + "\n" for text in (right, WRONG)]
    samples.write_text("".join(lines), encoding="utf-8")
    table = command(
        "score", "rewards.py", "--completions", samples, "--names", ",".join(names), "--timeout", "60", "--yes",
        cwd=project, env=env,
    )  # fmt: skip
    paid = dict(zip(names, zip(*table["rewards"], strict=True), strict=True))
    assert paid["correct"] == (1.0, 0.0)
    assert table["weighted"][0] > table["weighted"][1]


def of(name: str) -> Case:
    return next(case for case in CASES if case.recipe == name)


def test_without_the_package_that_its_rewards_need_a_recipe_on_its_own_data_is_not_begun(
    model: Path, tmp_path: Path, script: Script
) -> None:
    """Its rewards are tried on its samples, since both are ours."""
    env = environment(tmp_path / "home", "jsonschema")
    words = begin(of("json_extraction"), model, tmp_path, script)
    [problem] = command(*words, cwd=tmp_path, env=env, status=2)["problems"]
    assert "This reward needs jsonschema: pip install jsonschema" in problem["what"]


def test_without_it_on_other_data_the_check_warns_and_the_trainings_end_is_explained(
    model: Path, tmp_path: Path, script: Script
) -> None:
    """On data that are not ours nothing runs without a yes: the package is missed in the text."""
    env, project = environment(tmp_path / "home", "math_verify"), tmp_path / "project"
    command(*begin(of("competition_maths"), model, tmp_path, script), cwd=tmp_path, env=env)
    checks = command("check", project, cwd=project, env=env)["checks"]
    [warned] = [check for check in checks if "math_verify" in check["text"]]
    assert warned["level"] == "warn"
    assert "pip install math-verify" in warned["remedy"]
    done = run(["train.py"], project, env)
    assert done.returncode == 1
    trace = read_trace(done.stderr)
    assert trace is not None
    assert trace.what == "The module math_verify cannot be imported."
    assert "pip install" in trace.remedy
