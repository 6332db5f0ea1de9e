"""What a federation's parties are given: the federation file, and kits with their certificates and keys."""

from __future__ import annotations

import atexit
import json
import random
import re
import shutil
import tempfile
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedgkd.federation.kit import Kit, make_kits
from fedgkd.federation.plan import FILE, Plan, Rules, read_plan
from tests.fuzz.core import Target
from tests.fuzz.models import GRAPH
from tests.fuzz.tables import write_tables
from tests.fuzz.values import Raw, change_tree

_RAW = (
    "nan", "inf", "-inf", "1e999", "0xffffffffffffffffff", "9" * 5000, "1_000", "1979-05-27", "07:32:00", "[" * 1000,
    "''", "[" * 300 + "]" * 300, "{a.b = 1}", "'''\nx\n'''", "true", "", "[1, 'a']", '"\\u0000"', '"\\ud800"', "0o17",
)  # fmt: skip


def a_plan(draw: random.Random) -> dict[str, Any]:
    return {
        "name": "wards",
        "host": draw.choice(["localhost", "127.0.0.1", "fed.example.org"]),
        "port": 8002,
        "features": 2,
        "deadline": 60.0,
        "min_sites": 1,
        "segment": 100,
        "classes": draw.choice([3, ["a", "b", "c"]]),
        "sites": ["north", "south"],
        "blocked": draw.choice([[], ["south"]]),
        "settings": {"algorithm": draw.choice(["fedgkd", "fedavg", "fedpub"]), "rounds": 3, "hidden": 8, "lr": 0.01},
    }


def change(draw: random.Random, plan: Any) -> None:
    if not any(isinstance(plan[key], Raw) for key in plan):
        change_tree(draw, plan)


def change_value(draw: random.Random, plan: Any) -> None:
    tables = [table for table in (plan, plan.get("settings")) if isinstance(table, dict) and table]
    if tables:
        table = draw.choice(tables)
        table[draw.choice(list(table))] = Raw(draw.choice(_RAW))


def change_setting(draw: random.Random, plan: Any) -> None:
    if isinstance(plan.get("settings"), dict):
        name = draw.choice(
            ["rounds", "hidden", "layers", "lr", "seed", "algorithm", "participation", "dataset", "model", "x"]
        )
        plan["settings"][name] = draw.choice(
            [
                0,
                -1,
                10**9,
                10**30,
                1e30,
                0.5,
                True,
                "os:system",
                ".a:B",
                "evilmod:E",
                "fedgkd:Algorithm",
                "gat",
                "",
                [],
                {},
            ]
        )


def repeat_line(draw: random.Random, plan: Any) -> None:
    plan[draw.choice(["port ", "sites ", "settings ", " name"])] = Raw("1")


class PlanFile(Target):
    """The federation file as every command of a party reads it."""

    name = "plan"
    mutators = (change, change, change, change_value, change_setting, change_setting, repeat_line)

    def make(self, draw: random.Random) -> dict[str, Any]:
        return a_plan(draw)

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        (folder / FILE).write_text(to_toml(content), encoding="utf-8", errors="surrogatepass")
        return folder

    def use(self, given: Path) -> Plan:
        plan = read_plan(given)
        from fedgkd.errors import FederationError, FedGKDError

        try:
            plan.check_settings()
            plan.check_coordinator()
            plan.terms()
        except FedGKDError as error:  # the commands say which file it is
            raise FederationError(f"{given / FILE}: {error}") from error
        return plan

    def wrong(self, given: Path, content: Any, result: Plan) -> str | None:
        said = tomllib.loads((given / FILE).read_text(encoding="utf-8"))
        if list(result.sites) != said["sites"] or list(result.blocked) != said.get("blocked", []):
            return "other sites"
        names = [result.rules.name, *result.sites]
        if any(not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9-]{0,40}[A-Za-z0-9])?", name) for name in names):
            return "names that certificates cannot carry"
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?", result.rules.host):
            return f"a host that is none: {result.rules.host[:40]!r}"
        for name, value in vars(result.rules).items():
            stated = said.get(name, value)
            if str(stated).strip() != str(value) and float(stated) != float(value):
                return f"another {name}"
        classes = list(result.classes) if isinstance(result.classes, tuple) else result.classes
        if classes != said.get("classes", 0) or (isinstance(classes, list) and not all(classes)):
            return "other classes, or one without a name"
        if result.num_classes == 1:
            return "one class"
        for name, value in said.get("settings", {}).items():
            found = result.config.values()[name]
            if str(found) != str(value).strip() and value != "none" and float(found) != float(value):
                return f"another {name}"
        with tempfile.TemporaryDirectory() as folder:
            result.write(Path(folder))
            if read_plan(Path(folder)) != result:
                return "is written otherwise than it was read"
        return None


