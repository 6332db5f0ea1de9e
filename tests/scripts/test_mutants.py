"""The configuration of the mutation tests is sound; the tests themselves take hours and are not part of the suite."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest
import tomli_w
from mutmut.configuration import reset_config
from mutmut.mutation.file_mutation import mutate_file_contents

from scripts import mutants

CODE = '''
def half(value):
    """Half of it."""
    if value < 0:
        raise ValueError("it is negative")
    if value > 9:
        raise ValueError(
            f"it is {value}, and so it is "
            "too large"
        )
    return value / 2
'''


def test_modules_and_their_tests_exist() -> None:
    known = mutants.modules()
    assert {"collaboration.relation", "algorithms.fedgkd", "distillation.static", "experiments.checkpoint"} <= set(
        known
    )
    assert not [module for module in known if module.endswith("__init__")]
    for module in known:
        (file,) = mutants.configuration(module)["tool"]["mutmut"]["only_mutate"]
        assert (mutants.ROOT / file).is_file()
        for path in mutants.tests_of(module):
            assert (mutants.ROOT / path).exists(), f"{module} has no tests of its own: {path}"


def test_the_wording_of_errors_is_not_mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(tomli_w.dumps(mutants.configuration("data.splits")))
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    reset_config()
    try:
        mutated = mutate_file_contents("half.py", CODE)
    finally:
        reset_config()
    lines = [line.partition("#")[0].strip() for line in mutated.code.splitlines()]
    assert {"if value <= 0:", "if value < 1:", "if value >= 9:", "return value * 2"} <= set(lines)
    assert len(mutated.mutant_names) == 6  # twice each comparison, and the division
    # As often as the function is there: as it was, as each mutant, and as the one that is called.
    times = len(mutated.mutant_names) + 2
    for wording in ('"too large"', 'raise ValueError("it is negative")', '"""Half of it."""'):
        assert lines.count(wording) == times, wording


def test_reasons_are_of_functions_that_are_there() -> None:
    for function, reasons in tomllib.loads(mutants.REASONS.read_text(encoding="utf-8")).items():
        assert all(why.strip() for why in reasons.values())
        if function == mutants.ANYWHERE:
            continue
        package, name, *path = function.split(".")
        assert f"{package}.{name}" in mutants.modules(), function
        body = ast.parse((mutants.ROOT / "src" / "fedgkd" / package / f"{name}.py").read_text(encoding="utf-8")).body
        for part in path:
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{function} is not there any more; remove its reasons from {mutants.REASONS.name}"
            body = found[0].body  # type: ignore[attr-defined]


def test_the_table_counts_by_module_and_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "WORK", tmp_path)
    codes = {"data.splits": [1, 1, 3, 0, None], "data.partition": [1, -24, 33]}
    for module, some in codes.items():
        file = mutants._results_file(module)
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"exit_code_by_key": {f"m{k}": code for k, code in enumerate(some)}}))
    assert mutants.table(["data.splits", "data.partition", "experiments.scores"]).splitlines()[2:] == [
        "| data.splits | 4 | 3 | 0 | 1 | 75.0 |",
        "| data.partition | 3 | 2 | 1 | 1 | 66.7 |",
        "| **all** | 7 | 5 | 1 | 2 | 71.4 |",
    ]
    assert [mutants.is_whole(module) for module in (*codes, "experiments.scores")] == [False, True, False]
