"""`grpo-tui doctor` says what is fine and what to do, to people and to scripts."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_tui.__main__ import main
from grpo_tui.commands import doctor
from grpo_tui.hardware.environment import Check, Environment
from grpo_tui.hardware.machine import GPU, GPUProcess, Machine
from grpo_tui.plan import overhead

GIB = 2**30
H200 = GPU(
    index=0, uuid="GPU-11111111-2222-3333-4444-555555555555", name="NVIDIA H200", total_bytes=141 * GIB,
    free_bytes=111 * GIB, used_bytes=30 * GIB, cuda_index=0, capability=(9, 0), utilisation=97, temperature=61,
    power_watts=512.4, power_limit_watts=700.0,
    processes=(
        GPUProcess(pid=1204417, name="another process namespace", user="", used_bytes=30 * GIB, elsewhere=True),
    ),
)  # fmt: skip
SLICE = replace(
    H200, index=None, uuid="MIG-1", name="A100 MIG 1g.10gb", mig=True, parent="A100", utilisation=None, visible=False,
    cuda_index=None, total_bytes=None, processes=(),
)  # fmt: skip
MACHINE = Machine(gpus=(H200, SLICE), driver="580.65.06", kind="nvidia", host="node7", memory_total_bytes=64 * GIB)
ENVIRONMENT = Environment(
    python="3.12.1", system="linux", architecture="x86_64", versions={"trl": "1.16.0", "torch": "2.13.0"}, tokens={}
)
FOUND = [
    Check("a", "ok", "All is well"),
    Check("b", "warn", "A long sentence about something that is not quite right, " * 3, "Mend it soon."),
    Check("c", "fail", "Broken", "Repair it."),
]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project that are not the developer's."""
    for name in (
        "XDG_CONFIG_HOME",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_TOKEN_PATH",
        "WANDB_API_KEY",
        "NETRC",
        "HF_HUB_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(width: int = 80, *, coloured: bool = False) -> list[str]:
    return list(doctor.report(MACHINE, ENVIRONMENT, FOUND, width, coloured=coloured))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = [line for line in lines(width) if len(line) > width and " " in line.strip()]
    assert wide == []


def test_a_level_is_a_glyph_and_a_word_and_the_next_step_follows() -> None:
    text = "\n".join(lines())
    assert "✓ ok    All is well" in text
    assert "✗ fail  Broken\n        → Repair it." in text
    assert "! warn  A long" in text
    assert lines()[-1] == "1 ok, 1 warn, 1 fail"


def test_colour_is_an_extra_only() -> None:
    assert "\x1b" not in "\n".join(lines())
    coloured = "\n".join(lines(coloured=True))
    assert coloured.replace("\x1b[32m", "").replace("\x1b[33m", "").replace("\x1b[31m", "").replace("\x1b[0m", "") == (
        "\n".join(lines())
    )


def test_a_gpu_shows_all_that_is_known_and_what_is_not() -> None:
    text = " ".join("\n".join(lines()).split())
    for words in (
        "0 NVIDIA H200 · CUDA 0 · GPU-11111111", "141.0 GiB, 111.0 GiB free", "capability 9.0", "busy 97 %", "61 °C",
        "512 of 700 W", "1204417 another process namespace 30.0 GiB", "memory unknown", "slice of A100", "n/a (MIG)",
        "hidden from CUDA programs",
    ):  # fmt: skip
        assert words in text


def test_json_is_one_object_with_the_promised_keys(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"gpus", "versions", "checks"} <= set(told)
    assert "trl" in told["versions"]
    assert {tuple(check) for check in told["checks"]} == {("id", "level", "text", "remedy")}
    assert status == (2 if any(check["level"] == "fail" for check in told["checks"]) else 0)


def test_json_of_a_gpu_has_the_promised_keys() -> None:
    told = json.loads(json.dumps(doctor.as_json(MACHINE, ENVIRONMENT, FOUND)))
    promised = {
        "index", "uuid", "name", "total_bytes", "free_bytes", "visible", "unified", "mig", "capability", "processes",
    }  # fmt: skip
    assert promised <= set(told["gpus"][0])
    assert told["gpus"][0]["capability"] == [9, 0]
    assert told["gpus"][1]["total_bytes"] is None


def test_people_read_the_same_in_eighty_columns(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    out = capsys.readouterr().out
    assert "trl 1." in out
    assert "ok    " in out
    assert max(len(line) for line in out.splitlines() if str(elsewhere) not in line) <= 80


@pytest.mark.parametrize(("level", "status"), [("ok", 0), ("warn", 0), ("fail", 2)])
def test_the_status_is_two_when_anything_fails(
    level: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "look", lambda project: (MACHINE, ENVIRONMENT, [Check("x", level, "so it is")]))
    assert doctor.execute(argparse.Namespace(json=False, forget=False, project=Path())) == status
    assert "so it is" in capsys.readouterr().out


def test_no_token_is_printed(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_made_up_secret")
    (elsewhere / ".netrc").write_text("machine api.wandb.ai login user password made_up_secret\n")
    main(["doctor"])
    main(["doctor", "--json"])
    out = capsys.readouterr().out
    assert "made_up_secret" not in out
    assert '"Hugging Face": true' in out
    assert '"Weights & Biases": true' in out


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    for line in lines():
        plain = doctor._plain(line, "ascii")
        assert plain.isascii()
    assert doctor._plain("✓ ok  → go", "ascii") == "+ ok  > go"


def teach(runs: int, gpu: str = H200.name) -> None:
    """As if so many runs had ended well on this machine."""
    for number in range(runs):
        problem = overhead.keep(
            overhead.Measured(
                gpu=gpu, torch="2.13.0", context_bytes=GIB // 2, fragmentation=0.04, run=f"/runs/{number}", began=number
            )
        )
        assert problem is None


def told() -> list[Check]:
    return doctor.overhead_checks(MACHINE, ENVIRONMENT)


def test_what_runs_taught_is_said_beside_what_was_published(elsewhere: Path) -> None:
    assert told() == []
    teach(3, "another card")
    assert told() == []
    teach(2)
    (few,) = told()
    assert few.text == "NVIDIA H200: 2 of 3 runs measured from which the memory beside tensors is learnt."
    teach(4)
    (check,) = told()
    assert (check.level, check.text) == (
        "ok",
        "NVIDIA H200: overhead learnt from 4 runs on this machine: 0.5 GiB instead of 0.8, and 4% of what comes and"
        " goes instead of 11%.",
    )


def test_what_cannot_be_read_of_it_is_a_warning_and_stops_nothing(elsewhere: Path) -> None:
    file = overhead.overhead_file()
    file.parent.mkdir(parents=True)
    file.write_text("run = ")
    (check,) = told()
    assert (check.id, check.level) == ("overhead", "warn")
    assert "doctor --forget" in check.remedy


def test_it_forgets_when_told_to(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teach(3)
    assert main(["doctor", "--forget"]) == 0
    assert "is forgotten" in capsys.readouterr().out
    assert overhead.read() == ()
    assert main(["doctor", "--forget", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"forgotten": False}


def test_it_changes_nothing(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    assert list(elsewhere.iterdir()) == []
