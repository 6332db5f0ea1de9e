"""Every error that a user can cause, each one clear sentence.

    FedGKDError
    ├── DataError        a file, a graph or a federation of graphs is not usable
    │   └── FetchError   a file could not be had from any source
    ├── SettingError     a setting is unknown or its value out of range
    ├── RunError         a run directory, checkpoint or model file is not usable
    └── FederationError  a kit, a certificate or a connection of a real federation is not usable

The command line prints the message and exits with code 2; anything else is a bug and keeps its traceback.

A message is one line. What it quotes of the outside world goes through :func:`quoted`, or :func:`shortened` where
quotation marks would be odd, as for a path or another library's reason.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_QUOTE = 80
_LONGEST_MESSAGE = 600
_BREAK = re.compile(r"\s*[^\S ]\s*")
_LONG_WORD = re.compile(rf"([^\s/']{{{LONGEST_QUOTE + 1},}}?)([:;,.)]*(?=[\s/']|$))")
_HEAD, _TAIL = 400, 190


def quoted(value: object) -> str:
    """Outside input in quotation marks, on one line, cut at 80 characters: ``'fedgdk'``."""
    return f"'{shortened(value)}'"


def shortened(value: object) -> str:
    """Outside input on one line, cut at 80 characters; what cannot be printed is shown as its escape."""
    try:
        text = str(value)
    except ValueError:  # Python does not write out an integer of more than 4,300 digits
        text = "a number of more than 4300 digits"
    text = "".join(sign if sign.isprintable() else _escaped(sign) for sign in text[: LONGEST_QUOTE + 1])
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def _one_line(message: str) -> str:
    """What the callers of :func:`quoted` may have missed: line breaks, and words that are longer than any of ours."""
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_HEAD]} … {message[-_TAIL:]}"
    line = "".join(sign if sign.isprintable() else _escaped(sign) for sign in _BREAK.sub(" ", message.strip()))
    return _LONG_WORD.sub(lambda word: shortened(word[1]) + word[2], line)


class FedGKDError(Exception):
    """Base of all errors meant for the user.

    Args:
        message: One sentence; line breaks in it become spaces, and a word or part of a path of more than 80
            characters is cut, so that no input can bend what is printed.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_one_line(str(message)))


class DataError(FedGKDError):
    """A file, a graph or a federation of graphs is not usable."""


class FetchError(DataError):
    """A file could not be had from any source."""


class SettingError(FedGKDError):
    """A setting is unknown or its value out of range."""


class RunError(FedGKDError):
    """A run directory, checkpoint or model file is not usable."""


class FederationError(FedGKDError):
    """A kit, a certificate or a connection of a real federation is not usable."""


@contextmanager
def system_errors(kind: type[FedGKDError]) -> Iterator[None]:
    """What the system refuses (a name that is too long, a folder that nobody may read) as one of our sentences."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise kind(f"{where}{error.strerror or error}") from error
