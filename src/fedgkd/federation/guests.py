"""Who may come in, at the coordinator."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated

from fedgkd.errors import quoted
from fedgkd.federation.gate import Gate
from fedgkd.federation.names import ENVELOPE, LARGEST, LOGGER
from fedgkd.federation.presence import Watch

log = logging.getLogger(LOGGER)


class GuestList(FLComponent):
    """Who is not on the federation's list is sent away, whatever certificate it has.

    Args:
        guests: The names of sites and admin.
        presence: File for who is there; see :mod:`fedgkd.federation.presence`.
        suspended: File for whose kit was used twice; see :mod:`fedgkd.federation.gate`.
    """

    def __init__(self, guests: list[str], presence: str, suspended: str) -> None:
        super().__init__()
        self.guests = guests
        self.presence = presence
        self.suspended = suspended
        self._known: dict[str, str] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            engine = fl_ctx.get_engine()
            sites = [guest for guest in self.guests if "@" not in guest]
            gate = Gate(sites, int(os.environ[LARGEST]) + ENVELOPE, Path(self.suspended))
            gate.install(engine.server.cell.core_cell)
            Watch(engine, Path(self.presence), gate).start()
        elif event_type == EventType.CLIENT_REGISTER_RECEIVED:
            peer = fl_ctx.get_peer_context()
            name = peer.get_identity_name() if peer is not None else None
            if name not in self.guests:
                log.warning("'%s' wants to join but is not on the list; it was sent away", name)
                raise NotAuthenticated(f"{quoted(name)} is not on the list of this federation")
        elif event_type in (EventType.CLIENT_REGISTER_PROCESSED, EventType.CLIENT_HEARTBEAT_PROCESSED):
            # After a restart of the coordinator, sites come back with a mere heartbeat.
            self._look_round(fl_ctx)

    def _look_round(self, fl_ctx: FLContext) -> None:
        """By the names that certificates prove, which may not be those that were said."""
        clients = fl_ctx.get_engine().client_manager
        for token, client in list(clients.clients.items()):
            if client.name not in self.guests:
                log.warning("'%s' is not on the list; it was sent away", client.name)
                clients.remove_client(token)
            elif self._known.get(client.name) != token:
                self._known[client.name] = token
                log.info("%s is connected", client.name)
