"""What a command makes sure of in its process before it does anything: Ctrl-C, and streams that may be closed or full.

Only the standard library is imported here: the rest takes a while, in which Ctrl-C may come.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from fedgkd.errors import FedGKDError

STOPPED = 130
READER_GONE = 128 + signal.SIGPIPE
"""What a shell says of a command whose reader went away, as in ``fedgkd data list | head -1``."""

_NARROWEST, _MOST_DIGITS = 20, 4
"""Of a terminal's width in characters."""


class OutputError(FedGKDError):
    """The standard output takes nothing more."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to the standard output: {error.strerror}")
        self.reader_gone = error.errno == errno.EPIPE


@contextmanager
def prepared() -> Iterator[None]:
    """Around a whole command, from before its imports until the last of its output is written."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it may be ignored
        signal.signal(signal.SIGINT, _interrupt)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = _interrupt_again
    _check_width()
    _open_missing()
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Errors(2, "w", closefd=False), sys.stderr)
    try:
        yield
    except KeyboardInterrupt:
        _leave()
    finally:
        _finish()


def _finish() -> None:
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _leave)  # Python tidies up, and Ctrl-C can spoil nothing any more
    try:
        sys.stdout.flush()
    except OutputError as error:
        if error.reader_gone:
            raise SystemExit(READER_GONE) from error
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End at once while modules are imported, where nothing is to be tidied up but much could swallow an exception."""
    if _importing(frame):
        _leave()
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _leave(*_: Any) -> None:
    os.write(2, b"\nstopped by Ctrl-C\n")
    os._exit(STOPPED)


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Python prints and forgets a Ctrl-C that came while it ran a destructor; here it is pressed once more.

    Not at once: it would come in this function, whose errors are forgotten, too.
    """
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    press = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    press.daemon = True
    press.start()


# --- streams ----------------------------------------------------------------------------------------------------------


class _Output(io.FileIO):
    """The standard output: whoever writes to it learns in a sentence that it is full, closed, or without a reader."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            _to_nowhere(1)  # what is still in buffers must not fail again when Python ends
            raise OutputError(error) from error


class _Errors(io.FileIO):
    """The standard error: when it takes nothing more, nobody can be told, and no training must end for it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            _to_nowhere(2)
            return len(data)


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """The same encoding and buffering as before; a character that cannot be encoded is shown as its escape."""
    encoding = before.encoding if before is not None else "utf-8"
    errors = before.errors if before is not None else None
    interactive = raw.isatty() or raw.fileno() == 2
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors="backslashreplace" if errors in (None, "strict") else errors,
        line_buffering=interactive,
    )


def _open_missing() -> None:
    """A file opened where a standard stream is missing would get what is printed; writing to these fails instead."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _check_width() -> None:
    """Widths that no table can have, or that are no numbers, stop the libraries that lay out text."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        width = os.environ.get(name, "")
        if not (width.isascii() and width.isdecimal() and len(width) <= _MOST_DIGITS and int(width) >= _NARROWEST):
            os.environ.pop(name, None)
