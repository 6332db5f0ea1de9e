"""Real processes on the loopback: who is waited for, who comes late, who is gone."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from fedgkd.experiments.model_file import PersonalModel
from tests.federation.deployment import Deployment, deployed, free_port, wait_until
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")


def test_sites_that_come_late_take_part_from_the_next_round_on(tmp_path: Path) -> None:
    """Of four sites two come at once; the others while the training runs, and one of those is killed and comes back."""
    federation = planted_federation(4)
    rules = {"port": free_port(), "min_sites": 2, "deadline": 600.0, "segment": 10_000}
    plan = make_plan(federation, "fedper", rules=rules, rounds=100_000, patience=0)
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        for site in ("site-0", "site-1"):
            parties.join(site)
        parties.start("--wait", "20")
        parties.wait_for("admin", "waiting for", 90)
        parties.wait_for("coordinator", "going on without site-2 (not connected), site-3 (not connected)", 90)
        parties.wait_for_round(2)
        for site in ("site-2", "site-3"):
            came_late(parties, site)
        a_killed_job_process_is_replaced(parties, "site-1")
        a_killed_site_costs_seconds_and_not_the_deadline(parties, "site-0")
        came_late(parties, "site-0")
        assert parties.said("coordinator").count("training with") == 1, "all of it in one segment"


def came_late(parties: Deployment, site: str) -> None:
    began, before = time.monotonic(), parties.status()["round"]
    parties.join(site)
    number = parties.plan.sites.index(site)
    wait_until(
        f"{site} takes part", lambda: any(number in record["present"] for record in parties.records()[before:]), 90
    )
    print(f"{site} took part {time.monotonic() - began:.1f} s after it was started")


def a_killed_job_process_is_replaced(parties: Deployment, site: str) -> None:
    number = parties.plan.sites.index(site)
    killed = parties.job_process(site)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    began = time.monotonic()
    wait_until("it is replaced", lambda: parties.job_process(site) not in (None, killed))
    before = parties.status()["round"]
    wait_until("it is back", lambda: any(number in record["present"] for record in parties.records()[before:]), 90)
    print(f"a killed job process cost {time.monotonic() - began:.1f} s")


def a_killed_site_costs_seconds_and_not_the_deadline(parties: Deployment, site: str) -> None:
    before, began = parties.status()["round"], time.monotonic()
    parties.kill(site)
    parties.wait_for("coordinator", f"{site} is gone: its connection was closed", 60)
    parties.wait_for_round(before + 3, 60)
    print(f"a killed site cost {time.monotonic() - began:.1f} s")
    (row,) = (row for row in parties.status()["sites"] if row["site"] == site)
    assert row["whereabouts"] == "not connected"
    shown = parties.run("status", "--kit", str(parties.kits / "admin"))
    assert "not connected" in shown.stdout


def test_without_enough_sites_start_says_who_is_missing(tmp_path: Path) -> None:
    federation = planted_federation(3)
    rules = {"port": free_port(), "min_sites": 2, "deadline": 60.0}
    plan = make_plan(federation, "fedper", rules=rules)
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        parties.join("site-0")
        parties.wait_for("coordinator", "site-0 is connected")
        parties.start("--wait", "5")
        assert parties.running["admin"].wait(120) == 2
        assert "error: only 1 of at least 2 sites are here after" in parties.said("admin")
        assert "missing: site-1 (not connected), site-2 (not connected)" in parties.said("admin")
        parties.join("site-1")
        parties.wait_for("coordinator", "site-1 is connected")
        parties.start("--wait", "8")
        assert parties.running["admin"].wait(120) == 3
        assert "site-2 was left out and has no model: it never came" in parties.said("admin")
    for site in ("site-0", "site-1"):
        assert PersonalModel.load(parties.kits / site / "run" / "model.safetensors").origin["client"] == site
    result = json.loads((parties.kits / "coordinator" / "run" / "result.json").read_text())
    assert [site["left_out"] for site in result["sites"]] == [None, None, "it never came"]
