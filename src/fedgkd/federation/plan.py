"""The federation file: what all parties agree on, readable, and the same in every kit.

Who only passes messages on reads it as well, so nothing here imports torch before it must.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import DataError, FederationError, SettingError, quoted
from fedgkd.settings import NONE, check, setting, suggest

if TYPE_CHECKING:
    from fedgkd.algorithms import Algorithm
    from fedgkd.data.graph import Graph
    from fedgkd.experiments.config import Config

FILE = "federation.toml"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,40}[A-Za-z0-9])?")
_RESERVED = ("server", "coordinator", "admin", "authority", "all")
_LOCAL = ("dataset", "graphs", "label", "synthetic", "clients", "partition", "device", "threads")
_LISTS = {"sites", "blocked", "classes", "settings"}
_SIMULATED = {"participation": 1.0, "dropout_rate": 0.0, "concepts": 1, "train_per_client": 0}
_MOST = {"rounds": 10_000_000, "layers": 1_000, "seed": 2**63}
_MOST_OF_ANYTHING = 1_000_000
"""Of what a setting counts. Far beyond any use, and little enough to work out how much memory it would take."""

_TRAINING_BYTES = 58
"""What a site holds for each of its parameters: values, gradients, moments, what it got, and copies that it keeps."""
_SERVING_BYTES = 12
"""What the coordinator holds for each shared parameter of each site: models, uploads, and the mixture of them."""
_NODE_BYTES = 16
"""What a site holds for each node in each unit of a layer: the output, its gradient, and what both are made from."""


@dataclass(frozen=True)
class Rules:
    """Where the coordinator is, and how it deals with sites that are late, away or wrong."""

    name: str = setting("federation", "what the federation is called")
    host: str = setting("localhost", "where the sites find the coordinator")
    port: int = setting(8002, "the one port that the coordinator listens on", low=1, high=65535)
    features: int = setting(0, "feature columns of every site's graph; 0: not said yet", low=0)
    deadline: float = setting(600.0, "seconds that a round waits for the sites", low=0, high=1e7, open_low=True)
    min_sites: int = setting(1, "a round with fewer usable answers is repeated", low=1)
    segment: int = setting(1000, "rounds of one job of NVIDIA FLARE", low=1)
    largest_norm: float = setting(
        1e4, "an upload whose norm is larger is refused, whatever the others send", low=0, open_low=True
    )

    def __post_init__(self) -> None:
        check(self)
        check_name("the federation", self.name)


@dataclass(frozen=True)
class Plan:
    """What the parties agree on.

    Args:
        rules: Of the coordinator.
        sites: Who takes part; a site's place in it decides its random draws.
        classes: Their number (0: not said yet), or their names in order.
        settings: Those of ``fedgkd run``, as far as they concern all parties.
        blocked: Sites that the coordinator does not let in for now; they keep their place.
        allowed: An algorithm of somebody's own that this party lets the file name, as ``module:Class``.

    Raises:
        SettingError: In one sentence, for anything that no federation can have.
    """

    rules: Rules
    sites: tuple[str, ...]
    classes: int | tuple[str, ...] = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    blocked: tuple[str, ...] = ()
    allowed: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for site in self.sites:
            check_name("a site", site)
        if not self.sites:
            raise SettingError("a federation needs at least one site")
        if len({site.lower() for site in self.sites}) < len(self.sites):
            raise SettingError("two sites have the same name")
        if self.rules.min_sites > len(self.sites):
            raise SettingError(f"min_sites is {self.rules.min_sites}, but there are {len(self.sites)} sites")
        for site in self.blocked:
            if site not in self.sites:
                raise SettingError(f"blocked: there is no site {quoted(site)}{suggest(site, self.sites)}")
        if self.class_names and len(set(self.class_names)) < len(self.class_names):
            raise SettingError("classes: a name is there twice")
        if self.class_names and not all(self.class_names):
            raise SettingError("classes: a name is empty")
        for name in _LOCAL:
            if name in self.settings:
                raise SettingError(f"{name} is each party's own business, not a setting of a federation")

    @cached_property
    def config(self) -> Config:
        """The settings, checked.

        Raises:
            SettingError: If one is unknown, out of range, or not for a federation.
        """
        from fedgkd.algorithms import Oracle
        from fedgkd.experiments.config import make_config

        config = make_config((FILE, dict(self.settings)), find=self._find)
        self._check_counts(config)
        for name, value in _SIMULATED.items():
            if getattr(config.run, name) != value:
                raise SettingError(
                    f"{name} is a setting of simulations; sites bring their own labels and fail by themselves"
                )
        if issubclass(config.algorithm, Oracle):
            raise SettingError(f"{config.run.algorithm} sees all graphs at once, which no federation allows")
        return config

    def _find(self, name: str) -> type[Algorithm]:
        """The class of an algorithm: the file comes from outside, and code by name runs only if this party says so."""
        from fedgkd.experiments.config import installed_algorithm, own_algorithm

        if self.allowed not in (None, name):
            raise SettingError(
                f"--allow-algorithm says {quoted(self.allowed)}, but {FILE} names the algorithm {quoted(name)}"
            )
        found = installed_algorithm(name)
        if found is None and ":" in name and self.allowed is None:
            raise SettingError(
                f"{FILE} names code that is not part of fedgkd: {quoted(name)}; "
                "if you know it and trust it, install it and name it with --allow-algorithm as well"
            )
        return found or own_algorithm(name)

    @property
    def num_classes(self) -> int:
        return len(self.classes) if isinstance(self.classes, tuple) else self.classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.classes if isinstance(self.classes, tuple) else None

    def check_sizes(self) -> None:
        """Raise if the file does not say yet how many features and classes there are."""
        for name, number in (("features", self.rules.features), ("classes", self.num_classes)):
            if not number:
                raise FederationError(f"{FILE} does not say the number of {name}; write it into the file of every kit")

    def check_settings(self) -> None:
        """Raise for settings that no federation can have, at a party that does not run code of somebody's own."""
        if ":" not in str(self.settings.get("algorithm", "")):
            _ = self.config

    def _check_counts(self, config: Config) -> None:
        counts = {"features": self.rules.features, "classes": self.num_classes, "segment": self.rules.segment}
        for name, value in (counts | config.values()).items():
            most = _MOST.get(name, _MOST_OF_ANYTHING)
            if isinstance(value, int) and value > most:
                raise SettingError(f"{name} must be at most {most:,} in a federation, not {quoted(value)}")

    def algorithm(self) -> Algorithm:
        """The agreed algorithm over the agreed sizes.

        Raises:
            FederationError: If this machine could not hold what a client of it needs.
        """
        self.check_sizes()
        config = self.config
        network = config.network(self.rules.features, self.num_classes)
        algorithm = config.algorithm(config.method, network, len(self.sites), config.run.seed)
        self.check_memory(_TRAINING_BYTES * sum(algorithm.model.sizes.values()), "a model")
        return algorithm

    def check_coordinator(self) -> None:
        """Raise if this machine could not be the coordinator."""
        algorithm = self.algorithm()
        shared = sum(algorithm.model.sizes[name] for name in algorithm.shared)
        self.check_memory(_SERVING_BYTES * shared * len(self.sites), f"the models of {len(self.sites)} sites")

    def check_graph(self, graph: Graph) -> None:
        """Raise if this machine could not train on a graph of its own."""
        run = self.config.run
        features = _TRAINING_BYTES * sum(self.algorithm().model.sizes.values())
        units = graph.num_nodes * run.hidden * run.layers
        self.check_memory(features + _NODE_BYTES * units, f"training on {graph.num_nodes:,} nodes")

    def check_memory(self, needed: int, what: str) -> None:
        """Raise if this machine has less than ``needed`` bytes."""
        from fedgkd.experiments.hardware import memory

        if needed > memory():
            run = self.config.run
            sizes = f"hidden = {run.hidden}, layers = {run.layers}, {self.rules.features} features"
            raise FederationError(
                f"{what} with {sizes} and {self.num_classes} classes takes about {needed / 1e9:,.0f} GB of memory, "
                f"but there are {memory() / 1e9:.1f} GB; make {FILE}'s settings smaller"
            )

    def terms(self) -> dict[str, Any]:
        """All that must be the same at every party for the training to make sense, as JSON can hold it."""
        config = {name: value for name, value in self.config.values().items() if name not in _LOCAL}
        classes = list(self.classes) if isinstance(self.classes, tuple) else self.classes
        return config | {
            "name": self.rules.name,
            "sites": list(self.sites),
            "features": self.rules.features,
            "classes": classes,
        }

    def open_graph(self, path: Path, label: str | int = "label") -> Graph:
        """A site's graph, checked against what was agreed, with its own split or one drawn by the agreed seed.

        Raises:
            DataError: If it is not usable, in one sentence.
        """
        from fedgkd.data.own import read_graph
        from fedgkd.data.splits import random_split

        self.check_sizes()
        graph = read_graph(path, label=label, class_names=self.class_names, num_classes=self.num_classes)
        if graph.num_features != self.rules.features:
            raise DataError(
                f"{path} has {graph.num_features} feature columns, but the federation agreed on {self.rules.features}"
            )
        if graph.num_classes != self.num_classes:
            raise DataError(f"{path} has {graph.num_classes} classes, but the federation agreed on {self.num_classes}")
        if self.class_names and graph.class_names and graph.class_names != self.class_names:
            raise DataError(
                f"{path} has the classes {', '.join(graph.class_names)}, "
                f"but the federation agreed on {', '.join(self.class_names)}"
            )
        run = self.config.run
        graph = random_split(graph, run.seed, run.ratios)
        if graph.masks is None or not graph.masks[0].any():
            raise DataError(f"{path} has no training node; a site needs at least one")
        return graph

    def to_toml(self) -> str:
        def line(name: str, value: Any, meaning: str) -> str:
            plain = list(value) if isinstance(value, tuple) else value
            text = tomli_w.dumps({name: plain}).strip().replace(",\n]", "]").replace("[\n    ", "[")
            return f"{text.replace(f',{chr(10)}    ', ', ')}  # {meaning}"

        lines = [
            f"# The federation {quoted(self.rules.name)}: what all parties agree on. The same file is in every kit.",
            "",
        ]
        lines += [
            line(entry.name, getattr(self.rules, entry.name), entry.metadata["meaning"])
            for entry in dataclasses.fields(self.rules)
        ]
        lines.append(line("classes", self.classes, "their number (0: not said yet), or their names in order"))
        lines.append(line("sites", self.sites, "who takes part; the order decides each site's random draws"))
        lines.append(line("blocked", self.blocked, "sites that the coordinator does not let in for now"))
        lines += ["", "[settings] # of algorithm and training, as in 'fedgkd run --explain'; the rest is as by default"]
        lines += [
            tomli_w.dumps({name: NONE if value is None else value}).strip() for name, value in self.settings.items()
        ]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        atomic_write_text(folder / FILE, self.to_toml(), FederationError)


