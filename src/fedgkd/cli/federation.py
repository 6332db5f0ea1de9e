"""``fedgkd federation``: organisations that train together without showing their graphs to each other."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from fedgkd.cli import console
from fedgkd.cli.console import NOTHING
from fedgkd.cli.options import Command, Json, Label
from fedgkd.errors import FederationError, FedGKDError, SettingError, quoted

if TYPE_CHECKING:
    from fedgkd.federation.admin import Admin
    from fedgkd.federation.kit import Kit
    from fedgkd.federation.plan import Plan

LEFT_OUT = 3
"""Exit code of a training that is over and was not everybody's."""

app = typer.Typer(
    name="federation", help="Train together with other organisations, over mutual TLS.", no_args_is_help=True
)

KitFolder = Annotated[Path, typer.Option("--kit", metavar="DIR", help="This party's kit.")]
OwnGraph = Annotated[
    Path, typer.Option(metavar="FILE", help="This site's graph: an .npz file or a folder with nodes.csv and edges.csv.")
]
AllowAlgorithm = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:CLASS", help="Let the federation file name this class of an installed module, and run its code."
    ),
]


@app.command(cls=Command)
def init(
    name: Annotated[str, typer.Option(help="What the federation is called.")],
    sites: Annotated[list[str], typer.Option(metavar="NAME...", help="The sites that may take part.")],
    host: Annotated[str, typer.Option(help="Where the sites find the coordinator: host name or address.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the kits.")],
    port: Annotated[int, typer.Option(help="The one port that the coordinator listens on.")] = 8002,
    features: Annotated[int, typer.Option(help="Feature columns of every graph.")] = 0,
    classes: Annotated[
        list[str] | None, typer.Option(metavar="N | NAME...", help="Number of classes, or their names in order.")
    ] = None,
    like: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take features and classes from this graph.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="fedgkd (the default), fedavg, fedper, fedpub …")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds at most; 100 by default.")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds that a round waits for the sites.")] = 600.0,
    min_sites: Annotated[int, typer.Option(help="A round with fewer usable answers is repeated.")] = 1,
    segment: Annotated[int, typer.Option(help="Rounds of one job of NVIDIA FLARE.")] = 1000,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE...", help="Any setting; see 'fedgkd run --explain'."),
    ] = None,
    label: Label = "label",
    allow_algorithm: AllowAlgorithm = None,
) -> None:
    """Make certificates and a kit for every party, with a readable federation file in each."""
    from fedgkd.experiments.config import parse_assignments
    from fedgkd.federation.imports import installed_modules_only
    from fedgkd.federation.kit import AUTHORITY, make_kits
    from fedgkd.federation.plan import Plan, Rules

    if like is not None:
        features, classes = _sizes(like, label)
    given = {"algorithm": algorithm or "fedgkd", "rounds": rounds}
    settings = {key: value for key, value in given.items() if value is not None} | parse_assignments(set_ or [])
    rules = Rules(name, host, port, features, deadline, min_sites, segment)
    with installed_modules_only(out):
        asked = Plan(rules, tuple(sites), _classes(classes or []), settings, allowed=allow_algorithm)
        plan = _with_typed_settings(asked)
        if features and plan.num_classes:
            plan.algorithm()
        kits = make_kits(plan, out)
    console.out.print(f"kits of the federation {quoted(name)}:", soft_wrap=True)
    for kit in kits:
        console.out.print(f"  {kit}", soft_wrap=True)
    console.out.print(f"hand each to its party over a safe way; keep {out / AUTHORITY} offline", soft_wrap=True)
    if not (features and plan.num_classes):
        console.out.print("write the numbers of features and classes into the federation.toml of every kit first")


@app.command(cls=Command)
def renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that 'fedgkd federation init' made.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the kits.")],
) -> None:
    """Make kits with new certificates, signed by the same authority as the old ones."""
    from fedgkd.federation.kit import renew_kits

    for kit in renew_kits(folder, out):
        console.out.print(str(kit), soft_wrap=True)


@app.command(cls=Command)
def check(kit: KitFolder, graph: OwnGraph, label: Label = "label", allow_algorithm: AllowAlgorithm = None) -> None:
    """See at a site, before anything starts, whether data, certificate, clock and connection are fine."""
    from fedgkd.federation.imports import installed_modules_only

    with installed_modules_only(kit):
        _check(kit, graph, label, allow_algorithm)


