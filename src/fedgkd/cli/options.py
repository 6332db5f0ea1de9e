"""Options that several commands share, and flags that take several values."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from fedgkd.errors import SettingError, quoted
from fedgkd.parsing import parse_number, parse_whole


class Command(TyperCommand):
    """A command whose list options take several values after one flag (``--clients 5 10 20``), and whose numbers are
    decimal digits.
    """

    room = 400 * 2**20
    """Bytes of address space without which numpy and its friends end in ways that nobody can catch, or not at all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {flag for param in self.params if getattr(param, "multiple", False) for flag in param.opts}
        single = list(repeat_flags(args, flags))
        check_numbers(single, self._numbers())
        return super().parse_args(ctx, single)

    def invoke(self, ctx: Any) -> Any:
        check_surroundings(self.room)
        return super().invoke(ctx)

    def _numbers(self) -> dict[str, type]:
        """What kind of number each flag takes that takes one."""
        if self.callback is None:
            return {}
        hints = get_type_hints(inspect.unwrap(self.callback))
        kinds = {name: kind for name, hint in hints.items() for kind in (int, float) if kind in _parts(hint)}
        return {flag: kinds[param.name] for param in self.params if param.name in kinds for flag in param.opts}


class TorchCommand(Command):
    """A command that imports PyTorch."""

    room = 2**30


def check_surroundings(room: int) -> None:
    """Raise if the process may not take ``room`` bytes of address space more, or its working directory is gone."""
    from fedgkd.memory import process_limit

    if process_limit() < room:
        raise SettingError(
            f"there is not enough memory: this command needs {room / 2**20:,.0f} MiB to begin with, and "
            f"{process_limit() / 2**20:,.0f} MiB are left; raise the limit (ulimit -v), or take a larger machine"
        )
    try:
        Path.cwd()
    except FileNotFoundError:
        raise SettingError("the working directory does not exist any more; change to one that does") from None


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def check_numbers(args: Sequence[str], kinds: Mapping[str, type]) -> None:
    """Raise where a flag that takes a number has anything but one; the parser would take ``1_000``."""
    flag = None
    for arg in args:
        name, equals, value = arg.partition("=")
        if flag is not None:
            _check_number(flag, arg, kinds[flag])
            flag = None
        elif arg == "--":
            return
        elif name in kinds and equals:
            _check_number(name, value, kinds[name])
        elif name in kinds:
            flag = name


def _check_number(flag: str, text: str, kind: type) -> None:
    try:
        parse_whole(text) if kind is int else parse_number(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a finite number"
        raise SettingError(f"{flag} must be {wanted}, not {quoted(text)}") from None


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
