"""What a project gets from the plan, `config.toml` and `train.py`, and what was changed in them by hand."""

import difflib
import hashlib
import math
import re
import textwrap
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_tui import atomic
from grpo_tui.draft import Draft, Example, RewardItem
from grpo_tui.inert import whole_characters
from grpo_tui.plan import batch as arithmetic
from grpo_tui.plan.batch import Batch
from grpo_tui.plan.dialect import LIBRARY_DEFAULT, LIBRARY_SECTIONS
from grpo_tui.plan.plan import SECTIONS, Plan, Setting
from grpo_tui.plan.script import render_train
from grpo_tui.problem import Problem

__all__ = [
    "FileChange",
    "adopt",
    "after_training",
    "changes",
    "draft_of",
    "edited_rewards",
    "edited_settings",
    "plan_of",
    "read_config",
    "render_config",
    "render_train",
    "with_config",
    "write",
]

WIDTH = 100
_SECTION_WORDS: Mapping[str, str] = {
    "model": "The model, and how it is loaded.",
    "data": "The prompts. train.py holds the code that turns a row into one.",
    "lora": "The adapter: the keys are those of peft.LoraConfig.",
    "grpo": "Training: the keys are those of the installed trl.GRPOConfig.",
    "launch": "How the training process is started.",
}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

# ------------------------------------------------------------------------------------------------- config.toml


def _string(text: str) -> str:
    """`text` as a TOML basic string; with line breaks, as a multi-line one."""
    text = whole_characters(text)  # TOML has no place for halves
    if "\n" in text:
        body = "".join(_escaped(character) if character != "\n" else "\n" for character in text)
        body = body.replace('\\"', '"').replace('"""', '""\\"')
        return '"""\n' + (body[:-1] + '\\"' if body.endswith('"') else body) + '"""'
    return '"' + "".join(_escaped(character) for character in text) + '"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x20 or 0x7F <= code < 0xA0 else character


