"""``fedgkd`` itself: help at once, errors in one sentence, the right exit codes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from fedgkd import __version__
from fedgkd.cli import app
from fedgkd.cli.console import ErrorsInOneSentence
from fedgkd.errors import DataError

HEAVY = ("torch", "numpy", "scipy", "networkx", "pymetis", "pooch")


def fedgkd(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "from fedgkd.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "100"} | environment,
        check=False,
    )


@pytest.mark.parametrize("command", ["", "data", "data list", "data fetch", "data show", "data stats", "partition"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\nfrom fedgkd.cli import app\ntry:\n    app(sys.argv[1:])\nfinally:\n"
        f"    print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
    assert done.stdout.rstrip().endswith("heavy: []")


def test_help_takes_less_than_a_second_of_work() -> None:
    """Processor time of the child, which a busy machine does not stretch as it does the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert fedgkd("--help").returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_version() -> None:
    done = fedgkd("--version")
    assert (done.returncode, done.stdout) == (0, f"fedgkd {__version__}\n")


def test_no_command_shows_the_help() -> None:
    found = CliRunner().invoke(app, [])
    assert "Usage:" in found.output
    assert "partition" in found.output


@pytest.mark.parametrize("args", ["--bogus", "data list --bogus", "data stats cora --client 5", "dat list", "data lst"])
def test_unknown_words_are_errors(args: str) -> None:
    done = fedgkd(*args.split())
    assert done.returncode == 2
    assert "No such" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_one_sentence_on_stderr() -> None:
    done = fedgkd("data", "show", "no [bold]such[/bold] thing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: 'no [bold]such[/bold] thing' is neither a dataset (cora, ")
    assert done.stderr.count("\n") == 1


def small_app(problem: BaseException) -> typer.Typer:
    small = typer.Typer(cls=ErrorsInOneSentence, pretty_exceptions_enable=False)

    @small.command()
    def fail() -> None:
        raise problem

    @small.command()
    def other() -> None:
        pass

    return small


@pytest.mark.parametrize(
    ("problem", "code", "sentence"),
    [
        (DataError("the file is empty"), 2, "error: the file is empty\n"),
        (PermissionError(13, "Permission denied", "/locked"), 2, "error: /locked: permission denied\n"),
        (KeyboardInterrupt(), 130, "\nstopped by Ctrl-C\n"),
    ],
)
def test_exit_codes(problem: BaseException, code: int, sentence: str) -> None:
    found = CliRunner().invoke(small_app(problem), ["fail"])
    assert (found.exit_code, found.stdout, found.stderr) == (code, "", sentence)


def test_a_bug_keeps_its_traceback() -> None:
    found = CliRunner().invoke(small_app(ZeroDivisionError()), ["fail"])
    assert isinstance(found.exception, ZeroDivisionError)


def test_ctrl_c_ends_a_running_command() -> None:
    code = (
        "import time\nfrom fedgkd.cli import app, main\n"
        "@app.command()\ndef wait() -> None:\n    print('waiting', flush=True)\n    time.sleep(60)\nmain()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code, "wait"], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "\nstopped by Ctrl-C\n"


def test_ctrl_c_in_a_destructor_is_not_forgotten() -> None:
    code = (
        "import time\nfrom fedgkd.cli import app, main\n"
        "class Dying:\n    def __del__(self) -> None:\n        raise KeyboardInterrupt\n"
        "@app.command()\ndef wait() -> None:\n    Dying()\n    time.sleep(60)\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code, "wait"], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (130, "\nstopped by Ctrl-C\n")


def test_other_errors_in_a_destructor_are_shown() -> None:
    code = (
        "from fedgkd.cli import app, main\n"
        "class Dying:\n    def __del__(self) -> None:\n        raise ZeroDivisionError\n"
        "@app.command()\ndef end() -> None:\n    Dying()\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code, "end"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr


def test_shell_completion() -> None:
    words = {"_FEDGKD_COMPLETE": "complete_bash", "COMP_WORDS": "fedgkd data show ph", "COMP_CWORD": "3"}
    code = "from fedgkd.cli import app; app(prog_name='fedgkd')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | words, check=False
    )
    assert done.stdout.strip() == "photo"
