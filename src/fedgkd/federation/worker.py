"""The process at a site that trains. It alone sees the graph; it answers messages over a local socket.

NVIDIA FLARE's job process at the site only passes bytes on. So a training process that is killed takes nothing with it:
``fedgkd federation join`` starts it again, and the question is put to the new one.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedgkd.errors import FedGKDError
from fedgkd.federation.names import CANNOT_START
from fedgkd.federation.wire import FAILED, OK, answered_file, largest_file, receive, send

if TYPE_CHECKING:
    from fedgkd.federation.site import Site

log = logging.getLogger(__name__)

_FAILURES = 3
_SILENCE = 30.0
"""Seconds without another question, after one that this machine was the reason not to answer, until that is the end."""


def main(arguments: list[str] | None = None) -> None:
    """``python -m fedgkd.federation.worker``: what ``fedgkd federation join`` starts."""
    options = _parse(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )
    try:
        serve(open_site(options), options.socket)
    except FedGKDError as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(CANNOT_START) from None


def open_site(options: argparse.Namespace) -> Site:
    from fedgkd.federation.kit import Kit
    from fedgkd.federation.site import Site

    kit = Kit.open(options.kit, "site", allowed=options.allow_algorithm)
    graph = kit.plan.open_graph(options.graph, options.label)
    kit.plan.check_graph(graph)
    return Site(
        kit.plan,
        kit.name,
        graph,
        options.out,
        share_metrics=not options.keep_metrics,
        device=options.device,
        threads=options.threads,
    )


def serve(site: Site, address: Path) -> None:
    """Answer one question after the other, until this machine is the reason that it cannot, three times in a row.

    It is also the end if no other question follows such a one: then nobody passes them on any more.

    Raises:
        FedGKDError: That reason.
    """
    from fedgkd.federation.checks import largest_message

    failures = 0
    problem: FedGKDError | None = None
    largest_file(address).write_text(str(largest_message(site.plan)), encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as listener:
        address.unlink(missing_ok=True)
        listener.bind(str(address))
        listener.listen()
        log.info("%s is ready: %d nodes, %d rounds done", site.name, site.graph.num_nodes, site.done)
        while True:
            listener.settimeout(_SILENCE if failures else None)
            try:
                connection, _ = listener.accept()
            except TimeoutError:  # FLARE's processes fail on a full disk as well: no other question may ever come
                assert problem is not None
                raise problem from None
            with connection, contextlib.suppress(ConnectionError):
                answer, problem = _answer(site, receive(connection))
                send(connection, answer)
                with contextlib.suppress(OSError):  # a full disk is told in other ways
                    answered_file(address).touch()
            # The coordinator's mistakes are no reason to leave; a full disk is.
            failures = failures + 1 if problem is not None and isinstance(problem.__cause__, OSError) else 0
            if problem is not None and failures == _FAILURES:
                raise problem


def _answer(site: Site, question: bytes) -> tuple[bytes, FedGKDError | None]:
    before = site.done
    try:
        answer = site.answer(question)
    except FedGKDError as error:
        log.error("%s", error)
        return FAILED + str(error).encode(), error
    if site.done == before:
        log.info("%s: the training is over; model and metrics are in %s", site.name, site.folder)
    else:
        log.info("%s: round %d done", site.name, site.done)
    return OK + answer, None


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--kit", "--graph", "--out", "--socket"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--allow-algorithm")
    parser.add_argument("--label", default="label")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--keep-metrics", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
