"""Watching a run: what it says about a run that lives, ended, failed or never began, and what its keys do."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from grpo_tui.screens.app import GrpoApp
from grpo_tui.screens.dialogs import Ask, Show
from grpo_tui.screens.monitor.completions import CompletionsPanel
from grpo_tui.screens.monitor.log import LogPanel
from grpo_tui.screens.monitor.screen import MonitorScreen
from grpo_tui.screens.monitor.values import ValuesScreen
from grpo_tui.screens.watch import WatchApp

from grpo_tui.diagnosis import failure
from grpo_tui.run import control, prediction
from tests.diagnosis.test_out_of_memory import MESSAGE, trace_text
from tests.screens.conftest import ready, running, text_of, until
from tests.screens.monitor.conftest import TERMINAL, LiveRun, look, monitor, panel_text, shown, watch

BIG, SMALL = (120, 36), (80, 23)
Recorded = Callable[[str], Path]

HOSTILE = [
    "INFO [/usr/bin/x] started",
    "[/INST] hi",
    "[rank0]: Traceback (most recent call last)",
    "[bold",
    "tensor([1, 2])",
    "\x1b[31mred\x1b[0m",
    "a\r  3%|..| 3/100",
    "x" * 100_000,
]


FIRST_PICTURE = """
import asyncio, pathlib, sys
from grpo_tui.screens.monitor.screen import MonitorScreen
from grpo_tui.screens.watch import WatchApp

class First(WatchApp):
    def _display(self, screen, picture):
        super()._display(screen, picture)
        if isinstance(screen, MonitorScreen) and self.return_value is None:
            self.exit(" ".join(name for name in sys.argv[2:] if name in sys.modules))

async def main():
    app = First(pathlib.Path(sys.argv[1]), theme="dark", environ={})
    async with app.run_test(size=(80, 23)) as pilot:
        await pilot.pause()
    print("LOADED", app.return_value)

