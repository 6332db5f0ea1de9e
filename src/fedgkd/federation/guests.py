"""Who may come in, at the coordinator."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import FederationError
from fedgkd.federation.names import LOGGER

log = logging.getLogger(LOGGER)


class GuestList(FLComponent):
    """Who is not on the federation's list is sent away, whatever certificate it has.

    Args:
        guests: The names of sites and admin.
        arrivals: File that says when each site last came in; a running segment looks there for sites that are back.
    """

    def __init__(self, guests: list[str], arrivals: str) -> None:
        super().__init__()
        self.guests = guests
        self.arrivals = arrivals
        self._known: dict[str, str] = {}
        self._came: dict[str, float] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.CLIENT_REGISTER_RECEIVED:
            peer = fl_ctx.get_peer_context()
            name = peer.get_identity_name() if peer is not None else None
            if name not in self.guests:
                log.warning("'%s' wants to join but is not on the list; it was sent away", name)
                raise NotAuthenticated(f"'{name}' is not on the list of this federation")
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
                self._came[client.name] = time.time()
                atomic_write_text(Path(self.arrivals), json.dumps(self._came), FederationError)
                log.info("%s is connected", client.name)
