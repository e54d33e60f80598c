"""The plan for use without us: one Python script that stands alone, or YAML for `trl grpo`."""

import ast
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from string import Template
from typing import Any

from grpo_tui import answered
from grpo_tui.plan.plan import Plan, Setting
from grpo_tui.plan.script import FOUR_BIT
from grpo_tui.plan.written import LORA_KEYS
from grpo_tui.problem import Problem

WIDTH = 100


@dataclass(frozen=True)
class Export:
    """A file for use elsewhere, and what it cannot hold."""

    text: str
    notes: tuple[str, ...]


def explained(plan: Plan, tuned: Plan) -> Plan:
    """`plan`, the values as they stand on the disk, with the reasons of `tuned` for those that are the same there."""
    reasons = {setting.key: setting for setting in tuned.settings}

    def reason(setting: Setting) -> Setting:
        known = reasons.get(setting.key)
        if known is None:
            return replace(setting, why="You set it.")
        why, source = (known.why, known.source) if known.value == setting.value else ("You set it.", "set by you")
        return replace(setting, what=known.what, why=why, source=source)

    return replace(plan, settings=tuple(map(reason, plan.settings)), versions=tuned.versions, notes=tuned.notes)


def _comment(setting: Setting, indent: str) -> list[str]:
    """What a setting does, why it has its value, and where the reason comes from, as lines of comment."""
    words = " ".join(f"{setting.what} {setting.why} [{setting.source}]".split())
    mark = f"{indent}# "
    return textwrap.wrap(words, WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False)


def _section(plan: Plan, name: str) -> Iterator[tuple[str, Setting]]:
    prefix = f"{name}."
    return ((s.key.removeprefix(prefix), s) for s in plan.settings if s.key.startswith(prefix) and s.value is not None)


# -------------------------------------------------------------------------------------------------------- script

_OWN = {"read_data", "prompts", "load_data", "main", "only_answered", "wraps", "HERE", "MODEL", "PROCESSES"}
"""Names that the script defines beside those of the rewards."""


_SCRIPT = Template('''"""Trains $model with GRPO. Everything stands in this file.

    $start

Written by grpo-tui and yours to change; it needs TRL and not grpo-tui. Paths are relative to this file.
$made_for
"""

${future}import json
import os
from pathlib import Path
$threads
from datasets import $loaders
${imports}from trl import GRPOConfig, GRPOTrainer

MODEL = $loaded
PROCESSES = $processes  # the batch is planned for so many
HERE = Path(__file__).resolve().parent
os.chdir(HERE)


# The rewards, as they stand in $rewards_file.

$rewards


$answered# The data.


${load_code}def read_data():
    """The rows as they stand in the source."""
    return $load


def prompts(rows):
    """Each row as the trainer takes it; rows without a usable prompt are left out."""
$prepare

    return list(prepare_rows(rows))


def load_data():
    """The prompts as a data set."""
    rows = prompts(read_data())
$short_enough    try:
        return Dataset.from_list(rows, on_mixed_types="use_json")  # a column may mix types
    except TypeError:  # datasets before 4.8
        return Dataset.from_list(rows)


def main():
    args = GRPOConfig(
        output_dir="outputs/grpo",
        reward_weights=$weights,
        model_init_kwargs=$loading,
$grpo
    )
    if args.world_size != PROCESSES:
        raise SystemExit(f"The batch is planned for {PROCESSES} process(es) and {args.world_size} run.")
    data = load_data()
    needed = args.generation_batch_size // args.num_generations
    if len(data) < needed:
        raise SystemExit(f"{len(data)} usable prompts, and one generation takes {needed}: 0 steps.")
$adapter    trainer = GRPOTrainer(
        model=MODEL["name"],
        reward_funcs=[$functions],
        args=args,
        train_dataset=data,$peft
    )
    trainer.train()
    trainer.save_model("outputs/grpo/final")


if __name__ == "__main__":
    main()
''')

_SHORT_ENOUGH = Template("""\
    tokenizer = AutoTokenizer.from_pretrained(MODEL["name"], revision=MODEL.get("revision"))

    def tokens(prompt):
        if isinstance(prompt, str):
            return len(tokenizer(prompt)["input_ids"])
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **$options)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    rows = [row for row in rows if tokens(row["prompt"]) <= $limit]
""")


