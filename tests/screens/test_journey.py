"""From an empty folder through every step to a finished run and its panel."""

import json
from pathlib import Path

from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.dataset import DatasetStep
from grpo_tui.screens.launch import LaunchStep
from grpo_tui.screens.monitor.screen import MonitorScreen
from grpo_tui.screens.score import ScoreStep

from grpo_tui import state
from grpo_tui.draft import STEPS
from grpo_tui.run.folder import newest
from grpo_tui.run.life import life
from tests.screens.conftest import onward, ready, running, text_of, until


async def test_a_newcomer_goes_from_an_empty_folder_to_a_finished_run(project: Path, make_app: type[GrpoApp]) -> None:
    app = make_app()
    async with running(app) as pilot:
        assert "answer for your own" in text_of(app.screen)
        await pilot.press("right")  # the first ready-made task
        task = await ready(pilot)
        assert "GRPO" in text_of(app.screen)
        assert task.draft.task.recipe == "word_problems"
        await onward(pilot, "hardware")
        assert (project / "word_problems.jsonl").exists()
        await onward(pilot, "model")
        assert "fits" in text_of(app.screen)
        data = await onward(pilot, "dataset")
        assert isinstance(data, DatasetStep)
        assert data.data is not None
        assert data.data.usable == 512
        assert data.data.longest > 40  # counted by the model's own tokenizer, chat template included
        await onward(pilot, "rewards")
        score = await onward(pilot, "score")
        assert isinstance(score, ScoreStep)
        assert score.table is not None
        assert "works" in text_of(app.screen)
        await onward(pilot, "settings")
        await pilot.press("a")
        await pilot.press(*"max_steps", "enter")
        await pilot.press("2", "0", "enter")
        await ready(pilot)
        await onward(pilot, "review")
        assert not (project / "train.py").exists()
        launch = await onward(pilot, "launch")
        assert {"train.py", "config.toml", "rewards.py"} <= {path.name for path in project.iterdir()}
        assert not (project / "runs").exists()
        await pilot.press("enter")
        await pilot.pause()
        command = str(launch.departure.command) if isinstance(launch, LaunchStep) and launch.departure else ""
        assert "train.py" in command
        await pilot.press("n")  # nothing runs without the yes
        await pilot.pause()
        assert not (project / "runs").exists()
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("y")
        await until(pilot, "the panel", lambda: isinstance(app.screen, MonitorScreen))
        run = newest(project)
        assert run is not None
        await until(pilot, "the end of the run", lambda: life(run).state == "finished", seconds=240)
        await until(pilot, "the panel shows the end", lambda: "20 of 20" in text_of(app.screen))

    loaded = state.load(project)
    assert isinstance(loaded, state.Loaded)
    assert set(loaded.draft.done) == set(STEPS)
    approval = loaded.draft.approvals[-1]
    assert (approval.what, approval.detail) == ("run", command)
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert sum(row["kind"] == "log" and "reward" in row["logs"] for row in rows) >= 20
