"""What the coordinator's server lets through: no kit twice, and no more than a site has to say. With real processes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from tests.federation.deployment import FEDGKD, Deployment, deployed, free_port, wait_until
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")
aiohttp = pytest.importorskip("aiohttp")


def row(parties: Deployment, site: str) -> dict[str, object]:
    return next(row for row in parties.status()["sites"] if row["site"] == site)


def test_a_kit_that_is_used_twice_trains_nowhere_until_the_operator_decides(tmp_path: Path) -> None:
    federation = planted_federation(2)
    rules = {"port": free_port(), "min_sites": 1, "deadline": 20.0, "segment": 10_000}
    plan = make_plan(federation, "fedavg", rules=rules, rounds=100_000, patience=0)
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        for site in plan.sites:
            parties.join(site)
        for site in plan.sites:
            parties.wait_for("coordinator", f"{site} is connected", 180)
        parties.start()
        parties.wait_for_round(3, 180)
        copy = tmp_path / "copy"
        shutil.copytree(parties.kits / "site-1", copy, ignore=shutil.ignore_patterns("run", "*.lock", ".lock"))
        command = ("join", "--kit", str(copy), "--graph", str(parties.graph("site-1")), "--threads", "1")
        parties.launch("thief", *FEDGKD, *command)
        parties.wait_for("coordinator", "alarm: site-1 has a kit that is in use twice", 180)
        alarm = next(line for line in parties.said("coordinator").splitlines() if "alarm:" in line)
        addresses = re.findall(r"127\.0\.0\.1:\d+", alarm)
        assert len(set(addresses)) == 2
        assert "fedgkd federation admit site-1" in alarm
        stood = int(str(row(parties, "site-1")["round"]))
        parties.wait_for_round(parties.status()["round"] + 20, 180)
        assert int(str(row(parties, "site-1")["round"])) <= stood + 1, "neither of them trains"
        shown = parties.run("status", "--kit", str(parties.kits / "admin"), "--json")
        assert "has a kit that is in use twice" in shown.stdout
        parties.kill("thief")
        parties.running["site-1"].send_signal(signal.SIGTERM)
        parties.running.pop("site-1").wait(30)
        kit = str(parties.kits / "coordinator")
        wrong = parties.run("admit", "site-0", "--kit", kit)
        assert (wrong.returncode, wrong.stderr) == (2, "error: 'site-0' is not kept out; site-1 is\n")
        admitted = parties.run("admit", "site-1", "--kit", kit)
        assert admitted.returncode == 0, admitted.stderr
        parties.join("site-1")
        wait_until("site-1 trains again", lambda: int(str(row(parties, "site-1")["round"])) > stood + 1, 180)


def test_a_site_that_comes_back_is_not_taken_for_a_second_one(tmp_path: Path) -> None:
    federation = planted_federation(1)
    rules = {"port": free_port(), "min_sites": 1, "deadline": 20.0, "segment": 10_000}
    plan = make_plan(federation, "fedavg", rules=rules, rounds=100_000, patience=0)
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        parties.join("site-0")
        parties.wait_for("coordinator", "site-0 is connected", 180)
        parties.start()
        parties.wait_for_round(2, 180)
        parties.kill("site-0")
        parties.join("site-0")
        stood = parties.status()["round"]
        parties.wait_for_round(stood + 10, 180)
        assert "alarm" not in parties.said("coordinator")


HOSTILE = """
import os, sys
from fedgkd.federation import executor
from fedgkd.federation.names import MESSAGE
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

honest = executor.SiteExecutor.execute

def execute(self, task_name, shareable, fl_ctx, abort_signal):
    reply = honest(self, task_name, shareable, fl_ctx, abort_signal)
    if os.path.exists(os.environ["FAULTS"]) and open(os.environ["FAULTS"]).read() == "large":
        reply = make_reply(ReturnCode.OK)
        reply[MESSAGE] = bytes(250_000_000)
    return reply

executor.SiteExecutor.execute = execute
"""


def peaks(parties: Deployment) -> dict[int, int]:
    """The peak memory of every process of the coordinator, in bytes."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            command = (path.parent / "cmdline").read_text().split("\0")
            text = path.read_text()
        except OSError:
            continue
        if str(parties.kits / "coordinator") in command and (peak := re.search(r"VmHWM:\s+(\d+) kB", text)):
            found[int(path.parent.name)] = 1024 * int(peak[1])
    return found


def settled(parties: Deployment, little: float) -> dict[int, int]:
    """The peaks, as soon as ten rounds raise them by no more than that: memory has taken its level."""
    before = peaks(parties)
    for _ in range(30):
        parties.wait_for_round(parties.status()["round"] + 10, 180)
        now = peaks(parties)
        if sum(now.values()) - sum(before.values()) <= little:
            return now
        before = now
    raise AssertionError(f"memory goes on growing: {before}")


async def shout(parties: Deployment, site: str) -> None:
    """All in one piece, by a program that has nothing of FLARE but the site's certificate."""
    startup = parties.kits / site / "startup"
    context = ssl.create_default_context(cafile=startup / "rootCA.pem")
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    url = f"wss://localhost:{parties.plan.rules.port}/f3"
    with suppress(aiohttp.ClientError, ConnectionError):
        async with aiohttp.ClientSession() as session, session.ws_connect(url, ssl=context) as connection:
            await connection.send_bytes(bytes(250_000_000))
            answer = await connection.receive(60)
            assert answer.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


def test_what_a_member_sends_too_much_of_is_not_taken_into_memory(tmp_path: Path) -> None:
    """250 MB from a job process of FLARE that does what it likes; a model here has about 4 MB."""
    federation = planted_federation(3)
    rules = {"port": free_port(), "min_sites": 2, "deadline": 60.0, "segment": 10_000}
    plan = make_plan(federation, "fedavg", rules=rules, rounds=100_000, patience=0, hidden=1000)
    with deployed(tmp_path, plan, federation) as parties:
        (tmp_path / "hostile").mkdir()
        (tmp_path / "hostile" / "sitecustomize.py").write_text("")
        (tmp_path / "hostile" / "hostile.py").write_text(HOSTILE)
        parties.serve()
        for site in plan.sites[:2]:
            parties.join(site)
        parties.python_path += f"{os.pathsep}{tmp_path / 'hostile'}"
        (tmp_path / "hostile" / "sitecustomize.py").write_text(
            "import sys\nif any('worker_process' in word for word in sys.orig_argv):\n    import hostile\n"
        )
        parties.join("site-2")
        for site in plan.sites:
            parties.wait_for("coordinator", f"{site} is connected", 180)
        parties.start()
        parties.wait_for_round(30, 240)  # until memory has taken its level
        done = int(str(row(parties, "site-0")["round"]))
        expected = 3 * float(str(row(parties, "site-0")["bytes_up"])) / done
        parties.fault("site-2", "nan")  # so that what follows differs in nothing but the size
        parties.wait_for("coordinator", "site-2 is kept out of the mixture: it sent 'convs", 60)
        before = settled(parties, expected / 10)
        parties.fault("site-2", "large")
        parties.wait_for("coordinator", "site-2 is kept out of the mixture: it sent 250,", 180)
        stood = parties.status()["round"]
        parties.wait_for_round(stood + 3, 180)
        asyncio.run(shout(parties, "site-2"))
        after = peaks(parties)
        rise = {pid: peak - before[pid] for pid, peak in after.items()}
        assert sum(rise.values()) <= 3 * expected, (rise, before)
        assert int(str(row(parties, "site-2")["round"])) <= stood
