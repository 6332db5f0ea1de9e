"""Damage of every kind to what fedgkd wrote is found, and what cannot be checked is named."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from fedgkd.checksums import SUMS_FILE
from fedgkd.errors import RunError
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Run, resume
from fedgkd.experiments.verify import verify
from fedgkd.reporting.records import read_records
from tests.federation.memory import Memory, make_coordinator, make_plan, make_sites
from tests.graphs import planted_federation

FEDERATION = planted_federation(2, nodes=12)


def begun(folder: Path) -> Run:
    directory = RunDirectory(folder)
    config = make_config(("test", {"rounds": 3, "hidden": 2, "local_epochs": 1, "threads": 1, "model": "gcn"}))
    directory.create(config)
    run = Run(config, FEDERATION, directory)
    run.start()
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    begun(folder).execute()
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_whole_run(copy: Path) -> None:
    found = verify(copy)
    assert (found.problems, found.unverifiable) == ([], [])
    assert found.whole == {"files": 7, "finished runs": 1}
    assert len(list(files(copy))) == 8  # and the sums themselves
    assert read_records(copy).runs


def test_sha256sum_reads_the_sums(copy: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", SUMS_FILE]
    subprocess.run(check, cwd=copy, check=True)
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(" ")
    assert subprocess.run(check, cwd=copy, check=False, capture_output=True).returncode == 1


def test_every_byte_of_every_file_of_a_finished_run_is_checked(copy: Path) -> None:
    """By verify; by the readers, those of the files that they need."""
    for file in files(copy):
        data = file.read_bytes()
        for position in range(len(data)):
            file.write_bytes(data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :])
            assert verify(copy).problems, (file, position)
            if "models" in file.parts:
                with pytest.raises(RunError):
                    PersonalModel.load(file)
            elif file.name != SUMS_FILE:
                with pytest.raises(RunError):
                    read_records(copy)
        file.write_bytes(data)
    assert not verify(copy).problems


@pytest.mark.parametrize("name", ["result.json", "models/client-1.safetensors", "metrics.jsonl", "relations.npz"])
def test_a_file_that_is_missing_or_not_listed(copy: Path, name: str) -> None:
    (copy / name).rename(copy / "aside")
    assert verify(copy).problems == [f"{copy / name} is missing, but SHA256SUMS lists it"]
    (copy / "aside").rename(copy / name)
    sums = copy / SUMS_FILE
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if name not in line))
    expected = [] if name == "relations.npz" else [f"{copy / name} is not listed in SHA256SUMS"]
    assert verify(copy).problems == expected


def test_one_line_per_problem(copy: Path) -> None:
    for name in ("metrics.jsonl", "models/client-0.safetensors"):
        with (copy / name).open("ab") as file:
            file.write(b" ")
    assert verify(copy.parent).problems == [
        f"{copy / 'metrics.jsonl'} is damaged: its SHA-256 is not the one in SHA256SUMS",
        f"{copy / 'models/client-0.safetensors'} is damaged: its SHA-256 is not the one in SHA256SUMS",
    ]


def test_what_an_earlier_version_wrote_is_named_and_still_read(copy: Path) -> None:
    (copy / SUMS_FILE).unlink()
    model = copy / "models" / "client-0.safetensors"
    metadata = '{"format": "fedgkd-model-1", "model": {"kind": "Network", "backbone": "gcn", "num_features": 6, '
    loaded = PersonalModel.load(model)
    description = metadata.replace("6", str(loaded.model.num_features)) + (
        f'"hidden": 2, "layers": 2, "num_classes": {loaded.model.num_classes}}}, '
        '"class_names": null, "feature_names": null, "origin": {}}'
    )
    save_file(load_file(model), model, {"fedgkd": description})
    found = verify(copy)
    assert found.problems == []
    assert found.unverifiable == [
        f"{copy} cannot be verified: it has no SHA256SUMS, because an earlier version wrote it or somebody removed the "
        "file",
        f"{model} can be read but not verified: an earlier version wrote it, without a checksum",
    ]
    assert found.whole["files that have no checksum but can be read"] == 4
    assert read_records(copy).runs
    (copy / "metrics.jsonl").write_text("{")
    assert verify(copy).problems[0].startswith(f"{copy / 'metrics.jsonl'} cannot be read (")


def test_an_unfinished_run(tmp_path: Path) -> None:
    run = begun(tmp_path)
    for _ in range(2):
        run.step()
    found = verify(tmp_path)
    assert (found.problems, found.unverifiable) == ([], [])
    assert found.whole["unfinished runs"] == 1
    assert found.whole["checkpoints"] >= 2
    metrics = tmp_path / "metrics.jsonl"
    text = metrics.read_bytes()
    metrics.write_bytes(text.replace(b"loss", b"lost", 1))
    sentence = (
        f"{metrics} is damaged: the rounds before the checkpoint are not as they were written; "
        "put back a copy of it, or start a new run"
    )
    assert verify(tmp_path).problems == [sentence]
    damaged = metrics.read_bytes()
    with pytest.raises(RunError) as caught:
        resume(RunDirectory(tmp_path), FEDERATION)
    assert str(caught.value) == sentence
    assert metrics.read_bytes() == damaged  # nothing is dropped
    metrics.write_bytes(text)
    resume(RunDirectory(tmp_path), FEDERATION).execute()
    assert not verify(tmp_path).problems


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    begun(tmp_path).step()
    state = tmp_path / "checkpoint" / "state-1.safetensors"
    data = state.read_bytes()
    state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert verify(tmp_path).problems == [f"{tmp_path / 'checkpoint'}: the checkpoint state-1 is damaged"]


def test_nothing_to_verify(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="holds nothing that fedgkd wrote"):
        verify(tmp_path)
    with pytest.raises(RunError, match="there is no"):
        verify(tmp_path / "none")
    assert verify_sentence(tmp_path / "notes.txt").endswith("is not a model file of fedgkd, or is damaged")


def verify_sentence(path: Path) -> str:
    (sentence,) = verify(path).problems
    return sentence


def test_the_folders_of_a_federation(tmp_path: Path) -> None:
    plan = make_plan(FEDERATION, "fedavg", rounds=2)
    coordinator = make_coordinator(plan, tmp_path)
    sites = make_sites(plan, FEDERATION, tmp_path)
    coordinator.run_segment(Memory(sites))
    found = verify(tmp_path)
    assert (found.problems, found.unverifiable) == ([], [])
    assert found.whole["finished runs"] == 1
    site = min(tmp_path.glob("site-*"))
    for name in ("model.safetensors", "metrics.jsonl", "result.json"):
        data = (site / name).read_bytes()
        (site / name).write_bytes(data[:-1] + b"?")
        assert verify(tmp_path).problems == [f"{site / name} is damaged: its SHA-256 is not the one in SHA256SUMS"]
        (site / name).write_bytes(data)
    state = site / "state" / "site-0.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    assert verify(tmp_path).problems == [f"{site / 'state'}: the checkpoint site-0 is damaged"]
