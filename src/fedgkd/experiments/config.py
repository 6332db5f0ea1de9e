"""A run's configuration: every setting with its value and where it came from."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import tomli_w

from fedgkd.algorithms import METHODS, Algorithm, Oracle
from fedgkd.data.datasets import DATASETS, count_members
from fedgkd.data.partition import SETTINGS as PARTITIONS
from fedgkd.data.synthetic import parse_options
from fedgkd.errors import SettingError, quoted, shortened
from fedgkd.experiments.selection import SELECT
from fedgkd.models import BACKBONES, Network
from fedgkd.parsing import read_toml
from fedgkd.settings import NONE, assignments, check, setting, suggest
from fedgkd.training.settings import TrainingSettings


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run, whatever the algorithm."""

    algorithm: str = setting("fedgkd", f"one of {', '.join(METHODS)}, or module:Class of your own")
    dataset: str = setting("cora", f"one of {', '.join(DATASETS)}, or a path to your own graph")
    graphs: str | None = setting(None, "folder with one graph per client, used instead of dataset and partition")
    label: str = setting("label", "label column of own nodes.csv files: its name or number")
    synthetic: str = setting("", "sizes of the dataset 'synthetic', as \"num_nodes=5000 homophily=0.5\"")
    clients: int = setting(10, "number of clients", low=1)
    partition: str = setting("non-overlapping", "how the graph is cut into clients", choices=tuple(PARTITIONS))
    train_ratio: float = setting(0.30, "share of nodes to train on", low=0, high=1, open_low=True)
    val_ratio: float = setting(0.35, "share of nodes to select by", low=0, high=1, open_low=True)
    test_ratio: float = setting(0.35, "share of nodes to test on", low=0, high=1, open_low=True)
    concepts: int = setting(1, "groups of clients that number the classes differently; 1: all alike", low=1)
    train_per_client: int = setting(0, "training nodes that a client keeps at most; 0: all of its split", low=0)
    seed: int = setting(0, "decides splits, partition, initial weights and all noise", low=0)
    rounds: int = setting(100, "communication rounds at most", low=1)
    patience: int = setting(20, "stop after that many rounds without a new best validation accuracy; 0: never", low=0)
    participation: float = setting(1.0, "share of clients that take part in a round", low=0, high=1, open_low=True)
    dropout_rate: float = setting(0.0, "share of those that fail to answer in a round", low=0, high=0.99)
    select: str = setting(
        "trained",
        "model that is scored and kept: the just-trained one, whichever of trained and received a client's own "
        "validation nodes prefer, or the one half-way between them",
        choices=tuple(SELECT),
    )
    model: str = setting("gcn", "graph convolution", choices=tuple(BACKBONES))
    hidden: int = setting(128, "width of the hidden layers", low=1)
    layers: int = setting(2, "number of graph convolutions", low=1)
    device: str = setting("cpu", "cpu, cuda, or cuda:N")
    threads: int = setting(0, "CPU threads of PyTorch; 0: as many as there are cores", low=0, high=1024)
    checkpoint_every: int = setting(1, "rounds between checkpoints; 0: none", low=0)
    checkpoint_share: float = setting(
        0.05,
        "share of the time that checkpoints may take; very short rounds share one, and a resumed run repeats them",
        low=0,
        high=1,
        open_low=True,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.train_ratio + self.val_ratio + self.test_ratio > 1 + 1e-9:
            raise SettingError("train_ratio, val_ratio and test_ratio add up to more than 1")

    @property
    def ratios(self) -> tuple[float, float, float]:
        return self.train_ratio, self.val_ratio, self.test_ratio

    @property
    def synthetic_options(self) -> dict[str, Any]:
        return parse_options(self.synthetic.split())


@dataclass(frozen=True)
class Config:
    """Settings of the run and of its algorithm, with the origin of each value."""

    run: RunSettings
    method: Any
    algorithm: type[Algorithm] = field(compare=False)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        needed = {"participation": 1.0, "dropout_rate": 0.0, "select": "trained"}
        for name, value in needed.items() if issubclass(self.algorithm, Oracle) else ():
            if getattr(self.run, name) != value:
                raise SettingError(f"{name} must be {value}: {self.run.algorithm} trains one model for all clients")

    def network(self, num_features: int, num_classes: int) -> Network:
        return Network(self.run.model, num_features, self.run.hidden, self.run.layers, num_classes)

    def values(self) -> dict[str, Any]:
        """All settings, flat."""
        return dataclasses.asdict(self.run) | dataclasses.asdict(self.method)

    def fields(self) -> Iterator[dataclasses.Field[Any]]:
        yield from dataclasses.fields(self.run)
        yield from dataclasses.fields(self.method)

    def to_toml(self) -> str:
        """Complete: the run can be repeated from it."""
        values = {name: NONE if value is None else value for name, value in self.values().items()}
        lines = [
            f"{tomli_w.dumps({entry.name: values[entry.name]}).strip()}  # {entry.metadata.get('meaning', '')}"
            for entry in self.fields()
        ]
        return "\n".join(lines) + "\n"


Find = Callable[[str], type[Algorithm]]
"""How a configuration comes from an algorithm's name to its class."""

ENTRY_POINTS = "fedgkd.algorithms"
"""Group of entry points by which an installed package offers algorithms under names of their own."""


def find_algorithm(name: str) -> type[Algorithm]:
    """An algorithm that is installed, or ``module:Class``, also of a module in the working directory."""
    found = installed_algorithm(name)
    if found is not None:
        return found
    with contextlib.suppress(FileNotFoundError):  # the folder that we are called in may be gone
        if str(Path.cwd()) not in sys.path:
            # A console script does not look for modules where it is called.
            sys.path.append(str(Path.cwd()))
    return own_algorithm(name)


def installed_algorithm(name: str) -> type[Algorithm] | None:
    """An algorithm that is built in, or that an installed package offers as an entry point; None if there is none."""
    if name in METHODS:
        return METHODS[name]
    offers = {entry.value for entry in entry_points(group=ENTRY_POINTS, name=name)}
    if len(offers) > 1:
        raise SettingError(
            f"algorithm {quoted(name)} is offered by several installed packages: {', '.join(sorted(offers))}"
        )
    if not offers:
        return None
    module, _, class_name = offers.pop().partition(":")
    return _load(name, module, class_name)


def own_algorithm(name: str) -> type[Algorithm]:
    """A class given as ``module:Class``."""
    module, _, class_name = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), class_name)):
        hint = suggest(name, METHODS) or f"; known are {', '.join(METHODS)}, or module:Class for your own"
        raise SettingError(f"there is no algorithm {quoted(name)}{hint}")
    return _load(name, module, class_name)