def _value(value: Any) -> str:
    """`value` as TOML. Raises TypeError for what TOML cannot hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0+(?=\d)", r"e\1", repr(value)).replace("e+", "e")
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(key))} = {_inline(item)}" for key, item in value.items() if item is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        inner = ", ".join(_inline(item) for item in value)
        if len(inner) <= WIDTH - 20:
            return f"[{inner}]"
        return "[\n" + "".join(f"  {_inline(item)},\n" for item in value) + "]"
    raise TypeError(f"{type(value).__name__} has no place in TOML")


def _inline(value: Any) -> str:
    """`value` on one line: inside arrays and inline tables TOML 1.0 allows no line break in a table."""
    if isinstance(value, str):
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if isinstance(value, Sequence):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return _value(value)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _inline(name)


def _comment(text: str, indent: str = "# ") -> list[str]:
    text = " ".join(text.split())
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _setting_lines(setting: Setting, section: str) -> list[str]:
    name = setting.key.removeprefix(section + ".")
    words = f"{setting.what} {setting.why} [{setting.source}]"
    return [*_comment(words), f"{_key(name)} = {_value(setting.value)}"]


def render_config(plan: Plan) -> str:
    """`config.toml`: every value of the plan with what it does, why it is so, and where the reason comes from."""
    made_for = ", ".join(f"{name} {version}" for name, version in plan.versions.items())
    lines = _comment(
        "What is trained, and how. Change what you like: grpo-tui takes a changed value over as set by you. Before each"
        " value stands what it does, why it is so, and in brackets where the reason comes from."
    )
    if made_for:
        lines += _comment(f"Made for {made_for}.")
    for note in plan.notes:
        lines += _comment(note)
    for section in SECTIONS:
        settings = [setting for setting in plan.settings if setting.key.startswith(section + ".")]
        if section == "grpo":
            lines += ["", "", *_comment("What the model is paid for: functions of the rewards file, with weights.")]
            for item in plan.rewards:
                lines += ["", "[[rewards]]", f"name = {_value(item.name)}", f"weight = {_value(float(item.weight))}"]
        if settings:
            lines += ["", "", *_comment(_SECTION_WORDS[section]), f"[{section}]"]
        for setting in settings:
            if setting.value is not None:
                lines += ["", *_setting_lines(setting, section)]
    return "\n".join(lines) + "\n"


_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("model.name", "model.revision", "model.dtype", "model.attn_implementation"), str),
    **dict.fromkeys(("data.file", "data.format", "data.split", "data.prompt", "data.answer", "data.system"), str),
    **dict.fromkeys(("data.extract", "data.extract_argument"), str),
    **dict.fromkeys(("launch.notify_command", "launch.rewards_file", "launch.strategy", "launch.vllm"), str),
    **dict.fromkeys(("data.max_prompt_tokens", "data.seed", "launch.processes", "launch.threads"), int),
    "data.eval_share": float,
    "data.examples": list,
    **dict.fromkeys(("launch.nodes", "launch.vllm_gpus"), int),
    **dict.fromkeys(("data.plain", "data.convert_plain", "model.load_in_4bit", "launch.slurm"), bool),
    **dict.fromkeys(("data.options", "data.faults"), dict),
    **dict.fromkeys(("launch.gpus", "launch.vllm_devices"), list),
}
_KIND_WORDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number such as 0.1",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


CONFIG_BYTES = 4 << 20
"""No configuration takes so much; what is larger is not read."""


def read_config(text: str, where: str = "config.toml") -> dict[str, Any] | Problem:
    """The content of a `config.toml`, its tables and their kinds checked."""
    try:
        config = tomllib.loads(text)
    except RecursionError:
        return Problem(where, "It is nested deeper than any configuration is.", "Have the file written anew.")
    except tomllib.TOMLDecodeError as error:
        words = str(error).replace("Cannot overwrite a value", "a key stands there twice")
        return Problem(where, f"It is not valid TOML: {words}.", "Correct that line, or have the file written anew.")
    for table, value in config.items():
        if table not in (*SECTIONS, "rewards"):
            known = difflib.get_close_matches(table, (*SECTIONS, "rewards"), 1)
            hint = f"Did you mean [{known[0]}]?" if known else f"The tables are {', '.join((*SECTIONS, 'rewards'))}."
            return Problem(where, f"There is no table or key `{table}` at the top.", hint)
        if table != "rewards" and not isinstance(value, dict):
            return Problem(where, f"`{table}` is a value where a table is expected.", f"Write it as [{table}].")
    for key, kind in _KINDS.items():
        section, _, name = key.partition(".")
        value = config.get(section, {}).get(name)
        wanted = (int, float) if kind is float else kind
        if value is not None and not (isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))):
            return Problem(
                where, f"{name} in [{section}] is {value!r}, and {_KIND_WORDS[kind]} is expected.", "Correct it there."
            )
    for example in config.get("data", {}).get("examples", []):
        if not isinstance(example, dict) or not all(isinstance(example.get(n), str) for n in ("question", "answer")):
            return Problem(where, "An example in [data] is not a question and an answer.", "Write both as text.")
    rewards = config.get("rewards", [])
    if not isinstance(rewards, list):
        return Problem(where, "`rewards` is not a list of tables.", "Write each reward under its own [[rewards]].")
    for number, reward in enumerate(rewards, 1):
        entry: dict[str, Any] = reward if isinstance(reward, dict) else {}
        weight = entry.get("weight", 1.0)
        if not isinstance(entry.get("name"), str) or isinstance(weight, bool) or not isinstance(weight, int | float):
            return Problem(
                where,
                f"Reward {number} needs a name, which is text, and a weight, which is a number.",
                'Write name = "…" and weight = 1.0 under its [[rewards]].',
            )
        if not math.isfinite(weight):
            return Problem(where, f"The weight of reward {number} is {weight}.", "Write a finite number.")
    return config


def plan_of(config: Mapping[str, Any], *, rows: int | None = None) -> Plan | list[Problem]:
    """The plan that a `config.toml` is, as it stands on the disk: its values, without reasons or memory."""
    settings = tuple(
        Setting(f"{section}.{name}", value, "", "", "set by you")
        for section in SECTIONS
        for name, value in dict(config.get(section, {})).items()
    )
    grpo = dict(config.get("grpo", {}))
    world = int(config.get("launch", {}).get("processes", 1))
    batch = arithmetic.read(grpo, world)
    if isinstance(batch, list):
        return batch
    steps = grpo.get("max_steps", -1)
    if not (isinstance(steps, int) and steps > 0):
        steps = int(float(grpo.get("num_train_epochs", 3.0)) * batch.steps_per_epoch(rows)) if rows else 0
    return Plan(
        settings=settings,
        rewards=tuple(
            RewardItem(name=r["name"], weight=float(r.get("weight", 1.0))) for r in config.get("rewards", [])
        ),
        method="qlora" if config.get("model", {}).get("load_in_4bit") else "lora" if config.get("lora") else "full",
        world_size=world,
        cpu=bool(grpo.get("use_cpu")),
        batch=batch,
        total_steps=steps,
    )


def edited_settings(plan: Plan, config: Mapping[str, Any]) -> dict[str, Any]:
    """Values that `config`, as read from the disk, holds otherwise than `plan` wrote them, by dotted key.

    A key deleted from [lora] or [grpo] is LIBRARY_DEFAULT: that is what its absence means to the library. In the other
    tables, and where a whole table is missing, nothing stands for a deleted key: the plan sets it again, and the
    difference of the file shows it.
    """
    written = plan.as_config()
    # Before the values: who renamed a key deleted one name and gave a value to the other, which goes before.
    deleted = {
        f"{section}.{name}": LIBRARY_DEFAULT
        for section in LIBRARY_SECTIONS
        if section in config
        for name, value in written.get(section, {}).items()
        if value is not None and name not in config[section]
    }
    return deleted | {
        f"{section}.{name}": value
        for section in SECTIONS
        for name, value in dict(config.get(section, {})).items()
        if name not in written.get(section, {}) or not _same(written[section][name], value)
    }


def edited_rewards(plan: Plan, config: Mapping[str, Any]) -> tuple[RewardItem, ...] | None:
    """The rewards of `config` where they differ from those of `plan`, else None."""
    items = tuple(RewardItem(name=r["name"], weight=float(r.get("weight", 1.0))) for r in config.get("rewards", []))
    return None if items == tuple(replace(item, weight=float(item.weight)) for item in plan.rewards) else items


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, bool) or isinstance(theirs, bool):
        return mine is theirs
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return {k: v for k, v in mine.items() if v is not None} == dict(theirs)
    if isinstance(mine, tuple):
        mine = list(mine)
    return bool(mine == theirs)


_MODEL_ANSWERS = ("name", "revision")
_DATA_ANSWERS: Mapping[str, str] = {
    "file": "source",
    "split": "split",
    "prompt": "prompt",
    "answer": "answer",
    "system": "system",
    "extract": "extract",
    "extract_argument": "extract_argument",
    "max_prompt_tokens": "max_prompt_tokens",
    "options": "options",
    "plain": "plain",
    "convert_plain": "convert_plain",
    "faults": "faults",
    "examples": "examples",
    "eval_share": "eval_share",
    "seed": "seed",
}


def _examples(value: Sequence[Mapping[str, Any]]) -> tuple[Example, ...]:
    return tuple(Example(question=each["question"], answer=each["answer"]) for each in value)


def adopt(draft: Draft, plan: Plan, config: Mapping[str, Any]) -> Draft:
    """`draft` with what was changed in the `config.toml` on the disk taken over as the user's answers."""
    edited = edited_settings(plan, config)
    model = {name: str(edited.pop(f"model.{name}")) for name in _MODEL_ANSWERS if f"model.{name}" in edited}
    data = {field: edited.pop(f"data.{name}") for name, field in _DATA_ANSWERS.items() if f"data.{name}" in edited}
    if "examples" in data:
        data["examples"] = _examples(data["examples"])
    items = edited_rewards(plan, config)
    rewards = draft.rewards if items is None else replace(draft.rewards, items=items)
    if "launch.rewards_file" in edited:
        rewards = replace(rewards, file=str(edited.pop("launch.rewards_file")))
    return replace(
        draft,
        model=replace(draft.model, **model),
        dataset=replace(draft.dataset, **data),
        rewards=rewards,
        settings=replace(draft.settings, overrides={**draft.settings.overrides, **edited}),
    )