def to_toml(tree: dict[str, Any]) -> str:
    """TOML, with what is :class:`Raw` in it as it is; tables last."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for key, table in tree.items():
        if isinstance(table, dict):
            lines += ["", f"[{_key(key)}]", *(f"{_key(name)} = {_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(key: Any) -> str:
    text = str(key)
    return text.strip() if re.fullmatch(r" ?[A-Za-z0-9_-]+ ?", text) else json.dumps(text)


def _value(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items()) + "}"
    return "none" if value is None else json.dumps(value)


@lru_cache
def _kits(number: int) -> Path:
    """Kits of a federation, made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-kits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plan = Plan(
        Rules(features=2, name=f"wards{number}"), ("north", "south"), ("a", "b", "c"), {"rounds": 3, "hidden": 8}
    )
    make_kits(plan, folder / "kits")
    return folder / "kits"


KIT_FILES = ("startup/rootCA.pem", "startup/client.crt", "startup/client.key", "startup/fed_client.json", FILE)


def swap_file(draw: random.Random, content: dict[str, Any]) -> None:
    """A file of another party, of another federation, or of another kind."""
    other = _kits(draw.randrange(2)) / draw.choice(["north", "south", "admin"])
    content[draw.choice(KIT_FILES)] = (other / draw.choice(KIT_FILES[:3])).read_bytes()


def change_file(draw: random.Random, content: dict[str, Any]) -> None:
    name = draw.choice(KIT_FILES)
    content[name] = draw.choice(
        [
            b"",
            b"\0",
            b"x" * 1000,
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            None,
            content[name] or b"",
        ]
    )


def change_letter(draw: random.Random, content: dict[str, Any]) -> None:
    name = draw.choice(KIT_FILES[:3])
    data = bytearray(content[name] or b"x" * 80)
    for _ in range(draw.choice([1, 1, 5])):
        data[draw.randrange(len(data))] = draw.choice(b"ABCabc012+/=\n- ")
    content[name] = bytes(data)


class KitFolder(Target):
    """``fedgkd federation check`` of a site's kit."""

    name = "kit"
    mutators = (swap_file, change_file, change_letter)

    def make(self, draw: random.Random) -> dict[str, Any]:
        kit = _kits(0) / "north"
        return {name: (kit / name).read_bytes() for name in KIT_FILES}

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        write_tables(folder.parent / "graph", GRAPH)
        kit = folder / "north"
        for name, data in content.items():
            path = kit / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                path.mkdir()
            else:
                path.write_bytes(data)
        return kit

    def use(self, given: Path) -> tuple[str, Any]:
        kit = Kit.open(given, "site")
        kit.check_certificate()
        return kit.name, kit.plan.open_graph(given.parent.parent / "graph")

    def wrong(self, given: Path, content: Any, result: tuple[str, Any]) -> str | None:
        from cryptography import x509

        name, graph = result
        root = x509.load_pem_x509_certificate((_kits(0) / "north" / "startup" / "rootCA.pem").read_bytes())
        other = x509.load_pem_x509_certificate((_kits(1) / "north" / "startup" / "rootCA.pem").read_bytes())
        found = x509.load_pem_x509_certificate((given / "startup" / "rootCA.pem").read_bytes())
        if found not in (root, other):
            return "another authority"
        x509.load_pem_x509_certificate((given / "startup" / "client.crt").read_bytes()).verify_directly_issued_by(found)
        if name not in ("north", "south", "admin@wards0.local", "admin@wards1.local"):
            return "another name"
        if name not in read_plan(given).sites:
            return f"a certificate of {name}, who is no site of the plan"
        return None if graph.num_nodes == 5 else "another graph"
