"""Two slots that take turns, and what is left after damage of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedgkd.clients import Tensors
from fedgkd.errors import RunError
from fedgkd.experiments.checkpoint import Slots, Stored


def tensors(value: float) -> Tensors:
    return {
        "w": torch.full((2, 3), value),
        "precise": torch.full((2,), value, dtype=torch.float64),
        "steps": torch.tensor([int(value)]),
        "mask": torch.tensor([True, False, True]),
        "nothing": torch.zeros(0, 4),
    }


@pytest.fixture
def slots(tmp_path: Path) -> Slots:
    """Checkpoints 4 and 5."""
    made = Slots(tmp_path / "checkpoint", "state")
    for serial in (3, 4, 5):
        made.write(serial, tensors(serial), {"round": serial, "share": 0.1, "names": ["a", None]})
    return made


def newest(slots: Slots) -> tuple[Stored | None, list[str]]:
    problems: list[str] = []
    return next(iter(slots.newest_first(problems)), None), problems


def test_two_slots_take_turns(slots: Slots, tmp_path: Path) -> None:
    problems: list[str] = []
    assert [stored.serial for stored in slots.newest_first(problems)] == [5, 4]
    assert problems == []
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == [
        "state-0.json",
        "state-0.safetensors",
        "state-1.json",
        "state-1.safetensors",
    ]


def test_what_is_read_is_what_was_written(slots: Slots) -> None:
    stored, _ = newest(slots)
    assert stored is not None
    assert stored.facts == {"round": 5, "share": 0.1, "names": ["a", None]}
    assert stored.tensors.keys() == tensors(5).keys()
    for name, tensor in tensors(5).items():
        assert stored.tensors[name].equal(tensor)
        assert stored.tensors[name].dtype == tensor.dtype


def test_by_serial_number(slots: Slots) -> None:
    four = slots.read(4)
    assert four is not None
    assert four.tensors["w"].equal(tensors(4)["w"])
    assert slots.read(3) is None  # overwritten by 5


def test_kinds_do_not_mix(slots: Slots, tmp_path: Path) -> None:
    other = Slots(tmp_path / "checkpoint", "best")
    assert other.newest_first([]) == []
    other.write(1, tensors(1), {})
    assert newest(slots)[0] is not None
    assert [stored.serial for stored in other.newest_first([])] == [1]


def test_an_empty_folder_is_no_problem(tmp_path: Path) -> None:
    assert newest(Slots(tmp_path / "none", "state")) == (None, [])


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    broken = {
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "garbage": np.random.default_rng(0).bytes(len(whole)),
        "one bit": whole[:-1] + bytes([whole[-1] ^ 1]),
        "longer": whole + b"12345678",
    }
    path.write_bytes(broken[how])


@pytest.mark.parametrize("file", ["state-1.safetensors", "state-1.json"])
@pytest.mark.parametrize("how", ["truncated", "empty", "garbage", "one bit", "longer"])
def test_a_damaged_newest_one_falls_back_to_the_previous(slots: Slots, tmp_path: Path, file: str, how: str) -> None:
    damage(tmp_path / "checkpoint" / file, how)
    stored, problems = newest(slots)
    assert stored is not None
    assert stored.serial == 4
    assert stored.tensors["w"].equal(tensors(4)["w"])
    assert problems == ["the checkpoint state-1 is damaged"]


@pytest.mark.parametrize(
    "description",
    [[], "text", 5, None, {}, {"serial": 5}, {"serial": 5, "facts": {}, "checksum": 1}, {"checksum": None}],
)
def test_a_description_of_something_else(slots: Slots, tmp_path: Path, description: Any) -> None:
    (tmp_path / "checkpoint" / "state-1.json").write_text(json.dumps(description))
    stored, problems = newest(slots)
    assert stored is not None
    assert (stored.serial, problems) == (4, ["the checkpoint state-1 is damaged"])


def test_facts_are_covered_by_the_checksum(slots: Slots, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint" / "state-1.json"
    path.write_text(path.read_text().replace('"share": 0.1', '"share": 0.7'))
    assert newest(slots)[1] == ["the checkpoint state-1 is damaged"]


def test_without_its_description_a_slot_does_not_count(slots: Slots, tmp_path: Path) -> None:
    """That is how a kill in the middle of a checkpoint leaves it: nothing is wrong."""
    (tmp_path / "checkpoint" / "state-1.json").unlink()
    stored, problems = newest(slots)
    assert stored is not None
    assert (stored.serial, problems) == (4, [])


def test_missing_tensors_are_damage(slots: Slots, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "state-1.safetensors").unlink()
    assert newest(slots)[1] == ["the checkpoint state-1 is damaged"]


def test_both_damaged(slots: Slots, tmp_path: Path) -> None:
    for slot in (0, 1):
        damage(tmp_path / "checkpoint" / f"state-{slot}.safetensors", "garbage")
    stored, problems = newest(slots)
    assert stored is None
    assert problems == ["the checkpoint state-0 is damaged", "the checkpoint state-1 is damaged"]


def test_what_was_read_stays_when_its_file_is_overwritten(slots: Slots) -> None:
    stored, _ = newest(slots)
    assert stored is not None
    slots.write(7, {"w": torch.zeros(1)}, {})  # the same slot, and a shorter file
    assert stored.tensors["w"].equal(tensors(5)["w"])


def test_the_files_are_plain_safetensors(tmp_path: Path) -> None:
    more = {"transposed": torch.arange(6.0).view(2, 3).T, "scalar": torch.tensor(2.5)}
    Slots(tmp_path, "state").write(1, tensors(8) | more, {})
    found = load_file(tmp_path / "state-1.safetensors")
    assert found["w"].equal(tensors(8)["w"])
    assert found["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["scalar"].item() == 2.5


def test_a_shorter_file_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    made = Slots(tmp_path, "state")
    for serial, tensor in enumerate((torch.zeros(1000), torch.zeros(1000), torch.ones(2))):
        made.write(serial, {"w": tensor}, {})
    stored, _ = newest(made)
    assert stored is not None
    assert stored.tensors["w"].tolist() == [1, 1]
    assert (tmp_path / f"state-{stored.slot}.safetensors").stat().st_size < 1000


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write the checkpoint .*state-1.safetensors: Not a directory"):
        Slots(tmp_path / "file" / "checkpoint", "state").write(1, tensors(1), {})


def test_a_full_disk_is_one_sentence_and_leaves_the_previous_one(slots: Slots, tmp_path: Path) -> None:
    tensor_file = tmp_path / "checkpoint" / "state-0.safetensors"
    tensor_file.unlink()
    tensor_file.symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write the checkpoint .*state-0.safetensors: No space left on device"):
        slots.write(6, tensors(6), {})
    stored, problems = newest(slots)
    assert stored is not None
    assert (stored.serial, problems) == (5, [])


def test_the_newest_checkpoint_is_never_overwritten_whatever_the_serials(tmp_path: Path) -> None:
    made = Slots(tmp_path / "checkpoint", "state")
    for serial in (2, 4, 6):
        made.write(serial, tensors(serial), {})
        assert [stored.serial for stored in made.newest_first([])] == [s for s in (serial, serial - 2) if s]
    again = Slots(tmp_path / "checkpoint", "state")  # as after a restart
    again.write(8, tensors(8), {})
    assert [stored.serial for stored in again.newest_first([])] == [8, 6]
    assert again.read(6) is not None
    assert again.read(4) is None


def test_what_was_read_back_is_spared_even_if_a_newer_one_lies_beside_it(tmp_path: Path) -> None:
    """A kill left number 6, to which nothing refers yet; a second one comes while it is written again."""
    made = Slots(tmp_path / "checkpoint", "best")
    for serial in (5, 6):
        made.write(serial, tensors(serial), {})
    again = Slots(tmp_path / "checkpoint", "best")
    assert again.read(5) is not None
    again.write(6, tensors(7), {})
    assert again.read(5) is not None
    found = again.read(6)
    assert found is not None
    assert found.tensors["w"][0, 0] == 7


def test_a_tensor_of_another_type_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot hold the tensor 'z' of type torch\.float16"):
        Slots(tmp_path, "state").write(1, {"z": torch.zeros(1, dtype=torch.float16)}, {})
