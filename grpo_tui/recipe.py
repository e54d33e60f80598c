"""Ready-made tasks: a folder with a `recipe.toml`, reward functions and, if need be, data and a model.

Shipped recipes and a user's own folder are read alike. `recipe.toml` is data; code is in `*.py` files beside it. Only
`materialise` runs any of it, and in a folder that is not ours only with a yes that names its `Recipe.sha256`.

Schema 1 of `recipe.toml`. Paths are relative to the folder and stay inside it; keys without default must be there; an
unknown key is an error.

    schema = 1
    title = "One line"
    summary = "What it does, one sentence"
    page = "README.md"                # default; Markdown; the file may be missing

    [task]                            # answers of the fit check, see `grpo_tui.draft.TaskAnswer`
    checkable = "yes"                 # yes, partly, no, or empty (default)
    material = "prompts"              # prompts, demonstrations, pairs, thumbs, or empty (default)
    goal = "skill"                    # skill, format, knowledge, taste, or empty (default)

    [hardware]
    cpu = false                       # default; true: propose to train on the CPU

    [model]                           # the table may be missing: the user chooses a model
    folder = "model"                  # either a folder of the recipe
    name = "owner/model"              # or a hub id
    method = ""                       # full, lora, qlora, or empty (default): the tuning chooses

    [data]
    file = "problems.jsonl"           # either a file, its name in the project; copied from the recipe, or
    script = "rows.py"                # made by this script, which prints one JSON object a line
    source = "owner/data"             # or a hub id; nothing is copied
    split = ""                        # default
    prompt = "question"               # column of the prompt
    answer = ""                       # column of the right answer (default: none)
    extract = "as_is"                 # rule that takes the answer out of its column (default)
    extract_argument = ""             # what the rule needs (default)

    [[systems]]                       # system prompts on offer, the first is proposed; none: no system prompt
    name = "Short"
    text = "Reason, then answer."     # empty: no system prompt

    [rewards]
    file = "rewards.py"               # default
    [[rewards.items]]                 # in this order
    name = "correct"                  # a function of the file
    weight = 1.0                      # default

    [[samples]]                       # completions to try the rewards on
    text = "<answer>7</answer>"
    row = 0                           # default; row of the data whose answer it is scored against, from 0
    expect = "high"                   # the sample must earn much (high) or little (low)
    note = ""                         # why (default)

    [grpo.learning_rate]              # any key of GRPOConfig, with its reason
    value = 1e-4
    why = "Measured on this model."
"""

import difflib
import hashlib
import json
import os
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

RECIPE_FILE = "recipe.toml"
SCHEMA = 1
SCRIPT_SECONDS = 60
"""A data script that takes longer is stopped."""

CODE_SUFFIXES = frozenset({".py", ".pyc", ".so", ".pyd", ".dylib"})
"""Files that Python would import; they are what a yes to a folder is pinned to."""

PROJECT_FILES = frozenset({"grpo-tui.toml", "config.toml", "train.py", "rewards.py", "accelerate.yaml", "runs"})
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
    """The sound recipes in `root` (default: the shipped ones), by name. `read` says what is wrong with another one."""
    return [recipe for recipe in map(read, folders(root)) if isinstance(recipe, Recipe)]


def read(folder_or_name: str | Path) -> Recipe | Problem:
    """The recipe of that name among the shipped ones, or the one in that folder."""
    folder = Path(folder_or_name).expanduser()
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
    except _BadKeyError as error:
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


class _BadKeyError(Exception):
    """A key of recipe.toml is not as the schema says; never leaves this module."""

    def __init__(self, key: str, what: str, remedy: str) -> None:
        super().__init__(key)
        self.key, self.what, self.remedy = key, what, remedy


class _Key(NamedTuple):
    """What may stand at a key. Without a default the key must be there."""

    kind: type
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()


