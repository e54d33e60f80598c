"""config.toml says why, reads back as written, and what the user changed in it or in train.py stays theirs."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_tui.draft import Draft, RewardItem
from grpo_tui.plan import files
from grpo_tui.plan.dialect import Schema
from grpo_tui.plan.plan import Plan
from grpo_tui.problem import Problem
from grpo_tui.state import render
from tests.plan.plans import draft, facts, planned


@pytest.fixture(scope="module")
def plan(schema: Schema) -> Plan:
    return planned(draft(grpo__temperature=0.9), facts("Qwen2.5-7B", schema, 80))


def test_the_file_reads_back_as_the_plan(plan: Plan) -> None:
    text = files.render_config(plan)
    assert tomllib.loads(text) == plan.as_config()
    assert files.read_config(text) == plan.as_config()
    assert files.edited_settings(plan, tomllib.loads(text)) == {}
    assert files.edited_rewards(plan, tomllib.loads(text)) is None


def test_every_value_stands_below_a_comment_with_its_reason_and_source(plan: Plan) -> None:
    lines = files.render_config(plan).splitlines()
    assert max(map(len, lines)) <= 100
    for setting in plan.settings:
        name = setting.key.partition(".")[2]
        number = next(i for i, line in enumerate(lines) if line.startswith(f"{name} = "))
        assert lines[number - 1].startswith("#"), name
        assert lines[number - 1].endswith("]"), name


@pytest.mark.parametrize(
    "value",
    [
        "",
        'a "quoted" word',
        "back\\slash and \ttab",
        "two\nlines",
        '"""three""" quotes\nand an end in"',
        '""""',
        "\n",
        "\r\nwindows\r\n",
        "\x00\x1b[31m\x7f\x85",
        "ünï 日本 🎉",
        "#no comment",
        "'''",
        "ends in backslash\\",
        "line\\\nline",
        "   spaces \n  kept  ",
        1,
        -5,
        True,
        False,
        1e-5,
        1e22,
        0.1 + 0.2,
        5.0,
        float("inf"),
        [],
        [1, 2, 3],
        ["a", 'b"c', "d\ne"],
        [["nested"], ["list"]],
        [f"a module with a long name {n}" for n in range(9)],
        {},
        {"enable_thinking": False, "odd key.": 'x"y\nz', "n": 1.5},
        {"a": {"b": [1]}},
        [{"a": 1}, {"b": "c\nd"}],
    ],
)
def test_any_value_comes_back_as_it_went_in(plan: Plan, value: Any) -> None:
    from grpo_tui.plan.plan import Setting

    odd = replace(plan, settings=(*plan.settings, Setting("grpo.odd", value, "What.", "Why.", "set by you")))
    read = files.read_config(files.render_config(odd))
    assert isinstance(read, dict), read
    assert read["grpo"]["odd"] == value
    assert type(read["grpo"]["odd"]) is type(value)
    assert files.edited_settings(odd, read) == {}


def test_a_comment_cannot_break_out_of_its_line(plan: Plan) -> None:
    from grpo_tui.plan.plan import Setting

    evil = Setting("grpo.odd", 1, "What\n[grpo]\nbeta = 9.", "Why\r\x85beta = 9.", "set by you")
    odd = replace(plan, settings=(*plan.settings, evil), notes=("a note\nbeta = 9",))
    assert tomllib.loads(files.render_config(odd)) == odd.as_config()


def test_what_was_changed_by_hand_comes_back_as_answers(plan: Plan) -> None:
    text = files.render_config(plan)
    text = text.replace("learning_rate = 1e-5", "learning_rate = 3e-5").replace("[lora]", "[lora]\nuse_rslora = true")
    text = text.replace('prompt = "question"', 'prompt = "task"').replace("weight = 0.25", "weight = 0.5")
    config = files.read_config(text)
    assert isinstance(config, dict)
    assert files.edited_settings(plan, config) == {
        "grpo.learning_rate": 3e-5,
        "lora.use_rslora": True,
        "data.prompt": "task",
    }
    adopted = files.adopt(draft(), plan, config)
    assert adopted.settings.overrides == {"grpo.learning_rate": 3e-5, "lora.use_rslora": True}
    assert adopted.dataset.prompt == "task"
    assert adopted.rewards.items == (RewardItem(name="correct"), RewardItem(name="brevity", weight=0.5))


