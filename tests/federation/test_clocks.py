"""Clocks that are wrong get a sentence about clocks; the clock of a real process is shifted for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.federation.deployment import FEDGKD, Deployment, deployed, free_port
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")

YEAR = 366 * 86_400
SHIFT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long ahead(void) { const char *text = getenv("CLOCK_AHEAD"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, at);
    if (which == CLOCK_REALTIME) at->tv_sec += ahead();
    return code;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000;
    return code;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""

LISTENER = """
import socket, ssl, sys
from pathlib import Path
startup = Path(sys.argv[1]) / "startup"
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=startup / "rootCA.pem")
context.verify_mode = ssl.CERT_REQUIRED
context.load_cert_chain(startup / "server.crt", startup / "server.key")
with socket.create_server(("localhost", int(sys.argv[2]))) as listener:
    print("listens", flush=True)
    while True:
        connection, _ = listener.accept()
        try:
            context.wrap_socket(connection, server_side=True)
        except ssl.SSLError:
            connection.close()
"""
"""A coordinator whose clock jumps after it has started, as far as a handshake shows it."""


@pytest.fixture(scope="module")
def shift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that puts the clock of a process ahead."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler to shift a process's clock")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "shift.c").write_text(SHIFT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "shift.so", folder / "shift.c", "-ldl"], check=True)
    return folder / "shift.so"


def check(parties: Deployment, shift: Path, seconds: int) -> str:
    site = parties.plan.sites[0]
    command = [*FEDGKD, "check", "--kit", str(parties.kits / site), "--graph", str(parties.graph(site))]
    environment = os.environ | {"LD_PRELOAD": str(shift), "CLOCK_AHEAD": str(seconds)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert done.returncode == 2, done.stdout
    return done.stderr


def test_a_clock_that_is_wrong_is_what_the_sentence_is_about(shift: Path, tmp_path: Path) -> None:
    federation = planted_federation(1)
    with deployed(tmp_path, make_plan(federation, rules={"port": free_port()}), federation) as parties:
        alone = check(parties, shift, YEAR).splitlines()
        assert "by this machine's clock, which says" in alone[0]
        assert "set the clock right if it is wrong; if not, renew" in alone[0]
        parties.serve()
        ahead = check(parties, shift, YEAR).splitlines()
        assert "client.crt expired on" in ahead[0]
        assert "the coordinator's certificate is not valid by this machine's clock" in ahead[1]
        for line in ahead:
            assert "; the coordinator's clock says" in line
            assert line.endswith("set the clock right that is wrong")
        behind = check(parties, shift, -YEAR).splitlines()
        assert "this machine's clock says" in behind[0]
        assert "; set the clock right" in behind[0]
        assert behind[1].endswith("set the clock right that is wrong")


def test_a_coordinator_whose_clock_is_ahead_is_told_so(shift: Path, tmp_path: Path) -> None:
    federation = planted_federation(1)
    with deployed(tmp_path, make_plan(federation, rules={"port": free_port()}), federation) as parties:
        told = subprocess.run(
            [*FEDGKD, "serve", "--kit", str(parties.kits / "coordinator")],
            capture_output=True,
            text=True,
            env=os.environ | {"LD_PRELOAD": str(shift), "CLOCK_AHEAD": str(YEAR)},
            check=False,
            timeout=60,
        )
        assert told.returncode == 2
        assert "expired on" in told.stderr
        assert "by this machine's clock, which says" in told.stderr
        listener = [sys.executable, "-c", LISTENER, str(parties.kits / "coordinator"), str(parties.plan.rules.port)]
        with subprocess.Popen(
            listener, stdout=subprocess.PIPE, env=os.environ | {"LD_PRELOAD": str(shift), "CLOCK_AHEAD": str(YEAR)}
        ) as jumped:
            try:
                assert jumped.stdout is not None
                jumped.stdout.readline()
                said = check(parties, shift, 0)
            finally:
                jumped.kill()
        assert "is valid by this machine's clock, which says" in said
        assert f"has expired by that of localhost:{parties.plan.rules.port}; set the clock right that is wrong" in said
