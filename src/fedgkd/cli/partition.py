"""``fedgkd partition``: divide a graph among clients and write one file for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgkd.cli import console
from fedgkd.cli.federations import print_federation
from fedgkd.cli.options import (
    DataDir,
    GraphName,
    Json,
    Label,
    Seed,
    Synthetic,
    complete_setting,
    synthetic_options,
)
from fedgkd.errors import SettingError


def partition(
    name: GraphName,
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")],
    out: Annotated[Path, typer.Option(help="Folder to write; an earlier partition there is replaced.")],
    setting: Annotated[
        str | None,
        typer.Option(
            metavar="SETTING",
            help="non-overlapping (the default), overlapping, louvain or shards.",
            autocompletion=complete_setting,
        ),
    ] = None,
    overlapping: Annotated[bool, typer.Option("--overlapping", help="Short for --setting overlapping.")] = False,
    seed: Seed = 0,
    ratios: Annotated[
        list[float] | None,
        typer.Option(
            metavar="TRAIN VAL TEST", help="Shares of the nodes, 0.30 0.35 0.35 by default; masks of a graph are kept."
        ),
    ] = None,
    data_dir: DataDir = None,
    label: Label = "label",
    synthetic: Synthetic = None,
    json: Json = False,
) -> None:
    """Divide a graph among clients: one file for each, and a manifest, which 'fedgkd run --graphs' takes."""
    from fedgkd.data.own import divide_dataset, write_federation
    from fedgkd.data.splits import DEFAULT_RATIOS

    if overlapping and setting not in (None, "overlapping"):
        raise SettingError(f"--overlapping and --setting {setting} exclude each other")
    if ratios is not None and len(ratios) != 3:
        raise SettingError(f"--ratios takes three numbers (train, val, test), not {len(ratios)}")
    chosen = "overlapping" if overlapping else setting or "non-overlapping"
    train, val, test = ratios or DEFAULT_RATIOS
    options = synthetic_options(synthetic)
    with console.working(f"partitioning {name} among {clients} clients"):
        federation = divide_dataset(
            name, clients, chosen, seed, ratios=(train, val, test), data_dir=data_dir, label=label, **options
        )
        write_federation(federation, out)
    print_federation(federation, out, json)
