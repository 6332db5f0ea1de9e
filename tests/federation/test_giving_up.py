"""A site that cannot train ends, and says why on its screen and to the coordinator; the others train on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.federation.deployment import Deployment, deployed, free_port, wait_until
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=False)
    if made.returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remark(parties: Deployment, site: str) -> str:
    rows = {row["site"]: row for row in parties.status().get("sites", [])}
    return str(rows.get(site, {}).get("remark", ""))


def ends(parties: Deployment, site: str, reason: str) -> None:
    wait_until(f"the coordinator knows of {site}", lambda: reason in remark(parties, site), 90)
    assert parties.running.pop(site).wait(120) == 2
    assert [line for line in parties.said(site).splitlines() if line.startswith("error: ") and reason in line]
    stood = parties.status()["round"]
    parties.wait_for_round(stood + 2)


def test_a_site_that_cannot_train_says_why_and_ends(tmp_path: Path) -> None:
    federation = planted_federation(3)
    rules = {"port": free_port(), "min_sites": 1, "deadline": 10.0, "segment": 10_000}
    plan = make_plan(federation, "fedper", rules=rules, rounds=100_000, patience=0)
    with small_disk(tmp_path / "disk") as disk, deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        for site in plan.sites:
            parties.join(site, *(["--out", str(disk / "run")] if site == "site-2" else []))
        for site in plan.sites:
            parties.wait_for("coordinator", f"{site} is connected")
        parties.start()
        parties.wait_for_round(3)
        parties.fault("site-1", "import")
        os.kill(parties.trainer("site-1"), signal.SIGKILL)
        ends(parties, "site-1", "died 3 times in a row: ModuleNotFoundError: No module named 'no_such_module_at_all'")
        (disk / "other").write_bytes(bytes(1 << 19))
        with pytest.raises(OSError, match="No space left"), (disk / "more").open("wb") as more:
            more.write(bytes(1 << 20))
        ends(parties, "site-2", "No space left on device")
