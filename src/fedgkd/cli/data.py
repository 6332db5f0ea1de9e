"""``fedgkd data``: the datasets, and one graph in numbers (``stats`` has a module of its own)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.console import NOTHING
from fedgkd.cli.federations import print_federation
from fedgkd.cli.options import (
    Command,
    DataDir,
    GraphName,
    Json,
    Label,
    Synthetic,
    complete_dataset,
    synthetic_options,
)
from fedgkd.cli.stats import stats

if TYPE_CHECKING:
    from fedgkd.data.datasets import Dataset
    from fedgkd.data.graph import Graph
    from fedgkd.data.sources import Form
    from fedgkd.data.statistics import GraphStatistics

app = typer.Typer(name="data", help="Datasets and their statistics.", no_args_is_help=True)

DatasetNames = Annotated[list[str], typer.Argument(metavar="NAME", help="Datasets.", autocompletion=complete_dataset)]


@app.command("list", cls=Command)
def list_datasets(data_dir: DataDir = None, json: Json = False) -> None:
    """List the datasets, and whether their files are here."""
    from fedgkd.data.datasets import DATASETS

    rows = [_describe(name, dataset, data_dir) for name, dataset in DATASETS.items()]
    if json:
        console.print_json(rows)
        return
    table = console.new_table("Datasets")
    table.add_column("name", style="bold")
    table.add_column("title")
    for heading in ("graphs", "nodes", "directed edges", "features", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("files")
    for row in rows:
        sizes = (row[key] for key in ("graphs", "nodes", "edges", "features", "classes"))
        numbers = [NOTHING if size is None else console.count(size) for size in sizes]
        table.add_row(row["name"], row["title"], *numbers, row["files"])
    console.out.print(table)


@app.command(cls=Command)
def fetch(names: DatasetNames, data_dir: DataDir = None, json: Json = False) -> None:
    """Bring datasets to this machine and check them; a second time nothing is downloaded."""
    from fedgkd.data.datasets import find_dataset, load_members

    for name in names:
        find_dataset(name)
    fetched = []
    for name in names:
        graphs = load_members(name, data_dir).values()
        nodes, edges = sum(graph.num_nodes for graph in graphs), sum(graph.num_edges for graph in graphs)
        fetched.append({"name": name, "nodes": nodes, "edges": edges})
        if not json:
            console.out.print(f"{name}: ready ({nodes:,} nodes, {edges:,} directed edges)")
    if json:
        console.print_json(fetched)


@app.command(cls=Command)
def show(
    name: GraphName,
    data_dir: DataDir = None,
    label: Label = "label",
    synthetic: Synthetic = None,
    json: Json = False,
) -> None:
    """Show one graph in numbers, or the clients of a folder with one graph for each."""
    from fedgkd.data.datasets import count_members, load_members
    from fedgkd.data.own import holds_clients, open_graph, read_federation

    if holds_clients(name):
        print_federation(read_federation(Path(name), label=label), Path(name), json)
        return
    if count_members(name) > 1:
        _print_members(name, load_members(name, data_dir), json)
        return
    graph = open_graph(name, data_dir, label=label, **synthetic_options(synthetic))
    _print_graph(name, graph, json)


app.command(cls=Command)(stats)


def _describe(name: str, dataset: Dataset, data_dir: Path | None) -> dict[str, Any]:
    from fedgkd.data.sources import data_folders

    folders = data_folders(data_dir)
    graphs = list(dataset.members.values()) or [dataset]

    def is_here(form: Form) -> bool:
        return all(any((folder / file.path).is_file() for folder in folders) for file in form.files)

    here = all(any(map(is_here, graph.forms)) for graph in graphs)
    made = dataset.num_nodes is None and not dataset.members
    return {
        "name": name,
        "title": dataset.title,
        "graphs": len(graphs),
        "nodes": None if made else sum(graph.num_nodes or 0 for graph in graphs),
        "edges": None if made else sum(graph.num_edges or 0 for graph in graphs),
        "features": graphs[0].num_features,
        "classes": graphs[0].num_classes,
        "files": "none needed" if made else "here" if here else "to fetch",
        "publisher": dataset.publisher,
    }


def _print_members(name: str, members: Mapping[str, Graph], json: bool) -> None:
    from fedgkd.data.statistics import graph_statistics

    rows = [{"name": member} | asdict(graph_statistics(graph)) for member, graph in members.items()]
    if json:
        console.print_json({"name": name, "graphs": rows})
        return
    table = console.new_table(f"{name}: {len(rows)} graphs with the same features and classes")
    table.add_column("graph", style="bold")
    for heading in ("nodes", "directed edges", "isolated nodes", "homophily"):
        table.add_column(heading, justify="right")
    for row in rows:
        numbers = (console.count(row[key]) for key in ("nodes", "edges", "isolated"))
        table.add_row(row["name"], *numbers, console.decimal(row["homophily"]))
    console.out.print(table)


def _print_graph(name: str, graph: Graph, json: bool) -> None:
    import numpy as np

    from fedgkd.data.statistics import graph_statistics

    statistics = graph_statistics(graph)
    class_names = graph.class_names or tuple(str(number) for number in range(graph.num_classes))
    sizes = np.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes).tolist()
    per_class = dict(zip(class_names, sizes, strict=True))
    if json:
        console.print_json({"name": name, "statistics": statistics, "nodes_per_class": per_class})
        return
    table = console.new_table(name)
    table.add_column("measure")
    table.add_column("value", justify="right")
    for measure, value in _measures(graph, statistics).items():
        table.add_row(measure, value)
    console.out.print(table)
    table = console.new_table("Classes")
    table.add_column("class")
    table.add_column("nodes", justify="right")
    table.add_column("share", justify="right")
    for class_name, size in per_class.items():
        table.add_row(class_name, console.count(size), console.share(size / graph.num_nodes))
    console.out.print(table)


def _measures(graph: Graph, statistics: GraphStatistics) -> dict[str, str]:
    return {
        "nodes": console.count(statistics.nodes),
        "directed edges": console.count(statistics.edges),
        "features": f"{console.count(statistics.features)} ({'sparse' if graph.is_sparse else 'dense'})",
        "classes": console.count(statistics.classes),
        "nodes without a label": console.count(int((graph.y < 0).sum())),
        "isolated nodes": console.count(statistics.isolated),
        "clustering": console.decimal(statistics.clustering),
        "homophily": console.decimal(statistics.homophily),
        "split": "its own" if graph.masks is not None else "drawn by seed",
    }
