"""Recipes: folders with a recipe.toml, read with care and put into projects without harm."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_tui import recipe
from grpo_tui.commands import recipes as command
from grpo_tui.problem import Problem
from grpo_tui.recipe import Recipe

SOUND = """
schema = 1
title = "Capitals"
summary = "Name the capital."

[model]
name = "owner/tiny"

[data]
file = "capitals.jsonl"
script = "rows.py"
prompt = "country"
answer = "capital"

[[systems]]
name = "Short"
text = "One word."

[rewards]
[[rewards.items]]
name = "right"
weight = 2

[[samples]]
text = "Paris"
expect = "high"

[grpo.learning_rate]
value = 1e-5
why = "a guess"
"""
ROWS = """import json
print(json.dumps({"country": "France", "capital": "Paris"}))
print(json.dumps({"country": "Perú", "capital": "Lima"}, ensure_ascii=False))
"""
REWARDS = "def right(completions, capital, **kwargs):\n    return [0.0 for _ in completions]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's own recipe."""
    own = tmp_path / "capitals"
    own.mkdir()
    (own / "recipe.toml").write_text(SOUND)
    (own / "rows.py").write_text(ROWS)
    (own / "rewards.py").write_text(REWARDS)
    return own


def sound(where: str | Path) -> Recipe:
    found = recipe.read(where)
    assert isinstance(found, Recipe), str(found)
    return found


def problem(given: object) -> Problem:
    assert isinstance(given, Problem)
    assert given.where
    assert given.what.endswith(".")
    assert given.remedy.endswith((".", "?"))
    return given


# ----------------------------------------------------------------------------------------------------------- reading


def test_a_folder_of_the_users_own_is_read_like_a_shipped_one(folder: Path) -> None:
    own = sound(folder)
    assert (own.name, own.ours, own.needs_consent, own.model) == ("capitals", False, True, "owner/tiny")
    assert own.dataset.source == "capitals.jsonl"
    assert own.dataset.system == "One word."
    assert [(item.name, item.weight) for item in own.rewards] == [("right", 2.0)]
    assert own.grpo["learning_rate"] == (1e-5, "a guess")
    assert own.task.recipe == str(folder)


def test_shipped_recipes_are_found_by_name_and_are_ours() -> None:
    assert sorted(item.name for item in recipe.find()) == [path.name for path in recipe.folders()]
    assert recipe.find()[0].name == "word_problems"  # it brings its model, so it runs anywhere
    ours = sound("word_problems")
    assert (ours.ours, ours.needs_consent, ours.task.recipe) == (True, False, "word_problems")


def test_a_wrong_name_is_answered_with_the_right_one() -> None:
    assert "word_problems" in problem(recipe.read("word_problem")).remedy


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("schema = 1", "schema = 2"), "schema"),
        (("schema = 1", "schema = 0"), "schema"),
        (("schema = 1", 'schema = "1"'), "schema"),
        (('title = "Capitals"', ""), "title"),
        (('title = "Capitals"', 'title = " "'), "title"),
        (('title = "Capitals"', "title = 3"), "title"),
        (('title = "Capitals"', 'tilte = "Capitals"'), "tilte"),
        (("[model]", '[task]\ngoal = "fame"\n[model]'), "task.goal"),
        (("[model]", "[hardware]\ncpu = 1\n[model]"), "hardware.cpu"),
        (("[model]", "[[hardware]]\n[model]"), "hardware"),
        (('name = "owner/tiny"', 'folder = "model"'), "model.folder"),
        (('name = "owner/tiny"', 'folder = ".."'), "model.folder"),
        (('name = "owner/tiny"', 'name = "a/b"\nfolder = "."'), "model.folder, model.name"),
        (('name = "owner/tiny"', 'method = "dpo"'), "model.method"),
        (('file = "capitals.jsonl"', 'file = "../capitals.jsonl"'), "data.file"),
        (('file = "capitals.jsonl"', 'file = "train.py"'), "data.file"),
        (('file = "capitals.jsonl"', 'file = ".hidden"'), "data.file"),
        (('file = "capitals.jsonl"', ""), "data.file, data.source"),
        (('file = "capitals.jsonl"', 'source = "owner/data"'), "data.script"),
        (('script = "rows.py"', ""), "data.file"),
        (('script = "rows.py"', 'script = "row.py"'), "data.script"),
        (('script = "rows.py"', 'script = "../../etc/passwd"'), "data.script"),
        (('prompt = "country"', ""), "data.prompt"),
        (('name = "Short"', ""), "systems[0].name"),
        (('text = "One word."', "text = 1"), "systems[0].text"),
        (("[[systems]]", "[systems]"), "systems"),
        (("[rewards]", '[rewards]\nfile = "reward.py"'), "rewards.file"),
        (('name = "right"', 'name = "not right"'), "rewards.items[0].name"),
        (("weight = 2", 'weight = "2"'), "rewards.items[0].weight"),
        (("weight = 2", "weight = true"), "rewards.items[0].weight"),
        (("weight = 2", "weight = nan"), "rewards.items[0].weight"),
        (("weight = 2", 'weight = 2\n[[rewards.items]]\nname = "right"'), "rewards.items[1].name"),
        (('[[rewards.items]]\nname = "right"\nweight = 2', "items = []"), "rewards.items"),
        (('expect = "high"', 'expect = "maybe"'), "samples[0].expect"),
        (('expect = "high"', ""), "samples[0].expect"),
        (('expect = "high"', 'expect = "high"\nrow = 1.5'), "samples[0].row"),
        (('expect = "high"', 'expect = "high"\nrow = -1'), "samples[0].row"),
        (("value = 1e-5", ""), "grpo.learning_rate.value"),
        (('why = "a guess"', ""), "grpo.learning_rate.why"),
        (("[grpo.learning_rate]\nvalue = 1e-5", "[grpo]\nlearning_rate = 1e-5"), "grpo.learning_rate"),
    ],
)
def test_a_wrong_key_is_named(folder: Path, change: tuple[str, str], key: str) -> None:
    path = folder / "recipe.toml"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    found = problem(recipe.read(folder))
    assert found.where == f"{path}: {key}"


