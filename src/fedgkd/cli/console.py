"""How every command speaks: tables, JSON, errors in one sentence."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from fedgkd.cli.process import READER_GONE, STOPPED, OutputError
from fedgkd.errors import FedGKDError, SettingError, quoted, shortened

NOTHING = "–"

# A pipe or a file has no width of its own: a table there is as wide as it needs to be.
out = Console(highlight=False, markup=False, width=None if sys.stdout is not None and sys.stdout.isatty() else 200)
err = Console(stderr=True, highlight=False, markup=False)


# Typer names one of the errors that its parser raises; they have a base in common.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class ErrorsInOneSentence(TyperGroup):
    """Turns errors meant for the user, and Ctrl-C, into one sentence and an exit code."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **settings: Any) -> Any:
        with _in_one_sentence():
            for arg in args:
                _check_text(arg)
            return super().make_context(info_name, args, *rest, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_sentence():
            return super().invoke(ctx)


_NO_MEMORY = ("allocate memory", "failed to map segment", "can't start new thread")
"""What PyTorch, the loader of libraries and Python say of it."""


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        if error.reader_gone:
            raise typer.Exit(READER_GONE) from error
        raise _refusal(str(error)) from error
    except FedGKDError as error:
        raise _refusal(str(error)) from error
    except UsageError as error:
        raise _usage(error) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        reason = "permission denied" if isinstance(error, PermissionError) else error.strerror or error
        raise _refusal(f"{where}{reason}") from error
    except (MemoryError, RuntimeError, ImportError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error) for sign in _NO_MEMORY):
            raise
        reason = f"there is not enough memory ({shortened(error)})" if str(error) else "there is not enough memory"
        raise _refusal(f"{reason}; try smaller settings, or a larger machine") from error
    except KeyboardInterrupt as interrupt:
        err.print("\nstopped by Ctrl-C")
        raise typer.Exit(STOPPED) from interrupt


def _check_text(arg: str) -> None:
    """Bytes that are no text come as lone surrogates; neither they nor NUL can be written to a file of settings."""
    if not arg.strip():
        raise SettingError("an argument is empty; leave its option out, or give it a value")
    if "\0" in arg or any("\ud800" <= sign <= "\udfff" for sign in arg):
        raise SettingError(f"the argument {quoted(arg)} is not text in UTF-8")


def _refusal(message: str) -> typer.Exit:
    print_error(str(FedGKDError(message)))
    return typer.Exit(2)


def _usage(error: Any) -> Exception:
    """A verb without arguments shows its help, which is no error."""
    if error.ctx is None or type(error).__name__ == "NoArgsIsHelpError":
        return cast(Exception, error)
    return _refusal(f"{error.format_message().rstrip('.')}; see {error.ctx.command_path} --help")


def print_error(message: str) -> None:
    err.print(Text.assemble(("error:", "bold red"), " ", message), soft_wrap=True)


def new_table(title: str, caption: str | None = None) -> Table:
    look: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0), "show_edge": False}
    return Table(
        title=f"\n{title}", title_justify="left", title_style="bold", caption=caption, caption_justify="left", **look
    )


def print_json(value: Any) -> None:
    """Print dataclasses, dicts and lists as JSON; a number that is not there becomes null."""
    unicode = sys.stdout.encoding.lower().startswith("utf")
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=not unicode, allow_nan=False))


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
