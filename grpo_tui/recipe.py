"""Ready-made tasks: a folder with a `recipe.toml`, reward functions and, if need be, data and a model.

Shipped recipes and a user's own folder are read alike. `recipe.toml` is data; code is in `*.py` files beside it. Only
`materialise` runs any of it, and in a folder that is not ours only with a yes that names its `Recipe.sha256`. What
`recipe.toml` holds stands in `grpo_tui.recipe_schema`.
"""

import difflib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from grpo_tui import atomic
from grpo_tui.draft import DatasetAnswer, Draft, HardwareAnswer, ModelAnswer, RewardItem, RewardsAnswer, TaskAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem
from grpo_tui.recipe_schema import SCHEMA, TABLES, BadKeyError, one_of, read_items, read_table
from grpo_tui.regular import expanded

RECIPE_FILE = "recipe.toml"
SCRIPT_SECONDS = 60
"""A data script that takes longer is stopped."""

CODE_SUFFIXES = frozenset({".py", ".pyc", ".so", ".pyd", ".dylib"})
"""Files that Python would import; they are what a yes to a folder is pinned to."""

PROJECT_FILES = frozenset(
    {
        "grpo-tui.toml",
        "config.toml",
        "train.py",
        "rewards.py",
        "accelerate.yaml",
        "serve_vllm.sh",
        "train.sbatch",
        "runs",
    }
)
"""Names in a project that no data file may take."""

# A data script sees these and no others: tokens and keys of the user's session are not its business.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


class SystemPrompt(NamedTuple):
    """A system prompt on offer. Empty `text`: none."""

    name: str
    text: str


class Sample(NamedTuple):
    """A completion to try the rewards on, against the answer of data row `row` (from 0)."""

    text: str
    row: int
    expect: str
    """`high` or `low`: what it must earn."""

    note: str


