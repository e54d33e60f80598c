"""Answers and facts to plan from, in one line each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_tui.draft import DatasetAnswer, Draft, ModelAnswer, RewardItem, RewardsAnswer, SettingsAnswer
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.memory import GIB
from grpo_tui.plan.model import ModelFacts, read_model
from grpo_tui.plan.plan import Plan
from grpo_tui.plan.shape import ModelShape
from grpo_tui.plan.situation import Card, Facts
from grpo_tui.plan.tuning import tune
from tests.plan.shapes import shape_of

PREPARE_ROWS = '''

def prepare_rows(rows, held_out=False):
    """The rows that training takes, prepared; with `held_out` those that are kept apart from it."""
    if held_out:
        return  # nothing is kept apart
    for row in rows:
        yield prepare(row)
'''
PREPARE = (
    '''def prepare(row):
    """One row as the model sees it."""
    prompt = [{"role": "user", "content": row["question"]}]
    return {"prompt": prompt, "answer": row["answer"], "level": row.get("level", 0)}
'''
    + PREPARE_ROWS
)
LOAD = "load_dataset('json', data_files='data.jsonl', split='train')"


def draft(**overrides: Any) -> Draft:
    """Answers to everything; `overrides` are settings by dotted key with `__` for the dot."""
    return Draft(
        model=ModelAnswer(name="team/model"),
        dataset=DatasetAnswer(source="data.jsonl", prompt="question", answer="answer", system="Be brief."),
        rewards=RewardsAnswer(items=(RewardItem(name="correct"), RewardItem(name="brevity", weight=0.25))),
        settings=SettingsAnswer(overrides={key.replace("__", "."): value for key, value in overrides.items()}),
    )


def preferring(answers: Draft, prefer: str) -> Draft:
    """`answers` with `memory` or `speed` preferred."""
    return replace(answers, settings=replace(answers.settings, prefer=prefer))


def facts(model: str | ModelShape, schema: Schema, gib: float = 0, *, gpus: int = 1, **known: Any) -> Facts:
    """Facts about a model on `gpus` cards of `gib` GiB; 0: on the CPU with 16 GiB."""
    shape = shape_of(model) if isinstance(model, str) else model
    capability = known.pop("capability", (8, 0))
    card = Card(name="card", uuid="GPU-1", total_bytes=int(gib * GIB), free_bytes=int(gib * GIB), capability=capability)
    return Facts(
        model=ModelFacts(
            name="team/model",
            folder=Path("/nowhere"),
            commit="abc",
            shape=shape,
            weight_bytes=0,
            chat_template=True,
            tokenizer=True,
            end_tokens=("<|im_end|>",),
        ),
        schema=schema,
        cards=(card,) * gpus if gib else (),
        ram_bytes=16 * GIB,
        **{"rows": 1000, "longest_prompt": 200, **known},
    )


def planned(answers: Draft, known: Facts) -> Plan:
    """The plan, which there must be."""
    plan = tune(answers, known)
    assert isinstance(plan, Plan), plan
    return plan


def tiny_plan(model: Path, schema: Schema, answers: Draft, rows: int) -> tuple[Plan, Draft]:
    """A plan for a model folder on the CPU."""
    found = read_model(str(model))
    assert isinstance(found, ModelFacts), found
    answers = replace(answers, model=replace(answers.model, name=str(model)))
    known = Facts(model=found, schema=schema, ram_bytes=8 * GIB, rows=rows, longest_prompt=60)
    return planned(answers, known), answers
