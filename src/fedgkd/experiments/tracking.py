"""Rounds and results to trackers that people already use: TensorBoard and MLflow, both optional extras."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedgkd.errors import RunError, SettingError, quoted
from fedgkd.experiments.config import Config
from fedgkd.experiments.records import Record
from fedgkd.experiments.runner import Events
from fedgkd.settings import suggest

MLFLOW_EXPERIMENT = "fedgkd"


@dataclass(frozen=True)
class Tracker:
    """What to call with every round's record and with the result; both do nothing unless given."""

    on_round: Callable[[Record], None] = lambda record: None
    on_result: Callable[[Record], None] = lambda result: None

    def added_to(self, events: Events) -> Events:
        """The same events, but the tracker gets every round as well."""

        def on_round(record: Record) -> None:
            self.on_round(record)
            events.on_round(record)

        return replace(events, on_round=on_round)


@contextmanager
def open_tracker(kind: str | None, folder: Path, config: Config) -> Iterator[Tracker]:
    """A tracker of :data:`TRACKERS` for the run in ``folder``, or one that does nothing."""
    if kind is None:
        yield Tracker()
    else:
        with TRACKERS[kind](folder, config) as tracker:
            yield tracker


def prepare_tracker(kind: str | None) -> None:
    """Raise if there is no such tracker, its package is missing or its store cannot be used; call it before runs."""
    if kind is None:
        return
    if kind not in TRACKERS:
        raise SettingError(f"there is no tracker {quoted(kind)}{suggest(kind, TRACKERS) or f'; known: {_KNOWN}'}")
    if find_spec(kind) is None:
        raise SettingError(f"--log {kind} needs a package that is not installed: pip install 'fedgkd[{kind}]'")
    if kind == "mlflow":
        _mlflow_experiment()


def scalars(record: Record, prefix: str = "") -> dict[str, float]:
    """The single numbers of a record, nested ones as ``selected/accuracy/val``."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            found[prefix + name] = value
    return found


@contextmanager
def _tensorboard(folder: Path, config: Config) -> Iterator[Tracker]:
    """Event files in the run's folder: ``tensorboard --logdir DIR`` shows all runs below it."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder / "tensorboard"))
    settings = {name: str(value) if value is None else value for name, value in config.values().items()}

    def on_round(record: Record) -> None:
        for name, value in scalars(record).items():
            writer.add_scalar(name, value, record["round"])

    try:
        yield Tracker(on_round, lambda result: writer.add_hparams(settings, scalars(result, "result/"), run_name="."))
    finally:
        writer.close()


@contextmanager
def _mlflow(folder: Path, config: Config) -> Iterator[Tracker]:
    """A run of one experiment, wherever MLflow is told to store (``MLFLOW_TRACKING_URI``)."""
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException

    client, experiment = _mlflow_experiment()
    where = str(folder.resolve()).replace("'", "_")

    def log(values: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        client.log_batch(run, [Metric(name, value, now, step) for name, value in values.items()])

    def on_result(result: Record) -> None:
        log(scalars(result, "result/"), result["rounds"])
        client.set_terminated(run)

    try:
        # A run that was stopped goes on.
        stopped = client.search_runs([experiment], f"tags.folder = '{where}' and attributes.status = 'RUNNING'")
        found = stopped or [client.create_run(experiment, tags={"folder": where}, run_name=folder.name)]
        run = found[0].info.run_id
        if not stopped:
            client.log_batch(run, params=[Param(name, str(value)) for name, value in config.values().items()])
        yield Tracker(lambda record: log(scalars(record), record["round"]), on_result)
    except MlflowException as error:
        raise RunError(f"MLflow refuses: {error.message}") from error


def _mlflow_experiment() -> tuple[Any, str]:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    # Left alone, it knocks for minutes at a server that is not there.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    try:
        client = MlflowClient()
        experiment = client.get_experiment_by_name(MLFLOW_EXPERIMENT)
        return client, experiment.experiment_id if experiment else client.create_experiment(MLFLOW_EXPERIMENT)
    except MlflowException as error:
        raise RunError(f"MLflow's store cannot be used: {error.message}") from error


TRACKERS: dict[str, Callable[[Path, Config], AbstractContextManager[Tracker]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
_KNOWN = ", ".join(TRACKERS)