def render_script(
    plan: Plan,
    *,
    prepare: str,
    load: str,
    rewards: str,
    rewards_file: str,
    load_code: str = "",
    name: str = "train_alone.py",
) -> Export | Problem:
    """A script that trains as train.py does, with nothing beside it but the data.

    `prepare` is the code that prepares the rows, `load` the expression that loads them and `load_code` what that calls,
    as in train.py; `rewards` is the text of the user's `rewards_file`, which is taken over as it stands. `name` is what
    the script is called.
    """
    try:
        body, future = _as_part(rewards)
        _check_names(rewards)
    except (SyntaxError, ValueError) as error:
        return Problem(rewards_file, f"It cannot be taken over: {error}.", "Correct it there.")
    adapter, four_bit = plan.method in ("lora", "qlora"), plan.method == "qlora"
    limit = plan.value("data.max_prompt_tokens") or 0
    missing = _missing_answers(plan)
    options = _python(plan.value("grpo.chat_template_kwargs") or {})
    made_for = ", ".join(f"{name} {version}" for name, version in plan.versions.items())
    names = [*(["AutoTokenizer"] if limit else []), *(["BitsAndBytesConfig"] if four_bit else [])]
    imports = [
        *(answered.IMPORTS.splitlines() if missing else []),
        *(["import torch"] if four_bit else []),
        *(["from peft import LoraConfig"] if adapter else []),
        *([f"from transformers import {', '.join(names)}"] if names else []),
    ]
    lora = "\n".join(_arguments(plan, "lora", "        "))
    text = _SCRIPT.substitute(
        model=_plain(str(plan.value("model.name"))),
        start=_plain(_start(plan, name)),
        made_for=f"Made for {made_for}." if made_for else "",
        future="".join(f"{line}\n" for line in future),
        loaders=", ".join(["Dataset", *(name for name in ("load_dataset", "load_from_disk") if name in load)]),
        imports="".join(f"{line}\n" for line in imports),
        loaded=_python(plan.section("model")),
        processes=plan.world_size,
        threads=f'\nos.environ.setdefault("OMP_NUM_THREADS", "{threads}")  # read when torch is imported\n'
        if (threads := plan.value("launch.threads"))
        else "",
        rewards_file=_plain(rewards_file),
        rewards=body,
        answered=f"{answered.CODE}\n\n" if missing else "",
        load=load,
        load_code=f"{load_code}\n\n" if load_code else "",
        prepare=textwrap.indent(prepare.strip("\n"), "    "),
        short_enough=_SHORT_ENOUGH.substitute(options=options, limit=int(limit)) if limit else "",
        weights=_python([float(item.weight) for item in plan.rewards]),
        loading=_loading(plan),
        grpo="\n".join(_arguments(plan, "grpo", "        ")),
        adapter=f'    adapter = LoraConfig(\n        task_type="CAUSAL_LM",\n{lora}\n    )\n' if adapter else "",
        functions=", ".join(f"only_answered({item.name})" if missing else item.name for item in plan.rewards),
        peft="\n        peft_config=adapter," if adapter else "",
    )
    return Export(re.sub(r"\n{4,}", "\n\n\n", text), tuple(_left_out(plan)))


def _missing_answers(plan: Plan) -> bool:
    return answered.may_be_missing(plan.value("data.answer") or "", plan.value("data.faults") or {})


def _left_out(plan: Plan) -> Iterator[str]:
    """What the script does not do, one sentence each."""
    yield "There is no recorder in it: grpo-tui watch reads what TRL itself writes."
    if plan.value("launch.gpus"):
        yield "Which GPUs train is said by CUDA_VISIBLE_DEVICES."
    if plan.value("launch.strategy") or plan.value("launch.vllm") == "server":
        yield "Take accelerate.yaml and serve_vllm.sh along where the project has them."


def _start(plan: Plan, name: str) -> str:
    if plan.world_size == 1:
        return f"python {name}"
    if plan.cpu:
        return f"torchrun --standalone --nproc_per_node {plan.world_size} {name}"
    return f"accelerate launch --config_file accelerate.yaml --num_processes {plan.world_size} {name}"


def _plain(text: str) -> str:
    """`text` fit to stand in a docstring or a comment."""
    return "".join(character for character in text if character.isprintable()).replace("\\", "/").replace('"', "'")


