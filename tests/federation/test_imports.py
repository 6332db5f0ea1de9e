"""No code by name: what a kit or the working directory brings does not run, unless the operator says so."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from fedgkd.algorithms import FedAvg
from fedgkd.errors import SettingError
from fedgkd.experiments import config
from fedgkd.federation.kit import Kit, settle
from fedgkd.federation.plan import FILE, Plan, Rules, read_plan
from tests.federation.deployment import deployed, free_port
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

EVIL = """
import pathlib
pathlib.Path({mark!r}).touch()
from fedgkd.algorithms.fedavg import FedAvg
class E(FedAvg):
    pass
"""


def plant(folder: Path, mark: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.py").write_text(EVIL.format(mark=str(mark)))


def name_evil(kit: Path) -> None:
    path = kit / FILE
    path.write_text(path.read_text().replace('algorithm = "fedavg"', 'algorithm = "evilmod:E"'))


def test_a_file_names_only_what_is_installed_unless_the_operator_allows_more() -> None:
    def plan(name: str, allowed: str | None = None) -> Plan:
        return Plan(Rules(name="demo", features=6), ("north",), 3, {"algorithm": name}, allowed=allowed)

    own = "fedgkd.algorithms.fedper:FedPer"
    with pytest.raises(SettingError, match=f"names code that is not part of fedgkd: '{own}'"):
        _ = plan(own).config
    assert plan(own, allowed=own).config.algorithm.__name__ == "FedPer"
    with pytest.raises(SettingError, match=f"--allow-algorithm says 'other:Class', but .* names the algorithm '{own}'"):
        _ = plan(own, allowed="other:Class").config
    with pytest.raises(SettingError, match="names the algorithm 'fedavg'"):
        _ = plan("fedavg", allowed=own).config
    with pytest.raises(SettingError, match="there is no algorithm 'fedpre'; did you mean 'fedper'"):
        _ = plan("fedpre").config


def test_an_installed_package_offers_algorithms_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [EntryPoint("theirs", "fedgkd.algorithms.fedavg:FedAvg", config.ENTRY_POINTS)]
    monkeypatch.setattr(config, "entry_points", lambda **wanted: EntryPoints(offers).select(**wanted))
    plan = Plan(Rules(name="demo", features=6), ("north",), 3, {"algorithm": "theirs"})
    assert plan.config.algorithm is FedAvg
    offers.append(EntryPoint("theirs", "another:Class", config.ENTRY_POINTS))
    with pytest.raises(SettingError, match="'theirs' is offered by several installed packages"):
        config.find_algorithm("theirs")
    offers.append(EntryPoint("fedavg", "another:Class", config.ENTRY_POINTS))
    assert config.find_algorithm("fedavg") is FedAvg, "nobody takes the place of what is built in"


@pytest.fixture
def nvflare() -> None:
    pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")


@pytest.mark.usefixtures("nvflare")
def test_code_beside_the_federation_file_never_runs(tmp_path: Path) -> None:
    """In the kit and where the command is typed, under a name of its own and under names that our software imports."""
    federation, mark = planted_federation(1), tmp_path / "it ran"
    rules = {"port": free_port(), "deadline": 20.0}
    with deployed(tmp_path, make_plan(federation, rules=rules, rounds=2), federation) as parties:
        coordinator, site = parties.kits / "coordinator", parties.kits / "site-0"
        here = tmp_path / "here"
        here.mkdir()
        for folder in (coordinator, site, here):
            plant(folder, mark, "evilmod", "torch", "nvflare", "rich", "numpy", "sitecustomize")
        for folder in (coordinator, site):
            (folder / "local" / "custom").mkdir()
            plant(folder / "local" / "custom", mark, "evilmod")
            (folder / "local" / "resources.json").write_text(
                '{"format_version": 2, "components": [{"id": "evil", "path": "evilmod.E"}]}'
            )
        arguments = ("--kit", str(site), "--graph", str(parties.graph("site-0")))

        def answers(*command: str, folder: Path) -> str:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 2, done.stdout
            return done.stderr

        originals = {folder: (folder / FILE).read_text() for folder in (coordinator, site)}
        for folder in originals:
            name_evil(folder)
        module, script = (sys.executable, "-m", "fedgkd"), (str(Path(sys.executable).with_name("fedgkd")),)
        named = "names code that is not part of fedgkd: 'evilmod:E'"
        for start, folder in ((module, site), (script, here)):
            assert named in answers(*start, "federation", "check", *arguments, folder=folder)
        said = answers(*module, "federation", "check", *arguments, "--allow-algorithm", "evilmod:E", folder=site)
        assert "the module cannot be imported (No module named 'evilmod')" in said
        said = answers(*module, "federation", "serve", "--kit", str(coordinator), folder=coordinator)
        assert named in said
        for folder, text in originals.items():
            (folder / FILE).write_text(text)
        # Nor by FLARE's processes, which have import paths and settings of their own, in a training that succeeds.
        parties.serve()
        parties.join("site-0")
        parties.start()
        parties.finish()
    assert not mark.exists()


@pytest.mark.usefixtures("nvflare")
def test_an_algorithm_of_ones_own_trains_where_every_party_allows_it(tmp_path: Path) -> None:
    federation, mark = planted_federation(1), tmp_path / "it ran"
    rules = {"port": free_port(), "deadline": 20.0}
    with deployed(tmp_path, make_plan(federation, rules=rules, rounds=2), federation) as parties:
        for party in ("coordinator", "site-0"):
            name_evil(parties.kits / party)
        elsewhere = tmp_path / "installed"
        elsewhere.mkdir()
        plant(elsewhere, mark, "evilmod")
        parties.python_path += f"{os.pathsep}{elsewhere}"
        parties.serve("--allow-algorithm", "evilmod:E")
        parties.join("site-0", "--allow-algorithm", "evilmod:E")
        parties.start()
        parties.finish()
    assert mark.exists()
    assert read_plan(tmp_path / "kits" / "site-0").settings["algorithm"] == "evilmod:E"


@pytest.mark.usefixtures("nvflare")
def test_what_a_kit_brings_for_flare_is_written_anew(tmp_path: Path) -> None:
    federation = planted_federation(1)
    with deployed(tmp_path, make_plan(federation), federation) as parties:
        for party, role in (("coordinator", "coordinator"), ("site-0", "site")):
            folder = parties.kits / party
            before = {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
            (folder / "startup" / "more.json").write_text("{}")
            (folder / "local" / "custom").mkdir()
            for path in folder.glob("*/*.json"):
                path.write_text("{}")
            (folder / "storage").symlink_to("/etc")
            settle(Kit.open(folder, role))
            after = {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
            assert after.keys() == before.keys()
            different = {str(path) for path in before if before[path] != after[path]}
            assert different <= {"local/resources.json"}, "the coordinator's names the folder where the kit is now"
