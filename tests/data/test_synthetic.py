"""The synthetic graph has the numbers that were asked for."""

import time
from typing import Any

import numpy as np
import pymetis
import pytest

from fedgkd.data.graph import Graph
from fedgkd.data.synthetic import synthetic_graph
from fedgkd.errors import SettingError


def _same_class_share(graph: Graph) -> float:
    source, target = graph.edge_index
    return float((graph.y[source] == graph.y[target]).mean())


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("label_skew", [0.0, 0.5, 1.0])
def test_sizes_and_homophily(homophily: float, label_skew: float) -> None:
    graph = synthetic_graph(600, 4, 10, 6, homophily, label_skew, seed=3)
    assert (graph.num_nodes, graph.num_classes, graph.num_features, graph.num_edges) == (600, 4, 10, 3600)
    assert _same_class_share(graph) == pytest.approx(homophily, abs=1e-3)


def test_edges_are_simple_and_undirected() -> None:
    edges = synthetic_graph(300, 3, 4, 10).edge_index
    pairs = set(zip(*edges.tolist(), strict=True))
    assert len(pairs) == edges.shape[1]
    assert all(u != v and (v, u) in pairs for u, v in pairs)


def test_seed_decides_everything() -> None:
    one, same, other = (synthetic_graph(200, seed=seed) for seed in (5, 5, 6))
    for field in ("x", "edge_index", "y"):
        assert getattr(one, field).tobytes() == getattr(same, field).tobytes()
        assert getattr(one, field).tobytes() != getattr(other, field).tobytes()


def test_label_skew_shows_in_a_metis_partition() -> None:
    def mean_share_of_leading_class(label_skew: float) -> float:
        graph = synthetic_graph(2000, 5, 4, 8, 0.8, label_skew, seed=1)
        adjacency = graph.adjacency()
        _, part = pymetis.part_graph(20, pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices))
        counts = np.zeros((20, 5))
        np.add.at(counts, (np.array(part), graph.y), 1)
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    shares = [mean_share_of_leading_class(skew) for skew in (0.0, 0.5, 1.0)]
    # A community's leading class has the skew plus a fifth of the rest; at 0 the largest of five equal shares leads.
    assert shares == pytest.approx([0.25, 0.6, 1.0], abs=0.05)


def test_features_tell_the_class_but_not_surely() -> None:
    graph = synthetic_graph(3000, 4, 32, seed=2)
    half = np.arange(3000) < 1500
    means = np.stack([graph.x[half & (graph.y == c)].mean(axis=0) for c in range(4)])
    guess = (graph.x @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)
    assert 0.4 < (guess == graph.y)[~half].mean() < 0.9


def test_size_of_ogbn_arxiv_in_seconds() -> None:
    start = time.perf_counter()
    graph = synthetic_graph(169_343, 40, 128, 2 * 1_157_799 / 169_343, 0.65)
    assert time.perf_counter() - start < 30
    assert graph.num_edges == 2_315_598


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"homophily": 1.5}, "homophily must be between 0 and 1, not 1.5"),
        ({"label_skew": float("nan")}, "label_skew must be between 0 and 1, not nan"),
        ({"num_classes": 1}, "num_classes must be at least 2, not 1"),
        ({"num_nodes": 4}, "num_nodes must be at least 20, not 4"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"average_degree": 2000}, "average_degree must be between 0 and 1999, not 2000"),
        ({"num_nodes": 20, "average_degree": 15, "homophily": 1.0}, "cannot place 150 edges inside the classes"),
        ({"num_nodes": 20, "num_classes": 2, "average_degree": 15, "homophily": 0.0}, "cannot place 150 edges between"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        synthetic_graph(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_nodes": 10**12}, "GB of memory, but"),
        ({"num_features": 10**12}, "GB of memory, but"),
        ({"average_degree": 1900.0}, "cannot place 1520000 edges inside the classes"),
        ({"average_degree": 1900.0, "homophily": 0.0}, "cannot place 1900000 edges between the classes"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_tried(options: dict[str, float], sentence: str) -> None:
    began = time.process_time()
    with pytest.raises(SettingError, match=sentence):
        synthetic_graph(**options)
    assert time.process_time() - began < 1
