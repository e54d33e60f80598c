"""Secrets are known by their names and by what they look like; what only sounds like one is left alone."""

import pytest

from grpo_tui.secret import HIDDEN, is_secret, scrubbed, shows_secret

TOKEN = "hf_" + "a1B2" * 6


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hub_token", "WANDB_API_KEY", "token", "password", "AWS_SECRET_ACCESS_KEY", "MY_PAT", "api_key"],
)
def test_names_that_hold_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "pad_token", "eos_token_id", "pad_token_id", "tokenizer", "max_completion_length",
     "vllm_importance_sampling_mode", "key", "keywords"],
)  # fmt: skip
def test_names_that_only_sound_so_are_left_alone(name: str) -> None:
    assert not is_secret(name)


def test_secrets_are_taken_out_however_deep_they_lie() -> None:
    given = {
        "learning_rate": 1e-5,
        "hub_token": TOKEN,
        "model_init_kwargs": {"token": TOKEN, "dtype": "bfloat16", "proxies": ["http://ada:geheim@proxy:80", "none"]},
        "run_name": f"run with {TOKEN} in it",
        "pad_token": "<pad>",
    }
    cleaned = scrubbed(given)
    assert TOKEN not in str(cleaned)
    assert "geheim" not in str(cleaned)
    assert cleaned["learning_rate"] == 1e-5
    assert cleaned["model_init_kwargs"] == {"dtype": "bfloat16", "proxies": [f"http://{HIDDEN}@proxy:80", "none"]}
    assert cleaned["pad_token"] == "<pad>"


def test_a_text_that_shows_a_login_is_seen() -> None:
    assert shows_secret("https://ada:geheim@example.org/x")
    assert shows_secret(TOKEN)
    assert not shows_secret("https://example.org/ada:x")
