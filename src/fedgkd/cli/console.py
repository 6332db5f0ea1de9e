"""How every command speaks: tables, JSON, errors in one sentence."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from fedgkd.errors import FedGKDError

NOTHING = "–"

# A pipe or a file has no width of its own: a table there is as wide as it needs to be.
out = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True, highlight=False, markup=False)


class ErrorsInOneSentence(TyperGroup):
    """Turns errors meant for the user, and Ctrl-C, into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FedGKDError as error:
            print_error(str(error))
            raise typer.Exit(2) from error
        except PermissionError as error:
            print_error(f"{error.filename}: permission denied")
            raise typer.Exit(2) from error
        except MemoryError as error:
            print_error(f"there is not enough memory ({error}); try smaller settings, or a larger machine")
            raise typer.Exit(2) from error
        except KeyboardInterrupt as interrupt:
            err.print("\nstopped by Ctrl-C")
            raise typer.Exit(130) from interrupt


def interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Python prints and forgets a Ctrl-C that came while it ran a destructor; here it is pressed once more.

    Not at once: it would come in this function, whose errors are forgotten, too.
    """
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    press = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    press.daemon = True
    press.start()


def print_error(message: str) -> None:
    err.print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)


def new_table(title: str) -> Table:
    look: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0), "show_edge": False}
    return Table(title=f"\n{title}", title_justify="left", title_style="bold", **look)


def print_json(value: Any) -> None:
    """Print dataclasses, dicts and lists as JSON; a number that is not there becomes null."""
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show on a terminal what is being done, for as long as it takes (not around downloads: they show their own)."""
    if err.is_terminal:
        with err.status(message):
            yield
    else:
        yield


def count(value: float) -> str:
    """A whole number as it is, a mean with one decimal."""
    return f"{value:,}" if isinstance(value, int) else _or_nothing(value, f"{value:,.1f}")


def decimal(value: float) -> str:
    return _or_nothing(value, f"{value:.3f}")


def share(value: float) -> str:
    return _or_nothing(value, f"{value:.1%}")


def difference(percent: float) -> str:
    return _or_nothing(percent, "0.0%" if abs(percent) < 0.05 else f"{percent:+.1f}%")


def _or_nothing(value: float, text: str) -> str:
    return NOTHING if math.isnan(value) else text


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
