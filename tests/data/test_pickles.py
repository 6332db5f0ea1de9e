"""The restricted unpickler: reads what Planetoid needs, runs nothing else."""

import os
import pickle
import tracemalloc
from collections import OrderedDict
from contextlib import suppress
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
    with pytest.raises(DataError, match=r"ind\.cora\.ty: no such file"):
        load_pickle(tmp_path / "ind.cora.ty")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x02]p1000000000\n.",
        b"\x80\x05\x96\xff\xff\xff\xff\x01\x00\x00\x00.",
        b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7ftR.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(K\x01tR(K\x01J\xff\xff\xff\x7f\x85K\x01\x89U\x00tb.",
    ],
    ids=["memo", "memo in digits", "bytes", "array", "shape"],
)
def test_what_a_file_only_names_takes_no_memory(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ind.cora.ty"
    file.write_bytes(content)
    tracemalloc.start()
    try:
        with suppress(DataError):
            load_pickle(file)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
