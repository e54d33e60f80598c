"""What is offered: prompts and functions that go together."""

from pathlib import Path

from grpo_tui.draft import DatasetAnswer, Draft, RewardItem, RewardsAnswer
from grpo_tui.offers import Offer, unasked
from grpo_tui.rewards.catalogue import NOT_ASKED, proposals
from grpo_tui.session import Session

OFFERS = tuple(
    Offer(name=name, weight=1, pays="", code="", origin="", proposed=True, warnings=warnings)
    for name, warnings in (("correct", ()), ("format", (NOT_ASKED,)))
)


def taken(**weights: float) -> Draft:
    items = tuple(RewardItem(name=name, weight=weight) for name, weight in weights.items())
    return Draft(rewards=RewardsAnswer(items=items))


def test_tags_that_are_paid_for_and_not_asked_for_are_named_and_others_are_not() -> None:
    assert unasked(taken(correct=1, format=0.25), OFFERS) == f"format: {NOT_ASKED}"
    assert unasked(taken(correct=1, format=0), OFFERS) == ""
    assert unasked(taken(correct=1), OFFERS) == ""


def test_the_prompt_on_offer_asks_for_the_tags_that_are_proposed(tmp_path: Path) -> None:
    session = Session(tmp_path)
    texts = {}
    for rule in ("letter", "as_is"):
        draft = Draft(dataset=DatasetAnswer(extract=rule))
        texts[rule] = next(text for _, text in session.system_prompts(draft) if text)
    assert "the letter of the right option" in texts["letter"]
    assert "letter" not in texts["as_is"]
    rows = [{"prompt": "Which?", "answer": letter} for letter in "AB"]
    for system, asked in [*((text, True) for text in texts.values()), ("", False)]:
        made = proposals(DatasetAnswer(system=system), ("prompt", "answer"), rows)
        assert any(NOT_ASKED in proposal.warnings for proposal in made) is not asked
