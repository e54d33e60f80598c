"""The kinds of reward functions: what each pays for, and what is known to go wrong with it.

Their code stands in `grpo_tui.rewards.templates`, one file each.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grpo_tui.rewards.source import PASSED

FOLDER = Path(__file__).parent / "templates"


@dataclass(frozen=True, kw_only=True)
class Template:
    """One kind of reward function."""

    key: str
    """Its file in `templates`, and the name of the function there."""

    title: str
    pays: str
    """What it pays for, as a sentence."""

    aspect: str = "correct"
    """`correct`, `format` or `style`."""

    lowest: float = 0.0
    highest: float = 1.0
    """Every reward lies between these two."""

    needs: str = ""
    """Package that must be installed besides TRL, as pip knows it."""

    cautions: tuple[str, ...] = ()
    """What is known to go wrong with it."""

    @cached_property
    def code(self) -> str:
        """The file, as it stands."""
        return (FOLDER / f"{self.key}.py").read_text(encoding="utf-8")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data that the function takes, under the names it gives them."""
        functions = {each.name: each for each in self.tree.body if isinstance(each, ast.FunctionDef)}
        return tuple(each.arg for each in functions[self.key].args.args if each.arg not in PASSED)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """What can be given: columns by the name they have in the data, and constants by name to their default."""
        constants = {name: ast.literal_eval(each.value) for name, each in self.constants.items()}
        return MappingProxyType({**{name: name for name in self.columns}, **constants})

    @cached_property
    def notes(self) -> Mapping[str, str]:
        """Parameter to the comment that stands behind it, where one does."""
        lines = self.code.splitlines()
        found = {name: lines[(each.end_lineno or 1) - 1].partition("  # ")[2] for name, each in self.constants.items()}
        return MappingProxyType({name: note for name, note in found.items() if note})

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.code)

    @cached_property
    def constants(self) -> Mapping[str, ast.Assign]:
        """Parameter to the line that sets it: capitals after the template's own name, and a literal value."""
        found = {}
        for each in self.tree.body:
            name = ast.unparse(each.targets[0]) if isinstance(each, ast.Assign) else ""
            if name.startswith(f"{self.key.upper()}_") and isinstance(each, ast.Assign) and _is_literal(each.value):
                found[name.removeprefix(f"{self.key.upper()}_").lower()] = each
        return found


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


