"""The admin's part: submit segment after segment until the training is over, tell how it goes, stop it."""

from __future__ import annotations

import io
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgkd.errors import FederationError
from fedgkd.federation.kit import Kit, admin_name
from fedgkd.federation.names import CONTROLLER, EXECUTOR, PRESENCE, RUN, STATUS, TASK
from fedgkd.federation.network import check_coordinator
from fedgkd.federation.plan import Plan
from fedgkd.federation.presence import Presence

_POLL = 1.0
_PATIENCE = 10.0
_FIRST = 60.0
"""Seconds to wait at least for the first site: FLARE takes its time to schedule a job."""
_FRUITLESS = 3
"""Segments in a row that may end without a new round before we give up."""
_DONE = "FINISHED:COMPLETED"
_GONE = "GONE"
_WAITING = "SUBMITTED"
_OVER = (_GONE, "FINISHED", "FAILED", "ABANDONED")

Status = dict[str, Any]


def job(plan: Plan, folder: Path, wait: float, everybody: bool) -> Path:
    """A segment as FLARE wants it: two names of classes that every party has installed, and no code.

    Who is to be there is the coordinator's affair; to FLARE, one site is enough to begin with.
    """
    settings = folder / "app" / "config"
    settings.mkdir(parents=True)
    meta = {
        "name": plan.rules.name,
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app": ["server", *plan.sites]},
    }
    server = {
        "format_version": 2,
        "server": {"task_request_interval": 0.1},
        "workflows": [{"id": "rounds", "path": CONTROLLER, "args": {"wait": wait, "everybody": everybody}}],
    }
    site = {
        "format_version": 2,
        "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}],
    }
    files = {"meta": meta, "app/config/config_fed_server": server, "app/config/config_fed_client": site}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


class Admin:
    """A session with the coordinator, which is opened again when it breaks.

    Raises:
        FederationError: In one sentence, if the coordinator cannot be reached or does not accept the kit.
    """

    def __init__(self, kit: Kit) -> None:
        kit.check_certificate()
        check_coordinator(kit)
        self.kit = kit
        self._session: Any = None
        try:
            self._do(lambda session: None)
        except Disconnected as reason:
            raise FederationError(f"the kit {kit.path} is not accepted as the admin's: {reason}") from reason

    def close(self) -> None:
        if self._session is not None:
            with _quietly():
                self._session.close()
            self._session = None

    def _do(self, action: Callable[[Any], Any]) -> Any:
        """An action with the session; our error for every trouble that is not ours."""
        from nvflare.fuel.flare_api.api_spec import AuthenticationError, AuthorizationError
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        try:
            with _quietly():
                if self._session is None:
                    self._session = new_secure_session(admin_name(self.kit.plan), str(self.kit.path), timeout=_PATIENCE)
                return action(self._session)
        except (AuthenticationError, AuthorizationError) as error:
            raise FederationError(f"the coordinator does not let this kit do that: {error}") from error
        except Exception as error:  # FLARE raises errors of many kinds; the session is opened anew
            self.close()
            raise Disconnected(f"the coordinator does not answer ({error})") from error

    def status(self) -> Status | None:
        """What the coordinator last wrote down, or None if nothing was started yet."""
        text = self._do(lambda session: session.cat_target("server", file=f"{RUN}/{STATUS}"))
        try:
            status = dict(json.loads(text))
            alarms = self._presence().alarms
            for row in status["sites"]:
                _, alarm = alarms.get(row["site"], (0, None))
                row["remark"] = alarm or row["remark"]
            return status
        except (ValueError, LookupError, TypeError):
            return None

    def connected(self) -> dict[str, float]:
        """The sites whose connection is open, and when FLARE last heard of each."""
        info = self._do(lambda session: session.get_system_info())
        presence = self._presence()
        heard = {client.name: float(client.last_connect_time) for client in info.client_info}
        return {site: seen for site, seen in heard.items() if site in presence.connected}

    def _presence(self) -> Presence:
        text = self._do(lambda session: session.cat_target("server", file=PRESENCE))
        try:
            return Presence.from_text(text)
        except ValueError:
            return Presence()

    def running(self) -> str | None:
        """The job that is running or waiting to, if there is one."""
        jobs = self._do(lambda session: session.list_jobs())
        active = (entry["job_id"] for entry in jobs if not str(entry["status"]).startswith(_OVER))
        return next(active, None)

    def submit(self, wait: float, everybody: bool) -> str:
        """Start a segment; see :meth:`fedgkd.federation.coordinator.Coordinator.run_segment`."""
        with tempfile.TemporaryDirectory(prefix="fedgkd-") as folder:
            path = str(job(self.kit.plan, Path(folder) / "segment", wait, everybody))
            return str(self._do(lambda session: session.submit_job(path)))

    def job_status(self, job_id: str) -> str:
        """In FLARE's words, or that it is gone: a coordinator that was started anew knows no jobs."""
        jobs = self._do(lambda session: session.list_jobs())
        return next((str(entry["status"]) for entry in jobs if entry["job_id"] == job_id), _GONE)

    def forget(self, job_id: str) -> None:
        """The coordinator's own files say all; FLARE's copy of a finished job is only in the way."""
        self._do(lambda session: session.delete_job(job_id))

    def stop(self) -> bool:
        """Stop what is running; whether there was anything."""
        job_id = self.running()
        if job_id is not None:
            self._do(lambda session: session.abort_job(job_id))
        return job_id is not None


