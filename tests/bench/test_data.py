"""What a look at a large file costs, beside `datasets`, `wc` and the bare tokenizer in the same run.

Run by hand: pytest -m bench -s. GRPO_BENCH_BYTES sets the size of the file; a gigabyte is what the goals are for.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from grpo_tui.child import Worker

pytestmark = [pytest.mark.slow, pytest.mark.bench]

BYTES = int(os.environ.get("GRPO_BENCH_BYTES", 1 << 30))
MODEL = Path(__file__).parents[2] / "recipes" / "word_problems" / "model"

OURS = """
import sys, time
from grpo_tui.dataset.sources import open_source
began = time.perf_counter()
source = open_source(sys.argv[1])
assert len(source.head(50)) == 50 and source.columns
print(time.perf_counter() - began)
"""
STREAMED = """
import sys, time
import datasets
began = time.perf_counter()
rows = datasets.load_dataset("json", data_files=sys.argv[1], split="train", streaming=True)
assert len(list(rows.take(50))) == 50
print(time.perf_counter() - began)
"""
COUNTED = """
import sys
from grpo_tui.dataset.sources import count_rows, open_source
print(count_rows(open_source(sys.argv[1])).rows)
"""
LOOKED_AT = """
import sys, time
from grpo_tui.dataset.faults import scan
from grpo_tui.dataset.sources import open_source
from grpo_tui.draft import DatasetAnswer
answer = DatasetAnswer(prompt="question", answer="answer", extract="after_marker", extract_argument="####")
began = time.perf_counter()
assert scan(open_source(sys.argv[1]).iterate(200_000), answer).rows == 200_000
print(time.perf_counter() - began)
"""


class Cost(NamedTuple):
    """What a fresh Python took."""

    inside: float
    """Seconds that the code says it took, without what it imports."""

    whole: float
    """Seconds from start to exit."""

    peak: int
    """Bytes of memory."""


def run(code: str, path: Path, environ: dict[str, str]) -> Cost:
    """A fresh Python that runs `code` on `path`, watched by another."""
    watch = (
        "import resource, subprocess, sys, time\n"
        "began = time.perf_counter()\n"
        "said = subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True, capture_output=True, text=True)\n"
        "spent = time.perf_counter() - began\n"
        "print(said.stdout.split()[-1], spent, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)\n"
    )
    said = subprocess.run([sys.executable, "-c", watch, code, str(path)], check=True, capture_output=True, text=True,
                          env=environ)  # fmt: skip
    inside, whole, peak = said.stdout.split()
    return Cost(float(inside), float(whole), int(peak))


def best(function: Callable[[], object], times: int = 3) -> float:
    """The shortest of some runs, in seconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        spent.append(time.perf_counter() - began)
    return min(spent)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of about 650 bytes, in a file of BYTES."""
    chance = random.Random(1)
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    words = ["apple", "train", "seven", "twelve", "how", "many", "walks", "to", "the", "market", "costs", "each"]
    rows = [
        json.dumps({"question": " ".join(chance.choices(words, k=chance.randrange(40, 110))),
                    "answer": f"{' '.join(chance.choices(words, k=20))}\n#### {n}", "level": n % 5})
        for n in range(20_000)
    ]  # fmt: skip
    block = ("\n".join(rows) + "\n").encode()
    with path.open("wb") as file:
        while file.tell() < BYTES:
            file.write(block)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}


def test_the_first_view_of_a_large_file(
    large: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    both = [(run(OURS, large, environ), run(STREAMED, large, environ)) for _ in range(3)]
    ours, streamed = ([costs[side] for costs in both] for side in (0, 1))
    inside, theirs = (min(cost.inside for cost in side) for side in (ours, streamed))
    whole, their_whole = (min(cost.whole for cost in side) for side in (ours, streamed))
    peak, their_peak = (max(cost.peak for cost in side) for side in (ours, streamed))
    with capsys.disabled():
        print(
            f"\n{large.stat().st_size / 1e9:.2f} GB of JSONL, the first 50 rows and the columns, a fresh Python each:"
        )
        print(f"  ours {inside:.3f} s, datasets streaming {theirs:.3f} s: {inside / theirs:.3f} x (goal 0.02)")
        print(f"  with all imports {whole:.3f} s and {their_whole:.3f} s: {whole / their_whole:.3f} x")
        print(f"  memory {peak / 1e6:.0f} MB and {their_peak / 1e6:.0f} MB: {peak / their_peak:.3f} x (goal 0.2)")
    assert inside <= 0.02 * theirs
    assert peak <= 0.2 * their_peak


def test_the_exact_number_of_rows(large: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    from grpo_tui.dataset.sources import Source, count_rows, open_source

    source = open_source(str(large))
    assert isinstance(source, Source)
    lines = int(subprocess.run(["wc", "-l", str(large)], check=True, capture_output=True, text=True).stdout.split()[0])
    wc, ours = [], []
    for _ in range(8):
        wc.append(best(lambda: subprocess.run(["wc", "-l", str(large)], check=True, capture_output=True), 1))
        ours.append(best(lambda: count_rows(source), 1))
    counted = count_rows(source)
    assert isinstance(counted, Source)
    assert counted.rows == lines
    peak = run(COUNTED, large, environ).peak
    ratio, estimate = statistics.median(ours) / statistics.median(wc), (source.rows or 0) / lines
    with capsys.disabled():
        print(f"\nexact count of {lines:,} rows: {min(ours):.3f} s, `wc -l` {min(wc):.3f} s: {ratio:.2f} x (goal 1.5)")
        print(f"  {peak / 1e6:.0f} MB; the estimate before it was {estimate:.3f} x the truth")
    assert source.rows == pytest.approx(lines, rel=0.05)
    assert ratio <= 1.6  # the goal is 1.5, and medians on a busy machine differ by a tenth


def test_lengths_in_tokens(large: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    from tokenizers import Tokenizer

    from grpo_tui.dataset.sources import Source, open_source

    source = open_source(str(large))
    assert isinstance(source, Source)
    prompts = [row["question"] for row in source.head(10_000)]
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    request = {"model": str(MODEL), "revision": "", "prompts": prompts}
    raw, ours = [], []
    with Worker("tokenize", env=environ) as worker:
        worker.call("lengths", {**request, "prompts": prompts[:10]})
        for _ in range(5):
            raw.append(best(lambda: tokenizer.encode_batch_fast(prompts), 1))
            ours.append(best(lambda: worker.call("lengths", request), 1))
        counted = worker.call("lengths", request)
    assert isinstance(counted, dict)
    tokens = sum(counted["lengths"])
    assert tokens == sum(len(one.ids) for one in tokenizer.encode_batch_fast(prompts))
    ratio = min(raw) / min(ours)
    with capsys.disabled():
        print(f"\nlengths of {len(prompts):,} prompts, {tokens:,} tokens: {tokens / min(ours) / 1e6:.2f} Mtok/s, "
              f"encode_batch_fast alone {tokens / min(raw) / 1e6:.2f}: {ratio:.2f} x (goal 0.9)")  # fmt: skip
    assert ratio >= 0.9


def test_the_whole_look_stays_in_constant_memory(
    large: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row is prepared and looked at: sixteen bytes a row are kept."""
    cost = run(LOOKED_AT, large, environ)
    with capsys.disabled():
        print(f"\n200,000 rows looked at one by one: {cost.inside:.1f} s, {cost.peak / 1e6:.0f} MB")
    assert cost.peak < 150e6
