"""How fast a local epoch and a whole round are, as ratios measured in one process.

Run it with ``scripts/benchmark``; docs/speed.md says what is compared and how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for those who call this file, not the module

import torch

from benchmarks import growth, machine, openfgl_rounds, start
from benchmarks.agreement import TOLERATED, disagreement
from benchmarks.child import size
from benchmarks.epochs import contestants, time_epochs
from benchmarks.ours import Ours, configure
from benchmarks.plain import PlainFederation
from benchmarks.plain_rounds import PlainRounds
from benchmarks.rounds import Tally, step, stretch
from benchmarks.tables import tables
from benchmarks.targets import judge
from benchmarks.timing import Timed, race, seconds
from benchmarks.workloads import WORKLOADS, Workload, find_workloads
from fedgkd.atomic import atomic_write_text
from fedgkd.data.federation import Federation
from fedgkd.errors import FedGKDError
from fedgkd.experiments.config import Config, parse_assignments

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = ("fedavg", "fedgkd")
PARTS = ("workloads", "growth", "clients", "memory", "start")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    try:
        report(options)
    except FedGKDError as error:
        raise SystemExit(f"error: {error}") from None


def report(options: argparse.Namespace) -> None:
    """Measure, or read what was measured, and print it."""
    if options.show is None:
        torch.set_num_threads(options.threads)
        results = measure(options)
        atomic_write_text(options.out, json.dumps(results, indent=1, allow_nan=False) + "\n", FedGKDError)
        say(f"figures: {options.out}")
    else:
        results = json.loads(options.show.read_text(encoding="utf-8"))
    for table in tables(results):
        if options.markdown:
            print(table.markdown())
        else:
            table.print()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/benchmark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=f"of {', '.join(WORKLOADS)}; again")
    parser.add_argument("--part", action="append", choices=PARTS, help="what to measure; all, or workloads with --only")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved turns, of which the best counts")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of PyTorch")
    parser.add_argument("--rounds", type=int, default=100, help="rounds on end that show the shares of a round")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds after which such rounds are enough")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of ours and plain")
    parser.add_argument("--cached", action="store_true", help="also a plain loop that normalises each graph only once")
    parser.add_argument("--openfgl", action="store_true", help="also OpenFGL, installed in an environment of its own")
    parser.add_argument(
        "--openfgl-venv", type=Path, default=ROOT / ".venv-openfgl", metavar="DIR", help="where that is"
    )
    parser.add_argument("--data-dir", type=Path, help="folder with the published files of the datasets")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "latest.json", help="JSON file")
    parser.add_argument("--show", type=Path, metavar="JSON", help="show stored figures instead of measuring")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of all parts that were asked for."""
    works = find_workloads(options.only)
    parts = options.part or (["workloads"] if options.only else PARTS)
    results: dict[str, Any] = {"machine": machine.facts(), "command": sys.argv[1:]}
    if "workloads" in parts:
        results["openfgl"], python = prepare_openfgl(options)
        results["workloads"] = {work.name: measure_workload(work, options, python) for work in works}
    if "growth" in parts:
        say("growth with the graph")
        results["growth"] = growth.with_the_graph(options.threads, options.repeats)
    if "clients" in parts:
        say("growth with the clients")
        results["clients"] = growth.with_the_clients(options.threads, rounds=3)
    if "memory" in parts:
        say("memory")
        results["memory"] = growth.memory(works, options.threads, options.data_dir)
    if "start" in parts:
        say("start")
        results["start"] = start.time_start(options.data_dir, options.repeats)
    results["targets"] = [verdict.record() for verdict in judge(results)]
    results["machine"]["load_after"] = os.getloadavg()[0]
    return results


def prepare_openfgl(options: argparse.Namespace) -> tuple[str, Path | None]:
    """How OpenFGL takes part, and the interpreter that has it."""
    if not options.openfgl:
        return "not asked for", None
    say("installing OpenFGL")
    try:
        return "takes part", openfgl_rounds.install(options.openfgl_venv)
    except openfgl_rounds.NotAvailable as reason:
        return f"left out: {reason}", None


def measure_workload(work: Workload, options: argparse.Namespace, openfgl: Path | None) -> dict[str, Any]:
    """Epochs and rounds of both algorithms over one federation."""
    federation = work.federation(options.data_dir)
    settings = parse_assignments(options.set)
    configs = {name: configure(name, options.threads, settings) for name in ALGORITHMS}
    figures: dict[str, dict[str, Any]] = {}
    for name, config in configs.items():
        say(f"{work.name}: epochs of {name}")
        check_agreement(federation, name, options)
        trainings = contestants(Ours(config, federation), federation, options.cached)
        figures[name] = {"epoch": time_epochs(trainings, config.method.local_epochs, work.more_epochs, options.repeats)}
    with tempfile.TemporaryDirectory() as folder:
        ours = {name: Ours(config, federation, Path(folder, name)) for name, config in configs.items()}
        say(f"{work.name}: rounds")
        tallies = {name: Tally() for name in ours}
        times, problem = time_rounds(ours, tallies, federation, options, openfgl)
        for name in ALGORITHMS:
            figures[name]["round"] = {who.split("/")[0]: t for who, t in times.items() if who.endswith(f"/{name}")}
            stretch(ours[name], tallies[name], options.rounds, options.budget)
            figures[name]["stretch"] = tallies[name].record()
    facts = {"clients": federation.num_clients, **size(federation), "features": federation.num_features}
    return facts | {"openfgl": problem, "algorithms": figures}


def check_agreement(federation: Federation, algorithm: str, options: argparse.Namespace) -> None:
    """Stop if ours and the plain loop do not compute the same."""
    settings = parse_assignments(options.set)
    share = disagreement(federation, algorithm, options.threads, settings)
    if share > TOLERATED:
        raise SystemExit(f"error: ours and the plain loop of {algorithm} differ in {share:.1%} of the weights")


def time_rounds(
    ours: dict[str, Ours],
    tallies: dict[str, Tally],
    federation: Federation,
    options: argparse.Namespace,
    openfgl: Path | None,
) -> tuple[dict[str, float], str]:
    """Seconds of a round by ``who/algorithm``, and what kept OpenFGL away, if anything did."""
    jobs: dict[str, Timed] = {}
    for name, run in ours.items():
        jobs[f"ours/{name}"] = partial(step, run, tallies[name])
        jobs[f"plain/{name}"] = partial(seconds, plain_rounds(run, federation, name).step)
    if openfgl is None:
        return race(jobs, options.repeats), ""
    config = ours["fedavg"].config
    with ExitStack() as stack:
        sizes = (options.threads, config.method.local_epochs, config.run.hidden)
        try:
            theirs = stack.enter_context(openfgl_rounds.rounds(openfgl, federation, *sizes))
            return race(jobs | {"openfgl/fedavg": theirs}, options.repeats), ""
        except openfgl_rounds.NotAvailable as reason:
            return race(jobs, options.repeats), str(reason)


def plain_rounds(ours: Ours, federation: Federation, algorithm: str) -> PlainRounds:
    config: Config = ours.config
    plain = PlainFederation(federation, config.method, ours.received, config.run.hidden, cached=False)
    network = config.network(federation.num_features, federation.num_classes)
    return PlainRounds(plain, algorithm, config.method, network, config.run.seed)


def say(what: str) -> None:
    """Progress, on standard error."""
    print(f"benchmark: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
