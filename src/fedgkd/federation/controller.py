"""The coordinator's side of NVIDIA FLARE's workflow: it carries the bytes of our rounds to the sites and back.

Task data and results are a single ``bytes`` value in a FLARE ``Shareable``, so nothing of ours is pickled and nothing
that arrives is turned into objects before our checks.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedgkd.errors import FedGKDError
from fedgkd.federation.checks import Refused, cannot
from fedgkd.federation.coordinator import Coordinator, Interrupted, report_problem
from fedgkd.federation.lifeline import end_with_parent
from fedgkd.federation.names import ALLOWED, LOGGER, MESSAGE, PRESENCE, REASON, RUN, TASK
from fedgkd.federation.plan import read_plan
from fedgkd.federation.presence import Presence

_CHECK = 0.1
_GRACE = 5.0
"""Seconds that a connection may be closed before its site is given up for the round."""

log = logging.getLogger(LOGGER)


class RoundsController(Controller):
    """Runs a segment of the coordinator's rounds; a job of FLARE is nothing but that.

    Args:
        wait: Seconds to wait for sites that are missing.
        everybody: Whether the first round waits for all sites, and not just for those of the last round.
    """

    def __init__(self, wait: float = 0.0, everybody: bool = False) -> None:
        super().__init__(task_check_period=_CHECK)
        self.wait = wait
        self.everybody = everybody
        self._context: FLContext | None = None
        self._abort: Signal | None = None
        self._presence = Presence()
        self._lost: dict[str, float] = {}
        self._saw: Callable[[str], None] = _nobody

    def start_controller(self, fl_ctx: FLContext) -> None:
        end_with_parent()

    def stop_controller(self, fl_ctx: FLContext) -> None:
        self._saw = _nobody

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        self._context, self._abort = fl_ctx, abort_signal
        kit = Path(fl_ctx.get_workspace().get_root_dir())
        threading.Thread(target=self._watch, args=(kit / PRESENCE, fl_ctx.get_job_id()), daemon=True).start()
        try:
            coordinator = Coordinator(read_plan(kit, os.environ.get(ALLOWED)), kit / RUN, log.info)
            self._saw = coordinator.attendance.saw
            coordinator.run_segment(self, self.wait, everybody=self.everybody)
        except FedGKDError as error:
            log.error("%s", error)
            report_problem(kit / RUN, str(error))
            self.system_panic(str(error), fl_ctx)
        except Exception as error:  # the job's own log, where it would go, is removed with the job
            log.exception("the coordinator failed")
            self.system_panic(f"the coordinator failed: {error}", fl_ctx)

    # --- Exchange ----------------------------------------------------------------------------------------------

    def present(self) -> Mapping[str, bool]:
        presence = self._presence
        return {site: site in presence.here for site in presence.connected}

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Refused]:
        """Every site gets its own task; the answers of those that are done before the deadline are returned."""
        answers: dict[str, bytes | Refused] = {}

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            # FLARE binds the sender to its certificate: only the client that a task was sent to can answer it.
            answer = client_task.result.get(MESSAGE)
            good = client_task.result.get_return_code() == ReturnCode.OK and isinstance(answer, bytes)
            answers[client_task.client.name] = answer if good else cannot(client_task.result.get(REASON))

        tasks: dict[str, Task] = {}
        for site, message in messages.items():
            data = Shareable()
            data[MESSAGE] = message
            tasks[site] = Task(TASK, data, timeout=max(1, round(seconds)), result_received_cb=take)
            self.send(tasks[site], self._context, targets=[site])
        until = time.monotonic() + seconds
        known = self._presence.alarms
        while time.monotonic() < until and any(self._is_awaited(site, task) for site, task in tasks.items()):
            if self._is_aborted():
                raise Interrupted
            for site, (number, why) in self._presence.alarms.items():
                if site in tasks and number > known.get(site, (0, ""))[0]:
                    self.cancel_task(tasks[site])
                    answers[site] = Refused(why)
            time.sleep(_CHECK / 5)
        for task in tasks.values():
            if task.completion_status is None:
                self.cancel_task(task)
        return dict(answers)

    def _is_awaited(self, site: str, task: Task) -> bool:
        """Whether the answer may still come: a site whose connection is closed gets a moment to open it again."""
        lost = self._lost.get(site)
        return task.completion_status is None and (lost is None or time.monotonic() < lost + _GRACE)

    def pause(self, seconds: float) -> bool:
        time.sleep(seconds)
        return not self._is_aborted()

    def _is_aborted(self) -> bool:
        return self._abort is not None and bool(self._abort.triggered)

    # --- who is there ------------------------------------------------------------------------------------------

    def _watch(self, file: Path, job: str) -> None:
        """Follow what the server writes down, in a thread: a site that was taken into the job is to be let in here."""
        assert self._context is not None
        engine = self._context.get_engine()
        while True:
            try:
                found = Presence.from_text(file.read_text(encoding="utf-8"))
                if found.job == job and found != self._presence:
                    if found.members != self._presence.members:
                        engine.sync_clients_from_main_process()
                    for site in {*self._presence.connected, *found.connected}:
                        if site in found.connected:
                            self._lost.pop(site, None)
                        else:
                            self._lost.setdefault(site, time.monotonic())
                    self._presence = found
            except (OSError, ValueError, RuntimeError) as error:  # it is written anew, or the server is about to end
                log.debug("who is there: %s", error)
            time.sleep(_CHECK)

    # --- what FLARE tells --------------------------------------------------------------------------------------

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.BEFORE_PROCESS_TASK_REQUEST:
            peer = fl_ctx.get_peer_context()
            if peer is not None:
                self._saw(peer.get_identity_name())

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """An answer after the deadline: too late for its round, but the site is there."""
        self._saw(client.name)


def _nobody(site: str) -> None:
    """Before the rounds begin and after they end there is no list to note a site in."""
