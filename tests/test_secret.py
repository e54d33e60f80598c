"""Secrets are known by their names and by what they look like; what only sounds like one is left alone."""

import os
import subprocess
import sys

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


BLANKED = """
import os, subprocess, sys
from pathlib import Path
shown = lambda: Path("/proc/self/environ").read_bytes()
before = shown()
os.environ["SET_LATER_TOKEN"] = "set-later"
{blank}
inherited = subprocess.run(["printenv", "HF_TOKEN"], capture_output=True, text=True, check=True).stdout
kept = os.environ["HF_TOKEN"] == "hf_secret" == inherited.strip() and os.environ["SET_LATER_TOKEN"] == "set-later"
print(b"hf_secret" in before, b"hf_secret" in shown(), b"/ordinary" in shown(), kept)
"""

BLANK = "from grpo_tui.secret import blank_environment; blank_environment(); blank_environment()"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems show no environment of a process")
@pytest.mark.parametrize(
    ("blank", "shown"),
    [
        ("", "True True True True"),
        (BLANK, "True False True True"),
        ("from grpo_tui.__main__ import main; main(['recipes'])", "True False True True"),
    ],
    ids=["untouched", "blanked", "the program"],
)
def test_other_processes_are_not_shown_the_secrets_which_the_program_keeps(blank: str, shown: str) -> None:
    environment = {**os.environ, "HF_TOKEN": "hf_secret", "ORDINARY": "/ordinary"}
    command = [sys.executable, "-c", BLANKED.format(blank=blank)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == shown
