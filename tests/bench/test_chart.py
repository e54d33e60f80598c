"""What one update of a chart costs: processor time, and bytes to the terminal. Run by hand: pytest -m bench -s."""

import time
from collections.abc import Sequence

import numpy as np
import pytest
from grpo_tui.screens.theme import ThemedApp
from grpo_tui.screens.widgets.chart import Chart, Curve, Picture
from grpo_tui.screens.widgets.lines import Lines
from rich.text import Text
from textual.app import ComposeResult
from textual.geometry import Region
from textual.strip import Strip

pytestmark = [pytest.mark.slow, pytest.mark.bench]

POINTS, UPDATES = 100_000, 200


class OneChart(Lines):
    """A chart alone, which counts the bytes of the cells it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.chart, self.picture, self.sent = Chart(), Picture(), 0

    def paint(self, width: int, height: int) -> Sequence[Text | Strip]:
        return self.chart.draw(self.picture, self.palette, width, height)

    def refresh(self, *regions: Region, **more: bool) -> "OneChart":  # type: ignore[override]  # counts what is sent
        for region in regions:
            strip = self._strips[region.y].crop(region.x, region.right)
            self.sent += len(f"\x1b[{region.y + 1};{region.x + 1}H{strip.render(self.app.console)}".encode())
        super().refresh(*regions, **more)
        return self


class ChartApp(ThemedApp[None]):
    CSS = "OneChart { width: 60; height: 15; }"

    def compose(self) -> ComposeResult:
        yield OneChart()


async def test_an_update_with_a_hundred_thousand_points() -> None:
    app = ChartApp(theme="dark", environ={})
    async with app.run_test(size=(80, 24)) as pilot:
        chart = app.query_one(OneChart)
        x = np.arange(1, POINTS + UPDATES + 2)
        y = np.clip(x / POINTS, 0, 1) + np.random.default_rng(1).normal(0, 0.05, len(x))

        def show(count: int) -> None:
            chart.picture = Picture((Curve(x[:count], y[:count], label="0.998"),), end=2 * POINTS)
            chart.repaint()

        show(POINTS)
        await pilot.pause()
        empty = time.process_time()
        for _ in range(UPDATES):
            await pilot.pause()
        empty = time.process_time() - empty
        chart.sent = 0
        drawing, whole = 0.0, time.process_time()
        for number in range(UPDATES):
            begun = time.process_time()
            show(POINTS + number + 1)
            drawing += time.process_time() - begun
            await pilot.pause()
        whole = time.process_time() - whole - empty
    print(
        f"\nchart, {POINTS:,} points: {1000 * drawing / UPDATES:.2f} ms to draw, {1000 * whole / UPDATES:.2f} ms with "
        f"the repaint, {chart.sent / UPDATES:.0f} bytes an update (goal 2 ms, 300 bytes)"
    )
    assert whole / UPDATES <= 0.002
    assert chart.sent / UPDATES <= 300
