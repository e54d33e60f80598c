"""The house has floors: imports point down, the terminal stays light, and nobody imports a worker."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_tui

ROOT = Path(grpo_tui.__file__).parents[1]
ENGINE = ROOT / "grpo_tui"
SCREENS = ROOT / "screens"
HEAVY = {"torch", "trl", "transformers", "datasets", "peft"}

FLOORS = (
    ("__main__", "commands"),
    ("walk",),
    ("preflight",),
    ("pilot",),
    ("tryout", "takeover", "offers"),
    ("gathered",),
    ("session", "leaving"),
    ("survey",),
    ("run", "diagnosis"),
    ("progress",),
    ("dataset", "hardware", "rewards", "plan"),
    ("child", "warden", "draft", "state", "recipe", "recipe_schema"),
    ("answered", "terminal", "atomic", "lock", "processes", "inert", "marks", "regular", "secret", "problem"),
)
"""From the top. A module imports only what stands below it; modules of the ground floors may use one another."""

LEVEL = {name: len(FLOORS) - level for level, names in enumerate(FLOORS) for name in names}
SHARED = {
    "child",
    "warden",
    "draft",
    "state",
    "recipe",
    "recipe_schema",
    "terminal",
    "atomic",
    "lock",
    "processes",
    "inert",
    "marks",
    "regular",
    "secret",
    "problem",
}


def imported(path: Path) -> set[str]:
    """Dotted names of everything that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def room(path: Path) -> str:
    """The folder or file of the engine that a file belongs to."""
    return path.relative_to(ENGINE).parts[0].removesuffix(".py")


FILES = sorted(ENGINE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ENGINE)))
def test_imports_point_down(path: Path) -> None:
    own = room(path)
    if own in ("__init__", "workers"):
        return
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "grpo_tui" or len(parts) < 2 or parts[1] not in LEVEL or parts[1] == own:
            continue
        lower = LEVEL[parts[1]] < LEVEL[own] or {own, parts[1]} <= SHARED or {own, parts[1]} <= {"__main__", "commands"}
        assert lower, f"{path.name} ({own}) imports {name}"


def test_nobody_imports_a_worker() -> None:
    for path in [*FILES, *sorted(SCREENS.rglob("*.py"))]:
        assert not {name for name in imported(path) if name.startswith("grpo_tui.workers")}, path


def test_only_the_commands_open_screens() -> None:
    openers = {room(path) for path in FILES if any(name.startswith("grpo_tui.screens") for name in imported(path))}
    assert openers <= {"__main__", "commands"}


def modules_after(code: str, *arguments: str) -> set[str]:
    """Top-level modules that a fresh process has imported after running `code`."""
    tail = "\nimport sys\nprint('MODULES', *sorted(set(name.partition('.')[0] for name in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + tail, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("MODULES")[2].split())


def test_the_engine_knows_no_screen_and_no_torch() -> None:
    names = [
        ".".join(("grpo_tui", *path.relative_to(ENGINE).with_suffix("").parts)).removesuffix(".__init__")
        for path in FILES
        if room(path) != "workers" and path.name != "__main__.py"
    ]
    loaded = modules_after(f"import importlib\nfor name in {names!r}: importlib.import_module(name)")
    assert not loaded & (HEAVY | {"textual"})


def test_help_needs_neither_screens_nor_numpy() -> None:
    code = "from grpo_tui.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert not modules_after(code) & (HEAVY | {"textual", "numpy", "pyarrow", "rich"})


WALK = """
import asyncio, sys, pathlib
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.step import Step

async def main():
    app = GrpoApp(pathlib.Path(sys.argv[1]), recipe="word_problems")
    async with app.run_test(size=(80, 23)) as pilot:
        first = True
        for name in ("task", "hardware", "model", "dataset", "rewards", "score"):
            while getattr(app.screen, "NAME", "") != name or app.screen.doing:
                await pilot.pause(0.05)
            if first:
                print("FIRST", "numpy" in sys.modules, "pyarrow" in sys.modules)
                first = False
            assert not app.screen.failed, app.screen.failed
            await pilot.press("enter")

asyncio.run(main())
"""


def test_the_wizard_never_loads_torch_and_paints_before_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    done = subprocess.run(
        [sys.executable, "-c", WALK + "\nprint('MODULES', *sys.modules)", str(tmp_path / "demo")],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    loaded = {name.partition(".")[0] for name in done.stdout.rpartition("MODULES")[2].split()}
    assert "FIRST False False" in done.stdout
    assert not loaded & HEAVY
    assert "textual" in loaded
