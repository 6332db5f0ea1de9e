"""A command in odd surroundings: streams that are closed or full, poor encodings, and Ctrl-C at any time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FEDGKD = (sys.executable, "-m", "fedgkd")
SMALL = ("synthetic", "--synthetic", "num_nodes=100", "num_classes=2")


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line for the shell, in which ``fedgkd`` is this one."""
    line = f'fedgkd() {{ "{sys.executable}" -m fedgkd "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=os.environ | environment, check=False
    )


@pytest.mark.parametrize("command", ["data list", "data list --json", "--help", "run --explain"])
@pytest.mark.parametrize(
    ("where", "reason"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_an_output_that_takes_nothing(command: str, where: str, reason: str) -> None:
    done = shell(f"fedgkd {command} {where}")
    assert (done.returncode, done.stderr) == (2, f"error: cannot write to the standard output: {reason}\n")


def test_a_reader_that_goes_away() -> None:
    done = shell("fedgkd run --explain --json | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout.strip(), done.stderr) == ("141", "")


@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-"])
def test_errors_that_nobody_can_read(where: str) -> None:
    assert shell(f"fedgkd data show nothing {where}").returncode == 2


def test_a_run_goes_on_when_its_progress_cannot_be_written(tmp_path: Path) -> None:
    run = f"run --dataset {' '.join(SMALL)} --clients 2 --rounds 2 --set hidden=4 --json --out {tmp_path / 'run'}"
    done = shell(f"fedgkd {run} 2> /dev/full")
    assert (done.returncode, json.loads(done.stdout)["rounds"]) == (0, 2)


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "LANG": "C"}])
def test_an_output_with_few_letters(environment: dict[str, str], tmp_path: Path) -> None:
    for command in ("--help", "data list", "data list --json", f"data show {' '.join(SMALL)}"):
        done = shell(f"fedgkd {command}", **environment)
        assert (done.returncode, done.stderr) == (0, "")
    done = shell(f"fedgkd data show '{tmp_path / 'größer'}'", **environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_json_stays_json_in_ascii(tmp_path: Path) -> None:
    folder = tmp_path / "größer 😀"
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,a,label\n0,1,x\n1,2,y\n")
    (folder / "edges.csv").write_text("source,target\n0,1\n")
    done = shell(f"fedgkd data show '{folder}' --json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["name"] == str(folder)


@pytest.mark.parametrize("width", ["0", "1", "7", "-5", "x", "²", "٣", "99999999999"])
def test_odd_widths(width: str) -> None:
    done = shell(f"fedgkd data list; fedgkd data show {' '.join(SMALL)}; fedgkd --help", COLUMNS=width)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Traceback" not in shell("fedgkd --help", TERMINAL_WIDTH=width, LINES=width, TERM="dumb").stderr


def test_arguments_that_are_no_text() -> None:
    done = subprocess.run([*FEDGKD, "data", "show", b"gr\xff\xfe"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: the argument 'gr\\udcff\\udcfe' is not text in UTF-8\n")


@pytest.mark.parametrize("seed", range(12))
def test_ctrl_c_at_any_time(seed: int, tmp_path: Path) -> None:
    """While modules are imported, too: no traceback, and the code that shells know."""
    pipe = subprocess.PIPE
    command = [*FEDGKD, "run", "--dataset", *SMALL, "--clients", "2", "--rounds", "100000", "--out", tmp_path / "run"]
    command += ["--set", "patience=0"]  # or a fast machine is done before it is stopped
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        _until_python_has_started(process.pid)
        time.sleep(random.Random(seed).uniform(0, 4) * seed / 12)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
    assert "stopped" in said.splitlines()[-1]


def _until_python_has_started(process: int) -> None:
    """Before, in the first 0.1 s of its work, Python itself answers Ctrl-C."""
    status = Path(f"/proc/{process}/stat")
    while sum(map(int, status.read_text().rpartition(")")[2].split()[11:13])) < 0.15 * os.sysconf("SC_CLK_TCK"):
        time.sleep(0.005)


def test_ctrl_c_stays_ignored_in_the_background() -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from fedgkd.cli import app, main\n"
        "@app.command()\ndef tell() -> None:\n    os.kill(os.getpid(), signal.SIGINT)\n    print('still here')\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code, "tell"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "still here\n")


@pytest.mark.parametrize("kilobytes", [250_000, 400_000, 600_000, 750_000])
@pytest.mark.parametrize("command", ["run --dataset", "data show"])
def test_little_memory(command: str, kilobytes: int, tmp_path: Path) -> None:
    """Libraries end such a process by themselves, or wait for ever; so it is said before they are imported."""
    done = shell(
        f"ulimit -v {kilobytes}; cd {tmp_path}; timeout 60 {sys.executable} -m fedgkd {command} {' '.join(SMALL)}"
    )
    if command == "data show" and kilobytes >= 600_000:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 2
        assert done.stderr.startswith("error: there is not enough memory: this command needs ")
        assert done.stderr.count("\n") == 1


def test_a_working_directory_that_is_gone() -> None:
    done = shell(f"cd $(mktemp -d); rmdir $PWD; fedgkd run --dataset {' '.join(SMALL)}")
    assert done.returncode == 2
    assert done.stderr == "error: the working directory does not exist any more; change to one that does\n"


@pytest.mark.parametrize("environment", ["", "HOME=/nonexistent", "TERM=dumb", "PATH=/nowhere"])
def test_an_environment_with_next_to_nothing(environment: str, tmp_path: Path) -> None:
    for command in ("data list", f"data show {' '.join(SMALL)}", "--help"):
        done = shell(f"cd '{tmp_path}'; env -i {environment} '{sys.executable}' -m fedgkd {command}")
        assert (done.returncode, done.stderr) == (0, "")