def _check(kit: Path, graph: Path, label: str, allowed: str | None) -> None:
    from fedgkd.federation.kit import Kit
    from fedgkd.federation.network import check_coordinator

    found = Kit.open(kit, "site", allowed=allowed)
    rules = found.plan.rules

    def certificate() -> str:
        end = found.check_certificate()
        if found.name not in found.plan.sites:
            raise FederationError(f"{quoted(found.name)} is not on the list of sites in federation.toml")
        return f"certificate: {found.name}, valid until {end:%Y-%m-%d}; the clock is within its time"

    def plan() -> str:
        found.plan.algorithm()
        run = found.plan.config.run
        return f"federation: {run.algorithm}, at most {run.rounds} rounds; this machine has room for the model"

    def data() -> str:
        own = found.plan.open_graph(graph, label)
        found.plan.check_graph(own)
        return f"graph: {own.num_nodes:,} nodes, {own.num_features:,} features, {own.num_classes} classes, as agreed"

    def coordinator() -> str:
        check_coordinator(found)
        return f"coordinator: {rules.host}:{rules.port} answers, and both sides accept each other's certificate"

    problems: set[str] = set()
    for test in (certificate, plan, data, coordinator):
        try:
            console.out.print(test(), soft_wrap=True)
        except FedGKDError as error:
            problem = str(error)
            if problem not in problems:  # a plan that cannot be also has no data that fit
                console.print_error(problem)
            problems.add(problem)
    if problems:
        raise typer.Exit(2)


@app.command(cls=Command)
def serve(kit: KitFolder, allow_algorithm: AllowAlgorithm = None) -> None:
    """Be the coordinator, until Ctrl-C."""
    from fedgkd.federation.imports import installed_modules_only
    from fedgkd.federation.kit import COORDINATOR, Kit
    from fedgkd.federation.processes import serve as run_coordinator

    with installed_modules_only(kit):
        found = Kit.open(kit, COORDINATOR, allowed=allow_algorithm)
        rules = found.plan.rules
        console.out.print(
            f"coordinator of {quoted(rules.name)} on port {rules.port}; all details: {found.path / 'log.txt'}"
        )
        run_coordinator(found)


@app.command(cls=Command)
def admit(
    site: Annotated[str, typer.Argument(metavar="SITE", help="The site to admit again.")], kit: KitFolder
) -> None:
    """Admit a site again whose kit was in use twice, at the coordinator, once one of the two has ended."""
    from fedgkd.federation.kit import COORDINATOR, Kit
    from fedgkd.federation.names import SUSPENDED
    from fedgkd.federation.suspended import read_suspended, write_suspended

    file = Kit.open(kit, COORDINATOR).path / SUSPENDED
    suspended = read_suspended(file)
    if site not in suspended:
        raise FederationError(f"{quoted(site)} is not kept out; {', '.join(suspended) or 'no site'} is")
    write_suspended(file, {name: alarm for name, alarm in suspended.items() if name != site})
    console.out.print(f"{site} is admitted again; start 'fedgkd federation join' there if it has ended")


@app.command(cls=Command)
def join(
    kit: KitFolder,
    graph: OwnGraph,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for model, metrics and state; by default 'run' in the kit."),
    ] = None,
    label: Label = "label",
    device: Annotated[str, typer.Option(help="cpu (the default), cuda or cuda:N.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads; all cores by default.")] = 0,
    keep_metrics: Annotated[
        bool, typer.Option("--keep-metrics", help="Do not tell the coordinator loss, accuracy and macro-F1.")
    ] = False,
    allow_algorithm: AllowAlgorithm = None,
) -> None:
    """Be a site, until Ctrl-C: train on the own graph whenever the coordinator asks."""
    from fedgkd.federation.imports import installed_modules_only
    from fedgkd.federation.kit import Kit
    from fedgkd.federation.names import RUN
    from fedgkd.federation.processes import Training
    from fedgkd.federation.processes import join as run_site

    with installed_modules_only(kit):
        found = Kit.open(kit, "site", allowed=allow_algorithm)
        folder = out or found.path / RUN
        told = f"site {found.name} of {quoted(found.plan.rules.name)}; model and metrics: {folder}"
        console.out.print(told, soft_wrap=True)
        run_site(found, Training(graph, folder, label, device, threads, not keep_metrics))


@app.command(cls=Command)
def start(
    kit: KitFolder,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Begin without a site that is missing for so long.")
    ] = 600.0,
    json: Json = False,
) -> None:
    """Start the training, or go on with it, and watch it to the end (Ctrl-C leaves it to the segment that runs).

    It begins when every site that is listed and not blocked is here. After --wait seconds it begins without those that
    are missing, if there are min_sites; who comes later takes part from the next round on.

    Ends with code 3 if a site was left out: it trained in no round, and has no model.
    """
    from fedgkd.federation.admin import Driver

    if not math.isfinite(wait):
        raise SettingError("--wait takes a number of seconds")
    with _admin(kit) as admin, _table(admin.kit) as show:
        admin.kit.plan.check_settings()
        status = Driver(admin, lambda sentence: console.err.print(sentence, soft_wrap=True), wait, show).run()
    if json:
        console.print_json(status)
    else:
        console.out.print(f"finished after {status['round']} rounds")
    left_out = {row["site"]: row["left_out"] for row in status["sites"] if row["left_out"]}
    for site, reason in left_out.items():
        console.err.print(f"{site} was left out and has no model: {reason}", soft_wrap=True)
    if left_out:
        raise typer.Exit(LEFT_OUT)


