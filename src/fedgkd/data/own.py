"""Bring your own graph, or one graph per client; and the folder that ``fedgkd partition`` writes.

A graph is an ``.npz`` file (:mod:`fedgkd.data.npz`) or a folder with ``nodes.csv`` and ``edges.csv``
(:mod:`fedgkd.data.tables`). A federation is a folder of such graphs, one per client, used as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Any

from fedgkd.atomic import atomic_folder, atomic_write_text
from fedgkd.data.datasets import DATASETS, load_dataset, load_members
from fedgkd.data.federation import Federation
from fedgkd.data.files import is_folder
from fedgkd.data.graph import Graph
from fedgkd.data.npz import count_classes, load_graph, load_node_ids, save_graph
from fedgkd.data.partition import partition_members
from fedgkd.data.splits import DEFAULT_RATIOS, Ratios, random_split
from fedgkd.data.tables import NODES, Tables, natural_key, read_tables
from fedgkd.errors import DataError, quoted, shortened
from fedgkd.parsing import read_json

MANIFEST = "manifest.json"
OWN_GRAPHS = "own-graphs"

_MANIFEST_FIELDS: dict[str, type | UnionType] = {
    "dataset": str,
    "setting": str,
    "seed": int | None,
    "clients": int,
    "partition_hash": str,
    "files": dict,
}


def open_graph(
    name: str, data_dir: Path | None = None, *, label: str | int = "label", **synthetic_options: Any
) -> Graph:
    """The dataset called ``name``, or the graph in the file or folder of that name.

    ``data_dir`` and ``synthetic_options`` are those of :func:`~fedgkd.data.datasets.load_dataset`, ``label`` is that of
    :func:`read_graph`.
    """
    if name in DATASETS:
        return load_dataset(name, data_dir, **synthetic_options)
    path = Path(name)
    if not is_folder(path) and not path.exists():
        raise DataError(f"{quoted(name)} is neither a dataset ({', '.join(DATASETS)}) nor a file or folder")
    graph = read_graph(path, label=label)
    return replace(graph, name=path.resolve().name if path.is_dir() else path.stem)


def divide_dataset(
    name: str,
    clients: int,
    setting: str,
    seed: int,
    *,
    ratios: Ratios = DEFAULT_RATIOS,
    data_dir: Path | None = None,
    label: str | int = "label",
    **synthetic_options: Any,
) -> Federation:
    """The dataset called ``name``, or the graph in that file or folder, divided among clients.

    Arguments are those of :func:`open_graph` and of :func:`~fedgkd.data.partition.partition_members`.
    """
    groups = None
    if name in DATASETS:
        members = load_members(name, data_dir, **synthetic_options)
        groups = DATASETS[name].groups
    else:
        graph = open_graph(name, label=label)
        name, members = graph.name, {graph.name: graph}
    return partition_members(members, clients, setting, seed, ratios=ratios, dataset=name, groups=groups)


def read_graph(
    path: Path,
    *,
    label: str | int = "label",
    labels_required: bool = True,
    class_names: Sequence[str] | None = None,
    num_classes: int | None = None,
) -> Graph:
    """Read a user's graph: an ``.npz`` file, or a folder with ``nodes.csv`` and ``edges.csv``.

    Args:
        path: The file or folder.
        label: In tables, the label column: its name, or its number counted from 1.
        labels_required: If False, the labels may be missing.
        class_names: In tables, the classes in their order; by default those that occur.
        num_classes: The number of classes where the data does not tell it.
    """
    if is_folder(path):
        if not (path / NODES).exists():
            raise DataError(f"{path}: not a graph; a folder of tables holds {NODES} and edges.csv")
        tables = read_tables(path, label=label, labels_required=labels_required)
        return tables.to_graph(class_names, num_classes)
    return load_graph(path, labels_required=labels_required, num_classes=num_classes)


def holds_clients(name: str) -> bool:
    """Whether ``name`` is a folder that :func:`read_federation` reads, rather than a dataset or a single graph."""
    return name not in DATASETS and is_folder(Path(name)) and not (Path(name) / NODES).exists()


def read_federation(
    folder: Path, *, label: str | int = "label", seed: int = 0, ratios: Ratios = DEFAULT_RATIOS
) -> Federation:
    """Read a folder with one graph per client: ``.npz`` files, or subfolders of tables, in natural order.

    A folder that ``fedgkd partition`` wrote is read by its manifest, and checked against it. For any other, the classes
    of all clients are brought into one order, and a graph without masks gets a split drawn by ``seed`` and ``ratios``.

    Raises:
        DataError: If a graph is not usable or the clients do not fit together; the message names the client.
    """
    if not is_folder(folder):
        raise DataError(f"{folder}: no such folder; expected one with a graph per client")
    if (folder / NODES).exists():
        raise DataError(f"{folder}: holds a single graph, not one per client; divide it with 'fedgkd partition'")
    if (folder / MANIFEST).exists():
        return _read_partition(folder)
    sources = _client_sources(folder)
    graphs = _read_clients(list(sources.values()), label)
    return Federation(
        graphs=tuple(random_split(graph, seed, ratios) for graph in graphs),
        dataset=folder.resolve().name,
        setting=OWN_GRAPHS,
        seed=seed if any(graph.masks is None for graph in graphs) else None,
        names=tuple(sources),
    )


def write_federation(federation: Federation, folder: Path) -> None:
    """Write one ``<client>.npz`` per client and a manifest: all of them or nothing.

    A partition written earlier is replaced; a folder that holds anything else is refused.
    """
    _check_replaceable(folder)
    with atomic_folder(folder.resolve(), DataError) as temporary:
        checksums = {}
        for i, (name, graph) in enumerate(zip(federation.names, federation.graphs, strict=True)):
            path = temporary / f"{name}.npz"
            save_graph(path, graph, node_ids=None if federation.node_ids is None else federation.node_ids[i])
            checksums[path.name] = _checksum(path)
        text = json.dumps(manifest(federation, checksums), indent=2) + "\n"
        atomic_write_text(temporary / MANIFEST, text, DataError)


def manifest(federation: Federation, checksums: Mapping[str, str]) -> dict[str, Any]:
    """What ``manifest.json`` says of a federation whose files have these SHA-256 sums."""
    return {
        "dataset": federation.dataset,
        "setting": federation.setting,
        "seed": federation.seed,
        "clients": federation.num_clients,
        "partition_hash": federation.partition_hash,
        "groups": federation.groups,
        "files": checksums,
        "versions": {package: version(package) for package in ("fedgkd", "numpy", "scipy", "networkx", "pymetis")},
    }


def _read_partition(folder: Path) -> Federation:
    path = folder / MANIFEST
    remedy = f"write the partition again, or remove {MANIFEST} to use the graphs as they are"
    said = read_json(path, DataError, remedy)
    for field, kinds in _MANIFEST_FIELDS.items():
        if field not in said or not isinstance(said[field], kinds) or isinstance(said[field], bool):
            raise DataError(f"{path}: {quoted(field)} is missing or of another kind; {remedy}")
    checksums, groups = said["files"], said.get("groups")
    if said["clients"] != len(checksums) or (said["seed"] or 0) < 0:
        raise DataError(f"{path}: {said['clients']} clients with seed {said['seed']} cannot be; {remedy}")
    if groups is not None and (
        not isinstance(groups, list)
        or len(groups) != len(checksums)
        or not all(isinstance(group, str) for group in groups)
    ):
        raise DataError(f"{path}: 'groups' must name a group for each of {len(checksums)} clients; {remedy}")
    sources = {source.name: source for source in _client_sources(folder).values()}
    found = {name: _checksum(source) for name, source in sources.items()}
    changed = [name for name in checksums | found if checksums.get(name) != found.get(name)]
    if changed:
        raise DataError(f"{folder / changed[0]}: not as {MANIFEST} says; {remedy}")
    files = [sources[name] for name in checksums]
    graphs = tuple(load_graph(file) for file in files)
    ids = [load_node_ids(file, graph.num_nodes) for file, graph in zip(files, graphs, strict=True)]
    known = [of_client for of_client in ids if of_client is not None]
    if known and len(known) < len(ids):
        raise DataError(f"{folder}: some of the graphs have 'node_ids' and others have not; {remedy}")
    federation = Federation(
        graphs=graphs,
        node_ids=tuple(known) or None,
        names=tuple(file.stem for file in files),
        groups=None if groups is None else tuple(groups),
        dataset=said["dataset"],
        setting=said["setting"],
        seed=said["seed"],
    )
    if federation.partition_hash != said["partition_hash"]:
        raise DataError(f"{path}: the partition hash is not that of the files; {remedy}")
    return federation


def _client_sources(folder: Path) -> dict[str, Path]:
    """Each client's name and its file or subfolder."""
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as problem:
        raise DataError(f"{folder}: cannot be read ({problem.strerror or problem})") from problem
    graphs = [entry for entry in entries if entry.is_dir() or entry.suffix == ".npz"]
    if not graphs:
        raise DataError(f"{folder}: no graphs; expected an .npz file or a subfolder of tables for each client")
    sources: dict[str, Path] = {}
    for entry in sorted(graphs, key=lambda entry: natural_key(entry.name)):
        name = entry.name if entry.is_dir() else entry.stem
        if not name.isprintable():
            raise DataError(f"{folder}: the name {quoted(name)} cannot be shown on a screen; rename that client")
        if name in sources:
            raise DataError(
                f"{folder}: client {quoted(name)} is there twice, as {sources[name].name} and as {entry.name}"
            )
        sources[name] = entry
    return sources


