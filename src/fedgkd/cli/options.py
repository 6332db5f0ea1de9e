"""Options that several commands share, and flags that take several values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose list options take several values after one flag: ``--clients 5 10 20``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {flag for param in self.params if getattr(param, "multiple", False) for flag in param.opts}
        return super().parse_args(ctx, list(repeat_flags(args, flags)))


def repeat_flags(args: list[str], flags: Collection[str]) -> Iterator[str]:
    """Write ``--clients 5 10`` as ``--clients 5 --clients 10``, which is what the parser knows.

    The values of a flag end at the next option; a bare ``--`` ends them before positional arguments.
    """
    flag, has_value = None, False
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            yield arg
            yield from rest
        elif arg.startswith("-") and arg != "-":
            name, equals, _ = arg.partition("=")
            flag, has_value = (name if name in flags else None), bool(equals)
            yield arg
        else:
            if flag is not None and has_value:
                yield flag
            has_value = True
            yield arg


def synthetic_options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """``["num_nodes=500", "homophily=0.5"]`` as arguments of the synthetic graph, each of the type that it takes."""
    from fedgkd.data.synthetic import parse_options

    return parse_options(pairs or ())


def complete_dataset(incomplete: str) -> list[str]:
    from fedgkd.data.datasets import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    from fedgkd.data.partition import SETTINGS

    return [name for name in SETTINGS if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder with the published files; by default that of FEDGKD_DATA, else the user's cache."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Decides the split and the partition.")]
Label = Annotated[str, typer.Option(help="Label column of nodes.csv: its name, or its number counted from 1.")]
Synthetic = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE...", help="Sizes of the dataset 'synthetic', as num_nodes=5000 homophily=0.5."),
]
Log = Annotated[str | None, typer.Option(metavar="TRACKER", help="Log every round to tensorboard or mlflow as well.")]
GraphName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dataset, or the path of a graph: an .npz file or a folder with nodes.csv and edges.csv.",
        autocompletion=complete_dataset,
    ),
]
