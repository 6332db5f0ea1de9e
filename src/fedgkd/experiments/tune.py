"""Settings chosen by validation accuracy: an Optuna study that several processes can share and a kill does not end.

The test labels are taken out of the graphs before anything is trained, so nothing here can see them.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import optuna
import tomli_w
from optuna.exceptions import OptunaError, TrialPruned
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from fedgkd.atomic import atomic_write_text
from fedgkd.data.federation import Federation
from fedgkd.data.graph import UNLABELLED, Graph
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments.config import Config
from fedgkd.experiments.federations import build_federation, federation_settings
from fedgkd.experiments.grid import COORDINATES, IMMATERIAL, Given, Method, Place, Values, make_cells
from fedgkd.experiments.locks import locked
from fedgkd.experiments.proposals import Proposals, combinations, place_of
from fedgkd.experiments.records import Record
from fedgkd.experiments.runner import Events, Run
from fedgkd.experiments.scores import Best
from fedgkd.experiments.search_spaces import Space
from fedgkd.settings import NONE

HEARTBEAT_SECONDS, GRACE_SECONDS = 5, 30
"""How often a process says that its trial is alive, and after how long a silent one is taken for dead."""

HEARTBEATS = "heartbeats"
"""Where a trial counts them. A count, and no time: clocks of machines differ, and may be set."""

_LOOK_SECONDS = 0.5
"""How often a process that waits for others looks at theirs."""

UNPRUNED_TRIALS, STALLED_ROUNDS, REPORT_EVERY = 5, 10, 5
"""The first trials are never pruned, the others only after so many rounds without a new best of their own: who learns
slowly may still come out ahead. It is looked at every few rounds."""

STUDY_FILE = "study.db"

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_FIRST_WORDS = "# Tuned by fedgkd"


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how.

    Args:
        places: Federations; with several, the mean over all of them decides.
        algorithm: The algorithm.
        space: Values to try of every setting.
        trials: Combinations to try at most.
        seeds: Every combination is run with that many seeds, from ``first_seed`` on.
        given: Settings that are not tuned.
        seed: Decides what is proposed.
        first_seed: One that no table reports, where the figures shall owe nothing to the choice.
    """

    places: Sequence[Place]
    algorithm: str
    space: Space
    trials: int
    seeds: int
    given: Given = field(default_factory=Given)
    seed: int = 0
    first_seed: int = 0

    def __post_init__(self) -> None:
        if not self.space:
            raise SettingError(f"there is nothing to tune about {self.algorithm}: all its settings are given")
        for name in self.space:
            if name in COORDINATES:
                raise SettingError(f"{name} cannot be tuned: it says what is run, not how")
        typed = {name: tuple(self._typed(name, value) for value in values) for name, values in self.space.items()}
        object.__setattr__(self, "space", typed)

    def _typed(self, name: str, value: Any) -> Any:
        return self.configs({name: value})[0].values()[name]

    @property
    def name(self) -> str:
        """Of the study and of the file of the winner; ``compare --configs`` finds it by this name."""
        first, algorithm = self.places[0], Method(self.algorithm).name
        clients = f"{first.clients}-" if len(self.places) == 1 else ""
        return f"{first.dataset}-{clients}{first.setting}-{algorithm}"

    @property
    def wanted(self) -> int:
        """Trials that there will be: no combination needs a second one."""
        return min(self.trials, combinations(self.space))

    def configs(self, params: Values) -> list[Config]:
        """The runs of a trial."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        cells = make_cells(Path(), self.places, [Method(self.algorithm, params)], seeds, self.given)
        return [cell.config for cell in cells]

    def conditions(self) -> dict[str, Any]:
        """What processes that share a study must agree on."""
        settings = [config.values() for config in self.configs({})]
        for values in settings:
            for name in (*IMMATERIAL, *self.space):
                del values[name]
        conditions = {"space": self.space, "seeds": self.seeds, "settings": settings}
        return dict(json.loads(json.dumps(conditions)))


@dataclass(frozen=True)
class Watch:
    """What a study tells while it goes on; all do nothing unless given.

    ``on_start`` gets how many trials have ended and the params of the next, ``on_round`` how many of its runs are done
    and a round's record, ``on_end`` the trial.
    """

    on_start: Callable[[int, Values], None] = lambda ended, params: None
    on_round: Callable[[int, Record], None] = lambda done, record: None
    on_end: Callable[[FrozenTrial], None] = lambda trial: None


@dataclass(frozen=True)
class Outcome:
    """The winner, and how many trials there were."""

    params: Values
    value: float
    complete: int
    pruned: int
    elsewhere: int
    """Trials that other processes are still busy with."""


def tune(
    tuning: Tuning,
    out: Path,
    storage: str | None = None,
    data_dir: Path | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Try until there are as many trials as wanted, together with whoever works on the same study.

    Args:
        tuning: What to try.
        out: Folder for the study.
        storage: URL of a database to use instead of a file in ``out``.
        data_dir: Folder with the published files of the datasets.
        watch: What to call in between.

    Raises:
        SettingError: If the storage cannot be used.
        RunError: If the study there was begun under other conditions, or the storage fails later.
    """
    with locked(out, wait=True):  # two processes must not make one database at the same moment
        study = _open_study(tuning, storage or f"sqlite:///{(out / STUDY_FILE).resolve()}")
    objective = _Objective(tuning, data_dir, watch or Watch())
    try:
        while _count(study, *_ENDED) < tuning.wanted:
            if _count(study, *_ENDED, TrialState.RUNNING) < tuning.wanted:
                study.optimize(objective, n_trials=1, catch=(_Surplus,), callbacks=[objective.on_end])
            elif not _place_comes_free(study, tuning.wanted):
                break
        return _outcome(study)
    except (SQLAlchemyError, OptunaError) as error:
        raise RunError(f"the storage of the study fails: {_first_line(error)}") from error


