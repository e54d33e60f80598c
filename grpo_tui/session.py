"""One sitting at one project: the facts behind the answers, found when asked and kept while they hold."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_tui import atomic, state
from grpo_tui.draft import FACT_NAMES, STEPS, Approval, DatasetAnswer, Draft, HardwareAnswer, RewardsAnswer
from grpo_tui.inert import one_line
from grpo_tui.problem import Problem

if TYPE_CHECKING:
    from grpo_tui.child import Worker
    from grpo_tui.dataset.faults import Fault
    from grpo_tui.dataset.lengths import Lengths, Rendered
    from grpo_tui.dataset.sources import Source
    from grpo_tui.hardware.environment import Check, Environment
    from grpo_tui.hardware.machine import Machine
    from grpo_tui.plan import tuning
    from grpo_tui.plan.dialect import Schema
    from grpo_tui.plan.files import FileChange
    from grpo_tui.plan.model import ModelFacts
    from grpo_tui.plan.plan import Plan
    from grpo_tui.recipe import Recipe
    from grpo_tui.rewards.bench import ScoreTable
    from grpo_tui.rewards.source import FunctionSource
    from grpo_tui.run.launch import Command, Started

Found = TypeVar("Found")

SHOWN_ROWS = 50
"""Rows of the preview."""

SUGGEST_ROWS = 200
"""Rows that columns and rewards are proposed from."""

Say = Callable[[str], None]
"""Takes a sentence about how far something is."""


def now() -> str:
    """The time as the state file writes it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each with its length, so that no two lists of parts collide."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part
        total.update(f"{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def what_is_done(draft: Draft) -> str:
    """What is done and what is not, in a sentence; empty for a new draft."""
    done = [name for name in STEPS if name in draft.done]
    if not done:
        return ""
    left = [name for name in STEPS if name not in draft.done]
    return f"Done: {_listed(done)}. " + (f"Not done yet: {_listed(left)}." if left else "Nothing is left to do.")


def farewell(project: Path, draft: Draft) -> str:
    """What is printed when the wizard is left."""
    words = what_is_done(draft) or "Nothing is answered yet."
    return f"{words} Kept in {project / state.STATE_FILE}. Go on with: grpo-tui --project {project}"


def status_line(project: Path) -> str:
    """How far a project is, for a place without a terminal."""
    loaded = state.load(project)
    if isinstance(loaded, Problem):
        return str(loaded)
    return f"{project}: {what_is_done(loaded.draft) or 'no answers yet.'}"


def first_samples(system: str, right: str) -> tuple[str, ...]:
    """Completions to begin with, made from one row: the right answer in the tags that the system prompt names, the
    right answer alone, and one that answers nothing."""
    tags = tuple(dict.fromkeys(re.findall(r"<([a-z][a-z0-9_]*)>", system))) or ("reasoning", "answer")
    whole = "".join(f"<{tag}>{right if tag == tags[-1] else '...'}</{tag}>" for tag in tags)
    return (whole, right or "An answer.", "I do not know.")


def is_reward(function: FunctionSource) -> bool:
    """Whether a function of a file is meant as a reward: it takes completions, and its name is not private."""
    return "completions" in function.parameters and not function.name.startswith("_")


def _text(path: Path) -> str | None:
    """The text of a file; None where there is none, or none that can be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def _hash(path: Path) -> str:
    """SHA-256 of a file as `Draft.files` keeps it; empty where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.capitalize() for name in names)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A reward function that can be taken: from the project's file, or proposed for its data."""

    name: str
    weight: float
    pays: str
    why: str = ""
    warnings: tuple[str, ...] = ()
    code: str
    origin: str
    """File and lines, or the title of the template."""

    proposed: bool = True
    """Taken unless the user says otherwise."""

    source: Any = None
    """The `FunctionSource` or `Proposal` behind it."""


