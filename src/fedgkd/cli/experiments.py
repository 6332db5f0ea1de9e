"""``fedgkd compare``, ``tune`` and ``ablate``: many runs at once, and what comes of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedgkd.cli import console
from fedgkd.cli.live import grid_progress, tuning_progress
from fedgkd.cli.options import DataDir, Json, Log, Synthetic, complete_dataset, complete_setting
from fedgkd.errors import SettingError, quoted

T = TypeVar("T")

if TYPE_CHECKING:
    from fedgkd.experiments.estimate import Estimate
    from fedgkd.experiments.grid import Cell, Given, Place, State
    from fedgkd.experiments.workers import News

_MOST_SEEDS = 10_000

OneDataset = Annotated[
    str | None,
    typer.Option(help="A dataset (cora by default), or the path of a graph.", autocompletion=complete_dataset),
]
OneFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with one graph per client, used as it is.")]
Partition = Annotated[
    str | None,
    typer.Option(
        help="non-overlapping (the default), overlapping, louvain or shards.", autocompletion=complete_setting
    ),
]
Overlapping = Annotated[bool, typer.Option("--overlapping", help="Short for --partition overlapping.")]
Clients = Annotated[
    list[int] | None,
    typer.Option(metavar="N...", min=1, help="Numbers of clients; 5 10 20 by default, 10 30 50 if overlapping."),
]
Concepts = Annotated[
    int | None, typer.Option(metavar="G", help="Groups of clients that number the classes differently; 1 by default.")
]
TrainPerClient = Annotated[
    int | None, typer.Option(metavar="K", help="Training nodes that a client keeps at most; all by default.")
]
Seeds = Annotated[
    int, typer.Option(metavar="K", min=1, max=_MOST_SEEDS, help="Every run is made with K seeds, from 0 on.")
]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds at most; 100 by default.")]
LabelColumn = Annotated[str | None, typer.Option(help="Label column of own nodes.csv files: its name or number.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE...", help="Any setting, for the algorithms that have it; see run --explain."
    ),
]
Configs = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of tuned settings: <dataset>-<clients>-<setting>-<algorithm>.toml, without the clients for any "
        "number of them, or <algorithm>.toml. The most specific file counts.",
    ),
]
Jobs = Annotated[int, typer.Option(metavar="N", min=1, help="Runs at the same time, each in a process of its own.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for all of it; the same command again goes on there.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs with an estimate of their time; run nothing.")]


def compare(
    out: Out,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME...",
            help="Datasets (cora by default), or paths of graphs.",
            autocompletion=complete_dataset,
        ),
    ] = None,
    graphs: Annotated[
        list[Path] | None, typer.Option(metavar="DIR...", help="Folders with one graph per client, used as they are.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A collection of federations instead: unlike (clients whose tasks differ)."),
    ] = None,
    clients: Clients = None,
    partition: Partition = None,
    overlapping: Overlapping = False,
    concepts: Concepts = None,
    train_per_client: TrainPerClient = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME...", help="Algorithms, or module:Class of your own; by default all."),
    ] = None,
    seeds: Seeds = 3,
    first_seed: Annotated[int, typer.Option(metavar="S", min=0, help="The first of the seeds.")] = 0,
    rounds: Rounds = None,
    jobs: Jobs = 1,
    set_: Assignments = None,
    configs: Configs = None,
    label: LabelColumn = None,
    synthetic: Synthetic = None,
    log: Log = None,
    data_dir: DataDir = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Run several algorithms on several federations, and compare them. What is finished is not run again."""
    from fedgkd.algorithms import METHODS
    from fedgkd.experiments.grid import Method, make_cells

    names = list(METHODS) if algorithms in (None, ["all"]) else algorithms
    if suite is not None:
        if any((dataset, graphs, clients, partition, overlapping, concepts, train_per_client, label, synthetic)):
            raise SettingError("--suite names whole federations: no option that chooses their data goes with it")
        places = _suite(suite)
    else:
        places = _places(dataset or [], graphs or [], clients, _partition(partition, overlapping), label)
    unlike = {"concepts": concepts, "train_per_client": train_per_client}
    given = _given(configs, set_, jobs, rounds=rounds, label=label, synthetic=synthetic, **unlike)
    cells = make_cells(out, places, [Method(name) for name in names], range(first_seed, first_seed + seeds), given)
    grid = _Grid("comparison", cells, out, jobs, log, data_dir)
    if dry_run:
        grid.show_plan(json)
    else:
        grid.run()
        grid.show_results(json)


