"""The same as ``fedgkd run``, from Python."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedgkd.algorithms import METHODS, Algorithm
from fedgkd.data.federation import Federation
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.federations import federation_of
from fedgkd.experiments.runner import Events, Run


def run(
    algorithm: str | type[Algorithm] = "fedgkd",
    federation: Federation | None = None,
    *,
    out: Path | str | None = None,
    data_dir: Path | str | None = None,
    events: Events | None = None,
    **settings: Any,
) -> Run:
    """Train a federation and return the finished run.

    Args:
        algorithm: A name of :data:`~fedgkd.algorithms.METHODS`, or a class of your own.
        federation: The clients' graphs; by default the dataset and partition that the settings name.
        out: Folder for the run's files; none are written without it.
        data_dir: Folder with the published files of the datasets.
        events: What to call after every round and for every warning.
        settings: Any setting of ``fedgkd run --explain``.

    Returns:
        The run: ``result()`` has the figures, ``personal_models()`` every client's model.
    """
    config = make_config(("run()", settings | {"algorithm": _name(algorithm)}))
    if federation is None:
        federation = federation_of(config, None if data_dir is None else Path(data_dir))
    directory = None if out is None else RunDirectory(Path(out))
    training = Run(config, federation, directory, events)
    with nullcontext() if directory is None else directory.held():
        if directory is not None:
            directory.create(config)
        training.start()
        training.execute()
    return training


def _name(algorithm: str | type[Algorithm]) -> str:
    if isinstance(algorithm, str):
        return algorithm
    known = next((name for name, kind in METHODS.items() if kind is algorithm), None)
    return known or f"{algorithm.__module__}:{algorithm.__qualname__}"
