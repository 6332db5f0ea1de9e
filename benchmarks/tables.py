"""The figures as tables, for the screen and for Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.rounds import PARTS
from benchmarks.targets import judge, memory_ratio

WIDTH = 120


@dataclass(frozen=True)
class Table:
    """The first column is text, the others are figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def print(self) -> None:
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def tables(results: dict[str, Any]) -> Iterator[Table]:
    works = results.get("workloads", {})
    if works:
        yield _epochs(works)
        yield _rounds(works)
        yield _shares(works)
    if "growth" in results:
        yield _growth(results["growth"])
    if "clients" in results:
        yield _clients(results["clients"])
    if "memory" in results:
        yield _memory(results["memory"])
    if "start" in results:
        yield _start(results["start"])
    yield _targets(results)


def _each(works: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, work in works.items():
        for algorithm, figures in work["algorithms"].items():
            yield f"{name}, {algorithm}", figures


def _epochs(works: dict[str, Any]) -> Table:
    rows = []
    for label, figures in _each(works):
        epoch = figures["epoch"]
        cells = [_ms(epoch[name]) for name in ("ours", "plain", "floor")]
        cached = _times(epoch["plain_cached"] / epoch["ours"]) if "plain_cached" in epoch else "–"
        marginal = _times(epoch["marginal"]["plain"] / epoch["marginal"]["ours"])
        ratios = [_times(epoch["plain"] / epoch["ours"]), cached, marginal, _times(epoch["ours"] / epoch["floor"])]
        rows.append([label, *cells, *ratios])
    columns = ["one local epoch", "ours", "plain", "floor", "plain / ours", "cached", "marginal", "ours / floor"]
    return Table("One local epoch of all clients", columns, rows)


def _rounds(works: dict[str, Any]) -> Table:
    rows = []
    for label, figures in _each(works):
        took, checkpoint = figures["round"], figures["stretch"]["checkpoint_seconds_per_round"]
        other = took.get("openfgl")
        against = "–" if other is None else _times(other / (took["ours"] + checkpoint))
        ratio = _times(took["plain"] / (took["ours"] + checkpoint))
        rows.append([label, _ms(took["ours"]), _ms(checkpoint), _ms(took["plain"]), _ms(other), ratio, against])
    columns = ["one round", "ours", "+ checkpoint", "plain", "OpenFGL", "plain / ours", "OpenFGL / ours"]
    return Table("One whole round", columns, rows)


def _shares(works: dict[str, Any]) -> Table:
    rows = [
        [label, str(figures["stretch"]["rounds"]), *(_percent(figures["stretch"]["shares"][part]) for part in PARTS)]
        for label, figures in _each(works)
    ]
    return Table("Where a round's time goes", ["", "rounds", *PARTS], rows)


def _growth(growth: dict[str, Any]) -> Table:
    rows = [[f"{s['nodes']:,} nodes", f"{s['edges']:,}", _ms(s["round"])] for s in growth["sizes"]]
    title = f"A FedGKD round against the graph, 10 clients: (nodes + edges) to the power {growth['exponent']:.2f}"
    return Table(title, ["graph", "edges", "round"], rows)


def _clients(runs: list[dict[str, Any]]) -> Table:
    rows = []
    for run in runs:
        if "failed" in run:
            rows.append([f"failed: {run['failed']}", *["–"] * 5])
            continue
        shares = [_percent(run["shares"][part]) for part in ("training", "server")]
        cells = [f"{run['parameters'] / 1e6:.1f} M", _ms(run["round"]), *shares, _megabytes(run["bytes"]["peak"])]
        rows.append([f"{run['clients']:,} clients", *cells])
    columns = ["", "parameters", "round", "training", "server", "peak memory"]
    return Table("A FedGKD round against the clients, on one graph of ogbn-arxiv's size", columns, rows)


def _memory(runs: dict[str, Any]) -> Table:
    rows = []
    for name, run in runs.items():
        if "failed" in run:
            rows.append([f"{name} failed: {run['failed']}", *["–"] * 6])
            continue
        parts = ("features", "parameters", "optimiser", "tiny_run", "peak_of_preparation", "peak")
        rows.append([name, *(_megabytes(run["bytes"][part]) for part in parts), _times(memory_ratio(run))])
    columns = ["", "features", "parameters", "optimiser", "a tiny run", "peak, preparing", "peak", "beyond it / needed"]
    return Table("Peak memory of a FedGKD run beyond what the imports take, and that of a tiny run", columns, rows)


def _start(start: dict[str, float]) -> Table:
    row = ["cached cora", _ms(start["import_torch"]), _ms(start["run"]), _times(start["run"] / start["import_torch"])]
    return Table("Start", ["", "import torch", "fedgkd run to its first round", "ratio"], [row])


def _targets(results: dict[str, Any]) -> Table:
    rows = [
        [
            f"{verdict.what}: {verdict.where}",
            f"{verdict.value:.3g}",
            f"{'≥' if verdict.at_least else '≤'} {verdict.limit:g}",
            verdict.verdict,
        ]
        for verdict in judge(results)
    ]
    return Table("Targets", ["target", "measured", "limit", ""], rows)


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.1f} ms"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"
