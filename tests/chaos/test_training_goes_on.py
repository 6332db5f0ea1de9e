"""One federation of four sites that trains all the time; whatever goes wrong with it, the training must get on.

The deadline is ten minutes: no scenario may depend on it to end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tests.federation.deployment import PATIENCE, Deployment, deployed, free_port, present_in, wait_until
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")
pytestmark = pytest.mark.chaos

MB = 2**20
NOISE = 64 * MB
"""What the coordinator's memory may rise by in the course of nothing in particular."""
SITES = ("site-0", "site-1", "site-2", "site-3")


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory, busy: None) -> Iterator[Deployment]:
    federation = planted_federation(len(SITES))
    rules = {"port": free_port(), "min_sites": 2, "deadline": 600.0, "segment": 10**6}
    settings = {"rounds": 10**6, "patience": 0, "hidden": 32, "dropout": 0.0, "lr": 0.03}
    plan = make_plan(federation, "fedavg", rules=rules, **settings)
    with deployed(tmp_path_factory.mktemp("federation"), plan, federation) as parties:
        parties.serve()
        for site in SITES:
            parties.join(site)
        for site in SITES:
            parties.wait_for("coordinator", f"{site} is connected")
        parties.start()
        parties.wait_for_round(10)
        yield parties


@pytest.fixture
def training(parties: Deployment) -> Deployment:
    """The federation with all four sites well and at work, whatever the last scenario left behind."""
    for site in SITES:
        parties.fault(site, "")
        if not parties.is_running(site):
            parties.join(site)
    parties.wait_until_present(*SITES)
    return parties


def test_weights_of_norm_9900(training: Deployment) -> None:
    """A real model's norm is about 10."""
    before, said = len(training.records()), refusals(training, "site-3")
    well = accuracies(training, before - 1)
    training.fault("site-3", "heavy")
    training.wait_for_round(before + 20)
    training.fault("site-3", "")
    for round_ in range(before, before + 20):
        assert (accuracies(training, round_) > well - 0.2)[:3].all(), "the honest sites' models are spoilt"
    assert refusals(training, "site-3") > said


def test_an_answer_of_250_MB(training: Deployment) -> None:
    said = refusals(training, "site-3")
    with no_more_memory(training):
        training.fault("site-3", "large")
        wait_until("the answer is refused", lambda: refusals(training, "site-3") > said)
        training.fault("site-3", "")
        goes_on(training, *SITES[:3])


def test_half_open_connections_and_a_header_of_90_MB(training: Deployment) -> None:
    with ExitStack() as stack:
        for _ in range(400):
            connection = stack.enter_context(socket.create_connection(("localhost", training.plan.rules.port), 30))
            connection.sendall(b"\x16\x03\x01")  # a handshake begins, and nothing follows
        goes_on(training, *SITES)
        with no_more_memory(training):
            certificate = training.kits / "site-0" / "startup" / "client.crt"
            with pytest.raises(OSError):  # noqa: PT011 -- closed, reset, or a broken pipe: whichever end is first
                training.shake_hands(certificate, b"GET / HTTP/1.1\r\nX: " + b"a" * 90 * 10**6 + b"\r\n\r\n")
            goes_on(training, *SITES)


def test_a_killed_site_whose_connection_is_closed(training: Deployment) -> None:
    before = len(training.records())
    training.kill("site-3")
    wait_until(
        "rounds without site-3",
        lambda: sum(not present_in(record, "site-3") for record in training.records()[before:]) >= 5,
        60,
    )
    longest = max(record["seconds"]["total"] for record in training.records()[before:])
    assert longest < 30, f"a round waited {longest:.0f} s"
    training.join("site-3")
    training.wait_until_present("site-3")


def test_a_trainer_that_cannot_import(training: Deployment) -> None:
    training.fault("site-3", "import")
    os.kill(training.trainer("site-3"), signal.SIGKILL)
    ends(training, "site-3", "No module named 'no_such_module_at_all'")


def test_a_disk_that_is_full(training: Deployment) -> None:
    """The kit of site-2, with its state in it, is on a disk of its own."""
    training.kill("site-2")
    with small_disk(training.kits / "site-2") as fill:
        training.join("site-2")
        training.wait_until_present("site-2")
        fill()
        ends(training, "site-2", "No space left on device")
    stood = training.status()["round"]
    training.join("site-2")
    training.wait_until_present("site-2")
    assert 0 < int(re.findall(r"nodes, (\d+) rounds done", training.said("site-2"))[-1]) <= stood


