"""Folders with a graph per client, and those that ``fedgkd partition`` wrote."""

from __future__ import annotations

import hashlib
import json
import os
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedgkd.data.federation import Federation
from fedgkd.data.npz import load_graph, load_node_ids, save_graph
from fedgkd.data.own import MANIFEST, manifest, read_federation
from fedgkd.data.partition import partition
from fedgkd.data.synthetic import synthetic_graph
from fedgkd.errors import FedGKDError
from tests.fuzz import arrays, tables
from tests.fuzz.core import Target, command
from tests.fuzz.values import change_tree, to_json

NAMES = (
    "client-01",
    "client-1",
    "client-2",
    "x" * 250,
    "client-" + "9" * 200,
    "a\nb",
    "é",
    ".hidden",
    " ",
    "٣",
    "-",
    "x y",
)


def an_npz(draw: random.Random) -> dict[str, Any]:
    while True:
        found = arrays.plain_arrays(draw)
        if "feature_names" not in found and "class_names" not in found:
            return found


def change_arrays(draw: random.Random, clients: dict[str, Any]) -> None:
    chosen = [content for content in clients.values() if isinstance(content, dict) and "nodes.csv" not in content]
    if chosen:
        draw.choice(arrays.MUTATORS)(draw, draw.choice(chosen))


def change_tables(draw: random.Random, clients: dict[str, Any]) -> None:
    chosen = [content for content in clients.values() if isinstance(content, dict) and "nodes.csv" in content]
    if chosen:
        draw.choice(tables.MUTATORS)(draw, draw.choice(chosen))


def rename(draw: random.Random, clients: dict[str, Any]) -> None:
    if clients:
        old = draw.choice(list(clients))
        clients[draw.choice(NAMES) + draw.choice(["", ".npz"])] = clients.pop(old)


def drop(draw: random.Random, clients: dict[str, Any]) -> None:
    if clients:
        del clients[draw.choice(list(clients))]


def strange_entry(draw: random.Random, clients: dict[str, Any]) -> None:
    clients[draw.choice(["odd.npz", "odd", "nodes.csv", "manifest.json", "client-0"])] = draw.choice(
        ["pipe", "loop", "dangling", "empty folder", "empty file", "text", "surrogate"]
    )


def mix(draw: random.Random, clients: dict[str, Any]) -> None:
    clients["other" if draw.random() < 0.5 else "other.npz"] = (
        tables.plain_tables(draw) if draw.random() < 0.5 else an_npz(draw)
    )


class Folder(Target):
    """``fedgkd data show FOLDER`` of a folder with a graph per client."""

    name = "folder"
    mutators = (change_arrays, change_arrays, change_tables, change_tables, rename, drop, strange_entry, mix)
    names_file = False  # the sentence names the client, and the file if one is wrong by itself

    def make(self, draw: random.Random) -> dict[str, Any]:
        if draw.random() < 0.5:
            return {f"client-{i}.npz": an_npz(draw) for i in range(3)}
        return {f"client-{i}": tables.plain_tables(draw) for i in range(3)}

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        for name, client in content.items():
            try:
                _write_entry(folder / name, client)
            except OSError:  # two entries in one place
                continue
        return folder

    def use(self, given: Path) -> Federation:
        federation = read_federation(given)
        command("data", "show", str(given), "--json")
        return federation

    def wrong(self, given: Path, content: Any, result: Federation) -> str | None:
        kinds = set()
        tables_of = [path for path in given.iterdir() if path.is_dir() and not path.name.startswith(".")]
        classes: set[str] = set()
        for path in tables_of:
            header, *nodes = tables.rows_of(path / "nodes.csv")
            classes |= {row[header.index("label")] for row in nodes} - {""}
        for name, graph in zip(result.names, result.graphs, strict=True):
            path = given / name if (given / name).is_dir() else given / f"{name}.npz"
            if path.is_dir():
                problem = tables.misread_tables(graph, path, sorted(classes))
            else:
                problem = _misread_without_masks(graph, path)
            if problem:
                return f"{name}: {problem}"
            kinds.add((graph.num_features, graph.num_classes))
        if len(kinds) > 1:
            return "clients of different shape"
        if classes and not all(path.name in result.names for path in tables_of):
            return "a client is missing"
        numbered = [graph for graph in result.graphs if graph.class_names is None]
        if classes and numbered and classes != {str(k) for k in range(result.num_classes)}:
            return "classes by name and by number"
        return None


