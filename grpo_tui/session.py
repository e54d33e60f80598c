"""One sitting at one project: the facts behind the answers, found when asked and kept while they hold."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_tui.draft import FACT_NAMES, DatasetAnswer, Draft, HardwareAnswer, PilotAnswer
from grpo_tui.inert import one_line
from grpo_tui.marks import digest, file_bytes, marked
from grpo_tui.problem import Problem
from grpo_tui.regular import expanded
from grpo_tui.secret import is_secret

if TYPE_CHECKING:
    from grpo_tui.child import Worker
    from grpo_tui.dataset.lengths import Rendered
    from grpo_tui.dataset.sources import Source
    from grpo_tui.hardware.environment import Check, Environment
    from grpo_tui.hardware.machine import Machine
    from grpo_tui.plan import tuning
    from grpo_tui.plan.alternatives import Alternative
    from grpo_tui.plan.dialect import Schema
    from grpo_tui.plan.model import ModelFacts
    from grpo_tui.plan.overhead import Overhead
    from grpo_tui.plan.plan import Plan
    from grpo_tui.plan.sizes import Turning
    from grpo_tui.recipe import Recipe
    from grpo_tui.survey import Data, RowView

Found = TypeVar("Found")

Say = Callable[[str], None]
"""Takes a sentence about how far something is."""


def quiet(text: str) -> None:
    """Nobody wants to know how far it is."""


def now() -> str:
    """The time as the state file writes it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


LOOK, TRY = "look", "try"
"""What works in threads: the look at what answers rest on, and the completions of a model, which outlives a look."""

GPU_WORKERS = frozenset({"devices"})
"""Workers that see the GPUs; the others shall take no memory of them."""

WEIGHT_BYTES = 2
"""Bytes a parameter has in the files of nearly every model on the hub (bfloat16 or float16)."""


@dataclass(frozen=True, kw_only=True)
class HubOffer:
    """What the hub has of a model, and where it would go."""

    files_bytes: int = 0
    """Of configuration and tokenizer."""

    weight_bytes: int = 0
    gated: bool = False
    place: Path
    free_bytes: int | None
    """Free room there; None: not known."""


NO_SECRETS = "Secrets are never kept in a project: log in with `hf auth login` or `wandb login` instead."


ELSEWHERE = frozenset({"bitsandbytes", "vllm", "deepspeed"})
"""Packages taken as installed where the card is: what is installed here says nothing of another machine."""


def _assumed(draft: Draft) -> frozenset[str]:
    """Packages that are taken as installed for a plan of these answers."""
    return ELSEWHERE if draft.hardware.manual_bytes else frozenset()


