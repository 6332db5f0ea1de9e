"""Imports point only down the layers, wherever in a module they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedgkd

ROOT = Path(fedgkd.__file__).parent

# Highest first; modules in one line may import each other.
LAYERS = (
    {"__init__", "__main__"},
    {"cli"},
    {"reporting"},
    {"federation"},
    {"experiments"},
    {"engines"},
    {"algorithms"},
    {"distillation"},
    {"collaboration"},
    {"training"},
    {"models"},
    {"clients"},
    {"data"},
    {"atomic", "checksums", "errors", "fields", "memory", "parsing", "randomness", "settings", "_version"},
)
HEIGHT = {name: -depth for depth, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def imported(source: str, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and name below ``fedgkd`` of everything of ours that a module imports."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["fedgkd", *package][: 2 + len(package) - node.level] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            top, _, below = name.partition(".")
            if top == "fedgkd":
                yield node.lineno, below


def layer_of(name: str) -> str:
    """The first part of a dotted name below ``fedgkd``; a name of the package itself belongs to ``__init__``."""
    first = name.split(".")[0]
    return first if first in HEIGHT else "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_lies_in_a_layer(module: str) -> None:
    assert module.split("/")[0].removesuffix(".py") in HEIGHT, f"name the layer of {module} in tests/test_layers.py"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    path = ROOT / module
    own = layer_of(module.removesuffix(".py").replace("/", "."))
    wrong = [
        f"{module}:{line} imports fedgkd.{name}"
        for line, name in imported(path.read_text(encoding="utf-8"), module.split("/")[:-1])
        if HEIGHT[layer_of(name)] > HEIGHT[own]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_imports_of_every_form() -> None:
    source = "import fedgkd.cli.console\ndef f():\n    from fedgkd.engines import x\n    from ..models import y\n"
    assert list(imported(source, ["data"])) == [(1, "cli.console"), (3, "engines.x"), (4, "models.y")]
    assert [name for _, name in imported("from fedgkd import __version__, data", [])] == ["__version__", "data"]
    assert [name for _, name in imported("from . import graph\nfrom .graph import Graph", ["data"])] == [
        "data.graph",
        "data.graph.Graph",
    ]
