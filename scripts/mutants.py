"""Mutation tests with mutmut: which small changes of the code does no test notice?

Every module has a working folder of its own, ``build/mutants/MODULE``, and is tested by the tests that mirror it. For a
mutant mutmut runs only those that call the mutated function, forked from a process that has imported them already.
What is known stays there: the next call tries what is left, and once more what survived, since tests may be new.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
PAGE = ROOT / "docs" / "mutation-testing.md"
REASONS = ROOT / "tests" / "mutants.toml"
"""By function, and by a part of the changed line: why no test can tell, or need tell."""
BEGIN, END = "<!-- made by scripts/mutants --page: begin -->", "<!-- end -->"

PACKAGES = {
    "algorithms": (),
    "collaboration": ("clusters", "kernels", "mixing", "quality", "relation"),
    "data": ("partition", "splits"),
    "distillation": (),
    "experiments": ("checkpoint", "scores", "selection", "serving"),
}
"""What is mutated: these modules of a package, or all."""

BY_FILE = ("data", "experiments")
"""Packages so large that a module is tested by its own file of tests, not by the package's whole folder."""

WORDING = [
    r"^\s*raise ",
    r"""^\s*f?["'][^"']*["']$""",
]
"""Lines that are not mutated: errors that are raised, and a line that holds nothing but text, their second half."""

ANYWHERE = "*"
"""In the place of a function: reasons that hold wherever the change is."""

KILLED, TIMED_OUT, SURVIVED = "killed", "timeout", "survived"
_STATUS = {1: KILLED, 3: KILLED, 0: SURVIVED, 5: SURVIVED, 33: SURVIVED, 36: TIMED_OUT, 24: TIMED_OUT, -24: TIMED_OUT}


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed."""

    function: str
    before: str
    after: str
    why: str


def modules() -> list[str]:
    """Of all packages, as ``package.module``."""
    found = []
    for package, names in PACKAGES.items():
        files = sorted((ROOT / "src" / "fedgkd" / package).glob("*.py"))
        found += [f"{package}.{file.stem}" for file in files if file.stem in names or not names]
    return [module for module in found if not module.endswith("__init__")]


def tests_of(module: str) -> list[str]:
    """Files and folders with the module's tests."""
    package, _, name = module.partition(".")
    folder = f"tests/{package}"
    if package == "algorithms":
        own = f"{folder}/test_{name.removesuffix('_plus')}.py"
        return [f"{folder}/test_contract.py", *([own] if (ROOT / own).exists() else [])]
    return [f"{folder}/test_{name}.py" if package in BY_FILE else folder]


def options_of(module: str) -> list[str]:
    """Of the contracts that all algorithms keep, those of this one; and never a minute of killed processes."""
    package, _, name = module.partition(".")
    if package != "algorithms":
        return []
    return ["-k", f"not test_killed_at_random and (not test_contract or {'fedper' if name == 'base' else name})"]