def _misread_without_masks(graph: Any, path: Path) -> str | None:
    found = arrays.arrays_of(path)
    if "train_mask" not in found:  # drawn by the seed
        found |= dict(zip(("train_mask", "val_mask", "test_mask"), graph.masks, strict=True))
    return arrays.misread(graph, found)


def _write_entry(path: Path, client: Any) -> None:
    if isinstance(client, dict) and "newline" in client:
        tables.write_tables(path, client)
    elif isinstance(client, dict):
        arrays.write_npz(path, client)
    elif client == "pipe":
        os.mkfifo(path)
    elif client == "loop":
        path.symlink_to(path.parent)
    elif client == "dangling":
        path.symlink_to("nowhere")
    elif client == "empty folder":
        path.mkdir()
    elif client == "surrogate":
        path.with_name("\udcff.npz").write_bytes(b"")
    else:
        path.write_text("" if client == "empty file" else "text\nof some kind\n")


@lru_cache
def _parts() -> Federation:
    return partition(synthetic_graph(num_nodes=60, num_features=4, num_classes=3, seed=0), 3, seed=0)


def change_manifest(draw: random.Random, content: dict[str, Any]) -> None:
    change_tree(draw, content["manifest"], raw=True)


def change_part(draw: random.Random, content: dict[str, Any]) -> None:
    """An array of one client, with or without the sums that belong to it."""
    content["changes"].append((draw.randrange(3), draw.choice(arrays.MUTATORS), draw.randrange(2**32)))
    content["sums"] = draw.random() < 0.8


class Manifest(Target):
    """A folder that ``fedgkd partition`` wrote."""

    name = "manifest"
    mutators = (change_manifest, change_manifest, change_part)

    def make(self, draw: random.Random) -> dict[str, Any]:
        federation = _parts()
        files = {f"{name}.npz": "" for name in federation.names}
        return {"manifest": json.loads(json.dumps(manifest(federation, files))), "changes": [], "sums": True}

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        federation = _parts()
        for name, graph, ids in zip(federation.names, federation.graphs, federation.node_ids or (), strict=True):
            save_graph(folder / f"{name}.npz", graph, node_ids=ids)
        sums = _sums(folder)
        for client, mutate, seed in content["changes"]:
            path = folder / f"client-{client}.npz"
            found = arrays.arrays_of(path)
            mutate(random.Random(seed), found)
            found = {key: value for key, value in found.items() if value is not None}
            arrays.write_npz(path, found)
        if content["changes"] and content["sums"]:
            sums = _sums(folder)
            content["manifest"]["partition_hash"] = _hash(folder) or content["manifest"].get("partition_hash")
        said = content["manifest"]
        if isinstance(said, dict) and isinstance(said.get("files"), dict):
            said["files"] = {
                name: sums[name] if sums.get(name) and not value else value for name, value in said["files"].items()
            }
        (folder / MANIFEST).write_text(to_json(said), encoding="utf-8", errors="surrogatepass")
        return folder

    def use(self, given: Path) -> Federation:
        federation = read_federation(given)
        command("data", "show", str(given), "--json")
        return federation

    def wrong(self, given: Path, content: Any, result: Federation) -> str | None:
        said = json.loads((given / MANIFEST).read_text(encoding="utf-8"))
        if (result.dataset, result.setting, result.seed) != (said["dataset"], said["setting"], said["seed"]):
            return "another origin"
        if (
            not isinstance(said["dataset"], str)
            or not isinstance(said["setting"], str)
            or type(said["clients"]) is not int
        ):
            return "kinds that cannot be"
        if said["clients"] != len(result.graphs) or said["files"] != _sums(given):
            return "other files"
        if said["seed"] is not None and (type(said["seed"]) is not int or said["seed"] < 0):
            return "a seed that cannot be"
        if said.get("groups") is not None and list(result.groups or ()) != said["groups"]:
            return "other groups"
        for i, name in enumerate(result.names):
            ids = None if result.node_ids is None else result.node_ids[i]
            problem = arrays.misread(result.graphs[i], arrays.arrays_of(given / f"{name}.npz"), ids)
            if problem:
                return f"{name}: {problem}"
        return None


def _sums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.npz"))}


def _hash(folder: Path) -> str | None:
    """The hash of what the files hold, if they hold anything."""
    paths = sorted(folder.glob("*.npz"))
    try:
        graphs = tuple(load_graph(path) for path in paths)
        ids = tuple(load_node_ids(path, graph.num_nodes) for path, graph in zip(paths, graphs, strict=True))
        known: Any = None if None in ids else ids
        return Federation(graphs, "x", "x", node_ids=known).partition_hash
    except (FedGKDError, ValueError):
        return None