def test_the_configuration_says_where_the_rewards_are(schema: Schema) -> None:
    known = facts("Qwen2.5-7B", schema, 80)
    assert planned(draft(), known).value("launch.rewards_file") is None
    fancy = replace(draft(), rewards=replace(draft().rewards, file="my/fancy.py"))
    text = files.render_config(planned(fancy, known))
    config = tomllib.loads(text)
    assert config["launch"]["rewards_file"] == "my/fancy.py"
    assert files.with_config(draft(), config).rewards == fancy.rewards
    assert files.adopt(draft(), planned(draft(), known), config).rewards == fancy.rewards
    edited = tomllib.loads(text.replace("my/fancy.py", "my/other.py"))
    assert files.adopt(fancy, planned(fancy, known), edited).rewards.file == "my/other.py"
    assert files.adopt(fancy, planned(fancy, known), edited).settings.overrides == {}
    wrong = files.read_config("[launch]\nrewards_file = 3")
    assert isinstance(wrong, Problem)


def test_a_key_that_was_deleted_by_hand_stays_with_the_library(schema: Schema) -> None:
    known = facts("Qwen2.5-7B", schema, 80)
    before = planned(draft(), known)
    lines = files.render_config(before).splitlines()
    gone = ("learning_rate", "max_grad_norm", "report_to", "bf16", "r", "target_modules", "loss_type")
    text = "\n".join(line for line in lines if line.partition(" = ")[0] not in gone)
    text = text.replace("[grpo]", '[grpo]\nloss_type = "bnpo"')  # this one was given another value
    adopted = files.adopt(draft(), before, tomllib.loads(text))
    assert adopted.settings.overrides == {
        "lora.r": "library default",
        "lora.target_modules": "library default",
        "grpo.learning_rate": "library default",
        "grpo.max_grad_norm": "library default",
        "grpo.bf16": "library default",
        "grpo.report_to": "library default",
        "grpo.loss_type": "bnpo",
    }
    kept = tomllib.loads(render(adopted))["settings"]["overrides"]
    assert kept == adopted.settings.overrides
    after = planned(adopted, known)
    rate = after.setting("grpo.learning_rate")
    assert rate is not None
    assert (rate.value, rate.source) == (schema.fields["learning_rate"].default, "set by you")
    assert rate.why.startswith("Library default")
    assert after.value("lora.r") == schema.lora["r"].default == 8
    assert after.setting("grpo.bf16") is None  # None is its default, which TOML has no word for
    assert "grpo.bf16 is not set: library default, set by you." in after.notes
    again = files.read_config(files.render_config(after))
    assert again == after.as_config()
    assert files.edited_settings(after, again) == {}
    assert files.adopt(adopted, after, again) == adopted


def test_what_is_no_librarys_or_missing_with_its_whole_table_was_not_given_to_the_library(plan: Plan) -> None:
    config = tomllib.loads(files.render_config(plan))
    del config["lora"], config["model"]["dtype"], config["data"]["system"], config["launch"]["gpus"]
    assert files.edited_settings(plan, config) == {}


def test_a_key_renamed_by_hand_keeps_its_new_value(plan: Plan, schema: Schema) -> None:
    text = files.render_config(plan).replace("activation_checkpointing = true", "gradient_checkpointing = false")
    adopted = files.adopt(draft(), plan, tomllib.loads(text))
    assert planned(adopted, facts("Qwen2.5-7B", schema, 80)).value("grpo.activation_checkpointing") is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[grpo\nbeta = 1", "line 1"),
        ("beta = 0.1", "no table or key `beta`"),
        ("[gpro]\nbeta = 0.1", "no table or key `gpro`"),
        ("grpo = 3", "`grpo` is a value"),
        ("rewards = 3", "not a list"),
        ("[[rewards]]\nweight = 1.0", "Reward 1 needs a name"),
        ('[[rewards]]\nname = "a"\nweight = "big"', "Reward 1 needs a name"),
        ("[grpo]\nbeta = 1\nbeta = 2", "stands there twice"),
    ],
)
def test_a_broken_file_is_told_with_its_place(text: str, words: str) -> None:
    problem = files.read_config(text)
    assert isinstance(problem, Problem)
    assert words in problem.what
    assert problem.remedy