@pytest.mark.parametrize("content", [b"schema = ", b"\xff\xfe\x00", b"", b"schema = 1\n[[[x"])
def test_a_file_that_is_no_recipe_is_a_problem_that_names_it(folder: Path, content: bytes) -> None:
    (folder / "recipe.toml").write_bytes(content)
    assert str(folder / "recipe.toml") in problem(recipe.read(folder)).where


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x = 1")
    (folder / "rewards.py").unlink()
    (folder / "rewards.py").symlink_to(tmp_path / "secret.py")
    assert "out of" in problem(recipe.read(folder)).what


def test_nothing_of_a_folder_runs_while_it_is_read(folder: Path) -> None:
    for name in ("rows.py", "rewards.py"):
        (folder / name).write_text(f"from pathlib import Path\nPath({str(folder)!r}, 'ran').touch()\n{REWARDS}")
    sound(folder)
    assert not (folder / "ran").exists()


def test_reading_recipes_loads_no_heavy_library() -> None:
    code = "import sys; from grpo_tui import recipe; recipe.find(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "trl", "numpy", "pyarrow", "textual"} & set(loaded)


# --------------------------------------------------------------------------------------------------------- in a project


def test_the_draft_holds_every_answer_of_the_recipe() -> None:
    ours = sound("word_problems")
    draft = recipe.draft_for(ours)
    assert Path(draft.model.name).is_dir()
    assert draft.hardware.cpu
    assert (draft.dataset.prompt, draft.dataset.answer) == ("question", "answer")
    assert draft.dataset.system == ours.systems[0].text
    assert [item.weight for item in draft.rewards.items] == [1.0, 0.25, 0.125]
    assert draft.done == {}
    assert draft.approvals == ()


def test_the_files_of_a_recipe_are_always_the_same(tmp_path: Path) -> None:
    ours = sound("word_problems")
    for project in ("one", "two"):
        assert recipe.materialise(ours, tmp_path / project) == ["rewards.py", "word_problems.jsonl"]
    for name in ("rewards.py", "word_problems.jsonl"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "one" / "word_problems.jsonl").read_text().splitlines()]
    assert len({row["question"] for row in rows}) == len(rows) == 512
    assert all(row["answer"].isdigit() for row in rows)
    assert recipe.materialise(ours, tmp_path / "one") == []


def test_code_of_a_foreign_folder_waits_for_a_yes_and_a_change_takes_the_yes_back(folder: Path, tmp_path: Path) -> None:
    own, project = sound(folder), tmp_path / "project"
    assert "rows.py" in problem(recipe.materialise(own, project)).remedy
    assert not project.exists()
    written = recipe.materialise(own, project, approved_sha256=own.sha256)
    assert written == ["rewards.py", "capitals.jsonl"]
    assert json.loads((project / "capitals.jsonl").read_text().splitlines()[1])["country"] == "Perú"
    (folder / "helper.py").write_text("new = 1")
    assert "changed" in problem(recipe.materialise(own, project, approved_sha256=own.sha256)).what


def test_recipe_toml_is_data_and_does_not_change_the_fingerprint(folder: Path) -> None:
    before = sound(folder).sha256
    (folder / "recipe.toml").write_text(SOUND.replace("Capitals", "Capital cities"))
    assert sound(folder).sha256 == before
    (folder / "rewards.py").write_text(REWARDS + "#")
    assert sound(folder).sha256 != before


