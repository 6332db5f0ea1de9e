"""What the foreground processes do besides waiting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

from fedgkd.federation import processes
from fedgkd.federation.ask import NoAnswer, ask
from fedgkd.federation.processes import NoTrainer, how_it_ended, tidy


def test_folders_of_old_jobs_are_removed_and_nothing_else(tmp_path: Path) -> None:
    jobs = [str(UUID(int=number)) for number in range(5)]
    for age, name in enumerate([*jobs, "run", "startup"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*jobs[2:], "run", "startup"]


def keep_looking(folder: Path, script: str, seconds: float = 60.0) -> str:
    """Look after a training process until it is given up; the reason."""
    until = time.monotonic() + seconds
    with processes._Trainer([sys.executable, "-c", script, str(folder)], folder, folder / "worker") as trainer:
        while time.monotonic() < until:
            try:
                trainer.look()
            except NoTrainer as reason:
                return str(reason)
            time.sleep(0.05)
    raise AssertionError("it was never given up")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SHORT", 0.1)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise SystemExit(7)", "it ended with code 7"),
        ("import os; os.kill(os.getpid(), 9)", "it was killed (signal 9, perhaps for want of memory)"),
    ],
)
def test_a_training_process_that_cannot_start_is_given_up_after_three_tries(
    script: str, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = keep_looking(tmp_path, f"open('tries', 'a').write('x')\n{script}")
    assert (tmp_path / "tries").read_text() == "xxx"
    assert told.startswith("the training process died 3 times in a row: ")
    assert reason in told
    assert capfd.readouterr().out.count("it is started again") == 2
    if "no_such" in script:
        assert "Traceback" in (tmp_path / "errors.txt").read_text(), "all of it is kept for who wants to know more"


def test_an_answer_in_between_makes_the_tries_count_anew(tmp_path: Path) -> None:
    """Dies six times, and has answered before the third."""
    script = (
        "open('tries', 'a').write('x')\n"
        "import pathlib, sys\n"
        "if len(open('tries').read()) == 3: (pathlib.Path(sys.argv[1]) / 'answered').touch()\n"
        "raise SystemExit(1)"
    )
    keep_looking(tmp_path, script)
    assert (tmp_path / "tries").read_text() == "xxxxx"


def test_who_is_given_something_unusable_is_told_at_once(tmp_path: Path) -> None:
    told = keep_looking(tmp_path, "import sys; print('no such graph', file=sys.stderr); raise SystemExit(2)")
    assert told == "no such graph"


def test_a_signal_is_named() -> None:
    assert how_it_ended(-signal.SIGTERM) == "it was killed (signal 15)"


def test_a_site_that_cannot_train_tells_whoever_asks(tmp_path: Path) -> None:
    address = tmp_path / "worker"
    heard = []

    def coordinator() -> None:
        for question in (b"a round that has ended", b"another", b"the next"):
            with pytest.raises(NoAnswer) as reason:
                ask(str(address), question)
            heard.append(str(reason.value))

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as connection:
        asking = Thread(target=coordinator)
        asking.start()
        processes._tell("the disk is full", address, connection)
        asking.join()
        connection.kill()
    assert heard == ["the disk is full"] * 3
    with closing(socket.socket(socket.AF_UNIX)) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(address))