_TEXT = _Key(str, "")
_NEEDED_TEXT = _Key(str, required=True)
_TABLES: Mapping[str, Mapping[str, _Key]] = MappingProxyType(
    {
        "": {
            "schema": _Key(int, required=True),
            "title": _NEEDED_TEXT,
            "summary": _NEEDED_TEXT,
            "page": _Key(str, "README.md"),
            "task": _Key(dict, {}),
            "hardware": _Key(dict, {}),
            "model": _Key(dict, {}),
            "data": _Key(dict, required=True),
            "systems": _Key(list, []),
            "rewards": _Key(dict, required=True),
            "samples": _Key(list, []),
            "grpo": _Key(dict, {}),
        },
        "task": {
            "checkable": _Key(str, "", choices=("yes", "partly", "no")),
            "material": _Key(str, "", choices=("prompts", "demonstrations", "pairs", "thumbs")),
            "goal": _Key(str, "", choices=("skill", "format", "knowledge", "taste")),
        },
        "hardware": {"cpu": _Key(bool, False)},
        "model": {
            "folder": _TEXT,
            "name": _TEXT,
            "method": _Key(str, "", choices=("full", "lora", "qlora")),
        },
        "data": {
            "file": _TEXT,
            "script": _TEXT,
            "source": _TEXT,
            "split": _TEXT,
            "prompt": _NEEDED_TEXT,
            "answer": _TEXT,
            "extract": _Key(str, "as_is"),
            "extract_argument": _TEXT,
        },
        "systems": {"name": _NEEDED_TEXT, "text": _Key(str, required=True)},
        "rewards": {"file": _Key(str, "rewards.py"), "items": _Key(list, required=True)},
        "rewards.items": {"name": _NEEDED_TEXT, "weight": _Key(float, 1.0)},
        "samples": {
            "text": _Key(str, required=True),
            "row": _Key(int, 0),
            "expect": _Key(str, required=True, choices=("high", "low")),
            "note": _TEXT,
        },
        "grpo": {"value": _Key(object, required=True), "why": _NEEDED_TEXT},
    }
)
"""The schema: table to its keys. Lists of tables and the settings of `grpo` name the keys of one item."""

_KIND_NAMES: Mapping[type, str] = MappingProxyType(
    {
        str: "a text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        dict: "a table",
        list: "a list of tables",
    }
)


def _table(where: str, given: object, keys: Mapping[str, _Key]) -> dict[str, Any]:
    """`given` with defaults filled in; `where` is its name in the file."""
    if not isinstance(given, dict):
        raise _BadKeyError(where, "It must be a table.", f"Write it as [{where}].")
    dotted = f"{where}." if where else ""
    for name in given:
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(keys)}."
            raise _BadKeyError(one_line(dotted + name, 80), "This key is unknown.", remedy)
    return {name: _value(dotted + name, given, name, key) for name, key in keys.items()}


def _value(where: str, table: dict[str, Any], name: str, key: _Key) -> Any:
    if name not in table:
        if key.required:
            raise _BadKeyError(where, "This key is missing.", f"Give it {_KIND_NAMES.get(key.kind, 'a value')}.")
        return key.default
    value = table[name]
    if key.kind is float and type(value) is int:
        value = float(value)
    if key.kind is not object and type(value) is not key.kind:
        raise _BadKeyError(where, f"It must be {_KIND_NAMES[key.kind]}.", f"Now it is {one_line(repr(value), 60)}.")
    if key.required and key.kind is str and name != "text" and not value.strip():
        raise _BadKeyError(where, "It is empty.", "Give it a text.")
    if value and key.choices and value not in key.choices:
        raise _BadKeyError(
            where, f"{one_line(repr(value), 60)} is none of its values.", f"Use {', '.join(key.choices)}."
        )
    return value


def _items(where: str, given: list[Any], least: int = 0) -> list[dict[str, Any]]:
    if len(given) < least:
        raise _BadKeyError(where, "The list is empty.", f"Add an item [[{where}]].")
    return [_table(f"{where}[{number}]", item, _TABLES[where]) for number, item in enumerate(given)]


