"""Prompts as the model's tokenizer counts them."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.dataset.lengths import (
    Lengths,
    Rendered,
    advice,
    histogram,
    measure,
    measure_rows,
    model_place,
    render,
    summarise,
)
from grpo_tui.dataset.sources import Source
from grpo_tui.draft import DatasetAnswer
from grpo_tui.problem import Problem

CHAT = DatasetAnswer(prompt="prompt")


def test_a_prompt_is_shown_exactly_as_the_model_sees_it(tokenize: Worker, model: Path) -> None:
    rendered = render(tokenize, str(model), {"prompt": "hi <b>"}, DatasetAnswer(prompt="prompt", system="S"))
    assert isinstance(rendered, Rendered)
    assert rendered.text == "<|system|>S<|end|><|user|>hi <b><|end|><|assistant|>"
    assert rendered.tokens == 5 + len("S") + len("hi <b>")
    assert rendered.pieces[:4] == ("<|system|>", "S", "<|end|>", "<|user|>")
    assert not rendered.opens_think


def test_lengths_are_those_of_the_whole_prompt_with_template_and_system_prompt(tokenize: Worker, model: Path) -> None:
    answer = DatasetAnswer(prompt="prompt", system="Sys")
    rows = [(n, {"prompt": "x" * n}) for n in (1, 5, 700)] + [(9, {"prompt": ""})]
    lengths = measure_rows(tokenize, str(model), rows, answer)
    assert lengths == {n: 3 + 5 + n for n in (1, 5, 700)}
    plain = DatasetAnswer(prompt="prompt", plain=True)
    assert measure_rows(tokenize, str(model), rows, plain) == {n: n for n in (1, 5, 700)}


def test_a_few_very_long_prompts_among_many_show(
    tokenize: Worker, model: Path, tmp_path: Path, opened: Callable[..., Source]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": "x" * (9000 if n in (17, 61) else 80)}) + "\n" for n in range(100)))
    seen: list[tuple[int, int]] = []
    lengths = measure(
        tokenize, str(model), opened(path), CHAT, progress=lambda done, all_of_them: seen.append((done, all_of_them))
    )
    assert isinstance(lengths, Lengths)
    assert (lengths.count, lengths.of, lengths.p50, lengths.longest) == (100, 100, 83, 9003)
    assert [row for row, length in lengths.by_row.items() if length > 512] == [17, 61]
    assert seen == [(100, 100)]


def test_of_many_rows_a_sample_is_measured(
    tokenize: Worker, model: Path, tmp_path: Path, opened: Callable[..., Source]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": "x" * (1 + n % 100)}) + "\n" for n in range(3000)))
    lengths = measure(tokenize, str(model), opened(path), CHAT, size=1200)
    assert isinstance(lengths, Lengths)
    assert (lengths.count, lengths.of) == (1200, 3000)
    assert lengths.p50 == pytest.approx(53, abs=5)


def test_where_long_prompts_are_left_out_all_are_measured(
    tokenize: Worker, model: Path, tmp_path: Path, opened: Callable[..., Source]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": "x" * (300 if n % 100 == 99 else 3)}) + "\n" for n in range(3000)))
    lengths = measure(tokenize, str(model), opened(path), replace(CHAT, max_prompt_tokens=200))
    assert isinstance(lengths, Lengths)
    assert sum(length > 200 for length in lengths.by_row.values()) == 30


def test_a_template_that_opens_the_thinking_is_recognised(
    tokenize: Worker, make_tokenizer: Callable[..., Path]
) -> None:
    thinking = make_tokenizer("{% for message in messages %}{{ message.content }}{% endfor %}A:<think>\n")
    rendered = render(tokenize, str(thinking), {"prompt": "Use <think></think>."}, CHAT)
    assert isinstance(rendered, Rendered)
    assert rendered.opens_think
    closed = make_tokenizer("{{ messages[0].content }}<think>\n\n</think>\n\n")
    rendered = render(tokenize, str(closed), {"prompt": "Use <think>."}, CHAT)
    assert isinstance(rendered, Rendered)
    assert not rendered.opens_think


def test_a_model_without_a_chat_template_takes_plain_text_only(
    tokenize: Worker, make_tokenizer: Callable[..., Path]
) -> None:
    base = make_tokenizer(None)
    for problem in (
        render(tokenize, str(base), {"prompt": "x"}, CHAT),
        measure_rows(tokenize, str(base), [(0, {"prompt": "x"})], CHAT),
    ):
        assert isinstance(problem, Problem)
        assert "no chat template" in problem.what
    rendered = render(tokenize, str(base), {"prompt": "2+2="}, DatasetAnswer(prompt="prompt", plain=True))
    assert isinstance(rendered, Rendered)
    assert (rendered.text, rendered.tokens) == ("2+2=", 4)


def test_a_template_that_refuses_the_messages_is_quoted(tokenize: Worker, make_tokenizer: Callable[..., Path]) -> None:
    strict = make_tokenizer("{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}x")
    problem = render(tokenize, str(strict), {"prompt": "x"}, DatasetAnswer(prompt="prompt", system="S"))
    assert isinstance(problem, Problem)
    assert "no system here" in problem.what


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("./models/qwen", "no such folder"),
        ("/models/qwen", "no such folder"),
        ("models/qwen/base", "no such folder"),
        ("owner/unknown", "neither a folder here nor in the local cache"),
    ],
)
def test_a_model_that_is_not_there_is_said_to_be_not_there(tokenize: Worker, model: str, what: str) -> None:
    problem = render(tokenize, model, {"prompt": "x"}, CHAT)
    assert isinstance(problem, Problem)
    assert what in problem.what
    assert "repo id" not in str(problem).lower()


def test_a_folder_without_a_tokenizer_says_which_files_are_missing(tokenize: Worker, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    problem = render(tokenize, str(tmp_path), {"prompt": "x"}, CHAT)
    assert isinstance(problem, Problem)
    assert "tokenizer.json" in problem.remedy
    (tmp_path / "tokenizer.json").write_text("{ half a file")
    problem = render(tokenize, str(tmp_path), {"prompt": "x"}, CHAT)
    assert isinstance(problem, Problem)
    assert "cannot be read" in problem.what


def test_what_is_known_of_the_tokenizer(tokenize: Worker, model: Path, make_tokenizer: Callable[..., Path]) -> None:
    known = tokenize.call("describe", {"model": str(model)})
    assert isinstance(known, dict)
    assert (known["chat_template"], known["vocabulary"]) == (True, 260)
    base = tokenize.call("describe", {"model": str(make_tokenizer(None))})
    assert isinstance(base, dict)
    assert base["chat_template"] is False


def test_a_row_that_becomes_no_prompt_is_not_rendered(tokenize: Worker, model: Path) -> None:
    assert isinstance(render(tokenize, str(model), {"prompt": ""}, CHAT), Problem)


def test_a_local_folder_is_handed_to_the_worker_by_its_full_path(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert model_place("model", tmp_path) == str(tmp_path / "model")
    assert model_place("owner/model", tmp_path) == "owner/model"


def test_percentiles_are_lengths_that_exist() -> None:
    lengths = summarise({n: n + 1 for n in range(200)})
    assert (lengths.p50, lengths.p95, lengths.p99, lengths.longest) == (100, 190, 198, 200)
    one = summarise({3: 7})
    assert (one.p50, one.p99, one.longest, one.count) == (7, 7, 7, 1)
    assert summarise({}).count == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_length_is_in_exactly_one_bar(seed: int) -> None:
    chance = random.Random(seed)
    lengths = [chance.randrange(10, 400) for _ in range(300)] + ([9000] if seed % 2 else [])
    bars = histogram(lengths)
    assert sum(bar.count for bar in bars) == len(lengths)
    assert all(bar.count == sum(bar.low <= length <= bar.high for length in lengths) for bar in bars)
    assert bars[0].low == min(lengths)
    assert bars[-1].high >= max(lengths)
    assert len(bars) <= 25


@pytest.mark.parametrize(
    ("length", "longer", "words"),
    [(200, 0, "Short: 19 of 20 prompts have at most 200 tokens"), (400, 0, "Usual:"), (600, 90, "Long: 90 of 100")],
)
def test_long_prompts_are_advice_and_never_an_error(length: int, longer: int, words: str) -> None:
    assert advice(summarise({n: length if n < (longer or 97) else 100 for n in range(100)})).startswith(words)
