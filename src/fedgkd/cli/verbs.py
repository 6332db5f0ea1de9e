"""The verbs people type.

All of this package is imported for ``fedgkd --help``, so no module imports numpy, scipy or torch at its top: a command
imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fedgkd._version import __version__
from fedgkd.cli import data, federation
from fedgkd.cli.console import ErrorsInOneSentence
from fedgkd.cli.experiments import ablate, compare, tune
from fedgkd.cli.options import Command, TorchCommand
from fedgkd.cli.partition import partition
from fedgkd.cli.report import collect, report, tables
from fedgkd.cli.run import predict, resume, run, verify

app = typer.Typer(
    name="fedgkd",
    cls=ErrorsInOneSentence,
    help="Personalised federated learning of graph neural networks: FedGKD and its baselines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app)
app.add_typer(federation.app)
for verb in (run, resume, predict, verify, compare, tune, ablate, report, collect, tables, partition):
    app.command(cls=Command if verb in (report, tables, partition) else TorchCommand)(verb)


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
