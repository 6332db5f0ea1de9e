"""A federation of real processes on this machine, all of which end with the block, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedgkd.data.federation import Federation
from fedgkd.data.npz import save_graph
from fedgkd.federation.kit import make_kits
from fedgkd.federation.network import GREETING
from fedgkd.federation.plan import Plan

FEDGKD = (sys.executable, "-m", "fedgkd", "federation")
FAULTY = """
from fedgkd.cli import main
from fedgkd.federation import processes
processes.TRAINER = "tests.federation.faulty"
main()
"""
ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
"""Seconds after which nothing more is to be hoped for, on a machine that has other work."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def wait_until(what: str, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first true value of ``condition``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {seconds:g} s")


def present_in(record: Mapping[str, Any], site: str) -> bool:
    number = int(site.removeprefix("site-"))
    return number in record["present"] and number not in record["left_out"]


class Deployment:
    """Kits in ``folder/kits``, graphs in ``folder/graphs``, the output of every party in ``folder/<party>.log``."""

    def __init__(self, folder: Path, plan: Plan, federation: Federation) -> None:
        self.folder = folder
        self.plan = plan
        self.kits = folder / "kits"
        make_kits(plan, self.kits)
        (folder / "graphs").mkdir()
        for site, graph in zip(plan.sites, federation.graphs, strict=True):
            save_graph(self.graph(site), graph)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.python_path = str(ROOT)

    def graph(self, site: str) -> Path:
        return self.folder / "graphs" / f"{site}.npz"

    def serve(self, *options: str) -> None:
        self.launch("coordinator", *FEDGKD, "serve", "--kit", str(self.kits / "coordinator"), *options)
        wait_until("coordinator listens", self._listens)

    def join(self, site: str, *options: str, party: str | None = None) -> None:
        """As the site, with the kit of the ``party``, which is the site itself unless it is said otherwise."""
        party = party or site
        arguments = ("--kit", str(self.kits / party), "--graph", str(self.graph(site)), "--threads", "1", *options)
        self.launch(party, sys.executable, "-c", FAULTY, "federation", "join", *arguments)

    def start(self, *options: str) -> None:
        """In the background; see :meth:`finish`."""
        self.launch("admin", *FEDGKD, "start", "--kit", str(self.kits / "admin"), *options)

    def finish(self, seconds: float = PATIENCE, code: int = 0) -> None:
        """Wait for the training to be over."""
        assert self.running["admin"].wait(seconds) == code, self.said("admin")

    def run(
        self, *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*FEDGKD, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            cwd=cwd,
            env=os.environ | environment,
        )

    def launch(self, party: str, *command: str) -> None:
        environment = os.environ | {
            "FAULTS": str(self.folder / f"{party}.fault"),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.python_path}",
        }
        with (self.folder / f"{party}.log").open("ab") as log:
            self.running[party] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=self.folder
            )

    def kill(self, party: str) -> None:
        """Without a chance to tidy up."""
        process = self.running.pop(party)
        process.kill()
        process.wait()

    def is_running(self, party: str) -> bool:
        return party in self.running and self.running[party].poll() is None

    def trainer(self, site: str) -> int:
        """Process number of a site's training process."""
        number = self._process(site, "tests.federation.faulty")
        assert number is not None, f"{site} has no training process"
        return number

    def job_process(self, site: str) -> int | None:
        """Process number of the one that FLARE starts at a site for every job, while there is one."""
        return self._process(site, "nvflare.private.fed.app.client.worker_process")

    def _process(self, site: str, module: str) -> int | None:
        wanted = {module, str(self.kits / site)}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has just ended
                if wanted <= set(path.read_text(errors="replace").split("\0")):
                    return int(path.parent.name)
        return None

    def fault(self, site: str, word: str) -> None:
        path = self.folder / f"{site}.fault"
        path.with_suffix(".new").write_text(word)
        path.with_suffix(".new").replace(path)

    def said(self, party: str) -> str:
        return (self.folder / f"{party}.log").read_text()

    def status(self) -> Mapping[str, Any]:
        path = self.kits / "coordinator" / "run" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {"round": 0, "finished": False}

    def wait_for(self, party: str, sentence: str, seconds: float = PATIENCE) -> None:
        wait_until(f"{party} says '{sentence}'", lambda: sentence in self.said(party), seconds)

    def wait_for_round(self, round_: int, seconds: float = PATIENCE) -> None:
        wait_until(f"round {round_}", lambda: self.status()["round"] >= round_, seconds)

    def wait_until_present(self, *sites: str, seconds: float = PATIENCE) -> None:
        """Until a round that is still to come has the answer of each."""
        before = len(self.records())
        for site in sites:
            wait_until(
                f"{site} takes part",
                lambda site=site: any(present_in(record, site) for record in self.records()[before:]),
                seconds,
            )

    def shake_hands(self, certificate: Path | None, greeting: bytes = GREETING) -> None:
        """With the coordinator; raises if it does not like it."""
        context = ssl.create_default_context(cafile=str(self.kits / "coordinator" / "startup" / "rootCA.pem"))
        if certificate is not None:
            context.load_cert_chain(str(certificate), str(certificate.with_suffix(".key")))
        plain = socket.create_connection(("localhost", self.plan.rules.port), 5)
        with plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(greeting)
            if not secure.recv(1):
                raise ConnectionError("closed")

    def records(self) -> list[dict[str, Any]]:
        """Of the rounds that are done; a line that is being written does not count yet."""
        whole, _, _ = (self.kits / "coordinator" / "run" / "metrics.jsonl").read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def _listens(self) -> bool:
        assert self.running["coordinator"].poll() is None, self.said("coordinator")
        with socket.socket() as probe:
            return probe.connect_ex(("localhost", self.plan.rules.port)) == 0

    def close(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def deployed(folder: Path, plan: Plan, federation: Federation) -> Iterator[Deployment]:
    deployment = Deployment(folder, plan, federation)
    try:
        yield deployment
    finally:
        deployment.close()
