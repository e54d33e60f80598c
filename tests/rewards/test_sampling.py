"""Completions of a model that is here, sampled as a training samples them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_tui.child import Worker
from grpo_tui.problem import Problem
from grpo_tui.rewards.sampling import LocalModel, SampleRequest, Samples, sample, start_sampler
from tests.plan.tiny import write_tiny_model

CHAT = ({"role": "user", "content": "2+2?"},)
RECIPE = Path(__file__).parents[2] / "recipes" / "word_problems" / "model"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    folder = write_tiny_model(tmp_path_factory.mktemp("sampling") / "model")
    return LocalModel(name=str(folder), device="cpu")


@pytest.fixture(scope="module")
def sampler(tiny: LocalModel) -> Iterator[Worker]:
    with start_sampler(tiny) as worker:
        yield worker


def sampled(worker: Worker, model: LocalModel, **more: object) -> Samples:
    request = SampleRequest(**{"prompts": (CHAT, CHAT), "generations": 3, "max_completion_length": 6, **more})  # type: ignore[arg-type]  # the fields of SampleRequest
    samples = sample(worker, model, request)
    assert not isinstance(samples, Problem), str(samples)
    return samples


def test_each_prompt_gets_its_group_and_progress_is_told(sampler: Worker, tiny: LocalModel) -> None:
    told: list[tuple[int, int]] = []
    request = SampleRequest(prompts=(CHAT, CHAT, CHAT), generations=2, max_completion_length=4)
    few = LocalModel(name=tiny.name, device="cpu", batch=4)
    samples = sample(sampler, few, request, lambda done, of: told.append((done, of)))
    assert isinstance(samples, Samples)
    assert len(samples.completions) == 6
    assert told == [(4, 6), (6, 6)]
    assert samples.origin.endswith("on cpu, float32")


def test_the_same_seed_gives_the_same_completions_and_another_others(sampler: Worker, tiny: LocalModel) -> None:
    first, again, other = (sampled(sampler, tiny, seed=seed) for seed in (1, 1, 2))
    assert first.texts == again.texts
    assert first.texts != other.texts


def test_the_completions_of_one_prompt_differ(sampler: Worker, tiny: LocalModel) -> None:
    assert len(set(sampled(sampler, tiny, generations=8).texts[:8])) > 1


def test_a_finished_completion_keeps_its_end_token_and_a_cut_one_has_none(sampler: Worker) -> None:
    model = LocalModel(name=str(RECIPE), device="cpu")
    question = ({"role": "user", "content": "Ana has 3 pens and gets 4 more. How many pens now?"},)
    whole = sampled(sampler, model, prompts=(question,), generations=8, max_completion_length=24)
    assert {each.ids[-1] for each in whole.completions if each.ids and each.finished} == {2}  # <|im_end|>
    assert sum(bool(each.finished) for each in whole.completions) > 4
    assert "<|im_end|>" not in "".join(whole.texts)
    cut = sampled(sampler, model, prompts=(question,), max_completion_length=3)
    assert [each.finished for each in cut.completions] == [False] * 3
    assert [len(each.ids or ()) for each in cut.completions] == [3] * 3
    assert cut.cut_share == 1.0


def test_plain_text_is_continued_as_it_stands(sampler: Worker, tiny: LocalModel) -> None:
    assert len(sampled(sampler, tiny, prompts=("one", "two", "three")).completions) == 9


def test_prompts_of_different_length_in_one_batch_do_not_disturb_each_other(sampler: Worker) -> None:
    """Nearly greedy, so that a prompt's completion depends on nothing but the prompt."""
    model = LocalModel(name=str(RECIPE), device="cpu")
    short = ({"role": "user", "content": "Sam finds 8 toys, then 6 more. How many toys in total?"},)
    long = ({"role": "system", "content": "Reason, then answer. " * 5}, *short)
    cold = {"generations": 1, "max_completion_length": 24, "temperature": 1e-4}
    alone = sampled(sampler, model, prompts=(short,), **cold).texts
    assert sampled(sampler, model, prompts=(long, short), **cold).texts[1:] == alone


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"prompts": ()}, "no prompt"),
        ({"prompts": (CHAT, "text")}, "Some prompts are text"),
        ({"generations": 0}, "Nothing would be generated"),
        ({"temperature": 0.0}, "all completions of a prompt are alike"),
        ({"max_completion_length": 500}, "the model takes 256"),
    ],
)
def test_what_cannot_be_sampled_is_said_before(
    sampler: Worker, tiny: LocalModel, more: dict[str, object], what: str
) -> None:
    request = SampleRequest(**{"prompts": (CHAT,), "generations": 2, "max_completion_length": 4, **more})  # type: ignore[arg-type]  # the fields of SampleRequest
    problem = sample(sampler, tiny, request)
    assert isinstance(problem, Problem)
    assert what in problem.what


@pytest.mark.parametrize(
    ("name", "what"), [("nobody/not-in-the-cache", "complete in the local cache"), ("", "cannot be loaded")]
)
def test_a_model_that_is_not_here_is_named(sampler: Worker, tmp_path: Path, name: str, what: str) -> None:
    place = name or str(tmp_path)
    problem = sample(
        sampler, LocalModel(name=place, device="cpu"), SampleRequest(prompts=(CHAT,), max_completion_length=4)
    )
    assert isinstance(problem, Problem)
    assert problem.where == f"model {place}"
    assert what in problem.what


def test_a_model_without_a_chat_template_takes_no_messages(sampler: Worker, tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "base")
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace("chat_template", "no_template"))
    request = SampleRequest(prompts=(CHAT,), max_completion_length=4)
    problem = sample(sampler, LocalModel(name=str(folder), device="cpu"), request)
    assert isinstance(problem, Problem)
    assert "no chat template" in problem.what


def test_sampling_can_be_cancelled_while_it_runs(tiny: LocalModel) -> None:
    with start_sampler(tiny) as worker:
        request = SampleRequest(prompts=(CHAT,) * 64, generations=8, max_completion_length=100)
        one = LocalModel(name=tiny.name, device="cpu", batch=1)
        problem = sample(worker, one, request, lambda done, of: worker.cancel())
        assert isinstance(problem, Problem)
        assert "cancelled" in problem.what
