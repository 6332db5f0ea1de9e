"""What the admin's process does from start to end, against a stand-in for the coordinator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedgkd.errors import FederationError
from fedgkd.federation import admin as module
from fedgkd.federation.admin import Disconnected, Driver, job
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

DONE, ABORTED = "FINISHED:COMPLETED", "FINISHED:ABORTED"


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL", 0.0)


class Coordinator:
    """Every segment brings so many rounds and ends as the script says; an exception stands for its absence."""

    def __init__(self, *segments: tuple[int, str], rounds: int = 6, sites: tuple[str, ...] = ("a", "b")) -> None:
        self.segments = list(segments)
        self.rounds, self.round, self.sites = rounds, 0, sites
        self.job: str | None = None
        self.submitted = 0
        self.away = 0
        self.started = False
        self.informed: set[str] = set()
        self.asked_for: list[bool] = []
        self.problem: str | None = None

    def _there(self) -> None:
        if self.away:
            self.away -= 1
            raise Disconnected("away")

    def status(self) -> dict[str, Any] | None:
        self._there()
        if not self.started:
            return None
        finished = self.round >= self.rounds
        facts = {"finished": finished, "round": self.round, "rounds": self.rounds, "informed": sorted(self.informed)}
        return {**facts, "problem": self.problem}

    def connected(self) -> dict[str, float]:
        self._there()
        return dict.fromkeys(self.sites, 0.0)

    def running(self) -> str | None:
        self._there()
        return self.job

    def submit(self, wait: float, everybody: bool) -> str:
        self._there()
        self.asked_for.append(everybody)
        self.submitted += 1
        self.started = True
        self.job = f"job-{self.submitted}"
        return self.job

    def job_status(self, job_id: str) -> str:
        self._there()
        if job_id != self.job:
            return "GONE"
        gained, ended = self.segments.pop(0)
        if ended.startswith("SUBMITTED"):
            return ended
        if ended.startswith("because "):
            self.problem, ended = ended.removeprefix("because "), "FINISHED:EXECUTION_EXCEPTION"
        self.round += gained
        if self.round >= self.rounds:
            self.informed = set(self.sites)
        if ended == "away":
            self.away, self.job = 3, None
            raise Disconnected("away")
        self.job = None
        return ended

    def forget(self, job_id: str) -> None:
        self._there()


def drive(coordinator: Coordinator) -> tuple[dict[str, Any], list[str]]:
    told: list[str] = []
    status = Driver(coordinator, told.append).run()  # type: ignore[arg-type]
    return status, told


def test_segments_follow_each_other_until_the_training_is_over() -> None:
    coordinator = Coordinator((2, DONE), (2, DONE), (2, DONE))
    status, told = drive(coordinator)
    assert (status["round"], coordinator.submitted, told) == (6, 3, [])
    assert coordinator.asked_for == [True, False, False], "only the first waits for everybody"


def test_what_is_finished_is_not_started_again() -> None:
    coordinator = Coordinator()
    coordinator.started, coordinator.round, coordinator.informed = True, 6, {"a", "b"}
    assert drive(coordinator)[0]["finished"]
    assert coordinator.submitted == 0


def test_a_site_that_missed_the_end_is_told() -> None:
    coordinator = Coordinator((0, DONE))
    coordinator.started, coordinator.round, coordinator.informed = True, 6, {"a"}
    drive(coordinator)
    assert coordinator.informed == {"a", "b"}


def test_a_segment_that_runs_already_is_taken_up() -> None:
    coordinator = Coordinator((6, DONE))
    coordinator.started, coordinator.job = True, "job-0"
    drive(coordinator)
    assert coordinator.submitted == 0


def test_stopped_means_stopped() -> None:
    with pytest.raises(FederationError, match="the training was stopped"):
        drive(Coordinator((2, ABORTED)))


def test_a_failed_segment_is_followed_by_another() -> None:
    coordinator = Coordinator((1, "FINISHED:EXECUTION_EXCEPTION"), (5, DONE))
    _, told = drive(coordinator)
    assert told == ["a segment ended as FINISHED:EXECUTION_EXCEPTION"]
    assert coordinator.submitted == 2


def test_the_coordinators_own_reason_ends_it() -> None:
    with pytest.raises(FederationError, match=r"^only 1 of at least 3 sites are here$"):
        drive(Coordinator((1, DONE), (0, "because only 1 of at least 3 sites are here")))


def test_it_does_not_wait_for_the_first_site_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST", 0.0)
    coordinator = Coordinator(*[(0, "SUBMITTED")] * 9)
    with pytest.raises(FederationError, match="no site came within 0 s; is 'fedgkd federation join' running there"):
        Driver(coordinator, lambda sentence: None, wait=0.0).run()  # type: ignore[arg-type]


def test_a_coordinator_that_comes_back_goes_on() -> None:
    coordinator = Coordinator((2, "away"), (4, DONE))
    status, told = drive(coordinator)
    assert (status["round"], coordinator.submitted) == (6, 2)
    assert told[0] == "the coordinator is away; waiting for it"
    assert told[-1] == "the coordinator was started anew; the training goes on from its last whole round"


def test_without_a_new_round_it_gives_up() -> None:
    coordinator = Coordinator(*[(0, "FINISHED:EXECUTION_EXCEPTION")] * 9)
    with pytest.raises(FederationError, match="3 segments brought no new round"):
        drive(coordinator)


def test_a_job_carries_names_and_no_code(tmp_path: Path) -> None:
    plan = make_plan(planted_federation(2), rules={"min_sites": 2})
    folder = job(plan, tmp_path / "job", wait=60.0, everybody=True)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == ["app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json"]
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["deploy_map"] == {"app": ["server", "site-0", "site-1"]}
    assert meta["min_clients"] == 1, "how many there must be is the coordinator's affair"
    (workflow,) = json.loads((folder / "app" / "config" / "config_fed_server.json").read_text())["workflows"]
    assert workflow["args"] == {"wait": 60.0, "everybody": True}
