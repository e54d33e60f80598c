"""The oldest TRL that is promised: a project is written, checked and trained with it, in an environment of its own.

GRPO_TUI_OLD_TRL_PYTHON names the python of that environment; it holds TRL 1.0 and what else grpo-tui depends on.
"""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
VARIABLE = "GRPO_TUI_OLD_TRL_PYTHON"
PYTHON = os.environ.get(VARIABLE, "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason=f"{VARIABLE} names no python of an environment with TRL 1.0"),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty home, and this source laid out as it would be installed."""
    package = tmp_path / "site" / "grpo_tui"
    package.mkdir(parents=True)
    for path in (*(ROOT / "grpo_tui").iterdir(), ROOT / "screens", ROOT / "recipes"):
        (package / path.name).symlink_to(path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_", "HF_"))}
    home = tmp_path / "home"
    home.mkdir()
    return {
        **kept,
        "HOME": str(home),
        "PYTHONPATH": str(package.parent),
        "PYTHONSAFEPATH": "1",  # the package of this folder has no screens and no recipes in it
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def told(environment: dict[str, str], *words: str) -> dict[str, Any]:
    """What a command of grpo-tui says in the old environment; it is a failure if it refuses."""
    argv = [PYTHON, "-m", "grpo_tui", *words, "--json"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    answer = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize("method", ["full", "lora"])
def test_three_steps_are_trained_of_a_project_written_for_it(
    method: str, environment: dict[str, str], tmp_path: Path
) -> None:
    asked = "import trl; print(trl.__version__)"
    version = subprocess.run([PYTHON, "-c", asked], capture_output=True, text=True, timeout=300).stdout.strip()
    assert version.startswith("1.0."), f"{VARIABLE} has TRL {version or 'not at all'}"
    project = tmp_path / "project"
    wishes = ("grpo.max_steps=3", "grpo.gradient_accumulation_steps=2", "grpo.steps_per_generation=1")
    flags = [word for wish in wishes for word in ("--set", wish)]
    told(environment, "init", str(project), "--recipe", "word_problems", "--method", method, *flags)
    assert f"trl {version}," in (project / "config.toml").read_text()
    checks = {check["id"]: check for check in told(environment, "check", str(project))["checks"]}
    assert checks["grpo"]["level"] == "ok"
    assert f"accepted by trl {version}" in checks["grpo"]["text"]
    assert told(environment, "run", str(project), "--yes", "--foreground", "--name", "first")["exit"] == 0
    run = project / "runs" / "first"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert (events[0]["kind"], events[-1]["kind"], events[-1]["reason"]) == ("begin", "end", "completed")
    assert events[0]["versions"]["trl"] == version
    rewards = [event["logs"]["reward"] for event in events if event["kind"] == "log" and "reward" in event["logs"]]
    assert len(rewards) == 3
    batch = tomllib.loads((run / "config.toml").read_text())["grpo"]
    assert (batch["gradient_accumulation_steps"], batch["steps_per_generation"]) == (2, 1)
    assert (run / "final").is_dir()
