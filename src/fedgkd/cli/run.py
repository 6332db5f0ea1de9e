"""``fedgkd run``, ``resume`` and ``predict``: from a federation to personal models, and what they say of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.options import DataDir, Json, Label, Log, Synthetic, complete_dataset, complete_setting
from fedgkd.errors import DataError, SettingError

if TYPE_CHECKING:
    from fedgkd.experiments.config import Config
    from fedgkd.experiments.directory import RunDirectory
    from fedgkd.experiments.runner import Events

PLAIN_EVERY = 10


def run(
    algorithm: Annotated[
        str | None, typer.Option(help="fedgkd (the default), local, fedavg, fedprox, fedper …")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="A dataset (cora by default), or the path of a graph.", autocompletion=complete_dataset),
    ] = None,
    graphs: Annotated[str | None, typer.Option(help="Folder with one graph per client, used as it is.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients; 10 by default.")] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="non-overlapping (the default), overlapping, louvain or shards.", autocompletion=complete_setting
        ),
    ] = None,
    overlapping: Annotated[bool, typer.Option("--overlapping", help="Short for --partition overlapping.")] = False,
    concepts: Annotated[
        int | None,
        typer.Option(metavar="G", help="Groups of clients that number the classes differently; 1 by default."),
    ] = None,
    train_per_client: Annotated[
        int | None, typer.Option(metavar="K", help="Training nodes that a client keeps at most; all by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides splits, partition, weights and all noise.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds at most; 100 by default.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Values of FedGKD where you give none: default (ours), paper (to the letter) or best (most accurate)."
        ),
    ] = None,
    participation: Annotated[float | None, typer.Option(help="Share of clients that take part in a round.")] = None,
    dropout_rate: Annotated[float | None, typer.Option(help="Share of those that fail to answer.")] = None,
    select: Annotated[
        str | None, typer.Option(help="Model scored and kept: trained, client (its choice), midpoint.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="gcn (the default), sage, gat or gin.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu (the default), cuda or cuda:N.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; all cores by default.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column of own nodes.csv files: its name or number.")] = None,
    synthetic: Synthetic = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings; options given here win.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE...", help="Any setting; see --explain.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; by default a new one under runs/.")] = None,
    log: Log = None,
    data_dir: DataDir = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print every setting, and do not run.")] = False,
    json: Json = False,
) -> None:
    """Train a federation: every client gets a model of its own."""
    from fedgkd.experiments.config import make_config, parse_assignments, read_config_file

    if overlapping and partition not in (None, "overlapping"):
        raise SettingError(f"--overlapping and --partition {partition} exclude each other")
    if graphs is not None and (dataset or clients or partition or overlapping):
        raise SettingError("--graphs are used as they are: --dataset, --clients and --partition do not go with them")
    options = {
        "algorithm": algorithm,
        "dataset": dataset,
        "graphs": graphs,
        "clients": clients,
        "partition": "overlapping" if overlapping else partition,
        "concepts": concepts,
        "train_per_client": train_per_client,
        "seed": seed,
        "rounds": rounds,
        "preset": preset,
        "participation": participation,
        "dropout_rate": dropout_rate,
        "select": select,
        "model": model,
        "device": device,
        "threads": threads,
        "label": label,
        "synthetic": " ".join(synthetic) if synthetic else None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    from_file = {} if config is None else read_config_file(config)
    sources = [(str(config), from_file), ("command line", given), ("--set", parse_assignments(set_ or []))]
    settings = make_config(*((origin, _with_absolute_paths(values)) for origin, values in sources))
    if explain:
        _explain(settings, json)
    else:
        _start(settings, out, log, data_dir, json)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.", file_okay=False)],
    log: Log = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Go on with a run that was stopped; the result is the same as if it had not been."""
    from fedgkd.experiments.directory import RunDirectory
    from fedgkd.experiments.federations import federation_of
    from fedgkd.experiments.runner import resume as take_up
    from fedgkd.experiments.tracking import open_tracker, prepare_tracker

    prepare_tracker(log)
    directory = RunDirectory(folder)
    config = directory.load_config()
    directory.tidy()
    if directory.is_finished:
        _show_finished(directory, json)
        return
    with directory.held():
        if directory.is_finished:  # by another process, a moment ago
            _show_finished(directory, json)
            return
        with console.working("preparing the federation"):
            federation = federation_of(config, data_dir)
        with _progress(config, folder) as events, open_tracker(log, folder, config) as tracker:
            result = take_up(directory, federation, tracker.added_to(events)).execute()
            tracker.on_result(result)
    _show_result(result, folder, json)


