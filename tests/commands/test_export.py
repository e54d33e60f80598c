"""`grpo-tui export` writes the configuration for use without us."""

import json
from pathlib import Path

import pytest
import yaml

from grpo_tui.__main__ import main
from tests.commands.projects import answer, init, shared, workers

__all__ = ["shared", "workers"]  # fixtures


def test_a_script_is_written_into_the_project_with_the_values_on_the_disk(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(shared) == 0
    project = shared / "project"
    config = project / "config.toml"
    config.write_text(config.read_text().replace("temperature = 1.0", "temperature = 0.8"))
    capsys.readouterr()
    assert main(["export", str(project), "--json"]) == 0
    told = answer(capsys)
    assert told["files"] == [str((project / "train_alone.py").resolve())]
    assert told["notes"]
    text = (project / "train_alone.py").read_text()
    compile(text, "train_alone.py", "exec")
    assert "temperature=0.8," in text
    assert "    python train_alone.py" in text
    assert main(["export", str(project)]) == 0, "the same again is no conflict"


def test_yaml_has_the_prepared_prompts_beside_it(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(shared, "--system", "Be brief.") == 0
    capsys.readouterr()
    out = shared / "project" / "mine.yaml"
    assert main(["export", str(shared / "project"), "--format", "yaml", "--output", str(out), "--json"]) == 0
    written = [Path(name) for name in answer(capsys)["files"]]
    assert written == [out, out.with_name("mine.prompts.jsonl")]
    read = yaml.safe_load(out.read_text())
    assert read["datasets"] == [{"path": "json", "data_files": str(written[1]), "split": "train"}]
    rows = [json.loads(line) for line in written[1].read_text().splitlines()]
    assert len(rows) == 40
    assert rows[0]["prompt"][0] == {"role": "system", "content": "Be brief."}
    assert rows[0]["answer"] == "0"


def test_a_file_that_is_there_is_not_overwritten(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(shared) == 0
    theirs = shared / "project" / "train_alone.py"
    theirs.write_text("# mine\n")
    capsys.readouterr()
    assert main(["export", str(shared / "project"), "--json"]) == 2
    assert "there already" in answer(capsys)["problems"][0]["what"]
    assert theirs.read_text() == "# mine\n"


def test_without_a_project_it_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--json"]) == 2
    assert "grpo-tui init" in answer(capsys)["problems"][0]["remedy"]