def ablate(
    study: Annotated[
        str,
        typer.Argument(
            help="relation, preset, kernel, gamma, tau_s, tau, task_feature, distillation or motivation.",
        ),
    ],
    out: Out,
    values: Annotated[
        list[str] | None, typer.Option(metavar="VALUE...", help="Those of the study's values alone; all by default.")
    ] = None,
    dataset: OneDataset = None,
    graphs: OneFolder = None,
    clients: Clients = None,
    partition: Partition = None,
    overlapping: Overlapping = False,
    seeds: Seeds = 3,
    rounds: Rounds = None,
    jobs: Jobs = 1,
    set_: Assignments = None,
    configs: Configs = None,
    label: LabelColumn = None,
    synthetic: Synthetic = None,
    log: Log = None,
    data_dir: DataDir = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Repeat one of the paper's studies: what a setting of FedGKD does, or its motivating experiment.

    The study of the relation tries several settings at once, and tells how well each relates the clients.
    """
    from fedgkd.experiments.ablate import MOTIVATION, find_study, write_study
    from fedgkd.experiments.grid import make_cells

    given = _given(configs, set_, jobs, rounds=rounds, label=label, synthetic=synthetic)
    if study == MOTIVATION:
        if values or graphs or clients or partition or overlapping or jobs > 1 or log or dry_run:
            raise SettingError(
                "the motivating experiment divides no graph and makes no runs: it takes no --values, --graphs, "
                "--clients, --partition, --overlapping, --jobs, --log or --dry-run"
            )
        _motivation(dataset or "cora", seeds, given, out, data_dir, json)
        return
    wanted = find_study(study).only(values) if values else find_study(study)
    given = replace(given, options={**wanted.options, **given.options})
    places = _places(_listed(dataset), _listed(graphs), clients, _partition(partition, overlapping), label)
    cells = make_cells(out, places, wanted.methods, range(seeds), given)
    grid = _Grid(study, cells, out, jobs, log, data_dir)
    if dry_run:
        grid.show_plan(json)
    else:
        grid.run(lambda: write_study(study, out))
        grid.show_results(json)


def tune(
    algorithm: Annotated[str, typer.Option(help="The algorithm whose settings are chosen.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the study and the file of the winner.")],
    dataset: OneDataset = None,
    graphs: OneFolder = None,
    clients: Annotated[
        list[int] | None,
        typer.Option(metavar="N...", min=1, help="Numbers of clients, 10 by default; of several, the mean decides."),
    ] = None,
    partition: Partition = None,
    overlapping: Overlapping = False,
    trials: Annotated[int, typer.Option(metavar="K", min=1, help="Combinations to try, over all processes.")] = 20,
    seeds: Annotated[int, typer.Option(metavar="K", min=1, help="Every combination is run with K seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them; the others follow it.")] = 0,
    rounds: Rounds = None,
    try_: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="NAME=A,B...", help="Values to try of a setting, besides the usual settings."),
    ] = None,
    set_: Assignments = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is tried.")] = 0,
    winner: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for the best settings; by default one in DIR, named as compare wants."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Optuna storage to share between machines; a file in DIR by default."),
    ] = None,
    label: LabelColumn = None,
    synthetic: Synthetic = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Choose an algorithm's settings by validation accuracy; test labels are never seen.

    Started several times, the processes share the trials. Killed and started again, it goes on.
    """
    from fedgkd.experiments.config import find_algorithm
    from fedgkd.experiments.search_spaces import search_space
    from fedgkd.experiments.tune import Tuning, check_files, winner_file, write_winner
    from fedgkd.experiments.tune import tune as search

    find_algorithm(algorithm)
    if dataset and graphs:
        raise SettingError("--dataset and --graphs exclude each other: settings are tuned for one of them")
    numbers = clients or (None if graphs else [10])
    places = _places(_listed(dataset), _listed(graphs), numbers, _partition(partition, overlapping), label)
    given = _given(None, set_, 1, rounds=rounds, label=label, synthetic=synthetic)
    space = {name: values for name, values in search_space(algorithm).items() if name not in given.assignments}
    tuning = Tuning(places, algorithm, space | _values_to_try(try_ or []), trials, seeds, given, seed, first_seed)
    file = winner or winner_file(tuning, out)
    check_files(out, file)
    if tuning.wanted < trials:
        console.err.print(f"there are only {tuning.wanted} combinations; all of them are tried")
    with tuning_progress(tuning) as watch:
        outcome = search(tuning, out, storage, data_dir, watch)
    write_winner(tuning, outcome, file, _command())
    _show_winner(outcome, file, json)


# --- what they have in common ----------------------------------------------------------------------------------------


class _Grid:
    """Runs that are to be made in one folder."""

    def __init__(
        self, kind: str, cells: Sequence[Cell], out: Path, jobs: int, log: str | None, data_dir: Path | None
    ) -> None:
        self.kind, self.cells, self.out = kind, cells, out
        self.jobs, self.log, self.data_dir = jobs, log, data_dir

    def run(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Bring every run to its end that is not there yet; ``prepare`` is called once the folder is ours."""
        from fedgkd.experiments.directory import RunDirectory
        from fedgkd.experiments.grid import State, claimed
        from fedgkd.experiments.tracking import prepare_tracker
        from fedgkd.experiments.workers import Surroundings, run_cells

        prepare_tracker(self.log)
        with claimed(self.out, self.kind, _command()) as lock:
            prepare()
            states = self._states()
            todo = [cell for cell in self.cells if states[cell] is not State.FINISHED]
            for cell in self.cells:
                RunDirectory(cell.folder).tidy()
            self._say_what_is_there(len(self.cells) - len(todo))
            if todo:
                with grid_progress(len(todo)) as show:

                    def report(news: News) -> None:
                        lock.check()  # a grid whose folder is gone must not make it again, run by run
                        show(news)

                    run_cells(todo, Surroundings(self.data_dir, self.log), self.jobs, report)

    def _say_what_is_there(self, finished: int) -> None:
        if finished:
            console.err.print(f"finished already: {finished} of {len(self.cells)} runs")
        tuned = sum(any(origin.endswith(".toml") for origin in cell.config.origins.values()) for cell in self.cells)
        if tuned:
            rest = "" if tuned == len(self.cells) else "; the others have the defaults"
            console.err.print(f"with tuned settings: {tuned} of {len(self.cells)} runs{rest}")

    def show_plan(self, json: bool) -> None:
        from fedgkd.experiments.estimate import estimate, total

        states = self._states()
        with console.working("measuring a few rounds of every kind of run"):
            estimates = estimate(states, self.data_dir)
        if json:
            console.print_json([_plan_record(cell, state, estimates) for cell, state in states.items()])
        else:
            _print_plan(states, estimates, *total(states, estimates, self.jobs))

    def show_results(self, json: bool) -> None:
        """The tables of all that lies in the folder, and the runs that failed; if there are any, the exit code is 1."""
        outcomes = [_outcome(cell) for cell in self.cells]
        failed = [outcome for outcome in outcomes if "error" in outcome]
        tables = self._show_tables(json) if len(failed) < len(outcomes) else []
        if json:
            console.print_json(tables or outcomes)
        if failed:
            console.print_error(
                f"{len(failed)} of {len(outcomes)} runs failed, {failed[0]['run']} with: {failed[0]['error']} "
                "(failed.json in each one's folder; the same command tries them again)"
            )
            raise typer.Exit(1)

    def _show_tables(self, json: bool) -> list[dict[str, Any]]:
        """Write the tables beside the runs, and show them; the rows of a study whose figures no single run has."""
        from fedgkd.cli.tables import print_report
        from fedgkd.reporting.quality import quality_rows, write_quality
        from fedgkd.reporting.report import read_report
        from fedgkd.reporting.writing import write_tables

        found = read_report(self.out)
        files = [*write_tables(found, self.out), *write_quality(found.studies, self.out)]
        if not json:
            print_report(found)
            console.out.print(f"\nthe tables: {', '.join(map(str, files))}", soft_wrap=True)
            console.out.print(f"with figures, as a page: fedgkd report {self.out}", soft_wrap=True)
        return quality_rows(found.studies)

    def _states(self) -> dict[Cell, State]:
        from fedgkd.experiments.grid import state

        return {cell: state(cell) for cell in self.cells}


def _command() -> str:
    return shlex.join(["fedgkd", *sys.argv[1:]])


def _listed(value: T | None) -> list[T]:
    return [] if value is None else [value]


def _partition(partition: str | None, overlapping: bool) -> str:
    if overlapping and partition not in (None, "overlapping"):
        raise SettingError(f"--overlapping and --partition {partition} exclude each other")
    return "overlapping" if overlapping else partition or "non-overlapping"


def _places(
    datasets: Sequence[str], folders: Sequence[Path], clients: Sequence[int] | None, partition: str, label: str | None
) -> list[Place]:
    """Own graphs as they are, and every dataset divided among every number of clients; Cora where neither is given."""
    from fedgkd.experiments.ablate import CLIENTS
    from fedgkd.experiments.grid import own_graphs, partitioned

    if folders and clients and not datasets:
        raise SettingError("--clients says among how many a dataset is divided; --graphs are used as they are")
    places = [own_graphs(folder, label or "label") for folder in folders]
    names = datasets or ([] if folders else ["cora"])
    return places + [
        partitioned(name, number, partition)
        for name in names
        for number in clients or _usual_numbers(name, CLIENTS.get(partition, (10,)))
    ]


def _suite(name: str) -> list[Place]:
    from fedgkd.experiments.suites import SUITES, suite

    if name not in SUITES:
        raise SettingError(f"there is no suite {quoted(name)}; known are {', '.join(SUITES)}")
    return suite(name)


def _usual_numbers(dataset: str, of_one_graph: Sequence[int]) -> Sequence[int]:
    """Numbers of clients where none are given: a natural federation has one client for each of its graphs."""
    from fedgkd.data.datasets import count_members

    members = count_members(dataset)
    return of_one_graph if members == 1 else (members,)


def _given(
    configs: Path | None, assignments: Sequence[str] | None, jobs: int, synthetic: list[str] | None, **options: Any
) -> Given:
    from fedgkd.experiments.config import parse_assignments
    from fedgkd.experiments.grid import Given
    from fedgkd.experiments.hardware import count_cores

    if configs is not None and not configs.is_dir():
        raise SettingError(f"--configs {configs}: there is no such folder")
    options["synthetic"] = " ".join(synthetic) if synthetic else None
    given = {name: value for name, value in options.items() if value is not None}
    threads = max(1, count_cores() // jobs) if jobs > 1 else 0
    return Given(configs, given, parse_assignments(assignments or []), threads)


def _values_to_try(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    space: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise SettingError(f"--try takes a setting and its values as name=a,b,c, not {quoted(text)}")
        space[name.strip()] = tuple(value.strip() for value in values.split(","))
    return space


def _motivation(dataset: str, seeds: int, given: Given, out: Path, data_dir: Path | None, json: bool) -> None:
    from fedgkd.experiments.motivation import study

    with grid_progress(seeds) as report:
        record = study(dataset, seeds, given, out, data_dir, _command(), report)
    if json:
        console.print_json(record)
    else:
        _print_motivation(out)


# --- on screen -------------------------------------------------------------------------------------------------------


def _print_plan(
    states: dict[Cell, State], estimates: dict[str, Estimate], seconds: float, unknown: Sequence[Cell]
) -> None:
    table = console.new_table("Runs")
    # Names differ at their ends, which must not be cut off.
    table.add_column("run", style="bold", no_wrap=True)
    table.add_column("state")
    table.add_column("estimate", justify="right")
    table.add_column("from")
    for cell, state in states.items():
        record = _plan_record(cell, state, estimates)
        time = console.NOTHING if record["seconds"] is None else _duration(record["seconds"])
        table.add_row(cell.name, state, time, record["basis"])
    console.out.print(table)
    more = f" without those that there was no time to measure ({len(unknown)})" if unknown else ""
    console.out.print(f"\nin all about {_duration(seconds)}{more}; less where runs stop early")


def _plan_record(cell: Cell, state: State, estimates: dict[str, Estimate]) -> dict[str, Any]:
    found = estimates.get(cell.group) if state != "finished" else None
    return {
        "run": cell.name,
        "state": str(state),
        "seconds": found.seconds if found else None,
        "basis": found.basis if found else "" if state == "finished" else "not measured",
    }


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _outcome(cell: Cell) -> dict[str, Any]:
    """The result of a run, or why there is none."""
    from fedgkd.experiments.directory import RunDirectory
    from fedgkd.experiments.workers import read_failure

    directory = RunDirectory(cell.folder)
    if directory.result_file.exists():
        return {"run": cell.name, "result": directory.checked_result()}
    return {"run": cell.name, "error": read_failure(cell)}


def _show_winner(outcome: Any, file: Path, json: bool) -> None:
    if outcome.elsewhere:
        console.err.print(
            f"trials still under way in other processes: {outcome.elsewhere}; the last process counts all"
        )
    facts = {"val_accuracy": outcome.value, "complete": outcome.complete, "pruned": outcome.pruned}
    if json:
        console.print_json({"params": dict(outcome.params), "file": str(file)} | facts)
        return
    table = console.new_table("the best trial")
    table.add_column("setting", style="bold")
    table.add_column("value", justify="right")
    for name, value in outcome.params.items():
        table.add_row(name, str(value))
    table.add_row("validation accuracy", console.share(outcome.value))
    console.out.print(table)
    console.out.print(f"trials: {outcome.complete + outcome.pruned}, of which pruned: {outcome.pruned}")
    console.out.print(f"the settings: {file}", soft_wrap=True)


def _print_motivation(out: Path) -> None:
    from fedgkd.cli.tables import print_table
    from fedgkd.reporting.motivation import read_motivation
    from fedgkd.reporting.tables import motivation_table

    print_table(motivation_table(read_motivation(out, out.name)))
    console.out.print(f"numbers and coordinates: {out}", soft_wrap=True)
    console.out.print(f"with the pictures: fedgkd report {out}", soft_wrap=True)