def _inside(folder: Path, where: str, name: str, *, directory: bool = False) -> Path:
    """The file (or folder) `name` of the recipe."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise _BadKeyError(where, "It leads out of the recipe's folder.", "Name a file inside the folder.")
    if not (path.is_dir() if directory else path.is_file()):
        kind = "folder" if directory else "file"
        raise _BadKeyError(where, f"There is no {kind} {one_line(name, 80)}.", f"Add the {kind}, or correct the name.")
    return path


def _one_of(where: str, table: dict[str, Any], names: tuple[str, str], *, needed: bool) -> None:
    given = [name for name in names if table[name]]
    if len(given) > 1 or (needed and not given):
        what = "Both are given." if given else "Neither is given."
        raise _BadKeyError(f"{where}.{names[0]}, {where}.{names[1]}", what, "Give one of the two.")


def _recipe(folder: Path, raw: dict[str, Any]) -> Recipe:
    """The recipe that `raw`, the content of recipe.toml, describes. Raises _BadKeyError and OSError."""
    if type(raw.get("schema")) is int and raw["schema"] > SCHEMA:
        raise _BadKeyError(
            "schema", f"It is of schema {raw['schema']}.", f"This version reads {SCHEMA}: update grpo-tui."
        )
    top = _table("", raw, _TABLES[""])
    if top["schema"] != SCHEMA:
        raise _BadKeyError("schema", f"There is no schema {top['schema']}.", f"Write schema = {SCHEMA}.")
    task, hardware, model, data, rewards = (
        _table(name, top[name], _TABLES[name]) for name in ("task", "hardware", "model", "data", "rewards")
    )
    systems = tuple(SystemPrompt(item["name"], item["text"].strip("\n")) for item in _items("systems", top["systems"]))
    items = tuple(RewardItem(**item) for item in _items("rewards.items", rewards["items"], least=1))
    _check_rewards(items)
    samples = tuple(Sample(**item) for item in _items("samples", top["samples"]))
    for number, sample in enumerate(samples):
        if sample.row < 0:
            raise _BadKeyError(f"samples[{number}].row", "It is negative.", "Rows count from 0.")
    grpo = {key: Advice(**_table(f"grpo.{key}", setting, _TABLES["grpo"])) for key, setting in top["grpo"].items()}
    _one_of("model", model, ("folder", "name"), needed=False)
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
            raise _BadKeyError(
                f"rewards.items[{number}].name", "It is no function name.", "Name a function of the file."
            )
        if item.name in {earlier.name for earlier in items[:number]}:
            what = f"{item.name} stands here twice; TRL would log both as one."
            raise _BadKeyError(f"rewards.items[{number}].name", what, "Remove one, or give it another name.")
        if not abs(item.weight) < float("inf"):
            raise _BadKeyError(f"rewards.items[{number}].weight", "It is not finite.", "Give it a finite number.")


def _data_origin(folder: Path, data: dict[str, Any]) -> tuple[Path | None, Path | None]:
    """The script that makes the data file, or the file itself."""
    _one_of("data", data, ("file", "source"), needed=True)
    name = data["file"]
    if name and (Path(name).name != name or name.startswith(".") or name in PROJECT_FILES):
        what = f"{one_line(name, 80)} is no name for a data file in a project."
        raise _BadKeyError("data.file", what, "Give a plain file name that is not one of the project's own.")
    if data["script"]:
        if not name:
            raise _BadKeyError("data.script", "It needs a file to write.", "Add data.file, and remove data.source.")
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
    try:
        ended = subprocess.run(
            [sys.executable, str(script)], cwd=script.parent, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=SCRIPT_SECONDS, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Problem(str(script), f"It did not end within {SCRIPT_SECONDS} s.", "Make it faster, or ship the file.")
    if ended.returncode != 0:
        said = one_line(ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
        return Problem(str(script), f"It ended with status {ended.returncode}: {said or 'no message'}.", "Correct it.")
    columns = [column for column in (dataset.prompt, dataset.answer) if column]
    lines = ended.stdout.splitlines()
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
    return ended.stdout if lines else Problem(str(script), "It printed no row.", "Print one JSON object a line.")
