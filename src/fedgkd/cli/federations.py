"""A federation on screen: one row per client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgkd.cli import console

if TYPE_CHECKING:
    from fedgkd.data.federation import Federation


def print_federation(federation: Federation, folder: Path, json: bool) -> None:
    """Show whom a federation consists of, and the folder that holds it."""
    origin = {key: getattr(federation, key) for key in ("dataset", "setting", "seed", "partition_hash")}
    clients = _clients(federation)
    if json:
        console.print_json({"folder": str(folder)} | origin | {"clients": clients})
        return
    seed = "" if federation.seed is None else f", seed {federation.seed}"
    table = console.new_table(f"{federation.dataset}, {federation.setting}{seed}")
    table.add_column("client", style="bold")
    for heading in ("nodes", "directed edges", "classes", "train", "val", "test"):
        table.add_column(heading, justify="right")
    for client in clients:
        table.add_row(client["name"], *(console.count(value) for key, value in client.items() if key != "name"))
    console.out.print(table)
    console.out.print(f"\npartition {federation.partition_hash[:12]} in {folder}", soft_wrap=True)


def _clients(federation: Federation) -> list[dict[str, Any]]:
    rows = []
    for name, graph in zip(federation.names, federation.graphs, strict=True):
        assert graph.masks is not None  # a federation's graphs have them
        train, val, test = (int(mask.sum()) for mask in graph.masks)
        sizes = {
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "classes": len(set(graph.y[graph.y >= 0].tolist())),
        }
        rows.append({"name": name} | sizes | {"train": train, "val": val, "test": test})
    return rows
