"""``fedgkd data stats``: graphs and partitions in numbers, with the paper's three statistics tables beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.options import DataDir, Json, Label, Seed, Synthetic, complete_dataset, synthetic_options

if TYPE_CHECKING:
    from fedgkd.data.graph import Graph
    from fedgkd.data.paper import PaperGraph, PaperPartition
    from fedgkd.data.statistics import FederationStatistics, GraphStatistics

Columns = Mapping[str, Callable[[float], str]]
"""The measures of a table and how each is written."""

Record = dict[str, Any]
"""A graph or federation in our numbers, in the paper's, and the differences."""

GRAPH_COLUMNS: Columns = {
    "nodes": console.count,
    "edges": console.count,
    "features": console.count,
    "classes": console.count,
    "clustering": console.decimal,
    "homophily": console.decimal,
    "isolated": console.count,
}
PARTITION_COLUMNS: Columns = {
    "nodes": console.count,
    "edges": console.count,
    "clustering": console.decimal,
    "heterogeneity": console.decimal,
    "homophily": console.decimal,
    "lost_edges": console.share,
}
SETTINGS = ("non-overlapping", "overlapping")


def stats(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="Datasets, or paths of graphs: an .npz file or a folder with nodes.csv and edges.csv.",
            autocompletion=complete_dataset,
        ),
    ],
    clients: Annotated[
        list[int] | None,
        typer.Option(metavar="N...", min=1, help="Numbers of clients; for the paper's datasets its own by default."),
    ] = None,
    overlapping: Annotated[
        bool,
        typer.Option(
            "--overlapping", help="Only the overlapping setting; by default both, where clients are a multiple of 5."
        ),
    ] = False,
    seed: Seed = 0,
    data_dir: DataDir = None,
    label: Label = "label",
    synthetic: Synthetic = None,
    json: Json = False,
) -> None:
    """Statistics of graphs and of their partitions, beside those that the paper prints."""
    from fedgkd.data.own import open_graph

    options = synthetic_options(synthetic)
    graphs: list[Record] = []
    partitions: list[Record] = []
    for name in names:
        graph = open_graph(name, data_dir, label=label, **options)
        with console.working(f"measuring {name}"):
            graphs.append(_measure_graph(name, graph))
        for setting in SETTINGS[overlapping:]:
            for number in _client_numbers(name, setting, clients, overlapping):
                with console.working(f"partitioning {name}, {setting}, {number} clients"):
                    partitions.append(_measure_partition(name, graph, setting, number, seed))
    if json:
        console.print_json({"graphs": graphs, "partitions": partitions})
    else:
        _print_tables(graphs, partitions, seed)


def _client_numbers(name: str, setting: str, asked: Sequence[int] | None, only: bool) -> Sequence[int]:
    from fedgkd.data.paper import GRAPHS, PAPER_CLIENTS
    from fedgkd.data.partition import DRAWS_PER_PART

    if asked is None:
        return PAPER_CLIENTS[setting] if name in GRAPHS else ()
    if setting == "overlapping" and not only:
        return [number for number in asked if number % DRAWS_PER_PART == 0]
    return asked


def _measure_graph(name: str, graph: Graph) -> Record:
    from fedgkd.data.paper import GRAPHS
    from fedgkd.data.statistics import graph_statistics

    return {"dataset": name} | _beside(graph_statistics(graph), GRAPHS.get(name))


def _measure_partition(name: str, graph: Graph, setting: str, clients: int, seed: int) -> Record:
    from fedgkd.data.paper import paper_partition
    from fedgkd.data.partition import partition
    from fedgkd.data.statistics import federation_statistics

    federation = partition(graph, clients, setting, seed, dataset=name)
    place = {"dataset": name, "setting": setting, "clients": clients, "seed": seed}
    return place | _beside(federation_statistics(federation, graph), paper_partition(name, setting, clients))


def _beside(ours: GraphStatistics | FederationStatistics, paper: PaperGraph | PaperPartition | None) -> Record:
    from fedgkd.data.paper import difference_percent

    return {"ours": ours, "paper": paper, "difference_percent": paper and difference_percent(ours, paper)}


def _print_tables(graphs: Sequence[Record], partitions: Sequence[Record], seed: int) -> None:
    _print_comparison("Graphs", "dataset", GRAPH_COLUMNS, [(record["dataset"], record) for record in graphs])
    for setting in SETTINGS:
        rows = [(f"{part['dataset']} {part['clients']}", part) for part in partitions if part["setting"] == setting]
        if rows:
            title = f"{setting.capitalize()}: means per client, seed {seed}"
            _print_comparison(title, "clients", PARTITION_COLUMNS, rows)
    console.out.print("\nEdges are counted in both directions.")
    if any(_misprinted(part["paper"], "edges") for part in partitions):
        console.out.print("* known misprint: not what the procedure that the paper describes can give")


def _print_comparison(title: str, heading: str, columns: Columns, rows: Sequence[tuple[str, Record]]) -> None:
    table = console.new_table(title)
    table.add_column(heading, style="bold", no_wrap=True)
    table.add_column("")
    for measure in columns:
        table.add_column(measure.replace("_", " "), justify="right")
    for name, record in rows:
        ours, paper, differences = record["ours"], record["paper"], record["difference_percent"]
        table.add_row(name, "ours", *(write(getattr(ours, measure)) for measure, write in columns.items()))
        if paper is not None:
            table.add_row("", "paper", *(_printed(paper, measure, write) for measure, write in columns.items()))
            cells = (console.difference(differences[key]) if key in differences else "" for key in columns)
            table.add_row("", "difference", *cells, style="dim")
        table.add_section()
    console.out.print(table)


def _printed(paper: PaperGraph | PaperPartition, measure: str, write: Callable[[float], str]) -> str:
    value = getattr(paper, measure, None)
    return console.NOTHING if value is None else write(value) + "*" * _misprinted(paper, measure)


def _misprinted(paper: PaperGraph | PaperPartition | None, measure: str) -> bool:
    return bool(getattr(paper, f"{measure}_misprinted", False))
