"""Real processes on the loopback with mutual TLS, one thing after the other going wrong."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.federation.deployment import Deployment, deployed, free_port, present_in, wait_until
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")


def test_faults_cost_a_round_at_most_and_never_the_training(tmp_path: Path) -> None:
    """One federation, one thing after the other goes wrong with it; the training must get on every time."""
    federation = planted_federation(3)
    rules = {"port": free_port(), "min_sites": 2, "deadline": 5.0, "segment": 10_000}
    plan = make_plan(federation, "fedper", rules=rules, rounds=100_000, patience=0)
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        for site in plan.sites:
            parties.join(site)
        for site in plan.sites:
            parties.wait_for("coordinator", f"{site} is connected")
        parties.start()
        parties.wait_for_round(3)
        wrong_uploads_are_refused(parties, "site-2")
        a_killed_training_process_is_started_again(parties, "site-1")
        a_killed_job_process_is_replaced(parties, "site-1")
        a_slow_site_is_skipped_until_it_is_back(parties, "site-0")
        a_killed_site_is_not_waited_for(parties, "site-2")
        too_few_sites_repeat_the_round(parties, "site-1")
        restarted_sites_come_back_with_their_state(parties, "site-1", "site-2")
        a_killed_coordinator_loses_a_round_at_most(parties)
        the_admin_can_stop_it(parties)


def wrong_uploads_are_refused(parties: Deployment, site: str) -> None:
    complaints = {
        "nan": "with values that are not finite",
        "shape": "of shape",
        "name": "left out the tensor: 'convs",
        "norm": "more than the 10000 that are allowed",
        "old": "answered for round",
        "garbage": "sent something that is not a message of fedgkd",
    }
    for fault, complaint in complaints.items():
        before = len(parties.records())
        parties.fault(site, fault)
        wait_until(fault, lambda before=before: any(not present_in(r, site) for r in parties.records()[before:]))
        parties.fault(site, "")
        lines = [line for line in parties.said("coordinator").splitlines() if f"{site} is kept out" in line]
        assert complaint in lines[-1]
        parties.wait_until_present(site)
    last = parties.records()[-1]
    assert np.isfinite([value for value in last["loss_per_client"] if value is not None]).all()


def a_killed_training_process_is_started_again(parties: Deployment, site: str) -> None:
    segments = parties.said("coordinator").count("training with")
    os.kill(parties.trainer(site), signal.SIGKILL)
    parties.wait_for(site, "it is started again")
    parties.wait_until_present(site)
    assert parties.said("coordinator").count("training with") == segments, "the job goes on"


def a_killed_job_process_is_replaced(parties: Deployment, site: str) -> None:
    """FLARE would end the job at all sites; here it goes on, and ``start`` does not even notice."""
    killed = parties.job_process(site)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until("it is replaced", lambda: parties.job_process(site) not in (None, killed))
    parties.wait_until_present(site)
    assert parties.said("coordinator").count("training with") == 1
    assert "a segment ended" not in parties.said("admin")
    rounds = [record["round"] for record in parties.records()]
    assert rounds == list(range(1, len(rounds) + 1))


def a_slow_site_is_skipped_until_it_is_back(parties: Deployment, site: str) -> None:
    parties.fault(site, "slow 8")
    parties.wait_for("coordinator", f"{site} has missed two rounds")
    before = len(parties.records())
    parties.fault(site, "")
    parties.wait_for_round(before + 5, seconds=8.0)  # it is not waited for
    parties.wait_until_present(site)


def a_killed_site_is_not_waited_for(parties: Deployment, site: str) -> None:
    before = parties.status()["round"]
    parties.kill(site)
    parties.wait_for("coordinator", f"{site} is gone: its connection was closed")
    parties.wait_for_round(before + 4)
    assert not present_in(parties.records()[-1], site)


def too_few_sites_repeat_the_round(parties: Deployment, site: str) -> None:
    parties.kill(site)
    parties.wait_for("coordinator", "is repeated: 1 of 2 sites gave a usable answer, at least 2 are needed")
    round_ = parties.status()["round"]
    assert round_ == len(parties.records())


def restarted_sites_come_back_with_their_state(parties: Deployment, *sites: str) -> None:
    stood = parties.status()["round"]
    for site in sites:
        parties.join(site)
    for site in sites:
        parties.wait_until_present(site)
        done = re.findall(r"nodes, (\d+) rounds done", parties.said(site))
        assert 0 < int(done[-1]) <= stood + 1  # it may have trained the round that had too few answers


def a_killed_coordinator_loses_a_round_at_most(parties: Deployment) -> None:
    parties.kill("coordinator")
    stored = parties.status()["round"]
    run_id = parties.status()["run"]
    parties.serve()
    for site in parties.plan.sites:
        parties.wait_until_present(site)
    assert parties.status()["run"] == run_id
    rounds = [record["round"] for record in parties.records()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert stored in rounds


def the_admin_can_stop_it(parties: Deployment) -> None:
    shown = parties.run("status", "--kit", str(parties.kits / "admin"))
    assert shown.returncode == 0
    assert all(site in shown.stdout for site in parties.plan.sites)
    stopped = parties.run("stop", "--kit", str(parties.kits / "admin"))
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert parties.running["admin"].wait(30) == 2
    assert "the training was stopped" in parties.said("admin")
    parties.wait_for("coordinator", f"stopped; {len(parties.records())} rounds are done")
