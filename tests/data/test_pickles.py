"""The restricted unpickler: reads what Planetoid needs, runs nothing else."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest

from fedgkd.data.pickles import load_pickle
from fedgkd.errors import DataError


class _Malicious:
    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self._marker}'",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_malicious_pickle_is_refused_and_does_not_execute(tmp_path: Path, protocol: int) -> None:
    marker, file = tmp_path / "marker", tmp_path / "ind.cora.allx"
    file.write_bytes(pickle.dumps(_Malicious(marker), protocol))
    with pytest.raises(DataError, match=rf"ind\.cora\.allx: refused to unpickle '{os.system.__module__}\.system'"):
        load_pickle(file)
    assert not marker.exists()
    pickle.loads(file.read_bytes())  # the same bytes do execute where nobody looks
    assert marker.exists()


def test_class_of_an_admitted_module_is_refused_too(tmp_path: Path) -> None:
    file = tmp_path / "ind.cora.graph"
    file.write_bytes(pickle.dumps(OrderedDict(a=1)))
    with pytest.raises(DataError, match=r"refused to unpickle 'collections\.OrderedDict'"):
        load_pickle(file)


def test_admitted_classes_are_made(tmp_path: Path) -> None:
    file = tmp_path / "ind.cora.graph"
    file.write_bytes(b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntRI0\n(lI1\nas.")  # as Python 2 wrote it
    assert load_pickle(file) == {0: [1]}


@pytest.mark.parametrize("content", [b"", b"\x80\x02]q\x00(K", b"no pickle at all"])
def test_truncated_or_foreign_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ind.cora.ty"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"ind\.cora\.ty: not a readable pickle"):
        load_pickle(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ind\.cora\.ty: cannot be read"):
        load_pickle(tmp_path / "ind.cora.ty")