def configuration(module: str) -> dict[str, Any]:
    """A ``pyproject.toml`` for the module's folder: the project's own for pytest, and mutmut's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    mutmut = {
        "source_paths": ["src"],
        "only_mutate": [f"src/fedgkd/{module.replace('.', '/')}.py"],
        "do_not_mutate_patterns": WORDING,
        "pytest_add_cli_args_test_selection": [*tests_of(module), *options_of(module)],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", Path(__file__).stem],
        # PyTorch does not survive a fork of a process that has computed: the tests are imported there, and not run.
        "process_isolation": "forkserver",
        "timeout_multiplier": 5.0,
        "timeout_constant": 5.0,
        "track_dependencies": False,
    }
    return {"tool": {"pytest": project["tool"]["pytest"], "mutmut": mutmut}}


def prepare(module: str) -> Path:
    """The module's folder, where what survived before, or was broken off, waits to be tried."""
    folder = WORK / module
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(configuration(module)), encoding="utf-8")
    for name in ("src", "tests"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    file = _results_file(module)
    if file.exists():
        stored = json.loads(file.read_text(encoding="utf-8"))
        for name, code in stored["exit_code_by_key"].items():
            stored["exit_code_by_key"][name] = code if _STATUS.get(code) == KILLED else None
        file.write_text(json.dumps(stored), encoding="utf-8")
    return folder


def try_module(module: str) -> None:
    folder = prepare(module)
    program = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", "run", "--max-children", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run(program, cwd=folder, env=environment, check=True)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """As a plugin of the tests that mutmut runs: the fast ones first, since the first that fails ends them."""
    stats = Path("mutmut-stats.json")
    took = json.loads(stats.read_text(encoding="utf-8"))["duration_by_test"] if stats.exists() else {}
    items.sort(key=lambda item: took.get(item.nodeid, 0.0))


def results(module: str) -> dict[str, str]:
    """What became of every mutant that was tried."""
    codes = _exit_codes(module)
    return {name: _STATUS.get(code, f"exit code {code}") for name, code in codes.items() if code is not None}


def is_whole(module: str) -> bool:
    """Whether all mutants were tried."""
    codes = _exit_codes(module)
    return bool(codes) and None not in codes.values()


def _exit_codes(module: str) -> dict[str, int | None]:
    file = _results_file(module)
    return json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"] if file.exists() else {}


def _results_file(module: str) -> Path:
    return WORK / module / "mutants" / "src" / "fedgkd" / f"{module.replace('.', '/')}.py.meta"


def survivors(module: str) -> Iterator[Survivor]:
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    path = Path("src", "fedgkd", f"{module.replace('.', '/')}.py")
    with contextlib.chdir(WORK / module):
        for name, status in results(module).items():
            if status not in (KILLED, TIMED_OUT):
                lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
                before, after = (
                    " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in ("-", "+")
                )
                function = _function(module, name)
                known = reasons.get(function, {}) | reasons[ANYWHERE]
                why = next((why for part, why in known.items() if part in after), "")
                yield Survivor(function, before, after, why)


def _function(module: str, mutant: str) -> str:
    """``x_name__mutmut_3`` or ``xǁClassǁname__mutmut_3``, as it is written."""
    mangled = mutant.removeprefix(f"fedgkd.{module}.").partition("__mutmut_")[0]
    return f"{module}.{mangled.removeprefix('x_').removeprefix('xǁ').replace('ǁ', '.')}"


# --- what is said of it ----------------------------------------------------------------------------------------------


def table(tried: Sequence[str]) -> str:
    """How many mutants of each module were killed."""
    counts = {module: Counter(results(module).values()) for module in tried}
    rows = [(module, count) for module, count in counts.items() if count]
    rows.append(("**all**", sum(counts.values(), Counter())))
    lines = [
        "| module | mutants | killed | of them by time | survived | killed (%) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for module, count in rows:
        total, killed = count.total(), count[KILLED] + count[TIMED_OUT]
        share = f"{100 * killed / total:.1f}" if total else "–"
        lines.append(f"| {module} | {total} | {killed} | {count[TIMED_OUT]} | {total - killed} | {share} |")
    return "\n".join(lines)


def page(tried: Sequence[str]) -> str:
    """The table, what is not known yet, and every survivor with the reason why it may live."""
    whole, rest = [m for m in tried if is_whole(m)], [m for m in tried if not is_whole(m)]
    parts = [table(whole)]
    if rest:
        parts.append(f"Not run yet, or not to the end: {', '.join(rest)}.")
    for module in whole:
        found = list(survivors(module))
        if found:
            parts.append(f"### {module}")
            parts.append("\n".join(_listed(survivor) for survivor in found))
    return "\n\n".join(parts)


def _listed(survivor: Survivor) -> str:
    name = survivor.function.split(".", 2)[-1]
    return f"- `{name}`: `{survivor.after}`: {survivor.why or 'none; a test is missing, or is newer than this figure'}."


def write_page(tried: Sequence[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{page(tried)}\n\n{END}{tail}", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as collaboration.kernels; all by default")
    parser.add_argument("--show", action="store_true", help="only say what is known of them")
    parser.add_argument("--page", action="store_true", help=f"write what is known of all into {PAGE.relative_to(ROOT)}")
    chosen = parser.parse_args(arguments)
    known = modules()
    for module in chosen.modules:
        if module not in known:
            parser.error(f"there is no module '{module}'; choose from {', '.join(known)}")
    if chosen.page:
        write_page(known)
        return
    for module in chosen.modules or known:
        if not chosen.show:
            try_module(module)
        for survivor in survivors(module):
            why = survivor.why or "no reason is known"
            print(f"{survivor.function}\n  - {survivor.before}\n  + {survivor.after}\n  {why}")
    print(table(chosen.modules or known))


if __name__ == "__main__":
    main(sys.argv[1:])