class Session:
    """Looks things up for a draft. Every method may block: screens call them in threads.

    What was found is kept under the digest of what it rests on; `forget` throws it away.
    """

    def __init__(self, project: Path, *, machine: Machine | None = None) -> None:
        """`machine`: the hardware, where it shall not be looked at."""
        self.project = project.resolve()  # workers have another working directory
        self._given_machine = machine
        self._machine = machine
        self.workers: dict[str, Worker] = {}
        self._kept: dict[str, Any] = {}
        self.guard = threading.Lock()
        self._stops = Counter((LOOK, TRY))

    def kept(self, key: str, find: Callable[[], Found]) -> Found:
        """What `find` yields, found once a key; problems are found anew each time."""
        with self.guard:
            if key in self._kept:
                return self._kept[key]  # type: ignore[no-any-return]  # kept under a key of its own kind
            kept = self._kept
        found = find()
        if not isinstance(found, Problem):
            with self.guard:
                kept[key] = found  # into the collection of then: what was found before `forget` is forgotten with it
        return found

    # The machine

    def machine(self) -> Machine:
        """The hardware as it was when first looked at, or since `forget`.

        With what only torch can tell, where that is worth asking for.
        """
        if self._machine is None:
            from grpo_tui.hardware.nvml import read_machine
            from grpo_tui.hardware.torch_devices import ask_torch, worth_asking

            machine = read_machine()
            if worth_asking(machine, self.environment().torch_backend):
                asked = ask_torch(machine, self.worker("devices"))
                if isinstance(asked, Problem):
                    asked = replace(machine, notes=(*machine.notes, str(asked)))
                machine = asked
            self._machine = machine
        return self._machine

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

    def hub_offer(self, draft: Draft) -> HubOffer | Problem:
        """What fetching the model's small files would take, asked of the hub; nothing is fetched."""
        found = self.worker("model").call("look", {"name": draft.model.name, "revision": draft.model.revision})
        if isinstance(found, Problem):
            return found
        return HubOffer(
            files_bytes=int(found["files_bytes"]),
            weight_bytes=int(found["weight_bytes"]),
            gated=bool(found["gated"]),
            place=self.model_cache(),
            free_bytes=self._cache_room(),
        )

    def _cache_room(self) -> int | None:
        return next((room.free_bytes for room in self.environment().rooms if room.what == "model cache"), None)

    def weights_to_fetch(self, draft: Draft) -> HubOffer | None:
        """The weights that a run would fetch first; None: they are here, or the model cannot be read."""
        model = self.model(draft)
        if isinstance(model, Problem) or model.weight_bytes or not self.is_on_hub(draft):
            return None
        size = model.shape.parameters * WEIGHT_BYTES
        return HubOffer(weight_bytes=size, place=self.model_cache(), free_bytes=self._cache_room())

    def log_in(self, token: str) -> Problem | None:
        """Hand a token to Hugging Face's own store."""
        found = self.worker("model").call("log_in", {"token": token})
        return found if isinstance(found, Problem) else None

    def log_in_tracker(self, tracker: str, key: str) -> Problem | None:
        """Hand a key to a tracker's own store."""
        found = self.worker("tracker").call("log_in", {"tracker": tracker, "key": key})
        with self.guard:
            self._kept.pop("environment", None)  # it says which keys there are
        return found if isinstance(found, Problem) else None

    # The plan

    def schema(self, say: Say) -> Schema | Problem:
        """What the installed libraries accept."""
        from grpo_tui.plan.dialect import load_schema

        say("Reading what the installed TRL accepts; the first time takes some seconds…")
        return self.kept("schema", lambda: load_schema(self.worker("introspect")))

    def key_fault(self, key: str) -> str:
        """What is wrong with a key that was typed, as far as is known without asking a worker; empty: nothing."""
        from grpo_tui.plan.dialect import unknown_key

        if is_secret(key.rpartition(".")[2]):
            return NO_SECRETS
        with self.guard:
            schema = self._kept.get("schema")
        name = key.removeprefix("grpo.")
        if schema is None or not name or "." in name:
            return ""
        problem = unknown_key(name, schema)
        return f"{problem.what} {problem.remedy}" if problem else ""

    def planning_facts(self, draft: Draft, say: Say) -> tuning.Facts | Problem:
        """Everything the tuning wants to know. Before the data are chosen their lengths are unknown."""
        model = self.model(draft)
        if isinstance(model, Problem):
            return model
        data = self.data(draft, say) if draft.dataset.source and draft.dataset.prompt else None
        if isinstance(data, Problem):
            return data
        facts = self.facts_for(model, draft, say)
        if isinstance(facts, Problem) or data is None:
            return facts
        return replace(facts, rows=data.usable, longest_prompt=data.longest, data={"format": data.source.format})

    def facts_for(self, model: ModelFacts, draft: Draft, say: Say) -> tuning.Facts | Problem:
        """What the tuning wants to know of machine, libraries and recipe; nothing of the data."""
        from grpo_tui.plan import tuning
        from grpo_tui.plan.overhead import PUBLISHED_OVERHEAD
        from grpo_tui.recipe import draft_for

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
                unified=gpu.unified,
            )
            for gpu in chosen
        )
        by_hand = draft.hardware.manual_bytes or draft.hardware.cpu
        beside, broken = (PUBLISHED_OVERHEAD, None) if by_hand else self.overhead(card.name for card in cards)
        recipe = self.recipe(draft)
        advice = {
            key: tuning.Advice(value=each.value, why=each.why) for key, each in (recipe.grpo if recipe else {}).items()
        }
        return tuning.Facts(
            model=model,
            schema=schema,
            cards=cards,
            ram_bytes=machine.memory_available_bytes or 0,
            processors=os.cpu_count() or 1,
            packages=frozenset(name.replace("-", "_") for name in self.environment().versions) | _assumed(draft),
            recipe=advice,
            recipe_draft=draft_for(recipe) if recipe else None,
            overhead=beside,
            notes=(f"{broken.where}: {broken.what} {broken.remedy}",) if broken else (),
        )

    def overhead(self, names: Iterable[str]) -> tuple[Overhead, Problem | None]:
        """What GPUs of these names hold beside tensors, and why what was learnt of it cannot be used."""
        from grpo_tui.plan import overhead

        kept = overhead.read()
        broken = kept if isinstance(kept, Problem) else None
        torch = self.environment().versions.get("torch", "")
        return overhead.of_cards(() if isinstance(kept, Problem) else kept, names, torch), broken

    def method_plans(self, draft: Draft, say: Say) -> dict[str, Plan | list[Problem]] | Problem:
        """A plan for each method, whichever is chosen. Data that cannot be read are another step's trouble."""
        from grpo_tui.plan.tuning import tune

        if draft.dataset.source and isinstance(self.data(draft, say), Problem):
            draft = replace(draft, dataset=DatasetAnswer())
        facts = self.planning_facts(draft, say)
        if isinstance(facts, Problem):
            return facts
        return {
            method: tune(replace(draft, model=replace(draft.model, method=method)), facts)
            for method in ("full", "lora", "qlora")
        }

    def checked_plan(self, draft: Draft, say: Say) -> Plan | list[Problem]:
        """The tuned plan, its settings constructed as the installed `GRPOConfig` for the planned machine."""
        from grpo_tui.plan.tuning import tune

        facts = self.planning_facts(draft, say)
        if isinstance(facts, Problem):
            return [facts]
        plan = tune(draft, facts)
        if isinstance(plan, list):
            return plan
        say("Checking every value with the installed GRPOConfig…")
        return self.plan_problems(plan, draft, facts) or plan

    def plan_problems(self, plan: Plan, draft: Draft, facts: tuning.Facts) -> list[Problem]:
        """What is wrong with a plan for `draft`, the installed `GRPOConfig` constructed; none: it stands."""
        from grpo_tui.plan.checks import check, packages
        from grpo_tui.plan.footing import planned_footing

        footing = planned_footing(plan, facts)
        return self.kept(
            digest("check", plan.sha256, repr(facts.rows), repr(footing)),
            lambda: check(
                plan,
                self.worker("introspect"),
                rows=facts.rows,
                experts=facts.model.shape.experts,
                installed=packages() | _assumed(draft),
                footing=footing,
            ),
        )

    def plans(self, draft: Draft, say: Say) -> Sequence[Alternative] | Problem:
        """What the draft gives now, if that can be, and the other plans that fit and stand every check."""
        from grpo_tui.plan.alternatives import alternatives, asked_for

        facts = self.planning_facts(draft, say)
        if isinstance(facts, Problem):
            return facts
        say("Working out other plans…")

        def stands(plan: Plan, facts: tuning.Facts) -> bool:
            return not self.plan_problems(plan, draft, facts)

        now = asked_for(draft, facts)
        return (*((now,) if now else ()), *alternatives(draft, facts, stands))

    def turning(self, draft: Draft, say: Say) -> Turning | list[Problem]:
        """The sizes of the draft's batch, to be turned."""
        from grpo_tui.plan.sizes import turning

        facts = self.planning_facts(draft, say)
        return [facts] if isinstance(facts, Problem) else turning(draft, facts)

    # Facts

    def facts(self, draft: Draft, names: Iterable[str] = FACT_NAMES) -> dict[str, str]:
        """Fingerprints of what the answers rest on, as far as they can be taken."""
        marks: Mapping[str, Callable[[Draft], str]] = {
            "gpus": self._gpu_mark,
            "model": self._model_mark,
            "data": self.data_mark,
            "rewards": self._rewards_mark,
            "samples": lambda draft: digest(marked(replace(draft.score, skipped=False, pilot=PilotAnswer()))),
            "versions": lambda draft: self._versions_mark(),
            "settings": lambda draft: digest(
                repr(draft.settings.prefer), repr(sorted(draft.settings.overrides.items()))
            ),
        }
        return {name: mark for name in names if (mark := marks[name](draft))}

    def mark(self, draft: Draft, names: Sequence[str]) -> str:
        """One mark of the facts of these names."""
        facts = self.facts(draft, names)
        return digest(*(f"{name}={facts.get(name, '')}" for name in names))

    def _gpu_mark(self, draft: Draft) -> str:
        from grpo_tui.hardware.machine import fingerprint

        hardware = draft.hardware
        if hardware.manual_bytes:
            return digest(marked(hardware))
        return fingerprint(self.machine(), () if hardware.cpu else hardware.gpus)

    def _model_mark(self, draft: Draft) -> str:
        facts = self.model(draft) if draft.model.name else None
        return "" if facts is None or isinstance(facts, Problem) else digest(facts.fingerprint, draft.model.method)

    def data_mark(self, draft: Draft) -> str:
        from grpo_tui.dataset.sources import fingerprint

        if not draft.dataset.source:
            return ""
        source = self.source(draft)
        if isinstance(source, Problem):
            return digest("missing", draft.dataset.source)
        try:
            return digest(fingerprint(source), marked(draft.dataset))
        except OSError:
            return digest("unreadable", draft.dataset.source)

    def _rewards_mark(self, draft: Draft) -> str:
        content = file_bytes(self.project / draft.rewards.file)
        return digest("missing" if content is None else content, marked(draft.rewards))

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
        place = str(self.project / expanded(answer.source)) if answer.source else ""
        return open_source(place, answer.options, answer.split)

    def mapped_source(self, draft: Draft) -> Source | Problem:
        """The opened data set, where the chosen columns and the rule fit it."""
        from grpo_tui.dataset.mapping import mapping_problems

        source = self.source(draft)
        if isinstance(source, Problem):
            return source
        return next(iter(mapping_problems(draft.dataset, source.columns)), source)

    def what_changed(self, names: Sequence[str]) -> str:
        """A sentence on the facts that changed since a step was done."""
        changed = " and ".join(FACT_NAMES[name] for name in names)
        return f"Changed since this step was done: {changed}. Look again; enter keeps the answer."

    def data_files(self, draft: Draft) -> list[str]:
        """Files of the project that may be data, and the present source."""
        from grpo_tui.dataset.sources import is_data_file

        try:
            names = sorted(path.name for path in self.project.iterdir() if is_data_file(path) and path.is_file())
        except OSError:
            names = []
        present = draft.dataset.source
        return names if not present or present in names else [present, *names]

    def with_source(self, draft: Draft, source: str) -> Draft:
        """The draft with another source: its columns are asked for anew; what is said of prompts stays."""
        kept = ("system", "examples", "max_prompt_tokens", "eval_share", "seed")
        answers = {name: getattr(draft.dataset, name) for name in kept}
        return replace(draft, dataset=DatasetAnswer(source=source, **answers))

    def mapped(self, draft: Draft) -> Draft | Problem:
        """The draft with the columns that names and rows suggest, where none is chosen yet."""
        from grpo_tui.dataset.mapping import propose
        from grpo_tui.dataset.rows import UnreadableError
        from grpo_tui.survey import SUGGEST_ROWS

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
        offered = [(system.name, system.text) for system in recipe.systems] if recipe else [_tags(draft)]
        if draft.dataset.system and draft.dataset.system not in (text for _, text in offered):
            offered.insert(0, ("yours", draft.dataset.system))
        return offered if any(not text for _, text in offered) else [*offered, ("none", "")]

    def data(self, draft: Draft, say: Say) -> Data | Problem:
        """The data set as it will be used, looked at row by row once."""
        from grpo_tui.survey import survey

        source = self.source(draft)
        if isinstance(source, Problem):
            return source
        key = digest("data", self.data_mark(draft), self._model_mark(draft))
        return self.kept(key, lambda: survey(self.project, self.worker, draft, source, say, self.watch()))

    def glance(self, draft: Draft) -> Data | Problem:
        """The first rows of the data set, before anything is counted."""
        from grpo_tui.survey import glance

        source = self.source(draft)
        return source if isinstance(source, Problem) else glance(self.project, draft, source)

    def as_seen(self, draft: Draft, raw: Mapping[str, Any]) -> Rendered | Problem:
        """A row's prompt with the chat template, exactly as the model sees it."""
        from grpo_tui.dataset import lengths

        place = lengths.model_place(draft.model.name, self.project)
        return lengths.render(self.worker("tokenize"), place, dict(raw), draft.dataset, revision=draft.model.revision)

    def row(self, draft: Draft, number: int) -> RowView | Problem:
        """Row `number` of the source, from 0."""
        from grpo_tui.dataset.prompts import prepare_function
        from grpo_tui.dataset.rows import UnreadableError
        from grpo_tui.survey import RowView

        source = self.mapped_source(draft)
        if isinstance(source, Problem):
            return source
        try:
            raw = source.row(number)
        except UnreadableError as error:
            return error.problem
        if raw is None:
            return Problem(f"row {number + 1}", "There is no such row.", "Choose a lower number.")
        made = prepare_function(draft.dataset)(raw)
        return RowView(number=number, raw=raw, prepared=made, trouble="" if made else "This row is left out.")

    def prepared(self, draft: Draft) -> list[Mapping[str, Any]] | Problem:
        """The first rows as the training sees them; rows that are left out are not among them."""
        from grpo_tui.dataset.prompts import prepare_function
        from grpo_tui.dataset.rows import UnreadableError
        from grpo_tui.survey import SUGGEST_ROWS

        source = self.mapped_source(draft)
        if isinstance(source, Problem):
            return source
        try:
            made = map(prepare_function(draft.dataset), source.head(SUGGEST_ROWS))
            return [row for row in made if row is not None]
        except UnreadableError as error:
            return error.problem

    def write(self, draft: Draft, rendered: Mapping[str, str], approved: Collection[str] = ()) -> Draft | Problem:
        from grpo_tui.plan import files

        found = files.changes(self.project, draft, rendered)
        return found if isinstance(found, Problem) else files.write(self.project, draft, found, approved)

    # Keeping

    def extra_worker(self, name: str, start: Callable[[], Worker]) -> Worker:
        """The worker of that name, made by `start` when it is first wanted; it ends with the session."""
        with self.guard:
            if name not in self.workers:
                self.workers[name] = start()
            return self.workers[name]

    def end_worker(self, name: str) -> None:
        """End the worker of that name; the next who wants it gets a fresh one."""
        with self.guard:
            worker = self.workers.pop(name, None)
        if worker is not None:
            worker.close()

    def visible_environment(self, draft: Draft) -> dict[str, str]:
        """This process's environment, with the chosen GPUs the only ones in sight."""
        from grpo_tui.hardware.machine import visible_environment

        chosen = [gpu for gpu in self.machine().gpus if gpu.uuid in draft.hardware.gpus]
        return {**os.environ, **visible_environment(chosen)}

    def worker(self, name: str) -> Worker:
        """The worker of that name, started when it is first asked something."""
        from grpo_tui.child import Worker

        return self.extra_worker(name, lambda: Worker(name, gpu=name in GPU_WORKERS))

    def forget(self) -> None:
        """Look anew from here on."""
        with self.guard:
            self._kept = {}
            self._machine = self._given_machine

    def watch(self, what: str = LOOK) -> Callable[[], bool]:
        """A question for whoever works in a thread at `what`, to be asked now and then: is it wanted no longer?"""
        begun = self._stops[what]
        return lambda: self._stops[what] != begun

    def stop(self, *what: str) -> None:
        """Let what works in threads at `what` end at its next question; the workers go on."""
        for each in what:
            self._stops[each] += 1

    def cancel(self) -> None:
        """End what is under way."""
        self.stop(LOOK, TRY)
        for worker in list(self.workers.values()):
            worker.cancel()

    def close(self) -> None:
        """End the workers, and what is read in threads."""
        self.stop(LOOK, TRY)
        for worker in list(self.workers.values()):
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


def _tags(draft: Draft) -> tuple[str, str]:
    """Name and text of a system prompt that asks for the tags which the proposed rewards pay for."""
    what = "the letter of the right option" if draft.dataset.extract == "letter" else "the final answer"
    text = f"Think inside <reasoning></reasoning>, then give {what}, and only that, inside <answer></answer>."
    return "reason, then answer in tags", text
