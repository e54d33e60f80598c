"""The templates of each recipe's rewards: `python tests/recipes/reward_files.py` writes them anew."""

from grpo_tui import recipe
from grpo_tui.problem import Problem
from grpo_tui.rewards.catalogue import TEMPLATES, Proposal, render_rewards
from grpo_tui.rewards.formats import from_example, from_text

ORDER = '{"name": "Ana Berg", "item": "green tea", "quantity": 3, "city": "Oslo"}'
ONE_BLOCK = r"[^`]{0,4000}```(?:python|py)?\n[^`]{1,8000}\n```\s*"


def _template(template: str, name: str, weight: float = 1.0, **parameters: object) -> Proposal:
    assert set(parameters) <= set(TEMPLATES[template].parameters)
    return Proposal(template=template, name=name, parameters=parameters, weight=weight, why="")


def _format(words: str, weight: float, name: str = "format", gradual: bool = False) -> Proposal:
    spec = from_text(words)
    assert not isinstance(spec, Problem), spec
    return _template("tags_gradual" if gradual else spec.template, name, weight, **spec.parameters)


def _json_like(example: str, weight: float) -> Proposal:
    spec = from_example(example)
    assert not isinstance(spec, Problem), spec
    return _template(spec.template, "format", weight, **spec.parameters)


REWARDS: dict[str, tuple[Proposal, ...]] = {
    "grade_school_maths": (_template("numeric", "correct"), _format("reasoning, answer", 0.25)),
    "competition_maths": (
        _template("mathematics", "correct"),
        _template("overlong", "overlong", 0.125, largest=2048, fade=512),
    ),
    "multiple_choice": (_template("choice", "correct"), _format("reasoning, answer", 0.125)),
    "json_extraction": (_template("same_json", "correct"), _json_like(ORDER, 0.25)),
    "code_with_tests": (
        _template("code_tests", "correct"),
        _template("pattern", "one_block", 0.125, expression=ONE_BLOCK),
    ),
    "format_only": (_format("reasoning, answer", 1.0), _template("numeric", "correct", 0.0)),
    "reasoning_tags": (
        _template("exact", "correct"),
        _format("reasoning, answer", 0.25),
        _format("reasoning, answer", 0.125, "format_steps", gradual=True),
        _template("style", "style", 0.125),
    ),
    "own_data": (
        _template("exact", "correct"),
        _format("reasoning, answer", 0.25),
        _template("length", "brevity", 0.125, high=200, fade=200),
    ),
}
"""Recipe to its functions, in order, with their weights. `word_problems` is written by hand."""


def main() -> None:
    for name, choices in REWARDS.items():
        (recipe.shipped() / name / "rewards.py").write_text(render_rewards(choices), encoding="utf-8")


if __name__ == "__main__":
    main()
