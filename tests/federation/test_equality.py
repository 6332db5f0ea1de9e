"""Real processes on the loopback with mutual TLS: the same weights as a simulation."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.federation.deployment import Deployment, deployed, free_port, wait_until
from tests.federation.memory import Simulation, assert_same_models, chosen_rounds, final_models, make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")


def test_a_federation_over_the_network_gives_the_weights_of_a_simulation(tmp_path: Path) -> None:
    """One life of coordinator and sites, three runs; between them only the training processes are started anew."""
    federation = planted_federation(3)
    plan = make_plan(federation, "fedgkd", rules={"port": free_port(), "min_sites": 3, "deadline": 60.0})
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        for site in plan.sites:
            parties.join(site)
        for algorithm in ("fedgkd", "fedper", "fedpub"):
            if algorithm != plan.config.run.algorithm:
                change_algorithm(parties, algorithm)
            parties.start()
            parties.finish()
            simulated = Simulation(algorithm, federation)
            folders = [parties.kits / site / "run" for site in plan.sites]
            assert_same_models(final_models(folders), simulated.chosen(chosen_rounds(folders)))
            for ours, theirs in zip(parties.records(), simulated.records, strict=True):
                for same in ("round", "present", "left_out", "bytes_up", "bytes_down"):
                    assert ours[same] == theirs[same]
                assert ours["loss_per_client"] == pytest.approx(theirs["loss_per_client"], rel=1e-3)
                accuracy, expected = (record["selected"]["per_client"]["val"] for record in (ours, theirs))
                assert accuracy == pytest.approx(expected, abs=0.051), "one node of twenty may change sides"


def change_algorithm(parties: Deployment, algorithm: str) -> None:
    """As the operators' guide says: the same new file in every kit, the old run moved away."""
    plan = replace(parties.plan, settings={**parties.plan.settings, "algorithm": algorithm})
    for party in ("coordinator", "admin", *plan.sites):
        plan.write(parties.kits / party)
        shutil.rmtree(parties.kits / party / "run", ignore_errors=True)
    ready = {site: parties.said(site).count("is ready") for site in plan.sites}
    for site in plan.sites:
        if ready[site]:
            os.kill(parties.trainer(site), signal.SIGKILL)
    wait_until("all are ready", lambda: all(parties.said(site).count("is ready") > ready[site] for site in plan.sites))
