"""``scripts/fuzz``: mutated inputs for every target, a table, and a command for every finding."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict

from tests.fuzz.core import GOOD, Case, Outcome, run
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="how many, over all targets (default: 1000)")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="other inputs (default: 0)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="only the input with that number")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    arguments = parser.parse_args()
    names = arguments.target or list(TARGETS)
    each = -(-arguments.inputs // len(names))
    numbers = range(each) if arguments.only is None else [arguments.only]
    cases = [Case(name, number) for name in names for number in numbers]
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    findings = 0
    for outcome in run(list(TARGETS.values()), cases, arguments.seed, arguments.jobs):
        found[outcome.case.target][outcome.verdict] += 1
        if outcome.verdict not in GOOD or arguments.only is not None:
            _print_outcome(outcome, arguments.seed)
        findings += outcome.verdict not in GOOD
    _print_table(found)
    return 1 if findings else 0


def _print_outcome(outcome: Outcome, seed: int) -> None:
    target, number = outcome.case
    print(f"{outcome.verdict}  scripts/fuzz --target {target} --seed {seed} --only {number}")
    print(f"    {', '.join(outcome.changes)}\n    {ascii(outcome.detail)[1:-1][:400]}", flush=True)


def _print_table(found: dict[str, Counter[str]]) -> None:
    verdicts = [*GOOD, *sorted({verdict for counts in found.values() for verdict in counts} - set(GOOD))]
    width = max(map(len, [*found, "target"]))
    print("\n" + "  ".join(["target".ljust(width), *(f"{verdict:>9}" for verdict in verdicts)]))
    for name, counts in sorted(found.items()):
        print("  ".join([name.ljust(width), *(f"{counts[verdict] or '–':>9}" for verdict in verdicts)]))


if __name__ == "__main__":
    sys.exit(main())