def _load(name: str, module: str, class_name: str) -> type[Algorithm]:
    found = getattr(_import_own(name, module), class_name, None)
    if found is None:
        raise SettingError(f"algorithm {quoted(name)}: {shortened(module)} has no class {shortened(class_name)}")
    _check_own(name, found)
    return cast(type[Algorithm], found)


def _import_own(name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingError(f"algorithm {quoted(name)}: the module cannot be imported ({error})") from error
    except SyntaxError as error:
        raise SettingError(f"algorithm {quoted(name)}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {shortened(error)}"
        raise SettingError(f"algorithm {quoted(name)}: the module raises {reason}, when imported") from error


def _check_own(name: str, found: Any) -> None:
    """Raise unless it is a class that a run can use."""
    problem = None
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        problem = "is not a subclass of fedgkd.Algorithm"
    elif missing := sorted(found.__abstractmethods__):
        problem = f"is abstract: it does not define {', '.join(missing)}"
    elif not issubclass(getattr(found, "Settings", object), TrainingSettings):
        problem = "has no dataclass Settings derived from fedgkd.TrainingSettings"
    if problem:
        raise SettingError(f"algorithm {quoted(name)}: {name.rpartition(':')[2]} {problem}")


def make_config(*sources: tuple[str, Mapping[str, Any]], find: Find = find_algorithm) -> Config:
    """A configuration from several sources, each named; later ones win.

    Args:
        find: Which algorithms may be named.

    Raises:
        SettingError: For an unknown name (with the closest known one) or a value out of range.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, given in sources:
        values.update(given)
        origins.update(dict.fromkeys(given, origin))
    with _naming_the_file(origins, "algorithm"):
        algorithm = find(str(values.get("algorithm", RunSettings.algorithm)))
    preset = str(values.get("preset", ""))
    for name, value in algorithm.presets.get(preset, {}).items():
        if name not in values:
            values[name], origins[name] = value, f"preset {preset}"
    members = count_members(str(values.get("dataset")))
    if members > 1 and "clients" not in values:
        values["clients"], origins["clients"] = members, f"one for each graph of {values['dataset']}"
    kind = algorithm.Settings
    run_names = {entry.name for entry in dataclasses.fields(RunSettings)}
    method_names = {entry.name for entry in dataclasses.fields(kind)}
    for name in values:
        if name not in run_names | method_names:
            raise _unknown(name, origins[name], run_names | method_names, str(values.get("algorithm", "fedgkd")))
    with _naming_the_file(origins):
        return Config(
            RunSettings(**{name: value for name, value in values.items() if name in run_names}),
            kind(**{name: value for name, value in values.items() if name in method_names}),
            algorithm,
            origins,
        )


@contextmanager
def _naming_the_file(origins: Mapping[str, str], setting: str | None = None) -> Iterator[None]:
    """Errors name the setting; say in which file it stands, if in any."""
    try:
        yield
    except SettingError as error:
        names = [setting] if setting else re.findall(r"\w+", str(error))
        files = [origins[name] for name in names if name in origins and _is_file(origins[name])]
        if not files:
            raise
        raise SettingError(f"{files[0]}: {error}") from error


def _is_file(origin: str) -> bool:
    return origin.endswith(".toml") or os.sep in origin


def _unknown(name: str, origin: str, known: set[str], algorithm: str) -> SettingError:
    owners = [
        other for other, kind in METHODS.items() if name in {entry.name for entry in dataclasses.fields(kind.Settings)}
    ]
    if owners:
        return SettingError(f"{origin}: {name} is a setting of {', '.join(owners)}, not of {algorithm}")
    hint = suggest(name, known) or "; `fedgkd run --explain` lists them all"
    return SettingError(f"{origin}: there is no setting {quoted(name)}{hint}")


def read_config_file(path: Path) -> dict[str, Any]:
    """A flat TOML file of settings."""
    values = read_toml(path, SettingError)
    for name, value in values.items():
        if isinstance(value, dict | list):
            raise SettingError(f"{path}: {shortened(name)} is a table or list; settings are plain `name = value` lines")
    return values


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    """``name=value`` texts of the command line's ``--set``."""
    return assignments("--set", "name=value", texts)