def read_plan(folder: Path, allowed: str | None = None) -> Plan:
    """The federation file of a kit.

    Args:
        allowed: An algorithm of somebody's own that it may name.

    Raises:
        FederationError: If it is not there or not one.
    """
    path = folder / FILE
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FederationError(f"{folder} is not a kit of 'fedgkd federation init': it has no {FILE}") from None
    except OSError as error:
        raise FederationError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and lists a thousand deep
        raise FederationError(f"{path} is not a TOML file: {error}") from error
    try:
        return dataclasses.replace(_plan(values), allowed=allowed)
    except SettingError as error:
        raise FederationError(f"{path}: {error}") from error


def _plan(values: dict[str, Any]) -> Plan:
    sites, blocked = values.pop("sites", []), values.pop("blocked", [])
    classes, settings = values.pop("classes", 0), values.pop("settings", {})
    known = {entry.name for entry in dataclasses.fields(Rules)}
    for name in values:
        if name not in known:
            raise SettingError(f"there is no {quoted(name)}{suggest(name, known | _LISTS)}")
    for name, value in (("sites", sites), ("blocked", blocked)):
        if not _is_texts(value):
            raise SettingError(f"{name} must be a list of names")
    if not (_is_texts(classes) or (isinstance(classes, int) and not isinstance(classes, bool) and classes >= 0)):
        raise SettingError("classes must be a number or a list of names")
    if not isinstance(settings, dict) or any(isinstance(value, dict | list) for value in settings.values()):
        raise SettingError("settings must be a table of plain `name = value` lines")
    named = tuple(classes) if isinstance(classes, list) else classes
    return Plan(Rules(**values), tuple(sites), named, settings, tuple(blocked))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def check_name(what: str, name: str) -> None:
    """Raise if certificates or folders cannot carry that name."""
    if not _NAME.fullmatch(name):
        raise SettingError(
            f"the name of {what} may hold letters, digits and hyphens, at most 42 of them, not {quoted(name)}"
        )
    if name.lower() in _RESERVED:
        raise SettingError(f"the name of {what} must not be {quoted(name)}, which stands for something else")