@app.command(cls=Command)
def status(
    kit: KitFolder,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and show it anew every second.")] = False,
    json: Json = False,
) -> None:
    """Show where the training is: site, accuracy if shared, last seen, bytes."""
    with _admin(kit) as admin:
        if watch:
            with _table(admin.kit) as show:
                while True:
                    show(admin.status(), admin.connected())
                    time.sleep(1.0)
        known, connected = admin.status(), admin.connected()
    if json:
        console.print_json({"status": known, "connected": sorted(connected)})
    else:
        console.out.print(status_table(known, connected, admin.kit.plan.sites))


@app.command(cls=Command)
def stop(kit: KitFolder) -> None:
    """Stop the training; 'start' goes on with it from the last whole round."""
    with _admin(kit) as admin:
        stopped = admin.stop()
    console.out.print("stopped" if stopped else "nothing is running")


def status_table(status: Mapping[str, Any] | None, connected: Mapping[str, float], sites: Sequence[str]) -> Table:
    """The federation on one screen."""
    if status is None:
        table = console.new_table("not started yet")
    else:
        state = "finished" if status["finished"] else "training"
        table = console.new_table(
            f"{status['name']}: {status['algorithm']}, round {status['round']} of {status['rounds']}, {state}",
            caption=status.get("problem") or status.get("waiting"),
        )
    table.add_column("site", style="bold")
    for heading in ("round", "val accuracy", "last seen", "sent", "received"):
        table.add_column(heading, justify="right")
    table.add_column("")
    rows = {row["site"]: row for row in (status or {}).get("sites", [])}
    for site in sites:
        table.add_row(site, *_cells(rows.get(site, {}), connected.get(site)))
    return table


def _cells(row: Mapping[str, Any], heard: float | None) -> Iterator[str]:
    accuracy = row.get("accuracy")
    seen = max(filter(None, (row.get("seen"), heard)), default=None)
    yield str(row.get("round") or NOTHING)
    yield NOTHING if accuracy is None else console.share(accuracy)
    yield NOTHING if seen is None else f"{max(0.0, time.time() - seen):.0f} s ago"
    for way in ("bytes_up", "bytes_down"):
        yield f"{row.get(way, 0) / 1e6:.2f} MB"
    whereabouts = row.get("whereabouts", "")
    if whereabouts != "blocked" and not heard:
        whereabouts = "not connected"
    reason = row.get("left_out") or row.get("remark")
    yield "; ".join(filter(None, ("" if whereabouts == "here" else whereabouts, reason)))


@contextmanager
def _admin(kit: Path) -> Iterator[Admin]:
    from fedgkd.federation.admin import Admin
    from fedgkd.federation.kit import ADMIN, Kit

    admin = Admin(Kit.open(kit, ADMIN))
    try:
        yield admin
    finally:
        admin.close()


@contextmanager
def _table(kit: Kit) -> Iterator[Any]:
    """A table that stays up to date on a terminal; elsewhere a line for every new round."""
    if console.err.is_terminal:
        with Live(console=console.err, auto_refresh=False) as live:
            yield lambda status, connected: live.update(status_table(status, connected, kit.plan.sites), refresh=True)
        return
    last, waiting = -1, None

    def print_line(status: Mapping[str, Any] | None, connected: Mapping[str, float]) -> None:
        nonlocal last, waiting
        if status is None:
            return
        if status["round"] != last:
            last = status["round"]
            console.err.print(f"round {last} of {status['rounds']}; connected: {', '.join(sorted(connected))}")
        if status.get("waiting") != waiting:
            waiting = status.get("waiting")
            if waiting:
                console.err.print(waiting, soft_wrap=True)

    yield print_line


def _sizes(path: Path, label: str) -> tuple[int, list[str]]:
    from fedgkd.data.own import read_graph

    graph = read_graph(path, label=label)
    return graph.num_features, list(graph.class_names or [str(graph.num_classes)])


def _classes(given: Sequence[str]) -> int | tuple[str, ...]:
    if not given:
        return 0
    if len(given) == 1:
        if not given[0].isdecimal():
            raise SettingError(f"--classes takes their number or at least two names, not {quoted(given[0])}")
        return int(given[0])
    return tuple(given)


def _with_typed_settings(plan: Plan) -> Plan:
    """The settings as numbers and words, where the command line gave texts."""
    from dataclasses import replace

    values = plan.config.values()
    return replace(plan, settings={name: values[name] for name in plan.settings})