@dataclass(frozen=True, kw_only=True)
class RowView:
    """One row, as it is and as the model will see it."""

    number: int
    """From 0."""

    raw: Mapping[str, Any]
    prepared: Mapping[str, Any] | None
    """As the training sees it; None: it is left out."""

    tokens: int | None = None
    """Of the prompt; None: not counted."""

    trouble: str = ""
    """Why it is left out; empty: it is used."""

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Role and text of each message; a plain prompt has one without role."""
        prompt = self.prepared["prompt"] if self.prepared else ""
        if isinstance(prompt, str):
            return (("", prompt),)
        return tuple((str(message.get("role", "")), str(message.get("content", ""))) for message in prompt)

    @property
    def prompt(self) -> str:
        """The last message."""
        return self.messages[-1][1] if self.messages else ""

    @property
    def answer(self) -> str:
        """The right answer; empty: there is none."""
        value = self.prepared.get("answer") if self.prepared else None
        return "" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data set as the training will take it."""

    source: Source
    head: tuple[RowView, ...]
    usable: int
    faults: tuple[Fault, ...]
    lengths: Lengths | None
    code: str
    """Source of `prepare`."""

    load_call: str
    """The expression that loads the rows."""

    reasons: Mapping[str, str]
    """Field of the answer to why it was proposed."""

    @property
    def rows_words(self) -> str:
        """The number of rows, for people."""
        rows = self.source.rows
        return "unknown" if rows is None else f"{rows:,}" if self.source.rows_exact else f"~{rows:,}"

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt that was counted; 0: none was."""
        return self.lengths.longest if self.lengths else 0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A completion to try the rewards on."""

    text: str
    row: int
    expect: str = ""
    """`high`, `low`, or empty: nothing is expected."""

    note: str = ""
    origin: str
    """Where it comes from, in a word or two."""

    own: bool = False
    """Written by the user."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the rewards are tried on."""

    samples: tuple[Sample, ...]
    row: int
    """The row of the samples written by hand, from 0."""

    prompt: str
    """Its last user message, for people."""

    answer: Any
    rows: Mapping[int, Mapping[str, Any]]
    """Prepared rows by number."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What writing would do, and whether it holds together."""

    draft: Draft
    """With what was edited in the files on the disk taken over."""

    plan: Plan
    changes: tuple[FileChange, ...]
    checks: tuple[tuple[str, str], ...]
    """Level (`ok`, `warn`, `fail`) and words."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """What would be started now."""

    run: str
    """Name of the new run."""

    command: Command
    devices: str
    files: tuple[str, ...]
    sha256: str
    steps: str
    changed: tuple[str, ...]
    """What is different from what was reviewed, one sentence each."""

    warnings: tuple[Problem, ...]
    stale: str = ""
    """Why this must not be started; empty: it may."""

    runs: tuple[tuple[str, bool, str], ...] = ()
    """Runs of this project: name, alive, words."""


class Session:
    """Looks things up for a draft. Every method may block: screens call them in threads.

    What was found is kept under the digest of what it rests on; `forget` throws it away.
    """

    def __init__(self, project: Path, *, machine: Machine | None = None) -> None:
        """`machine`: the hardware, where it shall not be looked at."""
        self.project = project.resolve()  # workers have another working directory
        self._given_machine = machine
        self._machine = machine
        self._workers: dict[str, Worker] = {}
        self._kept: dict[str, Any] = {}
        self._guard = threading.Lock()

    def kept(self, key: str, find: Callable[[], Found]) -> Found:
        """What `find` yields, found once a key; problems are found anew each time."""
        with self._guard:
            if key in self._kept:
                return self._kept[key]  # type: ignore[no-any-return]  # kept under a key of its own kind
        found = find()
        if not isinstance(found, Problem):
            with self._guard:
                self._kept[key] = found
        return found

    # The machine

    def machine(self) -> Machine:
        """The hardware as it was when first looked at, or since `forget`."""
        if self._machine is None:
            from grpo_tui.hardware.nvml import read_machine

            self._machine = read_machine()
        return self._machine

    def look_at_machine(self) -> Machine | Problem:
        """The hardware, with what only torch can tell where that is worth asking for."""
        from grpo_tui.hardware.torch_devices import ask_torch, worth_asking

        machine = self.machine()
        if self._given_machine is not None or not worth_asking(machine, self.environment().torch_backend):
            return machine
        asked = ask_torch(machine, self.worker("devices"))
        if isinstance(asked, Problem):
            return replace(machine, notes=(*machine.notes, str(asked)))
        self._machine = asked
        return asked

    def machine_words(self) -> str:
        """The machine in a few words, from what is known by now; empty before it was looked at."""
        machine = self._machine
        if machine is None:
            return ""
        kinds = Counter(gpu.name.removeprefix("NVIDIA ") for gpu in machine.gpus)
        gpus = ", ".join(f"{count} × {name}" for name, count in kinds.items()) or "no GPU"
        return f"{one_line(machine.host, 24)}  {one_line(gpus, 36)}"

    def environment(self) -> Environment:
        """Versions, tokens and room on disk."""
        from grpo_tui.hardware.environment import read_environment

        return self.kept("environment", lambda: read_environment(self.project))

    def checks(self) -> list[Check]:
        """What is fine and what is not about this machine."""
        if self._given_machine is not None:
            return []
        from grpo_tui.hardware.environment import checks

        return checks(self.machine(), self.environment())

    def proposed_hardware(self) -> HardwareAnswer:
        """The GPUs to begin with, or the CPU where there are none."""
        from grpo_tui.hardware.machine import suggested

        gpus = tuple(gpu.uuid for gpu in suggested(self.machine()))
        return HardwareAnswer(gpus=gpus, cpu=not gpus)

    def hardware_for(self, place: str) -> HardwareAnswer:
        """The answer to begin with for `gpus`, `cpu` or `other`."""
        if place == "gpus":
            return replace(self.proposed_hardware(), cpu=False)
        if place == "cpu":
            return HardwareAnswer(cpu=True)
        return HardwareAnswer(manual_name="card", manual_count=1)

    # The model

    def model(self, draft: Draft) -> ModelFacts | Problem:
        """The model's figures, from files on this machine."""
        from grpo_tui.plan.model import read_model

        answer = draft.model
        key = digest("model", answer.name, answer.revision)
        return self.kept(key, lambda: read_model(answer.name, answer.revision, project=self.project))

    def is_on_hub(self, draft: Draft) -> bool:
        """Whether the model's name can be one of the hub."""
        from grpo_tui.plan.model import is_hub_id

        return is_hub_id(draft.model.name, self.project)

    def model_cache(self) -> Path:
        """Where fetched models are kept."""
        from grpo_tui.plan.model import cache_folder

        return cache_folder()

    def known_models(self, draft: Draft) -> list[tuple[str, str]]:
        """Names to choose from, each with a remark: the present one, and those in the hub's cache."""
        present = [(draft.model.name, "")] if draft.model.name else []
        cached = sorted(self.model_cache().glob("models--*/refs"))
        names = [path.parent.name.removeprefix("models--").replace("--", "/") for path in cached]
        return present + [(name, "in the cache") for name in names if name != draft.model.name]

    def fetch_model(self, draft: Draft, say: Say) -> Problem | None:
        """Fetch configuration and tokenizer of a model of the hub; no weights."""
        found = self.worker("model").call(
            "fetch",
            {"name": draft.model.name, "revision": draft.model.revision},
            on_progress=lambda progress: say(one_line(str(progress.get("text", "")), 200)),
        )
        self.forget()
        return found if isinstance(found, Problem) else None

    def log_in(self, token: str) -> Problem | None:
        """Hand a token to Hugging Face's own store."""
        found = self.worker("model").call("log_in", {"token": token})
        return found if isinstance(found, Problem) else None

    # The plan

    def schema(self, say: Say) -> Schema | Problem:
        """What the installed libraries accept."""
        from grpo_tui.plan.dialect import load_schema

        say("Reading what the installed TRL accepts; the first time takes some seconds…")
        return self.kept("schema", lambda: load_schema(self.worker("introspect")))

    def planning_facts(self, draft: Draft, say: Say) -> tuning.Facts | Problem:
        """Everything the tuning wants to know. Before the data are chosen their lengths are unknown."""
        from grpo_tui.plan import tuning

        model = self.model(draft)
        if isinstance(model, Problem):
            return model
        schema = self.schema(say)
        if isinstance(schema, Problem):
            return schema
        machine = self.machine()
        by_uuid = {gpu.uuid: gpu for gpu in machine.gpus}
        chosen = [by_uuid[uuid] for uuid in draft.hardware.gpus if uuid in by_uuid]
        cards = tuple(
            tuning.Card(
                name=gpu.name,
                uuid=gpu.uuid,
                total_bytes=gpu.total_bytes,
                free_bytes=gpu.free_bytes,
                capability=gpu.capability,
            )
            for gpu in chosen
        )
        recipe = self.recipe(draft)
        advice = {
            key: tuning.Advice(value=each.value, why=each.why) for key, each in (recipe.grpo if recipe else {}).items()
        }
        data = self.data(draft, say) if draft.dataset.source and draft.dataset.prompt else None
        if isinstance(data, Problem):
            return data
        return tuning.Facts(
            model=model,
            schema=schema,
            cards=cards,
            ram_bytes=machine.memory_available_bytes or 0,
            processors=os.cpu_count() or 1,
            rows=data.usable if data else None,
            longest_prompt=data.longest if data else 0,
            packages=frozenset(name.replace("-", "_") for name in self.environment().versions),
            recipe=advice,
            data={"format": data.source.format} if data else {},
        )

    def method_plans(self, draft: Draft, say: Say) -> dict[str, Plan | list[Problem]] | Problem:
        """A plan for each method, whichever is chosen."""
        from grpo_tui.plan.tuning import tune

        facts = self.planning_facts(draft, say)
        if isinstance(facts, Problem):
            return facts
        return {
            method: tune(replace(draft, model=replace(draft.model, method=method)), facts)
            for method in ("full", "lora", "qlora")
        }

    def plan(self, draft: Draft, say: Say) -> Plan | list[Problem]:
        """The tuned plan."""
        from grpo_tui.plan.tuning import tune

        facts = self.planning_facts(draft, say)
        return [facts] if isinstance(facts, Problem) else tune(draft, facts)

    def checked_plan(self, draft: Draft, say: Say) -> Plan | list[Problem]:
        """The tuned plan, its settings constructed as the installed `GRPOConfig` for the planned machine."""
        from grpo_tui.plan.checks import check

        plan = self.plan(draft, say)
        if isinstance(plan, list):
            return plan
        say("Checking every value with the installed GRPOConfig…")
        problems = self.kept(f"check {plan.sha256}", lambda: check(plan, self.worker("introspect")))
        return problems or plan

    # Files

    def outlook(self, draft: Draft, say: Say) -> Outlook | list[Problem] | Problem:
        """The files as they would be written, compared with those on the disk."""
        from grpo_tui.plan import files
        from grpo_tui.plan.script import render_train

        plan = self.checked_plan(draft, say)
        if isinstance(plan, list):
            return plan
        path = self.project / "config.toml"
        old = _text(path)
        adopted: list[str] = []
        if old is not None and draft.files.get(path.name) not in (None, files.sha256(old)):
            config = files.read_config(old, path.name)
            if isinstance(config, Problem):
                return config
            theirs = files.adopt(draft, plan, config)
            if theirs != draft:
                adopted = [key for key in theirs.settings.overrides if key not in draft.settings.overrides]
                draft = theirs
                plan = self.checked_plan(draft, say)
                if isinstance(plan, list):
                    return plan
        data = self.data(draft, say)
        if isinstance(data, Problem):
            return data
        rendered = {
            "config.toml": files.render_config(plan),
            "train.py": render_train(plan, draft, data.code, data.load_call),
        }
        changes = files.changes(self.project, draft, rendered)
        if isinstance(changes, Problem):
            return changes
        return Outlook(
            draft=draft, plan=plan, changes=tuple(changes), checks=tuple(self._check_list(draft, plan, data, adopted))
        )

    def _check_list(self, draft: Draft, plan: Plan, data: Data, adopted: Sequence[str]) -> Iterator[tuple[str, str]]:
        from grpo_tui.run.launch import collisions

        versions = ", ".join(
            f"{name} {version}" for name, version in plan.versions.items() if name in ("trl", "transformers")
        )
        yield (
            "ok",
            f"Every value was accepted by the installed GRPOConfig ({versions}), for {plan.world_size} process(es).",
        )
        yield (
            "ok",
            f"{data.usable:,} of {data.rows_words} rows are used; the longest prompt has {data.longest:,} tokens.",
        )
        if plan.memory is not None:
            fits = not plan.available_bytes or plan.memory.fits(plan.available_bytes)
            peak, room = plan.memory.peak_bytes / 2**30, plan.available_bytes / 2**30
            words = f"Predicted peak {peak:.1f} GiB of {room:.1f} GiB {plan.memory.place}."
            yield "ok" if fits else "warn", words
        if draft.score.skipped:
            yield "warn", "The rewards were not tried on completions."
        else:
            yield "ok", f"The rewards were tried: {', '.join(item.name for item in draft.rewards.items)}."
        if adopted:
            yield "warn", f"Taken over from your config.toml: {', '.join(adopted)}."
        if draft.task.overruled:
            yield "warn", f"The fit check recommends {draft.task.verdict}; you go on with GRPO."
        for note in plan.notes:
            yield "warn", note
        for problem in collisions(self.project, plan.as_config()):
            yield "warn", str(problem)

    def write_files(self, draft: Draft, outlook: Outlook, replaced: Collection[str] = ()) -> Draft | Problem:
        """Write what the outlook shows; files edited by the user only if named in `replaced`."""
        from grpo_tui.plan import files

        return files.write(self.project, draft, outlook.changes, replaced)

    # The start

    def departure(self, draft: Draft) -> Departure | Problem:
        """What would be started, after everything it rests on was looked at again."""
        from grpo_tui.hardware.machine import format_gib
        from grpo_tui.run import folder, launch

        self.forget()
        config = launch.read_config(self.project)
        if isinstance(config, Problem):
            return config
        gpus = launch.choose_gpus(config, self.machine())
        if isinstance(gpus, Problem):
            return gpus
        facts = self.facts(draft)
        reviewed = draft.done["review"].rests_on if "review" in draft.done else {}
        changed = [
            f"The {FACT_NAMES[name]} changed since the review."
            for name, mark in reviewed.items()
            if name in facts and facts[name] != mark
        ]
        changed += [
            f"{name} is not as it was written: you edited it."
            for name in folder.FILES
            if name in draft.files and _hash(self.project / name) != draft.files[name]
        ]
        name = self._free_name()
        command = launch.command(self.project, (self.project / folder.RUNS_FOLDER / name).resolve(), config, gpus)
        busy = [f"{gpu.name}: {format_gib(gpu.free_bytes)} of {format_gib(gpu.total_bytes)} free" for gpu in gpus]
        steps = int(config.get("grpo", {}).get("max_steps", -1))
        present = [name for name in (*folder.FILES, *folder.OPTIONAL_FILES) if (self.project / name).is_file()]
        return Departure(
            run=name,
            command=command,
            devices="; ".join(busy) or "the CPU: no GPU is used",
            files=tuple(present),
            sha256=launch.approval_hash(self.project),
            steps=f"{steps:,}" if steps > 0 else f"{config.get('grpo', {}).get('num_train_epochs', 1):g} epoch(s)",
            changed=tuple(changed),
            warnings=tuple(launch.collisions(self.project, config)),
            stale="" if not draft.hardware.manual_bytes else "The plan is for another machine: copy the folder there.",
            runs=tuple((each.name, bool(each.life.alive), each.life.words) for each in folder.runs(self.project)),
        )

    def _free_name(self) -> str:
        """A name for a new run that no run has."""
        from grpo_tui.run import folder

        stem = folder.new_name(datetime.now().astimezone())
        names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        return next(name for name in names if not self.run_folder(name).exists())

    def approval(self, departure: Departure) -> Approval:
        """The yes for it."""
        return Approval(what="run", at=now(), sha256=departure.sha256, detail=str(departure.command))

    def start(self, draft: Draft, departure: Departure, approval: Approval) -> tuple[Draft, Started] | Problem:
        """Start the training that was approved; the draft that has the yes, and what was started."""
        from grpo_tui.run import launch

        config = launch.read_config(self.project)
        if isinstance(config, Problem):
            return config
        gpus = launch.choose_gpus(config, self.machine())
        if isinstance(gpus, Problem):
            return gpus
        started = launch.start(
            self.project,
            approved=approval,
            gpus=gpus,
            name=departure.run,
            notify=draft.settings.notify_command,
        )
        if isinstance(started, Problem):
            return started
        return replace(draft, approvals=(*draft.approvals, approval)), started

    def run_folder(self, name: str) -> Path:
        """The folder of a run of this project."""
        from grpo_tui.run.folder import RUNS_FOLDER

        return self.project / RUNS_FOLDER / name

    # Facts

    def facts(self, draft: Draft) -> dict[str, str]:
        """Fingerprints of what the answers rest on, as far as they can be taken."""
        taken = {
            "gpus": self._gpu_mark(draft),
            "model": self._model_mark(draft),
            "data": self._data_mark(draft),
            "rewards": self._rewards_mark(draft),
            "samples": digest(repr(draft.score.samples), repr(draft.score.row)),
            "versions": self._versions_mark(),
            "settings": digest(repr(draft.settings.prefer), repr(sorted(draft.settings.overrides.items()))),
        }
        return {name: mark for name, mark in taken.items() if mark}

    def _gpu_mark(self, draft: Draft) -> str:
        from grpo_tui.hardware.machine import fingerprint

        hardware = draft.hardware
        if hardware.manual_bytes:
            return digest(repr(hardware))
        return fingerprint(self.machine(), () if hardware.cpu else hardware.gpus)

    def _model_mark(self, draft: Draft) -> str:
        facts = self.model(draft) if draft.model.name else None
        return "" if facts is None or isinstance(facts, Problem) else digest(facts.fingerprint, draft.model.method)

    def _data_mark(self, draft: Draft) -> str:
        from grpo_tui.dataset.sources import fingerprint

        if not draft.dataset.source:
            return ""
        source = self.source(draft)
        if isinstance(source, Problem):
            return digest("missing", draft.dataset.source)
        try:
            return digest(fingerprint(source), repr(draft.dataset))
        except OSError:
            return digest("unreadable", draft.dataset.source)

    def _rewards_mark(self, draft: Draft) -> str:
        try:
            content = (self.project / draft.rewards.file).read_bytes()
        except OSError:
            return ""
        return digest(content, repr(draft.rewards.items))

    def _versions_mark(self) -> str:
        from grpo_tui.hardware.environment import versions_fingerprint

        return versions_fingerprint(self.environment())

    # The data

    def source(self, draft: Draft) -> Source | Problem:
        """The opened data set. Not kept: opening is quick, and a file may have changed."""
        from grpo_tui.dataset.sources import is_hub_id, open_source

        answer = draft.dataset
        if is_hub_id(answer.source) and not (self.project / answer.source).exists():
            key = digest("source", answer.source, answer.split, repr(sorted(answer.options.items())))
            return self.kept(key, lambda: open_source(answer.source, answer.options, answer.split))
        place = str(self.project / Path(answer.source).expanduser()) if answer.source else ""
        return open_source(place, answer.options, answer.split)

    def what_changed(self, names: Sequence[str]) -> str:
        """A sentence on the facts that changed since a step was done."""
        changed = " and ".join(FACT_NAMES[name] for name in names)
        return f"Changed since this step was done: {changed}. Look again; enter keeps the answer."

    def data_files(self, draft: Draft) -> list[str]:
        """Files of the project that may be data, and the present source."""
        from grpo_tui.dataset.sources import FORMATS

        try:
            names = sorted(
                path.name for path in self.project.iterdir() if path.suffix.lower() in FORMATS and path.is_file()
            )
        except OSError:
            names = []
        present = draft.dataset.source
        return names if not present or present in names else [present, *names]

    def with_source(self, draft: Draft, source: str) -> Draft:
        """The draft with another source: its columns are asked for anew, the system prompt stays."""
        return replace(draft, dataset=DatasetAnswer(source=source, system=draft.dataset.system))

    def mapped(self, draft: Draft) -> Draft | Problem:
        """The draft with the columns that names and rows suggest, where none is chosen yet."""
        from grpo_tui.dataset.mapping import propose
        from grpo_tui.dataset.rows import UnreadableError

        if draft.dataset.prompt:
            return draft
        source = self.source(draft)
        if isinstance(source, Problem):
            return source
        model = self.model(draft)
        plain = not isinstance(model, Problem) and not model.chat_template
        try:
            rows = source.head(SUGGEST_ROWS)
        except UnreadableError as error:
            return error.problem
        proposed = propose(source.columns, rows, draft.dataset).answer
        return replace(draft, dataset=replace(proposed, plain=plain))

    def extraction_rules(self) -> list[tuple[str, str, str]]:
        """Name, title and need of each way to take the answer out of its column."""
        from grpo_tui.dataset.mapping import RULES

        return [(name, rule.title, rule.needs) for name, rule in RULES.items()]

    def argument_hint(self, rule: str) -> str:
        """What a rule's argument is; empty: it takes none."""
        from grpo_tui.dataset.mapping import RULES

        return RULES[rule].needs

    def system_prompts(self, draft: Draft) -> list[tuple[str, str]]:
        """Name and text of the system prompts on offer."""
        recipe = self.recipe(draft)
        offered = [(system.name, system.text) for system in recipe.systems] if recipe else []
        if draft.dataset.system and draft.dataset.system not in (text for _, text in offered):
            offered.insert(0, ("yours", draft.dataset.system))
        return offered if any(not text for _, text in offered) else [*offered, ("none", "")]

    def data(self, draft: Draft, say: Say) -> Data | Problem:
        """The data set as it will be used: every row prepared once, prompts counted by the model's tokenizer."""
        source = self.source(draft)
        if isinstance(source, Problem):
            return source
        key = digest("data", self._data_mark(draft), self._model_mark(draft))
        return self.kept(key, lambda: self._measured(draft, source, say))

    def _measured(self, draft: Draft, source: Source, say: Say) -> Data | Problem:
        from grpo_tui.dataset import faults, lengths
        from grpo_tui.dataset.mapping import mapping_problems, propose
        from grpo_tui.dataset.prompts import prepare_code, prepare_function
        from grpo_tui.dataset.rows import UnreadableError
        from grpo_tui.dataset.sources import load_call

        answer = draft.dataset
        if problems := mapping_problems(answer, source.columns):
            return problems[0]
        measured: Lengths | Problem | None = None
        if draft.model.name:
            say("Counting tokens with the model's own tokenizer…")
            measured = lengths.measure(
                self.worker("tokenize"),
                lengths.model_place(draft.model.name, self.project),
                source,
                answer,
                revision=draft.model.revision,
                progress=lambda done, of: say(f"Counting tokens: {done:,} of {of:,} prompts…"),
            )
        if isinstance(measured, Problem):
            return measured
        by_row = measured.by_row if measured else {}
        say("Looking at every row…")
        try:
            scan = faults.scan(
                source.iterate(), answer, by_row, progress=lambda done: say(f"Looking at every row: {done:,}…")
            )
            proposed = propose(source.columns, source.head(SUGGEST_ROWS), answer)
            raw = list(enumerate(source.head(SHOWN_ROWS)))
        except UnreadableError as error:
            return error.problem
        if isinstance(scan, Problem):
            return scan
        prepare = prepare_function(answer)
        views = []
        for number, row in raw:
            made = prepare(row)
            over = bool(answer.max_prompt_tokens) and by_row.get(number, 0) > answer.max_prompt_tokens
            reasons = [fault.text for fault in scan.faults if number in fault.rows and fault.choice == "leave_out"]
            trouble = (reasons or ["This row is left out."])[0] if made is None or over else ""
            views.append(RowView(number=number, raw=row, prepared=made, tokens=by_row.get(number), trouble=trouble))
        over_long = next((fault.count for fault in scan.faults if fault.kind == "over_long"), 0)
        return Data(
            source=replace(source, rows=scan.rows, rows_exact=True),
            head=tuple(views),
            usable=scan.usable - over_long,
            faults=scan.faults,
            lengths=measured,
            code=prepare_code(answer),
            load_call=load_call(source, self.project),
            reasons={
                name: why
                for name, why in proposed.reasons.items()
                if getattr(proposed.answer, name) == getattr(answer, name)
            },
        )

    def as_seen(self, draft: Draft, raw: Mapping[str, Any]) -> Rendered | Problem:
        """A row's prompt with the chat template, exactly as the model sees it."""
        from grpo_tui.dataset import lengths

        place = lengths.model_place(draft.model.name, self.project)
        return lengths.render(self.worker("tokenize"), place, dict(raw), draft.dataset, revision=draft.model.revision)

    def prepared(self, draft: Draft) -> list[Mapping[str, Any]] | Problem:
        """The first rows as the training sees them; rows that are left out are not among them."""
        from grpo_tui.dataset.prompts import prepare_function
        from grpo_tui.dataset.rows import UnreadableError

        source = self.source(draft)
        if isinstance(source, Problem):
            return source
        try:
            made = map(prepare_function(draft.dataset), source.head(SUGGEST_ROWS))
            return [row for row in made if row is not None]
        except UnreadableError as error:
            return error.problem

    # Rewards

    def offers(self, draft: Draft) -> tuple[tuple[Offer, ...], bool] | Problem:
        """The functions to choose from, and whether they stand in the project's file already."""
        from grpo_tui.rewards.source import read_functions

        path = self.project / draft.rewards.file
        if path.exists():
            functions = read_functions(path)
            if isinstance(functions, Problem):
                return functions
            weights = {item.name: item.weight for item in draft.rewards.items}
            taken = bool(weights)
            return tuple(
                Offer(
                    name=each.name,
                    weight=weights.get(each.name, 1.0),
                    pays=each.doc.strip().partition("\n")[0],
                    code=each.code,
                    origin=f"{path.name}, lines {each.lines[0]}–{each.lines[1]}",
                    proposed=not taken and is_reward(each),
                    source=each,
                )
                for each in functions
                if each.name in weights or is_reward(each)
            ), True
        return self._proposed(draft)

    def _proposed(self, draft: Draft) -> tuple[tuple[Offer, ...], bool] | Problem:
        from grpo_tui.rewards.catalogue import TEMPLATES, proposals, render_rewards

        rows = self.prepared(draft)
        if isinstance(rows, Problem):
            return rows
        columns = list(rows[0]) if rows else []
        return tuple(
            Offer(
                name=each.name,
                weight=each.weight,
                pays=TEMPLATES[each.template].pays,
                why=each.why,
                warnings=each.warnings,
                code=render_rewards([each]),
                origin=TEMPLATES[each.template].title,
                source=each,
            )
            for each in proposals(draft.dataset, columns, rows)
        ), False

    def reward_problems(self, draft: Draft, offers: Sequence[Offer]) -> list[Problem]:
        """What would make the training's call of the taken functions fail, found without running them."""
        from grpo_tui.rewards.source import FunctionSource, check_signatures

        functions = [offer.source for offer in offers if isinstance(offer.source, FunctionSource)]
        if not functions:
            return []
        rows = self.prepared(draft)
        columns = list(rows[0]) if not isinstance(rows, Problem) and rows else []
        return check_signatures(functions, columns, [item.name for item in draft.rewards.items])

    def trial(self, draft: Draft) -> Trial | Problem:
        """The samples and the rows they are scored against."""
        from grpo_tui.dataset.prompts import prepare_function
        from grpo_tui.dataset.rows import UnreadableError

        source = self.source(draft)
        if isinstance(source, Problem):
            return source
        prepare, recipe = prepare_function(draft.dataset), self.recipe(draft)
        given = [
            Sample(text=each.text, row=each.row, expect=each.expect, note=each.note, origin="recipe")
            for each in (recipe.samples if recipe else ())
        ]
        chosen = draft.score.row
        rows: dict[int, Mapping[str, Any]] = {}
        for number in {chosen, *(sample.row for sample in given)}:
            try:
                row = source.row(number)
            except UnreadableError as error:
                return error.problem
            made = prepare(row) if row is not None else None
            if made is None:
                what = "There is no such row." if row is None else "This row is left out."
                return Problem(f"row {number + 1}", what, "Choose another row: press o.")
            rows[number] = made
        view = RowView(number=chosen, raw={}, prepared=rows[chosen])
        own = draft.score.samples or (() if given else first_samples(draft.dataset.system, view.answer))
        note = "" if draft.score.samples else "made from the row; change it"
        samples = (
            *given,
            *(Sample(text=text, row=chosen, origin="written by you", note=note, own=True) for text in own),
        )
        return Trial(samples=samples, row=chosen, prompt=view.prompt, answer=view.answer, rows=rows)

    def score_consent(self, draft: Draft) -> Approval | None:
        """The yes that is needed before the rewards run on these data; None: it was given, or all of it is ours."""
        recipe = self.recipe(draft)
        code = _hash(self.project / draft.rewards.file)
        ours = recipe is not None and recipe.ours and draft.dataset.source == recipe.dataset.source
        if ours and recipe is not None and code == _hash(recipe.rewards_file):
            return None
        mark = digest(code, self._data_mark(draft))
        if any(yes.what == "score" and yes.sha256 == mark for yes in draft.approvals):
            return None
        return Approval(what="score", at=now(), sha256=mark, detail=f"{draft.rewards.file} on {draft.dataset.source}")

    def score(self, draft: Draft, trial: Trial, say: Say) -> ScoreTable | Problem:
        """The rewards really run on the samples, in a worker without secrets."""
        from grpo_tui.rewards.bench import ScoreRequest, score, start_worker

        with self._guard:
            worker = self._workers.get("score") or start_worker(self.project)
            self._workers["score"] = worker
        rows = [trial.rows[sample.row] for sample in trial.samples]
        names = [name for name in rows[0] if name != "prompt"]
        model = self.model(draft)
        request = ScoreRequest(
            path=self.project / draft.rewards.file,
            names=tuple(item.name for item in draft.rewards.items),
            weights=tuple(item.weight for item in draft.rewards.items),
            completions=tuple(sample.text for sample in trial.samples),
            prompts=tuple(row["prompt"] for row in rows),
            columns={name: [row.get(name) for row in rows] for name in names},
            answer_column="answer" if draft.dataset.answer else "",
            tokenizer=str(model.folder) if not isinstance(model, Problem) and model.tokenizer else "",
        )
        return score(worker, request, say)

    def write_rewards(self, draft: Draft, offers: Sequence[Offer]) -> Draft | Problem:
        """Write the taken proposals into the project's file."""
        from grpo_tui.rewards.catalogue import render_rewards

        weights = {item.name: item.weight for item in draft.rewards.items}
        chosen = [replace(offer.source, weight=weights[offer.name]) for offer in offers if offer.name in weights]
        return self._write(draft, {draft.rewards.file: render_rewards(chosen)})

    def take_rewards_file(self, path: Path) -> Problem | None:
        """Copy a file of the user's to the project's rewards file; one that is there is kept beside it."""
        path = self.project / path
        target = self.project / RewardsAnswer().file
        try:
            if target.exists() and path.samefile(target):
                return None
            content = path.read_bytes()
            aside = self.set_rewards_aside() if target.exists() else None
            if aside is None:
                atomic.write(target, content)
        except OSError as error:
            return Problem(str(path), f"It cannot be read: {error.strerror or error}.", "Check its name.")
        return aside

    def set_rewards_aside(self) -> Problem | None:
        """Rename the project's rewards file to a name that is free."""
        target = self.project / RewardsAnswer().file
        names = (target.with_suffix(f".old{number}.py" if number else ".old.py") for number in range(1000))
        try:
            target.rename(next(name for name in names if not name.exists()))
        except OSError as error:
            return Problem(str(target), f"It cannot be renamed: {error.strerror or error}.", "Check the folder.")
        return None

    def _write(self, draft: Draft, rendered: Mapping[str, str], approved: Collection[str] = ()) -> Draft | Problem:
        from grpo_tui.plan import files

        found = files.changes(self.project, draft, rendered)
        return found if isinstance(found, Problem) else files.write(self.project, draft, found, approved)

    # Keeping

    def worker(self, name: str) -> Worker:
        """The worker of that name, started when it is first asked something."""
        from grpo_tui.child import Worker

        with self._guard:
            if name not in self._workers:
                self._workers[name] = Worker(name)
            return self._workers[name]

    def forget(self) -> None:
        """Look anew from here on."""
        with self._guard:
            self._kept.clear()
            self._machine = self._given_machine

    def cancel(self) -> None:
        """End what the workers do now."""
        for worker in list(self._workers.values()):
            worker.cancel()

    def close(self) -> None:
        """End the workers."""
        for worker in list(self._workers.values()):
            worker.close()

    # Recipes

    def recipes(self, chosen: str = "") -> tuple[Recipe, ...]:
        """The shipped recipes, and the chosen one where it is a folder of the user's."""
        from grpo_tui import recipe as recipes

        shipped = tuple(recipes.find())
        if not chosen or any(chosen == known.name for known in shipped):
            return shipped
        own = recipes.read(chosen)
        return shipped if isinstance(own, Problem) else (*shipped, own)

    def recipe(self, draft: Draft) -> Recipe | None:
        """The recipe of the draft; None without one, or when it cannot be read any more."""
        from grpo_tui import recipe as recipes

        if not draft.task.recipe:
            return None
        found = self.kept(f"recipe {draft.task.recipe}", lambda: recipes.read(draft.task.recipe))
        return None if isinstance(found, Problem) else found

    def draft_for(self, recipe: str) -> Draft | Problem:
        """The answers of a recipe."""
        from grpo_tui import recipe as recipes

        found = recipes.read(recipe)
        return found if isinstance(found, Problem) else recipes.draft_for(found)

    def fit(self, draft: Draft) -> str:
        """The method that the fit check recommends; empty: a question is open."""
        from grpo_tui.plan.fit import verdict

        return verdict(draft.task).method

    def begin(self, draft: Draft) -> Draft | Problem:
        """Put the recipe's data and rewards into the project, where there is a recipe; the draft that knows them."""
        from grpo_tui import recipe as recipes

        if not draft.task.recipe:
            return draft
        found = recipes.read(draft.task.recipe)
        if isinstance(found, Problem):
            return found
        allowed = next((yes.sha256 for yes in reversed(draft.approvals) if yes.what == "recipe"), "")
        names = recipes.materialise(found, self.project, approved_sha256=allowed, written=draft.files)
        if isinstance(names, Problem):
            return names
        hashes = {name: hashlib.sha256((self.project / name).read_bytes()).hexdigest() for name in names}
        return replace(draft, files={**draft.files, **hashes})