asyncio.run(main())
"""


def test_the_first_picture_waits_for_neither_numpy_pyarrow_nor_torch(recorded: Recorded) -> None:
    heavy = ("numpy", "pyarrow", "torch", "trl")
    done = subprocess.run(
        [sys.executable, "-c", FIRST_PICTURE, str(recorded("h01_base")), *heavy],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "LOADED"


@pytest.mark.parametrize("size", [BIG, SMALL])
async def test_a_finished_run_says_how_far_it_came_and_promises_no_time(
    recorded: Recorded, size: tuple[int, int]
) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=size) as pilot:
        await look(pilot)
        text = shown(app)
        assert "✓ finished" in text
        assert "step 240 of 240" in text
        assert "100%" in text
        assert not any(word in text.lower() for word in ("eta", " left", "remaining"))


async def test_a_live_run_is_followed_as_it_grows(live: LiveRun) -> None:
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "starting" in shown(app)
        live.begin()
        await look(pilot)
        assert "No steps yet. First metrics expected at step 1." in shown(app)
        live.step(1)
        await look(pilot)
        assert "● running" in shown(app)
        assert "step 1 of 100" in shown(app)
        for number in range(2, 31):
            live.step(number)
        await look(pilot)
        assert "step 30 of 100" in shown(app)
        assert "1.50 s/step" in shown(app)
        assert "s ago" in shown(app)


async def test_the_first_metrics_are_announced_for_the_step_at_which_they_are_logged(live: LiveRun) -> None:
    live.begin(logging_steps=10)
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "First metrics expected at step 10." in shown(app)


async def test_a_slow_phase_is_named(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    live.write("now", 1, phase="generate")
    app = watch(live.run)
    async with app.run_test(size=(140, 36)) as pilot:
        await look(pilot)
        assert "generating" in shown(app)


async def test_half_a_last_line_waits_for_its_end(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    with (live.run / "events.jsonl").open("a") as file:
        file.write('{"v": 1, "t": 3, "kind": "log", "step": 2, "lo')
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "step 1 of 100" in shown(app)


async def test_the_bell_rings_when_a_run_ends(live: LiveRun) -> None:
    class Listening(WatchApp):
        rung = 0

        def bell(self) -> None:
            self.rung += 1

    live.begin()
    live.step(1)
    app = Listening(live.run, "dark", environ=TERMINAL)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert app.rung == 0
        (live.run / "run.toml").unlink()
        live.write("end", 1, reason="completed")
        await look(pilot)
        await look(pilot)
        assert app.rung == 1
        assert "finished" in shown(app)


async def test_a_failed_run_says_why_and_leads_to_its_log(recorded: Recorded) -> None:
    app = watch(recorded("f29_crash_exc"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "✗ failed" in shown(app)
        told = " ".join(panel_text(app, 6).split())
        assert "specs.py:56: The reward f raised ValueError: could not convert string to float: '1,234 apples'" in told
        assert "→ Change Correct the line: if trainer_state.global_step" in told
        await pilot.press("l")
        await pilot.pause()
        assert "ValueError: could not convert string to float: '1,234 apples'" in shown(app)


@pytest.mark.parametrize("size", [BIG, SMALL])
async def test_a_run_out_of_memory_says_when_how_much_it_lacked_and_what_to_change(
    live: LiveRun, size: tuple[int, int]
) -> None:
    live.begin()
    live.step(1)
    live.write("end", 1, reason="error", error="OutOfMemoryError: CUDA out of memory.")
    (live.run / "run.toml").unlink()
    (live.run / "train.log").write_text(trace_text("train", MESSAGE.format(others="", spare="5.10 GiB")))
    app = watch(live.run)
    async with app.run_test(size=size) as pilot:
        await look(pilot)
        await pilot.press("6", "enter")
        await pilot.pause()
        told = " ".join(panel_text(app, 6).split())
        assert "The GPU's memory ran out while the loss and its gradients were computed" in told
        assert "3.54 GiB too few" in told
        assert "(fragmentation)" in told
        assert "→ Change Start with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in told
        assert "halve per_device_train_batch_size" in told


async def test_a_log_that_says_no_more_is_read_once(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def counted(*words: Any, **more: Any) -> failure.Failure | None:
        looks.append(words)
        return read(*words, **more)

    read = failure.read_failure
    monkeypatch.setattr(failure, "read_failure", counted)
    app = watch(recorded("f29_crash_exc"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await look(pilot)
        assert len(looks) == 1


async def test_an_empty_folder_is_a_state_not_an_error(tmp_path: Path) -> None:
    app = watch(tmp_path)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        text = shown(app)
        assert "unknown" in text
        assert "No completions were kept." in text
        assert "This run has no train.log." in text


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (10, 3), (20, 5), (79, 24), (80, 22)])
async def test_a_window_too_small_says_so(recorded: Recorded, size: tuple[int, int]) -> None:
    app = watch(recorded("f25_zero_step"))
    async with app.run_test(size=size) as pilot:
        await look(pilot)
        if size[0] >= 20:
            assert "needs 80×23" in " ".join(shown(app).split())
        await pilot.press("v", "escape", "enter", "question_mark")
        await pilot.pause()


async def test_every_panel_is_within_reach_on_a_small_screen(recorded: Recorded) -> None:
    app = watch(recorded("h04_beta_kl"))
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        for number, title in enumerate(
            ("Reward", "Reward parts", "Entropy", "Grad norm", "GPUs", "Health", "Completions", "Log"), 1
        ):
            await pilot.press(str(number))
            await pilot.pause()
            assert monitor(app).focused_panel is monitor(app).panel(number)
            assert monitor(app).panel(number).display
            assert title in panel_text(app, number).splitlines()[0]


async def test_the_number_of_the_panel_one_is_in_shows_its_next_metric(recorded: Recorded) -> None:
    app = watch(recorded("h04_beta_kl"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("3")
        assert "Entropy" in panel_text(app, 3)
        await pilot.press("3")
        await pilot.pause()
        assert "KL" in panel_text(app, 3)


async def test_kl_that_is_not_computed_is_explained_and_not_drawn_as_zero(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("3", "3")
        await pilot.pause()
        assert "KL is not computed: beta is 0." in panel_text(app, 3)
        assert "KL" not in shown(app).splitlines()[2]


async def test_figures_that_are_no_numbers_are_named_with_their_step(recorded: Recorded) -> None:
    app = watch(recorded("made_nan"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "✗ NaN at step 8" in panel_text(app, 4)
        assert "not a number at step 8" in panel_text(app, 6)
        assert "NaN" in shown(app).splitlines()[3]


async def test_groups_without_signal_are_counted_from_the_rewards_not_taken_from_trl(live: LiveRun) -> None:
    live.begin()
    live.step(1, frac_reward_zero_std=0.0)
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        labels, values = shown(app).splitlines()[2:4]
        assert values[labels.index("no signal") :].startswith("25%")
        assert "75% have spread" in panel_text(app, 6)


async def test_without_a_recorded_share_it_comes_from_the_completions(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        glance = monitor(app).sight.glance  # type: ignore[union-attr]
        assert glance.flat_sampled
        assert glance.flat.last() == (240, pytest.approx(0.625))


async def test_the_cursor_reads_the_figure_exactly_as_logged(recorded: Recorded) -> None:
    run = recorded("h01_base")
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    logged = {row["step"]: row["logs"] for row in rows if row["kind"] == "log"}
    app = watch(run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("left", "left", "comma")
        await pilot.pause()
        step = monitor(app).sight.cursor  # type: ignore[union-attr]
        assert step is not None
        assert step < 240
        head = panel_text(app, 1).splitlines()[0]
        assert f"step {step}  {logged[step]['reward']!r} ± {logged[step]['reward_std']!r}" in head
        assert f"{logged[step]['grad_norm']!r}" in panel_text(app, 4).splitlines()[0]
        await pilot.press("escape")
        await pilot.pause()
        assert f"step {step}" not in panel_text(app, 1)


async def test_the_cursor_stays_on_logged_steps_at_both_ends(recorded: Recorded) -> None:
    app = watch(recorded("h06_spg4_accum2"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        times = monitor(app).sight.progress.times  # type: ignore[union-attr]
        monitor(app)._change(cursor=int(times.steps[0]))
        await pilot.press("left", "comma")
        assert monitor(app).sight.cursor == times.steps[0]  # type: ignore[union-attr]
        await pilot.press("full_stop")
        assert monitor(app).sight.cursor == times.steps[1]  # type: ignore[union-attr]


async def test_a_row_without_generation_is_missing_not_zero(recorded: Recorded) -> None:
    app = watch(recorded("h06_spg4_accum2"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        sight = monitor(app).sight
        assert sight is not None
        without = next(int(s) for s in sight.progress.times.steps if sight.progress.series["reward"].at(int(s)) is None)
        monitor(app)._change(cursor=without)
        await pilot.pause()
        assert "not logged" in panel_text(app, 1).splitlines()[0]


async def test_the_value_table_has_every_key_of_the_newest_row_exactly(live: LiveRun) -> None:
    live.begin()
    live.step(1, **{"loss": 1.1e-09, "my/own metric": 0.1 + 0.2, "odd": None})
    app = watch(live.run)
    async with app.run_test(size=(120, 60)) as pilot:
        await look(pilot)
        await pilot.press("v")
        await pilot.pause()
        assert isinstance(app.screen, ValuesScreen)
        text = shown(app)
        assert "1.1e-09" in text
        assert "0.30000000000000004" in text
        assert "Says little" in text
        assert "An extra metric" in text
        for key in ("my/own metric", "odd", "rewards/correct/mean", "frac_reward_zero_std", "groups without signal"):
            assert key in text
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is monitor(app)


async def test_training_is_stopped_only_after_a_yes(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    app = watch(live.run)
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        await pilot.press("S")
        await pilot.pause()
        assert isinstance(app.screen, Ask)
        assert "after the current step" in shown(app)
        await pilot.press("n")
        await pilot.pause()
        assert control.pending(live.run) == []
        await pilot.press("S")
        await pilot.pause()
        await pilot.press("y")
        await look(pilot)
        (asked,) = control.pending(live.run)
        assert asked.action == "stop"
        assert "stopping" in shown(app)


async def test_a_checkpoint_is_asked_for_with_a_yes(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    app = watch(live.run)
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        await pilot.press("w")
        await pilot.pause()
        await pilot.press("y")
        await look(pilot)
        assert [asked.action for asked in control.pending(live.run)] == ["save"]


async def test_who_may_only_look_cannot_stop(live: LiveRun) -> None:
    live.begin()
    app = watch(live.run, read_only=True)
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        await pilot.press("S", "w")
        await pilot.pause()
        assert app.screen is monitor(app)
        assert "stop" not in shown(app).splitlines()[-1]


async def test_a_run_that_is_over_cannot_be_stopped(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        await pilot.press("S", "w")
        await pilot.pause()
        assert app.screen is monitor(app)


async def test_a_pause_keeps_the_picture_and_says_so(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("p")
        live.step(2)
        await look(pilot)
        assert "step 1 of 100" in shown(app)
        assert "! paused" in shown(app)
        await pilot.press("p")
        await pilot.pause()
        assert "step 2 of 100" in shown(app)
        assert "paused" not in shown(app)


async def test_a_log_full_of_brackets_and_escapes_is_shown_as_it_is(live: LiveRun) -> None:
    (live.run / "train.log").write_text("\n".join(HOSTILE) + "\n")
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("l")
        await pilot.pause()
        await pilot.press("home")
        await pilot.pause()
        text = shown(app)
        for line in ("[/INST] hi", "[rank0]: Traceback (most recent call last)", "[bold", "tensor([1, 2])", " red"):
            assert line in text
        assert "  3%|..| 3/100" in text
        assert "\x1b" not in text


async def test_completions_full_of_brackets_and_escapes_are_shown_as_they_are(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    folder = live.run / "completions"
    folder.mkdir()
    count = len(HOSTILE)
    columns = {
        "step": ["1"] * count, "prompt": ["[/INST] [red]"] * count, "completion": HOSTILE,
        "correct": [1.0, 0.0] * (count // 2), "form": [None] * count, "advantage": [0.5, -0.5] * (count // 2),
    }  # fmt: skip
    parquet.write_table(pa.table(columns), folder / "completions_00001.parquet")
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("7", "down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, Show)
        text = shown(app)
        assert "[/INST] hi" in text
        assert "[/INST] [red]" in text
        assert "None" in text
        await pilot.press("escape")
        for _ in range(6):
            await pilot.press("down", "enter")
            await pilot.pause()
            assert "\x1b" not in shown(app)
            await pilot.press("escape")


async def test_completions_are_grouped_with_rewards_and_advantages(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("7", "enter")
        await pilot.pause()
        panel = monitor(app).panel(7)
        assert isinstance(panel, CompletionsPanel)
        table = panel.table
        assert table is not None
        assert f"step {table.step} · 1 of {len(table.completions)}" in panel_text(app, 7)
        assert repr(table.advantages[0]) in shown(app)
        assert "correctness_reward" in shown(app)


async def test_older_completions_are_one_key_away(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("7", "left_square_bracket")
        await look(pilot)
        assert "step 180 ·" in panel_text(app, 7)
        await pilot.press("right_square_bracket")
        await look(pilot)
        assert "step 240 ·" in panel_text(app, 7)


async def test_the_log_follows_until_one_scrolls(live: LiveRun) -> None:
    (live.run / "train.log").write_text("".join(f"line {n}\n" for n in range(100)))
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("8")
        assert "line 99" in panel_text(app, 8)
        assert "following" in panel_text(app, 8)
        await pilot.press("up", "up")
        await pilot.pause()
        assert "line 99" not in panel_text(app, 8)
        assert "line 98 of 100" in panel_text(app, 8)
        (live.run / "train.log").write_text("rotated\n")
        await look(pilot)
        panel = monitor(app).panel(8)
        assert isinstance(panel, LogPanel)
        await pilot.press("end")
        await pilot.pause()
        assert "rotated" in panel_text(app, 8)


async def test_another_run_of_the_project_is_chosen_from_a_list(recorded: Recorded) -> None:
    first = recorded("h01_base")
    recorded("f29_crash_exc")
    app = watch(first)
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        text = shown(app)
        assert "h01_base" in text
        assert "✗ failed" in text
        await pilot.press("up", "up", "down", "enter") if text.index("f29") > text.index(
            "h01_base  "
        ) else await pilot.press("up", "enter")
        await pilot.pause()
        await look(pilot)
        assert monitor(app).run.name in ("f29_crash_exc", "h01_base")


async def test_two_viewers_look_at_one_run(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    one, other = watch(live.run), watch(live.run, theme="light")
    async with one.run_test(size=BIG) as first, other.run_test(size=SMALL) as second:
        await look(first)
        await look(second)
        live.step(2)
        await look(first)
        await look(second)
        assert "step 2 of 100" in shown(one)
        assert "step 2 of 100" in shown(other)


async def test_a_file_that_was_replaced_is_read_anew(live: LiveRun) -> None:
    live.begin()
    for number in range(1, 9):
        live.step(number)
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "step 8 of 100" in shown(app)
        (live.run / "events.jsonl").unlink()
        live.begin()
        live.step(1)
        await look(pilot)
        await look(pilot)
        assert "step 1 of 100" in shown(app)


async def test_leaving_says_that_training_goes_on(live: LiveRun) -> None:
    live.begin()
    live.step(1)
    app = watch(live.run)
    async with app.run_test(size=SMALL) as pilot:
        await look(pilot)
        await pilot.press("q")
        await pilot.pause()
    assert app.return_value is not None
    assert "Training goes on" in app.return_value
    assert f"grpo-tui watch {live.run}" in app.return_value


async def test_a_trained_adapter_is_named_with_the_lines_that_load_it(recorded: Recorded) -> None:
    run = recorded("h01_base")
    (run / "final").mkdir()
    (run / "final" / "adapter_config.json").write_text("{}")
    app = watch(run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert "AutoPeftModelForCausalLM" in shown(app)


async def test_help_names_every_key_with_what_it_does(recorded: Recorded) -> None:
    app = watch(recorded("f25_zero_step"))
    async with app.run_test(size=(120, 50)) as pilot:
        await look(pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        text = shown(app)
        for words in ("Ask training to end", "exactly as logged", "Logarithmic scale", "All runs", "goes on"):
            assert words in text


async def test_gpus_show_use_memory_temperature_and_power(live: LiveRun) -> None:
    live.begin()
    gpu = {"uuid": "GPU-a", "index": 3, "name": "NVIDIA H100 80GB HBM3",
           "used_bytes": 68_100_000_000, "total_bytes": 85_000_000_000, "utilisation": 97,
           "temperature": 71, "power_watts": 648.2}  # fmt: skip
    silent = dict.fromkeys(gpu, None) | {"uuid": "GPU-b"}
    (live.run / "gpus.json").write_text(json.dumps({"v": 1, "t": 1.0, "gpus": [gpu, silent]}))
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        text = panel_text(app, 5)
        assert "97%" in text
        assert "71°C 648W" in text
        assert "80%" in text
        assert "68/85 GB" in text
        assert "not told by the driver" in text
        assert "GPU 3 H100 util" in text


@pytest.mark.parametrize("size", [BIG, SMALL])
async def test_the_use_of_a_slice_is_not_shown_as_nothing(live: LiveRun, size: tuple[int, int]) -> None:
    live.begin()
    part = {"uuid": "MIG-a", "index": None, "name": "NVIDIA A100-SXM4-40GB MIG 2g.10gb", "used_bytes": 4_000_000_000,
            "total_bytes": 10_468_982_784, "utilisation": None, "temperature": None, "power_watts": None}  # fmt: skip
    (live.run / "gpus.json").write_text(json.dumps({"v": 1, "t": 1.0, "gpus": [part]}))
    app = watch(live.run)
    async with app.run_test(size=size) as pilot:
        await look(pilot)
        await pilot.press("5")
        await pilot.pause()
        text = panel_text(app, 5)
        assert "n/a (MIG)" in text
        assert "0%" not in text.partition("mem")[0]
        assert "MIG 2g.10" in text


async def test_gpus_of_an_older_supervisor_have_the_names_the_training_saw(live: LiveRun) -> None:
    live.write("begin", 0, devices=[{"index": 0, "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-a"}])
    cards = [{"uuid": "GPU-a", "utilisation": 97}, {"uuid": "GPU-b", "utilisation": 3}]
    (live.run / "gpus.json").write_text(json.dumps({"v": 1, "t": 1.0, "gpus": cards}))
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        text = panel_text(app, 5)
        assert "GPU 0 A100 util" in text
        assert "GPU 1 " in text


@pytest.mark.parametrize("size", [BIG, SMALL, (100, 34)])
async def test_measured_peaks_stand_beside_what_was_predicted(live: LiveRun, size: tuple[int, int]) -> None:
    live.begin()
    gpu = {"uuid": "GPU-a", "index": 0, "name": "NVIDIA H100 80GB HBM3", "used_bytes": 45 << 30,
           "total_bytes": 80 << 30, "utilisation": 97}  # fmt: skip
    (live.run / "gpus.json").write_text(json.dumps({"v": 1, "t": 1.0, "gpus": [gpu]}))
    prediction.write(live.run, {"generate": 14 << 30, "score": 20 << 30, "train": 42 << 30, "peak": 43 << 30})
    app = watch(live.run)
    async with app.run_test(size=size) as pilot:
        await look(pilot)
        await pilot.press("5")
        await pilot.pause()
        assert "predicted" not in panel_text(app, 5)
        live.write("phase", 1, seconds={}, memory={"generate": int(12.3 * 2**30), "train": int(40.9 * 2**30)})
        live.write("log", 1, logs={"reward": 0.5}, memory={"cuda:0": {"reserved": int(41.2 * 2**30)}})
        await look(pilot)
        assert "peak 41.2 of 43.0 GiB predicted" in panel_text(app, 5)
        if size == SMALL:
            await pilot.press("enter")
            await pilot.pause()
        assert "generate 12.3 of 14.0" in panel_text(app, 5)
        assert "train 40.9 of 42.0" in panel_text(app, 5)


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("size", [BIG, SMALL, (100, 34)])
async def test_no_gpu_line_is_too_long(live: LiveRun, size: tuple[int, int], count: int) -> None:
    live.begin()
    cards = [{"uuid": f"GPU-{number}", "index": number, "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
              "used_bytes": 100_000_000_000, "total_bytes": 102_000_000_000, "utilisation": 100, "temperature": 71,
              "power_watts": 598.7} for number in range(count)]  # fmt: skip
    (live.run / "gpus.json").write_text(json.dumps({"v": 1, "t": 1.0, "gpus": cards}))
    app = watch(live.run)
    async with app.run_test(size=size) as pilot:
        await look(pilot)
        await pilot.press("5")
        await pilot.pause()
        lines = panel_text(app, 5).splitlines()
        assert all(line.rstrip().endswith(("W", "GB", "more")) for line in lines[1:] if line.strip())


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b'{"gpus": 3}', b'{"gpus": [null, {"utilisation": "x"}]}'])
async def test_a_broken_gpu_file_is_no_crash(live: LiveRun, content: bytes) -> None:
    (live.run / "gpus.json").write_bytes(content)
    app = watch(live.run)
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "GPUs" in shown(app)


async def test_smoothing_and_logarithm_are_named_in_the_rule(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        await pilot.press("s", "y")
        await pilot.pause()
        assert "mean of 5 log" in panel_text(app, 1)
        assert not math.isnan(monitor(app).panel(1).chart._scale.low)  # type: ignore[attr-defined]


async def test_from_a_project_one_key_goes_back_to_its_steps(
    recorded: Recorded, make_app: Callable[..., GrpoApp]
) -> None:
    app = make_app()
    async with running(app, SMALL) as pilot:
        step = await ready(pilot)
        app.watch_run(recorded("h01_base"))
        await until(pilot, "the run", lambda: isinstance(app.screen, MonitorScreen) and app.screen.sight is not None)
        await until(pilot, "the key", lambda: "o project" in text_of(app.screen))
        await pilot.press("question_mark")
        await until(pilot, "the help", lambda: "Back to the project's steps" in text_of(app.screen))
        await pilot.press("escape", "o")
        assert (await ready(pilot)).NAME == step.NAME


async def test_a_run_that_is_only_watched_has_no_project_to_go_back_to(recorded: Recorded) -> None:
    app = watch(recorded("h01_base"))
    async with app.run_test(size=BIG) as pilot:
        await look(pilot)
        assert "o project" not in shown(app)
        await pilot.press("o")
        assert isinstance(app.screen, MonitorScreen)
        await pilot.press("question_mark")
        await pilot.pause()
        assert "project's steps" not in shown(app)
