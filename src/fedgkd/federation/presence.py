"""At the coordinator's server: who is connected, and who takes part in the job that runs.

NVIDIA FLARE deploys a job only to the sites that are there when it starts, takes a site with a closed connection for
present for half a minute, and ends a job for all when one site's process for it dies. Here we look at the
connections themselves: a site that comes late is taken into the running job, and one whose process has died is given
another.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import RunProcessKey, SystemComponents
from nvflare.apis.job_def import Job, JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.private.admin_defs import MsgHeader, ReturnCode

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import FederationError
from fedgkd.federation.gate import Gate
from fedgkd.federation.names import LOGGER

_LOOK = 0.2
_APP = "app"
_REPLY = 20.0
"""Seconds that a site has to answer a request of the server."""
_STARTING = 15.0
"""Seconds that a site has to start its process for the job before it is asked again; twice as many after each time."""
_LONGEST = 240.0
_SOON = 3.0
"""Seconds that a site's process for the job must be gone before it is taken for dead: it may be the job's end."""

log = logging.getLogger(LOGGER)


@dataclass(frozen=True)
class Presence:
    """Who is there, as the server last wrote it down.

    Attributes:
        job: The job that runs.
        connected: The sites with an open connection.
        here: Those of them whose process for the job is connected as well: they can be asked.
        members: Grows whenever a site is taken into the job.
        alarms: Why a site is kept out for now: which alarm it is, counted from 1, and the sentence.
    """

    job: str | None = None
    connected: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    members: int = 0
    alarms: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(vars(self)) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Presence:
        """
        Raises:
            ValueError: If the text is something else.
        """
        try:
            values = json.loads(text)
            alarms = {site: (int(number), str(why)) for site, (number, why) in values["alarms"].items()}
            return Presence(values["job"], tuple(values["connected"]), tuple(values["here"]), values["members"], alarms)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError("not a list of who is there") from error


@dataclass
class _Attempt:
    """How often and when a site was last asked to start its process for the job."""

    due: float
    times: int = 0

    @classmethod
    def in_(cls, seconds: float) -> _Attempt:
        """The first, after so many seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self.due

    def next(self) -> _Attempt:
        return _Attempt(time.monotonic() + min(_LONGEST, _STARTING * 2**self.times), self.times + 1)


@dataclass
class Watch:
    """Looks at the server's connections, in a thread of its own.

    Args:
        engine: FLARE's, of the server.
        file: Where it is written down, for the job's process and the admin.
        gate: Knows whom to keep out.
    """

    engine: Any
    file: Path
    gate: Gate
    _written: Presence | None = None
    _members: int = 0
    _job: str | None = None
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)

    def start(self) -> None:
        threading.Thread(target=self._run, name="presence", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self._look()
            except Exception:  # FLARE's own tables change under our hands; the next look is in a moment
                log.debug("could not look who is there", exc_info=True)
            time.sleep(_LOOK)

    def _look(self) -> None:
        self.gate.look()
        connected = {
            client.name: client
            for client in self.engine.get_clients()
            if self._is_connected(client) and not self.gate.is_shut(client.name)
        }
        job_id = self._running()
        if job_id != self._job:
            self._job, self._attempts = job_id, {}
        here = [name for name, client in connected.items() if job_id and self._is_connected(client, job_id)]
        job = self.engine.job_runner.running_jobs.get(job_id)
        if job is not None:
            for name, client in connected.items():
                self._attend(job, client, name in here)
        alarms = dict(self.gate.alarms)
        found = Presence(job_id, tuple(sorted(connected)), tuple(sorted(here)), self._members, alarms)
        if found != self._written:
            atomic_write_text(self.file, found.to_text(), FederationError)
            self._written = found

    def _is_connected(self, client: Client, job_id: str | None = None) -> bool:
        name: str = client.get_fqcn() if job_id is None else FQCN.join([client.get_fqcn(), job_id])
        return bool(self.engine.server.cell.core_cell.is_cell_connected(name))

    def _running(self) -> str | None:
        """The job that is running at the server and not about to end; there is one at a time."""
        processes = list(self.engine.run_processes.items())
        return next((job_id for job_id, facts in processes if not facts.get(RunProcessKey.PROCESS_FINISHED)), None)

    # --- taking in ---------------------------------------------------------------------------------------------

    def _attend(self, job: Job, client: Client, here: bool) -> None:
        if here:
            self._attempts[client.token] = _Attempt.in_(_SOON)  # should its process die
            # What becomes of one site's process is not the end of the job.
            self.engine.job_runner.resolve_client_outcome(job.job_id, client.name)
            return
        member = client.token in self._participants(job)
        # FLARE has just asked those that were there when the job began.
        attempt = self._attempts.setdefault(client.token, _Attempt.in_(2 * _STARTING if member else 0.0))
        if attempt.is_due and client.token not in self._busy:
            self._attempts[client.token] = attempt.next()
            self._busy.add(client.token)
            threading.Thread(target=self._take_in, args=(job, client, not member), daemon=True).start()

    def _participants(self, job: Job) -> Mapping[str, Client]:
        process = self.engine.run_processes.get(job.job_id) or {}
        participants: Mapping[str, Client] = process.get(RunProcessKey.PARTICIPANTS) or {}
        return participants

    def _take_in(self, job: Job, client: Client, new: bool) -> None:
        try:
            with self.engine.new_context() as context:
                found = self.engine.check_client_resources(job, {client.name: {}}, context)
                reserved = found.get(client.name, (False, ""))
                if reserved[0] and (not new or self._deploy(job, client, context)):
                    info = DispatchInfo(app_name=_APP, resource_requirements={}, token=reserved[1])
                    self._enter(job, client)
                    self.engine.start_client_job(job, {client.name: info}, context)
        except Exception:  # the connection may end at any moment; the next attempt is in a while
            log.debug("could not take %s into the job", client.name, exc_info=True)
        finally:
            self._busy.discard(client.token)

    def _deploy(self, job: Job, client: Client, context: Any) -> bool:
        runner, server = self.engine.job_runner, self.engine.server
        content = self.engine.get_component(SystemComponents.JOB_MANAGER).get_app(job, _APP, context)
        message = runner._make_deploy_message(job, content, _APP, context)
        replies = server.admin_server.send_requests_and_get_reply_dict({client.token: message}, timeout_secs=_REPLY)
        reply = replies.get(client.token)
        return reply is not None and reply.get_header(MsgHeader.RETURN_CODE, ReturnCode.OK) == ReturnCode.OK

    def _enter(self, job: Job, client: Client) -> None:
        """Make the site a participant, in the place of what it was before it was started anew."""
        process = self.engine.run_processes[job.job_id]
        others = {token: other for token, other in self._participants(job).items() if other.name != client.name}
        process[RunProcessKey.PARTICIPANTS] = {**others, client.token: client}
        job.meta[JobMetaKey.JOB_CLIENTS] = [other.to_dict() for other in process[RunProcessKey.PARTICIPANTS].values()]
        self._members += 1
