"""Completions for the bench from a file, from a run, or from a model's last try."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui import gathered as places
from grpo_tui import pilot, tryout
from grpo_tui.dataset.prompts import prepare_code
from grpo_tui.draft import (
    DatasetAnswer,
    Draft,
    LeftOut,
    ModelAnswer,
    RewardItem,
    RewardsAnswer,
    ScoreAnswer,
    ServerAnswer,
    finish,
    stale,
)
from grpo_tui.gathered import Gathered, gathered
from grpo_tui.hardware.machine import Machine
from grpo_tui.problem import Problem
from grpo_tui.rewards.groups import read
from grpo_tui.session import Session
from tests.kept_workers import keep_workers
from tests.plan.tiny import write_tiny_model
from tests.rewards.played_server import Played, playing

RUNS = Path(__file__).parent / "runs"
ROWS = 40


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    keep_workers(monkeypatch)
    opened = Session(tmp_path, machine=Machine(host="box"))
    yield opened
    opened.close()


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    """A project whose reward pays every second answer of its even rows."""
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rewards.py").write_text(
        "def correct(completions, answer, **kwargs):\n"
        '    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]\n'
        "    return [float(text == right) for text, right in zip(texts, answer)]\n"
    )
    return Draft(
        dataset=DatasetAnswer(source="rows.jsonl", prompt="question", answer="answer", plain=True),
        rewards=RewardsAnswer(items=(RewardItem(name="correct"),)),
    )


def put(project: Path, lines: list[Any], name: str = "samples.jsonl") -> str:
    (project / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def on_bench(draft: Draft, place: str, **score: Any) -> Draft:
    return replace(draft, score=ScoreAnswer(completions=place, **score))


def found(session: Session, draft: Draft) -> Gathered:
    made = gathered(session, draft)
    assert isinstance(made, Gathered), str(made)
    return made


def test_completions_alone_answer_the_chosen_row(session: Session, draft: Draft, tmp_path: Path) -> None:
    place = put(tmp_path, ["8", "nine", {"completion": "ten"}])
    groups = found(session, on_bench(draft, place, row=7)).groups
    assert {(row["prompt"], row["answer"]) for row in groups.rows} == {("7 + 1?", "8")}
    assert (groups.size, groups.numbers) == (3, (7,))


def test_completions_with_prompts_get_the_columns_of_the_rows_that_ask_the_same(
    session: Session, draft: Draft, tmp_path: Path
) -> None:
    place = put(tmp_path, [{"prompt": f"{n} + 1?", "completion": t} for n in (30, 2) for t in ("31", "x")])
    groups = found(session, on_bench(draft, place)).groups
    assert [row["answer"] for row in groups.rows] == ["31", "31", "3", "3"]
    assert (groups.size, groups.numbers) == (2, (30, 2))


def test_completions_with_columns_need_no_data(session: Session, draft: Draft, tmp_path: Path) -> None:
    place = put(tmp_path, [{"prompt": "elsewhere?", "answer": "1", "completion": t} for t in ("1", "2")])
    groups = found(session, on_bench(draft, place)).groups
    assert (groups.rows[0]["answer"], groups.numbers) == ("1", ())


def test_prompts_that_the_data_do_not_have_are_said(session: Session, draft: Draft, tmp_path: Path) -> None:
    place = put(tmp_path, [{"prompt": "unheard of?", "completion": t} for t in ("1", "2")])
    problem = gathered(session, on_bench(draft, place))
    assert isinstance(problem, Problem)
    assert "2 of 2 completions are not among the rows" in problem.what


@pytest.mark.parametrize("place", ["nowhere.jsonl", "runs", "/dev/null", "rows.jsonl"])
def test_a_place_without_completions_is_said(session: Session, draft: Draft, tmp_path: Path, place: str) -> None:
    (tmp_path / "runs").mkdir()
    assert isinstance(tryout.trial(session, on_bench(draft, place)), Problem)


def test_the_bench_takes_whole_groups_up_to_its_limit(
    session: Session, draft: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MOST", 7)
    place = put(tmp_path, [{"prompt": f"{n} + 1?", "completion": str(t)} for n in range(5) for t in range(3)])
    groups = found(session, on_bench(draft, place)).groups
    assert (len(groups.rows), groups.numbers) == (6, (0, 1))
    assert groups.origin == "samples.jsonl, the first 6 of 15"


def test_of_one_large_group_the_bench_takes_a_part(
    session: Session, draft: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MOST", 7)
    groups = found(session, on_bench(draft, put(tmp_path, [str(n) for n in range(15)]))).groups
    assert (len(groups.rows), groups.size, groups.numbers) == (7, 7, (0,))


@pytest.mark.parametrize("prompt", [5, None, [], ["a", 5], {"a": 1}])
def test_a_prompt_that_is_neither_text_nor_messages_is_said(
    session: Session, draft: Draft, tmp_path: Path, prompt: Any
) -> None:
    place = put(tmp_path, [{"prompt": prompt, "answer": "1", "completion": "1"}] * 2)
    problem = tryout.trial(session, on_bench(draft, place))
    assert isinstance(problem, Problem)
    assert problem.where.endswith("samples.jsonl:1")


def test_half_a_character_does_not_make_a_function_fail(session: Session, draft: Draft, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "tiny")
    place = put(tmp_path, [{"prompt": "1 + 1?", "answer": "2", "completion": text} for text in ("2", "\ud800")])
    on = replace(on_bench(draft, place), model=ModelAnswer(name="tiny"))
    trial = tryout.trial(session, on)
    assert isinstance(trial, tryout.Trial)
    table = tryout.score(session, on, trial, print)
    assert not isinstance(table, Problem)
    assert [row[0] for row in table.rewards] == [1.0, 0.0]


@pytest.mark.parametrize(("rule", "argument"), [("nonsense", ""), ("regex", "((")])
def test_a_rule_that_cannot_be_followed_is_said_wherever_rows_are_asked(
    session: Session, draft: Draft, tmp_path: Path, rule: str, argument: str
) -> None:
    on = replace(draft, dataset=replace(draft.dataset, extract=rule, extract_argument=argument))
    with_prompts = on_bench(on, put(tmp_path, [{"prompt": "1 + 1?", "completion": "2"}]))
    for made in (session.row(on, 0), session.prepared(on), tryout.trial(session, on), gathered(session, with_prompts)):
        assert isinstance(made, Problem)
        assert made.where == "answer extraction"


def test_a_row_that_asks_something_else_by_now_is_not_left_out(session: Session, draft: Draft, tmp_path: Path) -> None:
    with playing() as server:
        made = tried(session, draft, tmp_path, server)
    trial, reading = read_bench(session, made)
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"question": "new?", "answer": "1"}) + "\n" + (tmp_path / "rows.jsonl").read_text()
    )
    session.forget()
    gone = pilot.leave_out(session, made, trial, dict.fromkeys(reading.settled["always right"], "always right"))
    assert isinstance(gone, Problem)
    assert "changed since" in gone.what


@pytest.mark.parametrize("number", [10**30, 0, -1, "1"])
def test_a_row_number_that_no_data_have_is_no_number(
    session: Session, draft: Draft, tmp_path: Path, number: Any
) -> None:
    line = {"prompt": "1 + 1?", "answer": "2", "completion": "2", "data_row": number}
    assert found(session, on_bench(draft, put(tmp_path, [line] * 2))).groups.numbers == ()


def test_a_runs_completions_are_scored_by_new_code_and_held_against_what_it_paid(
    session: Session, draft: Draft, tmp_path: Path
) -> None:
    shutil.copytree(RUNS / "h01_base" / "completions", tmp_path / "runs" / "first" / "completions")
    shutil.copy(RUNS / "h01_base" / "events.jsonl", tmp_path / "runs" / "first" / "events.jsonl")
    from grpo_tui.progress.kept import kept

    stored = kept(tmp_path / "runs" / "first")
    assert not isinstance(stored, Problem)
    rows = []
    for prompt in dict.fromkeys(stored.prompts):
        system, _, user = prompt.partition("\nuser: ")
        messages = [
            {"role": "system", "content": system.removeprefix("system: ")}, {"role": "user", "content": user}
        ]  # fmt: skip
        rows.append({"question": messages, "answer": "no such answer"})
    put(tmp_path, rows, "rows.jsonl")
    asked = on_bench(replace(draft, dataset=replace(draft.dataset, plain=False)), "runs/first")
    trial = tryout.trial(session, asked)
    assert isinstance(trial, tryout.Trial), str(trial)
    assert trial.paid is not None
    assert trial.groups.origin == f"step {stored.step} of first"
    scaling = tryout.scaling(session, asked)
    table = tryout.score(session, asked, trial, print)
    assert not isinstance(table, Problem), str(table)
    assert {value for row in table.rewards for value in row} == {0.0}, "nothing is right now"
    before = tryout.first_paid(session, trial, table, scaling)
    assert before.rewards == stored.rewards
    change = tryout.compared(before, table, scaling)
    assert not isinstance(change, Problem)
    assert change.after.flat_share == 1.0 > change.before.flat_share


def test_other_weights_do_not_run_the_functions_again(session: Session, draft: Draft, tmp_path: Path) -> None:
    code = (tmp_path / "rewards.py").read_text()
    (tmp_path / "rewards.py").write_text(
        'def correct(completions, **kwargs):\n    open("calls", "a").write("x")\n'
        "    return [float(len(str(c))) for c in completions]\n" + code.replace("correct", "other")
    )
    items = (RewardItem(name="correct"), RewardItem(name="other"))
    both = replace(on_bench(draft, put(tmp_path, ["1", "22", "333"])), rewards=RewardsAnswer(items=items))
    trial = tryout.trial(session, both)
    assert isinstance(trial, tryout.Trial)
    first = tryout.score(session, both, trial, print)
    calls = (tmp_path / "calls").read_text()
    other = replace(both, rewards=RewardsAnswer(items=(replace(items[0], weight=-1.0), items[1])))
    second = tryout.score(session, other, trial, print)
    assert not isinstance(first, Problem)
    assert not isinstance(second, Problem)
    assert (tmp_path / "calls").read_text() == calls
    assert first.advantages[0] < 0 < second.advantages[0]
    change = tryout.compared(
        tryout.first_paid(session, trial, first, ("group", "sum_then_normalize")),
        second,
        ("group", "sum_then_normalize"),
    )
    assert not isinstance(change, Problem)
    assert change.moved == (0, 2)


# A model's last try


def tried(session: Session, draft: Draft, project: Path, server: Played) -> Draft:
    """The draft after a server completed all prompts: the right answer to rows below 4, else nothing."""
    write_tiny_model(project / "tiny")
    server.answer = lambda path, body: (
        200,
        {"choices": [{"text": answer_to(body["prompt"], at), "finish_reason": "stop"} for at in range(body["n"])]},
    )
    asked = replace(draft, model=ModelAnswer(name="tiny"))
    made = pilot.sample(session, asked, print, prompts=ROWS, server=ServerAnswer(url=server.url, model="big"))
    assert isinstance(made, Draft), str(made)
    return made


def answer_to(prompt: str, at: int) -> str:
    """Always right below 4, never from 20 on, sometimes between."""
    number = int(prompt.split()[0])
    return str(number + 1) if number < 4 or (number < 20 and at % 2) else "no idea"


def read_bench(session: Session, draft: Draft) -> tuple[tryout.Trial, pilot.Reading]:
    trial = tryout.trial(session, draft)
    assert isinstance(trial, tryout.Trial), str(trial)
    table = tryout.score(session, draft, trial, print)
    assert not isinstance(table, Problem), str(table)
    reading = pilot.reading(session, draft, trial, table, print)
    assert reading is not None
    return trial, reading


def test_a_try_at_a_server_stands_on_the_bench_until_model_or_data_change(
    session: Session, draft: Draft, tmp_path: Path
) -> None:
    with playing() as server:
        made = tried(session, draft, tmp_path, server)
    assert made.score.completions == pilot.PILOT_FILE
    assert pilot.is_of_pilot(session, made)
    groups = read(tmp_path / pilot.PILOT_FILE)
    assert not isinstance(groups, Problem)
    assert sorted(groups.numbers) == list(range(ROWS))
    trial, reading = read_bench(session, made)
    right, wrong = (
        sorted(trial.groups.numbers[group] for group in reading.settled[why])
        for why in ("always right", "always wrong")
    )
    assert (right, wrong) == ([0, 1, 2, 3], list(range(20, ROWS)))
    kept = pilot.answer_of(session, made, reading.signal)
    assert (kept.prompts, kept.verdict) == (ROWS, reading.signal.verdict)
    put(tmp_path, [{"question": "5 + 1?", "answer": "6"}], "rows.jsonl")
    session.forget()
    assert not pilot.is_of_pilot(session, made)


def test_prompts_that_teach_nothing_are_left_out_of_training_and_can_come_back(
    session: Session, draft: Draft, tmp_path: Path
) -> None:
    with playing() as server:
        made = tried(session, draft, tmp_path, server)
    for step in ("dataset", "rewards", "settings", "review"):
        made = finish(made, step, "now", session.facts(made))
    trial, reading = read_bench(session, made)
    settled = {group: why for why, groups in reading.settled.items() for group in groups}
    less = pilot.leave_out(session, made, trial, settled)
    assert isinstance(less, Draft)
    assert [each.row for each in less.dataset.left_out] == [0, 1, 2, 3, *range(20, ROWS)]
    code = prepare_code(less.dataset)
    assert "# row 1: always right" in code
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    raw = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    trained_on = list(namespace["prepare_rows"](raw))
    assert [row["answer"] for row in trained_on] == [str(n + 1) for n in range(4, 20)]
    data = session.data(replace(less, model=ModelAnswer()), print)
    assert not isinstance(data, Problem)
    assert data.usable == 16
    fault = next(each for each in data.faults if each.kind == "left_out")
    assert (fault.count, fault.choice, fault.choices) == (24, "leave_out", ("leave_out", "keep"))
    # What was done stays done, the yes and the sampled groups hold; all were sampled, so the rest alone is judged.
    assert set(stale(less, session.facts(less))) == {"settings", "review"}, "train.py must be written anew"
    assert pilot.is_of_pilot(session, less)
    _, rest = read_bench(session, less)
    assert len(rest.signal.prompts) == 16
    assert rest.settled == {}
    assert {trial.groups.numbers[group] for group in rest.groups} == set(range(4, 20))
    back = pilot.take_back(session, less)
    assert back.dataset == made.dataset


def test_after_a_sample_of_the_prompts_the_rest_of_the_data_is_judged_as_before(
    session: Session, draft: Draft, tmp_path: Path
) -> None:
    with playing() as server:
        write_tiny_model(tmp_path / "tiny")
        made = tried(session, draft, tmp_path, server)
        whole = pilot.sample(session, made, print, prompts=16, server=made.score.server)
    assert isinstance(whole, Draft), str(whole)
    trial, before = read_bench(session, whole)
    less = pilot.leave_out(session, whole, trial, dict.fromkeys(before.settled["always wrong"], "always wrong"))
    assert isinstance(less, Draft)
    _, after = read_bench(session, less)
    assert after.signal.zero_signal == before.signal.zero_signal


def test_a_prompt_left_out_by_hand_can_be_kept_after_all(draft: Draft) -> None:
    gone = replace(draft.dataset, left_out=(LeftOut(row=1, mark="0" * 16, why='"""\nimport os  # sly'),))
    code = prepare_code(gone)
    assert "LEFT_OUT" in code
    assert "\nimport os" not in code
    assert "LEFT_OUT" not in prepare_code(replace(gone, faults={"left_out": "keep"}))


def test_what_goes_to_a_server_needs_a_yes_of_its_own(session: Session, draft: Draft, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "tiny")
    asked = replace(draft, model=ModelAnswer(name="tiny"))
    here = pilot.sample_consent(session, asked)
    assert here is not None
    allowed = replace(asked, approvals=(here,))
    assert pilot.sample_consent(session, allowed) is None
    server = ServerAnswer(url="http://localhost:1/v1", model="m")
    there = pilot.sample_consent(session, allowed, server)
    assert there is not None
    assert "sent to http://localhost:1/v1" in there.detail


def test_how_many_prompts_a_try_may_take(session: Session, draft: Draft, tmp_path: Path) -> None:
    counts = pilot.prompt_counts(session, draft, print)
    assert not isinstance(counts, Problem)
    assert [count for count, _ in counts] == [32, 40]
    put(tmp_path, [{"question": f"{n}?", "answer": "1"} for n in range(3000)], "rows.jsonl")
    counts = pilot.prompt_counts(session, draft, print)
    assert not isinstance(counts, Problem)
    assert [count for count, _ in counts] == [32, 128]
