"""Files and folders appear whole or not at all."""

from pathlib import Path

import pytest

from fedgkd.atomic import atomic_folder, atomic_write, atomic_write_text, remove_leftovers
from fedgkd.errors import DataError, RunError


def test_a_file_is_written_with_its_parents(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    atomic_write_text(path, "né", DataError)
    assert path.read_text(encoding="utf-8") == "né"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path, DataError) as temporary:  # noqa: PT012
        temporary.write_text("half of the n")
        _ = 1 / 0
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_disk_full_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with (
        pytest.raises(RunError, match=r"^cannot write .*a\.txt: No space left on device$"),
        atomic_write(path, RunError),
    ):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for text in ("first", "second"):
        with atomic_folder(folder, DataError) as temporary:
            (temporary / f"{text}.txt").write_text(text)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert [entry.name for entry in folder.iterdir()] == ["second.txt"]


def test_a_failed_folder_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    with pytest.raises(DataError, match="No space left"), atomic_folder(folder, DataError) as temporary:  # noqa: PT012
        (temporary / "half.txt").write_text("half")
        raise OSError(28, "No space left on device")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert [entry.name for entry in folder.iterdir()] == ["kept.txt"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"), atomic_folder(tmp_path / "file" / "out", DataError):
        pass
    with pytest.raises(DataError, match="cannot write"):
        atomic_write_text(tmp_path / "file" / "a.txt", "", DataError)


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    (tmp_path / ".a.txt.abcdefgh.part").write_text("half")
    (tmp_path / ".out.abcdefgh.part").mkdir()
    (tmp_path / ".out.abcdefgh.part" / "b.txt").write_text("half")
    others = {".hidden", ".a.txt.swp", "a.txt.abcdefgh.part", ".a.txt.abcdefgh.part.txt"}
    for name in others:
        (tmp_path / name).write_text("somebody's")
    with atomic_write(tmp_path / "b.txt", DataError) as ours:
        ours.write_text("b")
        assert {entry.name for entry in tmp_path.iterdir()} == others | {ours.name}
        remove_leftovers(tmp_path)
    with atomic_folder(tmp_path / "out", DataError) as folder:
        remove_leftovers(tmp_path)
        assert folder.is_dir()
    assert {entry.name for entry in tmp_path.iterdir()} == others | {"b.txt", "out"}