def ends(training: Deployment, site: str, reason: str) -> None:
    """The site says why on its screen and in the status, and the others train on."""
    others = [other for other in SITES if other != site]
    assert training.running[site].wait(PATIENCE) == 2, training.said(site)
    assert reason in training.said(site).splitlines()[-1]
    wait_until("the status says why", lambda: reason in remark(training, site))
    goes_on(training, *others)


def test_a_second_use_of_a_kit(training: Deployment) -> None:
    shutil.copytree(training.kits / "site-1", training.kits / "twin", ignore=shutil.ignore_patterns("run", ".lock"))
    training.join("site-1", party="twin")
    training.wait_for("coordinator", "alarm: site-1 has a kit that is in use twice")
    goes_on(training, "site-0", "site-2", "site-3")
    assert not present_in(training.records()[-1], "site-1"), "neither trains"
    training.kill("twin")
    training.kill("site-1")
    admitted = training.run("admit", "site-1", "--kit", str(training.kits / "coordinator"))
    assert admitted.returncode == 0, admitted.stderr
    training.join("site-1")
    training.wait_until_present("site-1")


def test_a_killed_coordinator_and_a_damaged_checkpoint(training: Deployment) -> None:
    """It dies while all sites but a slow one have trained the next round; then the newest checkpoint loses a byte."""
    training.fault("site-0", "slow 20")
    last = SITES[-1]
    wait_until("the others wait for site-0", lambda: newest_round(training, last) > training.status()["round"])
    training.kill("coordinator")
    training.fault("site-0", "")
    stood, run = training.status()["round"], training.status()["run"]
    flip_a_byte(training.kits / "coordinator" / "run" / "checkpoint")
    said = {site: refusals(training, site) for site in SITES}
    training.serve()
    training.wait_until_present(*SITES)
    assert training.status()["run"] == run
    assert max(refusals(training, site) - said[site] for site in SITES) <= 3
    rounds = [record["round"] for record in training.records()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert "the checkpoint" in training.said("coordinator")
    back = int(re.findall(r"round (\d+)/\d+: ", training.said("coordinator").rpartition("is damaged")[2])[0])
    assert back >= stood - 1, "more than two rounds are lost"


def goes_on(training: Deployment, *sites: str) -> None:
    """Five more rounds with these sites."""
    before = len(training.records())
    training.wait_for_round(before + 5)
    for record in training.records()[before + 2 :]:  # what was on its way is over by then
        assert all(present_in(record, site) for site in sites), record["present"]


def accuracies(training: Deployment, round_: int) -> np.ndarray:
    return np.array(training.records()[round_]["selected"]["per_client"]["val"], float)


def refusals(training: Deployment, site: str) -> int:
    return training.said("coordinator").count(f"{site} is kept out of the mixture")


def remark(training: Deployment, site: str) -> str:
    return next(row["remark"] for row in training.status()["sites"] if row["site"] == site)


def newest_round(training: Deployment, site: str) -> int:
    return int(re.findall(rf"{site}: round (\d+) done", training.said(site))[-1])


def flip_a_byte(folder: Path) -> None:
    """In the middle of the newest checkpoint."""
    description = max(folder.glob("*.json"), key=lambda path: json.loads(path.read_text())["serial"])
    path = description.with_suffix(".safetensors")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """What is in the folder is on a disk of 64 MB within the block, which the given function fills."""
    aside = folder.with_name(f"{folder.name}-aside")
    shutil.copytree(folder, aside)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here (only root may)")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)

        def fill() -> None:
            with (folder / "ballast").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))

        yield fill
    finally:
        (folder / "ballast").unlink(missing_ok=True)
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.copytree(aside, folder, dirs_exist_ok=True)


def family(pid: int) -> list[int]:
    """A process and all that it and its children have started."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [number for child in path.read_text().split() for number in family(int(child))]
    return found


@contextmanager
def no_more_memory(training: Deployment) -> Iterator[None]:
    """The coordinator's processes take no more of it within the block than before."""
    for pid in family(training.running["coordinator"].pid):
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is as it is now
    before = peak(training)
    yield
    more = peak(training) - before
    assert more < NOISE, f"the coordinator took {more / MB:.0f} MB more"


def peak(training: Deployment) -> int:
    """Bytes that the coordinator's processes have had in memory at most, all together."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in family(training.running["coordinator"].pid)]
    return sum(int(re.findall(r"VmHWM:\s+(\d+) kB", text)[0]) * 1024 for text in texts)