def write_winner(tuning: Tuning, outcome: Outcome, file: Path, command: str) -> None:
    """The winning settings as a file that ``run --config`` and ``compare --configs`` take."""
    config, place = tuning.configs(outcome.params)[0], tuning.places[0]
    chosen = {"algorithm", *place.settings, *tuning.given.options, *tuning.given.assignments, *outcome.params}
    chosen -= {*IMMATERIAL, *(["clients"] if len(tuning.places) > 1 else [])}
    values = {name: NONE if value is None else value for name, value in config.values().items() if name in chosen}
    text = (
        f"{_FIRST_WORDS}. Trials: {outcome.complete + outcome.pruned}, of which pruned: {outcome.pruned}. "
        f"Mean validation accuracy: {outcome.value:.4f} (runs: {len(tuning.configs(outcome.params))}).\n"
        f"# {command}\n\n{tomli_w.dumps(values)}"
    )
    atomic_write_text(file, text, RunError)


def winner_file(tuning: Tuning, out: Path) -> Path:
    return out / f"{tuning.name}.toml"


def check_files(out: Path, winner: Path) -> None:
    """Raise if the study or the winner cannot be written without harm to what is there."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; choose another --out")
    try:
        ours = not winner.exists() or winner.read_text(encoding="utf-8").startswith(_FIRST_WORDS)
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {winner}: {error}") from error
    if not ours:
        raise RunError(f"{winner} was not written by fedgkd tune; move it away, or choose another --out")


# --- one trial -------------------------------------------------------------------------------------------------------


class _Surplus(Exception):
    """Another process took the last free place at the same moment."""


class _Objective:
    """Mean validation accuracy of a trial's runs; one that is behind the others and no longer rises is pruned."""

    def __init__(self, tuning: Tuning, data_dir: Path | None, watch: Watch) -> None:
        self._tuning, self._watch = tuning, watch
        self._federation = cache(lambda settings: _blinded(build_federation(settings, data_dir)))

    def __call__(self, trial: Trial) -> float:
        if place_of(trial.study, trial.number) >= self._tuning.wanted:
            raise _Surplus
        params = {name: trial.suggest_categorical(name, values) for name, values in self._tuning.space.items()}
        self._watch.on_start(_count(trial.study, *_ENDED), params)
        scores: list[float] = []
        with _heartbeats(trial):
            for config in self._tuning.configs(params):
                scores.append(self._run(config, trial, scores))
        return float(np.mean(scores))

    def on_end(self, study: optuna.Study, trial: FrozenTrial) -> None:
        if trial.state in _ENDED:
            self._watch.on_end(trial)

    def _run(self, config: Config, trial: Trial, scores: Sequence[float]) -> float:
        best = Best()

        def on_round(record: Record) -> None:
            self._watch.on_round(len(scores), record)
            number, accuracy = record["round"], record["selected"]["accuracy"]["val"]
            if accuracy is not None:
                best.offer(number, accuracy, {})
            if number % REPORT_EVERY == 0 and best.round:
                trial.report(float(np.mean([*scores, best.val])), len(scores) * config.run.rounds + number)
                if best.is_stale(number, STALLED_ROUNDS) and trial.should_prune():
                    raise TrialPruned

        run = Run(config, self._federation(federation_settings(config.run)), None, Events(on_round))
        run.start()
        return _validation(run.execute()["val_accuracy"])