def _read_clients(sources: Sequence[Path], label: str | int) -> list[Graph]:
    """All graphs, with the classes that occur at any client known to every one."""
    tables = {path: read_tables(path, label=label) for path in sources if path.is_dir()}
    names = _union_of_classes(list(tables.values()))
    classes = max([len(names), *(count_classes(path) for path in sources if path not in tables)])
    graphs = [
        tables[path].to_graph(names) if path in tables else load_graph(path, num_classes=classes) for path in sources
    ]
    for path, graph in zip(sources, graphs, strict=True):
        if names and graph.class_names is None and tuple(map(str, range(graph.num_classes))) != names:
            raise DataError(
                f"{path}: the classes are numbers, but other clients call them {shortened(', '.join(names))}; "
                "give 'class_names' in this order"
            )
    return graphs


def _union_of_classes(tables: Sequence[Tables]) -> tuple[str, ...]:
    return tuple(sorted({name for table in tables for name in table.class_names}, key=natural_key))


def _check_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file, not a folder")
    names = {entry.name for entry in folder.iterdir()}
    foreign = sorted(name for name in names if name != MANIFEST and not name.endswith(".npz"))
    if names and (foreign or MANIFEST not in names):
        raise DataError(
            f"{folder}: holds {quoted(min(foreign or names))}, which is not ours to replace; choose another folder"
        )


def _checksum(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
