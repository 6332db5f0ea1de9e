"""Questions to a training process over a local socket: answered, refused, or asked again when it dies."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedgkd.errors import RunError
from fedgkd.federation import worker
from fedgkd.federation.ask import NoAnswer, ask
from fedgkd.federation.wire import FAILED, OK, receive, send
from tests.federation.memory import make_plan
from tests.graphs import planted_federation


@contextmanager
def trainer(*lives: Callable[[socket.socket], None]) -> Iterator[str]:
    """A process stand-in whose n-th connection is served by the n-th of ``lives``."""
    with TemporaryDirectory(prefix="fedgkd-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = str(Path(folder) / "worker")
        listener.bind(address)
        listener.listen()

        def serve() -> None:
            for live in lives:
                connection, _ = listener.accept()
                with connection:
                    live(connection)
            listener.close()  # one question too many is refused and not waited for

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield address


def answers(connection: socket.socket) -> None:
    send(connection, OK + receive(connection)[::-1])


def refuses(connection: socket.socket) -> None:
    receive(connection)
    send(connection, FAILED + b"not agreed on")


def dies(connection: socket.socket) -> None:
    receive(connection)


def dies_while_answering(connection: socket.socket) -> None:
    receive(connection)
    connection.sendall((100).to_bytes(8, "little") + b"half")


def takes_its_time(connection: socket.socket) -> None:
    time.sleep(0.5)
    answers(connection)


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_an_answer_comes_back(size: int) -> None:
    question = b"ab" * size
    with trainer(answers) as address:
        assert ask(address, question) == question[::-1]


def test_a_slow_answer_is_waited_for() -> None:
    with trainer(takes_its_time) as address:
        assert ask(address, b"ab") == b"ba"


def test_a_refusal_is_passed_on() -> None:
    with trainer(refuses) as address, pytest.raises(NoAnswer, match="not agreed on"):
        ask(address, b"ab")


@pytest.mark.parametrize("death", [dies, dies_while_answering])
def test_a_process_that_dies_is_asked_again(death: Callable[[socket.socket], None]) -> None:
    with trainer(death, answers) as address:
        assert ask(address, b"ab") == b"ba"


def test_a_process_that_keeps_dying_is_given_up() -> None:
    with trainer(dies, dies, dies) as address, pytest.raises(NoAnswer, match="died 3 times"):
        ask(address, b"ab")


def test_a_process_that_is_not_there_is_given_up_in_the_end() -> None:
    with pytest.raises(NoAnswer, match=r"no training process for 0.5 s"):
        ask("/nowhere/at/all", b"ab", patience=0.5)


def test_an_answer_that_nobody_wants_any_more_is_not_waited_for() -> None:
    until = time.monotonic() + 0.5
    with trainer(lambda connection: time.sleep(5)) as address, pytest.raises(NoAnswer, match="the job ended first"):
        ask(address, b"ab", lambda: time.monotonic() < until)


def test_a_question_that_is_too_large_is_not_passed_on() -> None:
    """What a coordinator sends that is not the one that the site agreed with."""
    with pytest.raises(NoAnswer, match="the coordinator sent 11 bytes, where at most 10 are expected"):
        ask("/nowhere/at/all", b"x" * 11, largest=10)


def test_an_answer_that_is_too_large_is_not_taken_into_memory() -> None:
    """Its length comes first: nothing of it is read, and it is not asked for again."""

    def announces(connection: socket.socket) -> None:
        receive(connection)
        connection.sendall((250_000_000).to_bytes(8, "little"))

    with trainer(announces) as address, pytest.raises(NoAnswer, match="wants to send 250,000,000 bytes, where at most"):
        ask(address, b"ab", largest=10)


def test_an_answer_of_just_the_size_is_taken() -> None:
    with trainer(answers) as address:
        assert ask(address, b"ab" * 5, largest=10) == b"ba" * 5


class FullDisk:
    """A site that cannot write down its round."""

    name, done, graph = "site-0", 0, planted_federation(1).graphs[0]
    plan = make_plan(planted_federation(1))

    def answer(self, data: bytes) -> bytes:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RunError("cannot write metrics.jsonl: No space left on device") from error


def test_a_full_disk_is_the_end_when_no_other_question_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE's own process fails on that disk as well, and may not get to pass on the second and third."""
    monkeypatch.setattr(worker, "_SILENCE", 0.3)
    address = tmp_path / "worker"
    refusals: list[str] = []

    def put_a_question() -> None:
        with pytest.raises(NoAnswer) as refusal:
            ask(str(address), b"a round", largest=1000)
        refusals.append(str(refusal.value))

    asking = threading.Thread(target=put_a_question)
    asking.start()
    with pytest.raises(RunError, match="No space left on device"):
        worker.serve(FullDisk(), address)  # type: ignore[arg-type]
    asking.join()
    assert refusals == ["cannot write metrics.jsonl: No space left on device"]
