"""The text of `train.py`: short, readable, and complete without us."""

import re
from collections.abc import Mapping
from string import Template

from grpo_tui import answered
from grpo_tui.draft import Draft
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.scale_out import nodes, served, start_command

_READ_LIVE = ("max_prompt_tokens",)
"""Keys of [data] that train.py reads when it runs; the others are written into its code."""

FOUR_BIT = """
    four_bit = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, MODEL["dtype"]),
    )"""

_SERVED_ELSEWHERE = """(
            # Which node serves with vLLM is known only when the job runs: train.sbatch says it.
            CONFIG["grpo"] | {"vllm_server_host": os.environ.get("VLLM_SERVER_HOST", "127.0.0.1")}
        )"""

_SCRIPT = Template('''"""Trains $model with GRPO.

The settings stand in config.toml and the rewards in $rewards_file, both beside this file:

    python train.py                  one process: one GPU, or the CPU
    python train.py --resume [RUN]   goes on from the newest complete checkpoint of a run

    $start   N processes

Written by grpo-tui and yours to change. It trains without grpo-tui installed too: only the monitor then sees nothing.
"""

import os
import sys

# Before anything else is imported: no file beside this one hides a library.
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != os.path.dirname(os.path.realpath(__file__))]

import argparse
import importlib.util
import json
import shutil
import time
import tomllib
import warnings
from functools import partial$wraps_import
from importlib.machinery import PathFinder
from inspect import iscoroutinefunction, signature
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent if HERE.parent.name == "runs" else HERE  # a run keeps its own copy of these files
CONFIG = tomllib.loads((HERE / "config.toml").read_text(encoding="utf-8"))
MODEL, DATA, LAUNCH = CONFIG["model"], CONFIG["data"], CONFIG.get("launch", {})
REWARDS = LAUNCH.get("rewards_file", "rewards.py")

os.chdir(PROJECT)  # paths in config.toml are relative to the project
# Your own modules import too: the folder of the rewards and the project come last.
LIBRARIES = [entry for entry in sys.path if Path(entry).resolve() not in (HERE, PROJECT)]
sys.path[:] = [*LIBRARIES, *dict.fromkeys((str((PROJECT / REWARDS).parent), str(PROJECT)))]
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars only fill a log file
if LAUNCH.get("threads"):
    os.environ.setdefault("OMP_NUM_THREADS", str(LAUNCH["threads"]))
if LAUNCH.get("gpus"):
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(LAUNCH["gpus"]))
# The libraries' own calls to one another, nothing that could be changed here.
warnings.filterwarnings("ignore", category=FutureWarning, message=".*(gradient_checkpointing|pynvml)")

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import $dataset_names
${lora_import}from transformers import AutoTokenizer${four_bit_import}
from trl import GRPOConfig, GRPOTrainer
${torch_import}
try:
    from grpo_tui.run.recorder import RunRecorder
except ImportError:  # plain TRL: no live panel, everything else as usual
    RunRecorder = None

# What [data] of config.toml said when prepare() and read_data() were written: changing one there alone changes nothing.
WRITTEN_FOR = $written_for


$prepare


${load_code}def read_data():
    """The rows as they stand in the source."""
    return $load


def load_rewards():
    """The reward functions that config.toml names, in its order, from the copy beside this file."""
    path = HERE / REWARDS
    stem = path.stem
    taken = stem in sys.modules or stem in sys.stdlib_module_names or PathFinder.find_spec(stem, LIBRARIES)
    spec = importlib.util.spec_from_file_location(f"{stem}_file" if taken else stem, path)  # a library keeps its name
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    functions = {}
    for reward in CONFIG["rewards"]:
        name = reward["name"]
        function = getattr(module, name, None)
        if not callable(function):
            raise SystemExit(f"{path} defines no function {name!r}, which config.toml names as a reward.")
        while name in functions:
            name += "_2"
        functions[name] = named($reward, name)
    return list(functions.values())


${answered}def named(function, name):
    """The function, or one that calls it, of this name: TRL logs by `__name__`, and sees through partials."""
    if getattr(function, "__name__", None) == name and not isinstance(function, partial):
        return function
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    if iscoroutinefunction(inner) or iscoroutinefunction(inner.__call__):

        async def reward(**given):
            return await function(**given)
    else:

        def reward(**given):
            return function(**given)

    reward.__name__ = reward.__qualname__ = name
    return reward


def load_data(held_out=False):
    """The prompts, prepared, without those that are too long; with `held_out` those that are kept apart."""
    stale = [key for key, value in WRITTEN_FOR.items() if DATA.get(key) != value]
    if stale:
        raise SystemExit(
            f"config.toml says {', '.join(f'{key} = {DATA.get(key)!r}' for key in stale)} in [data], and the code of"
            " prepare() and read_data() was written for another value: change it there too, and WRITTEN_FOR with it."
        )
    prepared = list(prepare_rows(read_data(), held_out))
    limit = DATA.get("max_prompt_tokens", 0)
    if not limit:
        return dataset_of(prepared)
    tokenizer = AutoTokenizer.from_pretrained(MODEL["name"], revision=MODEL.get("revision"))

    def tokens(prompt):
        if isinstance(prompt, str):
            return len(tokenizer(prompt)["input_ids"])
        options = CONFIG["grpo"].get("chat_template_kwargs") or {}
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **options)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    kept = [row for row in prepared if tokens(row["prompt"]) <= limit]
    if len(kept) < len(prepared):
        $too_long
    return dataset_of(kept)


def dataset_of(rows):
    """The rows as a Dataset; a column that mixes types is kept as JSON where the datasets library can."""
    mixed = {"on_mixed_types": "use_json"} if "on_mixed_types" in signature(Dataset.from_list).parameters else {}
    return Dataset.from_list(rows, **mixed)


def find_run(resume):
    """The folder of this run, the same on every process; with `resume` that of an earlier run."""
    if resume:
        return Path(resume).resolve()
    if os.environ.get("GRPO_TUI_RUN"):
        return Path(os.environ["GRPO_TUI_RUN"])
    if resume is not None:
        runs = [path for path in (PROJECT / "runs").glob("*") if path.is_dir()]
        if not runs:
            raise SystemExit(f"There is no run to go on with in {PROJECT / 'runs'}.")
        return max(runs, key=lambda path: path.stat().st_mtime)
    name = [time.strftime("%Y%m%d-%H%M%S")]
    broadcast_object_list(name)
    return PROJECT / "runs" / name[0]


def newest_checkpoint(run):
    """The newest complete checkpoint of the run and its state, or None: trainer_state.json is written last."""
    numbered = [path for path in run.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for path in sorted(numbered, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True):
        try:
            return path, json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            print(f"{path} is not complete and passed over.")
    return None


def main():
    parser = argparse.ArgumentParser(description="Train with GRPO, as config.toml beside this file says.")
    parser.add_argument("--resume", nargs="?", const="", metavar="RUN", help="go on with this run, or with the newest")
    resume = parser.parse_args().resume

    state = PartialState(cpu=bool(CONFIG["grpo"].get("use_cpu")))
    planned = LAUNCH.get("processes", 1)
    if state.num_processes != planned:
        raise SystemExit(
            f"config.toml plans {planned} process(es) and {state.num_processes} run: start it with"
            f" `$start_planned`,"
            " or change `processes` in [launch], which changes the batch too."
        )
    run = find_run(resume)
    checkpoint = newest_checkpoint(run) if resume is not None else None
    if resume is not None and checkpoint is None:
        raise SystemExit(f"{run} has no complete checkpoint to go on from.")
    if checkpoint is not None:
        path, saved = checkpoint
        steps = CONFIG["grpo"].get("max_steps", 0)
        if saved["global_step"] >= (steps if steps > 0 else saved["max_steps"]):
            if state.is_main_process:
                print(f"{path} is finished at step {saved['global_step']}: there is nothing left to train.")
            return
    if state.is_main_process:
        run.mkdir(parents=True, exist_ok=True)
        for name in ("config.toml", REWARDS, "train.py"):
            if not (run / name).exists():
                (run / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(HERE / name, run / name)
    state.wait_for_everyone()

    data = load_data()$four_bit
    args = GRPOConfig(
        output_dir=str(run),
        reward_weights=[float(reward["weight"]) for reward in CONFIG["rewards"]],
        model_init_kwargs={
$init_kwargs
        },
        **$settings,
    )
    needed = args.generation_batch_size // args.num_generations
    if len(data) < needed:
        raise SystemExit(f"{len(data)} usable prompts, and one generation takes {needed}: training would run 0 steps.")
    trainer = GRPOTrainer(
        model=MODEL["name"],
        reward_funcs=load_rewards(),
        args=args,
        train_dataset=data,$evaluation$peft
    )
    if RunRecorder is not None:
        RunRecorder(run).attach(trainer)
    trainer.train(resume_from_checkpoint=str(checkpoint[0]) if checkpoint else None)
    trainer.save_model(str(run / "final"))
    if state.is_main_process:
        reached, planned_steps = trainer.state.global_step, trainer.state.max_steps
        print(f"{'Finished' if reached >= planned_steps else 'Stopped'} at step {reached} of {planned_steps}.")
        print(f"The trained $product is in {run / 'final'}")


if __name__ == "__main__":
    main()
''')


