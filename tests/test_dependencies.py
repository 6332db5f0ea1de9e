"""Every package that ours imports is declared: those of an extra only where the extra is wanted."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import fedgkd

ROOT = Path(fedgkd.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = sorted(ROOT.rglob("*.py"))
DISTRIBUTIONS = packages_distributions()


def names(requirements: list[str]) -> set[str]:
    return {
        re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower().replace("_", "-") for requirement in requirements
    }


DECLARED = names(PROJECT["dependencies"])
EXTRAS = {name: names(some) for name, some in PROJECT["optional-dependencies"].items() if name != "dev"}


def imported(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Top packages from elsewhere, and whether they are imported as soon as the module is."""
    at_once = {node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    for node in ast.walk(tree):
        found = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        for name in found:
            top = name.partition(".")[0]
            if top != "fedgkd" and top not in sys.stdlib_module_names:
                yield top, node in at_once


def declared(package: str, among: set[str]) -> bool:
    return any(name.lower().replace("_", "-") in among for name in DISTRIBUTIONS.get(package, [package]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_imports_are_declared(file: Path) -> None:
    of_federation = EXTRAS["federation"] if file.parent.name == "federation" else set()
    for package, at_once in imported(ast.parse(file.read_text(encoding="utf-8"))):
        allowed = DECLARED | of_federation if at_once else DECLARED.union(*EXTRAS.values())
        assert declared(package, allowed), f"{file.name} imports {package}: declare it in pyproject.toml"


def test_the_check_tells_declared_from_undeclared() -> None:
    tree = ast.parse(
        "import numpy.linalg, json\nfrom . import x\ndef f():\n    from sqlalchemy.exc import E\n    import nose\n"
    )
    assert list(imported(tree)) == [("numpy", True), ("sqlalchemy", False), ("nose", False)]
    assert declared("sqlalchemy", {"sqlalchemy"})
    assert not declared("nose", DECLARED)
    assert not declared("nvflare", DECLARED)
