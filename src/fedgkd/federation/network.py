"""Whether the coordinator can be reached, and whether it is the one that the kit means; in one sentence if not."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from fedgkd.errors import FederationError, quoted
from fedgkd.federation.kit import COORDINATOR, Kit, day

GREETING = b"HEAD / HTTP/1.1\r\nHost: coordinator\r\nConnection: close\r\n\r\n"
_PATIENCE = 5.0
_LONGEST_HEAD = 16_384
_OUT_OF_TIME = (9, 10)
"""OpenSSL's numbers for a certificate that is not valid yet, or no more."""
_APART = timedelta(hours=1)
"""Clocks that differ by less are not what makes a certificate invalid."""


def check_port_free(port: int) -> None:
    """Raise if something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise FederationError(
                f"port {port} is in use or not allowed ({error.strerror}); stop what listens there, "
                "or make kits with another --port"
            ) from error


def check_coordinator(kit: Kit) -> None:
    """Shake hands with the coordinator: both sides show their certificates.

    Raises:
        FederationError: If it is not there, is not ours, or does not want us.
    """
    host, port = kit.plan.rules.host, kit.plan.rules.port
    context = ssl.create_default_context(cafile=str(kit.root_certificate))
    try:
        context.load_cert_chain(str(kit.certificate), str(kit.key))
    except (ssl.SSLError, OSError) as error:
        raise FederationError(f"certificate and key of {kit.path} cannot be used ({error})") from error
    try:
        with socket.create_connection((host, port), _PATIENCE) as plain:
            plain.settimeout(_PATIENCE)
            with context.wrap_socket(plain, server_hostname=host) as secure:
                # With TLS 1.3 a server that does not like our certificate says so only after the handshake, and why
                # is still there to be read when it has hung up.
                with suppress(ssl.SSLEOFError, ConnectionError):
                    secure.sendall(GREETING)
                secure.recv(1)
    except socket.gaierror as error:
        raise FederationError(
            f"the host {quoted(host)} is not known here; check the name in federation.toml"
        ) from error
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OUT_OF_TIME:
            now = datetime.now(UTC)
            raise FederationError(
                f"the coordinator's certificate is not valid by this machine's clock, which says {day(now)} "
                f"({error.verify_message}); {about_clocks(kit, now)}"
            ) from error
        raise FederationError(
            f"who answers at {host}:{port} is not this federation's coordinator ({error.verify_message})"
        ) from error
    except ssl.SSLError as error:
        if "EXPIRED" in (error.reason or ""):
            raise FederationError(
                f"the certificate of {kit.path} is valid by this machine's clock, which says {day(datetime.now(UTC))}, "
                f"but has expired by that of {host}:{port}; set the clock right that is wrong"
            ) from error
        raise FederationError(
            f"{host}:{port} does not accept the certificate of {kit.path} ({error.reason}); take a fresh kit"
        ) from error
    except TimeoutError as error:
        raise FederationError(f"nobody answers at {host}:{port}; a firewall may be in between") from error
    except OSError as error:
        raise FederationError(
            f"cannot reach the coordinator at {host}:{port} ({error.strerror or error}); "
            "is 'fedgkd federation serve' running there?"
        ) from error


def about_clocks(kit: Kit, now: datetime) -> str:
    """What to do about a certificate that is out of its time by this machine's clock, by that of the coordinator."""
    there = _coordinators_clock(kit) if kit.role != COORDINATOR else None
    if there is not None and abs(there - now) > _APART:
        return f"the coordinator's clock says {day(there)}; set the clock right that is wrong"
    renew = "renew the certificates ('fedgkd federation renew' makes new kits)"
    if there is not None:
        return f"the coordinator's clock says the same; {renew}"
    return f"set the clock right if it is wrong; if not, {renew}"


def _coordinators_clock(kit: Kit) -> datetime | None:
    """What the clock says at whoever answers in the coordinator's place. Nothing proves it: for a sentence only."""
    host, port = kit.plan.rules.host, kit.plan.rules.port
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.load_cert_chain(str(kit.certificate), str(kit.key))
        with socket.create_connection((host, port), _PATIENCE) as plain:
            plain.settimeout(_PATIENCE)
            with context.wrap_socket(plain, server_hostname=host) as secure:
                secure.sendall(GREETING)
                answer = b""
                while b"\r\n\r\n" not in answer and len(answer) < _LONGEST_HEAD and (more := secure.recv(1024)):
                    answer += more
        date = next(line for line in answer.decode("latin-1").splitlines() if line.lower().startswith("date:"))
        return parsedate_to_datetime(date.partition(":")[2].strip()).astimezone(UTC)
    except (OSError, ValueError, StopIteration):
        return None
