"""Whether the coordinator can be reached, and whether it is the one that the kit means; in one sentence if not."""

from __future__ import annotations

import socket
import ssl

from fedgkd.errors import FederationError
from fedgkd.federation.kit import Kit

GREETING = b"HEAD / HTTP/1.1\r\nHost: coordinator\r\nConnection: close\r\n\r\n"
_PATIENCE = 5.0


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
                # With TLS 1.3 a server that does not like our certificate says so only after the handshake.
                secure.sendall(GREETING)
                secure.recv(1)
    except socket.gaierror as error:
        raise FederationError(f"the host '{host}' is not known here; check the name in federation.toml") from error
    except ssl.SSLCertVerificationError as error:
        raise FederationError(
            f"who answers at {host}:{port} is not this federation's coordinator ({error.verify_message})"
        ) from error
    except ssl.SSLError as error:
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