@contextmanager
def _heartbeats(trial: Trial) -> Iterator[None]:
    """Meanwhile other processes can see that this one is alive."""
    ended = Event()

    def beat() -> None:
        for number in itertools.count(1):
            if ended.wait(HEARTBEAT_SECONDS):
                return
            # The database may be busy for a moment; if it is not there any more, the trial itself will say so.
            with suppress(SQLAlchemyError, OptunaError):
                trial.set_user_attr(HEARTBEATS, number)

    trial.set_user_attr(HEARTBEATS, 0)
    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _blinded(federation: Federation) -> Federation:
    """The same graphs, but nobody knows the labels of the test nodes, nor that they are there to be tested."""
    return replace(federation, graphs=tuple(_without_test(graph) for graph in federation.graphs))


def _without_test(graph: Graph) -> Graph:
    assert graph.test_mask is not None  # a federation's graphs have splits
    y = np.where(graph.test_mask, UNLABELLED, graph.y)
    return replace(graph, y=y, test_mask=np.zeros_like(graph.test_mask))


def _validation(accuracy: float | None) -> float:
    if accuracy is None:
        raise SettingError(
            "there are no validation nodes to tune by; raise val_ratio, or mark some in the graphs' own val_mask"
        )
    return accuracy


# --- the study -------------------------------------------------------------------------------------------------------


def _open_study(tuning: Tuning, storage: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    defaults = tuning.configs({})[0].values()
    try:
        study = optuna.create_study(
            storage=_open_storage(storage),
            study_name=tuning.name,
            direction="maximize",
            sampler=Proposals(
                tuning.space, {name: defaults[name] for name in tuning.space}, tuning.wanted, tuning.seed
            ),
            pruner=optuna.pruners.MedianPruner(UNPRUNED_TRIALS),
            load_if_exists=True,
        )
        _release_dead(study, enough=lambda: False)
        begun = study.user_attrs.get("conditions")
        if begun is None:
            study.set_user_attr("conditions", tuning.conditions())
    except (SQLAlchemyError, OptunaError, ImportError, ValueError) as error:
        raise SettingError(f"the storage {storage} cannot be used: {_first_line(error)}") from error
    if begun not in (None, tuning.conditions()):
        raise RunError(
            f"the study {tuning.name} was begun with another search space, number of seeds or settings; "
            "repeat that command, or choose another --out"
        )
    return study


def _open_storage(url: str) -> optuna.storages.RDBStorage:
    # One process at a time writes to a SQLite file; the others wait for it.
    arguments = {"connect_args": {"timeout": GRACE_SECONDS}} if url.startswith("sqlite") else None
    return optuna.storages.RDBStorage(url, engine_kwargs=arguments)


def _count(study: optuna.Study, *states: TrialState) -> int:
    return len(study.get_trials(deepcopy=False, states=states))


def _place_comes_free(study: optuna.Study, wanted: int) -> bool:
    """Wait until it is known whether the trials that others took are alive; if one is not, its place is free."""
    began = time.monotonic()
    while time.monotonic() - began < GRACE_SECONDS + HEARTBEAT_SECONDS:
        _release_dead(study, enough=lambda: _count(study, *_ENDED) >= wanted)
        if _count(study, *_ENDED) >= wanted or _count(study, *_ENDED, TrialState.RUNNING) < wanted:
            return True
    return False


def _release_dead(study: optuna.Study, enough: Callable[[], bool]) -> None:
    """Watch the trials of other processes: those whose process is gone become failed ones, which do not count."""
    silent = _heard(study)
    began = time.monotonic()
    while silent and not enough():
        if time.monotonic() - began > GRACE_SECONDS:
            for number in silent:
                study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
            return
        time.sleep(_LOOK_SECONDS)
        now = _heard(study)
        silent = {number: heard for number, heard in silent.items() if number in now and now[number] == heard}


def _heard(study: optuna.Study) -> dict[int, int | None]:
    """The heartbeats of every trial under way."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return {trial.number: trial.user_attrs.get(HEARTBEATS) for trial in running}


def _outcome(study: optuna.Study) -> Outcome:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        raise RunError("no trial of the study is complete yet")
    best = max(complete, key=lambda trial: (trial.value or 0.0, -trial.number))
    assert best.value is not None  # a complete trial has one
    pruned, running = _count(study, TrialState.PRUNED), _count(study, TrialState.RUNNING)
    return Outcome(best.params, best.value, len(complete), pruned, running)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
