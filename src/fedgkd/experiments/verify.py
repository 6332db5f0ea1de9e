"""Whether what fedgkd wrote is still what it wrote: runs, grids of runs, the folders of federations, model files."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedgkd.checksums import SUMS_FILE, damaged_files, read_sums
from fedgkd.errors import RunError, shortened
from fedgkd.experiments.checkpoint import Slots
from fedgkd.experiments.directory import MODELS, RunDirectory
from fedgkd.experiments.model_file import PersonalModel, has_digest

_SLOTS = {"checkpoint": ("state", "best"), "state": ("site",)}
"""Which checkpoints lie in a folder of that name: of a run, or of a site of a federation."""

_RECORDS = ("config.toml", "clients.json", "metrics.jsonl", "result.json")
_WITHOUT_SUMS = ("grid.json", "study.json", "failed.json", "motivation.json", "status.json", "run.json")
"""Files that change while they are in use, so nothing lists them."""


@dataclass
class Findings:
    """What came of looking.

    Attributes:
        problems: A sentence for everything that is damaged or missing.
        unverifiable: A sentence for everything that should have a checksum and has none.
        whole: How much there is of each kind that is as it was written.
    """

    problems: list[str] = field(default_factory=list)
    unverifiable: list[str] = field(default_factory=list)
    whole: Counter[str] = field(default_factory=Counter)


def verify(path: Path) -> Findings:
    """Check a model file, or everything below a folder.

    Raises:
        RunError: If there is nothing of fedgkd's.
    """
    if not path.exists():
        raise RunError(f"there is no {path}; give a run, a folder of runs or a model file")
    look = _Look()
    if path.is_dir():
        for folder in _folders(path):
            look.into(folder)
    else:
        look.at_model(path)
    found = look.findings
    if not (found.problems or found.unverifiable or found.whole):
        raise RunError(f"{path} holds nothing that fedgkd wrote; give a run, a folder of runs or a model file")
    return found


def _folders(folder: Path) -> Iterator[Path]:
    """The folder and all below it, those above first; hidden ones are somebody's unfinished writing."""
    yield folder
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
            yield from _folders(entry)


class _Look:
    def __init__(self) -> None:
        self.findings = Findings()
        self._listed: set[Path] = set()

    def into(self, folder: Path) -> None:
        if folder.name in _SLOTS:
            self._at_checkpoints(folder)
            return
        directory = RunDirectory(folder)
        is_run = directory.config_file.exists()
        if directory.is_unfinished:
            self._at_unfinished(directory)
        elif (folder / SUMS_FILE).exists():
            self._at_sums(folder, is_run)
        elif is_run and directory.is_finished:
            self.findings.unverifiable.append(
                f"{folder} cannot be verified: it has no {SUMS_FILE}, because an earlier version wrote it or somebody "
                "removed the file"
            )
        for file in sorted(folder.glob("*.safetensors")):
            if file not in self._listed:
                self.at_model(file)
        for name in (*_WITHOUT_SUMS, *(_RECORDS if directory.is_finished else ())):
            if folder / name not in self._listed:
                self._at_text(folder / name)

    def at_model(self, file: Path) -> None:
        try:
            PersonalModel.load(file)
        except RunError as problem:
            self.findings.problems.append(str(problem))
            return
        if has_digest(file):
            self.findings.whole["models"] += 1
        else:
            self.findings.unverifiable.append(
                f"{file} can be read but not verified: an earlier version wrote it, without a checksum"
            )

    def _at_sums(self, folder: Path, is_run: bool) -> None:
        try:
            listed = {folder / name for name in read_sums(folder) or {}}
            problems = list(damaged_files(folder))
        except RunError as problem:
            listed, problems = set(), [str(problem)]
        else:
            expected = [*(folder / name for name in _RECORDS), *(folder / MODELS).glob("*.safetensors")]
            strays = [file for file in expected if file.exists() and file not in listed]
            problems += [f"{file} is not listed in {SUMS_FILE}" for file in strays]
        self._listed |= listed
        self.findings.problems += problems
        self.findings.whole["files"] += max(0, len(listed) - len(problems))
        self.findings.whole["finished runs"] += is_run and not problems

    def _at_unfinished(self, directory: RunDirectory) -> None:
        try:
            directory.check_records()
        except RunError as problem:
            self.findings.problems.append(str(problem))
        else:
            self.findings.whole["unfinished runs"] += 1

    def _at_checkpoints(self, folder: Path) -> None:
        problems: list[str] = []
        for name in _SLOTS[folder.name]:
            self.findings.whole["checkpoints"] += len(Slots(folder, name).newest_first(problems))
        self.findings.problems += [f"{folder}: {problem}" for problem in problems]

    def _at_text(self, file: Path) -> None:
        """Of a file that has no checksum it can only be said whether it can be read."""
        if not file.exists():
            return
        try:
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".toml":
                tomllib.loads(text)
            else:
                for part in text.splitlines() if file.suffix == ".jsonl" else [text]:
                    json.loads(part)
        except (OSError, ValueError, RecursionError) as error:
            self.findings.problems.append(f"{file} cannot be read ({shortened(error)}); put back a copy of it")
        else:
            self.findings.whole["files that have no checksum but can be read"] += 1