class Disconnected(FederationError):
    """The coordinator is away; it may come back."""


@dataclass
class Driver:
    """Submits segments until the training is over.

    Args:
        wait: Seconds to wait for sites that are missing.
        tell: Gets a sentence for everything worth telling.
        show: Gets the status and the sites that are connected, about once a second.
    """

    admin: Admin
    tell: Callable[[str], None]
    wait: float = 600.0
    show: Callable[[Status | None, dict[str, float]], None] = lambda status, connected: None

    def run(self) -> Status:
        """Until the training is over; returns the last status.

        Raises:
            FederationError: If it was stopped, or does not get on.
        """
        fruitless, before, everybody = 0, -1, True
        while True:
            status: Status | None = self._patiently(self.admin.status)
            if status is not None and status["finished"] and self._everybody_knows(status):
                return status
            if fruitless >= _FRUITLESS:
                raise FederationError(
                    f"{fruitless} segments brought no new round; see the logs of coordinator and sites"
                )
            told = status is not None and status["finished"]
            ended = self._segment(everybody)
            everybody = False
            status = self._patiently(self.admin.status)
            if "ABORT" in ended:
                raise FederationError("the training was stopped; 'fedgkd federation start' goes on with it")
            if status is not None and status.get("problem"):
                raise FederationError(status["problem"])
            if told and status is not None:
                return status
            round_ = -1 if status is None else status["round"]
            fruitless = 0 if round_ > before else fruitless + 1
            before = round_

    def _segment(self, everybody: bool) -> str:
        """One job from submission to its end; how it ended."""
        job_id = self._patiently(self.admin.running)
        if job_id is None:
            job_id = self._patiently(lambda: self.admin.submit(self.wait, everybody))
        wait = max(self.wait, _FIRST)
        until = time.monotonic() + wait
        while True:
            try:
                ended = self.admin.job_status(job_id)
                if self._look():
                    return _DONE
            except Disconnected:
                self.tell("the coordinator is away; waiting for it")
                self._patiently(self.admin.status)
                continue
            if ended.startswith(_OVER):
                if ended == _GONE:
                    self.tell("the coordinator was started anew; the training goes on from its last whole round")
                    return ended
                if ended != _DONE:
                    self.tell(f"a segment ended as {ended}")
                self._patiently(lambda: self.admin.forget(job_id))
                return ended
            if ended.startswith(_WAITING) and time.monotonic() > until:
                self._patiently(lambda: self.admin.forget(job_id))
                raise FederationError(f"no site came within {wait:g} s; is 'fedgkd federation join' running there?")
            time.sleep(_POLL)

    def _look(self) -> bool:
        """Show how things stand; whether all is over."""
        status, connected = self.admin.status(), self.admin.connected()
        self.show(status, connected)
        return status is not None and status["finished"] and set(connected) <= set(status["informed"])

    def _everybody_knows(self, status: Status) -> bool:
        """Whether every site that is there has been told that the training is over."""
        return set(self._patiently(self.admin.connected)) <= set(status["informed"])

    def _patiently(self, action: Callable[[], Any]) -> Any:
        """An action that is tried again for as long as the coordinator is away."""
        told = False
        while True:
            try:
                return action()
            except Disconnected as reason:
                if not told:
                    self.tell(f"{reason}; waiting for it")
                    told = True
                time.sleep(_POLL)


@contextmanager
def _quietly() -> Iterator[None]:
    """FLARE's client prints and logs what we tell in our own words."""
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
