"""The command line: help, versions, and what it says where there is no terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_tui import __version__, state, terminal
from grpo_tui.__main__ import COMMANDS, chosen_command, main
from grpo_tui.draft import Done, Draft

PROGRAM = [sys.executable, "-m", "grpo_tui"]
ALTERNATE_ON, ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user in a real terminal."""
    home = tmp_path / "home"
    home.mkdir()
    names = ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME")
    return {**os.environ, **dict.fromkeys(names, str(home)), "TERM": "xterm-256color", "LANG": "C.UTF-8"}


def run(*words: str, environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """The program as cron would start it."""
    return subprocess.run(
        [*PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, env=environ, cwd=cwd, timeout=60, check=False
    )


class Terminal:
    """The program in a real terminal of 80×24."""

    def __init__(self, *words: str, environ: dict[str, str], cwd: Path) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(PROGRAM[0], [*PROGRAM, *words], environ)
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self.descriptor, False)
        self.output = b""

    def read(self) -> bytes:
        """Everything that came so far."""
        try:
            while block := os.read(self.descriptor, 65536):
                self.output += block
        except (BlockingIOError, OSError):
            pass
        return self.output

    def wait_for(self, text: bytes, seconds: float = 60) -> None:
        """Until the program has written this."""
        for _ in range(int(seconds / 0.05)):
            if text in self.read():
                return
            time.sleep(0.05)
        raise AssertionError(f"never: {text!r} in {self.output[-2000:]!r}")

    def wait(self, seconds: float = 60) -> int:
        """The exit status, as the shell counts it."""
        for _ in range(int(seconds / 0.05)):
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read()
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it never ended")


@pytest.mark.parametrize("term", ["xterm-256color", "dumb", ""])
def test_without_a_terminal_it_names_the_commands_for_scripts(
    tmp_path: Path, environ: dict[str, str], term: str
) -> None:
    done = run(environ={**environ, "TERM": term}, cwd=tmp_path)
    assert done.returncode == 2
    assert b"grpo-tui run --yes" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


def test_without_a_terminal_it_says_how_far_the_project_is(tmp_path: Path, environ: dict[str, str]) -> None:
    assert state.save(tmp_path, Draft(done={"task": Done(at="2026-01-01T00:00:00+00:00")})) is None
    assert b"Done: Task." in run(environ=environ, cwd=tmp_path).stdout


def test_a_dumb_terminal_gets_plain_words(tmp_path: Path, environ: dict[str, str]) -> None:
    program = Terminal(environ={**environ, "TERM": "dumb"}, cwd=tmp_path)
    assert program.wait() == 2
    assert b"\x1b" not in program.output


def test_every_command_has_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0, name
        assert f"grpo-tui {name}" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"grpo-tui {__version__}\n"


@pytest.mark.parametrize(
    ("words", "command"),
    [(["doctor", "--json"], "doctor"), (["--project", "runs", "watch"], "watch"), (["--ascii"], None), ([], None)],
)
def test_the_command_is_found_behind_options(words: list[str], command: str | None) -> None:
    assert chosen_command(words) == command


def test_windows_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main([]) == 2
    assert "WSL" in capsys.readouterr().err


def test_a_fault_of_ours_ends_in_a_report_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def broken(args: object) -> int:
        raise RuntimeError("a wire is loose")

    monkeypatch.setattr("grpo_tui.commands.runs.execute", broken)
    assert main(["runs"]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    [report] = (tmp_path / "grpo-tui").glob("crash-*.txt")
    assert str(report) in said.err
    assert "a wire is loose" in report.read_text()


def test_a_fault_behind_the_screen_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    class Broken:
        crash = "Traceback: something"
        unsaved = ""
        return_code = 1

        def run(self, *, mouse: bool) -> str | None:
            return None

    assert terminal.run_screen(Broken()) == 1
    assert "something" in next((tmp_path / "grpo-tui").iterdir()).read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(tmp_path: Path, environ: dict[str, str], number: signal.Signals) -> None:
    program = Terminal("--project", "demo", environ=environ, cwd=tmp_path)
    program.wait_for(b"What shall the model learn")
    os.kill(program.pid, number)
    assert program.wait() == 128 + number
    for sequence in (ALTERNATE_OFF, b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b[?25h"):
        assert sequence in program.output.rpartition(ALTERNATE_ON)[2], sequence


def test_q_leaves_and_says_what_is_done(tmp_path: Path, environ: dict[str, str]) -> None:
    program = Terminal("--project", "demo", "--no-mouse", environ=environ, cwd=tmp_path)
    program.wait_for(b"What shall the model learn")
    os.write(program.descriptor, b"q")
    assert program.wait() == 0
    assert b"Go on with:\r\n  grpo-tui --project demo" in program.output.rpartition(ALTERNATE_OFF)[2]
    assert b"\x1b[?1000h" not in program.output


def test_a_second_instance_is_told_who_has_the_project(tmp_path: Path, environ: dict[str, str]) -> None:
    first = Terminal("--project", "demo", environ=environ, cwd=tmp_path)
    first.wait_for(b"What shall the model learn")
    second = Terminal("--project", "demo", environ=environ, cwd=tmp_path)
    second.wait_for(b"open elsewhere")
    second.wait_for(str(first.pid).encode())
    os.write(second.descriptor, b"\r")  # look only
    second.wait_for(b"read only")
    for program in (second, first):
        os.write(program.descriptor, b"q")
        assert program.wait() == 0


def test_a_script_is_told_of_wrong_arguments_in_its_language(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["runs", "--nonsense", "--json"]
    monkeypatch.setattr(sys, "argv", ["grpo-tui", *words])
    with pytest.raises(SystemExit) as leaving:
        main(words)
    assert leaving.value.code == 2
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "--nonsense" in problem["what"]
