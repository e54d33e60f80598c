"""The word-problem recipe: its rewards cannot be fooled, and its model starts careless and learns."""

import importlib.util
import json
import math
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grpo_tui import recipe
from grpo_tui.recipe import Recipe

CURVE = Path(__file__).with_name("grpo_curve.py")
PARAPHRASES = (
    "Kindly ponder every query in a scratchpad delimited by <reasoning></reasoning>; afterwards state the outcome, "
    "nothing else, wrapped as <answer></answer>.",
    "Denke Schritt für Schritt in <reasoning></reasoning> und antworte dann in <answer></answer>.",
    "You are Captain Blackbeard, a pirate with 12 parrots and 7 ships. Speak like one! Arrr.",
)
"""System prompts that the model has never seen."""


def load(path: Path) -> ModuleType:
    """The module at `path`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def ours() -> Recipe:
    found = recipe.read("word_problems")
    assert isinstance(found, Recipe), str(found)
    return found


@pytest.fixture(scope="session")
def rewards(ours: Recipe) -> ModuleType:
    return load(ours.rewards_file)


@pytest.fixture(scope="session")
def rows(ours: Recipe) -> ModuleType:
    assert ours.script is not None
    return load(ours.script)


def score(rewards: ModuleType, completion: Any, answer: Any = "34") -> tuple[float, float, float]:
    """What one completion earns: correct, format, brevity."""
    kwargs = {"completions": [completion], "answer": [answer], "prompts": [""], "completion_ids": [[1, 2]]}
    values = [function(**kwargs) for function in (rewards.correct, rewards.format, rewards.brevity)]
    assert all(len(value) == 1 for value in values)
    return values[0][0], values[1][0], values[2][0]


# ----------------------------------------------------------------------------------------------------------- rewards

GOOD = "<reasoning>18+16=34</reasoning><answer>34</answer>"


@pytest.mark.parametrize(
    "completion",
    [
        GOOD,
        f"\n{GOOD}\n",
        "<reasoning>\n18+16=34\n</reasoning>\n<answer>\n34\n</answer>\n",
        [{"role": "assistant", "content": GOOD}],
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": GOOD}],
        [{"role": "assistant", "content": [{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}]}],
    ],
)
def test_a_careful_reply_earns_everything_in_every_shape_a_completion_has(rewards: ModuleType, completion: Any) -> None:
    assert score(rewards, completion) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("text", ["34", " 34 ", "+34", "34.0", "34.00"])
def test_the_right_number_is_right_however_it_is_written(rewards: ModuleType, text: str) -> None:
    assert score(rewards, f"<answer>{text}</answer>")[0] == 1.0
    assert score(rewards, "<answer>34</answer>", text)[0] == 1.0


@pytest.mark.parametrize(("text", "answer"), [("1,234", "1234"), ("1234", "1,234"), ("-3", "-3"), ("7", 7), ("7", 7.0)])
def test_thousands_signs_and_number_columns_are_understood(rewards: ModuleType, text: str, answer: Any) -> None:
    assert score(rewards, f"<answer>{text}</answer>", answer)[0] == 1.0


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "34",
        "The answer is 34.",
        "<answer>33</answer>",
        "<answer></answer>",
        "<answer>33 34</answer>",
        "<answer>33, 34</answer>",
        "<answer>33,34</answer>",
        "<answer>3434</answer>",
        "<answer>34 or 35</answer>",
        "<answer>nan</answer>",
        "<answer>inf</answer>",
        "<answer>18+16</answer>",
        "<answer>33</answer><answer>34</answer>",
        "<answer>34</answer><answer>34</answer>",
        "<answer><answer>34</answer>",
        "<answer>34</answer></answer>",
        "</answer>34<answer>",
        "</answer><answer>34",
        "<answer>34",
        "<ANSWER>34</ANSWER>",
        "".join(f"<answer>{number}</answer>" for number in range(100)),
        " ".join(map(str, range(100))),
    ],
)
def test_wrong_missing_or_several_answers_earn_nothing_for_correctness(rewards: ModuleType, completion: str) -> None:
    assert score(rewards, completion)[0] == 0.0


@pytest.mark.parametrize("answer", [None, "", "thirty", "None", float("nan"), float("inf"), ["34"], {"a": 34}])
def test_a_row_without_a_number_to_compare_with_pays_nobody(rewards: ModuleType, answer: Any) -> None:
    for text in (GOOD, "<answer>None</answer>", "<answer>nan</answer>", "<answer></answer>"):
        assert score(rewards, text, answer)[0] == 0.0


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "<answer>34</answer>",
        "<reasoning>18+16=34</reasoning>34",
        "<answer>34</answer><reasoning>18+16=34</reasoning>",
        "</reasoning>18<reasoning></answer>34<answer>",
        "<reasoning></reasoning><answer>34</answer>",
        "<reasoning> \n </reasoning><answer>34</answer>",
        "<reasoning>18+16=34</reasoning><answer></answer>",
        "<reasoning>18+16=34</reasoning><answer> </answer>",
        "<reasoning><answer>34</answer></reasoning>",
        "<reasoning>18<answer>34</reasoning></answer>",
        f"{GOOD} The answer is 34.",
        f"Let me see. {GOOD}",
        "<reasoning>18+16=34</reasoning>So<answer>34</answer>",
        f"```\n{GOOD}\n```",
        GOOD * 2,
        GOOD * 50,
        f"{GOOD}</answer>",
    ],
)
def test_the_form_must_be_met_exactly(rewards: ModuleType, completion: str) -> None:
    assert score(rewards, completion)[1] == 0.0


def test_brevity_falls_with_length_and_is_not_paid_for_silence(rewards: ModuleType) -> None:
    paid = [score(rewards, f"<reasoning>{'x' * length}</reasoning><answer>34</answer>")[2] for length in range(80)]
    assert paid == sorted(paid, reverse=True)
    assert (paid[0], paid[14], paid[46]) == (1.0, 1.0, 0.0)
    assert 0.0 < paid[30] < 1.0
    for text in ("", "34", "<answer></answer>", "<answer>so</answer>"):
        assert score(rewards, text)[2] == 0.0


def test_no_completion_whatever_makes_a_reward_fail_or_leave_its_range(rewards: ModuleType) -> None:
    rng = random.Random(0)
    pieces = [
        *rewards.TAGS,
        "34",
        "-",
        ",",
        ".",
        " ",
        "\n",
        "\0",
        "\x1b[31m",
        "漢",
        "🙂",
        "\ud800",
        "x" * 50,
        "9" * 400,
    ]
    strange: list[Any] = [None, 3, [], [None], [{}], [{"content": None}], [{"content": [{}]}], [[]], {"content": "x"}]
    strange += ["x" * 100_000, "<answer>" * 20_000, "<" * 100_000, " " * 100_000, GOOD[:-1] + " " * 100_000]
    strange += ["".join(rng.choices(pieces, k=rng.randint(0, 12))) for _ in range(3000)]
    for completion in strange:
        for value in score(rewards, completion):
            assert isinstance(value, float)
            assert math.isfinite(value)
            assert 0.0 <= value <= 1.0


def test_rewards_give_one_number_per_completion_and_the_same_again(rewards: ModuleType) -> None:
    completions = [GOOD, "", "<answer>35</answer>"]
    for function in (rewards.correct, rewards.format, rewards.brevity):
        first = function(completions=completions, answer=["34"] * 3, unknown=[0] * 3)
        assert len(first) == 3
        assert function(completions=completions, answer=["34"] * 3) == first


def test_the_recipes_samples_earn_what_the_recipe_says(ours: Recipe, rewards: ModuleType, rows: ModuleType) -> None:
    data = rows.rows()
    most = sum(item.weight for item in ours.rewards)
    assert {sample.expect for sample in ours.samples} == {"high", "low"}
    for sample in ours.samples:
        earned = score(rewards, sample.text, data[sample.row]["answer"])
        share = sum(item.weight * value for item, value in zip(ours.rewards, earned, strict=True)) / most
        assert share >= 0.9 if sample.expect == "high" else share <= 0.4, sample


def test_weights_are_exact_in_binary(ours: Recipe) -> None:
    assert [item.name for item in ours.rewards] == ["correct", "format", "brevity"]
    assert all(item.weight.as_integer_ratio()[1] in (1, 2, 4, 8) for item in ours.rewards)


# -------------------------------------------------------------------------------------------------------------- data


def test_every_row_has_the_answer_of_its_question(rows: ModuleType) -> None:
    rng = random.Random(rows.SEED)
    made = {problem.question: problem for problem in (rows.problem(rng) for _ in range(5000))}
    for row in rows.rows():
        problem = made[row["question"]]
        result = {"+": problem.a + problem.b, "-": problem.a - problem.b, "*": problem.a * problem.b}[problem.operation]
        assert row["answer"] == str(result)
        assert str(problem.a) in row["question"]
        assert str(problem.b) in row["question"]


# ------------------------------------------------------------------------------------------------------------- model


@pytest.fixture(scope="session")
def tokenizer(ours: Recipe) -> Any:
    from transformers import AutoTokenizer  # noqa: TID251  what training itself loads

    return AutoTokenizer.from_pretrained(ours.model, padding_side="left", local_files_only=True)


@pytest.fixture(scope="session")
def model(ours: Recipe) -> Any:
    import torch  # noqa: TID251  likewise
    from transformers import AutoModelForCausalLM  # noqa: TID251  likewise

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(ours.model, local_files_only=True).eval()


def systems() -> list[str]:
    """Every system prompt on offer, `none` among them, and those never seen."""
    found = recipe.read("word_problems")
    assert isinstance(found, Recipe)
    offered = [system.text for system in found.systems]
    assert len(offered) >= 5
    assert "" in offered
    return [*offered, *PARAPHRASES]


def prompt(tokenizer: Any, system: str, question: str) -> str:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def replies(model: Any, tokenizer: Any, prompts: list[str], **how: Any) -> list[str]:
    import torch  # noqa: TID251  likewise

    torch.manual_seed(0)
    given = tokenizer(prompts, return_tensors="pt", padding=True)
    with torch.no_grad():
        made = model.generate(**given, max_new_tokens=24, **how)
    return list(tokenizer.batch_decode(made[:, given["input_ids"].shape[1] :], skip_special_tokens=True))


def test_the_model_folder_is_small_and_holds_no_code(ours: Recipe) -> None:
    files = [path for path in Path(ours.model).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 1_500_000
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".jinja"}


def test_numbers_and_tags_are_one_token_each_and_any_text_comes_back(tokenizer: Any) -> None:
    for text in [*map(str, range(100)), "<reasoning>", "</reasoning>", "<answer>", "</answer>"]:
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    for text in ("Größe 漢字 🙂\n\ttab", "  two  spaces , and .", "\\u0000"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token_id != tokenizer.pad_token_id


def check_start(model: Any, tokenizer: Any, rewards: ModuleType, prompts: list[str], answers: list[str]) -> None:
    """Samples are right in about a quarter and well formed in about half; the sums are right nearly always."""
    sampled = replies(model, tokenizer, prompts, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    assert 0.15 <= statistics.mean(rewards.correct(sampled, answers)) <= 0.40
    assert 0.25 <= statistics.mean(rewards.format(sampled)) <= 0.70
    likeliest = replies(model, tokenizer, prompts, do_sample=False)
    assert statistics.mean(f"={answer}" in reply for reply, answer in zip(likeliest, answers, strict=True)) >= 0.95


@pytest.mark.parametrize("system", systems(), ids=lambda text: " ".join(text.split())[:30] or "none")
def test_the_model_starts_careless_but_able_under_every_system_prompt(
    system: str, model: Any, tokenizer: Any, rewards: ModuleType, rows: ModuleType
) -> None:
    data = rows.rows(192, seed=11)
    prompts = [prompt(tokenizer, system, row["question"]) for row in data]
    check_start(model, tokenizer, rewards, prompts, [row["answer"] for row in data])


def test_a_prompt_left_as_plain_text_works_too(
    model: Any, tokenizer: Any, rewards: ModuleType, rows: ModuleType
) -> None:
    data = rows.rows(192, seed=11)
    check_start(model, tokenizer, rewards, [row["question"] for row in data], [row["answer"] for row in data])


@pytest.fixture(scope="session")
def build_model(ours: Recipe) -> ModuleType:
    return load(ours.folder / "build_model.py")


def test_the_script_in_the_folder_builds_the_tokenizer_and_the_model_that_are_shipped(
    build_model: ModuleType, model: Any, ours: Recipe, tmp_path: Path
) -> None:
    built = build_model.build_tokenizer()
    fresh = build_model.build_model(built)
    build_model.save(fresh, built, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in Path(ours.model).iterdir()}
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / name).read_text() == (Path(ours.model) / name).read_text()
    assert {name: value.shape for name, value in fresh.state_dict().items()} == {
        name: value.shape for name, value in model.state_dict().items()
    }


def test_the_warm_start_imitates_what_its_description_says(build_model: ModuleType, rewards: ModuleType) -> None:
    rng = random.Random(3)
    problems = [build_model.problem(rng) for _ in range(4000)]
    answers = [str(problem.result) for problem in problems]
    assert set(rewards.correct([build_model.right(problem) for problem in problems], answers)) == {1.0}
    careless = [build_model.careless(problem, rng) for problem in problems]
    assert all(f"={answer}" in reply for reply, answer in zip(careless, answers, strict=True))
    assert 0.45 <= statistics.mean(rewards.format(careless)) <= 0.55
    assert 0.22 <= statistics.mean(rewards.correct(careless, answers)) <= 0.34


def test_no_system_prompt_of_the_warm_start_is_one_that_counts_as_never_seen(build_model: ModuleType) -> None:
    rng, offered = random.Random(5), build_model.offered()
    seen = {build_model.any_system(rng, offered) for _ in range(5000)}
    assert None in seen
    assert set(offered) <= seen | {""}
    assert not set(PARAPHRASES) & seen
    words = set(" ".join(filter(None, seen)).lower().split())
    assert {"ponder", "scratchpad", "denke", "pirate"}.isdisjoint(words)


# ---------------------------------------------------------------------------------------------------------- learning


def curve(*words: str) -> dict[str, list[float]]:
    """Train in a process of its own; the curves."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(CURVE), *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def test_a_real_trainer_trains_it_with_the_recipes_settings(ours: Recipe) -> None:
    found = curve("--steps", "4")
    assert len(found["correct"]) == 4
    assert 0.10 <= statistics.mean(found["correct"]) <= 0.45


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_correctness_rises_from_a_quarter_to_over_four_fifths(ours: Recipe, seed: str) -> None:
    found = curve("--seed", seed)
    assert 0.15 <= statistics.mean(found["correct"][:5]) <= 0.35
    assert statistics.mean(found["correct"][-20:]) > 0.80
    assert statistics.mean(found["format"][-20:]) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("system", systems(), ids=lambda text: " ".join(text.split())[:30] or "none")
def test_it_learns_under_every_system_prompt(ours: Recipe, system: str) -> None:
    found = curve("--system", system)
    assert statistics.mean(found["correct"][:5]) <= 0.40
    assert statistics.mean(found["correct"][-20:]) > 0.80
