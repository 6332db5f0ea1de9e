"""The paper's two tables from nothing: every method tuned, run and collected, graph by graph, the cheap ones first.

Every step is a fedgkd command that skips what is done already, so this may be stopped at any time and started again.
Tuned settings go to configs/, where a file that exists is not tuned again, and the figures to results/.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fedgkd.data.datasets import DATASETS

GRAPHS = ("cora", "citeseer", "photo", "pubmed", "computers")
# FedSage+, which trains a generator on every client first, is by far the slowest.
METHODS = (
    *("local", "fedavg", "fedprox", "fedper", "fedpub", "gcfl", "gcfl_plus", "fedstar", "fedgkd"),
    *("centralised", "fedsage", "fedsage_plus"),
)
MIDDLE = {"non-overlapping": 10, "overlapping": 30}
"""The settings, and the number of clients that methods are tuned with."""
SEEDS = 3
TUNING_SEED = SEEDS
"""The first that no table reports."""
CONFIGS, RESULTS = Path("configs"), Path("results")

Command = list[str]
Run = Callable[[Command], bool]


@dataclass(frozen=True)
class Plan:
    """The commands for one graph and setting at a time; ``options`` are for all of tune and compare."""

    methods: Sequence[str]
    trials: int
    jobs: int
    work: Path
    options: Sequence[str] = ()

    def tune(self, graph: str, setting: str) -> list[Command]:
        """A command for every method without tuned settings; they may run side by side."""
        files = {method: CONFIGS / f"{graph}-{setting}-{method}.toml" for method in self.methods}
        place = f"--dataset {graph} --partition {setting} --clients {MIDDLE[setting]}".split()
        effort = f"--trials {self.trials} --seeds 1 --first-seed {TUNING_SEED} --set threads=1".split()
        how = [*place, *effort, "--out", str(self.work / "tuning"), *self.options]
        return [
            ["tune", "--algorithm", method, *how, "--winner", str(file)]
            for method, file in files.items()
            if not file.exists()
        ]

    def compare(self, graph: str, setting: str) -> Command:
        how = f"--seeds {SEEDS} --configs {CONFIGS} --jobs {self.jobs} --set threads=1".split()
        place = ["--dataset", graph, "--partition", setting, "--out", str(self._runs(graph, setting))]
        return ["compare", *place, "--algorithms", *self.methods, *how, *self.options]

    def collect(self, graph: str, setting: str) -> Command:
        return ["collect", str(self._runs(graph, setting)), "--out", str(RESULTS / f"{graph}.jsonl")]

    def _runs(self, graph: str, setting: str) -> Path:
        return self.work / f"{graph}-{setting}"


def carry_out(plan: Plan, graph: str, setting: str, run: Run) -> bool:
    """Whether all went well. Runs that failed do not keep the others from being collected."""
    pool = ThreadPoolExecutor(plan.jobs)
    try:
        tuned = list(pool.map(run, plan.tune(graph, setting)))
    finally:
        pool.shutdown(cancel_futures=True)
    if not all(tuned):  # untuned runs would be made with the defaults, and be in the way later
        return False
    compared = run(plan.compare(graph, setting))
    return run(plan.collect(graph, setting)) and compared


def run_command(command: Command) -> bool:
    print(written(command), flush=True)
    return subprocess.run([sys.executable, "-m", "fedgkd", *command], check=False).returncode == 0


def print_command(command: Command) -> bool:
    print(written(command))
    return True


def written(command: Command) -> str:
    return shlex.join(["fedgkd", *command])


def main(arguments: Sequence[str] | None = None, run: Run = run_command) -> int:
    given = _parser().parse_args(arguments)
    methods = [method for method in METHODS if method not in given.without]
    plan = Plan(methods, given.trials, given.jobs, given.work, given.options)
    chosen = print_command if given.dry_run else run
    places = [(graph, setting) for graph in given.graphs for setting in given.settings]
    failed = [f"{graph} {setting}" for graph, setting in places if not carry_out(plan, graph, setting, chosen)]
    if failed:
        print(f"error: not complete: {', '.join(failed)}; the same command tries again", file=sys.stderr)
    return bool(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/evidence", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--graphs",
        nargs="+",
        default=GRAPHS,
        choices=tuple(DATASETS),
        metavar="NAME",
        help=f"in their order; by default {', '.join(GRAPHS)}",
    )
    parser.add_argument("--settings", nargs="+", default=tuple(MIDDLE), choices=tuple(MIDDLE))
    parser.add_argument(
        "--without", nargs="+", default=(), choices=METHODS, metavar="METHOD", help="methods to leave for later"
    )
    parser.add_argument("--trials", type=int, default=8, help="combinations of settings to try per method")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--work", type=Path, default=Path("runs/evidence"), help="folder for runs and studies")
    parser.add_argument("--dry-run", action="store_true", help="list the commands that would be run")
    parser.add_argument("options", nargs="*", metavar="-- OPTION", help="after --: options for every tune and compare")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # the commands that were running got it, too
        sys.exit("stopped; the same command goes on from here")
