"""The verbs people type.

This package is imported for every ``fedgkd --help``, so nothing here imports numpy, scipy or torch at the top: a command
imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedgkd._version import __version__
from fedgkd.cli import data, partition
from fedgkd.cli.console import ErrorsInOneSentence

app = typer.Typer(
    name="fedgkd",
    cls=ErrorsInOneSentence,
    help="Personalised federated learning of graph neural networks: FedGKD and its baselines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app)
partition.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedgkd {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The ``fedgkd`` command."""
    app()