def test_a_misspelt_table_gets_its_right_name() -> None:
    problem = files.read_config("[gpro]")
    assert isinstance(problem, Problem)
    assert problem.remedy == "Did you mean [grpo]?"


def write(project: Path, answers: Draft, rendered: dict[str, str], *approved: str) -> Draft:
    found = files.changes(project, answers, rendered)
    assert isinstance(found, list)
    written = files.write(project, answers, found, approved)
    assert isinstance(written, Draft), written
    return written


def test_files_are_written_with_their_hash_and_again_without_asking(tmp_path: Path) -> None:
    project = tmp_path / "new"
    once = write(project, Draft(), {"train.py": "one\n"})
    assert once.files == {"train.py": files.sha256("one\n")}
    twice = write(project, once, {"train.py": "two\n"})
    assert (project / "train.py").read_text() == "two\n"
    assert files.changes(project, twice, {"train.py": "two\n"}) == []


def test_a_file_in_a_folder_is_written_with_its_folder(tmp_path: Path) -> None:
    written = write(tmp_path, Draft(), {"my/rewards.py": "one\n"})
    assert written.files == {"my/rewards.py": files.sha256("one\n")}
    assert (tmp_path / "my" / "rewards.py").read_text() == "one\n"


def test_a_file_that_is_not_ours_any_more_is_only_replaced_with_a_yes(tmp_path: Path) -> None:
    once = write(tmp_path, Draft(), {"train.py": "one\n"})
    (tmp_path / "train.py").write_text("mine\n")
    found = files.changes(tmp_path, once, {"train.py": "two\n"})
    assert isinstance(found, list)
    (change,) = found
    assert change.edited_by_user
    assert "-mine" in change.diff
    assert "+two" in change.diff
    kept = write(tmp_path, once, {"train.py": "two\n"})
    assert (tmp_path / "train.py").read_text() == "mine\n"
    assert kept.files == once.files
    write(tmp_path, once, {"train.py": "two\n"}, "train.py")
    assert (tmp_path / "train.py").read_text() == "two\n"
    assert (tmp_path / "train.py.bak").read_text() == "mine\n"


def test_a_script_that_was_there_before_us_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"print('mine') # \xff\r\n")
    write(tmp_path, Draft(), {"train.py": "ours\n"})
    assert (tmp_path / "train.py").read_bytes() == b"print('mine') # \xff\r\n"


def test_a_file_that_changed_since_its_difference_was_shown_stops_the_writing(tmp_path: Path) -> None:
    found = files.changes(tmp_path, Draft(), {"config.toml": "a\n", "train.py": "b\n"})
    assert isinstance(found, list)
    (tmp_path / "train.py").write_text("meanwhile\n")
    problem = files.write(tmp_path, Draft(), found)
    assert isinstance(problem, Problem)
    assert problem.where == "train.py"
    assert not (tmp_path / "config.toml").exists()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("a file")
    found = files.changes(tmp_path / "project", Draft(), {"train.py": "b\n"})
    assert isinstance(found, Problem)
    (tmp_path / "train.py").mkdir()
    assert isinstance(files.changes(tmp_path, Draft(), {"train.py": "b\n"}), Problem)


def test_the_hash_of_a_plan_is_of_its_values_alone(plan: Plan) -> None:
    other = replace(plan, settings=tuple(replace(setting, why="Else.") for setting in plan.settings))
    assert other.sha256 == plan.sha256
    assert replace(plan, rewards=()).sha256 != plan.sha256


def test_nothing_is_offered_to_try_before_something_was_trained(tmp_path: Path) -> None:
    assert files.after_training(tmp_path) == ""
