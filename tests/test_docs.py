"""The documentation is whole: pages build, links lead somewhere, and the tutorial does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
_FETCHED = re.compile(r'<(?:script|img|iframe|link)[^>]* (?:src|href)="(https?:[^"]*)')


def python(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=_environment(), capture_output=True, text=True, check=False)


def _environment() -> dict[str, str]:
    """With the commands of this environment first, as after activating it."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_the_site_builds_strictly_and_needs_nothing_from_outside(tmp_path: Path) -> None:
    done = python("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))  # all of them, and 404.html
    for page in pages:
        fetched = _FETCHED.findall(page.read_text(encoding="utf-8"))
        assert not fetched, f"{page.name} fetches {fetched}"


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for page in DOCS.rglob("*.md"):
        copy = tmp_path / "docs" / page.relative_to(DOCS)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_bytes((ROOT / "mkdocs.yml").read_bytes())
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nowhere.md)\n", encoding="utf-8")
    done = python("-m", "mkdocs", "build", "--strict", cwd=tmp_path)
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_outside_the_site_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8"))
    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert not missing


def test_every_method_has_a_row_in_the_readme() -> None:
    from fedgkd.algorithms import METHODS

    rows = re.findall(r"^\| `(\w+)` \|.*\]\(docs/algorithms/\w+\.md\) \|$", (ROOT / "README.md").read_text(), re.M)
    assert sorted(rows) == sorted(METHODS)


def test_commands_in_the_experiments_page_are_known(tmp_path: Path) -> None:
    """Every option that the page uses is one that the command has."""
    text = (DOCS / "experiments.md").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^fedgkd .*$", text, re.M):
        verb, options = line.split()[1], set(re.findall(r"(--[a-z-]+)", line))
        shown = python("-m", "fedgkd", verb, "--help", cwd=tmp_path)
        assert shown.returncode == 0, line
        assert options <= set(re.findall(r"(--[a-z-]+)", shown.stdout)), line


def test_the_notebook_is_the_tutorial(tmp_path: Path) -> None:
    done = python("scripts/notebook.py", tmp_path / "new.ipynb")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new.ipynb").read_text() == NOTEBOOK.read_text(), "run: python scripts/notebook.py"


_EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""


def test_the_tutorial_runs_and_every_command_succeeds(tmp_path: Path) -> None:
    """In a process of its own, so that the kernel's sockets and threads are not this one's."""
    done = python("-c", _EXECUTE, NOTEBOOK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert _commands_run(tmp_path / "executed.ipynb") == _commands_of_the_tutorial()
    assert (tmp_path / "comparison" / "report" / "report.html").exists()
    predictions = (tmp_path / "predictions.csv").read_text().splitlines()
    assert predictions[0] == "node,class,p_leaves,p_stays,p_undecided"
    assert len(predictions) == 1 + 150


def _commands_of_the_tutorial() -> list[str]:
    blocks = re.findall(r"^```\w*\n(.*?)^```", (DOCS / "tutorial.md").read_text(encoding="utf-8"), re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line.startswith("fedgkd ")]


def _commands_run(executed: Path) -> list[str]:
    """Those in cells that were run; such a cell stops at the first command that fails, and the notebook with it."""
    cells = [cell for cell in json.loads(executed.read_text())["cells"] if cell.get("execution_count")]
    shells = [cell for cell in cells if "".join(cell["source"]).startswith("%%bash -e\n")]
    return [line for cell in shells for line in "".join(cell["source"]).splitlines()[1:]]
