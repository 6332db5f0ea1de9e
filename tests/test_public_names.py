"""What ``import fedgkd`` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedgkd

PUBLIC = {
    "ALGORITHMS",
    "Algorithm",
    "ClientBatch",
    "DATASETS",
    "DataError",
    "FedGKDError",
    "Federation",
    "FetchError",
    "Graph",
    "Mixing",
    "PersonalModel",
    "RunError",
    "ServerRound",
    "SettingError",
    "Tensors",
    "TrainingSettings",
    "__version__",
    "load_dataset",
    "load_records",
    "local_round",
    "partition",
    "read_federation",
    "read_graph",
    "run",
    "setting",
}


def test_the_public_names_are_these() -> None:
    """Adding or removing one is a change of the interface: it belongs in the documentation too."""
    assert set(fedgkd.__all__) == PUBLIC
    assert set(dir(fedgkd)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(fedgkd, name) is not None


@pytest.mark.parametrize("name", ["Algorithm", "ClientBatch", "Federation", "Graph", "load_dataset", "run", "setting"])
def test_what_people_use_explains_itself(name: str) -> None:
    assert getattr(fedgkd, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fedgkd' has no attribute 'nothing'"):
        _ = fedgkd.nothing


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, fedgkd; print([name for name in ('torch', 'numpy', 'scipy', 'typer') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
