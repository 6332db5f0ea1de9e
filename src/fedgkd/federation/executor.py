"""A site's side of NVIDIA FLARE's workflow: it passes bytes on to the training process and its answer back.

Every segment starts a process for this class, so it imports nothing heavy.
"""

from __future__ import annotations

import logging
import os

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedgkd.federation.ask import NoAnswer, ask
from fedgkd.federation.lifeline import end_with_parent
from fedgkd.federation.names import LARGEST, LOGGER, MESSAGE, REASON, WORKER

log = logging.getLogger(LOGGER)


class SiteExecutor(Executor):
    """Passes a task's bytes to the site's training process and its answer back; it never sees graph or model."""

    def __init__(self) -> None:
        super().__init__()
        end_with_parent()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        question = shareable.get(MESSAGE)
        if not isinstance(question, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        try:
            answer = ask(
                os.environ[WORKER],
                question,
                lambda: not abort_signal.triggered,
                largest=int(os.environ[LARGEST]),
            )
        except NoAnswer as reason:
            log.warning("no answer to the coordinator: %s", reason)
            reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
            reply[REASON] = str(reason)
            return reply
        reply = make_reply(ReturnCode.OK)
        reply[MESSAGE] = answer
        return reply
