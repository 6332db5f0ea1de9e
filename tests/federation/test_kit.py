"""Kits: what is in them, and one sentence for every way in which one can be wrong."""

from __future__ import annotations

import json
import shutil
import socket
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedgkd.errors import FederationError
from fedgkd.federation.kit import Kit, make_kits, renew_kits, settle
from fedgkd.federation.network import check_coordinator, check_port_free
from fedgkd.federation.plan import Plan, Rules, read_plan

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")

PLAN = Plan(Rules(name="demo", features=6, port=1), ("north", "south"), 3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "kits"
    make_kits(PLAN, folder)
    return folder


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    """A copy, to spoil."""
    shutil.copytree(made, tmp_path / "kits")
    return tmp_path / "kits"


def test_every_party_gets_a_kit_with_the_federation_file(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == [
        "admin",
        "authority",
        "coordinator",
        "federation.toml",
        "north",
        "south",
    ]
    for party in ("coordinator", "north", "south", "admin"):
        assert read_plan(made / party) == PLAN


def test_keys_are_for_their_owner_only(made: Path) -> None:
    keys = [*made.rglob("*.key"), made / "authority" / "cert.json"]
    assert len(keys) == 5
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)


def test_only_the_authority_has_the_key_that_signs(made: Path) -> None:
    root = json.loads((made / "authority" / "cert.json").read_text())["root_pri_key"]
    others = [path for path in made.rglob("*") if path.is_file() and path.parent.name != "authority"]
    assert not any(root.splitlines()[1] in path.read_text() for path in others)


def test_a_party_is_who_its_certificate_says(made: Path) -> None:
    assert Kit.open(made / "north", "site").name == "north"
    assert Kit.open(made / "coordinator", "coordinator").name == "coordinator"
    assert Kit.open(made / "admin", "admin").name == "admin@demo.local"


def test_sites_build_nothing_but_our_class_and_bring_no_code(made: Path) -> None:
    for party, allowed in (("north", "executor.SiteExecutor"), ("coordinator", "controller.RoundsController")):
        resources = json.loads((made / party / "local" / "resources.json").read_text())
        assert resources["class_allow_list"] == [f"fedgkd.federation.{allowed}"]
        assert resources["class_list_enforcement_mode"] == "enforce"
        rights = json.loads((made / party / "local" / "authorization.json").read_text())["permissions"]
        assert list(rights) == ["project_admin"]
        assert rights["project_admin"]["byoc"] == "none"
    assert rights["project_admin"]["download_job"] == "none"
    at_site = json.loads((made / "north" / "local" / "authorization.json").read_text())["permissions"]
    assert at_site["project_admin"]["shell_commands"] == "none"
    assert not json.loads((made / "north" / "local" / "resources.json").read_text())["allow_log_streaming"]


def test_the_coordinator_stores_in_its_kit_and_knows_its_guests(kits: Path) -> None:
    (kits / "coordinator" / "storage" / "jobs").mkdir(parents=True)
    replace(PLAN, blocked=("north",)).write(kits / "coordinator")
    settle(Kit.open(kits / "coordinator", "coordinator"))
    text = (kits / "coordinator" / "local" / "resources.json").read_text()
    assert "/tmp/nvflare" not in text
    parts = {part["id"]: part.get("args", {}) for part in json.loads(text)["components"]}
    assert parts["guest_list"]["guests"] == ["south", "admin@demo.local"], "who is blocked is no guest"
    assert parts["job_manager"]["uri_root"] == str(kits / "coordinator" / "storage" / "jobs")
    assert not (kits / "coordinator" / "storage").exists()


def test_a_folder_in_use_is_left_alone(kits: Path) -> None:
    with pytest.raises(FederationError, match="not an empty folder"):
        make_kits(PLAN, kits)


@pytest.mark.parametrize(
    ("party", "role", "sentence"),
    [
        ("north", "coordinator", "is the kit of a site; this command takes that of the coordinator"),
        ("coordinator", "site", "is the kit of the coordinator; this command takes that of a site"),
        ("admin", "site", "is the kit of the admin; this command takes that of a site"),
        ("authority", "site", "is not a kit"),
        ("nobody", "site", "is not a folder"),
    ],
)
def test_the_wrong_kit_is_named(party: str, role: str, sentence: str, made: Path) -> None:
    with pytest.raises(FederationError, match=sentence):
        Kit.open(made / party, role)


def test_a_certificate_is_checked_against_the_clock(made: Path) -> None:
    kit = Kit.open(made / "north", "site")
    end = kit.check_certificate()
    assert timedelta(days=300) < end - datetime.now(UTC) < timedelta(days=400)
    with pytest.raises(FederationError, match=r"expired on .* by this machine's clock, .*; if not, renew"):
        kit.check_certificate(end + timedelta(days=1))
    with pytest.raises(FederationError, match="this machine's clock says 2020-01-01 00:00 UTC; set the clock right"):
        kit.check_certificate(datetime(2020, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("client.crt", "nonsense", "is not a certificate, or is damaged"),
        ("client.crt", None, "cannot read"),
        ("client.key", "nonsense", "is not a private key, or is damaged"),
        ("client.key", None, "cannot read"),
        ("rootCA.pem", "nonsense", "is not a certificate, or is damaged"),
    ],
)
def test_a_damaged_kit_is_named_in_one_sentence(file: str, content: str | None, sentence: str, kits: Path) -> None:
    path = kits / "north" / "startup" / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(FederationError, match=sentence):
        Kit.open(kits / "north", "site").check_certificate()


@pytest.mark.parametrize("file", ["client.crt", "rootCA.pem"])
def test_a_certificate_with_one_letter_changed_is_refused_wherever_it_is(file: str, kits: Path) -> None:
    path = kits / "north" / "startup" / file
    whole = path.read_text()
    for place in range(30, len(whole) - 30, 40):
        other = "B" if whole[place] != "B" else "C"
        path.write_text(whole[:place] + other + whole[place + 1 :])
        with pytest.raises(
            FederationError, match=r"(damaged|was not signed|does not belong|expired|valid from|nobody)"
        ):
            Kit.open(kits / "north", "site").check_certificate()


def test_files_of_two_kits_do_not_mix(kits: Path, tmp_path: Path) -> None:
    startup = kits / "north" / "startup"
    shutil.copy(kits / "south" / "startup" / "client.key", startup / "client.key")
    with pytest.raises(FederationError, match=r"does not belong to client\.crt"):
        Kit.open(kits / "north", "site").check_certificate()
    make_kits(PLAN, tmp_path / "other")
    shutil.copy(tmp_path / "other" / "north" / "startup" / "rootCA.pem", startup / "rootCA.pem")
    with pytest.raises(FederationError, match="was not signed by the federation's authority"):
        Kit.open(kits / "north", "site").check_certificate()


def test_renewed_kits_have_new_certificates_of_the_same_authority(kits: Path, tmp_path: Path) -> None:
    renew_kits(kits, tmp_path / "new")
    old, new = Kit.open(kits / "north", "site"), Kit.open(tmp_path / "new" / "north", "site")
    new.check_certificate()
    assert new.root_certificate.read_bytes() == old.root_certificate.read_bytes()
    assert new.certificate.read_bytes() != old.certificate.read_bytes()
    assert new.plan == old.plan


@pytest.mark.parametrize("text", ["[]", '{"root_cert": 5}'])
def test_an_authority_that_is_none_is_named(kits: Path, tmp_path: Path, text: str) -> None:
    (kits / "authority" / "cert.json").write_text(text)
    with pytest.raises(FederationError, match="does not hold root_cert and root_pri_key"):
        renew_kits(kits, tmp_path / "new")


@pytest.mark.parametrize("host", ["bad host", "", "my_host"])
def test_a_host_that_no_certificate_can_name_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(FederationError, match=f"host = '{host}' cannot be used"):
        make_kits(replace(PLAN, rules=replace(PLAN.rules, host=host)), tmp_path / "kits")
    assert not (tmp_path / "kits").exists()


def test_without_the_authority_nothing_is_renewed(kits: Path, tmp_path: Path) -> None:
    shutil.rmtree(kits / "authority")
    with pytest.raises(FederationError, match="is needed to renew certificates"):
        renew_kits(kits, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_coordinator_that_is_not_there_is_named(made: Path) -> None:
    with pytest.raises(FederationError, match=r"cannot reach the coordinator at localhost:1 \(Connection refused\)"):
        check_coordinator(Kit.open(made / "north", "site"))


def test_a_host_that_nobody_knows_is_named(kits: Path) -> None:
    path = kits / "north" / "federation.toml"
    path.write_text(path.read_text().replace('"localhost"', '"no-such-host.invalid"'))
    with pytest.raises(FederationError, match=r"the host 'no-such-host\.invalid' is not known here"):
        check_coordinator(Kit.open(kits / "north", "site"))


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(FederationError, match=f"port {port} is in use"):
            check_port_free(port)