def predict(
    model: Annotated[Path, typer.Option(help="A client's model file.", dir_okay=False)],
    graph: Annotated[Path, typer.Option(help="The graph: an .npz file or a folder with nodes.csv and edges.csv.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; by default to the screen.")] = None,
    label: Label = "label",
) -> None:
    """Classify the nodes of a graph with a personal model: class and probabilities per node, as CSV."""
    from fedgkd.atomic import atomic_write_text
    from fedgkd.data.own import read_graph
    from fedgkd.experiments.model_file import PersonalModel

    personal = PersonalModel.load(model)
    classes = personal.model.num_classes
    nodes = read_graph(graph, label=label, labels_required=False, class_names=personal.class_names, num_classes=classes)
    table, accuracy = _predictions(personal, nodes)
    if out is None:
        typer.echo(table, nl=False)
    else:
        atomic_write_text(out, table, DataError)
        console.err.print(f"{nodes.num_nodes:,} nodes classified: {out}", soft_wrap=True)
    if accuracy is not None:
        console.err.print(f"accuracy on the {int((nodes.y >= 0).sum()):,} nodes with a label: {accuracy:.2%}")


def verify(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A run, a folder of runs or of a federation, or a model file.")
    ],
    json: Json = False,
) -> None:
    """Check that runs, checkpoints and models are as they were written; the exit code is 2 if one is not."""
    from fedgkd.experiments.verify import verify as look

    found = look(path)
    if json:
        console.print_json(vars(found))
    else:
        for sentence in (*found.problems, *found.unverifiable):
            console.out.print(sentence, soft_wrap=True)
        whole = ", ".join(f"{number} {kind}" for kind, number in sorted(found.whole.items()) if number)
        console.out.print(f"{path}: {len(found.problems)} problems; whole: {whole or 'nothing'}", soft_wrap=True)
    if found.problems:
        raise typer.Exit(2)


def _predictions(personal: Any, graph: Any) -> tuple[str, float | None]:
    import csv
    import io

    probabilities = personal.probabilities(graph)
    best = probabilities.argmax(axis=1)
    names = personal.class_names or tuple(str(k) for k in range(personal.model.num_classes))
    nodes: Sequence[Any] = graph.node_names or range(graph.num_nodes)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "class", *(f"p_{name}" for name in names)])
    for node, choice, row in zip(nodes, best.tolist(), probabilities, strict=True):
        writer.writerow([node, names[choice], *(f"{value:.6f}" for value in row)])
    known = graph.y >= 0
    return text.getvalue(), float((best == graph.y)[known].mean()) if known.any() else None


def _start(config: Config, out: Path | None, log: str | None, data_dir: Path | None, json: bool) -> None:
    from fedgkd.experiments.directory import RunDirectory, new_folder
    from fedgkd.experiments.federations import federation_of
    from fedgkd.experiments.runner import Run
    from fedgkd.experiments.tracking import open_tracker, prepare_tracker

    prepare_tracker(log)
    if out is not None:  # at once, not after the federation has been prepared
        RunDirectory(out).check_idle()
        RunDirectory(out).check_unused()
    with console.working("preparing the federation"):
        federation = federation_of(config, data_dir)
    algorithm = config.run.algorithm.rpartition(":")[2].lower()
    name = f"{federation.dataset}-{federation.num_clients}-{federation.setting}-{algorithm}-seed{config.run.seed}"
    run = Run(config, federation, None)
    folder = new_folder(Path("runs"), name) if out is None else out
    run.directory = RunDirectory(folder)
    with run.directory.held():
        run.directory.create(config)
        with _progress(config, folder) as events, open_tracker(log, folder, config) as tracker:
            run.events = tracker.added_to(events)
            run.start()
            result = run.execute()
            tracker.on_result(result)
    _show_result(result, folder, json)


def _with_absolute_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as they are known from anywhere, since a run may be resumed elsewhere; a dataset's name stays."""
    from fedgkd.data.datasets import DATASETS

    paths = {
        name: str(Path(values[name]).resolve())
        for name in ("dataset", "graphs")
        if isinstance(values.get(name), str) and values[name] not in DATASETS and Path(values[name]).exists()
    }
    return {**values, **paths}


