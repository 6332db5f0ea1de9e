"""The command line.

Nothing is imported here before :func:`main` has made Ctrl-C and the streams safe; the verbs people type are in
:mod:`fedgkd.cli.verbs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgkd.cli.verbs import app

__all__ = ["app", "main"]


def main() -> None:
    """The ``fedgkd`` command."""
    from fedgkd.cli import process

    with process.prepared():
        from fedgkd.cli.verbs import app

        app()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'fedgkd.cli' has no attribute '{name}'")
    from fedgkd.cli.verbs import app

    return app
