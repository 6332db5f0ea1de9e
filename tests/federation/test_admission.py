"""Who may come in, and what may be brought along: refused for real, by a running coordinator and a running site."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedgkd.federation.admin import job
from fedgkd.federation.kit import make_kits, renew_kits
from fedgkd.federation.network import GREETING
from tests.federation.deployment import Deployment, deployed, free_port, wait_until
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")


def test_strangers_and_foreign_code_are_refused(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, rules={"port": free_port(), "min_sites": 1, "deadline": 20.0})
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        parties.join("site-0")
        without_a_certificate_nobody_comes_in(parties)
        with_a_foreign_certificate_nobody_comes_in(parties)
        parties.wait_for("coordinator", "site-0 is connected")
        a_site_that_claims_to_be_another_is_refused(parties)
        a_site_that_is_not_on_the_list_is_refused(parties)
        a_site_cannot_start_a_job(parties)
        a_job_with_a_foreign_class_does_not_run(parties)
        a_job_with_code_is_refused(parties)
        assert "site-1 is connected" not in parties.said("coordinator")


def shake_hands(parties: Deployment, certificate: Path | None) -> None:
    context = ssl.create_default_context(cafile=str(parties.kits / "coordinator" / "startup" / "rootCA.pem"))
    if certificate is not None:
        context.load_cert_chain(str(certificate), str(certificate.with_suffix(".key")))
    plain = socket.create_connection(("localhost", parties.plan.rules.port), 5)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.sendall(GREETING)
        if not secure.recv(1):
            raise ConnectionError("closed")


def without_a_certificate_nobody_comes_in(parties: Deployment) -> None:
    shake_hands(parties, parties.kits / "site-0" / "startup" / "client.crt")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(parties, None)


def with_a_foreign_certificate_nobody_comes_in(parties: Deployment) -> None:
    foreign = parties.folder / "foreign"
    make_kits(parties.plan, foreign)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(parties, foreign / "site-0" / "startup" / "client.crt")
    checked = parties.run("check", "--kit", str(foreign / "site-0"), "--graph", str(parties.graph("site-0")))
    assert checked.returncode == 2
    assert "is not this federation's coordinator" in checked.stderr


def a_site_that_claims_to_be_another_is_refused(parties: Deployment) -> None:
    """Its certificate says site-0; it goes to the coordinator as site-1."""
    kit = parties.folder / "liar"
    shutil.copytree(parties.kits / "site-1", kit)
    for file in ("client.crt", "client.key"):
        shutil.copy(parties.kits / "site-0" / "startup" / file, kit / "startup" / file)
    module = "nvflare.private.fed.app.client.client_train"
    settings = ("secure_train=true", "uid=site-1", "org=site_1", "config_folder=config")
    command = [sys.executable, "-m", module, "-m", str(kit), "-s", "fed_client.json", "--set", *settings]
    log = parties.kits / "coordinator" / "log.txt"
    noticed = "authenticated as 'site-0' but claimed endpoint 'site-1'"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as liar:
        try:
            wait_until("the lie is noticed", lambda: noticed in log.read_text())
        finally:
            liar.kill()


def a_site_that_is_not_on_the_list_is_refused(parties: Deployment) -> None:
    """The authority signed its certificate, but the coordinator's federation file does not name it."""
    longer = replace(parties.plan, sites=(*parties.plan.sites, "stranger"))
    folder = parties.folder / "longer"
    shutil.copytree(parties.kits / "authority", folder / "authority")
    longer.write(folder)
    renew_kits(folder, parties.folder / "renewed")
    shutil.copy(parties.graph("site-0"), parties.graph("stranger"))
    kit = str(parties.folder / "renewed" / "stranger")
    parties._start("stranger", *_JOIN, "--kit", kit, "--graph", str(parties.graph("stranger")), "--threads", "1")
    parties.wait_for("coordinator", "'stranger' wants to join but is not on the list")


_JOIN = (sys.executable, "-m", "fedgkd", "federation", "join")


def a_site_cannot_start_a_job(parties: Deployment) -> None:
    kit = parties.folder / "usurper"
    shutil.copytree(parties.kits / "admin", kit)
    for file in ("client.crt", "client.key"):
        shutil.copy(parties.kits / "site-0" / "startup" / file, kit / "startup" / file)
    started = parties.run("start", "--kit", str(kit))
    assert started.returncode == 2
    assert started.stderr.startswith("error: ")
    assert "Traceback" not in started.stderr


_SUBMIT = """
import sys, time
from pathlib import Path
from fedgkd.errors import FederationError
from fedgkd.federation.admin import Admin
from fedgkd.federation.kit import Kit
admin = Admin(Kit.open(Path(sys.argv[1]), "admin"))
try:
    job_id = admin._do(lambda session: session.submit_job(sys.argv[2]))
    while not (status := admin.job_status(job_id)).startswith(("FINISHED", "FAILED")):
        time.sleep(0.5)
    print(status)
except FederationError as error:
    print(error)
admin.close()
"""


def submit(parties: Deployment, change: Callable[[Path], None]) -> str:
    """How it ended with a job of the admin's that is not ours."""
    folder = job(parties.plan, parties.folder / change.__name__)
    change(folder)
    command = [sys.executable, "-c", _SUBMIT, str(parties.kits / "admin"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout


def with_a_foreign_class(folder: Path) -> None:
    path = folder / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    config["executors"][0]["executor"]["path"] = "nvflare.app_common.np.np_trainer.NPTrainer"
    path.write_text(json.dumps(config))


def with_code(folder: Path) -> None:
    (folder / "app" / "custom").mkdir()
    (folder / "app" / "custom" / "evil.py").write_text("print('here')\n")


def a_job_with_a_foreign_class_does_not_run(parties: Deployment) -> None:
    assert "COMPLETED" not in submit(parties, with_a_foreign_class)
    logs = [path.read_text() for path in (parties.kits / "site-0").rglob("*.txt")]
    assert any("NPTrainer' at config path" in text and "is not in allow_list" in text for text in logs)


def a_job_with_code_is_refused(parties: Deployment) -> None:
    assert "FAILED_TO_RUN" in submit(parties, with_code)
    assert "BYOC not permitted" in (parties.kits / "coordinator" / "log.txt").read_text()
