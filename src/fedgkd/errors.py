"""Every error that a user can cause, each one clear sentence.

    FedGKDError
    ├── DataError        a file, a graph or a federation of graphs is not usable
    │   └── FetchError   a file could not be had from any source
    ├── SettingError     a setting is unknown or its value out of range
    ├── RunError         a run directory, checkpoint or model file is not usable
    └── FederationError  a kit, a certificate or a connection of a real federation is not usable

The command line prints the message and exits with code 2; anything else is a bug and keeps its traceback.
"""

import re

LONGEST_QUOTE = 80
"""Characters of outside input that a message shows."""


class FedGKDError(Exception):
    """Base of all errors meant for the user: one line that a terminal can show, whatever input it quotes."""

    def __init__(self, message: str = "") -> None:
        one_line = "".join(" " if c.isspace() else c if c.isprintable() else ascii(c)[1:-1] for c in message)
        super().__init__(re.sub(rf"[^\s/]{{{LONGEST_QUOTE + 1},}}", lambda word: shortened(word[0]), one_line))


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


def shortened(value: object) -> str:
    """Outside input as a message may show it: cut at 80 characters."""
    text = str(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"
