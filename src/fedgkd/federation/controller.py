"""The coordinator's side of NVIDIA FLARE's workflow: it carries the bytes of our rounds to the sites and back.

Task data and results are a single ``bytes`` value in a FLARE ``Shareable``, so nothing of ours is pickled and nothing
that arrives is turned into objects before our checks.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
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
from fedgkd.federation.coordinator import REFUSAL, Coordinator, Interrupted
from fedgkd.federation.lifeline import end_with_parent
from fedgkd.federation.names import ALLOWED, ARRIVALS, LOGGER, MESSAGE, RUN, TASK
from fedgkd.federation.plan import read_plan

_CHECK = 0.1
_STARTING = 15.0
"""Seconds in which a job is being started: a site that came in then may not be part of it."""

log = logging.getLogger(LOGGER)


class RoundsController(Controller):
    """Runs a segment of the coordinator's rounds; a job of FLARE is nothing but that."""

    def __init__(self) -> None:
        super().__init__(task_check_period=_CHECK)
        self._context: FLContext | None = None
        self._abort: Signal | None = None
        self._began = 0.0
        self._arrivals = Path(ARRIVALS)
        self._saw: Callable[[str], None] = _nobody

    def start_controller(self, fl_ctx: FLContext) -> None:
        end_with_parent()
        self._began = time.time()

    def stop_controller(self, fl_ctx: FLContext) -> None:
        self._saw = _nobody

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        self._context, self._abort = fl_ctx, abort_signal
        kit = Path(fl_ctx.get_workspace().get_root_dir())
        self._arrivals = kit / ARRIVALS
        try:
            coordinator = Coordinator(read_plan(kit, os.environ.get(ALLOWED)), kit / RUN, log.info)
            self._saw = coordinator.attendance.saw
            log.info("training with %s", ", ".join(self.reachable()) or "nobody yet")
            coordinator.run_segment(self)
        except FedGKDError as error:
            log.error("%s", error)
            self.system_panic(str(error), fl_ctx)
        except Exception as error:  # the job's own log, where it would go, is removed with the job
            log.exception("the coordinator failed")
            self.system_panic(f"the coordinator failed: {error}", fl_ctx)

    # --- Exchange ----------------------------------------------------------------------------------------------

    def reachable(self) -> Sequence[str]:
        assert self._context is not None
        return [client.name for client in self._context.get_engine().get_clients()]

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """Every site gets its own task; the answers of those that are done before the deadline are returned."""
        answers: dict[str, bytes] = {}

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            # FLARE binds the sender to its certificate: only the client that a task was sent to can answer it.
            answer = client_task.result.get(MESSAGE)
            good = client_task.result.get_return_code() == ReturnCode.OK and isinstance(answer, bytes)
            answers[client_task.client.name] = answer if good else REFUSAL

        tasks = []
        for site, message in messages.items():
            data = Shareable()
            data[MESSAGE] = message
            task = Task(TASK, data, timeout=max(1, round(seconds)), result_received_cb=take)
            self.send(task, self._context, targets=[site])
            tasks.append(task)
        until = time.monotonic() + seconds
        while any(task.completion_status is None for task in tasks) and time.monotonic() < until:
            if self._is_aborted():
                raise Interrupted
            time.sleep(_CHECK / 5)
        for task in tasks:
            if task.completion_status is None:
                self.cancel_task(task)
        return dict(answers)

    def pause(self, seconds: float) -> bool:
        time.sleep(seconds)
        return not self._is_aborted() and not self._somebody_is_back()

    def _somebody_is_back(self) -> bool:
        """A site that came in after this segment began takes part in the next, so this one had better end."""
        try:
            arrivals = json.loads(self._arrivals.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        here = set(self.reachable())
        late = [
            site for site, moment in arrivals.items() if moment > self._began - (0.0 if site in here else _STARTING)
        ]
        if late:
            log.info("%s came in; the next segment begins now", ", ".join(late))
        return bool(late)

    def _is_aborted(self) -> bool:
        return self._abort is not None and bool(self._abort.triggered)

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