def _as_part(source: str) -> tuple[str, list[str]]:
    """`source` without its docstring, what it does only as a program and its `__future__` imports; and the latter."""
    tree, lines = ast.parse(source), source.splitlines()
    taken: set[int] = set()
    future = []
    for number, node in enumerate(tree.body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        is_program = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if is_docstring or is_future or is_program:
            taken |= set(range(node.lineno - 1, node.end_lineno or node.lineno))
        if is_future:
            future.append(ast.unparse(node))
    return "\n".join(line for number, line in enumerate(lines) if number not in taken).strip("\n"), future


def _check_names(source: str) -> None:
    """Raises ValueError where the rewards define a name that the script needs for itself."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    if taken := sorted(names & (_OWN | {"GRPOConfig", "GRPOTrainer", "Dataset", "Path", "json", "os"})):
        raise ValueError(f"the script needs the name {taken[0]} for itself")


def _loading(plan: Plan) -> str:
    """The keyword arguments of the model's `from_pretrained`, in Python."""
    parts = ['"dtype": MODEL["dtype"]', '"revision": MODEL.get("revision")']
    if plan.value("model.attn_implementation"):
        parts.append('"attn_implementation": MODEL["attn_implementation"]')
    if plan.method == "qlora":
        parts.append(f'"quantization_config": {" ".join(FOUR_BIT.partition("= ")[2].split())}')
    return "{\n" + "".join(f"            {part},\n" for part in parts) + "        }"


def _arguments(plan: Plan, section: str, indent: str) -> Iterator[str]:
    """Keyword arguments of a configuration, each under its comment."""
    for name, setting in _section(plan, section):
        yield from _comment(setting, indent)
        yield f"{indent}{name}={_python(setting.value)},"


def _python(value: Any) -> str:
    """`value` as Python; a mapping of a frozen kind is a dictionary."""
    return repr(dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value)


# ---------------------------------------------------------------------------------------------------------- YAML

PROMPTS = "prompts.jsonl"
"""The prepared prompts, which YAML names and cannot make."""


def render_yaml(plan: Plan, *, rewards_file: str, prompts: str = PROMPTS, name: str = "grpo.yaml") -> Export:
    """YAML for `trl grpo --config`; `prompts` is the file of the prepared rows, `name` that of the YAML itself."""
    module = re.sub(r"\.py$", "", rewards_file).replace("/", ".")
    notes = [
        f"The prompts stand prepared in {prompts}: YAML holds no code. Export again when the data change.",
        f"The rewards are imported from {rewards_file}: start it in the project folder.",
        "There is no recorder in it: grpo-tui watch reads what TRL itself writes.",
    ]
    if _missing_answers(plan):
        notes.append("A row without an answer gives the rewards None there: only the script keeps it from them.")
    lines = [
        "# Trains with GRPO, in the project folder:",
        "#",
        f"#     trl grpo --config {name}",
        "#",
        "# Written by grpo-tui and yours to change.",
        *(f"# {note}" for note in notes),
        "",
        "# The model, and how it is loaded.",
        f"model_name_or_path: {_yaml(plan.value('model.name'))}",
        *([f"model_revision: {_yaml(plan.value('model.revision'))}"] if plan.value("model.revision") else []),
        f"dtype: {_yaml(plan.value('model.dtype', 'float32'))}",
    ]
    if plan.value("model.attn_implementation"):
        lines.append(f"attn_implementation: {_yaml(plan.value('model.attn_implementation'))}")
    if plan.method == "qlora":
        lines += ["load_in_4bit: true", "use_bnb_nested_quant: true"]
    lines += ["", "# The data: rows with a prompt, and what the rewards need beside it.", "datasets:",
              "  - path: json", f"    data_files: {_yaml(prompts)}", "    split: train"]  # fmt: skip
    lines += ["", "# What the model is paid for.", "reward_funcs:"]
    lines += [f"  - {_yaml(f'{module}.{item.name}')}" for item in plan.rewards]
    lines += [f"reward_weights: {_yaml([float(item.weight) for item in plan.rewards])}"]
    if plan.method != "full":
        held, missing = _lora(plan)
        lines += ["", "# The adapter.", "use_peft: true", *held]
        notes += [f"lora.{name} has no key there and is left out." for name in missing]
    lines += ["", "# Training.", "output_dir: outputs/grpo"]
    for name, setting in _section(plan, "grpo"):
        lines += [*_comment(setting, ""), f"{name}: {_yaml(setting.value)}"]
    strategy = plan.value("launch.strategy")
    if plan.world_size > 1 or strategy:
        lines += ["", "# How it is started.", f"num_processes: {plan.world_size}"]
        if strategy:
            lines.append(f"accelerate_config: {'multi_gpu' if strategy == 'ddp' else strategy}")
    if plan.cpu and plan.world_size > 1:
        notes.append("trl grpo starts one process on the CPU, and the plan is for several: use the script.")
    if plan.value("launch.vllm") == "server":
        notes.append("Start the vLLM server first: bash serve_vllm.sh")
    return Export("\n".join(lines) + "\n", tuple(notes))


def _lora(plan: Plan) -> tuple[list[str], list[str]]:
    """The lines for the adapter, and the names that `trl grpo` has no key for."""
    keys = {field: key for key, field in LORA_KEYS.items()}
    held: list[str] = []
    missing: list[str] = []
    for name, setting in _section(plan, "lora"):
        if name not in keys:
            missing.append(name)
            continue
        value = [setting.value] if name == "target_modules" and isinstance(setting.value, str) else setting.value
        held += [*_comment(setting, ""), f"{keys[name]}: {_yaml(value)}"]
    return held, missing


def _yaml(value: Any) -> str:
    """`value` in YAML's flow style, which JSON is part of; YAML 1.1 takes a number for one only with a dot in it."""
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return json.dumps(value)


def prompt_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Prepared rows as JSON lines; in a column that mixes types every value becomes text, as the json reader wants."""
    kept = list(rows)
    kinds: dict[str, set[type]] = {}
    for row in kept:
        for name, value in row.items():
            if value is not None:
                kinds.setdefault(name, set()).add(float if type(value) is int else type(value))
    mixed = {name for name, found in kinds.items() if len(found) > 1}

    def plain(name: str, value: Any) -> Any:
        if name not in mixed or value is None or isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, default=str)

    lines = [{name: plain(name, value) for name, value in row.items()} for row in kept]
    return "".join(json.dumps(line, ensure_ascii=False, default=str) + "\n" for line in lines)
