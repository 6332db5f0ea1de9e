"""Every error that a user can cause, each one clear sentence.

    FedGKDError
    ├── DataError        a file, a graph or a federation of graphs is not usable
    │   └── FetchError   a file could not be had from any source
    ├── SettingError     a setting is unknown or its value out of range
    ├── RunError         a run directory, checkpoint or model file is not usable
    └── FederationError  a kit, a certificate or a connection of a real federation is not usable

The command line prints the message and exits with code 2; anything else is a bug and keeps its traceback.
"""


class FedGKDError(Exception):
    """Base of all errors meant for the user."""


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
