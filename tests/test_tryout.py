"""Trying the rewards of a project: what needs a yes, and what is found before a function runs."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui import offers, pilot, preflight, recipe, tryout
from grpo_tui.draft import DatasetAnswer, Draft, ModelAnswer, RewardItem, RewardsAnswer
from grpo_tui.hardware.machine import Machine
from grpo_tui.marks import file_hash
from grpo_tui.plan.plan import Plan
from grpo_tui.problem import Problem
from grpo_tui.session import Session
from tests.kept_workers import keep_workers

REWARD = "def pays(completions, answer, **kwargs):\n    return [1.0 for _ in completions]\n"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    keep_workers(monkeypatch)
    opened = Session(tmp_path, machine=Machine(host="box"))
    yield opened
    opened.close()


def shipped(session: Session) -> Draft:
    """The shipped recipe, its data and rewards in the project."""
    found = recipe.read("word_problems")
    assert isinstance(found, recipe.Recipe)
    begun = session.begin(recipe.draft_for(found))
    assert isinstance(begun, Draft)
    return begun


def own(project: Path, code: str = REWARD) -> Draft:
    """A user's data and rewards."""
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(8)]
    (project / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (project / "rewards.py").write_text(code)
    return Draft(
        dataset=DatasetAnswer(source="rows.jsonl", prompt="question", answer="answer"),
        rewards=RewardsAnswer(items=(RewardItem(name="pays", weight=1.0),)),
    )


def said_yes(session: Session, draft: Draft) -> Draft:
    consent = tryout.score_consent(session, draft)
    assert consent is not None
    return replace(draft, approvals=(*draft.approvals, consent))


def test_our_recipe_on_its_own_data_runs_without_a_question(session: Session) -> None:
    assert tryout.score_consent(session, shipped(session)) is None


def test_our_recipe_edited_or_on_other_data_needs_a_yes(session: Session, tmp_path: Path) -> None:
    draft = shipped(session)
    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    elsewhere = replace(draft, dataset=replace(draft.dataset, source="rows.jsonl"))
    assert tryout.score_consent(session, elsewhere) is not None
    rewards = tmp_path / draft.rewards.file
    rewards.write_text(rewards.read_text() + "\n# mine\n")
    assert tryout.score_consent(session, draft) is not None


def test_a_yes_holds_until_the_code_the_data_or_its_reading_changes(session: Session, tmp_path: Path) -> None:
    draft = said_yes(session, own(tmp_path))
    assert tryout.score_consent(session, draft) is None
    plain = replace(draft, dataset=replace(draft.dataset, plain=True))
    assert tryout.score_consent(session, plain) is not None
    (tmp_path / "rows.jsonl").write_text('{"question": "2 + 2?", "answer": "4"}\n')
    assert tryout.score_consent(session, draft) is not None
    draft = said_yes(session, draft)
    (tmp_path / "rewards.py").write_text(REWARD + "\n")
    assert tryout.score_consent(session, draft) is not None


def test_a_yes_to_something_else_is_no_yes_to_scoring(session: Session, tmp_path: Path) -> None:
    draft = said_yes(session, own(tmp_path))
    (yes,) = draft.approvals
    assert tryout.score_consent(session, replace(draft, approvals=(replace(yes, what="run"),))) is not None


def test_a_function_that_asks_for_a_column_that_is_not_there_is_named_unrun(session: Session, tmp_path: Path) -> None:
    draft = own(tmp_path, "def pays(completions, solution):\n    raise SystemExit('it was run')\n")
    offered = offers.offered(session, draft)
    assert isinstance(offered, offers.Offered)
    problems = " ".join(str(problem) for problem in offers.reward_problems(draft, offered))
    assert "solution" in problems


def test_a_format_that_begins_with_a_tag_the_template_writes_already_is_named(session: Session, tmp_path: Path) -> None:
    """RW-05."""
    model = tmp_path / "thinker"
    found = recipe.read("word_problems")
    assert isinstance(found, recipe.Recipe)
    shutil.copytree(recipe.draft_for(found).model.name, model)
    template = (
        "{% for m in messages %}{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"
    )
    (model / "chat_template.jinja").write_text(template)
    code = (
        "import re\n\ndef pays(completions, **kwargs):\n"
        "    return [float(bool(re.match(r'^<think>.*</think>', c[0]['content']))) for c in completions]\n"
    )
    draft = replace(own(tmp_path, code), model=ModelAnswer(name="thinker"))
    offered = offers.offered(session, draft)
    assert isinstance(offered, offers.Offered)
    assert offered.opening.endswith("<think>\n")
    (problem,) = offers.reward_problems(draft, offered)
    assert "already ends the prompt with <think>" in problem.what
    elsewhere = replace(offered, opening="Q: ")
    assert offers.reward_problems(draft, elsewhere) == []


def test_too_few_rows_for_one_generation_batch_is_said_with_the_settings(session: Session, tmp_path: Path) -> None:
    found = recipe.read("word_problems")
    assert isinstance(found, recipe.Recipe)
    wishes = {"grpo.per_device_train_batch_size": 64, "grpo.num_generations": 4}
    draft = replace(
        own(tmp_path),
        model=recipe.draft_for(found).model,
        hardware=replace(Draft().hardware, cpu=True),
        settings=replace(Draft().settings, overrides=wishes),
    )
    problems = session.checked_plan(draft, lambda text: None)
    assert isinstance(problems, list)
    assert all(isinstance(problem, Problem) for problem in problems)
    assert any("row" in problem.what for problem in problems), [str(problem) for problem in problems]


def test_what_the_plan_is_said_to_need_is_kept_with_the_files(session: Session) -> None:
    card = replace(Draft().hardware, manual_name="card", manual_bytes=24 * 2**30, manual_count=1)
    draft = replace(shipped(session), hardware=card)
    found = preflight.outlook(session, draft, lambda text: None)
    assert isinstance(found, preflight.Outlook), found
    written = preflight.write_files(session, found.draft, found)
    assert isinstance(written, Draft)
    predicted = written.review.predicted
    assert found.plan.memory is not None
    assert 0 < predicted["train"] <= predicted["peak"] <= found.plan.memory.interval[1]


def test_a_tracker_without_its_key_is_named_before_the_run_ends_on_it(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    plan = session.checked_plan(replace(shipped(session), hardware=replace(Draft().hardware, cpu=True)), lambda t: None)
    assert isinstance(plan, Plan)
    told = tuple(replace(s, value="wandb") if s.key == "grpo.report_to" else s for s in plan.settings)
    draft = shipped(session)
    data = session.data(draft, lambda text: None)
    assert not isinstance(data, Problem)

    def failing() -> list[str]:
        listed = preflight._check_list(session, draft, replace(plan, settings=told), data, ())
        return [words for level, words in listed if level == "fail"]

    assert any("wandb login" in words for words in failing())
    assert preflight.keyless(session, replace(plan, settings=told)) == ["wandb"]
    session.forget()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert failing() == []


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_rewards_that_are_no_file_are_not_waited_for(session: Session, tmp_path: Path, kind: str) -> None:
    draft = shipped(session)
    path = tmp_path / "rewards.py"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    assert session.facts(draft)["rewards"]
    assert file_hash(path) == ""
    trial = tryout.trial(session, draft)
    assert isinstance(trial, tryout.Trial)
    assert isinstance(tryout.score(session, draft, trial, print), Problem)
    attacked = pilot.probe(session, draft, print)
    assert isinstance(attacked, Problem)
    assert "it is a pipe or a device" in attacked.what


def test_a_function_that_stands_there_twice_is_named(session: Session) -> None:
    draft = shipped(session)
    items = draft.rewards.items
    twice = replace(draft, rewards=replace(draft.rewards, items=(*items, items[0])))
    trial = tryout.trial(session, twice)
    assert isinstance(trial, tryout.Trial)
    found = tryout.score(session, twice, trial, print)
    assert not isinstance(found, Problem)
    assert any("more than once" in str(problem) for problem in found.composition)


def test_a_place_below_the_home_of_nobody_is_not_there(session: Session) -> None:
    draft = shipped(session)
    lost = replace(draft, dataset=replace(draft.dataset, source="~nobody-knows/rows.jsonl"))
    assert isinstance(session.source(lost), Problem)
    assert session.facts(lost)["data"]
    nowhere = replace(draft, score=replace(draft.score, completions="~nobody-knows/run"))
    assert isinstance(tryout.trial(session, nowhere), Problem)


def test_a_row_beyond_all_numbers_is_not_there(session: Session) -> None:
    draft = shipped(session)
    assert isinstance(session.row(draft, 10**40), Problem)