NO_FREE_TEXT = r"It reads \boxed{…} and $…$ only: ask for one of them in the system prompt, or free text earns nothing."
FORMAT_WARNING = (
    "Never alone: trained on the format only, a model learned the format and lost its answers "
    "(right answers fell from 0.228 to 0.025 in a published trial)."
)
PARTS_CAN_BE_GAMED = (
    "Parts of the format are paid, so a model may stop at them: change to the strict form once it is seen."
)
TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        each.key: each
        for each in (
            Template(
                key="exact",
                title="Exact answer",
                pays="The final answer equals the right one, whatever its case, spaces and final punctuation.",
                cautions=("Another wording of the same answer earns nothing: keep right answers short, and ask so.",),
            ),
            Template(
                key="numeric",
                title="Right number",
                pays="The one number in the final answer is the right one, in any usual spelling.",
                cautions=("Units are not compared: 5 m and 5 km are both 5.",),
            ),
            Template(
                key="mathematics",
                title="Right formula",
                pays=r"The final answer, best in \boxed{…}, equals the right one by the rules of algebra.",
                needs="math-verify",
                cautions=("An unfinished answer such as 12·7 equals its value and is paid.",),
            ),
            Template(
                key="choice",
                title="Right letter",
                pays="The final answer is the right letter of a multiple-choice question, and only that.",
                cautions=("Guessing earns a share: with four options a quarter of the answers are right by chance.",),
            ),
            Template(
                key="same_json",
                title="Same JSON",
                pays="The final answer is JSON with the content of the right one.",
            ),
            Template(
                key="code_tests",
                title="Code that passes tests",
                pays="The last code block passes all tests of its row, which it never gets to see.",
                cautions=(
                    "It stops a model that cheats, not an attacker: run code you do not trust in a container.",
                    "The network is shut only where the kernel lets a process without rights do so.",
                    "A few tests can be met by code made for them alone: give many, and keep them out of the prompt.",
                ),
            ),
            Template(
                key="citation",
                title="True quotations",
                pays="Quotations stand word by word in the source of their row.",
                cautions=("It does not see whether the quotation supports the answer.",),
            ),
            Template(
                key="judge",
                title="A judge's grade",
                pays="Another model, asked over an OpenAI-compatible endpoint, grades the answer.",
                cautions=(
                    "Judges are fooled by tone and layout: compare its grades with your own on twenty answers first.",
                    "Tried here it has no key, since rewards are tried without secrets; the training has it.",
                    "Every step waits for its slowest reply.",
                ),
            ),
            Template(
                key="trl_accuracy",
                title="TRL's accuracy_reward",
                pays="TRL's own verifier finds the right answer.",
                needs="math-verify",
                cautions=(
                    NO_FREE_TEXT,
                    "Right answers that are words or letters cannot be read: their rows are passed over (None).",
                    "A box within unfinished thinking is paid.",
                ),
            ),
            Template(
                key="trl_reasoning_accuracy",
                title="TRL's reasoning_accuracy_reward",
                pays="TRL's own verifier finds the right answer after </think>.",
                needs="math-verify",
                cautions=(
                    NO_FREE_TEXT,
                    "Right answers that are words or letters cannot be read: their rows are passed over (None).",
                    "Without </think> nothing is paid.",
                ),
            ),
            Template(
                key="trl_cosine",
                title="TRL's cosine reward",
                pays="Right answers, the shorter the better; wrong ones cost, the short ones most.",
                needs="math-verify",
                lowest=-1.0,
                cautions=(NO_FREE_TEXT, "Correctness is in it: another reward for it would count it twice."),
            ),
            Template(
                key="tags",
                title="Tags, strict",
                pays="The completion consists of the given tags, each once, in order and filled.",
                aspect="format",
                cautions=(FORMAT_WARNING,),
            ),
            Template(
                key="tags_gradual",
                title="Tags, step by step",
                pays="Each tag in its place, one after another, and nothing around them.",
                aspect="format",
                lowest=-0.25,
                cautions=(FORMAT_WARNING, PARTS_CAN_BE_GAMED),
            ),
            Template(
                key="json_object",
                title="JSON object",
                pays="The completion is one JSON object with the wanted keys, and nothing else.",
                aspect="format",
                cautions=(FORMAT_WARNING,),
            ),
            Template(
                key="json_schema",
                title="JSON schema",
                pays="The completion is JSON that a schema accepts, and nothing else.",
                aspect="format",
                needs="jsonschema",
                cautions=(FORMAT_WARNING, "Paid gradually, a model may stop at an object with a part of its keys."),
            ),
            Template(
                key="pattern",
                title="Regular expression",
                pays="A regular expression matches the whole completion.",
                aspect="format",
                cautions=(FORMAT_WARNING, "Some expressions take for ever on text that nearly matches."),
            ),
            Template(
                key="tag_count",
                title="Tags, counted",
                pays="Each tag stands there once, wherever.",
                aspect="format",
                cautions=(
                    FORMAT_WARNING,
                    "Neither order nor content is looked at: weigh it 0.125 at most.",
                ),
            ),
            Template(
                key="trl_think_format",
                title="TRL's think_format_reward",
                pays="The completion starts with <think>…</think>.",
                aspect="format",
                cautions=(
                    FORMAT_WARNING,
                    "Empty thinking and no answer are paid in full.",
                    "Always 0 where the chat template writes <think> into the prompt.",
                ),
            ),
            Template(
                key="length",
                title="Length band",
                pays="The completion has a length within a band of tokens.",
                aspect="style",
                cautions=("Set the band to lengths that good answers really have; a tight one costs correctness.",),
            ),
            Template(
                key="overlong",
                title="Overlong penalty",
                pays="Nothing, and costs where a completion comes near the largest length.",
                aspect="style",
                lowest=-1.0,
                highest=0.0,
                cautions=("With a largest length above the training's own it never bites.",),
            ),
            Template(
                key="repetition",
                title="Repetition penalty",
                pays="Nothing, and costs where phrases are said again and again.",
                aspect="style",
                lowest=-1.0,
                highest=0.0,
            ),
            Template(
                key="trl_repetition",
                title="TRL's repetition penalty",
                pays="Nothing, and costs where runs of tokens are repeated.",
                aspect="style",
                lowest=-1.0,
                highest=0.0,
                cautions=("TRL has it since 1.7.", "Figures repeat tokens by nature: sums are punished a little."),
            ),
            Template(
                key="trl_overlong",
                title="TRL's overlong punishment",
                pays="Nothing, and costs where a completion comes near the largest length.",
                aspect="style",
                lowest=-1.0,
                highest=0.0,
                cautions=("With a largest length above the training's own it never bites.",),
            ),
            Template(
                key="language",
                title="Language",
                pays="The text is in one language, by its script and its most frequent words.",
                aspect="style",
                cautions=("Names, quotations and lists are judged like the rest.",),
            ),
            Template(
                key="keywords",
                title="Words said",
                pays="Certain words are said, in a text that is no list of them.",
                aspect="style",
                cautions=("Words are easily said without meaning them: keep its weight small.",),
            ),
            Template(
                key="style",
                title="Unwanted phrases",
                pays="Nothing, and costs for phrases that should not be said.",
                aspect="style",
                lowest=-1.0,
                highest=0.0,
            ),
        )
    }
)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One reward function for the task, with the reason for it."""

    template: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Only what differs from the template's defaults."""

    weight: float
    why: str
    warnings: tuple[str, ...] = ()