def test_a_data_script_does_not_see_the_users_tokens(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (folder / "rows.py").write_text(
        "import json, os\nprint(json.dumps({'country': ' '.join(os.environ), 'capital': ''}))"
    )
    own = sound(folder)
    assert recipe.materialise(own, tmp_path / "project", approved_sha256=own.sha256)
    assert "HF_TOKEN" not in (tmp_path / "project" / "capitals.jsonl").read_text()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('no rows today')", "no rows today"),
        ("print('country,capital')", "Line 1"),
        ("print('[1, 2]')", "Line 1"),
        ("print('{\"country\": 1}')", "capital"),
        ("pass", "no row"),
        ("import sys; print('\\x1b[2J', file=sys.stderr); sys.exit(3)", "status 3"),
    ],
)
def test_a_data_script_that_fails_is_a_problem_with_its_last_words(
    folder: Path, tmp_path: Path, code: str, said: str
) -> None:
    (folder / "rows.py").write_text(code)
    own = sound(folder)
    found = problem(recipe.materialise(own, tmp_path / "project", approved_sha256=own.sha256))
    assert said in found.what
    assert "\x1b" not in str(found)


def test_a_data_script_that_hangs_is_stopped(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "SCRIPT_SECONDS", 0.2)
    (folder / "rows.py").write_text("import time; time.sleep(60)")
    own = sound(folder)
    assert "within" in problem(recipe.materialise(own, tmp_path / "project", approved_sha256=own.sha256)).what


def test_a_data_file_is_copied_without_running_anything(folder: Path, tmp_path: Path) -> None:
    (folder / "recipe.toml").write_text(SOUND.replace('script = "rows.py"\n', ""))
    (folder / "capitals.jsonl").write_text('{"country": "Chad"}\n')
    own = sound(folder)
    assert not own.needs_consent
    assert recipe.materialise(own, tmp_path / "project") == ["rewards.py", "capitals.jsonl"]
    assert (tmp_path / "project" / "capitals.jsonl").read_text() == '{"country": "Chad"}\n'


def test_a_file_of_the_users_own_is_never_overwritten(tmp_path: Path) -> None:
    ours = sound("word_problems")
    (tmp_path / "rewards.py").write_text("mine = True\n")
    assert str(tmp_path / "rewards.py") == problem(recipe.materialise(ours, tmp_path)).where
    assert [path.name for path in tmp_path.iterdir()] == ["rewards.py"]
    assert (tmp_path / "rewards.py").read_text() == "mine = True\n"


def test_an_edit_of_a_recipes_file_stays_and_an_untouched_older_one_is_renewed(tmp_path: Path) -> None:
    ours = sound("word_problems")
    (tmp_path / "rewards.py").write_text("edited = True\n")
    assert recipe.materialise(ours, tmp_path, written={"rewards.py": "hash before the edit"}) == ["word_problems.jsonl"]
    assert (tmp_path / "rewards.py").read_text() == "edited = True\n"
    older = hashlib.sha256(b"edited = True\n").hexdigest()
    assert recipe.materialise(ours, tmp_path, written={"rewards.py": older}) == ["rewards.py"]
    assert (tmp_path / "rewards.py").read_bytes() == ours.rewards_file.read_bytes()


def test_a_project_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert str(tmp_path / "file") in problem(recipe.materialise(sound("word_problems"), tmp_path / "file")).where


# --------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run `grpo-tui recipes` with these arguments: its exit status and what it printed."""
    import argparse

    def run_command(*words: str) -> tuple[int, str]:
        top = argparse.ArgumentParser()
        command.add(top.add_subparsers())
        status = command.execute(top.parse_args(["recipes", *words]))
        return status, capsys.readouterr().out

    return run_command


def test_the_command_lists_the_shipped_recipes_for_people(run: Callable[..., tuple[int, str]]) -> None:
    status, said = run()
    assert status == 0
    assert re.search(r"^word_problems\b.*Tiny word problems", said, re.M)


def test_the_command_prints_one_json_object(run: Callable[..., tuple[int, str]]) -> None:
    status, said = run("--json")
    (ours,) = (item for item in json.loads(said)["recipes"] if item["name"] == "word_problems")
    assert status == 0
    assert [reward["name"] for reward in ours["rewards"]] == ["correct", "format", "brevity"]
    assert ours["grpo"]["num_generations"]["value"] == 8


def test_the_command_lists_a_folder_of_recipes_and_names_the_broken_one(
    run: Callable[..., tuple[int, str]], folder: Path
) -> None:
    broken = folder.parent / "broken"
    broken.mkdir()
    (broken / "recipe.toml").write_text("schema = 1")
    status, said = run(str(folder.parent), "--json")
    listed = json.loads(said)
    assert status == 2
    assert [item["name"] for item in listed["recipes"]] == ["capitals"]
    assert [item["where"] for item in listed["problems"]] == [f"{broken / 'recipe.toml'}: title"]