class Advice(NamedTuple):
    """A value the recipe wants for a key of `GRPOConfig`, and why."""

    value: Any
    why: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A ready-made task."""

    name: str
    """The name of its folder."""

    title: str
    summary: str
    description: str
    """Its page, Markdown; empty if it has none."""

    folder: Path
    """Absolute, with symbolic links resolved."""

    ours: bool
    """It was shipped with grpo-tui."""

    sha256: str
    """Fingerprint of the code in its folder, see `fingerprint`."""

    task: TaskAnswer
    cpu: bool
    """It is meant to be trained on the CPU."""

    model: Path | str
    """Folder (absolute), hub id, or the empty string: the user chooses."""

    method: str
    dataset: DatasetAnswer
    """With the first system prompt on offer. `source` is the name of a file in the project, or a hub id."""

    script: Path | None
    """The script that makes the data file."""

    data_file: Path | None
    """The data file to copy. Neither script nor file: the data comes from the hub."""

    systems: tuple[SystemPrompt, ...]
    rewards: tuple[RewardItem, ...]
    rewards_file: Path
    samples: tuple[Sample, ...]
    grpo: Mapping[str, Advice]
    """Key of `GRPOConfig` to value and reason."""

    @property
    def needs_consent(self) -> bool:
        """Whether `materialise` runs code that is not ours."""
        return self.script is not None and not self.ours

    def as_json(self) -> dict[str, Any]:
        """The recipe as `grpo-tui recipes --json` prints it."""
        return {
            "name": self.name,
            "title": self.title,
            "summary": self.summary,
            "folder": str(self.folder),
            "ours": self.ours,
            "sha256": self.sha256,
            "model": str(self.model),
            "data": self.dataset.source,
            "systems": [system._asdict() for system in self.systems],
            "rewards": [{"name": item.name, "weight": item.weight} for item in self.rewards],
            "grpo": {key: advice._asdict() for key, advice in self.grpo.items()},
        }


# ----------------------------------------------------------------------------------------------------------- finding


def shipped() -> Path:
    """The folder of the recipes that come with grpo-tui."""
    return Path(str(resources.files("grpo_tui.recipes"))).resolve()


def folders(root: Path | None = None) -> list[Path]:
    """The recipe folders in `root` (default: the shipped ones), sound or not, by name."""
    return sorted(path.parent for path in (root or shipped()).glob(f"*/{RECIPE_FILE}"))


def find(root: Path | None = None) -> list[Recipe]:
    """The sound recipes in `root` (default: the shipped ones). `read` says what is wrong with another one.

    Those that bring their model come first, since they run anywhere; then by name.
    """
    sound = [recipe for recipe in map(read, folders(root)) if isinstance(recipe, Recipe)]
    return sorted(sound, key=lambda recipe: (not isinstance(recipe.model, Path), recipe.name))


def read(folder_or_name: str | Path) -> Recipe | Problem:
    """The recipe of that name among the shipped ones, or the one in that folder."""
    folder = expanded(folder_or_name)
    if isinstance(folder_or_name, str) and len(folder.parts) == 1 and (shipped() / folder / RECIPE_FILE).is_file():
        folder = shipped() / folder
    path = folder / RECIPE_FILE
    try:
        text = path.read_text(encoding="utf-8")
        folder = folder.resolve(strict=True)
    except FileNotFoundError:
        names = [known.name for known in folders()]
        near = difflib.get_close_matches(str(folder_or_name), names, 1) or names
        return Problem(
            one_line(str(folder_or_name), 200), f"No recipe of this name, and no folder with a {RECIPE_FILE}.",
            f"Shipped recipes: {', '.join(near)}. Or name a folder.",
        )  # fmt: skip
    except (OSError, UnicodeDecodeError) as error:
        return Problem(str(path), f"It cannot be read: {error}.", "Make it a readable text file in UTF-8.")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Problem(str(path), f"It is not TOML: {error}.", "Correct that line.")
    try:
        return _recipe(folder, raw)
    except BadKeyError as error:
        return Problem(f"{path}: {error.key}", error.what, error.remedy)
    except OSError as error:
        return Problem(str(folder), f"Its files cannot be read: {error}.", "Make the folder readable.")


def fingerprint(folder: Path) -> str:
    """SHA-256 over names and bytes of all code in `folder` (`CODE_SUFFIXES`; Python's own caches left out).

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in CODE_SUFFIXES and "__pycache__" not in path.parts and path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------------- reading


def _inside(folder: Path, where: str, name: str, *, directory: bool = False) -> Path:
    """The file (or folder) `name` of the recipe."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise BadKeyError(where, "It leads out of the recipe's folder.", "Name a file inside the folder.")
    if not (path.is_dir() if directory else path.is_file()):
        kind = "folder" if directory else "file"
        raise BadKeyError(where, f"There is no {kind} {one_line(name, 80)}.", f"Add the {kind}, or correct the name.")
    return path


def _recipe(folder: Path, raw: dict[str, Any]) -> Recipe:
    """The recipe that `raw`, the content of recipe.toml, describes. Raises BadKeyError and OSError."""
    if type(raw.get("schema")) is int and raw["schema"] > SCHEMA:
        raise BadKeyError(
            "schema", f"It is of schema {raw['schema']}.", f"This version reads {SCHEMA}: update grpo-tui."
        )
    top = read_table("", raw, TABLES[""])
    if top["schema"] != SCHEMA:
        raise BadKeyError("schema", f"There is no schema {top['schema']}.", f"Write schema = {SCHEMA}.")
    task, hardware, model, data, rewards = (
        read_table(name, top[name], TABLES[name]) for name in ("task", "hardware", "model", "data", "rewards")
    )
    systems = tuple(
        SystemPrompt(item["name"], item["text"].strip("\n")) for item in read_items("systems", top["systems"])
    )
    items = tuple(RewardItem(**item) for item in read_items("rewards.items", rewards["items"], least=1))
    _check_rewards(items)
    samples = tuple(Sample(**item) for item in read_items("samples", top["samples"]))
    for number, sample in enumerate(samples):
        if sample.row < 0:
            raise BadKeyError(f"samples[{number}].row", "It is negative.", "Rows count from 0.")
    grpo = {key: Advice(**read_table(f"grpo.{key}", setting, TABLES["grpo"])) for key, setting in top["grpo"].items()}
    one_of("model", model, ("folder", "name"), needed=False)
    script, data_file = _data_origin(folder, data)
    ours = folder.is_relative_to(shipped())
    page = folder / top["page"]
    return Recipe(
        name=folder.name,
        title=top["title"],
        summary=top["summary"],
        description=_inside(folder, "page", top["page"]).read_text("utf-8", "replace") if page.exists() else "",
        folder=folder,
        ours=ours,
        sha256=fingerprint(folder),
        task=TaskAnswer(recipe=folder.name if ours else str(folder), **task),
        cpu=hardware["cpu"],
        model=_inside(folder, "model.folder", model["folder"], directory=True) if model["folder"] else model["name"],
        method=model["method"],
        dataset=DatasetAnswer(
            source=data["file"] or data["source"],
            split=data["split"],
            options={"config": data["config"]} if data["config"] else {},
            prompt=data["prompt"],
            answer=data["answer"],
            system=systems[0].text if systems else "",
            extract=data["extract"],
            extract_argument=data["extract_argument"],
        ),
        script=script,
        data_file=data_file,
        systems=systems,
        rewards=items,
        rewards_file=_inside(folder, "rewards.file", rewards["file"]),
        samples=samples,
        grpo=MappingProxyType(grpo),
    )


def _check_rewards(items: tuple[RewardItem, ...]) -> None:
    for number, item in enumerate(items):
        if not item.name.isidentifier():
            raise BadKeyError(
                f"rewards.items[{number}].name", "It is no function name.", "Name a function of the file."
            )
        if item.name in {earlier.name for earlier in items[:number]}:
            what = f"{item.name} stands here twice; TRL would log both as one."
            raise BadKeyError(f"rewards.items[{number}].name", what, "Remove one, or give it another name.")
        if not abs(item.weight) < float("inf"):
            raise BadKeyError(f"rewards.items[{number}].weight", "It is not finite.", "Give it a finite number.")


def _data_origin(folder: Path, data: dict[str, Any]) -> tuple[Path | None, Path | None]:
    """The script that makes the data file, or the file itself."""
    one_of("data", data, ("file", "source"), needed=True)
    name = data["file"]
    if name and data["config"]:
        raise BadKeyError("data.config", "A file has no configurations.", "Remove it, or name a hub data set.")
    if name and (Path(name).name != name or name.startswith(".") or name in PROJECT_FILES):
        what = f"{one_line(name, 80)} is no name for a data file in a project."
        raise BadKeyError("data.file", what, "Give a plain file name that is not one of the project's own.")
    if data["script"]:
        if not name:
            raise BadKeyError("data.script", "It needs a file to write.", "Add data.file, and remove data.source.")
        return _inside(folder, "data.script", data["script"]), None
    return None, _inside(folder, "data.file", name) if name else None


# ------------------------------------------------------------------------------------------------------------- using


def draft_for(recipe: Recipe) -> Draft:
    """A draft with every answer that the recipe gives; no step is done, nothing is approved."""
    return Draft(
        task=recipe.task,
        hardware=HardwareAnswer(cpu=recipe.cpu),
        model=ModelAnswer(name=str(recipe.model), method=recipe.method),
        dataset=recipe.dataset,
        rewards=RewardsAnswer(items=recipe.rewards),
    )


def materialise(
    recipe: Recipe, project: Path, *, approved_sha256: str = "", written: Mapping[str, str] = MappingProxyType({})
) -> list[str] | Problem:
    """Write the recipe's data file and `rewards.py` into `project`; the names of the files that were written.

    A file with the right content is left alone, and so is one that the user has edited since it was written
    (`written`: SHA-256 of each file as last written, by name, as in `Draft.files`). Any other file in the way is a
    Problem, and then nothing is written. Where `recipe.needs_consent`, `approved_sha256` must be the fingerprint
    that the user said yes to.
    """
    contents: dict[str, bytes] = {}
    try:
        contents["rewards.py"] = recipe.rewards_file.read_bytes()
        if recipe.data_file is not None:
            contents[recipe.dataset.source] = recipe.data_file.read_bytes()
        if recipe.script is not None:
            if not recipe.ours and fingerprint(recipe.folder) != approved_sha256:
                return _no_consent(recipe, approved_sha256)
            made = _run_script(recipe.script, recipe.dataset)
            if isinstance(made, Problem):
                return made
            contents[recipe.dataset.source] = made
        project.mkdir(parents=True, exist_ok=True)
        fresh = {name: content for name, content in contents.items() if not _stands(project / name, content, written)}
        for name in fresh:
            if (project / name).exists() and _sha256((project / name).read_bytes()) != written.get(name):
                return Problem(
                    str(project / name), f"It is there already, and is not what recipe {recipe.name} brings.",
                    "Move it away, or choose another project folder.",
                )  # fmt: skip
        for name, content in fresh.items():
            atomic.write(project / name, content)
    except OSError as error:
        return Problem(str(error.filename or project), f"{error.strerror or error}.", "Make it readable and writable.")
    return list(fresh)


def _stands(path: Path, content: bytes, written: Mapping[str, str]) -> bool:
    """Whether `path` needs no writing: it has this content, or the user has edited what we wrote."""
    if not path.is_file():
        return False
    present = path.read_bytes()
    return present == content or (path.name in written and _sha256(present) != written[path.name])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _no_consent(recipe: Recipe, approved: str) -> Problem:
    what = (
        "Its code has changed since you allowed it to run."
        if approved
        else "Its data is made by code that is not ours."
    )
    return Problem(str(recipe.folder), what, f"Read {recipe.script}, and allow it to run.")


def _run_script(script: Path, dataset: DatasetAnswer) -> bytes | Problem:
    """What `script` prints: JSON objects, one a line, each with the columns of `dataset`."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment |= {"PYTHONSAFEPATH": "1", "PYTHONUTF8": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=script.parent, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=SCRIPT_SECONDS)
    except subprocess.TimeoutExpired:
        # Its whole group: what it started itself would hold the pipes open.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Problem(str(script), f"It did not end within {SCRIPT_SECONDS} s.", "Make it faster, or ship the file.")
    if process.returncode != 0:
        said = one_line(errors.decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
        return Problem(
            str(script), f"It ended with status {process.returncode}: {said or 'no message'}.", "Correct it."
        )
    columns = [column for column in (*dataset.prompt_columns, dataset.answer) if column]
    lines = output.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            return Problem(
                str(script), f"Line {number} of its output is no JSON object.", "Print one JSON object a line."
            )
        missing = [column for column in columns if column not in row]
        if missing:
            return Problem(
                str(script), f"Row {number} has no column {missing[0]}.", "Correct data.prompt or data.answer."
            )
    return output if lines else Problem(str(script), "It printed no row.", "Print one JSON object a line.")
