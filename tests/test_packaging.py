"""What is installed is what is in the tree, under one import name."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def packages_in_the_tree() -> set[str]:
    """Every folder with Python of ours, by its import name."""
    names = set()
    for top, name in (("grpo_tui", "grpo_tui"), ("screens", "grpo_tui.screens"), ("recipes", "grpo_tui.recipes")):
        for init in (ROOT / top).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / top).parts
            names.add(".".join((name, *inner)))
    return names


def test_the_package_list_names_every_package_of_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert set(listed) == packages_in_the_tree()


def test_the_wheel_holds_every_file_of_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"  # a copy: an older build folder in the tree would put deleted files into the wheel
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", "__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, tree], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", "grpo_tui", "screens", "recipes"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    moved = {f"grpo_tui/{name}" if not name.startswith("grpo_tui/") else name for name in tracked}
    assert moved <= held
    assert {name.split("/")[0] for name in held} == {"grpo_tui"}