def draft_of(config: Mapping[str, Any]) -> Draft:
    """The answers that a `config.toml` holds, for a project whose state file is not there."""
    nothing = Plan(settings=(), rewards=(), method="", world_size=1, cpu=False, batch=Batch(per_device=1))
    return adopt(Draft(), nothing, config)


def with_config(draft: Draft, config: Mapping[str, Any]) -> Draft:
    """`draft` with the model, data and rewards that a `config.toml` names, whatever was answered before."""
    theirs = draft_of(config)
    data = {field: getattr(theirs.dataset, field) for field in _DATA_ANSWERS.values()}
    model = {name: getattr(theirs.model, name) for name in _MODEL_ANSWERS}
    return replace(
        draft,
        model=replace(draft.model, **model),
        dataset=replace(draft.dataset, **data),
        rewards=theirs.rewards,
    )


# ------------------------------------------------------------------------------------------------------- changes


@dataclass(frozen=True)
class FileChange:
    """One file that writing the plan would make or change."""

    name: str
    """Its name in the project folder."""

    old: str | None
    """What stands there now; None: there is no such file."""

    new: str
    diff: str
    """Unified difference, empty for a new file."""

    edited_by_user: bool
    """What stands there now is not what we wrote last: it is not replaced without a yes."""


def sha256(text: str) -> str:
    """Hash of a file's text, as kept in `Draft.files`."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> str | Problem | None:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        return Problem(str(path), f"It cannot be read ({error.strerror or error}).", "Check the file's permissions.")


def changes(project: Path, draft: Draft, rendered: Mapping[str, str]) -> list[FileChange] | Problem:
    """What writing `rendered` (name to text) would change in `project`; files that already stand so are left out."""
    found = []
    for name, new in rendered.items():
        old = _read(project / name)
        if isinstance(old, Problem):
            return old
        if old == new:
            continue
        lines = difflib.unified_diff(
            (old or "").splitlines(), new.splitlines(), f"{name} (now)", f"{name} (new)", lineterm=""
        )
        found.append(
            FileChange(
                name=name,
                old=old,
                new=new,
                diff="" if old is None else "\n".join(lines),
                edited_by_user=old is not None and draft.files.get(name) != sha256(old),
            )
        )
    return found


def write(
    project: Path, draft: Draft, changes: Sequence[FileChange], approved: Collection[str] = ()
) -> Draft | Problem:
    """Write `changes`, each file whole or not at all; a file edited by the user only if its name is in `approved`.

    The draft that comes back knows the hashes of what was written. A file that changed on the disk since the difference
    was shown is a problem, and nothing is written then.
    """
    wanted = [change for change in changes if not change.edited_by_user or change.name in approved]
    for change in wanted:
        now = _read(project / change.name)
        if isinstance(now, Problem):
            return now
        if now != change.old:
            return Problem(change.name, "It changed on the disk since its difference was shown.", "Look at it again.")
    written = dict(draft.files)
    for change in wanted:
        try:
            (project / change.name).parent.mkdir(parents=True, exist_ok=True)
            atomic.write(project / change.name, change.new, keep_backup=change.edited_by_user)
        except OSError as error:
            return Problem(
                str(project / change.name),
                f"It cannot be written ({error.strerror or error}).",
                "Check the folder's permissions and the room on the disk.",
            )
        written[change.name] = sha256(change.new)
    return replace(draft, files=written)


def after_training(run: Path) -> str:
    """Lines of Python that load what the run trained and try it on one prompt; empty where it trained nothing yet."""
    final = run / "final"
    adapter = (final / "adapter_config.json").is_file()
    if not adapter and not (final / "config.json").is_file():
        return ""
    kind = "peft import AutoPeftModelForCausalLM" if adapter else "transformers import AutoModelForCausalLM"
    name = kind.split()[-1]
    first = f"from {kind}\nfrom transformers import AutoTokenizer" if adapter else f"from {kind}, AutoTokenizer"
    return f"""{first}

folder = {str(final)!r}
model = {name}.from_pretrained(folder, dtype="auto")
tokenizer = AutoTokenizer.from_pretrained(folder)
messages = [{{"role": "user", "content": "Your prompt here"}}]  # with the same system prompt as in training
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
output = model.generate(**inputs.to(model.device), max_new_tokens=256)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""
