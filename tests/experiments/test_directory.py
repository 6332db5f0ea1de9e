"""The files of a run: claiming a folder, going back to a round, the end."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgkd.errors import RunError
from fedgkd.experiments import locks
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory, new_folder

CONFIG = make_config(("test", {"rounds": 3}))


def matrices(round_: int, clients: int = 2) -> NDArray[np.float32]:
    return np.full((3, clients, clients), round_, np.float32) + np.arange(3, dtype=np.float32)[:, None, None] / 10


def written(path: Path, rounds: int = 3) -> RunDirectory:
    directory = RunDirectory(path)
    directory.create(CONFIG)
    for round_ in range(1, rounds + 1):
        directory.append_round({"round": round_}, matrices(round_))
    return directory


def recorded(directory: RunDirectory) -> list[int]:
    return [json.loads(line)["round"] for line in directory.metrics_file.read_text().splitlines()]


def test_a_new_folder_gets_the_complete_config(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "new" / "run")
    directory.create(CONFIG)
    assert directory.load_config() == CONFIG
    assert [path.name for path in directory.path.iterdir()] == ["config.toml"]


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    RunDirectory(tmp_path).create(CONFIG)
    assert (tmp_path / "config.toml").exists()


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    directory = written(tmp_path / "run")
    before = directory.config_file.read_bytes()
    with pytest.raises(RunError) as caught:
        RunDirectory(tmp_path / "run").create(make_config())
    assert str(caught.value) == (
        f"{tmp_path / 'run'} already holds a run, which can go on with: fedgkd resume {tmp_path / 'run'}; "
        "choose another --out for a new one"
    )
    directory.finish({}, num_clients=2)
    with pytest.raises(RunError, match="already holds a run, which is finished; choose another --out"):
        RunDirectory(tmp_path / "run").create(make_config())
    assert directory.config_file.read_bytes() == before


def test_a_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty \(notes.txt\); choose another --out"):
        RunDirectory(tmp_path).create(CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("below", ["file", "file/run"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*config.toml: (Not a directory|File exists)"):
        RunDirectory(tmp_path / below).create(CONFIG)


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run \(no config.toml\); start one with: fedgkd run --out"):
        RunDirectory(tmp_path / "nothing").load_config()


def test_rewind_drops_later_rounds(tmp_path: Path) -> None:
    directory = written(tmp_path, rounds=3)
    directory.rewind(2, num_clients=2)
    assert recorded(directory) == [1, 2]
    directory.append_round({"round": 3}, matrices(30))
    directory.finish({}, num_clients=2)
    with np.load(directory.relations_file) as relations:
        assert relations["R"][:, 0, 0].tolist() == [1, 2, 30]


def test_rewind_drops_half_a_line(tmp_path: Path) -> None:
    """What a kill, or a full disk, leaves of the round that it hit."""
    directory = written(tmp_path, rounds=2)
    with directory.metrics_file.open("a") as file:
        file.write('{"round": 3, "lo')
    with (tmp_path / "relations.bin").open("ab") as log:
        log.write(b"12345")
    directory.rewind(2, num_clients=2)
    directory.append_round({"round": 3}, matrices(3))
    assert recorded(directory) == [1, 2, 3]
    directory.finish({}, num_clients=2)
    with np.load(directory.relations_file) as relations:
        assert relations["Q"].shape == (3, 2, 2)


def test_rewind_to_the_start(tmp_path: Path) -> None:
    fresh = RunDirectory(tmp_path / "fresh")
    fresh.create(CONFIG)
    fresh.rewind(0, num_clients=2)
    directory = written(tmp_path / "run", rounds=2)
    directory.rewind(0, num_clients=2)
    assert recorded(directory) == recorded(fresh) == []


@pytest.mark.parametrize("lost", ["metrics.jsonl", "relations.bin"])
def test_records_that_are_gone_are_not_made_up(tmp_path: Path, lost: str) -> None:
    directory = written(tmp_path, rounds=2)
    (tmp_path / lost).unlink()
    with pytest.raises(RunError, match="the records of rounds before 3 are missing; start a new run"):
        directory.rewind(2, num_clients=2)


def test_the_end_leaves_relations_and_result(tmp_path: Path) -> None:
    directory = written(tmp_path, rounds=2)
    directory.finish({"test_accuracy": 0.5}, num_clients=2)
    assert directory.read_result() == {"test_accuracy": 0.5}
    with np.load(directory.relations_file) as relations:
        assert {name: relations[name].shape for name in relations} == dict.fromkeys(("R", "S", "Q"), (2, 2, 2))
        np.testing.assert_allclose(relations["Q"][1], 2.2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "SHA256SUMS",
        "config.toml",
        "metrics.jsonl",
        "relations.npz",
        "result.json",
    ]


def test_a_damaged_result_is_one_sentence(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.result_file.write_text("{")
    with pytest.raises(RunError) as caught:
        directory.read_result()
    assert str(caught.value).startswith(f"{directory.result_file} is damaged (")
    assert str(caught.value).endswith("put back a copy of it, or repeat the run in another folder")
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(RunError, match="or move it elsewhere: then the run goes on from its checkpoint"):
        directory.tidy()
    assert (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "relations.bin"])
def test_records_that_somebody_changed_end_no_run(tmp_path: Path, name: str) -> None:
    directory = written(tmp_path, rounds=2)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-2] + b"?" + data[-1:])
    with pytest.raises(RunError, match=f"{name} is damaged: it is not as it was written; put back a copy of it"):
        directory.finish({}, num_clients=2)
    assert not directory.is_finished
    (tmp_path / name).write_bytes(data)
    directory.finish({}, num_clients=2)
    assert directory.is_finished


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    directory = written(tmp_path, rounds=0)
    directory.metrics_file.symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write to .*: No space left on device"):
        directory.append_round({"round": 1}, matrices(1))


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    directory = RunDirectory(folder)
    with directory.held():
        directory.create(CONFIG)
        directory.append_round({"round": 1}, matrices(1))
        shutil.rmtree(folder)
        with pytest.raises(RunError, match=r"removed while fedgkd was at work there; nothing more is written"):
            directory.append_round({"round": 2}, matrices(2))
        with pytest.raises(RunError, match="removed while fedgkd was at work"):
            directory.finish({}, num_clients=2)
        with pytest.raises(RunError, match=r"cannot write the checkpoint .*: No such file or directory"):
            directory.state.write(2, {}, {})
    assert not folder.exists()


def test_a_folder_that_was_given_to_another_run_is_left_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first, second = RunDirectory(folder), RunDirectory(folder)
    with ExitStack() as both:
        ends_first = both.enter_context(ExitStack())
        ends_first.enter_context(first.held())
        first.create(CONFIG)
        shutil.rmtree(folder)
        both.enter_context(second.held())
        second.create(CONFIG)
        with pytest.raises(RunError, match="removed while fedgkd was at work"):
            first.append_round({"round": 1}, matrices(1))
        ends_first.close()
        with pytest.raises(RunError, match="another fedgkd is at work"):
            RunDirectory(folder).held().__enter__()
    assert [path.name for path in folder.iterdir()] == ["config.toml"]


def test_what_kills_left_behind_is_removed(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    leftovers = [".lock", ".config.toml.abcdefgh.part", "models/.client-0.safetensors.abcdefgh.part"]
    (tmp_path / "models").mkdir()
    for name in leftovers:
        (tmp_path / name).write_text("half")
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"is not empty \(elsewhere\)"):  # what was not left by a kill is somebody's
        directory.check_unused()
    (tmp_path / "elsewhere").rename(tmp_path / "models")
    with directory.held():
        assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "models"]
    (tmp_path / "models").rmdir()
    with directory.held():
        directory.create(CONFIG)


def test_a_finished_run_is_tidied_and_never_gone_on_with(tmp_path: Path) -> None:
    directory = written(tmp_path)
    directory.state.write(3, {}, {})
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    directory.finish({"rounds": 3}, num_clients=2)
    whole = sorted(path.name for path in tmp_path.rglob("*"))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / ".lock").touch()
    for path, data in kept.items():  # as if killed when the result was written
        path.write_bytes(data)
    with pytest.raises(RunError, match="is finished; there is nothing to go on with"):
        directory.rewind(3, num_clients=2)
    directory.tidy()
    assert sorted(path.name for path in tmp_path.rglob("*")) == whole


def test_new_folders_are_counted_up(tmp_path: Path) -> None:
    assert new_folder(tmp_path / "runs", "run") == tmp_path / "runs" / "run"
    (tmp_path / "runs" / "run-2").mkdir()
    assert new_folder(tmp_path / "runs", "run") == tmp_path / "runs" / "run-3"
    assert (tmp_path / "runs" / "run-3").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write to .*file: "):
        new_folder(tmp_path / "file", "run")


def test_one_process_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunDirectory(folder).held():
        RunDirectory(folder).create(CONFIG)
        for blocked in (RunDirectory(folder).held().__enter__, RunDirectory(folder).check_idle):
            with pytest.raises(RunError, match=r"another fedgkd is at work in .*run; wait for it"):
                blocked()
    RunDirectory(folder).check_idle()
    with pytest.raises(RunError, match="which can go on with: fedgkd resume"):
        RunDirectory(folder).check_unused()


def test_who_waits_for_a_folder_gets_it_when_its_lock_is_removed(tmp_path: Path) -> None:
    """The one who waits holds an open file that the other removes: it must not be content with that."""
    waiting, got_it = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        with locks.locked(tmp_path, wait=True):
            got_it.set()
            with pytest.raises(RunError, match="another fedgkd is at work"):
                RunDirectory(tmp_path).held().__enter__()

    with ThreadPoolExecutor(1) as beside:
        with RunDirectory(tmp_path).held():
            found = beside.submit(wait)
            waiting.wait(10)
            assert not got_it.wait(0.1)
        found.result(10)
    assert list(tmp_path.iterdir()) == []


def test_without_locks_of_the_system_a_run_goes_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    with RunDirectory(tmp_path).held(), RunDirectory(tmp_path).held():
        RunDirectory(tmp_path).create(CONFIG)
