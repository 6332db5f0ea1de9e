"""A short run of the fuzzer over every target (``scripts/fuzz --inputs 10000`` is the long one), and its own tests."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from fedgkd.errors import DataError
from tests.fuzz.core import GOOD, Case, Target, build, run
from tests.fuzz.targets import TARGETS

INPUTS = 25


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_few_inputs_of_every_kind(name: str) -> None:
    cases = [Case(name, number) for number in range(INPUTS)]
    outcomes = list(run(list(TARGETS.values()), cases, seed=1))
    assert len(outcomes) == INPUTS
    findings = [
        f"scripts/fuzz --target {name} --seed 1 --only {outcome.case.number}  {outcome.verdict}: {outcome.detail}"
        for outcome in outcomes
        if outcome.verdict not in GOOD
    ]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_inputs_follow_from_their_number(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for number in (0, 3):
        made = []
        for folder in (tmp_path / f"{number}a", tmp_path / f"{number}b"):
            folder.mkdir()
            made.append(build(target, 5, number, folder)[2])
        assert made[0] == made[1]


def nothing(draw: random.Random, content: Any) -> None:
    pass


class Faulty(Target):
    """What the fuzzer is for, one fault for every number."""

    name = "faulty"
    mutators = (nothing,)
    damage = False

    def make(self, draw: random.Random) -> Any:
        return {}

    def write(self, content: Any, folder: Path) -> Path:
        path = folder / "file"
        path.write_text("")
        return path

    def use(self, given: Path) -> str:
        fault = self.faults.pop(0)
        if fault == "traceback":
            raise KeyError("x")
        if fault == "memory":
            bytearray(3 * 2**30)
        if fault == "caught memory":
            try:
                bytearray(3 * 2**30)
            except MemoryError as error:
                raise DataError(f"{given}: unreadable") from error
        if fault == "dies":
            import os

            os.abort()
        if fault == "time":
            while True:
                time.process_time()
        if fault == "nameless":
            raise DataError("something is wrong")
        if fault == "endless":
            error = DataError()
            error.args = (f"{given}: {'many words ' * 100}",)  # past what every error does with its message
            raise error
        if fault == "refused":
            raise DataError(f"{given}: not good")
        return fault

    def wrong(self, given: Path, content: Any, result: str) -> str | None:
        return "silently wrong" if result == "wrong" else None

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("none", "ok"),
        ("refused", "refused"),
        ("traceback", "TRACEBACK"),
        ("dies", "TRACEBACK"),
        ("wrong", "SILENT"),
        ("nameless", "UNCLEAR"),
        ("endless", "UNCLEAR"),
        ("memory", "HEAVY"),
        ("caught memory", "HEAVY"),
        ("time", "HEAVY"),
    ],
)
def test_every_fault_is_seen_and_the_next_input_goes_on(fault: str, verdict: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.fuzz.core.SECONDS", 1)
    outcomes = list(run([Faulty(fault, "none")], [Case("faulty", 1), Case("faulty", 2)], seed=0))
    assert outcomes[0].verdict == verdict
    assert len(outcomes) == 2


def test_a_valid_input_that_is_refused_is_a_finding() -> None:
    assert [outcome.verdict for outcome in run([Faulty("refused")], [Case("faulty", 0)], seed=0)] == ["VALID"]