@contextmanager
def _progress(config: Config, folder: Path) -> Iterator[Events]:
    """A live bar on a terminal, plain lines elsewhere; both on stderr. Ctrl-C says how to go on."""
    from fedgkd.experiments.runner import Events

    def warn(sentence: str) -> None:
        console.err.print(f"warning: {sentence}", soft_wrap=True)

    try:
        if console.err.is_terminal:
            with _bar(config.run.rounds) as advance:
                yield Events(advance, warn)
        else:
            yield Events(_line(config.run.rounds), warn)
    except KeyboardInterrupt:
        console.err.print(f"\nstopped; go on with: fedgkd resume {folder}", soft_wrap=True)
        raise typer.Exit(130) from None


@contextmanager
def _bar(rounds: int) -> Iterator[Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=console.err, expand=True) as progress:
        task = progress.add_task("", total=rounds, facts="")
        yield lambda record: progress.update(task, completed=record["round"], facts=_facts(record))


def _line(rounds: int) -> Any:
    def print_line(record: dict[str, Any]) -> None:
        if record["round"] == 1 or record["round"] % PLAIN_EVERY == 0:
            console.err.print(f"round {record['round']:>{len(str(rounds))}}/{rounds}  {_facts(record)}", soft_wrap=True)

    return print_line


def _facts(record: dict[str, Any]) -> str:
    accuracy = record["selected"]["accuracy"]
    loss = console.decimal(_number(record["loss"]))
    return (
        f"loss {loss}  val {console.share(_number(accuracy['val']))}  test {console.share(_number(accuracy['test']))}"
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _show_result(result: dict[str, Any], folder: Path, json: bool) -> None:
    if json:
        console.print_json(result | {"folder": str(folder)})
        return
    title = (
        f"{result['algorithm']} on {result['dataset']}, {result['clients']} clients, "
        f"{result['setting']}, seed {result['seed']}"
    )
    table = console.new_table(title)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for name, value, remark in _result_rows(result):
        table.add_row(name, value, remark)
    console.out.print(table)
    console.out.print(f"models, metrics and relations: {folder}", soft_wrap=True)


def _show_finished(directory: RunDirectory, json: bool) -> None:
    result = directory.checked_result()
    console.err.print(f"{directory.path} is finished", soft_wrap=True)
    _show_result(result, directory.path, json)


def _result_rows(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    from fedgkd.reporting.methods import scored_models

    def percent(name: str) -> str:
        return console.share(_number(result[name]))

    clients = sorted(value for value in result["per_client"] if value is not None)
    yield "test accuracy", percent("test_accuracy"), f"mean over clients, {scored_models(result['scored_model'])}"
    yield "  over nodes", percent("test_accuracy_weighted"), "every client counts by its test nodes"
    received_round = f", round {result['best_round_received']}" if result["best_round_received"] else ""
    yield "  received models", percent("test_accuracy_received"), f"before local training{received_round}"
    yield "  last round", percent("test_accuracy_last"), f"round {result['rounds']}"
    if clients:
        yield "  worst, best client", f"{console.share(clients[0])}, {console.share(clients[-1])}", ""
    yield "macro-F1", percent("test_macro_f1"), "mean over clients"
    how = (
        "best at round {}, which was chosen by it" if result.get("chosen_by_validation", True) else "round {}, the last"
    )
    yield "validation accuracy", percent("val_accuracy"), how.format(result["best_round"])
    rounds = max(1, result["rounds"]) * result["clients"]
    traffic = f"{result['bytes_up'] / rounds / 1e6:.2f} MB, {result['bytes_down'] / rounds / 1e6:.2f} MB"
    yield "sent up, down", traffic, "per client and round"
    yield "time", f"{result['seconds']:.1f} s", ""


def _explain(config: Config, json: bool) -> None:
    from fedgkd.settings import describe_range

    values = config.values()
    rows = [
        {
            "setting": entry.name,
            "value": values[entry.name],
            "origin": config.origins.get(entry.name, "default"),
            "meaning": entry.metadata.get("meaning", ""),
            "range": describe_range(entry.metadata) if entry.metadata else "",
        }
        for entry in config.fields()
    ]
    if json:
        console.print_json(rows)
        return
    table = console.new_table(f"settings of {config.run.algorithm}")
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("origin")
    table.add_column("meaning")
    for row in rows:
        allowed = f" ({row['range']})" if row["range"] else ""
        value = "none" if row["value"] is None else str(row["value"])
        table.add_row(row["setting"], value, row["origin"], f"{row['meaning']}{allowed}")
    console.out.print(table)
