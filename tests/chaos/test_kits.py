"""Kits that were tampered with, plans that cannot be, and clocks that are wrong: seen before anything is trained."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.federation.deployment import Deployment, deployed, free_port
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")
pytestmark = pytest.mark.chaos

LIBFAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory, busy: None) -> Iterator[Deployment]:
    """A coordinator that waits for its sites."""
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rules={"port": free_port()})
    with deployed(tmp_path_factory.mktemp("kits"), plan, federation) as parties:
        parties.serve()
        yield parties


@pytest.fixture
def kit(parties: Deployment, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a party's kit, that of site-0 unless another is named, for a test to spoil."""
    name = getattr(request, "param", "site-0")
    return Path(shutil.copytree(parties.kits / name, tmp_path / name, ignore=shutil.ignore_patterns(".lock")))


def change(kit: Path, line: str) -> None:
    """Put a line in the place of the one with the same name in the kit's federation file, or among its settings."""
    path, name = kit / "federation.toml", line.partition(" ")[0]
    lines = path.read_text().splitlines()
    changed = [line if old.partition(" ")[0] == name else old for old in lines]
    path.write_text("\n".join([*changed, *([line] if line not in changed else [])]) + "\n")


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said that must have refused: a sentence for every problem."""
    assert done.returncode == 2, done.stdout + done.stderr
    sentences = done.stderr.splitlines()
    assert all(sentence.startswith("error: ") for sentence in sentences), done.stderr
    assert len(set(sentences)) == len(sentences), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("verb", "kit"), [("check", "site-0"), ("join", "site-0"), ("serve", "coordinator")], indirect=["kit"]
)
def test_code_by_name(parties: Deployment, verb: str, kit: Path, tmp_path: Path) -> None:
    """``algorithm = "evilmod:E"``, and evilmod.py in the kit and where the operator happens to be."""
    ran = tmp_path / "ran"
    for folder in (kit, tmp_path):
        (folder / "evilmod.py").write_text(f"from fedgkd.algorithms import FedAvg as E\nopen({str(ran)!r}, 'w')\n")
    change(kit, 'algorithm = "evilmod:E"')
    change(kit, f"port = {free_port() if verb == 'serve' else parties.plan.rules.port}")
    graph = () if verb == "serve" else ("--graph", str(parties.graph("site-0")))
    done = parties.run(verb, "--kit", str(kit), *graph, cwd=tmp_path)
    assert not ran.exists(), "code from the kit has run"
    assert "evilmod" in refused(done)


@pytest.mark.parametrize("line", ["rounds = 1e30", "hidden = 1e9"])
def test_a_plan_that_cannot_be(parties: Deployment, kit: Path, line: str) -> None:
    change(kit, line)
    done = parties.run("check", "--kit", str(kit), "--graph", str(parties.graph("site-0")))
    assert line.partition(" ")[0] in refused(done)


@pytest.mark.parametrize("setting", ["rounds=1e30", "hidden=1e9"])
def test_kits_of_a_plan_that_cannot_be(parties: Deployment, setting: str, tmp_path: Path) -> None:
    out, sizes = tmp_path / "kits", ("--features", "16", "--classes", "4")
    given = ("--name", "far", "--sites", "a", "b", "--host", "localhost", *sizes, "--set", setting, "--out", str(out))
    assert setting.partition("=")[0] in refused(parties.run("init", *given))
    assert not out.exists()


@pytest.mark.skipif(LIBFAKETIME is None, reason="needs Debian's package libfaketime to set a clock ahead")
@pytest.mark.parametrize("verb", ["check", "join"])
def test_a_clock_that_is_a_year_ahead(parties: Deployment, kit: Path, verb: str) -> None:
    ahead = {"LD_PRELOAD": str(LIBFAKETIME), "FAKETIME": "+400d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    done = parties.run(verb, "--kit", str(kit), "--graph", str(parties.graph("site-0")), environment=ahead)
    said = refused(done)
    assert "the coordinator's clock says" in said
    assert "ask for a new kit" not in said


def test_a_rogue_coordinator(parties: Deployment, kit: Path, tmp_path: Path) -> None:
    """It has its own authority, and listens where our coordinator should."""
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rules={"port": free_port()})
    change(kit, f"port = {plan.rules.port}")
    with deployed(tmp_path / "rogue", plan, federation) as rogue:
        rogue.serve()
        for verb in ("check", "join"):
            done = parties.run(verb, "--kit", str(kit), "--graph", str(parties.graph("site-0")))
            assert "is not this federation's coordinator" in refused(done)
        assert "is connected" not in rogue.said("coordinator")