_FOUND = "{len(prepared) - len(kept)} of {len(prepared)} prompts are longer than {limit} tokens"
_TOO_LONG: Mapping[str, str] = {
    "leave_out": f'print(f"{_FOUND} and left out.")',
    "stop": f'raise SystemExit(f"{_FOUND}. Training was to stop there.")',
}
"""What train.py does about prompts beyond the limit, by the choice for them."""


def render_train(plan: Plan, draft: Draft, prepare: str, load: str, load_code: str = "") -> str:
    """`train.py` for `plan`.

    `prepare` is the source of `def prepare(row)` exactly as the preview of the data executes it, and `load` the
    expression that loads the rows, in the names of `datasets`, `json`, `Path` and `load_code`.
    """
    four_bit = plan.method == "qlora"
    missing = answered.may_be_missing(draft.dataset.answer, draft.dataset.faults)
    adapter = plan.method in ("lora", "qlora")
    init = ['"dtype": MODEL["dtype"]', '"revision": MODEL.get("revision")']
    if plan.value("model.attn_implementation"):
        init.append('"attn_implementation": MODEL["attn_implementation"]')
    if four_bit:
        init.append('"quantization_config": four_bit')
    text = _SCRIPT.substitute(
        model=_docstring(str(plan.value("model.name"))),
        rewards_file=_docstring(draft.rewards.file),
        dataset_names=", ".join(["Dataset", *(name for name in ("load_dataset", "load_from_disk") if name in load)]),
        written_for=_dictionary({key: value for key, value in plan.section("data").items() if key not in _READ_LIVE}),
        prepare=prepare.strip("\n"),
        too_long=_TOO_LONG["stop" if draft.dataset.faults.get("over_long") == "stop" else "leave_out"],
        load=load,
        wraps_import=", wraps" if missing else "",
        answered=f"{answered.CODE}\n\n" if missing else "",
        reward="only_answered(function)" if missing else "function",
        load_code=f"{load_code}\n\n" if load_code else "",
        lora_import="from peft import LoraConfig\n" if adapter else "",
        four_bit_import=", BitsAndBytesConfig" if four_bit else "",
        torch_import="import torch\n" if four_bit else "",
        four_bit=FOUR_BIT if four_bit else "",
        init_kwargs="\n".join(f"            {line}," for line in init),
        peft='\n        peft_config=LoraConfig(task_type="CAUSAL_LM", **CONFIG["lora"]),' if adapter else "",
        evaluation="\n        eval_dataset=load_data(held_out=True)," if draft.dataset.eval_share else "",
        product="adapter" if adapter else "model",
        start=start_command(plan, "N"),
        start_planned=start_command(plan, "{planned}"),
        settings=_SERVED_ELSEWHERE if served(plan) and nodes(plan) > 1 else 'CONFIG["grpo"]',
    )
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _dictionary(values: Mapping[str, object]) -> str:
    """`values` as a dictionary in Python, one entry a line."""
    return "{\n" + "".join(f"    {_literal(key)}: {value!r},\n" for key, value in values.items()) + "}"


def _docstring(text: str) -> str:
    """`text` fit to stand inside a docstring."""
    return "".join(character for character in text if character.isprintable()).replace("\\", "/").replace('"', "'")


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
