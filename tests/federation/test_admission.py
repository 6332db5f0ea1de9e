"""Who may come in, and what may be brought along: refused for real, by a running coordinator and a running site."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fedgkd.federation.admin import job
from fedgkd.federation.kit import admin_name, make_kits, renew_kits
from tests.federation.deployment import FEDGKD, Deployment, deployed, free_port, wait_until
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
        stranger = a_site_that_is_not_on_the_list(parties)
        with a_site_that_claims_to_be_another(parties):
            a_site_cannot_start_a_job(parties)
            a_member_cannot_start_a_job(parties)
            parties.wait_for("coordinator", f"'{stranger}' wants to join but is not on the list")
        foreign_jobs_do_not_run(parties)
        assert "site-1 is connected" not in parties.said("coordinator")


def without_a_certificate_nobody_comes_in(parties: Deployment) -> None:
    parties.shake_hands(parties.kits / "site-0" / "startup" / "client.crt")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        parties.shake_hands(None)


def with_a_foreign_certificate_nobody_comes_in(parties: Deployment) -> None:
    foreign = parties.folder / "foreign"
    make_kits(parties.plan, foreign)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        parties.shake_hands(foreign / "site-0" / "startup" / "client.crt")
    checked = parties.run("check", "--kit", str(foreign / "site-0"), "--graph", str(parties.graph("site-0")))
    assert checked.returncode == 2
    assert "is not this federation's coordinator" in checked.stderr


@contextmanager
def a_site_that_claims_to_be_another(parties: Deployment) -> Iterator[None]:
    """Its certificate says site-0; it goes to the coordinator as site-1, and must be refused within the block."""
    kit = parties.folder / "liar"
    shutil.copytree(parties.kits / "site-1", kit)
    take_certificate(parties, "site-0", kit)
    module = "nvflare.private.fed.app.client.client_train"
    settings = ("secure_train=true", "uid=site-1", "org=site_1", "config_folder=config")
    parties.launch("liar", sys.executable, "-m", module, "-m", str(kit), "-s", "fed_client.json", "--set", *settings)
    yield
    noticed = "authenticated as 'site-0' but claimed endpoint 'site-1'"
    log = parties.kits / "coordinator" / "log.txt"
    wait_until("the lie is noticed", lambda: noticed in log.read_text())
    parties.kill("liar")


def a_site_that_is_not_on_the_list(parties: Deployment) -> str:
    """The authority signed its certificate, but the coordinator's federation file does not name it."""
    longer = replace(parties.plan, sites=(*parties.plan.sites, "stranger"))
    folder = parties.folder / "longer"
    shutil.copytree(parties.kits / "authority", folder / "authority")
    longer.write(folder)
    renew_kits(folder, parties.folder / "renewed")
    options = ("--kit", str(parties.folder / "renewed" / "stranger"), "--graph", str(parties.graph("site-0")))
    parties.launch("stranger", *FEDGKD, "join", *options, "--threads", "1")
    return "stranger"


def a_site_cannot_start_a_job(parties: Deployment) -> None:
    kit = parties.folder / "usurper"
    shutil.copytree(parties.kits / "admin", kit)
    take_certificate(parties, "site-0", kit)
    started = parties.run("start", "--kit", str(kit))
    assert started.returncode == 2
    assert started.stderr.startswith(f"error: the kit {kit} is not accepted as the admin's")
    assert len(started.stderr.splitlines()) == 1


def a_member_cannot_start_a_job(parties: Deployment) -> None:
    """The authority signed its certificate and it may log in, but its role is not the admin's."""
    kit = parties.folder / "member"
    shutil.copytree(parties.kits / "admin", kit)
    certify(parties, kit, "member")
    job(parties.plan, parties.folder / "of-a-member", 60.0, True)
    command = [sys.executable, "-c", _SUBMIT, str(kit), str(parties.folder / "of-a-member")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    refusal = "the coordinator does not let this kit do that: user not authorized for the action 'submit_job"
    assert refusal in done.stderr.splitlines()[-1]
    assert not [*(parties.kits / "coordinator" / "storage" / "jobs").glob("*")]


def certify(parties: Deployment, kit: Path, role: str) -> None:
    """Give a kit a certificate of the federation's authority in the admin's name, with a role of FLARE."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from nvflare.lighter.utils import Identity, generate_cert, generate_keys, serialize_cert, serialize_pri_key

    authority = json.loads((parties.kits / "authority" / "cert.json").read_text())
    signer = load_pem_private_key(authority["root_pri_key"].encode(), None)
    key, public_key = generate_keys()
    subject = Identity(admin_name(parties.plan), "coordinator", role)
    certificate = generate_cert(subject, Identity(parties.plan.rules.name), signer, public_key)
    (kit / "startup" / "client.crt").write_bytes(serialize_cert(certificate))
    (kit / "startup" / "client.key").write_bytes(serialize_pri_key(key))


def take_certificate(parties: Deployment, site: str, kit: Path) -> None:
    for file in ("client.crt", "client.key"):
        shutil.copy(parties.kits / site / "startup" / file, kit / "startup" / file)


_SUBMIT = """
import sys, time
from pathlib import Path
from fedgkd.federation.admin import Admin
from fedgkd.federation.kit import Kit
admin = Admin(Kit.open(Path(sys.argv[1]), "admin"))
try:
    for folder in sys.argv[2:]:
        job_id = admin._do(lambda session: session.submit_job(folder))
        while not (status := admin.job_status(job_id)).startswith(("FINISHED", "FAILED")):
            time.sleep(0.5)
        print(status)
finally:
    admin.close()
"""


def foreign_jobs_do_not_run(parties: Deployment) -> None:
    """Not even if the admin submits them."""
    folders = [job(parties.plan, parties.folder / name, 60.0, True) for name in ("class", "code")]
    path = folders[0] / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    config["executors"][0]["executor"]["path"] = "nvflare.app_common.np.np_trainer.NPTrainer"
    path.write_text(json.dumps(config))
    (folders[1] / "app" / "custom").mkdir()
    (folders[1] / "app" / "custom" / "evil.py").write_text("print('here')\n")
    command = [sys.executable, "-c", _SUBMIT, str(parties.kits / "admin"), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90)
    with_class, with_code = done.stdout.splitlines()
    assert "COMPLETED" not in with_class
    logs = [path.read_text() for path in (parties.kits / "site-0").rglob("*.txt")]
    assert any("NPTrainer' at config path" in text and "is not in allow_list" in text for text in logs)
    assert "FAILED_TO_RUN" in with_code
    assert "BYOC not permitted" in (parties.kits / "coordinator" / "log.txt").read_text()
